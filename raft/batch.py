"""Group commit: all payloads that wait become the data of one DATA entry.

Layout, little endian: magic u16, zero u16, count u32, count x end offset u32 (counted from the end
of the offsets, so the last one is the length of all payloads), payloads. `locate` finds one
payload from the header alone, so that a reader fetches a message's bytes by (index, ordinal)
without the rest of the entry.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate

from raft.log.files import Buffer

BATCH_SOFT_MAX_BYTES = 1 << 20
"""A batch closes when it holds this much; a payload that is alone in its batch may exceed it."""
BATCH_PAYLOADS_MAX = 1 << 16
"""Payloads of one batch, including its prologue."""
PREFIX_BYTES = 8
"""The start of a batch, from which `header_bytes` computes the length of the header."""

_PREFIX = struct.Struct("<HHI")
_MAGIC = 0x4251


class BatchError(Exception):
    """The bytes are not a batch, or have no payload with that ordinal."""


class BatchBuilder:
    """Collects payloads for one entry. Payloads are copied once, by `build`."""

    __slots__ = ("_bytes", "_payloads", "_soft_max")

    def __init__(self, soft_max_bytes: int = BATCH_SOFT_MAX_BYTES) -> None:
        self._soft_max = soft_max_bytes
        self._payloads: list[bytes | memoryview] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._payloads)

    @property
    def payloads(self) -> Sequence[bytes | memoryview]:
        """The payloads added since the last `build`."""
        return self._payloads

    @property
    def size_bytes(self) -> int:
        """Total size of the payloads."""
        return self._bytes

    def add(self, payload: bytes | memoryview) -> int:
        """Add a payload, which must not change before `build`; return its ordinal, from 0."""
        payloads = self._payloads
        payloads.append(payload)
        self._bytes += len(payload)
        return len(payloads) - 1

    def offer(self, payload: bytes | memoryview) -> int:
        """As `add`, if the payload still fits into this batch; return -1 if the batch is full."""
        payloads, size_bytes = self._payloads, self._bytes + len(payload)
        if size_bytes > self._soft_max and payloads:
            return -1
        ordinal = len(payloads)
        if ordinal >= BATCH_PAYLOADS_MAX - 1:  # the prologue has the last place
            return -1
        payloads.append(payload)
        self._bytes = size_bytes
        return ordinal

    def build(self, prologue: bytes | None = None) -> bytes:
        """Return the entry's data and start an empty batch. `prologue` becomes its first payload,
        before those whose ordinals `add` returned.
        """
        payloads, self._payloads, self._bytes = self._payloads, [], 0
        if prologue is not None:
            payloads.insert(0, prologue)
        return joined(payloads)


def joined(payloads: Sequence[Buffer]) -> bytes:
    """Return the batch of these payloads."""
    count = len(payloads)
    ends = struct.pack(f"<{count}I", *accumulate(map(len, payloads)))
    return b"".join((_PREFIX.pack(_MAGIC, 0, count), ends, *payloads))


def header_bytes(prefix: Buffer) -> int:
    """Return the length of the header, from the first PREFIX_BYTES. Raises BatchError."""
    if len(prefix) < PREFIX_BYTES:
        raise BatchError("shorter than the prefix of a batch")
    magic, zero, count = _PREFIX.unpack_from(prefix)
    if magic != _MAGIC or zero != 0:
        raise BatchError("not a batch: wrong magic")
    if count > BATCH_PAYLOADS_MAX:
        raise BatchError(f"more than {BATCH_PAYLOADS_MAX} payloads")
    return PREFIX_BYTES + 4 * int(count)


def total_bytes(header: bytes) -> int:
    """Return the length of the whole batch, from its `header_bytes`. Raises BatchError."""
    start = header_bytes(header)
    if len(header) < start:
        raise BatchError("shorter than its header")
    if start == PREFIX_BYTES:
        return start
    return start + int(struct.unpack_from("<I", header, start - 4)[0])


def split(data: bytes) -> list[memoryview]:
    """Return the payloads in order, as views of `data`. Raises BatchError."""
    start = header_bytes(data)
    if start > len(data):
        raise BatchError("shorter than its header")
    ends = struct.unpack_from(f"<{(start - PREFIX_BYTES) // 4}I", data, PREFIX_BYTES)
    if list(ends) != sorted(ends) or (ends[-1] if ends else 0) != len(data) - start:
        raise BatchError("the offsets do not fit the payloads")
    payloads = memoryview(data)[start:]
    return [payloads[low:high] for low, high in zip((0, *ends), ends, strict=False)]


def locate(header: Buffer, ordinal: int) -> tuple[int, int]:
    """Return (offset in the data, length) of one payload. `header` holds at least
    `header_bytes`. Raises BatchError.
    """
    start = header_bytes(header)
    if len(header) < start:
        raise BatchError("shorter than its header")
    if not 0 <= ordinal < (start - PREFIX_BYTES) // 4:
        raise BatchError(f"no payload {ordinal}")
    place = PREFIX_BYTES + 4 * ordinal
    if ordinal == 0:
        low, (high,) = 0, struct.unpack_from("<I", header, place)
    else:
        low, high = struct.unpack_from("<2I", header, place - 4)
    if low > high:
        raise BatchError("the offsets do not fit the payloads")
    return start + low, high - low
