"""Payloads and their outcomes, without a replica."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raft.batch import split
from raft.core.core import Busy, NotLeader
from raft.proposals import CommitUnknown, ProposalLost, Proposals
from raft.step import AppliedEntry
from raft.types import EntryKind


class Log:
    """Takes entries as a leader's core does."""

    def __init__(self, last_index: int = 0) -> None:
        self.last_index = last_index
        self.entries: list[list[bytes]] = []
        self.error: Exception | None = None

    def propose(self, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        self.entries.append([bytes(payload) for payload in split(data)])
        self.last_index += 1
        return self.last_index


def entry(index: int, term: int, *results: int) -> AppliedEntry[Any]:
    kind = EntryKind.DATA if results else EntryKind.NOOP
    return AppliedEntry(index, term, kind, results or None)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


async def outcome_of(waiting: "asyncio.Task[Any]") -> Any:
    try:
        return await asyncio.wait_for(waiting, 10)
    except Exception as error:
        return type(error)


class Callers:
    """Tasks that propose, as `Driver.propose` does."""

    def __init__(self, **options: Any) -> None:
        self.proposals: Proposals[int] = Proposals(**options)

    def propose(self, payload: bytes, weight: int = 1) -> "asyncio.Task[Any]":
        outcome, ordinal = self.proposals.add(payload, weight)

        async def call() -> Any:
            return (await outcome.wait())[ordinal]

        return asyncio.create_task(call())


def test_what_waits_shares_an_entry() -> None:
    async def scenario() -> None:
        callers, log = Callers(), Log()
        tasks = [callers.propose(b"%d" % number) for number in range(3)]
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"0", b"1", b"2"]]
        assert callers.proposals.waiting_bytes == 0
        callers.proposals.applied([entry(1, 5, 10, 11, 12)])
        assert await asyncio.gather(*tasks) == [10, 11, 12]
        assert not callers.proposals

    run(scenario)


def test_only_so_many_entries_are_in_flight() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=1), Log()
        first = callers.propose(b"1")
        callers.proposals.submit(log.propose, 5)
        second, third = callers.propose(b"2"), callers.propose(b"3")
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"]]
        callers.proposals.applied([entry(1, 5, 1)])
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"], [b"2", b"3"]]
        callers.proposals.applied([entry(2, 5, 2, 3)])
        assert [await first, await second, await third] == [1, 2, 3]

    run(scenario)


def test_who_holds_back_while_an_entry_is_in_flight_is_asked_for_the_next_one() -> None:
    async def scenario() -> None:
        held: list[bytes] = []

        def add_all() -> None:
            while held:
                callers.propose(held.pop())

        callers, log = Callers(before_entry=add_all), Log()
        callers.propose(b"1")
        callers.proposals.submit(log.propose, 5)
        held.append(b"2")
        callers.proposals.submit(log.propose, 5)
        assert held, "nobody asks while an entry is in flight"
        callers.proposals.applied([entry(1, 5, 1)])
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"], [b"2"]]

    run(scenario)


def test_a_small_entry_waits_for_the_one_in_flight() -> None:
    """It would cost as much as a large one; a large one need not wait."""

    async def scenario() -> None:
        callers, log = Callers(in_flight_max=2, overlap_bytes_min=10), Log()
        callers.propose(b"1")
        callers.proposals.submit(log.propose, 5)
        callers.propose(b"2")
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"]]
        callers.propose(b"3456789ab")
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"], [b"2", b"3456789ab"]]
        callers.propose(b"c")
        callers.proposals.applied([entry(1, 5, 1)])
        callers.proposals.submit(log.propose, 5)
        assert len(log.entries) == 2
        callers.proposals.applied([entry(2, 5, 2, 3)])
        callers.proposals.submit(log.propose, 5)
        assert log.entries[2:] == [[b"c"]]
        callers.proposals.fail_proposed(5)

    run(scenario)


def test_what_weighs_too_much_together_goes_apart_and_in_order() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=9, overlap_bytes_min=0, entry_weight_max=10), Log()
        weights = (4, 6, 1, 10, 11, 0, 3)
        tasks = [callers.propose(b"%d" % n, weight) for n, weight in enumerate(weights)]
        callers.proposals.submit(log.propose, 5)
        # One that exceeds the limit alone is alone, but for what weighs nothing at all.
        assert log.entries == [[b"0", b"1"], [b"2"], [b"3"], [b"4"], [b"5", b"6"]]
        numbers = iter(range(len(weights)))
        for index, payloads in enumerate(log.entries, start=1):
            results = [next(numbers) for _ in payloads]
            callers.proposals.applied([entry(index, 5, *results)])
        assert await asyncio.gather(*tasks) == list(range(len(weights)))

    run(scenario)


def test_a_batch_that_is_full_of_weight_does_not_wait() -> None:
    """However few bytes it has."""

    async def scenario() -> None:
        callers, log = Callers(in_flight_max=2, entry_weight_max=2), Log()
        callers.propose(b"1")
        callers.proposals.submit(log.propose, 5)
        for payload in (b"2", b"3", b"4"):
            callers.propose(payload)
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"1"], [b"2", b"3"]]
        callers.proposals.fail_proposed(5)
        callers.proposals.fail_waiting(None)

    run(scenario)


def test_a_full_batch_is_followed_by_another() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=3), Log()
        for size in (600_000, 600_000, 2_000_000, 1):
            callers.propose(bytes(size))
        callers.proposals.submit(log.propose, 5)
        assert [[len(payload) for payload in batch] for batch in log.entries] == [
            [600_000],
            [600_000],
            [2_000_000],
        ]
        assert callers.proposals.waiting_bytes == 1
        callers.proposals.fail_proposed(5)
        callers.proposals.fail_waiting(None)

    run(scenario)


def test_every_entry_begins_with_a_prologue_of_its_own() -> None:
    """Made when its batch is closed, in the entries' order; results count the callers' payloads."""

    async def scenario() -> None:
        stamps = iter([b"stamp 1", b"stamp 2"])
        callers, log = Callers(in_flight_max=1, prologue=lambda _payloads: next(stamps)), Log()
        first = [callers.propose(payload) for payload in (b"a", b"b")]
        callers.proposals.submit(log.propose, 5)
        second = callers.propose(b"c")
        callers.proposals.submit(log.propose, 5)
        callers.proposals.applied([entry(1, 5, 10, 11)])
        log.error = Busy("later")
        callers.proposals.submit(log.propose, 5)
        log.error = None
        callers.proposals.submit(log.propose, 5)
        assert log.entries == [[b"stamp 1", b"a", b"b"], [b"stamp 2", b"c"]]
        callers.proposals.applied([entry(2, 5, 12)])
        assert [await task for task in (*first, second)] == [10, 11, 12]

    run(scenario)


def test_busy_leaves_everything_waiting() -> None:
    async def scenario() -> None:
        callers, log = Callers(waiting_bytes_max=10), Log()
        log.error = Busy("later")
        task = callers.propose(bytes(8))
        callers.proposals.submit(log.propose, 5)
        assert callers.proposals.waiting_bytes == 8
        with pytest.raises(Busy, match="WAITING_MAX_BYTES"):
            callers.propose(bytes(3))
        log.error = None
        callers.proposals.submit(log.propose, 5)
        callers.proposals.applied([entry(1, 5, 0)])
        assert await task == 0

    run(scenario)


def test_without_leadership_nothing_was_proposed() -> None:
    async def scenario() -> None:
        callers, log = Callers(), Log()
        log.error = NotLeader("n2.1")
        task = callers.propose(b"x")
        callers.proposals.submit(log.propose, 5)
        with pytest.raises(NotLeader) as caught:
            await task
        assert caught.value.leader == "n2.1"
        assert not callers.proposals

    run(scenario)


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        ([entry(7, 5, 1)], 1),
        ([entry(7, 6, 1)], ProposalLost),
        ([entry(8, 6, 1)], ProposalLost),
        ([entry(5, 5, 1), entry(6, 5, 2), entry(7, 5, 3)], 3),
        ([entry(6, 6), entry(7, 6)], ProposalLost),
    ],
)
def test_an_entry_is_known_by_index_and_term(
    applied: list[AppliedEntry[Any]], expected: object
) -> None:
    async def scenario() -> None:
        callers, log = Callers(), Log(last_index=6)
        task = callers.propose(b"x")
        callers.proposals.submit(log.propose, 5)
        callers.proposals.applied(applied)
        assert await outcome_of(task) == expected

    run(scenario)


def test_a_leader_that_returns_knows_its_old_entries_from_its_new_ones() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=5, overlap_bytes_min=0), Log(last_index=9)
        kept = callers.propose(b"kept")
        callers.proposals.submit(log.propose, 3)
        truncated = callers.propose(b"truncated")
        callers.proposals.submit(log.propose, 3)
        log.last_index = 10  # another leader cut the log here; then this one leads again
        new = callers.propose(b"new")
        callers.proposals.submit(log.propose, 5)
        assert await outcome_of(truncated) is ProposalLost
        callers.proposals.applied([entry(10, 3, 1), entry(11, 5, 2)])
        assert await outcome_of(kept) == 1
        assert await outcome_of(new) == 2

    run(scenario)


def test_a_snapshot_hides_what_came_of_older_entries() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=5), Log()
        old = callers.propose(b"old")
        callers.proposals.submit(log.propose, 3)
        callers.proposals.restored(1)
        assert await outcome_of(old) is CommitUnknown

    run(scenario)


def test_waiting_ends_only_for_terms_that_ended() -> None:
    async def scenario() -> None:
        callers, log = Callers(in_flight_max=5), Log()
        old = callers.propose(b"old")
        callers.proposals.submit(log.propose, 3)
        new = callers.propose(b"new")
        callers.proposals.submit(log.propose, 5)
        callers.proposals.fail_proposed(3)
        assert await outcome_of(old) is CommitUnknown
        callers.proposals.applied([entry(1, 3, 1), entry(2, 5, 2)])
        assert await outcome_of(new) == 2

    run(scenario)


def test_who_was_cancelled_before_and_lives_on_is_told_apart() -> None:
    """Cancelling another caller breaks the future that both share; this one keeps waiting."""

    async def scenario() -> None:
        callers, log = Callers(), Log()

        async def stubborn() -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
                return await callers.propose(b"stubborn")

        first = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        first.cancel()
        other = callers.propose(b"other")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        other.cancel()
        await asyncio.sleep(0)
        callers.proposals.submit(log.propose, 5)
        callers.proposals.applied([entry(1, 5, *range(len(log.entries[0])))])
        assert await first == log.entries[0].index(b"stubborn")

    run(scenario)
