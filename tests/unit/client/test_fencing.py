"""Two clients with one id: the second takes the session over, the first is told and stops."""

from __future__ import annotations

import asyncio

import pytest

from qm.api.data import sessions
from qm.client.client import Client
from qm.client.errors import ClientFenced
from qm.client.message import Message
from qm.client.stream import Stream
from qm.model.queries import View, get_client_holder
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.records import ClientHolder
from tests.cluster.harness import until
from tests.unit.client.world import PLAIN, Clients, scenario


async def raised(made: Clients) -> None:
    """Wait until the cluster is at the newest apply version."""
    leader = await made.harness.leader()

    def version() -> int:
        return leader.cluster.view.counters().apply_version

    await until(lambda: version() == APPLY_VERSION, version)


async def fenced(client: Client, body: bytes) -> str:
    with pytest.raises(ClientFenced) as error:
        await client.send(PLAIN, Message(body=body))
    return str(error.value)


async def anything_left(stream: Stream) -> None:
    """Read until it ends."""
    while True:
        await stream.batch()


@scenario(3)
async def test_the_second_opener_takes_over_and_the_first_is_told(made: Clients) -> None:
    await raised(made)
    nodes = [node.name for node in made.harness.up]
    async with made.client("billing", first=nodes[0]) as first:
        await first.send(PLAIN, Message(body=b"first"))
        queue = await first.open_queue(PLAIN)
        async with made.client("billing", first=nodes[1]) as second:
            for number in range(3):
                await second.send(PLAIN, Message(body=b"second %d" % number))
            told = await fenced(first, b"lost")
            assert told.startswith("CLIENT_FENCED: client id 'billing' was opened by ")
            assert told.count("127.") == 2, "both addresses"
            assert told.count("+00:00") == 2, "both times"
            with pytest.raises(ClientFenced):
                await queue.receive(0)
            # What the second one does is its own still.
            await second.send(PLAIN, Message(body=b"second 3"))
            reader = await second.open_queue(PLAIN)
            bodies = [message.body async for message in reader.browse()]
            assert bodies == [b"first", *(b"second %d" % number for number in range(4))]
            await first.close()
            await second.send(PLAIN, Message(body=b"after the first one's end"))


@scenario()
async def test_it_is_told_as_well_where_the_node_learns_of_it_with_the_outcome(
    made: Clients,
) -> None:
    await raised(made)
    looks = 0

    def late(view: View, client_id: str) -> ClientHolder | None:
        """As a node answers that has not applied the second opening when the call comes."""
        nonlocal looks
        looks += 1
        return None if looks == 1 else get_client_holder(view, client_id)

    async with made.client("billing") as first:
        await first.send(PLAIN, Message(body=b"first"))
        async with made.client("billing") as second, made.client() as reader:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sessions, "get_client_holder", late)
                told = await fenced(first, b"lost")
            assert looks > 1, "the command was proposed"
            assert told.count("127.") == 2, "both addresses"
            await second.send(PLAIN, Message(body=b"second"))
            queue = await reader.open_queue(PLAIN)
            bodies = [message.body async for message in queue.browse()]
            assert bodies == [b"first", b"second"]


@scenario()
async def test_a_stream_of_the_first_opener_ends_and_takes_nothing_more(made: Clients) -> None:
    await raised(made)
    async with made.client("billing") as first, made.client() as sender:
        queue = await first.open_queue(PLAIN)
        async with queue.stream(8) as stream:
            await sender.send(PLAIN, Message(body=b"one"))
            (message,) = await stream.batch()
            assert message.body == b"one"
            async with made.client("billing") as second:
                await sender.send(PLAIN, Message(body=b"two"))
                with pytest.raises(ClientFenced):
                    await asyncio.wait_for(anything_left(stream), 20)
                reader = await second.open_queue(PLAIN)
                found = await reader.receive(5)
                assert found is not None


@scenario()
async def test_one_client_that_opens_again_fences_nobody(made: Clients) -> None:
    await raised(made)
    async with made.client("billing") as client:
        before = client.main.wire.session_epoch
        assert before
        reply = await client.main.resume()
        assert reply.session_epoch == before
        await client.send(PLAIN, Message(body=b"goes on"))
