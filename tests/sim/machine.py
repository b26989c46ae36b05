"""A toy state machine for the simulator: registers with versions, a running digest, and bodies
that stay in the log until their segment goes, as the product's do (DESIGN section 3, Bodies).

Operation (one payload of a batch): id u32, key u8, then the value's bytes. Putting returns
(id, index, ordinal, id of the value replaced). The digest after an entry is a hash of the
digest before it, the index and the data: an entry that is skipped, repeated or exchanged
changes it for ever.

State goes to two slot files by turns. Most writes are not synced: after a power cut the newest
whole slot is found, which is at or above the durable index. The slot that is known durable is
never overwritten.
"""

import errno
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from raft import batch
from raft.files import Directory, File
from raft.replica import LogReader
from raft.types import Entry, SnapshotMeta

KEYS = 8
"""Registers; few, so that values are overwritten and segments empty soon."""
OPERATION = struct.Struct("<IB")
SLOT_HEADER = struct.Struct("<IIQ")
"""Length and checksum of the state behind it, number of the write."""
DIGEST_BYTES = 16

Result = tuple[int, int, int, int]
"""Operation, index, ordinal, operation that it replaced (0: none)."""


class BodyDamaged(Exception):
    """The log gave back other bytes than were written: the process must stop."""


class Register(msgspec.Struct, gc=False):
    """The newest value of a key."""

    operation: int
    index: int
    ordinal: int
    offset: int
    length: int
    checksum: int
    body: bytes | None
    """Its bytes once the log may drop them."""


class State(msgspec.Struct):
    """What a slot and a snapshot hold."""

    applied: int
    digest: bytes
    registers: dict[int, Register]


@dataclass(slots=True)
class MachineFaults:
    """How lazily the machine writes; drawn per seed."""

    write_every: int = 3
    """Applied entries between two writes of a slot."""
    sync_every: int = 2
    """Slot writes between two syncs."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(State)


def encode_operation(operation: int, key: int, length: int) -> bytes:
    """Return the payload that puts `length` bytes under a key."""
    return OPERATION.pack(operation, key) + value_of(operation, length)


def value_of(operation: int, length: int) -> bytes:
    """Return the value that the operation puts: it tells which operation it came from."""
    pattern = operation.to_bytes(4, "little")
    return (pattern * (length // 4 + 1))[:length]


def next_digest(digest: bytes, index: int, data: bytes) -> bytes:
    """Return the digest after an entry."""
    hashed = blake2b(digest, digest_size=DIGEST_BYTES)
    hashed.update(index.to_bytes(8, "little"))
    hashed.update(data)
    return hashed.digest()


class Machine:
    """`raft.machine.StateMachine` with registers for state."""

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
        self._state = State(0, bytes(DIGEST_BYTES), {})
        self.trace: list[tuple[int, bytes]] = []
        """(index, digest after it) of what was applied or installed; a checker drains it."""
        self._recover()
        reader.on_retire(self._retire)

    def _recover(self) -> None:
        for number, file in enumerate(self._slots):
            found = read_slot(file)
            if found is not None and found[0] > self._number:
                self._number, self._state = found
                self._durable_slot = number
        if self._number:
            self._slots[self._durable_slot].fdatasync()
            self._durable_index = self._state.applied
            self.trace.append((self._state.applied, self._state.digest))

    # Raft.machine.StateMachine

    def applied_index(self) -> int:
        return self._state.applied

    def durable_index(self) -> int:
        return self._durable_index

    def apply(self, entries: Sequence[Entry]) -> Sequence[tuple[Result, ...]]:
        results = [self._apply(entry) for entry in entries]
        if self._unwritten >= self._faults.write_every:
            self._writes_since_sync += 1
            self._write(is_durable=self._writes_since_sync >= self._faults.sync_every)
        return results

    def snapshot(self, meta_index: int) -> "Source":
        assert meta_index == self._state.applied, (meta_index, self._state.applied)
        return Source(self)

    def receive_snapshot(self, meta: SnapshotMeta) -> "Sink":
        return Sink(self, self._directory, meta)

    # For clients

    def read(self, key: int) -> tuple[int, int, int]:
        """Return (operation, index, ordinal) of the key's newest value, proven by its bytes."""
        register = self._state.registers.get(key)
        if register is None:
            return (0, 0, 0)
        body = self._body(register)
        assert body == value_of(register.operation, register.length), "a body has foreign bytes"
        return (register.operation, register.index, register.ordinal)

    # Inner parts

    def _apply(self, entry: Entry) -> tuple[Result, ...]:
        state = self._state
        assert entry.index > state.applied, f"{entry.index} applied after {state.applied}"
        results = []
        for ordinal, payload in enumerate(batch.split(entry.data)):
            operation, key = OPERATION.unpack_from(payload)
            offset, length = batch.locate(entry.data, ordinal)
            offset += OPERATION.size
            length -= OPERATION.size
            before = state.registers.get(key)
            checksum = zlib.crc32(payload[OPERATION.size :])
            state.registers[key] = Register(
                operation, entry.index, ordinal, offset, length, checksum, None
            )
            results.append((operation, entry.index, ordinal, before.operation if before else 0))
        state.digest = next_digest(state.digest, entry.index, entry.data)
        state.applied = entry.index
        self.trace.append((entry.index, state.digest))
        self._unwritten += 1
        return tuple(results)

    def _body(self, register: Register) -> bytes:
        if register.body is not None:
            return register.body
        body = self._reader.read(register.index, register.offset, register.length)
        if zlib.crc32(body) != register.checksum:
            raise BodyDamaged(f"the body of {register.index} is not what was written")
        return body

    def _retire(self, first_index: int, last_index: int) -> None:
        """Take over the bodies that are still alive, durably, before their segment goes.

        Also when none is: the state on disk is older, and a restart would find it referring to
        what has gone.
        """
        assert last_index <= self._durable_index, "a segment goes before its state is durable"
        for register in self._state.registers.values():
            if first_index <= register.index <= last_index and register.body is None:
                register.body = self._body(register)
        number = self._number
        self._write(is_durable=True)
        if self._durable_number <= number:
            raise OSError(errno.ENOSPC, "no space for the bodies that leave the log")

    def _write(self, *, is_durable: bool) -> None:
        encoded = _ENCODER.encode(self._state)
        self._number += 1
        slot = 1 - self._durable_slot
        header = SLOT_HEADER.pack(len(encoded), zlib.crc32(encoded), self._number)
        try:
            self._slots[slot].pwrite(header + encoded, 0)
        except OSError:
            return  # full: the durable slot stands, and the log keeps what is above it
        self._unwritten = 0
        if is_durable:
            self._slots[slot].fdatasync()
            self._durable_slot = slot
            self._durable_number = self._number
            self._durable_index = self._state.applied
            self._writes_since_sync = 0

    def encode(self) -> bytes:
        """Return the state with every body in it, and its checksum."""
        state = self._state
        whole = {
            key: msgspec.structs.replace(register, body=self._body(register))
            for key, register in state.registers.items()
        }
        encoded = _ENCODER.encode(State(state.applied, state.digest, whole))
        return encoded + zlib.crc32(encoded).to_bytes(4, "little")

    def hold(self) -> Callable[[], None]:
        """Pin the bodies that are in the log; return what lets them go."""
        indexes = [r.index for r in self._state.registers.values() if r.body is None]
        if not indexes:
            return lambda: None
        return self._reader.hold(min(indexes)).release

    def install(self, stream: bytes, meta: SnapshotMeta) -> None:
        """Become the state of a snapshot, durably. Raises ValueError when it is damaged."""
        encoded, checksum = stream[:-4], stream[-4:]
        if zlib.crc32(encoded).to_bytes(4, "little") != checksum:
            raise ValueError("the snapshot's checksum is wrong")
        state = _DECODER.decode(encoded)
        if state.applied != meta.index:
            raise ValueError(f"the snapshot stands at {state.applied}, not {meta.index}")
        self._state = state
        self._write(is_durable=True)
        if self._durable_index < meta.index:
            raise OSError(errno.ENOSPC, "no space for the snapshot's state")
        self.trace.append((state.applied, state.digest))


class Source:
    """`raft.machine.SnapshotSource`; holds the log, as a picture with bodies by reference would."""

    def __init__(self, machine: Machine) -> None:
        self._release = machine.hold()
        self._stream = machine.encode()
        self.is_closed = False

    def size_bytes(self) -> int:
        return len(self._stream)

    def read(self, offset: int, length: int) -> bytes:
        assert not self.is_closed
        return self._stream[offset : offset + length]

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True
        self._release()


class Sink:
    """`raft.machine.SnapshotSink`: one file per snapshot, which a broken transfer resumes."""

    def __init__(self, machine: Machine, directory: Directory, meta: SnapshotMeta) -> None:
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


def read_slot(file: File) -> tuple[int, State] | None:
    """Return (number, state) of a whole slot."""
    raw = file.pread(file.size(), 0)
    if len(raw) < SLOT_HEADER.size:
        return None
    length, checksum, number = SLOT_HEADER.unpack_from(raw)
    encoded = raw[SLOT_HEADER.size : SLOT_HEADER.size + length]
    if not number or len(encoded) != length or zlib.crc32(encoded) != checksum:
        return None
    return number, _DECODER.decode(encoded)
