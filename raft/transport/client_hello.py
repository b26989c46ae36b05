"""What a TLS ClientHello offers, read before the handshake begins (RFC 8446 4.1.2, RFC 7301).

Nothing here is trusted: it only decides who answers the handshake.
"""

from typing import Final

CLIENT_HELLO_MAX_BYTES: Final = 16_384 + 5
"""A record; what a client would offer in a second one is not read."""
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEAD_BYTES: Final = 5
_VERSION_AND_RANDOM_BYTES: Final = 34
_ALPN: Final = 16


def offers(data: bytes, protocol: str) -> bool | None:
    """Return whether a ClientHello offers an application protocol; None: it is not complete yet.

    False also for anything else than a ClientHello.
    """
    if data and data[0] != _HANDSHAKE:
        return False
    end = size_of(data)
    if end > CLIENT_HELLO_MAX_BYTES:
        return False
    if len(data) < end:
        return None
    try:
        return protocol.encode() in _protocols(data[_RECORD_HEAD_BYTES:end])
    except IndexError:
        return False


def size_of(data: bytes) -> int:
    """Return how many bytes must be there before more can be said of a ClientHello."""
    if len(data) < _RECORD_HEAD_BYTES:
        return _RECORD_HEAD_BYTES
    return _RECORD_HEAD_BYTES + int.from_bytes(data[3:5], "big")


def _protocols(hello: bytes) -> list[bytes]:
    """Return the names that the ALPN extension lists. Raises IndexError."""
    if hello[0] != _CLIENT_HELLO:
        return []
    at = 4 + _VERSION_AND_RANDOM_BYTES
    for width in (1, 2, 1):  # session id, cipher suites, compression methods
        at += width + _number(hello, at, width)
    end = at + 2 + _number(hello, at, 2)
    at += 2
    while at < end:
        kind, size = _number(hello, at, 2), _number(hello, at + 2, 2)
        at += 4
        if kind == _ALPN:
            return _names(hello[at + 2 : at + size])
        at += size
    return []


def _names(listed: bytes) -> list[bytes]:
    names, at = [], 0
    while at < len(listed):
        size = listed[at]
        names.append(listed[at + 1 : at + 1 + size])
        at += 1 + size
    return names


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + width], "big")
