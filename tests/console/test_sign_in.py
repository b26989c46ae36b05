"""Signing in and reading reports in a browser: passwords, a provider, hostile texts."""

import asyncio
import json
import tempfile
from pathlib import Path

import msgspec
from playwright.async_api import Page

from qm.api.gate.identity import Role
from qm.node.config.schema import CONSOLE_PORT, NodeConfig
from qm.rpc.security.ntlm_keys import nt_hash
from tests.console.windows import HOSTILE, assert_accessible, browse, picture, window
from tests.unit.client.world import Clients, clients
from tests.unit.console.oidc import Provider, provider
from tests.unit.console.test_entry import SECRET, put
from tests.unit.console.test_single_sign_on import trusting


def base_of(made: Clients) -> str:
    (node,) = made.harness.up
    return f"https://{node.host}:{CONSOLE_PORT}"


async def fill(page: Page, name: str, password: str) -> None:
    """Type as a person does, with the keyboard alone."""
    await page.get_by_label("Name").focus()
    await page.keyboard.insert_text(name)
    await page.keyboard.press("Tab")
    await page.keyboard.insert_text(password)
    await page.keyboard.press("Enter")


def test_a_name_and_a_password_sign_in() -> None:
    async def main() -> None:
        async with clients() as made, window() as page:
            await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
            await page.goto(f"{base_of(made)}/queues")
            await page.wait_for_selector("h1:has-text('Sign in')")
            await assert_accessible(page, "sign-in")
            await picture(page, "sign-in")
            await fill(page, HOSTILE, HOSTILE)
            await page.wait_for_selector("main [role=alert]:has-text('do not open')")
            assert await page.title() != "taken"
            await assert_accessible(page, "sign-in-refused")
            await picture(page, "sign-in-refused")
            await fill(page, "alice", SECRET)
            await page.wait_for_selector("h1:has-text('Overview')")
            assert "alice (admin)" in await page.locator("header").inner_text()
            cookies = await page.context.cookies()
            (session,) = [one for one in cookies if one["name"] == "__Host-quorate"]
            assert (session["httpOnly"], session["secure"]) == (True, True)
            assert session["sameSite"] == "Strict"
            await put(made, "alice", nt_hash("another"), Role.ADMIN)
            await page.goto(f"{base_of(made)}/queues")
            await page.wait_for_selector("h1:has-text('Sign in')")

    asyncio.run(main())


def test_a_page_that_is_left_open_leads_to_signing_in_when_its_session_ends() -> None:
    async def main() -> None:
        async with clients() as made, window() as page:
            for path in ("/", "/counters"):
                await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
                await page.goto(f"{base_of(made)}/sign-in")
                await fill(page, "alice", SECRET)
                await page.wait_for_selector("h1:has-text('Overview')")
                await page.goto(f"{base_of(made)}{path}")
                await page.wait_for_selector("header form")
                await put(made, "alice", nt_hash("another"), Role.ADMIN)
                await page.wait_for_selector("h1:has-text('Sign in')", timeout=15_000)

    asyncio.run(main())


async def through(page: Page, base: str) -> None:
    """Sign in at the page of a provider, which is another site."""
    await page.goto(f"{base}/")
    await page.click("text=Sign in through")
    await page.wait_for_selector("button:has-text('Log in')")
    assert page.url.startswith("https://localhost:")
    await page.click("button")


def test_a_provider_signs_in() -> None:
    async def main(trusted: Provider) -> None:
        trusted.shows_page = True
        trusted.claims |= {"name": HOSTILE}
        trusted.described = {"end_session_endpoint": f"{trusted.issuer}/end"}
        async with clients(1, trusting(trusted)) as made, window() as page:
            base = base_of(made)
            await page.goto(f"{base}/")
            await assert_accessible(page, "sign-in-provider")
            await picture(page, "sign-in-provider")
            await through(page, base)
            await page.wait_for_selector("h1:has-text('Overview')")
            assert "oidc:248289761001 (admin)" in await page.locator("header").inner_text()
            await page.click("text=Sign out")
            await page.wait_for_selector("h1:has-text('Ended')")
            await page.click("text=Back")
            await page.wait_for_selector("h1:has-text('Sign in')")
            trusted.claims["roles"] = [HOSTILE]
            await through(page, base)
            await page.wait_for_selector("main [role=alert]:has-text('no role here')")
            await assert_accessible(page, "provider-refused")
            await picture(page, "provider-refused")
            trusted.error = HOSTILE
            await through(page, base)
            await page.wait_for_selector("main [role=alert]:has-text('no reason')")
            assert await page.title() != "taken"

    async def work() -> None:
        async with provider() as trusted:
            await main(trusted)

    asyncio.run(work())


def test_reports_are_read_and_nothing_in_them_runs() -> None:
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        rounds = [{"seed": seed, "holds": True, "rto_ms": 800 + seed} for seed in range(30)]
        drill = {"quorate": "0.1.0", "target": HOSTILE, "rounds": {"leader-kill": rounds}}
        (folder / "drill-1").mkdir()
        (folder / "drill-1" / "report.json").write_text(json.dumps(drill))
        (folder / "audit.html").write_text(
            f"<!doctype html><title>Audit</title><h1>Audit</h1>{HOSTILE}"
            "<svg onload=\"document.title='taken'\"></svg><style>h1 {color: green}</style>"
        )

        def change(config: NodeConfig) -> NodeConfig:
            replace = msgspec.structs.replace
            return replace(config, console=replace(config.console, reports=folder))

        async def scenario(made: Clients, page: Page, base: str) -> None:
            await page.goto(f"{base}/reports")
            await assert_accessible(page, "reports")
            await picture(page, "reports")
            await page.click("text=drill-1/report.json")
            await page.wait_for_selector("th:has-text('leader-kill')")
            await assert_accessible(page, "report")
            await picture(page, "report")
            assert await page.title() != "taken"
            await page.goto(f"{base}/reports/show?path=audit.html")
            await assert_accessible(page, "report-page")
            await page.click("text=Open it as a page")
            await page.wait_for_selector("h1:has-text('Audit')")
            assert await page.title() == "Audit"
            colour = "getComputedStyle(document.querySelector('h1')).color"
            assert await page.evaluate(colour) == "rgb(0, 128, 0)"

        browse(scenario, change=change)
