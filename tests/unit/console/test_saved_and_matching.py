"""Messages saved and loaded, and queues purged and deleted by what their names contain."""

import re

from qm.client.message import Message
from qm.node.config.schema import CONSOLE_PORT
from tests.unit.client.world import Clients, scenario
from tests.unit.console.world import Browser, browser, sign_in


async def link_of(found: Browser, name: str) -> str:
    _, text = await found.get(f"/queues?filter={name}")
    return str(re.findall(rf'href="(/queues/[0-9]+)">QUORATE\\private\$\\{name}<', text)[0])


async def saved(found: Browser, link: str) -> bytes:
    """Save the first message of a queue."""
    _, text = await found.get(link)
    key = re.findall(rf'href="{link}/([0-9]+)"', text)[0]
    url = f"https://{found.host}:{CONSOLE_PORT}{link}/{key}/packet"
    async with found.session.get(url) as answer:
        assert answer.headers["Content-Disposition"].startswith("attachment")
        return await answer.read()


@scenario()
async def test_a_saved_message_is_loaded_with_its_properties(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        kept = Message(body=b"kept", label="order 1", correlation_id=b"c" * 20, application_tag=7)
        await client.send("QUORATE\\private$\\plain", kept)
        async with client.transaction() as transaction:
            await transaction.send("QUORATE\\private$\\transactional", kept)
        for source, target in (("plain", "other"), ("transactional", "transactional")):
            packet = await saved(found, await link_of(found, source))
            link = await link_of(found, target)
            status, text = await found.post(f"{link}/load", packet=packet.hex())
            assert status == 200, text
            queue = await client.open_queue(f"QUORATE\\private$\\{target}")
            loaded = [one async for one in queue.browse()][-1]
            assert (loaded.body, loaded.label, loaded.application_tag) == (b"kept", "order 1", 7)
            assert loaded.correlation_id == b"c" * 20
        for wrong in ("", "zz", "00" * 100):
            assert (await found.post(f"{link}/load", packet=wrong))[0] == 400


@scenario()
async def test_queues_are_purged_and_deleted_by_their_names(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        for name in ("old-1", "old-2", "new-1"):
            await made.create(f"QUORATE\\private$\\{name}")
            await client.send(f"QUORATE\\private$\\{name}", Message(body=b"x"))
        _, text = await found.get("/queues")
        assert "that match" not in text
        _, text = await found.get("/queues?filter=old")
        assert "Purge all 2 that match" in text
        every = {"filter": "old", "kind": "", "count": "2"}
        status, text = await found.post("/queues/matching", verb="purge", **every | {"count": "3"})
        assert status == 409
        assert "2 queues match now" in text
        for wrong in ({"filter": ""}, {"verb": "burn"}, {"kind": "x"}, {"count": "x"}):
            fields = {"verb": "purge", **every, **wrong}
            assert (await found.post("/queues/matching", **fields))[0] == 400, wrong
        assert (await found.post("/queues/matching", verb="purge", **every))[0] == 200
        counts = {}
        for name in ("old-1", "old-2", "new-1"):
            queue = await client.open_queue(f"QUORATE\\private$\\{name}")
            counts[name] = await queue.peek(0) is not None
        assert counts == {"old-1": False, "old-2": False, "new-1": True}
        _, text = await found.post("/queues/matching", verb="delete", **every)
        assert "old-1" not in text
        assert "new-1" in text


@scenario()
async def test_a_queue_tells_what_is_in_its_journal(made: Clients) -> None:
    async with browser(made) as found, made.client() as client:
        await sign_in(made, found)
        await found.post("/queues", path="kept", journaling="on")
        await client.send("QUORATE\\private$\\kept", Message(body=b"x"))
        queue = await client.open_queue("QUORATE\\private$\\kept")
        assert await queue.receive(0) is not None
        _, text = await found.get(await link_of(found, "kept"))
        assert re.search(r"<dt>In its journal</dt><dd>1 messages, [0-9]+ B</dd>", text)
