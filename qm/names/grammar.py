"""The parts that path names and direct format names share [MS-MQMQ 2.1.1, 2.1.2].

Every check is one pass over its text, and lengths are compared first. Literals match in either
case; spaces and anything outside ASCII are legal nowhere.
"""

import re
from collections.abc import Callable
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from qm.names.errors import QueueNameError

COMPUTER_NAME_MAX_CHARS: Final = 256
QUEUE_NAME_MAX_CHARS: Final = 124
SUBQUEUE_NAME_MAX_CHARS: Final = 32
# The longest IPv6 literal: eight groups, the last two as dotted decimals.
IP_LITERAL_MAX_CHARS: Final = 45

LOCAL_COMPUTER: Final = "."
"""The computer part that stands for the computer that reads it (MS-MQQB, and every client)."""

PRIVATE: Final = "private$"
SYSTEM: Final = "system$"
JOURNAL: Final = "journal"
# Words that a ";" may introduce and that therefore name no subqueue (MQ-A2).
_NEVER_SUBQUEUE: Final = frozenset({"deadletter", "deadxact", "xactonly"})

# 0x21-0x7E without backslash, slash, semicolon, comma and double quote: a comma would split
# multiple-element names, the others would move the boundary between computer and queue.
_COMPUTER: Final = re.compile(r"[!#-+\-.0-:<-\[\]-~]*")
# 0x21-0x3A, 0x3C-0x5B, 0x5D-0x7F.
_QUEUE_1_0: Final = re.compile(r"[!-:<-\[\]-\x7f]*")
# The same without double quote, plus and comma.
_QUEUE_2_0: Final = re.compile(r"[!#-*\--:<-\[\]-\x7f]*")

# Labels of letters, digits, hyphens and, as Windows allows, underscores.
_LABEL: Final = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
HOST_MAX_CHARS: Final = 253

Illegal = Callable[[str], QueueNameError]
"""Makes an error of the right type for the name being read, from a reason."""


class NameVersion(IntEnum):
    """The product versions between which the grammar of queue names changed."""

    MSMQ_1_0 = 1
    """Admits double quote, plus and comma in a queue name."""
    MSMQ_2_0 = 2
    """2.0 and 3.0."""
    MSMQ_4_0 = 4
    """4.0 to 6.0: a queue may have subqueues."""


class SystemQueue(Enum):
    """The system queues of every computer [MS-MQMQ 2.1.2, 2.2.11]."""

    JOURNAL = "JOURNAL"
    """Copies of delivered messages."""
    DEADLETTER = "DEADLETTER"
    """Undelivered non-transactional messages."""
    DEADXACT = "DEADXACT"
    """Undelivered transactional messages."""


_SYSTEM_QUEUES: Final = {member.value.lower(): member for member in SystemQueue}


def system_queue(text: str) -> SystemQueue | None:
    """Return the system queue that a word names, in either case."""
    return _SYSTEM_QUEUES.get(text.lower())


def check_computer_name(text: str, illegal: Illegal) -> None:
    """Raise unless `text` can be the computer part of a name."""
    _check(text, "computer name", COMPUTER_NAME_MAX_CHARS, _COMPUTER, illegal)


def check_queue_name(
    text: str, illegal: Illegal, version: NameVersion = NameVersion.MSMQ_4_0
) -> None:
    """Raise unless `text` can be the name of a queue, without a subqueue."""
    allowed = _QUEUE_1_0 if version is NameVersion.MSMQ_1_0 else _QUEUE_2_0
    _check(text, "queue name", QUEUE_NAME_MAX_CHARS, allowed, illegal)


def check_subqueue_name(text: str, illegal: Illegal) -> None:
    """Raise unless `text` can be the name of a subqueue."""
    _check(text, "subqueue name", SUBQUEUE_NAME_MAX_CHARS, _QUEUE_2_0, illegal)
    if text.lower() in _NEVER_SUBQUEUE or text.lower() == JOURNAL:
        raise illegal(f"{text!r} is a reserved suffix and cannot name a subqueue")


def split_queue(
    text: str, illegal: Illegal, *, version: NameVersion = NameVersion.MSMQ_4_0, private: bool
) -> tuple[str, str | None, bool]:
    """Split `queue[;subqueue]` or `queue;JOURNAL` into queue, subqueue and whether a journal.

    `;JOURNAL` takes precedence over a subqueue of that name; only one suffix is allowed (MQ-A2).
    """
    queue, semicolon, suffix = text.partition(";")
    check_queue_name(queue, illegal, version)
    if not private and queue.lower() in (PRIVATE, SYSTEM):
        raise illegal(f"{queue!r} is reserved: it introduces a private or a system queue")
    if not semicolon:
        return queue, None, False
    if version < NameVersion.MSMQ_4_0:
        raise illegal("subqueues exist from MSMQ 4.0 on")
    if suffix.lower() == JOURNAL:
        return queue, None, True
    check_subqueue_name(suffix, illegal)
    return queue, suffix, False


def ip_literal(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address of an IP literal, in brackets or not; None for any other text.

    A zone ("%eth0") is refused: it is meaningful only on the computer that wrote it. An IPv6
    address that maps an IPv4 one is that IPv4 address.
    """
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if len(inner) > IP_LITERAL_MAX_CHARS or "%" in inner:
        return None
    # Most texts are host names, and the standard parser tells them apart by raising.
    if ":" not in inner and inner.count(".") != 3:
        return None
    try:
        address = ip_address(inner)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return None if inner is not text else address
    return address.ipv4_mapped or address


def is_host(text: str) -> bool:
    """Whether a text is an IP address or a host name; `10.0.0.300` is neither."""
    if ip_literal(text) is not None:
        return True
    if len(text) > HOST_MAX_CHARS or _HOST.fullmatch(text) is None:
        return False
    return not text.removesuffix(".").rpartition(".")[2].isdecimal()


def computer_key(text: str) -> str:
    """Return the form by which two spellings of one computer name or address compare equal.

    Case and the final dot of an absolute DNS name make no difference; addresses have one spelling.
    """
    address = ip_literal(text)
    if address is not None:
        return str(address)
    name = text.lower()
    relative = name.removesuffix(".")
    # ".." is not the local computer, and an address followed by a dot is not an address.
    if not relative or relative.endswith(".") or ip_literal(relative) is not None:
        return name
    return relative


def _check(
    text: str, what: str, max_chars: int, allowed: re.Pattern[str], illegal: Illegal
) -> None:
    if not text:
        raise illegal(f"the {what} is empty")
    if len(text) > max_chars:
        raise illegal(f"the {what} has {len(text)} characters; {max_chars} are allowed")
    match = allowed.match(text)
    legal = 0 if match is None else match.end()
    if legal < len(text):
        raise illegal(f"the {what} holds {text[legal]!r}, which is not allowed there")
