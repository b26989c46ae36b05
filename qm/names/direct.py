r"""Direct format names [MS-MQMQ 2.1.2]: `DIRECT=protocol:address\queue`.

They say where to connect, and so work without a directory. Packets and QUEUE_FORMAT carry the text
without `DIRECT=`, and so do the functions of this module.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from qm.names.errors import excerpt, illegal_format_name
from qm.names.grammar import (
    JOURNAL,
    PRIVATE,
    SYSTEM,
    SystemQueue,
    check_computer_name,
    computer_key,
    ip_literal,
    split_queue,
    system_queue,
)

HTTP_DEFAULT_PORT: Final = 80
HTTPS_DEFAULT_PORT: Final = 443
PORT_MAX: Final = 65535
NAMES_KEPT_MAX: Final = 4_096
"""Names whose parts are remembered: each message names a few, and most name the same ones."""

_VIRTUAL_DIRECTORY: Final = "msmq"
_PORT_DIGITS: Final = re.compile(r"0*([0-9]{0,5})", re.ASCII)
# Network and node of an IPX address. MS-MQMQ 2.1.2 separates them by a colon and MS-MQQB 2.2.4 by a
# period, one for the word IPX and one for SPX; both words and both separators are read (MQ-A35).
_IPX: Final = re.compile(r"([0-9A-F]{1,8})[:.]([0-9A-F]{1,12})", re.ASCII | re.IGNORECASE)


class DirectProtocol(Enum):
    """The protocol word of a direct name."""

    TCP = "TCP"
    OS = "OS"
    HTTP = "HTTP"
    HTTPS = "HTTPS"
    IPX = "IPX"
    SPX = "SPX"
    """What MS-MQQB writes for IPX."""

    @property
    def is_http(self) -> bool:
        """Tell whether the address has the form `//host:port/MSMQ`."""
        return self in (DirectProtocol.HTTP, DirectProtocol.HTTPS)

    @property
    def is_ipx(self) -> bool:
        """Tell whether the address is a Novell network and node."""
        return self in (DirectProtocol.IPX, DirectProtocol.SPX)


class DirectAddress(msgspec.Struct, frozen=True, gc=False):
    """Where a direct name points to; the host is kept as it was received."""

    protocol: DirectProtocol
    """How to connect."""
    host: str
    """TCP: an IP literal. OS, HTTP, HTTPS: a computer name or IP literal; IPv6 is in brackets
    for HTTP. IPX, SPX: network and node in hexadecimal."""
    port: int | None = None
    """HTTP and HTTPS only, 0 to 65535; None means the protocol's default."""
    separator: str = "\\"
    r"""Separator before the queue name: `\`, or `/` where an HTTP name was received so (MQ-A30)."""

    @property
    def effective_port(self) -> int | None:
        """The port to connect to by HTTP or HTTPS; None for protocols whose names carry none."""
        if self.port is not None:
            return self.port
        if self.protocol is DirectProtocol.HTTP:
            return HTTP_DEFAULT_PORT
        return HTTPS_DEFAULT_PORT if self.protocol is DirectProtocol.HTTPS else None


class DirectName(msgspec.Struct, frozen=True, gc=False):
    """A public or private queue, its journal or one of its subqueues, at an address."""

    address: DirectAddress
    """The computer."""
    queue: str
    """Queue name, 1 to 124 characters."""
    private: bool = False
    """Whether the queue is private (`PRIVATE$`)."""
    subqueue: str | None = None
    """Subqueue name, 1 to 32 characters."""
    journal: bool = False
    """The queue's journal instead of the queue."""


class DirectSystemName(msgspec.Struct, frozen=True, gc=False):
    """A computer's journal or dead-letter queue, at an address."""

    address: DirectAddress
    """The computer."""
    system_queue: SystemQueue
    """Which of its queues."""


AnyDirectName = DirectName | DirectSystemName


@lru_cache(NAMES_KEPT_MAX)
def parse_direct_text(text: str) -> AnyDirectName:
    """Read a direct name without `DIRECT=`; raise `FormatNameError`.

    The caller has made sure that `text` is ASCII and of bounded length.
    """
    word, colon, rest = text.partition(":")
    if not colon:
        raise illegal_format_name(f"{excerpt(text)} has no protocol; write DIRECT=OS:computer\\q")
    protocol = _PROTOCOLS.get(word.upper())
    if protocol is None:
        raise illegal_format_name(f"{excerpt(word)} is not a protocol; use TCP, OS, HTTP or HTTPS")
    if protocol.is_http:
        address, tail = _split_http(protocol, rest)
    else:
        address, tail = _split_plain(protocol, rest)
    return _parse_tail(address, tail)


def direct_text(name: AnyDirectName) -> str:
    """Print a direct name as packets carry it, without `DIRECT=` and unchecked."""
    address = name.address
    host = address.host
    if address.protocol.is_http:
        port = "" if address.port is None else f":{address.port}"
        host = f"//{host}{port}/MSMQ"
    return f"{address.protocol.value}:{host}{address.separator}{_tail(name, address.separator)}"


@lru_cache(NAMES_KEPT_MAX)
def direct_key(name: AnyDirectName) -> str:
    """Return the text by which two direct names of one queue and one protocol compare equal.

    Without `DIRECT=`; slashes of HTTP names are folded to backslashes (MQ-A30).
    """
    tail = _tail(name, "\\").lower()
    return f"{_address_key(name.address)}\\{tail}"


def _split_plain(protocol: DirectProtocol, rest: str) -> tuple[DirectAddress, str]:
    host, backslash, tail = rest.partition("\\")
    if not backslash:
        raise illegal_format_name(f"{excerpt(rest)} has no backslash between address and queue")
    if protocol is DirectProtocol.TCP:
        if ip_literal(host) is None:
            raise illegal_format_name(
                f"{excerpt(host)} is not an IP address; use DIRECT=OS: for a computer name"
            )
    elif protocol.is_ipx:
        if _IPX.fullmatch(host) is None:
            raise illegal_format_name(
                f"{excerpt(host)} is not an IPX address; write network:node in hexadecimal"
            )
    else:
        check_computer_name(host, illegal_format_name)
    return DirectAddress(protocol, host), tail


def _split_http(protocol: DirectProtocol, rest: str) -> tuple[DirectAddress, str]:
    if not rest.startswith("//"):
        raise illegal_format_name(f"{excerpt(rest)} does not start with //")
    authority, _, path = rest[2:].partition("/")
    directory = path[: len(_VIRTUAL_DIRECTORY)]
    separator = path[len(_VIRTUAL_DIRECTORY) : len(_VIRTUAL_DIRECTORY) + 1]
    if directory.lower() != _VIRTUAL_DIRECTORY or separator not in ("\\", "/"):
        raise illegal_format_name(f"{excerpt(rest)} does not continue with /MSMQ and a queue name")
    host, port = _split_authority(authority)
    tail = path[len(_VIRTUAL_DIRECTORY) + 1 :]
    return DirectAddress(protocol, host, port, separator), tail


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Split `host[:port]`; an IPv6 host is in brackets."""
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host += bracket
        _, colon, digits = rest.partition(":")
        if ip_literal(host) is None or not (rest == "" or rest.startswith(":")):
            raise illegal_format_name(f"{excerpt(authority)} is not an IPv6 address in brackets")
    else:
        host, colon, digits = authority.partition(":")
        check_computer_name(host, illegal_format_name)
    if not colon or not digits:
        return host, None
    significant = _PORT_DIGITS.fullmatch(digits)
    port = PORT_MAX + 1 if significant is None else int(significant[1] or "0")
    if port > PORT_MAX:
        raise illegal_format_name(f"{excerpt(digits)} is not a port; use 0 to {PORT_MAX}")
    return host, port


def _parse_tail(address: DirectAddress, tail: str) -> AnyDirectName:
    folded = tail.lower()
    if folded.startswith(f"{SYSTEM};"):
        which = system_queue(tail[len(SYSTEM) + 1 :])
        if which is None:
            raise illegal_format_name(
                f"{excerpt(tail)} is not a system queue; use JOURNAL, DEADLETTER or DEADXACT"
            )
        return DirectSystemName(address, which)
    private = folded.startswith(PRIVATE + address.separator)
    slashed = folded.startswith((f"{PRIVATE}/", f"{SYSTEM}/"))
    if address.protocol.is_http and slashed and not private:
        # With its slashes folded, this would be the name of another queue.
        raise illegal_format_name(f"{excerpt(tail)} mixes slashes and backslashes")
    queue, subqueue, journal = split_queue(
        tail[len(PRIVATE) + 1 :] if private else tail, illegal_format_name, private=private
    )
    return DirectName(address, queue, private, subqueue, journal)


def _tail(name: AnyDirectName, separator: str) -> str:
    if isinstance(name, DirectSystemName):
        return f"{SYSTEM.upper()};{name.system_queue.value}"
    prefix = f"{PRIVATE.upper()}{separator}" if name.private else ""
    suffix = "" if name.subqueue is None else f";{name.subqueue}"
    return prefix + name.queue + suffix + (f";{JOURNAL.upper()}" if name.journal else "")


def _address_key(address: DirectAddress) -> str:
    if address.protocol.is_ipx:
        match = _IPX.fullmatch(address.host)
        if match is not None:
            return f"ipx:{int(match[1], 16):08x}:{int(match[2], 16):012x}"
    host = computer_key(address.host)
    if address.protocol.is_http:
        return f"{address.protocol.value.lower()}://{host}:{address.effective_port}/msmq"
    return f"{address.protocol.value.lower()}:{host}"


_PROTOCOLS: Final = {member.value: member for member in DirectProtocol}
