r"""Format names [MS-MQMQ 2.1]: the texts by which applications and packets address queues.

Printing gives a normal form: keywords and GUIDs in capitals, private numbers as eight digits; the
names of computers and queues keep their case. Identity is separate: names that differ only in case
or in the spelling of an address have one key.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from qm.names.direct import (
    PORT_MAX,
    AnyDirectName,
    DirectName,
    DirectSystemName,
    direct_key,
    direct_text,
    parse_direct_text,
)
from qm.names.errors import excerpt, illegal_format_name
from qm.names.grammar import JOURNAL, SystemQueue, system_queue
from qm.names.guid import GUID_TEXT_LENGTH_CHARS, guid_from_text, guid_text

DIRECT_PREFIX: Final = "DIRECT="

FORMAT_NAME_MAX_CHARS: Final = 512
"""One element. The longest legal one is `DIRECT=HTTPS:` with a host of 256, a queue of 124 and a
subqueue of 32 characters; the rest is room for zeros before a port."""
MULTIPLE_ELEMENT_NAME_MAX_CHARS: Final = 0x20_0000
"""As many characters as a packet of 4 MiB holds WCHARs; the specification has no number."""
ELEMENTS_MAX: Final = 4096
"""Elements of one multiple-element name; the specification has no number."""
NAMES_KEPT: Final = 1_024
"""Single names that were read lately: on its way a message names its queues again and again."""
DOMAIN_MAX_CHARS: Final = 255
"""Domain of a distribution list [MS-MQMQ 2.1.5]."""

_PRIVATE_NUMBER: Final = re.compile(r"[0-9A-F]{1,8}", re.ASCII | re.IGNORECASE)
# Without the comma, which separates the elements of a multiple-element name (MQ-A41).
_DOMAIN: Final = re.compile(r"[!-+\--~]{1,255}")
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_MULTICAST: Final = re.compile(
    rf"((?:22[4-9]|23[0-9])\.{_OCTET}\.{_OCTET}\.{_OCTET}):(0|[1-9][0-9]{{0,4}})", re.ASCII
)


class PublicName(msgspec.Struct, frozen=True, gc=False):
    """`PUBLIC=guid`: a queue registered in the directory [MS-MQMQ 2.1.3]."""

    guid: bytes
    """The directory object's GUID, 16 raw bytes."""
    journal: bool = False
    """The queue's journal instead of the queue (MQ-A1)."""


class PrivateName(msgspec.Struct, frozen=True, gc=False):
    r"""`PRIVATE=guid\number`: a queue known to one computer only [MS-MQMQ 2.1.4]."""

    guid: bytes
    """The computer's queue manager, 16 raw bytes."""
    number: int
    """The queue on that computer, u32."""
    journal: bool = False
    """The queue's journal instead of the queue."""


class DistributionListName(msgspec.Struct, frozen=True, gc=False):
    """`DL=guid[@domain]`: a group object of the directory [MS-MQMQ 2.1.5]."""

    guid: bytes
    """The group's GUID, 16 raw bytes."""
    domain: str = ""
    """The directory domain, up to 255 characters; empty when not given."""


class MachineName(msgspec.Struct, frozen=True, gc=False):
    """`MACHINE=guid;which`: a computer's journal or dead-letter queue [MS-MQMQ 2.1.6].

    The bare form of the grammar has no QUEUE_FORMAT and is refused (MQ-A1).
    """

    guid: bytes
    """The computer's queue manager, 16 raw bytes."""
    system_queue: SystemQueue
    """Which of its queues."""


class ConnectorName(msgspec.Struct, frozen=True, gc=False):
    """`CONNECTOR=guid[;XACTONLY]`: a connector queue [MS-MQMQ 2.1.6]."""

    guid: bytes
    """The connected network, 16 raw bytes."""
    transactional: bool = False
    """The queue for transactional messages instead of the other one (MQ-A1)."""


class MulticastName(msgspec.Struct, frozen=True, gc=False):
    """`MULTICAST=address:port`: all queues bound to a group address [MS-MQMQ 2.1.6]."""

    address: str
    """Dotted decimals, 224.0.0.0 to 239.255.255.255, without leading zeros."""
    port: int
    """0 to 65535; exactly one (MQ-A22)."""


SingleFormatName = (
    AnyDirectName
    | PublicName
    | PrivateName
    | DistributionListName
    | MachineName
    | ConnectorName
    | MulticastName
)


class MultipleElementName(msgspec.Struct, frozen=True, gc=False):
    """Several destinations in one name [MS-MQMQ 2.1.7]; a single one is legal too."""

    elements: tuple[SingleFormatName, ...]
    """At least one; never a machine name, a journal or a dead-letter queue."""


FormatName = SingleFormatName | MultipleElementName


def parse_format_name(text: str) -> FormatName:
    """Read any format name; raise `FormatNameError`.

    A text without a comma gives the name itself, never a MultipleElementName of one element.
    """
    if "," in text:
        return parse_multiple_element_name(text)
    return _parse_single(text)


def parse_direct_format_name(text: str) -> AnyDirectName:
    """Read a direct name as packets and QUEUE_FORMAT carry it; raise `FormatNameError`.

    There it has no `DIRECT=` [MS-MQMQ 2.2.7]; a text that has it is read all the same.
    """
    _check_text(text)
    if text[: len(DIRECT_PREFIX)].upper() == DIRECT_PREFIX:
        text = text[len(DIRECT_PREFIX) :]
    return parse_direct_text(text)


def parse_multiple_element_name(text: str) -> MultipleElementName:
    """Read one or more format names joined by commas; raise `FormatNameError`."""
    if len(text) > MULTIPLE_ELEMENT_NAME_MAX_CHARS:
        raise illegal_format_name(
            f"a name of {len(text)} characters; {MULTIPLE_ELEMENT_NAME_MAX_CHARS} are allowed"
        )
    count = text.count(",") + 1
    if count > ELEMENTS_MAX:
        raise illegal_format_name(f"a name of {count} elements; {ELEMENTS_MAX} are allowed")
    return MultipleElementName(tuple(_element(_parse_single(part)) for part in text.split(",")))


def format_name_text(name: FormatName) -> str:
    """Print the normal form; raise `FormatNameError` for a value that no text gives."""
    if isinstance(name, MultipleElementName):
        if not name.elements:
            raise illegal_format_name("a multiple-element name needs at least one element")
        return ",".join(format_name_text(_element(element)) for element in name.elements)
    text = _print_single(name)
    if _parse_single(text) != name:
        raise illegal_format_name(f"{excerpt(text)} reads back as another value")
    return text


def format_name_key(name: FormatName) -> str:
    """Return the text by which two format names of one queue and one kind compare equal.

    Names of different kinds stay different even when they reach the same queue: each is an outgoing
    queue of its own [MS-MQMQ 1.1].
    """
    if isinstance(name, MultipleElementName):
        return ",".join(map(format_name_key, name.elements))
    if isinstance(name, DirectName | DirectSystemName):
        return DIRECT_PREFIX.lower() + direct_key(name)
    return _print_single(name).lower()


def is_read_only(name: FormatName) -> bool:
    """Tell whether the name is of a journal or dead-letter queue, which cannot be sent to."""
    match name:
        case MachineName() | DirectSystemName():
            return True
        case DirectName() | PublicName() | PrivateName():
            return name.journal
        case MultipleElementName():
            return any(map(is_read_only, name.elements))
        case _:
            return False


def _element(name: SingleFormatName) -> SingleFormatName:
    """Return `name` if it may be an element of a multiple-element name [MS-MQMQ 2.1.7]."""
    if is_read_only(name):
        raise illegal_format_name(
            f"{_print_single(name)} is a read-only queue, not an element of a multiple-element name"
        )
    return name


@lru_cache(NAMES_KEPT)
def _parse_single(text: str) -> SingleFormatName:
    _check_text(text)
    prefix, equals, rest = text.partition("=")
    reader = _READERS.get(prefix.upper()) if equals else None
    if reader is None:
        raise illegal_format_name(
            f"{excerpt(text)} starts with none of {', '.join(f'{known}=' for known in _READERS)}"
        )
    return reader(rest)


def _check_text(text: str) -> None:
    if len(text) > FORMAT_NAME_MAX_CHARS:
        raise illegal_format_name(
            f"a format name of {len(text)} characters; {FORMAT_NAME_MAX_CHARS} are allowed"
        )
    if not text.isascii():
        raise illegal_format_name(f"{excerpt(text)} contains characters outside ASCII")


def _parse_public(text: str) -> PublicName:
    guid, suffix = _leading_guid(text)
    return PublicName(guid, _is_journal(suffix))


def _parse_private(text: str) -> PrivateName:
    guid, rest = _leading_guid(text)
    number, semicolon, suffix = rest.partition(";")
    if not number.startswith("\\") or _PRIVATE_NUMBER.fullmatch(number[1:]) is None:
        raise illegal_format_name(
            f"{excerpt(rest)} is not a backslash and one to eight hexadecimal digits"
        )
    return PrivateName(guid, int(number[1:], 16), _is_journal(semicolon + suffix))


def _parse_distribution_list(text: str) -> DistributionListName:
    guid, rest = _leading_guid(text)
    if not rest:
        return DistributionListName(guid)
    if not rest.startswith("@") or _DOMAIN.fullmatch(rest[1:]) is None:
        raise illegal_format_name(
            f"{excerpt(rest)} is not @ and a domain of 1 to {DOMAIN_MAX_CHARS} characters"
        )
    return DistributionListName(guid, rest[1:])


def _parse_machine(text: str) -> MachineName:
    guid, suffix = _leading_guid(text)
    which = system_queue(suffix[1:]) if suffix.startswith(";") else None
    if which is None:
        raise illegal_format_name(
            f"MACHINE= needs ;JOURNAL, ;DEADLETTER or ;DEADXACT, not {excerpt(suffix)}"
        )
    return MachineName(guid, which)


def _parse_connector(text: str) -> ConnectorName:
    guid, suffix = _leading_guid(text)
    if suffix.lower() not in ("", ";xactonly"):
        raise illegal_format_name(f"a connector takes ;XACTONLY and not {excerpt(suffix)}")
    return ConnectorName(guid, bool(suffix))


def _parse_multicast(text: str) -> MulticastName:
    match = _MULTICAST.fullmatch(text)
    if match is None or int(match[2]) > PORT_MAX:
        raise illegal_format_name(
            f"{excerpt(text)} is not 224.0.0.0 to 239.255.255.255, a colon and 0 to {PORT_MAX}"
        )
    return MulticastName(match[1], int(match[2]))


def _leading_guid(text: str) -> tuple[bytes, str]:
    guid = guid_from_text(text[:GUID_TEXT_LENGTH_CHARS])
    if guid is None:
        raise illegal_format_name(
            f"{excerpt(text)} does not start with a GUID of 8-4-4-4-12 hexadecimal digits"
        )
    return guid, text[GUID_TEXT_LENGTH_CHARS:]


def _is_journal(suffix: str) -> bool:
    if suffix.lower() not in ("", f";{JOURNAL}"):
        raise illegal_format_name(f"a queue of this kind takes ;JOURNAL and not {excerpt(suffix)}")
    return bool(suffix)


_READERS: Final[Mapping[str, Callable[[str], SingleFormatName]]] = {
    "DIRECT": parse_direct_text,
    "PUBLIC": _parse_public,
    "PRIVATE": _parse_private,
    "DL": _parse_distribution_list,
    "MACHINE": _parse_machine,
    "CONNECTOR": _parse_connector,
    "MULTICAST": _parse_multicast,
}


def _print_single(name: SingleFormatName) -> str:
    match name:
        case DirectName() | DirectSystemName():
            return DIRECT_PREFIX + direct_text(name)
        case PublicName():
            return f"PUBLIC={_guid(name.guid)}{_journal_suffix(name.journal)}"
        case PrivateName():
            suffix = _journal_suffix(name.journal)
            return f"PRIVATE={_guid(name.guid)}\\{name.number:08X}{suffix}"
        case DistributionListName():
            return f"DL={_guid(name.guid)}{'@' if name.domain else ''}{name.domain}"
        case MachineName():
            return f"MACHINE={_guid(name.guid)};{name.system_queue.value}"
        case ConnectorName():
            return f"CONNECTOR={_guid(name.guid)}{';XACTONLY' if name.transactional else ''}"
        case MulticastName():
            return f"MULTICAST={name.address}:{name.port}"


def _guid(raw: bytes) -> str:
    try:
        return guid_text(raw)
    except ValueError as fault:
        raise illegal_format_name(str(fault)) from None


def _journal_suffix(journal: bool) -> str:
    return ";JOURNAL" if journal else ""
