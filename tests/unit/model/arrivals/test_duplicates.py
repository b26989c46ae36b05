"""Duplicate detection: history, sequences, forgetting and the limit per source."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.model.arrivals import duplicates as module
from qm.model.arrivals.duplicates import Duplicates
from qm.model.arrivals.incoming_streams import Stream
from qm.model.state.bindings import Bindings
from qm.model.state.ledger import Ledger
from qm.model.state.tables import MemoryState, Table
from qm.model.values.commands import TransferVerdict
from qm.model.values.limits import ALARM_HISTORY_EVICTED, APPLY_VERSION, SEQUENCE_KEPT_MS
from tests.unit.model.world import World as ModelWorld
from tests.unit.model.world import packet

SOURCE, OTHER = b"S" * 16, b"T" * 16
NAME = b"OS:host\\q"
T0_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class World:
    """A state with its duplicates; each `entry` is one Raft entry."""

    def __init__(self, *, settles: bool = True) -> None:
        """`settles`: whether rows are written back after every entry."""
        self.settles = settles
        self.version = APPLY_VERSION
        self.state = MemoryState()
        self.index = 0
        self.reopen()

    def reopen(self) -> None:
        self.ledger = Ledger(self.state)
        self.duplicates = Duplicates(self.ledger, Bindings(self.ledger))

    def begin(self, now_ms: int) -> None:
        self.index += 1
        self.ledger.begin(self.index, now_ms, self.version)

    def finish(self) -> list[str]:
        self.duplicates.finish()
        if self.settles:
            self.settle()
        return self.ledger.applied.alarms

    def settle(self) -> None:
        self.duplicates.settle()
        self.ledger.settle()

    def stream(self, source: bytes = SOURCE, name: bytes = NAME) -> Stream:
        stream = self.duplicates.stream(source, name)
        assert stream is not None
        return stream

    def take(self, source: bytes, name: bytes, sent: int, ordinal: int, now_ms: int) -> bool:
        """Apply one message in its own entry; return whether it was new."""
        self.begin(now_ms)
        stream = self.stream(source, name)
        history = self.duplicates.history(stream)
        known = history.is_known(sent, ordinal)
        if not known:
            history.remember(ordinal, HOUR_MS)
        self.finish()
        return not known

    def made(self, source: bytes, name: bytes) -> bool:
        """Make a stream of which something is remembered; whether there was room for it."""
        stream = self.duplicates.stream(source, name)
        if stream is not None:
            self.duplicates.advance(stream, 1, 1)
        return stream is not None

    def history_rows(self) -> int:
        return sum(table == Table.HISTORY for table, _, _ in self.state.rows())


def test_the_same_message_is_known_and_its_neighbours_are_not() -> None:
    world = World()
    sent = T0_MS // 1000
    assert world.take(SOURCE, NAME, sent, 511, T0_MS)
    assert not world.take(SOURCE, NAME, sent, 511, T0_MS)
    assert world.take(SOURCE, NAME, sent, 512, T0_MS)
    assert world.take(SOURCE, NAME, sent + 1, 511, T0_MS)  # a reused ordinal
    assert world.take(SOURCE, NAME + b"2", sent, 511, T0_MS)  # a copy to another queue
    assert world.take(OTHER, NAME, sent, 511, T0_MS)
    world.reopen()
    assert not world.take(SOURCE, NAME, sent, 511, T0_MS)


messages = st.tuples(
    st.sampled_from([SOURCE, OTHER]),
    st.sampled_from([NAME, b"TCP:10.0.0.1\\q"]),
    st.integers(T0_MS // 1000, T0_MS // 1000 + 2),
    st.integers(1, 1_100) | st.just(0xFFFF_FFFF),
)


@given(st.lists(st.tuples(messages, st.booleans()), max_size=60))
@settings(max_examples=60)
def test_agrees_with_a_set(plan: list[tuple[tuple[bytes, bytes, int, int], bool]]) -> None:
    world, seen = World(), set()
    for message, reopens in plan:
        if reopens:
            world.reopen()
        assert world.take(*message, now_ms=T0_MS) == (message not in seen)
        seen.add(message)


@given(st.lists(messages, min_size=5, max_size=60), st.integers(1, 4))
@settings(max_examples=60)
def test_when_rows_are_written_back_decides_nothing(
    plan: list[tuple[bytes, bytes, int, int]], limit: int
) -> None:
    at_once, late = World(), World(settles=False)
    with mock.patch.object(module, "HISTORY_ROWS_PER_SOURCE_MAX", limit):
        for world in (at_once, late):
            for number, message in enumerate(plan):
                world.take(*message, now_ms=T0_MS + number * 60_000)
            world.settle()
    assert list(late.state.rows()) == list(at_once.state.rows())


@pytest.mark.spec("QB-3.1.5.8.2-04")
def test_memory_ends_after_the_lifetime_and_leaves_no_row() -> None:
    world = World()
    for ordinal in range(1, 3_000, 500):
        world.take(SOURCE, NAME, T0_MS // 1000, ordinal, T0_MS)
    assert world.history_rows() == 5
    world.begin(T0_MS + HOUR_MS - 1)
    assert world.duplicates.forget_due() == 0
    world.finish()
    world.begin(T0_MS + HOUR_MS + 60_000)
    assert world.duplicates.forget_due(row_count_max=2) == 2
    assert world.duplicates.forget_due() == 3
    assert world.duplicates.forget_due() == 0
    world.finish()
    assert {table for table, _, _ in world.state.rows()} == {Table.META}
    assert world.take(SOURCE, NAME, T0_MS // 1000, 1, T0_MS + HOUR_MS + 60_000)


@pytest.mark.spec("QB-3.1.5.8.1-02")
def test_a_later_repeat_prolongs_the_bucket_once() -> None:
    world = World()
    world.take(SOURCE, NAME, T0_MS // 1000, 1, T0_MS)
    world.take(SOURCE, NAME, T0_MS // 1000, 2, T0_MS + HOUR_MS // 2)
    world.begin(T0_MS + HOUR_MS + 60_000)
    assert world.duplicates.forget_due() == 0
    world.finish()
    indexes = [key for table, key, _ in world.state.rows() if table == Table.HISTORY_BUCKET]
    assert len(indexes) == 3


@pytest.mark.spec("QB-3.1.5.8.2-04", "QB-3.1.1.3-05")
def test_a_source_over_its_limit_loses_its_own_oldest_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HISTORY_ROWS_PER_SOURCE_MAX", 4)
    world = World()
    world.take(OTHER, NAME, T0_MS // 1000, 1, T0_MS)
    for second in range(6):
        now_ms = T0_MS + second * 120_000
        assert world.take(SOURCE, NAME, now_ms // 1000, 7, now_ms)
    assert world.history_rows() == 5
    now_ms = T0_MS + 11 * 60_000
    assert not world.take(OTHER, NAME, T0_MS // 1000, 1, now_ms)
    assert not world.take(SOURCE, NAME, now_ms // 1000 - 60, 7, now_ms)
    assert world.take(SOURCE, NAME, T0_MS // 1000, 7, now_ms)


def test_eviction_raises_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY_ROWS_PER_SOURCE_MAX", 1)
    world = World()
    world.begin(T0_MS)
    history = world.duplicates.history(world.stream())
    for ordinal in (1, 600):
        assert not history.is_known(T0_MS // 1000, ordinal)
        history.remember(ordinal, HOUR_MS)
    assert world.finish() == [ALARM_HISTORY_EVICTED]


def test_a_sent_time_in_the_far_future_pins_no_memory() -> None:
    world = World()
    world.take(SOURCE, NAME, 0xFFFF_FFFF, 1, T0_MS)
    world.begin(T0_MS + 25 * HOUR_MS + 60_000)
    assert world.duplicates.forget_due() == 1
    world.finish()


@pytest.mark.spec("QB-3.1.1.5-01")
@pytest.mark.parametrize(
    ("sequence", "number", "previous", "admitted"),
    [
        (7, 6, 5, True),  # the next
        (7, 9, 5, True),  # a gap is legal
        (7, 9, 3, True),
        (7, 5, 4, False),  # again
        (7, 7, 6, False),  # 6 is missing
        (8, 1, 0, True),  # a new sequence
        (8, 4, 0, True),
        (8, 2, 1, False),  # its first is missing
        (6, 9, 0, False),  # an old sequence
        (8, 0, 0, False),
    ],
)
def test_sequences(sequence: int, number: int, previous: int, admitted: bool) -> None:
    world = World()
    world.begin(T0_MS)
    stream = world.stream()
    world.duplicates.advance(stream, 7, 5)
    world.duplicates.reject(stream)
    world.finish()
    world.reopen()
    world.begin(T0_MS + 1)
    stream = world.stream()
    assert (stream.sequence, stream.number, stream.rejects) == (7, 5, 1)
    assert stream.admits(sequence, number, previous) is admitted


def test_a_source_uses_no_more_names_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAMS_PER_SOURCE_MAX", 2)
    world = World()
    world.begin(T0_MS)
    assert world.made(SOURCE, b"a")
    assert world.made(SOURCE, b"b")
    assert not world.made(SOURCE, b"c")
    assert world.made(SOURCE, b"a")
    assert world.made(OTHER, b"c")
    world.finish()
    world.reopen()
    world.begin(T0_MS)
    assert not world.made(SOURCE, b"c")


def test_a_stream_that_nothing_came_of_is_gone_with_its_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STREAMS_PER_SOURCE_MAX", 1)
    world = World()
    world.begin(T0_MS)
    unused = world.stream(SOURCE, b"a")
    assert world.duplicates.finish() == {unused.stream_id}
    assert world.duplicates.finish() == frozenset()
    world.settle()
    assert {table for table, _, _ in world.state.rows()} <= {Table.META}
    world.begin(T0_MS)
    used = world.stream(SOURCE, b"b")
    world.duplicates.history(used).is_known(1, 1)
    world.duplicates.history(used).remember(1, HOUR_MS)
    assert used.stream_id == 1, "the other one used up no number"
    assert world.duplicates.finish() == frozenset()


def test_a_name_that_is_no_longer_remembered_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STREAMS_PER_SOURCE_MAX", 2)
    world = World()
    sent = T0_MS // 1000
    assert world.take(SOURCE, b"a", sent, 1, T0_MS)
    world.begin(T0_MS)
    exact = world.stream(SOURCE, b"exact")
    world.duplicates.advance(exact, 5, 1)
    world.finish()
    assert not world.take(SOURCE, b"a", sent, 1, T0_MS)
    world.begin(T0_MS + 3 * HOUR_MS)
    held = world.stream(SOURCE, b"a")
    version = world.ledger.version
    world.duplicates.forget_due()
    assert world.ledger.version != version, "what was concluded of a stream is void"
    assert world.made(SOURCE, b"b")
    assert world.stream(SOURCE, b"b").stream_id > held.stream_id
    assert world.duplicates.stream(SOURCE, b"a") is None
    assert world.stream(SOURCE, b"exact") is exact, "a sequence is remembered for ever"
    world.finish()
    names = [value for table, key, value in world.state.rows() if key[:1] == b"\2"]
    assert names == [SOURCE + b"exact", SOURCE + b"b"]


def test_a_source_of_which_nothing_is_remembered_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 1)
    world = World()
    assert world.take(SOURCE, NAME, T0_MS // 1000, 1, T0_MS)
    world.begin(T0_MS + 3 * HOUR_MS)
    assert world.duplicates.stream(OTHER, NAME) is None
    world.duplicates.forget_due()
    assert world.made(OTHER, NAME)
    world.finish()
    world.reopen()
    world.begin(T0_MS + 3 * HOUR_MS)
    assert world.duplicates.stream(SOURCE, NAME) is None
    assert world.ledger.counters.source_id == 2, "no number is given twice"


def test_a_source_beyond_the_last_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 1)
    world = World()
    world.begin(T0_MS)
    assert world.duplicates.stream(SOURCE, NAME)
    assert world.duplicates.stream(OTHER, NAME) is None


# Quotas of an address, and the end of a sequence ---------------------------------------------


def test_strangers_at_one_address_lock_nobody_out_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SOURCES_PER_ADDRESS_MAX", 3)
    monkeypatch.setattr(module, "STREAMS_PER_ADDRESS_MAX", 5)
    world = World()

    def made(source: int, name: bytes, address: str) -> bool:
        world.begin(T0_MS)
        stream = world.duplicates.stream(bytes([source]) * 16, name, address)
        if stream is not None:
            world.duplicates.advance(stream, 1, 1)
        world.finish()
        world.reopen()
        return stream is not None

    assert [made(n, b"q", "10.0.0.1") for n in range(5)] == [True, True, True, False, False]
    assert made(9, b"q", "10.0.0.2"), "another address has its own quota"
    assert made(0, b"r", "10.0.0.1")
    assert made(0, b"s", "10.0.0.1")
    assert not made(0, b"t", "10.0.0.1"), "streams have a quota, too"
    assert made(0, b"q", "10.0.0.1"), "what is known goes on"


def test_a_sequence_that_was_silent_for_long_is_forgotten() -> None:
    machine = ModelWorld()
    machine.create("exact", transactional=True)
    before = {row[:2] for row in machine.state.rows()}
    raw = packet(1, to="exact", sequence=(9, 1, 0))
    assert machine.arrive(raw) == [TransferVerdict.ACCEPTED]
    machine.tick(SEQUENCE_KEPT_MS // 2)
    assert machine.arrive(raw) == [TransferVerdict.DUPLICATE], "which counts as a sign of life"
    machine.tick(SEQUENCE_KEPT_MS // 2 + 1)
    assert machine.arrive(raw) == [TransferVerdict.DUPLICATE]
    machine.tick(SEQUENCE_KEPT_MS + 1)
    left = {row[:2] for row in machine.state.rows()} - before
    assert {table for table, _ in left} == {Table.POSITION}
    assert machine.counters().source_count == 0
    machine.machine.forget()
    assert machine.arrive(packet(2, to="exact", sequence=(10, 1, 0))) == [TransferVerdict.ACCEPTED]


def test_a_restart_in_the_middle_of_forgetting_decides_nothing() -> None:
    """The next message is of a bitmap that was in hand when it went, in a bucket that goes on."""
    later_ms = T0_MS + HOUR_MS + 60_000
    worlds = World(), World()
    for world in worlds:
        for ordinal in (2_501, 2_001, 1_501, 1_001, 1):
            world.take(SOURCE, NAME, T0_MS // 1000, ordinal, T0_MS)
        world.begin(later_ms)
        assert world.duplicates.forget_due(row_count_max=2) == 2
        world.finish()
    worlds[1].reopen()
    for world in worlds:
        assert world.take(SOURCE, NAME, T0_MS // 1000, 1, later_ms)
    assert list(worlds[0].state.rows()) == list(worlds[1].state.rows())
