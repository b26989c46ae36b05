"""The cluster's interface: proposals, reads and relay streams, whichever node leads."""

import asyncio
from collections.abc import Sequence

import pytest

from qm.cluster.cluster import Leadership, OutcomeUnknown, Unavailable
from qm.cluster.relay import LatePackets, RelayStream, SessionFacts
from qm.model.values.commands import ClockTick, OpenClient
from qm.model.values.effects import Applied, Outcome
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX
from qm.store.codec import encode_command
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue

TICK = encode_command(ClockTick(1))
PEER = bytes(range(16))


class Edge:
    """Records what an edge learns of its stream."""

    def __init__(self) -> None:
        self.outcomes: list[int] = []
        self.indexes: list[int] = []
        self.late: list[LatePackets] = []
        self.ends: list[str] = []

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        assert outcome.status == 0
        self.outcomes.append(number)
        self.indexes.append(index)

    def on_free(self) -> None:
        pass

    def on_late_packets(self, packets: LatePackets) -> None:
        self.late.append(packets)

    def on_end(self, reason: str) -> None:
        self.ends.append(reason)


class Dispatcher:
    """What the leader's dispatcher hears."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str, int, bool]] = []
        self.results: list[tuple[str, int, tuple[int, ...], bool]] = []

    def on_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        self.sessions.append((edge, session.number, is_open))

    def on_late_result(
        self, edge: str, session: int, tokens: Sequence[int], is_delivered: bool
    ) -> None:
        self.results.append((edge, session, tuple(tokens), is_delivered))


class Listener:
    """Records what a part of a node learns of the state."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.leaderships: list[Leadership] = []

    def on_applied(self, applied: Applied) -> None:
        self.indexes.append(applied.index)

    def on_restored(self, index: int) -> None:
        self.indexes.append(index)

    def on_leadership(self, leadership: Leadership) -> None:
        self.leaderships.append(leadership)


async def everybody(nodes: Harness) -> list[HarnessNode]:
    """Return the leader, then the others."""
    return [await nodes.leader(), *await nodes.followers()]


async def has_outcomes(edge: Edge, count: int) -> None:
    await until(lambda: len(edge.outcomes) == count, lambda: (edge.outcomes, edge.ends))


def test_every_node_proposes_and_reads_what_was_answered_before() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            for count, node in enumerate(await everybody(nodes), 1):
                opened, _ = await node.cluster.propose(
                    OpenClient(f"at {node.name}", "somebody", 60_000), ClockTick(1)
                )
                assert opened.status == 0
                for reader in nodes.up:
                    await reader.cluster.read_barrier()
                    assert reader.cluster.view.counters().client_count == count
            await nodes.agree()

    run(scenario())


def test_many_proposals_through_a_follower_share_calls_and_entries() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            (follower, _) = await nodes.followers()
            before = await nodes.agree()
            outcomes = await asyncio.gather(
                *(follower.cluster.propose(ClockTick(1), ClockTick(2)) for _ in range(500))
            )
            assert [[outcome.status for outcome in pair] for pair in outcomes] == [[0, 0]] * 500
            assert await nodes.agree() - before < 100

    run(scenario())


class Sizes(Listener):
    """How many positions each entry touched."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[int] = []

    def on_applied(self, applied: Applied) -> None:
        self.touched.append(len(applied.effects.kinds))


@pytest.mark.parametrize("count", [1_500, POSITIONS_PER_ENTRY_MAX])
def test_commands_that_touch_much_do_not_share_an_entry(count: int) -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            leader = await nodes.leader()
            await create_queue(leader, "orders")
            sizes = Sizes()
            leader.cluster.listen(sizes)
            commands = [
                batch("orders", range(first, first + count), body=b"")
                for first in range(1, 5 * count, count)
            ]
            outcomes = await leader.cluster.propose(*commands)
            assert [len(outcome.verdicts or ()) for outcome in outcomes] == [count] * 5
            # Listeners are told of an entry after its proposer was answered.
            await until(lambda: sum(sizes.touched) == 5 * count, lambda: sizes.touched)
            assert max(sizes.touched) == POSITIONS_PER_ENTRY_MAX // count * count

    run(scenario())


def test_a_stream_answers_in_order_and_carries_late_packets_both_ways() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader, *_ = everyone = await everybody(nodes)
            dispatcher = Dispatcher()
            leader.cluster.relay_hub.listen(dispatcher)
            for node in everyone:
                edge = Edge()
                stream = node.cluster.open_relay(edge)
                facts = SessionFacts(7, PEER, "192.0.2.1", 1_234)
                stream.session_opened(facts)
                for number in range(1, 41):
                    stream.send(number, TICK)
                await has_outcomes(edge, 40)
                assert edge.outcomes == list(range(1, 41))
                assert edge.indexes == sorted(edge.indexes)
                hub = leader.cluster.relay_hub
                assert hub.sessions(PEER) == [(node.name, facts)]
                packets = LatePackets(7, (1, 2), (b"one", b"two"))
                hub.send_late(node.name, packets)
                await until(lambda edge=edge: edge.late, lambda edge=edge: edge.ends)  # type: ignore[misc]
                assert edge.late == [packets]
                stream.late_result(7, (1,), is_delivered=True)
                stream.late_result(7, (2,), is_delivered=False)
                stream.session_closed(7)
                await until(
                    lambda node=node: (node.name, 7, False) in dispatcher.sessions,  # type: ignore[misc]
                    lambda: dispatcher.sessions,
                )
                stream.close()
                assert not edge.ends
                assert dispatcher.results[-2:] == [
                    (node.name, 7, (1,), True),
                    (node.name, 7, (2,), False),
                ]

    run(scenario())


def test_room_falls_with_what_is_unanswered_and_returns() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            for node in await everybody(nodes):
                edge = Edge()
                stream = node.cluster.open_relay(edge)
                whole = stream.room
                sent = 0
                while stream.room:
                    sent += 1
                    stream.send(sent, TICK)
                assert sent == whole
                await has_outcomes(edge, sent)
                assert stream.room == whole
                stream.close()

    run(scenario())


async def resend(node: HarnessNode, edge: Edge, sent: int) -> tuple[RelayStream, Edge]:
    """Open another stream and send again from the oldest unanswered batch, as an edge does."""
    fresh = Edge()
    stream: list[RelayStream] = []

    def is_open() -> bool:
        try:
            stream.append(node.cluster.open_relay(fresh))
        except Unavailable:
            return False
        return True

    await until(is_open, lambda: node.cluster.leadership)
    for number in range(len(edge.outcomes) + 1, sent + 1):
        stream[0].send(number, TICK)
    return stream[0], fresh


def test_when_the_leader_dies_streams_end_and_calls_go_to_the_next() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader, survivor, _ = await everybody(nodes)
            edge = Edge()
            stream = survivor.cluster.open_relay(edge)
            for number in range(1, 11):
                stream.send(number, TICK)
            proposals = [
                asyncio.create_task(survivor.cluster.propose(ClockTick(1))) for _ in range(10)
            ]
            await asyncio.sleep(0)
            await leader.kill()
            await until(lambda: edge.ends, lambda: edge.outcomes)
            for result in await asyncio.gather(*proposals, return_exceptions=True):
                # Taken by the old leader, or by the next one; nothing else.
                assert isinstance(result, OutcomeUnknown | list), result
            while True:
                stream, fresh = await resend(survivor, edge, 10)
                await until(
                    lambda fresh=fresh, edge=edge: (
                        fresh.ends  # type: ignore[misc]
                        or len(edge.outcomes) + len(fresh.outcomes) == 10
                    ),
                    lambda fresh=fresh: fresh.outcomes,  # type: ignore[misc]
                )
                edge.outcomes += fresh.outcomes
                if len(edge.outcomes) == 10:
                    break
            assert edge.outcomes == list(range(1, 11))
            await nodes.restart(leader.name)
            (outcome,) = await nodes[leader.name].cluster.propose(ClockTick(1))
            assert outcome.status == 0
            await nodes.agree()

    run(scenario())


def test_without_a_majority_nothing_is_promised() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader, one, other = await everybody(nodes)
            await one.kill()
            await leader.kill()
            answers = await asyncio.gather(
                other.cluster.propose(ClockTick(1)),
                other.cluster.read_barrier(),
                return_exceptions=True,
            )
            for answer in answers:
                assert isinstance(answer, Unavailable | OutcomeUnknown), answer
            await nodes.restart(one.name)
            (outcome,) = await other.cluster.propose(ClockTick(1))
            assert outcome.status == 0

    run(scenario())


def test_listeners_hear_of_every_entry_once_and_in_order() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            listener = Listener()
            (follower, _) = await nodes.followers()
            stop = follower.cluster.listen(listener)
            known = await nodes.agree()
            for _ in range(20):
                await follower.cluster.propose(ClockTick(1))
            last = await nodes.agree()
            await until(lambda: listener.indexes[-1:] == [last], lambda: listener.indexes)
            first = listener.indexes[0]
            assert first <= known + 1 <= last - 19
            assert listener.indexes == list(range(first, last + 1))
            stop()
            await follower.cluster.propose(ClockTick(1))
            assert listener.indexes[-1] == last

    run(scenario())


def test_a_stopping_leader_hands_over_at_once() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader, other, _ = await everybody(nodes)
            listener = Listener()
            other.cluster.listen(listener)
            await leader.stop()
            await nodes.leader()
            (outcome,) = await other.cluster.propose(ClockTick(1))
            assert outcome.status == 0
            assert listener.leaderships[-1].term > 1

    run(scenario())


def test_cluster_time_goes_on_from_leader_to_leader() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader, other, _ = await everybody(nodes)
            told = leader.cluster.now_ms()
            await nodes.agree()
            assert abs(other.cluster.now_ms() - told) < 10_000
            await leader.kill()
            fresh = await nodes.leader()
            assert told <= fresh.cluster.now_ms() < told + 60_000

    run(scenario())
