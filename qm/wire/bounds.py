"""Reading within bounds: the type of buffers, alignment, and the error for truncated fields."""

from qm.wire.errors import ProtocolError
from qm.wire.limits import HEADER_ALIGNMENT_BYTES

Buffer = bytes | bytearray | memoryview
"""What `parse_*` functions read; they neither change nor keep it."""


def aligned(length: int) -> int:
    """Return `length` bytes rounded up to the 4-byte boundary on which headers and items end."""
    return (length + HEADER_ALIGNMENT_BYTES - 1) & -HEADER_ALIGNMENT_BYTES


def truncated(offset: int, size: int, end: int, field: str, section: str) -> ProtocolError:
    """Return the error for a field of `size` bytes at `offset` that does not fit before `end`."""
    left = max(end - offset, 0)
    return ProtocolError(offset, field, section, f"needs {size} bytes, {left} are left")


def take(buffer: Buffer, start: int, stop: int) -> bytes:
    """Return `buffer[start:stop]` as separate bytes, copied once whatever the buffer is."""
    return (
        buffer[start:stop] if isinstance(buffer, bytes) else bytes(memoryview(buffer)[start:stop])
    )
