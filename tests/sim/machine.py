"""A toy state machine for the simulator: registers with versions, and a running digest.

Operation (one payload of a batch): id u32, key u8, then the value's bytes. Putting returns
(id, index, ordinal, id of the value replaced). The digest after an entry is a hash of the
digest before it, the index and the data: an entry that is skipped, repeated or exchanged
changes it for ever.
"""

import struct
import zlib
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from raft import batch
from raft.types import Entry
from tests.sim.slots import DIGEST_BYTES, Result, SlottedMachine

KEYS = 8
"""Registers; few, so that values are overwritten and segments empty soon."""
OPERATION = struct.Struct("<IB")


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

    def bodies(self) -> Iterable[Register]:
        return self.registers.values()


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


class Machine(SlottedMachine[State]):
    """`raft.machine.StateMachine` with registers for state."""

    state_type = State

    def fresh(self) -> State:
        return State(0, bytes(DIGEST_BYTES), {})

    def read(self, key: int) -> Result:
        """Return (operation, index, ordinal) of the key's newest value, proven by its bytes."""
        register = self._state.registers.get(key)
        if register is None:
            return (0, 0, 0)
        body = self.body(register)
        assert body == value_of(register.operation, register.length), "a body has foreign bytes"
        return (register.operation, register.index, register.ordinal)

    def apply_entry(self, state: State, entry: Entry) -> tuple[Result, ...]:
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
        return tuple(results)
