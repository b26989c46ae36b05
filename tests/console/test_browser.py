"""The console in a browser, against real nodes: every page, hostile texts, a leader that dies."""

import asyncio
import re

from playwright.async_api import Dialog, FilePayload, Page, Route, expect

from qm.client.message import VT_BYTES, Message
from tests.console.windows import (
    HOSTILE,
    LARGE_BYTES,
    assert_accessible,
    browse,
    link_of,
    picture,
)
from tests.unit.client.world import PLAIN, Clients


def test_every_page_is_seen_and_read_by_everybody() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        async with made.client() as client:
            await client.send(PLAIN, Message(body=HOSTILE.encode(), label=HOSTILE))
            await client.send(PLAIN, Message(body=bytes(LARGE_BYTES - 1024), label="large"))
            queue = await link_of(page, base, "plain")
            pages = {
                "overview": f"{base}/",
                "queues": f"{base}/queues",
                "queue": queue,
                "outgoing": f"{base}/outgoing",
                "clients": f"{base}/clients",
                "transactions": f"{base}/transactions",
                "events": f"{base}/events",
                "search": f"{base}/search?text=script",
                "trace": f"{base}/trace?id={'ab' * 20}",
                "peers": f"{base}/peers",
                "opens": f"{base}/opens",
                "certificates": f"{base}/certificates?who=admin",
                "settings": f"{base}/settings",
                "counters": f"{base}/counters",
                "rights": f"{queue}/acl",
                "rights-explained": f"{base}/settings/acl/explain?who=admin",
                "send": f"{queue}/send",
                "error": f"{base}/queues/99999",
            }
            for name, url in pages.items():
                await page.goto(url)
                await assert_accessible(page, name)
                await picture(page, name)
            await page.goto(queue)
            keys = re.findall(r'href="(/queues/[0-9]+/[0-9]+)"', await page.content())
            await page.click("text=Later messages")  # the large one does not fit beside it
            await page.wait_for_selector("td:has-text('large')")
            keys += re.findall(r'href="(/queues/[0-9]+/[0-9]+)"', await page.content())
            for name, path in zip(("message", "message-large"), keys, strict=True):
                await page.goto(f"{base}{path}")
                await assert_accessible(page, name)
                await picture(page, name)
                assert await page.title() != "taken"
            await page.goto(f"{base}{keys[0]}/edit")
            await assert_accessible(page, "edit")
            await picture(page, "edit")

    browse(scenario)


def test_a_queue_is_made_used_and_deleted_by_hand() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        await page.goto(f"{base}/queues")
        await page.fill("input[name=path]", "by-hand")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h2:has-text('Send a message')")
        await page.locator("form[action$='/send'] input[name=label]").fill("greeting")
        await page.fill("textarea", "hello")
        await page.click("text=Send >> nth=-1")
        await page.wait_for_selector("td:has-text('greeting')")
        await page.click("text=Purge all messages")
        await page.wait_for_selector("td:has-text('greeting')", state="detached")
        await page.click("text=Delete the queue")
        await page.wait_for_selector("h1:has-text('Queues')")
        assert "by-hand" not in await page.locator("table").inner_text()

    browse(scenario)


def test_a_purge_that_is_not_confirmed_does_nothing() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        asked: list[str] = []

        async def refuse(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await dialog.dismiss()

        page.on("dialog", refuse)
        async with made.client() as client:
            await client.send(PLAIN, Message(body=b"x", label="kept"))
            await page.goto(await link_of(page, base, "plain"))
            for button in ("Purge all messages", "Delete the queue"):
                await page.click(f"text={button}")
            await page.locator("tr:has-text('kept') input[type=checkbox]").check()
            await page.click("text=Delete the chosen")
            await page.reload()
            assert await page.locator("td:has-text('kept')").count() == 1
            assert await (await client.open_queue(PLAIN)).peek() is not None
        assert len(asked) == 3
        assert "Delete all messages of" in asked[0]

    browse(scenario)


def test_several_messages_are_chosen_and_moved_by_hand() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        async with made.client() as client:
            labels = ["keep", "first", "second"]
            await client.send(PLAIN, *[Message(body=b"x", label=label) for label in labels])
        await page.goto(await link_of(page, base, "plain"))
        for label in labels[1:]:
            await page.locator(f"tr:has-text('{label}') input[type=checkbox]").check()
        await page.locator("form[action$='/messages'] input[name=target]").fill("other")
        await page.click("text=Move the chosen")
        await page.wait_for_selector("td:has-text('first')", state="detached")
        assert await page.locator("td:has-text('keep')").count() == 1
        await page.goto(await link_of(page, base, "other"))
        assert await page.locator("td:has-text('second')").count() == 1

    browse(scenario)


def test_a_file_is_sent_and_all_messages_are_chosen_by_hand() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        queue = await link_of(page, base, "plain")
        await page.goto(f"{queue}/send")
        file = FilePayload(name="any", mimeType="application/octet-stream", buffer=b"\0\xff{}")
        await page.set_input_files("input[type=file]", file)
        await expect(page.locator("[name=body]")).to_have_value("00ff7b7d")
        await page.fill("[name=count]", "3")
        await page.click("text=Send >> nth=-1")
        await page.wait_for_selector("h2:has-text('Messages')")
        async with made.client() as client:
            message = await (await client.open_queue(PLAIN)).peek()
            assert message is not None
            assert (message.body, message.body_type) == (b"\0\xff{}", VT_BYTES)
        await page.check("text=All >> nth=0")
        assert await page.locator("input[name=key]:checked").count() == 3
        await page.click("text=Delete the chosen")
        await page.wait_for_selector("input[name=key]", state="detached")
        async with made.client() as client:
            await client.send(PLAIN, Message(body=b"kept", label="order 1"))
        await page.goto(queue)
        await page.click("tbody th a")
        async with page.expect_download() as saved:
            await page.click("text=Save the message")
        await page.goto(queue)
        await page.set_input_files(
            "form[action$='/load'] input[type=file]", await (await saved.value).path()
        )
        await expect(page.locator("[name=packet]")).to_have_value(re.compile(".{101,}", re.DOTALL))
        await page.click("text=Load")
        await expect(page.locator("[name=key]")).to_have_count(2)

    browse(scenario)


def test_a_page_says_that_it_is_not_current_as_long_as_it_is_not() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        async def refuse(route: Route) -> None:
            await route.fulfill(status=503, body="no answer")

        await page.goto(f"{base}/")
        await page.route("**/live", refuse)
        for _ in range(2):
            async with page.expect_response("**/live") as refused:
                pass
            await (await refused.value).finished()
            await page.wait_for_selector("#silent:not([hidden])")
        await page.unroute("**/live")
        await page.wait_for_selector("#silent", state="hidden")

    browse(scenario)


def test_a_leader_that_dies_is_seen_and_the_page_goes_on() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        await page.goto(f"{base}/")
        before = await made.kill_leader()
        await made.harness.leader()

        async def shows_another() -> bool:
            rows = await page.locator("dl dd").all_inner_texts()
            return rows[1] not in (before, "") and not rows[1].startswith("none")

        for _ in range(200):
            if await shows_another():
                break
            await asyncio.sleep(0.1)
        assert await shows_another()
        # Not by a function: the page's policy lets nobody evaluate one again and again.
        seen = '#entries[data-gap-ms]:not([data-gap-ms="0"], [data-gap-ms=""])'
        await page.wait_for_selector(seen, state="attached", timeout=20_000)
        assert "0 times" not in await page.locator("dl").inner_text()
        await picture(page, "leader-died")
        host = base.removeprefix("https://").rpartition(":")[0]
        (own,) = (node for node in made.harness.up if node.host == host)
        await made.harness.kill(own.name)
        await page.wait_for_selector("#silent:not([hidden])")

    browse(scenario, 3)
