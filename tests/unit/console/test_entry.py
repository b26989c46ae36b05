"""Signing in to a node of a real cluster: users with passwords, and who is none."""

from __future__ import annotations

import asyncio
import io
import ssl
from typing import Any

import msgspec

from qm.api.gate.identity import ROLE_GROUPS, Role, principal_sid
from qm.client.values import value_of
from qm.console.entry import (
    ATTEMPT_COOKIE,
    FORM_COOKIE,
    FORM_MAX_BYTES,
    REFUSALS_OF_PLACE_TOLD_MAX,
    SESSION_COOKIE,
)
from qm.console.passwords import FAILURES_OF_NAME_HERE_MAX
from qm.node.config.schema import CONSOLE_PORT, NodeConfig
from qm.pb import control_pb2 as pb
from qm.rpc.security.ntlm_keys import nt_hash
from qm.security.passwords import SALT_BYTES, verifier_of
from tests.unit.api.world import eventually
from tests.unit.client.world import Clients, clients, run, scenario
from tests.unit.console.world import browser, with_password

SECRET = "correct horse"
HOSTILE = "<script>alert(1)</script>"


async def put(made: Clients, name: str, kept: bytes, role: Role | None, **more: Any) -> None:
    """What `qm user add` does."""
    async with made.client() as client:
        listed = await client.wire.call(
            lambda stubs: stubs.directory.ListObjects, pb.ListObjectsRequest(object_class="user")
        )
        known = [one for one in listed.objects if one.attributes["account_name"].text == name]
        groups = [] if role is None else [ROLE_GROUPS[role]]
        values = {
            "security_identifier": principal_sid(f"sid of {name}"),
            "account_name": name,
            "name": name,
            "password_hash": kept,
            "groups": groups,
            **more,
        }
        attributes = {key: value_of(value) for key, value in values.items()}
        attributes["groups"] = pb.Value(datas=pb.DataList(items=groups))
        await client.wire.call(
            lambda stubs: stubs.directory.PutObject,
            pb.PutObjectRequest(
                object_class="user",
                identifier=known[0].identifier if known else b"",
                attributes=attributes,
            ),
        )


async def events(made: Clients) -> list[tuple[str, str, str]]:
    async with made.client() as client:
        reply = await client.wire.call(
            lambda stubs: stubs.cluster.ListEvents, pb.ListEventsRequest(limit=500, latest=True)
        )
    return [(one.name, one.principal, one.text) for one in reply.events]


async def until_it_says(made: Clients, name: str, principal: str, part: str) -> None:
    async def said() -> bool:
        return any(
            (found, who) == (name, principal) and part in text
            for found, who, text in await events(made)
        )

    await eventually(said, bool)


@scenario()
async def test_users_with_a_role_sign_in_with_hash_or_verifier(made: Clients) -> None:
    await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
    await put(made, "bob", verifier_of(SECRET, bytes(SALT_BYTES)), Role.OPERATOR)
    await put(made, "carol", nt_hash(SECRET), None)
    for name, role in (("alice", "admin"), ("bob", "operator")):
        async with browser(made) as found:
            status, text = await with_password(found, name, SECRET)
            assert status == 200, text
            assert f"{name} ({role})" in text
        await until_it_says(made, "console_sign_in", name, "with a password from 127.")
    async with browser(made) as found:
        answers = {
            await with_password(found, name, password)
            for name, password in (("carol", SECRET), ("alice", "x"), (HOSTILE, HOSTILE))
        }
        (status,) = {status for status, _ in answers}
        assert status == 403
        assert all("do not open the console" in text for _, text in answers)
        assert not any(HOSTILE in text for _, text in answers)
        assert (await found.get("/queues"))[0] == 401
    await until_it_says(made, "console_refused", "", "carol has no role")
    await until_it_says(made, "console_refused", "", "a wrong password of alice")
    await until_it_says(made, "console_refused", "", "an unknown name")


@scenario()
async def test_the_sid_of_the_user_decides_at_queues(made: Clients) -> None:
    await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
    async with browser(made) as found:
        await with_password(found, "alice", SECRET)
        await found.get("/queues")
        status, text = await found.post("/queues", path="hers")
        assert status == 200, text
    async with made.client() as client:
        name = pb.QueueName(name="QUORATE\\private$\\hers")
        acl = await client.wire.call(
            lambda stubs: stubs.queues.GetAcl, pb.GetAclRequest(queue=name)
        )
    assert acl.owner == "alice"


@scenario()
async def test_a_changed_or_removed_user_is_signed_out(made: Clients) -> None:
    for change in ("password", "role", "disabled", "removed"):
        await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
        async with browser(made) as found:
            assert (await with_password(found, "alice", SECRET))[0] == 200
            assert (await found.get("/queues"))[0] == 200
            if change == "password":
                await put(made, "alice", nt_hash("another"), Role.ADMIN)
            elif change == "role":
                await put(made, "alice", nt_hash(SECRET), Role.CLIENT)
            elif change == "disabled":
                await put(made, "alice", nt_hash(SECRET), Role.ADMIN, account_disabled=True)
            else:
                await put(made, "alice", b"", Role.ADMIN)
            assert (await found.get("/queues"))[0] == 401, change
            await put(made, "alice", nt_hash(SECRET), Role.ADMIN, account_disabled=False)


@scenario()
async def test_guessing_is_slowed_down_and_codes_go_on(made: Clients) -> None:
    await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
    async with browser(made) as found:
        for _ in range(FAILURES_OF_NAME_HERE_MAX):
            assert (await with_password(found, "alice", "guess"))[0] == 403
        status, text = await with_password(found, "alice", SECRET)
        assert status == 429
        assert "wait a minute" in text
    await until_it_says(made, "console_refused", "", "too many wrong names")


@scenario()
async def test_strangers_keep_no_event_of_who_came_in_from_the_history(made: Clients) -> None:
    """It takes a hundred events at once, and then one a second."""
    await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
    async with browser(made) as found, browser(made) as stranger:
        for _ in range(150):
            assert (await stranger.get("/sign-in?code=guess"))[0] == 403
        assert (await with_password(found, "alice", SECRET))[0] == 200
    await until_it_says(made, "console_sign_in", "alice", "with a password")
    refusals = [text for name, _, text in await events(made) if name == "console_refused"]
    assert 0 < len(refusals) <= REFUSALS_OF_PLACE_TOLD_MAX
    assert sum("more of this are not told" in text for text in refusals) == 1


@scenario()
async def test_the_form_comes_from_this_page_and_is_small(made: Clients) -> None:
    await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
    fields = {"name": "alice", "password": SECRET}
    async with browser(made) as found:
        status, text = await found.post("/sign-in", **fields)
        assert status == 403
        assert "too old" in text
        await found.get("/sign-in")
        stolen = found.form_token
        assert (await found.post("/sign-in", form_token="x", **fields))[0] == 403
        big = {"form_token": stolen, "name": "alice", "password": "x" * FORM_MAX_BYTES}
        assert (await found.post("/sign-in", **big))[0] == 413
        async with browser(made) as other:
            await other.get("/sign-in")
            assert (await other.post("/sign-in", form_token=stolen, **fields))[0] == 403
            url = f"https://{other.host}:{CONSOLE_PORT}/sign-in"

            async def parts() -> Any:
                yield b"name=alice"

            async with other.session.post(url, data=parts()) as answer:
                assert answer.status == 413
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            for data in (b"\xff", b"name=%ff", b"a=1&" * 400, b"form_token=%00&name=%00"):
                sent = io.BytesIO(data)
                async with other.session.post(url, data=sent, headers=form) as answer:
                    assert answer.status in (400, 403)
        status, text = await with_password(found, "alice", SECRET)
        assert status == 200
        before = found.cookie
        status, text = await with_password(found, "alice", SECRET)
        assert found.cookie != before
        found.jar.clear()
        found.jar.update_cookies({SESSION_COOKIE: before})
        assert (await found.get("/queues"))[0] == 401


def test_passwords_may_be_switched_off() -> None:
    def change(config: NodeConfig) -> NodeConfig:
        replace = msgspec.structs.replace
        return replace(config, console=replace(config.console, passwords=False))

    async def work() -> None:
        async with clients(1, change) as made, browser(made) as found:
            await put(made, "alice", nt_hash(SECRET), Role.ADMIN)
            _, text = await found.get("/sign-in")
            assert 'type="password"' not in text
            assert (await found.post("/sign-in", name="alice", password=SECRET))[0] == 405

    run(work())


@scenario()
async def test_cookies_that_this_console_did_not_give_are_none(made: Clients) -> None:
    (node,) = made.harness.up
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    body = b"form_token=x&name=alice&password=x"
    for value in (b"\xff\xfe", b'"a\\015\\012Set-Cookie: b=c"', b"x" * 4_000, b"a b; =; ;;"):
        for name in (FORM_COOKIE, ATTEMPT_COOKIE, SESSION_COOKIE):
            for line in (b"GET /sign-in", b"POST /sign-in", b"GET /sign-in/provider/back"):
                reader, writer = await asyncio.open_connection(node.host, CONSOLE_PORT, ssl=tls)
                writer.write(
                    b"%s HTTP/1.1\r\nHost: x\r\nCookie: %s=%s\r\nConnection: close\r\n"
                    b"Content-Type: application/x-www-form-urlencoded\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (line, name.encode(), value, len(body), body)
                )
                answer = await asyncio.wait_for(reader.read(), 3)
                writer.close()
                assert answer.split(b" ")[1] in (b"401", b"403", b"404", b"400"), answer
                assert b"\nSet-Cookie: b" not in answer
                assert b"codec" not in answer
                assert b"Traceback" not in answer


@scenario()
async def test_pages_of_strangers_are_readable_within_three_seconds(made: Clients) -> None:
    async with browser(made) as found:
        loop = asyncio.get_running_loop()
        for path in ("/sign-in?code=x", "/sign-in?code=" + "x" * 4_000, "/sign-in/provider"):
            began = loop.time()
            status, text = await found.get(path)
            assert status in (403, 404), path
            assert "Traceback" not in text
            assert loop.time() - began < 3


@scenario()
async def test_another_site_signs_nobody_in_with_a_code(made: Clients) -> None:
    async with made.client() as client:
        reply = await client.wire.call(lambda stubs: stubs.console.SignIn, pb.SignInRequest())
    async with browser(made) as found:
        for site in ("cross-site", "same-site"):
            async with found.session.get(reply.url, headers={"Sec-Fetch-Site": site}) as answer:
                assert answer.status == 403
                assert "Another site led here" in await answer.text()
        async with found.session.get(reply.url, headers={"Sec-Fetch-Site": "none"}) as answer:
            assert answer.status == 200  # nobody has used the code
