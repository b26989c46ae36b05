"""Two clusters, each a queue manager to the other: messages go over TCP 1801, any node may die."""

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.node.config.schema import API_PORT
from tests.cluster.harness import Harness, cluster, run
from tests.cluster.messages import create_queue

COUNT = 60
ORDERS = ".\\private$\\orders"


def client(nodes: Harness, name: str) -> Client:
    files = nodes.certificate(name, Role.ADMIN)
    endpoints = [f"{node.host}:{API_PORT}" for node in nodes.nodes.values()]
    return Client(endpoints, tls=Tls(files.authority, files.certificate, files.key))


def test_transactional_messages_arrive_once_and_in_order_while_both_lose_their_leaders() -> None:
    async def scenario() -> None:
        async with cluster(3) as near, cluster(3) as far:
            await create_queue(await far.leader(), "orders", transactional=True)
            entrance, _ = await far.followers()
            name = f"DIRECT=TCP:{entrance.host}\\private$\\orders"
            bodies = [b"order %d" % number for number in range(COUNT)]
            async with client(near, "sender") as sender, client(far, "receiver") as receiver:
                orders = await receiver.open_queue(ORDERS)
                found: list[bytes] = []
                for part in range(3):
                    for body in bodies[part * COUNT // 3 : (part + 1) * COUNT // 3]:
                        async with sender.transaction() as transaction:
                            await transaction.send(name, Message(body=body))
                    if part < 2:  # with messages under way
                        nodes = (near, far)[part]
                        leader = await nodes.leader()
                        await nodes.kill(leader.name)
                while len(found) < COUNT:
                    message = await orders.receive(timeout_s=60)
                    assert message is not None, found
                    found.append(message.body)
                assert await orders.receive(timeout_s=0) is None
            assert found == bodies

    run(scenario())
