"""Programs read bodies that are stored encrypted: by remote read, and by objects over DCOM."""

from qm.model.state.tables import Table
from qm.model.values.elements import SealedBodies
from qm.model.values.rows import POSITION_KEY, unpack_position
from qm.node.membership.body_seals import BodySeals
from qm.security.body_seals import SEAL_BYTES
from tests.cluster.harness import HarnessNode, run, until
from tests.unit.rpc.dcom.scripts import RECEIVE, dcom_world
from tests.unit.rpc.reading import PEEK_CURRENT, body, rpc_world, with_orders


async def in_force(node: HarnessNode) -> None:
    """Wait until the node seals what it takes."""
    seals = node.cluster.seals
    assert isinstance(seals, BodySeals)
    await until(
        lambda: seals.which is SealedBodies.ALL and node.service.keys.version > 0,
        lambda: seals.which,
    )


def sealed(node: HarnessNode) -> list[bool]:
    """Return whether the body of each message in the node's queues is."""
    low, high = POSITION_KEY.pack(0, 0), POSITION_KEY.pack(0xFFFF_FFFF, 0)
    rows = node.cluster.state.scan(Table.POSITION, low, high, 99)
    positions = [unpack_position(row) for _, row in rows]
    return [one.body_length - one.stored_size_bytes == SEAL_BYTES for one in positions]


def test_remote_read_opens_them() -> None:
    bodies = [b"one", b"x" * 200_000, b"three"]

    async def scenario() -> None:
        async with rpc_world(encrypt_bodies="all") as world:
            leader = await world.harness.leader()
            await in_force(leader)
            async with world.client(await world.leader()) as client:
                await with_orders(client, *bodies)
                assert sealed(leader) == [True] * len(bodies)
                reader = await world.reader()
                handle = await reader.open()
                assert body(await reader.start(handle, PEEK_CURRENT)) == bodies[0]
                for expected in bodies:
                    assert body(await reader.start(handle)) == expected
                    assert await reader.end(handle) == 0
                assert sealed(leader) == []

    run(scenario())


def test_objects_open_them() -> None:
    async def scenario() -> None:
        async with dcom_world(encrypt_bodies="all") as world:
            leader = await world.harness.leader()
            await in_force(leader)
            program = await world.program()
            await program.new_queue()
            await program.send("first")
            await program.send("second")
            assert sealed(leader) == [True, True]
            queue = await program.opened(RECEIVE)
            for expected in ("first", "second"):
                assert await (await queue.call("Peek")).get("Body") == expected
                assert await (await queue.call("Receive")).get("Body") == expected
            program.close()

    run(scenario())
