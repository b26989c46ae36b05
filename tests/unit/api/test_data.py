"""The data plane on one node: every call and its refusals."""

from qm.model.attributes import encode_attribute
from qm.model.commands import CreateQueue, Request
from tests.cluster.harness import run
from tests.unit.api.world import World, bodies, world

ORDERS = r"DIRECT=OS:QUORATE\private$\orders"


async def create(made: World, name: str = "orders", **attributes: object) -> int:
    leader = await made.leader()
    (outcome,) = await leader.node.cluster.propose(
        CreateQueue(
            Request("", 0, 0),
            name.encode().ljust(16, b"-"),
            name.encode().ljust(16, b"+"),
            rf".\private$\{name}",
            {key: encode_attribute(value) for key, value in attributes.items()},
            b"",
            (),
        )
    )
    assert outcome.status == 0, hex(outcome.status)
    assert isinstance(outcome.value, int)
    return outcome.value


def test_a_message_goes_in_and_out_once() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(made)
            results = await client.send(ORDERS, b"one", b"two", label="hello")
            assert [result.status for result in results] == [0, 0]
            queue = await client.open(ORDERS)
            number = client.next()
            first = await client.receive(queue, request=number)
            assert bodies(first) == [b"one"]
            assert first.messages.properties[0].label == "hello"
            assert first.messages.properties[0].message_id == results[0].message_id
            again = await client.receive(queue, request=number)
            assert again == first
            assert bodies(await client.receive(queue)) == [b"two"]

    run(scenario())
