"""What the simulator's state machines have in common: a state on disk, and bodies that stay in the
log until their segment goes, as the product's do (DESIGN section 3, Bodies).

State goes to two slot files by turns. Most writes are not synced: after a power cut the newest
whole slot is found, which is at or above the durable index. The slot that is known durable is
never overwritten.
"""

import errno
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from raft.log.files import Directory, File
from raft.replica import LogReader
from raft.types import Entry, SnapshotMeta

SLOT_HEADER = struct.Struct("<IIQ")
"""Length and checksum of the state behind it, number of the write."""
DIGEST_BYTES = 16

Result = tuple[Any, ...]
"""What one operation of an entry came to."""


class BodyDamaged(Exception):
    """The log gave back other bytes than were written: the process must stop."""


class Body(Protocol):
    """Bytes in an entry, or beside the state once the log may drop them."""

    index: int
    offset: int
    length: int
    checksum: int
    body: bytes | None


class SlotState(Protocol):
    """What a slot and a snapshot hold; a msgspec struct."""

    applied: int
    digest: bytes

    def bodies(self) -> Iterable[Body]:
        """Yield every body that is alive."""


StateT = TypeVar("StateT", bound=SlotState)


@dataclass(slots=True)
class MachineFaults:
    """How lazily the machine writes; drawn per seed."""

    write_every: int = 3
    """Applied entries between two writes of a slot."""
    sync_every: int = 2
    """Slot writes between two syncs."""


_ENCODER = msgspec.msgpack.Encoder()


class SlottedMachine(ABC, Generic[StateT]):
    """`raft.machine.StateMachine`, but for what an entry does."""

    state_type: ClassVar[type[Any]]

    def __init__(self, directory: Directory, reader: LogReader, faults: MachineFaults) -> None:
        self._directory = directory
        self._reader = reader
        self._faults = faults
        self._slots = [directory.open(f"slot.{n}", create=True) for n in range(2)]
        directory.sync()
        self._number = 0
        self._durable_slot = 1
        self._durable_number = 0
        self._durable_index = 0
        self._unwritten = 0
        self._writes_since_sync = 0
        self._state = self.fresh()
        self._picture: tuple[int, Source] | None = None
        self.is_stalled = False
        """It finds no room to apply anything."""
        self.trace: list[tuple[int, bytes]] = []
        """(index, digest after it) of what was applied or installed; a checker drains it."""
        self._recover()
        reader.on_retire(self._retire)

    def _recover(self) -> None:
        for number, file in enumerate(self._slots):
            found = self._read_slot(file)
            if found is not None and found[0] > self._number:
                self._number, self._state = found
                self._durable_slot = number
        if self._number:
            self._slots[self._durable_slot].fdatasync()
            self._durable_index = self._state.applied
            self.restored(self._state)
            self.trace.append((self._state.applied, self._state.digest))

    # What a machine is

    @abstractmethod
    def fresh(self) -> StateT:
        """Return the state before the first entry."""

    @abstractmethod
    def apply_entry(self, state: StateT, entry: Entry) -> tuple[Result, ...]:
        """Change the state, its digest too, and return what came of it."""

    @abstractmethod
    def read(self, key: int) -> Result:
        """Return what a client reads under a key."""

    def restored(self, state: StateT) -> None:
        """The state is another one now, with all of its bodies or those the log still has."""

    def before_write(self, state: StateT) -> None:
        """The state is about to be encoded."""

    # raft.machine.StateMachine

    def applied_index(self) -> int:
        return self._state.applied

    def durable_index(self) -> int:
        return self._durable_index

    def apply(self, entries: Sequence[Entry]) -> Sequence[tuple[Result, ...]]:
        if self.is_stalled:
            raise OSError(errno.ENOSPC, "no space for the state")
        results = self.apply_run(entries)
        self._unwritten += len(entries)
        if self._unwritten >= self._faults.write_every:
            self._writes_since_sync += 1
            self._write(is_durable=self._writes_since_sync >= self._faults.sync_every)
        return results

    def settle(self) -> None:
        """Nothing is put off but writing, which `_faults` say when to do."""

    def snapshot(self, meta_index: int) -> tuple[int, "Source"] | None:
        """Begin a picture at the first request, and return it to later ones."""
        assert meta_index == self._state.applied, (meta_index, self._state.applied)
        made, self._picture = self._picture, None
        if made is None:
            self._picture = meta_index, Source(self)
        return made

    def receive_snapshot(self, meta: SnapshotMeta) -> "Sink":
        return Sink(self, self._directory, meta)

    # Inner parts

    def apply_run(self, entries: Sequence[Entry]) -> list[tuple[Result, ...]]:
        """Apply entries in order; the digest is traced where it is known."""
        return [self._apply(entry) for entry in entries]

    def _apply(self, entry: Entry) -> tuple[Result, ...]:
        state = self._state
        assert entry.index > state.applied, f"{entry.index} applied after {state.applied}"
        results = self.apply_entry(state, entry)
        state.applied = entry.index
        self.trace.append((entry.index, state.digest))
        return results

    def body(self, place: Body) -> bytes:
        """Return a body's bytes, from the log while it has them. Raises BodyDamaged."""
        if place.body is not None:
            return place.body
        body = self._reader.read(place.index, place.offset, place.length)
        if zlib.crc32(body) != place.checksum:
            raise BodyDamaged(f"the body of {place.index} is not what was written")
        return body

    def _retire(self, first_index: int, last_index: int) -> None:
        """Take over the bodies that are still alive, durably, before their segment goes.

        Also when none is: the state on disk is older, and a restart would find it referring to
        what has gone.
        """
        assert last_index <= self._durable_index, "a segment goes before its state is durable"
        for place in self._state.bodies():
            if first_index <= place.index <= last_index and place.body is None:
                place.body = self.body(place)
        number = self._number
        self._write(is_durable=True)
        if self._durable_number <= number:
            raise OSError(errno.ENOSPC, "no space for the bodies that leave the log")

    def _write(self, *, is_durable: bool) -> None:
        self.before_write(self._state)
        encoded = _ENCODER.encode(self._state)
        self._number += 1
        slot = 1 - self._durable_slot
        header = SLOT_HEADER.pack(len(encoded), zlib.crc32(encoded), self._number)
        try:
            self._slots[slot].pwrite(header + encoded, 0)
        except OSError:
            return  # full: the durable slot remains, and the log keeps what is above it
        self._unwritten = 0
        if is_durable:
            self._slots[slot].fdatasync()
            self._durable_slot = slot
            self._durable_number = self._number
            self._durable_index = self._state.applied
            self._writes_since_sync = 0

    def _read_slot(self, file: File) -> tuple[int, StateT] | None:
        """Return (number, state) of a whole slot."""
        raw = file.pread(file.size(), 0)
        if len(raw) < SLOT_HEADER.size:
            return None
        length, checksum, number = SLOT_HEADER.unpack_from(raw)
        encoded = raw[SLOT_HEADER.size : SLOT_HEADER.size + length]
        if not number or len(encoded) != length or zlib.crc32(encoded) != checksum:
            return None
        return number, self._decode(encoded)

    def _decode(self, encoded: bytes) -> StateT:
        state: StateT = msgspec.msgpack.decode(encoded, type=self.state_type)
        return state

    def encode(self) -> bytes:
        """Return the state with every body in it, and its checksum."""
        self.before_write(self._state)
        encoded = _ENCODER.encode(self._state)
        whole = self._decode(encoded)
        for place in whole.bodies():
            place.body = self.body(place)
        encoded = _ENCODER.encode(whole)
        return encoded + zlib.crc32(encoded).to_bytes(4, "little")

    def hold(self) -> Callable[[], None]:
        """Pin the bodies that are in the log, and what follows; return what lets them go."""
        indexes = [place.index for place in self._state.bodies() if place.body is None]
        return self._reader.hold(min([*indexes, self._state.applied + 1])).release

    def install(self, stream: bytes, meta: SnapshotMeta) -> None:
        """Become the state of a snapshot, durably. Raises ValueError when it is damaged."""
        encoded, checksum = stream[:-4], stream[-4:]
        if zlib.crc32(encoded).to_bytes(4, "little") != checksum:
            raise ValueError("the snapshot's checksum is wrong")
        state = self._decode(encoded)
        if state.applied != meta.index:
            raise ValueError(f"the snapshot stands at {state.applied}, not {meta.index}")
        if self._picture is not None:
            self._picture[1].close()  # of a log that is gone
            self._picture = None
        self._state = state
        self.restored(state)
        self._write(is_durable=True)
        if self._durable_index < meta.index:
            raise OSError(errno.ENOSPC, "no space for the snapshot's state")
        self.trace.append((state.applied, state.digest))


class Source:
    """`raft.machine.SnapshotSource`; holds the log, as a picture with bodies by reference would."""

    def __init__(self, machine: SlottedMachine[Any]) -> None:
        self._release = machine.hold()
        self._stream = machine.encode()
        self.is_closed = False

    def size_bytes(self) -> int:
        return len(self._stream)

    def identity(self) -> bytes:
        return zlib.crc32(self._stream).to_bytes(4, "big")

    def read(self, offset: int, length: int) -> bytes:
        assert not self.is_closed
        return self._stream[offset : offset + length]

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True
        self._release()


class Sink:
    """`raft.machine.SnapshotSink`: one file per snapshot, which a broken transfer resumes."""

    def __init__(
        self, machine: SlottedMachine[Any], directory: Directory, meta: SnapshotMeta
    ) -> None:
        self._machine = machine
        self._directory = directory
        self._meta = meta
        self._name = f"incoming.{meta.index}.{meta.term}.{meta.size_bytes}"
        for name in directory.names():
            if name.startswith("incoming.") and name != self._name:
                directory.unlink(name)
        self._file = directory.open(self._name, create=True)

    def offset(self) -> int:
        return self._file.size()

    def write(self, chunk: bytes) -> None:
        self._file.pwrite(chunk, self._file.size())

    def finish(self) -> None:
        stream = self._file.pread(self._meta.size_bytes, 0)
        self._machine.install(stream, self._meta)
        self.abandon()

    def abandon(self) -> None:
        self._file.close()
        if self._name in self._directory.names():
            self._directory.unlink(self._name)
