"""Signing in to a node of a real cluster through a provider that may lie, wait or be gone."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import msgspec
import pytest

from qm.console import provider as asked_provider
from qm.console.provider import ProviderSilent
from qm.console.single_sign_on import FAILURES_MAX
from qm.node.config.schema import CONSOLE_PORT, NodeConfig, OidcSection
from tests.unit.client.world import Clients, clients, run
from tests.unit.console.oidc import CLIENT_ID, Provider, provider, rsa_key
from tests.unit.console.test_entry import until_it_says
from tests.unit.console.world import Browser, browser

ROLES = {"queue-admins": "admin", "staff": "client"}


def trusting(made: Provider, **more: Any) -> Callable[[NodeConfig], NodeConfig]:
    def change(config: NodeConfig) -> NodeConfig:
        replace = msgspec.structs.replace
        section = OidcSection(
            issuer=made.issuer,
            client_id=CLIENT_ID,
            client_secret_file=made.secret_file,
            ca_file=made.authority,
            roles=ROLES,  # type: ignore[arg-type]
            **more,
        )
        return replace(config, console=replace(config.console, oidc=section))

    return change


Work = Callable[[Clients, Provider], Coroutine[Any, Any, None]]


def with_provider(work: Work) -> Callable[[], None]:
    """Make a test of a coroutine that wants a cluster of one node that trusts a provider."""

    async def main() -> None:
        async with provider() as trusted, clients(1, trusting(trusted)) as made:
            await work(made, trusted)

    def test() -> None:
        run(main())

    test.__name__, test.__module__ = work.__name__, work.__module__
    return test


@contextlib.asynccontextmanager
async def opened(made: Clients, trusted: Provider) -> AsyncIterator[Browser]:
    """A browser that knows both."""
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_verify_locations(trusted.authority)
    async with browser(made, tls) as found:
        yield found


async def begun(found: Browser) -> str:
    """Begin, and return where the provider is asked."""
    url = f"https://{found.host}:{CONSOLE_PORT}/sign-in/provider"
    async with found.session.get(url, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def answered(found: Browser, address: str) -> str:
    """Ask the provider, and return the path to which its answer leads."""
    async with found.session.get(address, allow_redirects=False) as answer:
        assert answer.status == 302
        return answer.headers["Location"].partition(f":{CONSOLE_PORT}")[2]


async def tried(found: Browser) -> tuple[int, str]:
    """Sign in through the provider."""
    return await found.get(await answered(found, await begun(found)))


@with_provider
async def test_a_role_at_the_provider_opens_the_console(made: Clients, trusted: Provider) -> None:
    async with opened(made, trusted) as found:
        status, text = await found.get("/sign-in")
        assert "Sign in through localhost" in text
        address = await begun(found)
        asked = parse_qs(urlsplit(address).query)
        assert asked["scope"] == ["openid profile"]
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["redirect_uri"] == [
            f"https://{found.host}:{CONSOLE_PORT}/sign-in/provider/back"
        ]
        status, text = await found.get(await answered(found, address))
        assert status == 200
        assert 'content="0; url=/"' in text
        status, text = await found.get("/")
        assert "oidc:248289761001 (admin)" in text
        assert (await found.post("/queues", path="made"))[0] == 200
    await until_it_says(made, "console_sign_in", "oidc:248289761001", "with its provider from")
    trusted.key_id = "second"
    async with opened(made, trusted) as found:
        assert (await tried(found))[0] == 200
    trusted.keys["third"], trusted.key_id = trusted.keys["second"], "third"
    async with opened(made, trusted) as found:  # a new key, too soon after the last fetch
        assert (await tried(found))[0] == 403
    trusted.key_id = "first"
    trusted.claims["roles"] = ["unknown"]
    async with opened(made, trusted) as found:
        status, text = await tried(found)
        assert status == 403
        assert "no role here" in text
        assert (await found.get("/queues"))[0] == 401
    await until_it_says(made, "console_refused", "", "oidc:248289761001 has no role")


@with_provider
async def test_hostile_tokens_sign_nobody_in(made: Clients, trusted: Provider) -> None:
    key = trusted.keys["first"]
    public = b"-----BEGIN PUBLIC KEY-----\n"
    past = int(time.time()) - 3_600
    lies: dict[str, Callable[[dict[str, Any]], str]] = {
        "unsigned": lambda claims: jwt.encode(claims, "", "none"),
        "a secret": lambda claims: jwt.encode(claims, public * 3, "HS256", {"kid": "first"}),
        "another key": lambda claims: jwt.encode(claims, rsa_key(), "RS256", {"kid": "first"}),
        "audience": lambda claims: trusted.signed(claims | {"aud": "another"}),
        "issuer": lambda claims: trusted.signed(claims | {"iss": "https://evil.example.org"}),
        "nonce": lambda claims: trusted.signed(claims | {"nonce": "another"}),
        "expired": lambda claims: trusted.signed(claims | {"exp": past, "iat": past - 60}),
        "a script": lambda claims: trusted.signed(claims | {"sub": "<script>alert(1)</script>"}),
        "garbage": lambda claims: "<script>alert(1)</script>",
    }
    assert len(lies) < FAILURES_MAX
    assert key is not None
    for name, lie in lies.items():
        trusted.sign = lie
        async with opened(made, trusted) as found:
            status, text = await tried(found)
            if name == "a script":
                assert status == 200
                assert "<script>alert" not in (await found.get("/"))[1]
                continue
            assert status == 403, name
            assert "<script>alert" not in text
            assert (await found.get("/queues"))[0] == 401, name


@with_provider
async def test_codes_and_states_belong_to_one_browser_and_hold_once(
    made: Clients, trusted: Provider
) -> None:
    async with opened(made, trusted) as mallory, opened(made, trusted) as victim:
        stolen = await answered(mallory, await begun(mallory))
        assert (await victim.get(stolen))[0] == 403  # without having begun
        await begun(victim)
        status, text = await victim.get(stolen)
        assert status == 403
        assert "not begun in this browser" in text
        assert (await victim.get("/queues"))[0] == 401
        trusted.checks_codes = False  # the provider is lax: the nonce tells
        state = parse_qs(urlsplit(await begun(victim)).query)["state"][0]
        code = re.findall("code=([^&]+)", stolen)[0]
        assert (await victim.get(f"/sign-in/provider/back?state={state}&code={code}"))[0] == 403
        assert (await victim.get("/queues"))[0] == 401
        assert (await mallory.get(stolen))[0] == 200
        assert (await mallory.post("/sign-out"))[0] in (200, 401, 403)
        assert (await mallory.get(stolen))[0] == 403  # repeated
    await until_it_says(made, "console_refused", "", "a state of another browser")
    await until_it_says(made, "console_refused", "", "its nonce is another")
    await until_it_says(made, "console_refused", "", "a state that is unknown, or was used")


@with_provider
async def test_a_code_of_another_attempt_is_refused_by_its_verifier(
    made: Clients, trusted: Provider
) -> None:
    async with opened(made, trusted) as mallory, opened(made, trusted) as victim:
        stolen = await answered(mallory, await begun(mallory))
        code = re.findall("code=([^&]+)", stolen)[0]
        state = parse_qs(urlsplit(await begun(victim)).query)["state"][0]
        status, text = await victim.get(f"/sign-in/provider/back?state={state}&code={code}")
        assert status == 403
        assert "The provider refuses: invalid_grant" in text


@with_provider
async def test_answers_are_checked_and_errors_shown_as_words(
    made: Clients, trusted: Provider
) -> None:
    async with opened(made, trusted) as found:
        for error, shown in (
            ("access_denied", "The provider refuses: access_denied."),
            ("<script>alert(1)</script>", "The provider refuses: no reason that can be shown."),
        ):
            trusted.error = error
            status, text = await tried(found)
            assert status == 403
            assert shown in text
            assert "<script>alert" not in text
        trusted.error = ""
        for path in (
            "/sign-in/provider/back",
            "/sign-in/provider/back?state=%00&code=%ff",
            "/sign-in/provider/back?error=<script>",
        ):
            status, text = await found.get(path)
            assert status == 403
            assert "<script>" not in text.replace('<script src="/static', "")
        good = await answered(found, await begun(found))
        assert (await found.get(f"{good}&iss=https://evil.example.org"))[0] == 403
        for _ in range(FAILURES_MAX):
            status, text = await found.get("/sign-in/provider/back?state=guess")
        assert status == 429
    await until_it_says(made, "console_refused", "", "the answer is from another provider")


async def seconds(work: Coroutine[Any, Any, tuple[int, str]]) -> tuple[float, int, str]:
    began = time.monotonic()
    status, text = await work
    return time.monotonic() - began, status, text


def test_a_provider_that_is_silent_is_said_within_three_seconds() -> None:
    async def work() -> None:
        async with provider() as trusted, clients(1, trusting(trusted)) as made:
            async with opened(made, trusted) as found:
                trusted.delay_s = 30
                took, status, text = await seconds(found.get("/sign-in/provider"))
                assert (status, took < 3) == (503, True), took
                assert "does not answer as it should" in text
                took, status, _ = await seconds(found.get("/sign-in/provider"))
                assert (status, took < 0.5) == (503, True), took  # it is left alone
                trusted.delay_s = 0
                await asyncio.sleep(asked_provider.SILENT_S)
                back = await answered(found, await begun(found))
                trusted.delay_s = 30
                took, status, text = await seconds(found.get(back))
                assert (status, took < 3) == (503, True), took
                assert (await found.get("/queues"))[0] == 401
            await until_it_says(made, "console_refused", "", "does not answer")

    run(work())


def test_a_provider_that_answers_nonsense_is_not_used() -> None:
    async def work() -> None:
        async with provider() as trusted:
            now = 0.0
            asked = asked_provider.Provider(
                trusted.issuer, CLIENT_ID, None, trusted.authority, lambda: now
            )
            nonsense: tuple[dict[str, Any], ...] = (
                {"issuer": "https://evil.example.org"},
                {"token_endpoint": "http://localhost/token"},
                {"authorization_endpoint": "javascript:alert(1)"},
                {"jwks_uri": None},
                {"padding": "x" * asked_provider.ANSWER_MAX_BYTES},
            )
            for changes in nonsense:
                trusted.described = changes
                with pytest.raises(ProviderSilent):
                    await asked.description()
                count = len(trusted.asked)
                with pytest.raises(ProviderSilent):
                    await asked.description()
                assert len(trusted.asked) == count  # it is left alone for a while
                now += asked_provider.SILENT_S
            trusted.described, trusted.status = {}, 302
            with pytest.raises(ProviderSilent, match="answers 302"):
                await asked.description()
            trusted.status, now = 200, now + asked_provider.SILENT_S
            assert (await asked.description()).issuer == trusted.issuer
            await asked.close()

    run(work())


def test_keys_are_kept_and_fetched_again_at_most_so_often() -> None:
    async def work() -> None:
        async with provider() as trusted:
            now = 0.0
            asked = asked_provider.Provider(
                trusted.issuer, CLIENT_ID, None, trusted.authority, lambda: now
            )
            for step_s, is_one_missing, fetches in (
                (0.0, False, 1),
                (0.0, True, 1),
                (asked_provider.KEYS_AGAIN_S + 1, False, 1),
                (0.0, True, 2),
                (0.0, True, 2),
                (asked_provider.KEPT_S, False, 2),
                (1.0, False, 3),
            ):
                now += step_s
                assert len(await asked.keys(is_one_missing=is_one_missing)) == 2
                assert trusted.asked.count("/keys") == fetches
            await asked.close()

    run(work())


def test_a_provider_of_another_authority_or_place_is_not_used() -> None:
    async def work() -> None:
        async with provider() as trusted, provider() as other:
            wrong = msgspec.structs.replace

            def change(config: NodeConfig) -> NodeConfig:
                config = trusting(trusted)(config)
                assert config.console.oidc is not None
                oidc = wrong(config.console.oidc, ca_file=other.authority)
                return wrong(config, console=wrong(config.console, oidc=oidc))

            async with clients(1, change) as made, opened(made, trusted) as found:
                assert (await found.get("/sign-in/provider"))[0] == 503
            assert not trusted.asked

    run(work())


def test_attempts_begin_at_the_address_that_the_provider_knows() -> None:
    async def work() -> None:
        async with provider() as trusted:
            elsewhere = "https://console.example.org:1815"
            change = trusting(trusted, url=elsewhere)
            async with clients(1, change) as made, opened(made, trusted) as found:
                address = await begun(found)
                assert address == f"{elsewhere}/sign-in/provider?here=1"
                url = f"https://{found.host}:{CONSOLE_PORT}/sign-in/provider?here=1"
                async with found.session.get(url, allow_redirects=False) as answer:
                    asked = parse_qs(urlsplit(answer.headers["Location"]).query)
                assert asked["redirect_uri"] == [f"{elsewhere}/sign-in/provider/back"]

    run(work())


def test_a_client_may_have_no_secret_and_a_provider_take_it_in_the_form() -> None:
    async def work() -> None:
        async with provider() as trusted:
            trusted.checks_codes = False
            trusted.described = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
            async with clients(1, trusting(trusted)) as made, opened(made, trusted) as found:
                assert (await tried(found))[0] == 200

    run(work())


@with_provider
async def test_signing_out_leads_to_the_provider_too(made: Clients, trusted: Provider) -> None:
    trusted.described = {"end_session_endpoint": f"{trusted.issuer}/end?x=1"}
    async with opened(made, trusted) as found:
        await tried(found)
        assert (await found.get("/queues"))[0] == 200
        status, text = await found.post("/sign-out")
        assert status == 200
        (address,) = re.findall(r'content="0; url=([^"]+)"', text)
        assert address.startswith(f"{trusted.issuer}/end?x=1&amp;")
        asked = parse_qs(urlsplit(address.replace("&amp;", "&")).query)
        assert asked["client_id"] == [CLIENT_ID]
        assert asked["post_logout_redirect_uri"] == [f"https://{found.host}:{CONSOLE_PORT}/sign-in"]
        hint = jwt.decode(asked["id_token_hint"][0], options={"verify_signature": False})
        assert hint["sub"] == trusted.claims["sub"]
        assert (await found.get("/queues"))[0] == 401


@pytest.mark.parametrize("endpoint", ["", "http://localhost/end", "javascript:alert(1)"])
def test_a_provider_without_a_way_out_keeps_nobody_signed_in(endpoint: str) -> None:
    async def work(made: Clients, trusted: Provider) -> None:
        trusted.described = {"end_session_endpoint": endpoint}
        async with opened(made, trusted) as found:
            await tried(found)
            await found.get("/queues")
            status, text = await found.post("/sign-out")
            assert status == 401
            assert "/end" not in text
            assert (await found.get("/queues"))[0] == 401

    with_provider(work)()
