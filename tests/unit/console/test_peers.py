"""Other queue managers in the console: messages in from each, and out to each address."""

import re

import pytest

from qm.api.gate.identity import Role
from qm.client.message import Message
from qm.console import peers
from qm.names.guid import guid_text
from tests.cluster.messages import batch, propose
from tests.unit.api.world import eventually
from tests.unit.client.world import Clients, scenario
from tests.unit.console.test_client_pages import signed_in
from tests.unit.console.world import browser, sign_in
from tests.unit.model.world import PEER

HOPS = ("127.0.0.250", "127.0.0.251")
SEQUENCE = 7 << 32


def rows(text: str, title: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    part = text.partition(f"<h2>{title}")[2].partition("<h2>")[0]
    found = re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", part, re.DOTALL)
    cells = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found]
    return [[re.sub("<[^>]*>", "", cell) for cell in row] for row in cells]


@scenario()
async def test_messages_are_counted_by_peer(made: Clients) -> None:
    leader = await made.harness.leader()
    for number in (1, 2, 3):
        sequence = (SEQUENCE, number, number - 1)
        await propose(leader, batch("transactional", [number], number, sequence=sequence))
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        for hop in (*HOPS, HOPS[0]):
            for name in ("first", "second"):
                queue = rf"DIRECT=TCP:{hop}\private$\{name}"
                await client.send(queue, Message(body=b"x" * 1_000))

        async def tried() -> str:
            return (await found.get("/peers"))[1]

        both = [f"IP={hop}" for hop in HOPS]
        text = await eventually(
            tried, lambda text: [row[0] for row in rows(text, "What goes out")] == both
        )
        ((manager, _, _, _, streams, messages, rejected, _),) = rows(text, "What comes in")
        assert (manager, streams, messages, rejected) == (guid_text(PEER), "1", "3", "0")
        out = {row[0]: row[2:] for row in rows(text, "What goes out")}
        for hop, count in zip(both, ("4", "2"), strict=True):
            queues, taken, gone, waiting, size, unacked = out[hop]
            assert (queues, taken, gone, waiting, unacked) == ("2", count, "0", count, "0")
            assert int(size) >= 1_000 * int(count)
        (link,) = re.findall(r'href="(/peers/[0-9a-f]{32})"', text)
        status, text = await found.get(link)
        assert status == 200
        assert "<td>3</td>" in text
        assert re.search(r'<a href="/queues/[0-9]+">DIRECT=OS:', text)
        assert (await found.get(f"/peers/{'ab' * 16}"))[0] == 400
        assert (await found.get("/peers?after=zz"))[0] == 400
    async with signed_in(made, "carol", Role.CLIENT) as carol:
        for path in ("/peers", link):
            assert (await carol.get(path))[0] == 403
    async with signed_in(made, "oscar", Role.OPERATOR) as oscar:
        for path in ("/peers", link):
            assert (await oscar.get(path))[0] == 200


@scenario()
async def test_many_sequences_of_a_peer_come_in_pages(made: Clients) -> None:
    leader = await made.harness.leader()
    for number, name in enumerate(("transactional", "Transactional", "tRansactional"), 1):
        await propose(leader, batch(name, [number], number, sequence=(number, 1, 0)))
    async with browser(made) as found:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peers, "SEQUENCES_SHOWN_MAX", 2)
            await sign_in(made, found)
            _, text = await found.get("/peers")
            ((*_, streams, messages, rejected, _),) = rows(text, "What comes in")
            assert (streams, messages, rejected) == ("3", "2+", "0+")
            (link,) = re.findall(r'href="(/peers/[0-9a-f]{32})"', text)
            _, text = await found.get(link)
            names = re.findall(r"(?i)transactional</a>", text)
            (more,) = re.findall(r'href="(/peers/[0-9a-f]{32}\?after=[0-9a-f]+)"', text)
            _, text = await found.get(more)
            names += re.findall(r"(?i)transactional</a>", text)
            assert (len(names), ">More<" in text) == (3, False)
            assert (await found.get(f"{link}?after=zz"))[0] == 400
