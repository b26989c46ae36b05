"""Messages received and peeked at in the console: shown first, accepted afterwards, never lost."""

import asyncio
import contextlib
import io
import re
import ssl
import zipfile
from collections.abc import AsyncIterator

import aiohttp
import pytest

from qm.api.gate.identity import Role
from qm.client.message import Message
from qm.console.messages import receiving
from qm.console.messages.receiving import RECEIVED_MAX, WAIT_MAX_S
from qm.node.config.schema import CONSOLE_PORT
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.api.world import eventually
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario
from tests.unit.console.world import Browser, browser, sign_in

HOSTILE = "<script>alert(1)</script>"


async def link_of(found: Browser, name: str) -> str:
    _, text = await found.get(f"/queues?filter={name}")
    return str(re.findall(rf'href="(/queues/[0-9]+)">QUORATE\\private\$\\{name}<', text)[0])


async def take(found: Browser, link: str, **fields: str) -> tuple[str, str]:
    """Receive or peek; return the path of the page that shows it, and its text."""
    url = f"https://{found.host}:{CONSOLE_PORT}{link}/receive"
    data = {"token": found.token, "verb": "receive", **fields}
    async with found.session.post(url, data=aiohttp.FormData(data)) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        return answer.url.raw_path_qs, text


def chosen(text: str) -> list[str]:
    return re.findall(r'<input type="checkbox" name="key" value="([0-9]+)" checked>', text)


async def states(found: Browser, link: str) -> dict[str, str]:
    """Return labels in a queue, and the states of their messages."""
    _, text = await found.get(link)
    rows = re.findall(r"<tr>\n<td><input .*?</tr>", text, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]
    return {one[0]: one[4] for one in cells}


@contextlib.asynccontextmanager
async def signed_in(made: Clients, name: str, role: Role) -> AsyncIterator[Browser]:
    """Somebody whose certificate the browser shows."""
    certificate, key = issue(made.tls.authority.parent, name, role, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        assert (await found.get("/sign-in"))[0] == 200
        yield found


@scenario()
async def test_what_is_received_is_shown_first_and_leaves_when_it_is_accepted(
    made: Clients,
) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        sent = [Message.of_text(f"body of {n}", label=f"order {n}") for n in range(4)]
        await client.send(PLAIN, *sent)
        link = await link_of(found, "plain")
        _, text = await found.get(link)
        assert f'max="{RECEIVED_MAX}"' in text
        path, text = await take(found, link, count="3", timeout="0")
        assert [f"body of {n}" in text for n in range(4)] == [True, True, True, False]
        assert "lent to you" in text
        first, second, third = chosen(text)
        locked = {f"order {n}": "locked" for n in range(3)} | {"order 3": "available"}
        assert await states(found, link) == locked
        # Loading the page again takes nothing more, and nothing away.
        status, again = await found.get(path)
        assert (status, chosen(again)) == (200, [first, second, third])
        assert await states(found, link) == locked
        status, text = await found.get(f"{path}&form=hex")
        assert "62 00 6f 00 64 00 79 00" in text
        # Another reader gets what is not lent.
        queue = await client.open_queue(PLAIN)
        other = await queue.peek()
        assert other is not None
        assert other.label == "order 3"
        lent = path.partition("?")[0]
        status, text = await found.post(lent, verb="accept", key=[first, third])
        assert status == 200
        assert await states(found, link) == {"order 1": "available", "order 3": "available"}
        status, text = await found.get(path)
        assert "and 2 that left the queue meanwhile" in text
        assert chosen(text) == []
        assert "in its queue again" in text
        status, text = await found.post(lent, verb="accept", key=[first, second])
        assert "0 done, 2 not" in text
        assert "not lent to you any more" in text


@scenario()
async def test_what_is_not_accepted_returns(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await client.send(PLAIN, Message(body=b"a", label="order 1"))
        link = await link_of(found, "plain")
        path, _ = await take(found, link)
        assert (await found.post(path.partition("?")[0], verb="return"))[0] == 200
        assert await states(found, link) == {"order 1": "available"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(receiving, "LENT_S", 4)
            await take(found, link)  # and the page is lost

        async def seen() -> dict[str, str]:
            return await states(found, link)

        assert await seen() == {"order 1": "locked"}
        await eventually(seen, lambda one: one == {"order 1": "available"}, 30.0)
        (message,) = await (await client.open_queue(PLAIN)).receive_many(9, 5)
        assert message.body == b"a"


@scenario()
async def test_what_is_lent_outlives_the_node_that_showed_it(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        async with made.client() as client:
            await client.send(PLAIN, *[Message(body=b"x", label=f"order {n}") for n in range(2)])
        link = await link_of(found, "plain")
        path, text = await take(found, link, count="2")
        (node,) = made.harness.up
        await node.kill()
        await node.start()
        await made.harness.leader()
        await sign_in(made, found)
        status, again = await found.get(path)
        assert (status, chosen(again)) == (200, chosen(text))
        first, _ = chosen(again)
        assert (await found.post(path.partition("?")[0], verb="accept", key=first))[0] == 200
        assert await states(found, link) == {"order 1": "available"}


@scenario()
async def test_a_receive_waits_for_the_first_and_says_if_none_came(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        link = await link_of(found, "plain")
        for verb in ("receive", "peek"):
            path, text = await take(found, link, verb=verb, timeout="1")
            assert path == f"{link}/receive"
            assert "within 1 s" in text
            waiting = asyncio.create_task(take(found, link, verb=verb, timeout=str(WAIT_MAX_S)))
            await made.until_read_waits()
            await client.send(PLAIN, Message(body=b"late one", label="order 1"))
            path, text = await waiting
            assert "late one" in text
            if verb == "receive":
                lent = path.partition("?")[0]
                assert (await found.post(lent, verb="accept", key=chosen(text)))[0] == 200
        async with made.client() as admin:
            reply = await admin.wire.call(
                lambda stubs: stubs.clients.ListOpens, pb.ListOpensRequest()
            )
            assert not [one for one in reply.opens if one.client_id.startswith("console-")]


@scenario()
async def test_a_peek_shows_and_locks_nothing(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        large = [Message(body=bytes(3 << 20), label=f"order {n}") for n in range(3)]
        await client.send(PLAIN, *large, Message(body=b"last", label="order 3"))
        link = await link_of(found, "plain")
        _, text = await take(found, link, verb="peek", count="100")
        assert text.count("<section>") == 4
        assert all(f"<dt>Label</dt><dd>order {n}</dd>" in text for n in range(4))
        assert chosen(text) == []
        assert "Accept" not in text
        assert set((await states(found, link)).values()) == {"available"}


@scenario()
async def test_bodies_beyond_what_a_page_shows_are_on_their_own_pages(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await client.send(PLAIN, *[Message(body=b"x" * (60 << 10), label="order 1")] * 20)
        link = await link_of(found, "plain")
        path, text = await take(found, link, count="20")
        assert len(chosen(text)) == 20
        assert 1 < text.count("no room for its body") < 5
        status, text = await found.post(path.partition("?")[0], verb="accept", key=chosen(text))
        assert status == 200
        assert await states(found, link) == {}


@scenario()
async def test_received_messages_are_saved_together_and_loaded(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        async with client.transaction() as one:
            await one.send(TRANSACTIONAL, Message(body=b"a", label="order 1"), Message(body=b"b"))
        source = await link_of(found, "transactional")
        path, text = await take(found, source, count="9")
        (saved,) = re.findall(r'href="([^"]+/packets[^"]+)"', text)
        url = f"https://{found.host}:{CONSOLE_PORT}{saved.replace('&amp;', '&')}"
        async with found.session.get(url) as answer:
            assert answer.headers["Content-Disposition"].startswith("attachment")
            archive = zipfile.ZipFile(io.BytesIO(await answer.read()))
        keys = chosen(text)
        assert archive.namelist() == [f"message-{key}.packet" for key in keys]
        single = f"https://{found.host}:{CONSOLE_PORT}{source}/{keys[0]}/packet"
        async with found.session.get(single) as answer:
            assert await answer.read() == archive.read(archive.namelist()[0])
        status, _ = await found.post(path.partition("?")[0], verb="accept", key=keys)
        assert status == 200
        assert (await found.get(saved.replace("&amp;", "&")))[0] == 200  # an empty archive
        for name in archive.namelist():
            status, text = await found.post(f"{source}/load", packet=archive.read(name).hex())
            assert status == 200, text
        queue = await client.open_queue(TRANSACTIONAL)
        assert [one.body async for one in queue.browse()] == [b"a", b"b"]
        await client.send(PLAIN, *[Message(body=bytes(2 << 20))] * 9)
        _, text = await take(found, await link_of(found, "plain"), verb="peek", count="9")
        (saved,) = re.findall(r'href="([^"]+/packets[^"]+)"', text)
        status, text = await found.get(saved.replace("&amp;", "&"))
        assert (status, "save them one by one" in text) == (400, True)


@scenario()
async def test_hostile_texts_of_received_messages_stay_texts(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await client.send(PLAIN, Message(body=HOSTILE.encode(), label=HOSTILE))
        link = await link_of(found, "plain")
        for verb in ("peek", "receive"):
            path, text = await take(found, link, verb=verb)
            assert text.count("&lt;script&gt;") >= 3
            assert HOSTILE not in text
            for query in (HOSTILE, "hex", "text"):
                _, text = await found.get(f"{path}&form={query}")
                assert HOSTILE not in text


@scenario()
async def test_what_cannot_be_taken_is_refused(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await client.send(PLAIN, Message(body=b"x", label="order 1"))
        link = await link_of(found, "plain")
        for fields in (
            {"count": "0"},
            {"count": str(RECEIVED_MAX + 1)},
            {"count": "x"},
            {"timeout": str(WAIT_MAX_S + 1)},
            {"timeout": "-1"},
            {"verb": "burn"},
        ):
            assert (await found.post(f"{link}/receive", **fields))[0] == 400, fields
        lent = f"{link}/lent/{'ab' * 16}"
        for path in (
            lent,
            f"{lent}?key=x",
            f"{link}/peeked",
            f"{link}/packets?{'key=1&' * (RECEIVED_MAX + 1)}",
            f"{link}/peeked?key=18446744073709551616",
        ):
            assert (await found.get(path))[0] == 400, path
        for fields in ({"verb": "accept"}, {"verb": "burn", "key": "1"}, {"key": "1"}):
            assert (await found.post(lent, **fields))[0] == 400, fields
        token, found.token = found.token, "another"
        assert (await found.post(f"{link}/receive"))[0] == 403
        assert (await found.post(lent, verb="return"))[0] == 403
        found.token = token
        assert await states(found, link) == {"order 1": "available"}


@scenario()
async def test_only_who_may_receive_receives_and_only_who_received_accepts(
    made: Clients,
) -> None:
    name = "QUORATE\\private$\\guarded"
    await made.create(name)

    async def give(*rights: str) -> None:
        entries = [pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"])]
        for who in ("carol", "oscar"):
            if rights:
                entries.append(pb.Ace(type=pb.ALLOW, principal=who, rights=rights))
        request = pb.SetAclRequest(queue=pb.QueueName(name=name), entries=entries)
        async with made.client() as admin:
            await admin.wire.call(lambda stubs: stubs.queues.SetAcl, request)

    async with (
        browser(made) as admin,
        signed_in(made, "carol", Role.CLIENT) as carol,
        signed_in(made, "oscar", Role.OPERATOR) as oscar,
        made.client() as client,
    ):
        await sign_in(made, admin)
        await client.send(name, Message(body=b"of a kind", label="order 1"))
        link = await link_of(admin, "guarded")
        for rights, button, shown in (
            ((), "receive", False),
            (("peek_message", "get_queue_properties"), "receive", False),
            (("peek_message", "get_queue_properties"), "peek", True),
        ):
            await give(*rights)
            for found in (carol, oscar):
                _, text = await found.get(link)
                assert (f'value="{button}">' in text) == shown, (rights, button)
                status, text = await found.post(f"{link}/receive", verb=button)
                assert (status, "of a kind" in text) == ((200, True) if shown else (403, False))
        await give("receive_message", "get_queue_properties")
        for found, other in ((carol, oscar), (oscar, carol)):
            path, text = await take(found, link)
            assert "of a kind" in text
            lent, keys = path.partition("?")[0], chosen(text)
            for verb in ("accept", "return"):
                assert (await other.post(lent, verb=verb, key=keys))[0] == 403
            assert await states(admin, link) == {"order 1": "locked"}
            verb = "return" if found is carol else "accept"
            assert (await found.post(lent, verb=verb, key=keys))[0] == 200
        assert await states(admin, link) == {}
