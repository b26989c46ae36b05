"""Whom a majority waits for gets every Append at once; the others get theirs together."""

import pytest

from raft.core.leader import LARGE_APPEND_BYTES
from raft.core.progress import ProgressState
from raft.types import Append, Heartbeat, PeerState
from tests.unit.raft.core.group import Group


def warm(names: str = "abc", **config: int) -> Group:
    """A group whose leader a has been followed for a while."""
    group = Group(names, "", **config)
    group.elect("a")
    group.tick(2)
    return group


def fed(group: Group, *payloads: bytes) -> dict[str, list[int]]:
    """Propose one after the other, each until nothing moves; return how many entries each
    Append that arrived had, by follower.
    """
    began = len(group.log)
    for payload in payloads:
        group.propose(payload)
    seen: dict[str, list[int]] = {}
    for envelope in group.log[began:]:
        if isinstance(envelope.body, Append):
            seen.setdefault(envelope.to[0], []).append(len(envelope.body.entries))
    return seen


def rear_of(group: Group, names: str) -> set[str]:
    """Who is not fed at once after all were."""
    group.tick()
    at_once = fed(group, b"to all", b"to the front")
    return {name for name in names if len(at_once.get(name, ())) < 2}


def test_the_first_entry_of_a_tick_goes_to_all() -> None:
    """A group with little to do keeps the quicker of its followers."""
    group = warm()
    assert fed(group, b"x") == {"b": [1], "c": [1]}


def test_the_rear_gets_the_entries_of_a_tick_in_one_append() -> None:
    """It learns of the commit index with them."""
    group = warm()
    fed(group, b"0")
    at_once = fed(group, b"1", b"2", b"3")
    (rear,) = {"b", "c"} - at_once.keys()
    assert [*at_once.values()] == [[1, 1, 1]]
    assert group.core("a").commit == group["a"].log.last_index()
    group.tick(1, "a")
    assert group[rear].data() == [b"0", b"1", b"2", b"3"]


def test_a_large_append_goes_to_all_at_once() -> None:
    """Against its bytes another frame is cheap."""
    group = warm()
    fed(group, b"0")
    assert fed(group, bytes(LARGE_APPEND_BYTES)) == {"b": [1], "c": [1]}


def test_a_leader_that_puts_something_off_is_due_at_the_next_tick() -> None:
    """Its driver must not sleep until the next heartbeat."""
    group = warm()
    fed(group, b"0", b"1")
    assert group.core("a").ticks_until_due() == 1
    group.tick(1, "a")
    group.tick(1, "a")
    assert group.core("a").ticks_until_due() > 1


def test_five_voters_have_two_in_front() -> None:
    """With the leader they are a majority."""
    group = warm("abcde")
    assert len(rear_of(group, "bcde")) == 2


def test_two_voters_have_no_rear() -> None:
    """Every entry needs both."""
    group = warm("ab")
    assert rear_of(group, "b") == set()


def test_without_rear_ticks_everybody_is_in_front() -> None:
    """The setting turns the rule off."""
    group = warm(rear_ticks=0)
    assert rear_of(group, "bc") == set()


def test_a_silent_front_costs_a_tick_and_is_replaced() -> None:
    """Who has more than those that were waited for is waited for from now on."""
    group = warm()
    (rear,) = rear_of(group, "bc")
    (front,) = {"b", "c"} - {rear}
    group.tick()
    group.isolate(front)
    fed(group, b"1", b"2")
    group.tick(1, "a")
    assert group.core("a").commit == group["a"].log.last_index()
    group.tick(1, "a")
    assert rear_of(group, "bc") == {front}


@pytest.mark.parametrize("state", [PeerState.LOST, PeerState.REFUSED])
def test_a_front_that_is_cut_off_is_replaced_at_once(state: PeerState) -> None:
    """The majority must not wait for the tick of who takes its place."""
    group = warm()
    (rear,) = rear_of(group, "bc")
    (front,) = {"b", "c"} - {rear}
    group.isolate(front)
    group.core("a").peer(f"{front}.1", state)
    at_once = fed(group, b"1", b"2")
    assert sum(at_once[rear]) >= 2
    assert group.core("a").commit == group["a"].log.last_index()


def test_reads_do_not_wait_for_the_rear_to_be_fed() -> None:
    """A barrier's heartbeat goes to all, so that any majority may confirm it."""
    group = warm()
    fed(group, b"0", b"1")
    leader = group["a"]
    leader.core.read(1)
    leader.pump()
    told = {e.to for e in leader.take_outbox() if isinstance(e.body, Heartbeat)}
    assert told == {"b.1", "c.1"}


def test_a_follower_that_reads_is_fed_at_once() -> None:
    """Its read is served when what is committed is applied there."""
    group = warm()
    (rear,) = rear_of(group, "bc")
    reader = group[rear]
    assert reader.log.last_index() < group["a"].log.last_index()
    reader.core.read(1)
    group.settle()
    assert [read.request for read in reader.reads] == [1]
    assert reader.log.last_index() == group["a"].log.last_index()


def test_a_follower_that_is_probed_is_not_put_off() -> None:
    """It may lack much, and one Append at a time is all that it gets."""
    group = warm()
    (rear,) = rear_of(group, "bc")
    group.tick()
    fed(group, b"0")
    group.core("a").peer(f"{rear}.1", PeerState.CONNECTED)
    group.settle()
    (status,) = [f for f in group.core("a").followers() if f.node == f"{rear}.1"]
    assert status.state is ProgressState.REPLICATE
    assert status.match == group["a"].log.last_index()


def test_a_backlog_does_not_wait_for_ticks() -> None:
    """A follower that comes back is fed as fast as it takes it."""
    group = warm(append_bytes_max=10)
    (rear,) = rear_of(group, "bc")
    group.isolate(rear)
    for _ in range(30):
        group.propose(bytes(10))
    group.tick(1, "a")
    group.heal()
    group.core("a").peer(f"{rear}.1", PeerState.CONNECTED)
    group.settle()
    assert group[rear].log.last_index() == group["a"].log.last_index()
