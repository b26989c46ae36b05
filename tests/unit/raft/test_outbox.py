"""Promises leave after the sync that covers them, in order, and never without bound."""

from raft.outbox import PROMISES_MAX, Outbox
from raft.types import Envelope, ReadRequest


def message(number: int) -> Envelope:
    """A message that is distinguishable from others."""
    return Envelope(1, "a.1", "b.1", 1, ReadRequest(number))


def numbers(outbox: Outbox) -> list[int]:
    """What leaves now."""
    return [e.body.request for e in outbox.take() if isinstance(e.body, ReadRequest)]


def test_a_promise_without_writes_leaves_at_once() -> None:
    """Everything is durable already."""
    outbox = Outbox()
    outbox.send([message(1)])
    outbox.promise([message(2)], needs_sync=False, is_syncing=False)
    assert outbox
    assert numbers(outbox) == [1, 2]
    assert not outbox


def test_a_promise_waits_for_the_sync_that_covers_it() -> None:
    """The running one for what was written before it, the next one for the rest."""
    outbox = Outbox()
    outbox.promise([message(1)], needs_sync=True, is_syncing=False)
    outbox.sync_begins()
    outbox.promise([message(2)], needs_sync=False, is_syncing=True)
    outbox.promise([message(3)], needs_sync=True, is_syncing=True)
    assert numbers(outbox) == []
    outbox.sync_ended()
    outbox.sync_begins()
    assert numbers(outbox) == [1, 2]
    outbox.sync_ended()
    assert numbers(outbox) == [3]


def test_a_sync_that_hangs_does_not_fill_the_memory() -> None:
    """The older promises are dropped, as a network might."""
    outbox = Outbox()
    for number in range(3 * PROMISES_MAX):
        outbox.promise([message(number)], needs_sync=number % 2 == 0, is_syncing=True)
    outbox.sync_ended()
    left = numbers(outbox)
    assert left[-1] == 3 * PROMISES_MAX - 1
    assert len(left) <= PROMISES_MAX
