"""Readers that wait at the leader try in the entry of the message that they wait for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from qm.cluster.cluster import ClusterListener, Leadership
from qm.model.values.effects import Applied
from qm.model.values.results import ResultRow
from tests.cluster.harness import until
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, bodies
from tests.unit.rpc.reading import INFINITE, ORDERS, RpcWorld, body
from tests.unit.rpc.test_remote_read import in_world, waits

TRIES_MAX = 50
KIB = 1024


class Entries(ClusterListener):
    """Counts entries that brought a message and gave it away."""

    def __init__(self, world: RpcWorld) -> None:
        (node,) = world.harness.nodes.values()
        self.shared = 0
        node.cluster.listen(self)

    def on_applied(self, applied: Applied) -> None:
        values = [one.value for one in applied.outcomes]
        is_taken = any(
            isinstance(value, ResultRow) or (isinstance(value, list) and value) for value in values
        )
        self.shared += is_taken and len(values) > 1 and bool(applied.woken_queue_ids)

    def on_restored(self, index: int) -> None: ...

    def on_leadership(self, leadership: Leadership) -> None: ...


async def until_shared(
    world: RpcWorld, client: Client, receive: Callable[[], Awaitable[bytes]]
) -> None:
    """Have one message after the other received by who waits, until one came with its entry."""
    seen = Entries(world)
    for number in range(TRIES_MAX):
        waiting = asyncio.ensure_future(receive())
        await until(lambda: waits(world)._count == 1)
        await asyncio.sleep(0.01)  # else its own first try may be under way
        sent = b"%d" % number
        await client.send(ORDERS, sent)
        assert await waiting == sent
        if seen.shared:
            return
    raise AssertionError(f"none of {TRIES_MAX} was answered in its message's entry")


def test_a_remote_reader_that_waits_is_lent_a_message_in_its_entry() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        reader = await world.reader()
        handle = await reader.open()

        async def receive() -> bytes:
            found = await reader.start(handle, timeout_ms=INFINITE)
            assert await reader.end(handle) == 0
            return body(found)

        await until_shared(world, client, receive)

    in_world(scenario)


def test_a_receive_that_waits_gets_a_message_in_its_entry() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        async with world.client(await world.leader()) as other:
            queue = await other.open(ORDERS)

            async def receive() -> bytes:
                (found,) = bodies(await other.receive(queue, timeout_ms=60_000))
                return found

            await until_shared(world, client, receive)

    in_world(scenario)


def test_readers_go_on_waiting_when_an_announced_message_is_refused() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, quota=1)
        reader = await world.reader()
        handle = await reader.open()
        waiting: asyncio.Future[Any] = asyncio.ensure_future(
            reader.start(handle, timeout_ms=INFINITE)
        )
        await until(lambda: waits(world)._count == 1)
        for _ in range(5):
            (refused,) = await client.send(ORDERS, bytes(4 * KIB))
            assert refused.status
        assert not waiting.done()
        (taken,) = await client.send(ORDERS, b"small")
        assert taken.status == 0
        assert body(await waiting) == b"small"

    in_world(scenario)


def test_all_reads_of_a_machine_wait_on_one_connection() -> None:
    count = 150

    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        reader = await world.reader()
        handle = await reader.open()
        waiting = [
            asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE, request=1 + number))
            for number in range(count)
        ]
        await until(lambda: waits(world)._count == count)
        sent = {b"%d" % number for number in range(count)}
        await client.send(ORDERS, *sent)
        assert {body(found) for found in await asyncio.gather(*waiting)} == sent

    in_world(scenario)
