"""Receiving messages and watching counters and peers in a browser."""

import re

from playwright.async_api import Page, expect

from qm.client.message import Message
from qm.names.guid import guid_text
from tests.cluster.messages import batch, propose
from tests.cluster.test_edge import connect
from tests.console.windows import HOSTILE, assert_accessible, browse, link_of, picture
from tests.unit.client.world import PLAIN, Clients
from tests.unit.model.world import PEER

RENEWED_MS = 20_000


def test_messages_are_received_shown_and_accepted_by_hand() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        async with made.client() as client:
            await client.send(
                PLAIN,
                Message(body=HOSTILE.encode(), label=HOSTILE),
                Message(body=b'{"amount": 7}', label="order 1"),
                Message(body=bytes(range(256)), label="order 2"),
                Message(body=b"left alone", label="order 3"),
            )
        queue = await link_of(page, base, "plain")
        await page.goto(queue)
        await page.get_by_label("Number").fill("3")
        await page.click("button:has-text('Peek')")
        await page.wait_for_selector("h1:has-text('Messages')")
        await assert_accessible(page, "peeked")
        assert await page.title() != "taken"
        await page.go_back()
        await page.get_by_label("Number").fill("3")
        await page.get_by_label("Number").press("Enter")
        await page.wait_for_selector("h1:has-text('Received messages')")
        assert re.search(r"/lent/[0-9a-f]{32}\?key=", page.url)
        await assert_accessible(page, "received")
        await picture(page, "received")
        assert await page.title() != "taken"
        await expect(page.locator("pre").nth(1)).to_contain_text('"amount": 7')
        await page.reload()
        await expect(page.locator("input[name=key]:checked")).to_have_count(3)
        await page.click("main >> text=hex")
        await expect(page.locator("pre").nth(2)).to_contain_text("00000010  10 11 12")
        assert await page.title() != "taken"
        for text in ("Save all in one file", "Save message"):
            async with page.expect_download() as saved:
                await page.click(f"text={text} >> nth=0")
            assert (await (await saved.value).path()).stat().st_size > 100
        await page.locator("input[name=key]").nth(1).uncheck()
        await page.click("text=Accept the chosen >> nth=0")
        await page.wait_for_selector("h2:has-text('Messages')")
        await expect(page.locator("input[name=key]")).to_have_count(2)
        assert await page.locator("td:has-text('order 1')").count() == 1
        assert await page.locator("td:has-text('available')").count() == 2
        await page.click("button:has-text('Receive')")
        await page.click("text=Return all >> nth=0")
        await page.wait_for_selector("h2:has-text('Messages')")

    browse(scenario)


def test_an_empty_queue_is_waited_for_and_said() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        await page.goto(await link_of(page, base, "other"))
        await page.get_by_label("Seconds to wait").fill("1")
        await page.click("button:has-text('Receive')")
        await page.wait_for_selector("h1:has-text('No messages')")
        await assert_accessible(page, "received-none")
        await picture(page, "received-none")

    browse(scenario)


def test_counters_are_renewed_with_rates_and_peers_are_counted() -> None:
    async def scenario(made: Clients, page: Page, base: str) -> None:
        await page.goto(f"{base}/counters")
        row = page.locator("tr", has=page.locator("th", has_text="Incoming bytes"))
        await expect(row.locator("td").nth(1)).to_have_text("")
        await expect(row.locator("td").nth(1)).to_have_text("0.0", timeout=RENEWED_MS)
        await assert_accessible(page, "counters-with-rates")
        await picture(page, "counters-with-rates")
        leader = await made.harness.leader()
        for number in (1, 2):
            sequence = (7 << 32, number, number - 1)
            await propose(leader, batch("transactional", [number], number, sequence=sequence))
        async with made.client() as client:
            await client.send(r"DIRECT=TCP:127.0.0.250\private$\far", Message(body=b"x"))
        peer = await connect(leader)
        await page.goto(f"{base}/peers")
        row = page.locator("tr", has=page.locator("td", has_text=guid_text(PEER))).first
        await expect(row.locator("td.number").nth(5)).to_have_text("")
        await expect(row.locator("td.number").nth(5)).to_have_text("0.0", timeout=RENEWED_MS)
        await assert_accessible(page, "peers-counted")
        await picture(page, "peers-counted")
        peer.transport.abort()
        await page.click("tbody th a")
        await page.wait_for_selector("h1:has-text('Queue manager')")
        await assert_accessible(page, "peer")
        await picture(page, "peer")

    browse(scenario)
