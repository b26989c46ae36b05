"""The answer to a drain is true when it is given."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from qm.cluster.cluster import Unavailable
from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep import drain
from qm.node.upkeep.drain import Drain
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from qm.pb import relay_pb2
from raft.types import Configuration, Role


class Endpoint:
    """Serves MSMQ, or not."""

    is_serving = True
    fails = False
    takes_s = 0.0
    """How long its peers' messages take to be acknowledged."""

    async def start(self) -> None:
        self.is_serving = True

    async def drain(self) -> None:
        await asyncio.sleep(self.takes_s)

    async def stop(self) -> None:
        self.is_serving = False
        if self.fails:
            raise OSError("no")


class Cluster:
    """Three nodes of which this one, n1, leads; it also plays the driver, and its configuration."""

    node = "n1.1"

    def __init__(self, *others: relay_pb2.InspectReply) -> None:
        self.others = others
        self.role = Role.LEADER
        self.leader: str | None = "n1.1"
        self.stands_back = False
        self.transfers: list[str] = []
        self.noted: list[str] = []
        self.on_transfer: list[Callable[[], None]] = []
        self.configuration = Configuration(("n1.1", *(f"{other.node}.1" for other in others)))
        self.driver = self.config = self
        self.endpoint = Endpoint()

    def stand_back(self, is_standing_back: bool) -> None:
        self.stands_back = is_standing_back

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        own = relay_pb2.InspectReply(node="n1", role="leader", applied=9, takes_messages=True)
        return {reply.node: reply for reply in (own, *self.others)}

    async def transfer(self, to: str) -> None:
        self.transfers.append(to)
        if self.on_transfer:
            self.on_transfer.pop(0)()

    def follows(self, leader: str | None) -> None:
        self.role, self.leader = Role.FOLLOWER, leader

    def fails(self) -> None:
        raise Unavailable("n2 did not take over")

    def note(self, name: str, text: str) -> None:
        assert text.startswith(self.node)
        self.noted.append(name)

    def drain(self) -> Drain:
        endpoint = cast(MsmqEndpoint, self.endpoint)
        return Drain(
            cast(ReplicatedStore, self), endpoint, self.inspect_all, self.transfer, self.note
        )


def other(name: str, *, applied: int = 9, takes_messages: bool = True) -> relay_pb2.InspectReply:
    return relay_pb2.InspectReply(
        node=name, role="follower", applied=applied, takes_messages=takes_messages
    )


def run(scenario: Coroutine[Any, Any, Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario

    asyncio.run(bounded())


async def ended(work: Awaitable[None]) -> bool:
    """Return whether it ends within a few looks."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=5 * drain.LOOK_EVERY_S)
    task.cancel()
    return bool(done)


def test_a_leader_hands_over_until_another_one_leads() -> None:
    """It led again at the first attempt, or was not heard."""

    async def scenario() -> None:
        made = Cluster(other("n2"), other("n3"))
        made.on_transfer = [made.fails, lambda: None, lambda: made.follows("n3.1")]
        await made.drain().begin()
        assert made.noted == ["drain"]
        assert (made.role, len(made.transfers), made.stands_back) == (Role.FOLLOWER, 3, True)

    run(scenario())


def test_there_is_no_answer_before_another_one_leads() -> None:
    """It has handed over, and nobody has won yet."""

    async def scenario() -> None:
        made = Cluster(other("n2"), other("n3"))
        made.follows(None)
        assert not await ended(made.drain().begin())
        made.follows("n2.1")
        assert await ended(made.drain().begin())

    run(scenario())


def test_a_second_request_waits_as_well() -> None:
    """The caller of the first one may have given up."""

    async def scenario() -> None:
        made = Cluster(other("n2"), other("n3"))
        drained = made.drain()
        made.on_transfer = [lambda: made.follows("n3.1")]
        await drained.begin()
        made.role, made.leader = Role.LEADER, "n1.1"
        made.on_transfer = [lambda: made.follows("n2.1")]
        await drained.begin()
        assert made.role is Role.FOLLOWER

    run(scenario())


def test_the_heir_is_one_that_does_not_drain_itself() -> None:
    """Two that drain would hand over to each other."""

    async def scenario() -> None:
        made = Cluster(other("n2", applied=10, takes_messages=False), other("n3"))
        made.on_transfer = [lambda: made.follows("n3.1")]
        await made.drain().begin()
        assert made.transfers == ["n3"]

    run(scenario())


def test_a_node_alone_leads_although_it_drains() -> None:
    """There is nobody to wait for."""

    async def scenario() -> None:
        made = Cluster()
        await made.drain().begin()
        assert (made.role, made.transfers) == (Role.LEADER, [])

    run(scenario())


def test_the_wait_for_another_leader_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer then says that it still leads."""
    monkeypatch.setattr(drain, "FOLLOW_MAX_S", 2 * drain.LOOK_EVERY_S)

    async def scenario() -> None:
        made = Cluster(other("n2"))
        await made.drain().begin()
        assert made.role is Role.LEADER
        assert made.transfers

    run(scenario())


def test_a_node_that_serves_again_stands_back_no_more() -> None:
    async def scenario() -> None:
        made = Cluster(other("n2"))
        made.follows("n2.1")
        drained = made.drain()
        await drained.begin()
        await drained.end()
        assert (made.stands_back, drained.is_draining) == (False, False)

    run(scenario())


def test_peers_are_left_though_who_asked_gave_up() -> None:
    """It drained and served its peers for ever, and a second request found nothing to do."""

    async def scenario() -> None:
        made = Cluster(other("n2"))
        made.follows("n2.1")
        made.endpoint.takes_s = 6 * drain.LOOK_EVERY_S
        drained = made.drain()
        assert not await ended(drained.begin())
        assert made.endpoint.is_serving
        await drained.begin()
        assert not made.endpoint.is_serving

    run(scenario())


def test_a_node_serves_again_only_after_it_left_its_peers() -> None:
    """It would take its addresses twice, or give them up at last."""

    async def scenario() -> None:
        made = Cluster(other("n2"))
        made.follows("n2.1")
        made.endpoint.takes_s = 6 * drain.LOOK_EVERY_S
        drained = made.drain()
        assert not await ended(drained.begin())
        await drained.end()
        await asyncio.sleep(made.endpoint.takes_s)
        assert (made.endpoint.is_serving, drained.is_draining) == (True, False)

    run(scenario())


def test_a_node_that_could_not_leave_its_peers_serves_again_all_the_same() -> None:
    async def scenario() -> None:
        made = Cluster(other("n2"))
        made.follows("n2.1")
        made.endpoint.fails = True
        drained = made.drain()
        for _ in range(2):
            with pytest.raises(OSError, match="no"):
                await drained.begin()
        await drained.end()
        assert (made.endpoint.is_serving, drained.is_draining) == (True, False)
        made.endpoint.fails = False
        await drained.begin()
        assert not made.endpoint.is_serving

    run(scenario())
