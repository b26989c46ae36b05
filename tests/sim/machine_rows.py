"""The product's state machine in the simulator: `qm.model.Machine` over rows in memory.

Entries are real ones (`qm.store.codec`); slots and snapshots carry the rows and the bodies that
rows refer to; the digest is the product's, kept along the way and recomputed from what a disk
or a snapshot brings.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from qm.model.machine import Machine
from qm.model.queries import View, list_queues, queue_statistics
from qm.model.state.tables import MemoryState, Table
from qm.model.values.commands import CommandBatch, EdgeBatch, Send
from qm.model.values.effects import Applied, Outcome
from qm.model.values.results import RequestResult, ResultRow
from qm.store.codec import decode_entry
from qm.store.digest import DIGEST_BYTES, MODULUS, digest_bytes, row_hash
from qm.store.effects.chain import EntryChain
from raft.types import Entry
from tests.sim.slots import Result, SlottedMachine


class Place(msgspec.Struct, gc=False):
    """A body that rows refer to."""

    index: int
    ordinal: int
    offset: int
    length: int
    checksum: int
    body: bytes | None
    references: int


class RowsState(msgspec.Struct):
    """What a slot and a snapshot hold."""

    applied: int
    digest: bytes
    rows: list[tuple[int, bytes, bytes]]
    places: list[Place]

    def bodies(self) -> Iterable[Place]:
        return self.places


class SummedState(MemoryState):
    """Rows, their digest, and where the bodies are that they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0
        self.places: dict[tuple[int, int], Place] = {}

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        full = bytes((table,)) + key
        old = self._values.get(full)
        if old is not None:
            self.sum -= row_hash(full, old)
        self.sum += row_hash(full, value)
        super().put(table, key, value)

    def delete(self, table: Table, key: bytes) -> None:
        full = bytes((table,)) + key
        old = self._values.get(full)
        if old is not None:
            self.sum -= row_hash(full, old)
        super().delete(table, key)

    def digest(self) -> bytes:
        return digest_bytes(self.sum % MODULUS)

    def computed_digest(self) -> bytes:
        """Return the digest of the rows as they are."""
        total = sum(row_hash(bytes((table,)) + key, value) for table, key, value in self.rows())
        return digest_bytes(total % MODULUS)

    def drop_the_dead(self) -> None:
        """Forget the places of bodies to which nothing refers any more."""
        references = self.references()
        for key in [key for key in self.places if key not in references]:
            del self.places[key]
        for key, place in self.places.items():
            place.references = references[key]

    @classmethod
    def of(cls, state: RowsState) -> "SummedState":
        """Return the rows and places of a slot or a snapshot."""
        made = cls()
        for table, key, value in state.rows:
            made.put(Table(table), key, value)
        for place in state.places:
            made.places[place.index, place.ordinal] = place
            made._references[place.index, place.ordinal] = place.references
        return made


def spans(batch: CommandBatch) -> dict[tuple[int, int], Place]:
    """Return where each body of an entry is, by (index, ordinal)."""
    found: dict[tuple[int, int], Place] = {}

    def add(ordinal: int, offset: int, length: int, checksum: int) -> None:
        found[batch.index, ordinal] = Place(batch.index, ordinal, offset, length, checksum, None, 0)

    for command in batch.commands:
        if isinstance(command, EdgeBatch):
            for k, (low, high) in enumerate(pairwise(command.offsets)):
                offset = command.body_offset + low
                add(command.first_ordinal + k, offset, high - low, command.checksums[k])
        elif isinstance(command, Send):
            at = command.body_offset
            for k, target in enumerate(command.targets):
                add(command.first_ordinal + k, at, target.packet_bytes, target.checksum)
                at += target.packet_bytes
    return found


class Answer(NamedTuple):
    """What a command came to, comparable between replicas."""

    status: int
    verdicts: tuple[int, ...]
    value: Any


def answer_of(outcome: Outcome) -> Answer:
    """Return an outcome as every replica must compute it."""
    value = outcome.value
    if isinstance(value, ResultRow):
        value = value.unpack()
    if isinstance(value, list) and value and isinstance(value[0], RequestResult):
        value = tuple(value)
    else:
        # As a result row keeps it: a retry gets it from there.
        value = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    return Answer(outcome.status, tuple(outcome.verdicts or ()), value)


def answers_of(applied: Applied) -> tuple[Result, ...]:
    """Return the answers of an entry's commands, in order."""
    return tuple(answer_of(outcome) for outcome in applied.outcomes)


def summaries(view: View) -> list[Result]:
    """Return the counts of every queue, in the order of the list of queues."""
    found = [queue_statistics(view, one.queue_id) for one in list_queues(view, limit=100).items]
    return [
        (one.queue_id, one.message_count, one.total_bytes, one.arrival_count)
        for one in found
        if one is not None
    ]


class QueueMachine(SlottedMachine[RowsState]):
    """`raft.machine.StateMachine` with the queue manager for state."""

    state_type = RowsState

    def fresh(self) -> RowsState:
        self.rows = SummedState()
        self.machine = Machine(self.rows)
        self.chain = EntryChain(self.rows)
        return RowsState(0, bytes(DIGEST_BYTES), [], [])

    def restored(self, state: RowsState) -> None:
        self.rows = SummedState.of(state)
        self.machine = Machine(self.rows)
        self.chain = EntryChain(self.rows)
        assert self.rows.computed_digest() == state.digest, "rows came back that were not written"
        state.rows = []

    def before_write(self, state: RowsState) -> None:
        state.rows = [(int(table), key, value) for table, key, value in self.rows.rows()]

    def apply_run(self, entries: Sequence[Entry]) -> list[tuple[Result, ...]]:
        """Apply as the product's store does: what is counted in place is settled once per run."""
        if not entries:
            return []
        results = [self.apply_entry(self._state, entry) for entry in entries]
        self.machine.settle()
        self.chain.settle()
        state = self._state
        self.rows.drop_the_dead()
        state.digest = self.rows.digest()
        state.places = list(self.rows.places.values())
        state.applied = entries[-1].index
        self.trace.append((state.applied, state.digest))
        return results

    def apply_entry(self, state: RowsState, entry: Entry) -> tuple[Result, ...]:
        batch = decode_entry(entry.index, entry.data)
        applied = self.machine.apply(batch, settle=False)
        self.chain.advance(entry.term, entry.data, batch)
        self.rows.places |= spans(batch)
        return answers_of(applied)

    def read(self, key: int) -> Result:
        found = summaries(self.machine.view)
        return found[key] if key < len(found) else ()
