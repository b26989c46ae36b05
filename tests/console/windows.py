"""Windows of a browser at the console of real nodes, and what is looked at in each."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright

from qm.node.config.schema import NodeConfig
from qm.pb import control_pb2 as pb
from tests.unit.client.world import Clients, clients

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or ""
PICTURES: Final = Path(__file__).resolve().parents[2] / "build" / "console"
HOSTILE: Final = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
)
LARGE_BYTES: Final = 4 << 20
WIDE, NARROW = (1280, 900), (390, 844)
SERIOUS: Final = ("serious", "critical")

Scenario = Callable[[Clients, Page, str], Awaitable[None]]


@contextlib.asynccontextmanager
async def window() -> AsyncIterator[Page]:
    """A window of a browser, in which no script may fail."""
    assert CHROMIUM, "install chromium: `make deps-system` says how"
    PICTURES.mkdir(parents=True, exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(ignore_https_errors=True)
        page = await context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield page
        assert not faults
        await browser.close()


def browse(
    scenario: Scenario,
    count: int = 1,
    change: Callable[[NodeConfig], NodeConfig] = lambda config: config,
) -> None:
    """Run a scenario in a browser that an admin has signed in."""

    async def main() -> None:
        async with clients(count, change) as made, window() as page:
            leader = await made.harness.leader()
            first = next(node.name for node in made.harness.up if node is not leader or count == 1)
            async with made.client(first=first) as client:
                reply = await client.wire.call(
                    lambda stubs: stubs.console.SignIn, pb.SignInRequest()
                )
            await page.goto(reply.url)
            await scenario(made, page, reply.url.split("/sign-in")[0])

    asyncio.run(main())


async def picture(page: Page, name: str) -> None:
    """Take pictures of both widths, and have nothing wider than the narrow one."""
    for width, height in (WIDE, NARROW):
        await page.set_viewport_size({"width": width, "height": height})
        await page.screenshot(path=PICTURES / f"{name}-{width}.png", full_page=True)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
    await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})


async def assert_accessible(page: Page, name: str) -> None:
    found = await Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in SERIOUS]
    assert not serious, (name, [(one["id"], one["nodes"][0]["html"]) for one in serious])


async def link_of(page: Page, base: str, queue: str) -> str:
    await page.goto(f"{base}/queues?filter={queue}")
    text = await page.content()
    (link,) = re.findall(rf'href="(/queues/[0-9]+)">QUORATE[^<]*{queue}<', text)
    return f"{base}{link}"
