"""Group commit: everything that waits becomes the data of one DATA entry.

Layout, little endian: magic u16, count u32, count x length u32, payloads. `locate` finds one
payload from the header alone, so that a reader fetches a message's bytes by (index, ordinal)
without the rest of the entry.
"""

BATCH_BYTES_SOFT_MAX = 1 << 20
"""A batch closes when it holds this much; a single payload may exceed it, alone."""


class BatchError(Exception):
    """The bytes are no batch, or hold no payload of that ordinal."""


class BatchBuilder:
    """Collects payloads for one entry."""

    def add(self, payload: bytes | memoryview) -> int:
        """Take a payload; return its ordinal, counted from 0."""
        raise NotImplementedError

    def fits(self, length: int) -> bool:
        """Return whether a payload of `length` bytes still belongs into this batch."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the number of payloads."""
        raise NotImplementedError

    def build(self) -> bytes:
        """Return the entry's data and start an empty batch."""
        raise NotImplementedError


def split(data: bytes) -> list[memoryview]:
    """Return the payloads in order, as views of `data`. Raises BatchError."""
    raise NotImplementedError


def header_bytes(prefix: bytes) -> int:
    """Return how many bytes of the data `locate` needs, from its first 6. Raises BatchError."""
    raise NotImplementedError


def locate(header: bytes, ordinal: int) -> tuple[int, int]:
    """Return (offset in the data, length) of one payload. Raises BatchError."""
    raise NotImplementedError
