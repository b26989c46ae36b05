"""Outgoing queues and their links, as the command line, the console and the API tell of them."""

import asyncio
import re
import time
from typing import Any

import pytest

from qm.client.client import Client
from qm.client.message import Message
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2 as pb
from tests.cluster.harness import free_network, run, until
from tests.unit.api.world import eventually
from tests.unit.cli.test_nouns import Qm
from tests.unit.client.world import Clients, clients, scenario
from tests.unit.console.world import Browser, browser, sign_in
from tests.unit.edge.outgoing.world import Peer

FAR = "DIRECT=TCP:127.255.255.253\\PRIVATE$\\far"
"""An address that no node has."""


async def asked(client: Client, name: str, method: str = "GetOutgoing") -> Any:
    """Ask the API for an outgoing queue."""
    wanted = pb.GetOutgoingRequest(queue=pb.QueueName(name=name))
    return await client.wire.call(lambda stubs: getattr(stubs.outgoing, method), wanted)


async def page_of(found: Browser) -> tuple[str, str]:
    """Return the path and the text of the page of the only outgoing queue."""
    _, text = await found.get("/outgoing")
    (link,) = re.findall(r'href="(/outgoing/[0-9]+)"', text)
    _, text = await found.get(link)
    return str(link), text


@pytest.mark.spec("MQ-2.3.12-02")
def test_a_transactional_link_is_told_by_every_face_and_sends_again_when_it_is_told_to() -> None:
    async def scenario(peer: Peer, made: Clients, client: Client, found: Browser) -> None:
        qm = Qm(made.endpoints[0], made.tls)
        peer.is_order_acking = False
        async with client.transaction() as transaction:
            await transaction.send(peer.address, *(Message(body=b"%d" % k) for k in range(3)))
        await until(lambda: len(peer.raw) == 3, lambda: peer.raw)

        async def shown() -> Any:
            return await asyncio.to_thread(qm.json, "outgoing", "show", peer.address)

        row = await eventually(shown, lambda row: row["unacknowledged"] == 3)
        assert (row["state"], row["next_hops"]) == ("connected", [f"IP={peer.host}"])
        assert row["history"][-1].endswith(f"Ready {peer.host}")
        sequence = row["next"]["sequence"]
        places = ("first_unacknowledged", "last_unacknowledged", "next", "last_acknowledged")
        assert [row[place]["number"] for place in places] == [1, 3, 4, 0]
        assert row["resends"] == 0
        assert abs(row["next_resend_ms"] / 1000 - time.time()) < 600

        told = await asked(client, peer.address)
        assert (told.state, list(told.next_hops)) == (pb.CONNECTED, row["next_hops"])
        assert list(told.connection_history) == row["history"]
        numbers = [told.first_unacked, told.last_unacked, told.next]
        assert [(one.sequence_identifier, one.sequence_number) for one in numbers] == [
            (sequence, 1), (sequence, 3), (sequence, 4),
        ]  # fmt: skip

        link, text = await page_of(found)
        for cell in ("connected", f"IP={peer.host}", f"4 of {sequence:x}", row["history"][-1]):
            assert f"<td>{cell}</td>" in text
        assert f"1 of {sequence:x} - 3 of {sequence:x}" in text

        await asyncio.to_thread(qm, "outgoing", "resend", peer.address)
        await until(lambda: len(peer.raw) == 6, lambda: peer.raw)
        assert (await found.post(f"{link}/resend"))[0] == 200
        await until(lambda: len(peer.raw) == 9, lambda: peer.raw)
        await asked(client, peer.address, "Resend")
        await until(lambda: len(peer.raw) == 12, lambda: peer.raw)
        assert peer.bodies == [0, 1, 2]
        peer.send_order_ack()
        row = await eventually(shown, lambda row: row["unacknowledged"] == 0)
        assert row["last_acknowledged"]["number"] == 3

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            clients() as made,
            made.client() as client,
            browser(made) as found,
        ):
            await sign_in(made, found)
            await scenario(peer, made, client, found)

    run(main())


@scenario()
async def test_an_outgoing_queue_is_held_released_and_purged_by_every_face(made: Clients) -> None:
    qm = Qm(made.endpoints[0], made.tls)
    async with made.client() as client, browser(made) as found:
        await sign_in(made, found)

        async def state() -> str:
            rows = await asyncio.to_thread(qm.json, "outgoing", "list")
            assert [row["format_name"] for row in rows] == [FAR]
            return str(rows[0]["state"])

        async def waiting() -> int:
            return int((await asked(client, FAR)).message_count)

        async def by_command(verb: str) -> None:
            await asyncio.to_thread(qm, "outgoing", verb, FAR)

        async def by_hand(verb: str) -> None:
            link, _ = await page_of(found)
            assert (await found.post(f"{link}/{verb}"))[0] == 200

        async def by_call(verb: str) -> None:
            await asked(client, FAR, verb.capitalize())

        async def purged_by_command() -> None:
            said = await asyncio.to_thread(qm, "queue", "purge", FAR, "--dry-run")
            assert "2 messages" in said.stderr
            assert await waiting() == 2
            await asyncio.to_thread(qm, "queue", "purge", FAR, "--yes")

        async def purged_by_hand() -> None:
            link, _ = await page_of(found)
            queue = link.replace("outgoing", "queues")
            _, text = await found.get(queue)
            assert "Purge all messages" in text
            assert (await found.post(f"{queue}/purge"))[0] == 200

        async def purged_by_call() -> None:
            wanted = pb.PurgeQueueRequest(queue=pb.QueueName(name=FAR))
            reply = await client.wire.call(lambda stubs: stubs.queues.PurgeQueue, wanted)
            assert reply.message_count == 2

        for act, purged in (
            (by_command, purged_by_command),
            (by_hand, purged_by_hand),
            (by_call, purged_by_call),
        ):
            await client.send(FAR, Message(body=b"1"), Message(body=b"2"))
            await act("pause")
            assert await state() == "on_hold"
            assert "<td>on_hold</td>" in (await found.get("/outgoing"))[1]
            await act("resume")
            assert await state() != "on_hold"
            await purged()
            await eventually(waiting, lambda count: count == 0)
