"""Sessions with other queue managers, of all nodes, as any node tells them."""

from typing import Any

from qm.pb import control_pb2 as pb
from tests.cluster.harness import run, until
from tests.cluster.messages import create_queue
from tests.cluster.test_edge import connect
from tests.unit.api.test_control import INVALID, Operator
from tests.unit.api.world import World, refused, world
from tests.unit.model.world import PEER

HANDSHAKE_BYTES = 572 + 32


async def listed(made: World, node: str, **wanted: Any) -> pb.ListSessionsReply:
    async with made.channel(made[node]) as channel:
        request = pb.ListSessionsRequest(**wanted)
        reply: pb.ListSessionsReply = await Operator(channel).peers.ListSessions(request)
        return reply


def test_sessions_of_every_node_are_listed_at_any() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = (await made.leader()).node
            await create_queue(leader, "odd")
            await create_queue(leader, "even", transactional=True)
            first, second = [api.node for api in await made.followers()]
            begun_ms = min(node.cluster.now_ms() for node in made.harness.up)
            busy, idle = await connect(first), await connect(second)
            busy.send(1, 100)
            await busy.has(100)
            await until(lambda: busy.ordered == 50, lambda: busy.ordered)
            for asked in (leader, first, second):
                reply = await listed(made, asked.name)
                assert (reply.left_out, list(reply.silent_nodes)) == (0, [])
                one, other = reply.sessions
                assert [one.node, other.node] == [first.name, second.name]
                assert (one.is_incoming, one.is_open, one.address) == (True, True, "127.0.0.1")
                assert one.queue_manager == PEER
                assert (one.messages_in, other.messages_in) == (100, 0)
                assert one.messages_out >= 1, "order acknowledgements"
                assert one.bytes_in > 100 * 100 > other.bytes_in >= HANDSHAKE_BYTES
                assert min(one.bytes_out, other.bytes_out) >= HANDSHAKE_BYTES
                assert min(one.since_ms, other.since_ms) >= begun_ms

            reply = await listed(made, leader.name, limit=1)
            assert [one.node for one in reply.sessions] == [first.name]
            assert reply.left_out == 1
            assert len((await listed(made, leader.name, address="127.0.0.1")).sessions) == 2
            assert not (await listed(made, leader.name, address="\x1b]0;x\x07")).sessions
            assert len((await listed(made, leader.name, queue_manager=PEER)).sessions) == 2
            assert not (await listed(made, leader.name, queue_manager=b"\xff" * 16)).sessions
            with refused(INVALID, field="limit"):
                await listed(made, leader.name, limit=1_001)
            with refused(INVALID, field="queue_manager"):
                await listed(made, leader.name, queue_manager=b"short")

            await made.harness.kill(first.name)
            reply = await listed(made, leader.name)
            assert [one.node for one in reply.sessions] == [second.name]
            assert list(reply.silent_nodes) == [first.name]
            idle.transport.abort()
            busy.transport.abort()

    run(scenario())
