"""Stubs being read and written: alignment, and pointers whose targets stand further behind.

Targets of embedded pointers follow the outermost construction that holds them, in the order of the
pointers, each with its own targets behind it [C706 14.3.12.3]. So a reader and a writer keep a list
of what is still to come; `flush` works it off, depth first.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from qm.rpc.limits import POINTER_DEPTH_MAX, POINTERS_PER_STUB_MAX

_REFERENT_FIRST: Final = 0x0002_0000
_REFERENT_STEP: Final = 4
_U32: Final = {order: Struct(order + "I") for order in ("<", ">")}


class BadStub(Exception):
    """The bytes do not fit the declared parameters: fault RPC_X_BAD_STUB_DATA."""


class Readable(Protocol):
    """A type that can be read."""

    def read(self, reader: "Reader") -> Any:
        """Read a value."""


class Writable(Protocol):
    """A type that can be written."""

    def write(self, writer: "Writer", value: Any) -> None:
        """Write a value."""


class Reader:
    """A stub, from its first byte on."""

    __slots__ = ("_checks", "_later", "_pointers", "_pointers_max", "_shared", "at", "order", "raw")

    def __init__(
        self, raw: bytes, order: str = "<", pointers_max: int = POINTERS_PER_STUB_MAX
    ) -> None:
        """`order`: "<" or ">", the byte order of the PDU's drep."""
        self.raw = raw
        self.order = order
        self.at = 0
        self._later: list[tuple[Readable, int, Callable[[Any], None]]] = []
        self._checks: list[Callable[[], None]] = []
        self._shared: dict[int, list[Callable[[Any], None]] | tuple[Any]] = {}
        self._pointers = 0
        self._pointers_max = pointers_max

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self.raw) - self.at

    def align(self, to: int) -> None:
        """Skip the gap before a value that is aligned to `to` bytes."""
        self.at += -self.at % to

    def unpack(self, shape: Struct) -> Any:
        """Read one aligned scalar of a one-value shape."""
        size = shape.size
        at = self.at + -self.at % size
        if at + size > len(self.raw):
            raise BadStub(f"the stub ends at {len(self.raw)}, a value of {size} bytes is at {at}")
        self.at = at + size
        return shape.unpack_from(self.raw, at)[0]

    def unpack_each(self, shape: Struct, count: int) -> list[Any]:
        """Read so many of them, which takes a fraction of the time of reading one after another."""
        if not count:
            return []
        self.align(shape.size)
        return [value for (value,) in shape.iter_unpack(self.take(count * shape.size))]

    def u32(self) -> int:
        """Read an unsigned long, such as a count or a referent."""
        value: int = self.unpack(_U32[self.order])
        return value

    def referents(self, count: int) -> list[int]:
        """Read the pointers of an array. Raises BadStub for more than a stub may have."""
        if count > self._pointers_max:
            raise BadStub(f"an array of more than {self._pointers_max} pointers")
        return self.unpack_each(_U32[self.order], count)

    def take(self, size: int) -> bytes:
        """Read bytes without alignment."""
        if size > self.left:
            raise BadStub(f"{size} bytes are wanted, {self.left} are left")
        self.at += size
        return self.raw[self.at - size : self.at]

    def count(self, size_min: int, count_max: int) -> int:
        """Read a count of elements, each of at least `size_min` bytes."""
        count = self.u32()
        if count > count_max:
            raise BadStub(f"{count} elements; {count_max} are allowed")
        if count * size_min > self.left:
            raise BadStub(f"{count} elements in {self.left} bytes")
        return count

    def defer(self, target: Readable, put: Callable[[Any], None], shared: int = 0) -> None:
        """Read a pointer's target behind the construction, then `put` it where it belongs.

        `shared`: the referent of a full pointer, whose target is read once.
        """
        self._pointers += 1
        if self._pointers > self._pointers_max:
            raise BadStub(f"more than {self._pointers_max} pointers")
        if shared:
            known = self._shared.get(shared)
            if isinstance(known, tuple):
                put(known[0])
                return
            if known is not None:
                known.append(put)
                return
            self._shared[shared] = [put]
        self._later.append((target, shared, put))

    def check(self, check: Callable[[], None]) -> None:
        """Have a check made once all targets are read; it raises BadStub."""
        self._checks.append(check)

    def flush(self) -> None:
        """Read what is still to come of the parameter just read, and make its checks."""
        self._targets(0)
        checks, self._checks = self._checks, []
        for check in checks:
            check()

    def _targets(self, depth: int) -> None:
        later, self._later = self._later, []
        if later and depth == POINTER_DEPTH_MAX:
            raise BadStub(f"pointers nested deeper than {POINTER_DEPTH_MAX}")
        for target, shared, put in later:
            value = target.read(self)
            if shared:
                waiting = self._shared[shared]
                self._shared[shared] = (value,)
                assert isinstance(waiting, list)
                for each in waiting:
                    each(value)
            else:
                put(value)
            self._targets(depth + 1)


class Writer:
    """A little-endian stub that grows."""

    __slots__ = ("_later", "_next", "_shared", "raw")

    def __init__(self) -> None:
        self.raw = bytearray()
        self._later: list[tuple[Writable, Any]] = []
        self._next = _REFERENT_FIRST
        self._shared: dict[int, int] = {}

    def align(self, to: int) -> None:
        """Fill the gap before a value that is aligned to `to` bytes, with zeros."""
        self.raw += bytes(-len(self.raw) % to)

    def pack(self, shape: Struct, value: Any) -> None:
        """Write one aligned scalar."""
        raw = self.raw
        gap = -len(raw) % shape.size
        raw += bytes(gap) + shape.pack(value) if gap else shape.pack(value)

    def pack_each(self, shape: Struct, values: Sequence[Any]) -> None:
        """Write many of them."""
        if values:
            self.align(shape.size)
            self.raw += b"".join(map(shape.pack, values))

    def u32(self, value: int) -> None:
        """Write an unsigned long."""
        self.pack(_U32["<"], value)

    def put(self, raw: bytes) -> None:
        """Write bytes without alignment."""
        self.raw += raw

    def point(self, target: Writable, value: Any, *, is_shared: bool = False) -> None:
        """Write a pointer; its target follows the construction."""
        if is_shared and id(value) in self._shared:
            self.u32(self._shared[id(value)])
            return
        self.u32(self._next)
        if is_shared:
            self._shared[id(value)] = self._next
        self._next += _REFERENT_STEP
        self._later.append((target, value))

    def flush(self) -> None:
        """Write what is still to come of the parameter just written."""
        later, self._later = self._later, []
        for target, value in later:
            target.write(self, value)
            self.flush()
