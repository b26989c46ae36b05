"""State, digest, chain and effects follow from the entries, however many are applied at once."""

import random
from collections.abc import Container, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest

from qm.model.machine import Machine
from qm.model.state.tables import MemoryState, Table
from qm.model.values import commands
from qm.model.values.commands import DECLARATIONS, Command, Stamp
from qm.model.values.elements import BindingMode, QueueAccessType
from qm.model.values.limits import APPLY_VERSION, VERSION_OF_BINDINGS
from qm.names.guid import guid_text
from qm.store.codec import UnknownCommand, decode_entry, encode_command, encode_stamp
from qm.store.database import DatabaseFull
from qm.store.effects.effects_log import INDEX_END
from qm.store.effects.effects_row import unpack_kept
from raft.batch import BatchBuilder
from raft.types import Entry, EntryKind
from tests.unit.model.world import HOST, NOW_MS, PEER, packet, request
from tests.unit.store.full_rocks import fill
from tests.unit.store.test_audit import RECEIVE, create
from tests.unit.store.test_impossible_commands import Maker
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

SEND = QueueAccessType.SEND_ACCESS
SEED = 11
TERMS = 6
ENTRIES_PER_TERM = 80
COMMANDS_PER_ENTRY_MAX = 4
RUN_LENGTHS = (1, 2, 7, 64)
NEVER_MARKED = 1 << 40
PIN = f"{guid_text(PEER)} 10.0.0.0/24"
TERM_OF_ARCHIVING = 3
"""The first whose leader archives."""


class LogMaker:
    """Makes entries of all kinds of commands, by leaders of several terms."""

    def __init__(self, seed: int, version: int) -> None:
        self.maker = Maker(seed)
        self.chance = random.Random(seed)
        self.version = version
        self.entries: list[Entry] = []
        self.kinds: set[type] = set()
        self.raised_in = 0
        """Term in which the newest apply version comes into force, 0: in none."""
        self.term, self.now_ms, self.messages, self.requests = 1, NOW_MS, 0, 5

    def add(self, *batch: Command) -> None:
        """Append an entry, if it can be decoded."""
        builder = BatchBuilder()
        builder.add(encode_stamp(Stamp(self.now_ms, f"n{self.term % 3 + 1}.1", self.version)))
        for command in batch:
            builder.add(encode_command(command))
        entry = Entry(len(self.entries) + 1, self.term, EntryKind.DATA, builder.build())
        try:
            decode_entry(entry.index, entry.data)
        except UnknownCommand:
            return
        self.kinds.update(map(type, batch))
        self.entries.append(entry)

    def anything(self) -> Command:
        """Return a command with anything in it, but no result that says that this node is wrong."""
        command = self.maker.command()
        if isinstance(command, commands.AuditResult):
            command = msgspec.structs.replace(command, number=NEVER_MARKED)
        if isinstance(command, commands.LeaderActivated) and self.term < TERM_OF_ARCHIVING:
            command = msgspec.structs.replace(command, is_archived=False)
        return command

    def traffic(self) -> list[Command]:
        """Return arrivals of many and, mostly, receives."""
        first, count = self.messages + 1, self.chance.choice((1, 3, 40))
        self.messages += count
        made: list[Command] = [arrivals(*map(packet, range(first, first + count)))]
        if self.chance.random() < 0.7:
            self.requests += 20
            made.append(receive(self.requests - 19, 20, self.requests - 20))
        return made

    def temporary(self, number: int) -> None:
        """Append entries of a queue that comes and goes."""
        name = f"temporary{number}"
        identifier = name.encode().ljust(16, b"\0")
        made = commands.CreateQueue(
            request(), identifier, identifier[::-1], f".\\{name}", {}, b"", ()
        )
        self.add(made)
        queue_id = self.queue_id_of_last()
        self.add(arrivals(packet(self.messages + 1, to=name), packet(self.messages + 2, to=name)))
        self.messages += 2
        self.add(commands.DeleteQueue(request(), queue_id, ()))
        self.add(commands.PurgeStep(queue_id, 1))
        self.add(commands.PurgeStep(queue_id, 100), commands.PurgeStep(queue_id, 100))

    def queue_id_of_last(self) -> int:
        """Return the queue that the last entry created."""
        machine, value = Machine(MemoryState()), None
        for entry in self.entries:
            value = machine.apply(decode_entry(entry.index, entry.data)).outcomes[-1].value
        assert isinstance(value, int)
        return value

    def begin(self) -> None:
        """Append what the others refer to; no leader archives yet."""
        leader = commands.LeaderActivated(1, "n1", is_archived=False)
        self.add(leader, *setup_commands()[1:], create("exact", is_transactional=True))
        ask = commands.Request
        self.add(
            commands.OpenQueue(ask("c", 2, 0), f"DIRECT=OS:{HOST}\\exact", RECEIVE, 0, ()),
            commands.TxBegin(ask("c", 3, 0), b"t" * 16, True, "", 60_000),
            commands.TxBegin(ask("c", 4, 0), b"u" * 16, False, "", 60_000),
            commands.OpenQueue(ask("c", 5, 0), "DIRECT=OS:far\\q", SEND, 0, ()),
        )
        if self.version > 1:
            self.add(commands.RaiseApplyVersion(self.version))

    def bind(self, mode: BindingMode) -> None:
        """Append new rules of bindings, if they exist."""
        if self.version >= VERSION_OF_BINDINGS:
            pins = (PIN,) if self.term % 2 else ()
            self.add(commands.SetBindings(mode, 60_000, ("10.0.0.0/28",), pins))

    def terms(self) -> None:
        """Append the entries of all terms."""
        for term in range(2, TERMS + 2):
            self.term = term
            if term == self.raised_in:
                self.version = APPLY_VERSION
                self.add(commands.RaiseApplyVersion(self.version))
            archives = term >= TERM_OF_ARCHIVING
            self.add(commands.LeaderActivated(term, f"n{term % 3 + 1}", is_archived=archives))
            self.bind(BindingMode.OFF)
            self.temporary(term)
            self.bind(BindingMode.BIND if term % 3 else BindingMode.STRICT)
            for _ in range(ENTRIES_PER_TERM):
                self.now_ms += self.chance.choice((0, 1, 250, 70_000))
                count = self.chance.randint(1, COMMANDS_PER_ENTRY_MAX)
                batch = [self.anything() for _ in range(count)]
                if self.chance.random() < 0.6:
                    batch += self.traffic()
                self.add(*batch)
            self.add(commands.AuditMark(NEVER_MARKED + term))


@cache
def rich_log(version: int = APPLY_VERSION, raised_in: int = 0) -> tuple[Entry, ...]:
    """Return a log in which every kind of command stands, in several terms."""
    maker = LogMaker(SEED, version)
    maker.raised_in = raised_in
    maker.begin()
    maker.terms()
    assert maker.kinds == set(DECLARATIONS), "a kind of command that is not tried"
    return tuple(maker.entries)


def _lose_what_is_not_flushed(node: Node) -> None:
    """Have the disk full for a moment, after which the state is opened again."""
    fill(node.store)
    with pytest.raises(DatabaseFull):
        node.store.flush()
    node.store.reopen()


class Replayed:
    """What a replica has after a log."""

    def __init__(
        self,
        path: Path,
        log: Sequence[Entry],
        run: int,
        *,
        reads_effects: bool = False,
        flushes_after: Container[int] = (),
        reopens_after: Container[int] = (),
    ) -> None:
        """`flushes_after`, `reopens_after`: how many runs were applied when the state is flushed,
        and when the disk has no space for that.
        """
        node = Node(path, keeps_effects=True)
        node.log.append(None, log)
        sync = node.log.begin_sync()
        sync.run()
        node.log.end_sync(sync)
        marks: dict[tuple[int, int], bytes] = {}
        for count, first in enumerate(range(0, len(log), run)):
            if count in flushes_after:
                node.store.flush()
            if count in reopens_after:
                _lose_what_is_not_flushed(node)
            for applied in node.store.apply(log[first : first + run]):
                if reads_effects:
                    assert len(applied.effects.kinds) == applied.effect_count
            for mark in node.store.marks:
                assert marks.setdefault((mark.index, mark.number), mark.kept) == mark.kept
            node.store.marks.clear()
            node.store.settle()
        self.marks = [*marks.items()]
        state = node.store.state
        self.digest = node.store.applied.digest
        self.chain = state.get(Table.META, b"chain")
        self.effects = state.scan(Table.EFFECTS, b"", INDEX_END, len(log) + 1)
        self.rows = [row for row in state.rows() if row[0][0] < Table.LOCAL_FIRST]
        assert node.store.verify()
        node.close()


@pytest.mark.parametrize("run", RUN_LENGTHS[1:])
@pytest.mark.parametrize(
    ("version", "raised_in"), [(APPLY_VERSION, 0), (APPLY_VERSION - 1, 0), (APPLY_VERSION - 1, 4)]
)
def test_any_length_of_runs_leaves_the_same(
    tmp_path: Path, run: int, version: int, raised_in: int
) -> None:
    """Under the newest apply version, the one before, and where it changes on the way."""
    log = rich_log(version, raised_in)
    one = Replayed(tmp_path / "one", log, 1)
    # Where this node leads, its outgoing queues read effects before they are kept.
    many = Replayed(tmp_path / "many", log, run, reads_effects=True)
    assert one.chain is not None
    assert many.chain == one.chain
    assert many.rows == one.rows
    assert many.digest == one.digest
    assert many.marks == one.marks
    assert [index for index, _ in many.effects] == [index for index, _ in one.effects]
    for mine, others in zip(many.effects, one.effects, strict=True):
        assert mine == others, f"entry {int.from_bytes(mine[0], 'big')}"


@pytest.mark.parametrize("flushed", [False, True])
def test_a_state_that_is_opened_again_on_the_way_is_the_same(tmp_path: Path, flushed: bool) -> None:
    """It goes over entries of all terms anew, in other runs than before, or over some."""
    log = rich_log()
    one = Replayed(tmp_path / "one", log, 1)
    runs = len(log) // 7
    many = Replayed(
        tmp_path / "many",
        log,
        7,
        reads_effects=True,
        flushes_after={runs // 4} if flushed else (),
        reopens_after={runs // 2, runs // 2 + 1, runs - 1},
    )
    assert one.chain is not None
    assert many.chain == one.chain
    assert many.rows == one.rows
    assert many.digest == one.digest
    assert many.marks == one.marks
    assert many.effects == one.effects


def test_effects_name_queues_that_came_and_went(tmp_path: Path) -> None:
    replayed = Replayed(tmp_path / "node", rich_log(), 64)
    names = {
        name
        for key, row in replayed.effects
        for queue_id, name in unpack_kept(int.from_bytes(key, "big"), row).names.items()
        if queue_id
    }
    assert {f"{HOST}\\temporary{term}" for term in range(TERM_OF_ARCHIVING, TERMS + 2)} <= names
    assert "" not in names


def test_chain_begins_with_the_entry_that_says_so(tmp_path: Path) -> None:
    log = rich_log()
    first = next(entry.index for entry in log if entry.term == TERM_OF_ARCHIVING)
    for run in RUN_LENGTHS:
        replayed = Replayed(tmp_path / f"{run}", log[: first + 3], run)
        assert int.from_bytes(replayed.effects[0][0], "big") == first
