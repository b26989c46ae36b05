"""The two errors of the codec, distinguished by whose fault they are.

Bytes from a peer raise only `ProtocolError`; a value without an encoding, passed by our own code,
raises `ValueOutOfRange`. "Not enough bytes yet" is neither: it is the value None.
"""

from typing_extensions import override


class ProtocolError(Exception):
    """The peer broke the protocol: its bytes cannot be read, and its session ends."""

    def __init__(self, offset: int, field: str, section: str, reason: str) -> None:
        """Describe where the error is, and why.

        `offset`: bytes from the start of the packet, or of the buffer where no packet begins.
        `field`: the specification's name, outermost structure first ("UserHeader.Flags.DQ").
        `section`: document and section ("MS-MQMQ 2.2.19.2").
        `reason`: what was found, compared with what is allowed.
        """
        super().__init__(offset, field, section, reason)
        self.offset = offset
        self.field = field
        self.section = section
        self.reason = reason

    def counted_from(self, start: int) -> "ProtocolError":
        """Return the same error with its offset counted from `start` instead of the buffer's."""
        return ProtocolError(self.offset - start, self.field, self.section, self.reason)

    @override
    def __str__(self) -> str:
        return f"{self.field} at offset {self.offset}: {self.reason} [{self.section}]"


class ValueOutOfRange(ValueError):
    """Our own caller asked to write a value that has no encoding."""

    def __init__(self, field: str, section: str, reason: str) -> None:
        """`field`, `section` and `reason` are those of `ProtocolError`; there are no bytes yet."""
        super().__init__(field, section, reason)
        self.field = field
        self.section = section
        self.reason = reason

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.reason} [{self.section}]"
