"""Journals, dead letters, subqueues: listed, opened, and their messages put back."""

import re

from qm.client.client import Access, Client
from qm.client.message import Message
from qm.client.queue import Queue
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario
from tests.unit.console.test_console import keys, labels
from tests.unit.console.test_saved_and_matching import link_of
from tests.unit.console.world import Browser, browser, sign_in

KEPT = "QUORATE\\private$\\kept"


async def rows(found: Browser, kind: str) -> list[tuple[str, str]]:
    """Return path and name of the queues of a kind."""
    status, text = await found.get(f"/queues?kind={kind}")
    assert status == 200
    return re.findall(r'<th scope="row"><a href="(/queues/[0-9]+)">([^<]+)<', text)


async def journaled(found: Browser, client: Client) -> Queue:
    """Make a queue with a journal, receive a message there, and leave one in a subqueue."""
    await found.post("/queues", path="kept", journaling="on")
    queue = await client.open_queue(KEPT)
    await client.send(KEPT, Message(body=b"a", label="order 1"), Message(body=b"b", label="sub 2"))
    assert await queue.receive(0) is not None
    queue.confirm()
    second = await queue.peek()
    assert second is not None
    await queue.move(second, await client.open_queue(f"{KEPT};later", Access.MOVE))
    return queue


@scenario()
async def test_queues_are_listed_by_kind(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await journaled(found, client)
        await client.send("DIRECT=TCP:127.255.255.253\\private$\\far", Message(body=b"x"))
        names = {
            kind: {name.lower() for _, name in await rows(found, kind)}
            for kind in ("application", "journal", "subqueue", "outgoing", "dead_letter",
                         "transactional_dead_letter", "system_journal")
        }  # fmt: skip
        path = KEPT.lower()
        assert names["application"] >= {path, PLAIN.lower(), TRANSACTIONAL.lower()}
        assert not [name for name in names["application"] if ";" in name]
        assert f"{path};journal" in names["journal"]
        assert names["subqueue"] == {f"{path};later"}
        assert names["outgoing"] == {"direct=tcp:127.255.255.253\\private$\\far"}
        for kind in ("dead_letter", "transactional_dead_letter", "system_journal"):
            assert len(names[kind]) == 1, kind
        assert (await found.get("/queues?kind=other"))[0] == 400


@scenario()
async def test_a_journal_and_a_subqueue_are_opened_and_the_copy_is_replayed(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        queue = await journaled(found, client)
        _, text = await found.get(await link_of(found, "kept"))
        (journal,) = re.findall(r'href="(/queues/[0-9]+)">Journal<', text)
        (subqueue,) = re.findall(r'href="(/queues/[0-9]+)">Subqueue', text)
        assert await labels(found, journal) == ["order 1"]
        assert await labels(found, subqueue) == ["sub 2"]
        (copy,) = await keys(found, journal)
        assert (await found.post(f"{journal}/{copy}/return"))[0] == 200
        replayed = await queue.receive(0)
        assert replayed is not None
        assert (replayed.body, replayed.label) == (b"a", "order 1")


@scenario()
async def test_dead_letters_say_why_and_go_back_one_or_all(made: Clients) -> None:
    await made.limit(PLAIN, max_deliveries=1, poison_action=1)
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        lost = [Message(body=b"x", label=f"lost {n}", dead_letter=True) for n in range(3)]
        await client.send(PLAIN, *lost)
        queue = await client.open_queue(PLAIN)
        for _ in lost:
            message = await queue.receive_two_phase(5)
            assert message is not None
            await queue.give_back(message)
        plain = await link_of(found, "plain")
        ((dead, _),) = await rows(found, "dead_letter")
        assert await labels(found, dead) == ["lost 0", "lost 1", "lost 2"]
        _, text = await found.get(dead)
        assert "<li>3: a receiver rejected it</li>" in text
        assert text.count("<td>a receiver rejected it</td>") == 3
        first, *others = await keys(found, dead)
        _, text = await found.get(f"{dead}/{first}")
        assert "<dt>Reason</dt><dd>a receiver rejected it</dd>" in text
        assert (await found.post(f"{dead}/{first}/return"))[0] == 200
        assert await labels(found, plain) == ["lost 0"]
        status, _ = await found.post(f"{dead}/messages", verb="return", key=others)
        assert status == 200
        assert sorted(await labels(found, plain)) == ["lost 0", "lost 1", "lost 2"]
        assert await labels(found, dead) == []


@scenario()
async def test_a_message_that_came_back_says_how_often_and_is_set_aside(made: Clients) -> None:
    await made.limit(PLAIN, max_deliveries=2)
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await client.send(PLAIN, Message(body=b"x", label="poison 1"))
        queue = await client.open_queue(PLAIN)
        link = await link_of(found, "plain")

        async def comes_back() -> None:
            message = await queue.receive_two_phase(5)
            assert message is not None
            await queue.give_back(message)

        await comes_back()
        (key,) = await keys(found, link)
        _, text = await found.get(f"{link}/{key}")
        assert "<dt>Returns, aborts, moves</dt><dd>1, 0, 0</dd>" in text
        await comes_back()
        assert await labels(found, link) == []
        _, text = await found.get(link)
        (aside,) = re.findall(r'href="(/queues/[0-9]+)">Subqueue', text)
        assert await labels(found, aside) == ["poison 1"]
        (key,) = await keys(found, aside)
        assert (await found.post(f"{aside}/{key}/return"))[0] == 200
        assert await labels(found, link) == ["poison 1"]


@scenario()
async def test_the_overview_tells_what_all_queues_hold(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        _, text = await found.get("/live")
        assert "<dt>In queues</dt><dd>0 B</dd>" in text
        await client.send(PLAIN, Message(body=bytes(100 << 10)))
        await client.send(
            PLAIN, Message(body=bytes(50 << 10), dead_letter=True, time_to_be_received_s=0)
        )
        _, text = await found.get("/live")
        assert re.search(r"<dt>In queues</dt><dd>150\.[0-9] KiB</dd>", text)
        name = "In journals and dead-letter queues"
        assert re.search(rf"<dt>{name}</dt><dd>50\.[0-9] KiB</dd>", text)
