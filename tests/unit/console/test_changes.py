"""Queues made and changed, messages sent, and rights given in the console."""

from __future__ import annotations

import re

from tests.unit.client.world import OTHER, PLAIN, TRANSACTIONAL, Clients, scenario
from tests.unit.console.world import Browser, browser, sign_in


async def link_of(found: Browser, name: str) -> str:
    _, text = await found.get(f"/queues?filter={name}")
    return str(re.findall(rf'href="(/queues/[0-9]+)">QUORATE\\private\$\\{name}<', text)[0])


def shown(text: str, name: str) -> str:
    """Return what a field of a page's form holds."""
    field = rf'<(?:input|select) [^>]*name="{name}"[^>]*>(?:<option.*?</select>)?'
    box = re.findall(field, text.partition("<h2>Settings</h2>")[2])[0]
    chosen = re.findall(r"<option selected>(.*?)</option>", box)
    if chosen or "<select" in box:
        return str(chosen[0])
    if "checkbox" in box:
        return "on" if " checked" in box else ""
    return str(re.findall(r'value="(.*?)"', box)[0])


SETTINGS = {
    "label": "Orders & <more>",
    "quota": "700",
    "journaling": "on",
    "journal_quota": "600",
    "authentication": "on",
    "privacy_level": "body",
    "base_priority": "-5",
    "max_deliveries": "3",
    "retry_delay_ms": "250",
    "poison_action": "reject",
}


@scenario()
async def test_a_queue_is_made_and_changed_with_all_its_attributes(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        status, text = await found.post("/queues", path="made", transactional="on", **SETTINGS)
        assert status == 200, text
        link = await link_of(found, "made")
        for name, value in SETTINGS.items():
            wanted = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            assert shown(text, name) == wanted, name
        version = shown(text, "version")
        # What is left out of the form is as before; flags are off.
        status, text = await found.post(f"{link}/set", version=version, quota="9", label="")
        assert status == 200, text
        assert [shown(text, name) for name in ("quota", "label", "journaling")] == ["9", "", ""]
        assert shown(text, "poison_action") == "reject"
        # Somebody else has changed it since that page was shown.
        status, text = await found.post(f"{link}/set", version=version, quota="10")
        assert status == 400
        for name, value in (
            ("quota", "-1"),
            ("base_priority", "40000"),
            ("privacy_level", "much"),
            ("poison_action", "7"),
        ):
            status, text = await found.post(f"{link}/set", **{name: value})
            assert (status, name in text) == (400, True)
        _, text = await found.get(link)
        assert shown(text, "quota") == "9"


@scenario()
async def test_a_message_is_sent_with_what_a_sender_can_set(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        plain, transactional = await link_of(found, "plain"), await link_of(found, "transactional")
        for link in (plain, transactional):
            status, text = await found.get(f"{link}/send")
            assert status == 200, text
        status, text = await found.post(
            f"{plain}/send",
            **{"body": "00ff7a", "as": "hexadecimal bytes", "label": "all", "priority": "6"},
            express="on",
            receive_s="3600",
            reach_queue_s="60",
            ack="receive",
            admin_queue=".\\private$\\other",
            response_queue=OTHER,
            journal="on",
            dead_letter="on",
            correlation_id="ab" * 20,
            tag="77",
            count="2",
        )
        assert status == 200, text
        await found.post(f"{transactional}/send", body="in one", label="tx")
        async with made.client() as client:
            queue = await client.open_queue(PLAIN)
            messages = await queue.receive_many(9, 5)
            (single,) = await (await client.open_queue(TRANSACTIONAL)).receive_many(9, 5)
        assert len(messages) == 2
        for message in messages:
            assert (message.body, message.label, message.priority) == (b"\0\xff\x7a", "all", 6)
            assert (message.is_recoverable, message.application_tag) == (False, 77)
            assert message.correlation_id == b"\xab" * 20
            for name in (message.response_queue, message.administration_queue):
                assert name.lower() == "direct=os:quorate\\private$\\other"
            assert message.wire.user_header.time_to_be_received == 3600
            assert message.wire.properties.flags == 14
        assert (single.text, single.is_transactional) == ("in one", True)


BAD_MESSAGES = [
    {"as": "hexadecimal bytes", "body": "0"},
    {"as": "nothing"},
    {"priority": "8"},
    {"count": "101"},
    {"count": "0"},
    {"tag": "-1"},
    {"tag": "4294967296"},
    {"correlation_id": "abc"},
    {"correlation_id": "ab"},
    {"ack": "always"},
    {"admin_queue": "no name at all"},
    {"label": "x" * 300},
]


@scenario()
async def test_what_is_no_message_is_refused_and_said(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        link = await link_of(found, "plain")
        for fields in BAD_MESSAGES:
            status, text = await found.post(f"{link}/send", **{"body": "x", **fields})
            assert status == 400, (fields, text)
        _, text = await found.get(link)
        assert f'href="{link}/' not in text.replace(f"{link}/acl", "").replace(f"{link}/send", "")


@scenario()
async def test_rights_are_given_denied_explained_and_taken(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        for path in (await link_of(found, "plain"), "/settings"):
            status, text = await found.get(f"{path}/acl")
            assert status == 200, text
            version = shown_version(text)
            right = "delete_message" if path != "/settings" else "set_machine_properties"
            entry = {"version": version, "who": "carol", "right": right}
            status, text = await found.post(f"{path}/acl", type="allow", **entry)
            assert status == 200, text
            assert f"<td>{right}</td>" in text
            status, text = await found.post(f"{path}/acl", type="deny", **entry)
            assert status == 400  # the list is another one by now
            entry["version"] = shown_version((await found.get(f"{path}/acl"))[1])
            status, text = await found.post(f"{path}/acl", type="deny", **entry)
            assert status == 200, text
            kinds = re.findall(r"<td>(allow|deny)</td>", text)
            assert kinds[0] == "deny"
            status, text = await found.get(f"{path}/acl/explain?who=carol")
            assert status == 200, text
            assert f'<th scope="row">{right}</th><td>no</td><td>entry 0</td>' in text
            status, text = await found.post(
                f"{path}/acl/remove", version=shown_version(text), place="0"
            )
            assert re.findall(r"<td>(allow|deny)</td>", text) == kinds[1:]
            for bad in (
                {"type": "maybe", "who": "carol", "right": right},
                {"type": "allow", "who": "", "right": right},
                {"type": "allow", "who": "S-1-x", "right": right},
                {"type": "allow", "who": "carol", "right": "everything"},
                {"type": "allow", "who": "carol"},
            ):
                status, _ = await found.post(f"{path}/acl", version=shown_version(text), **bad)
                assert status == 400, bad
            assert (await found.post(f"{path}/acl/remove", version="1", place="99"))[0] == 400
            assert (await found.get(f"{path}/acl/explain"))[0] == 400


def shown_version(text: str) -> str:
    return str(re.findall(r'name="version" value="([0-9]+)"', text)[0])


@scenario()
async def test_several_queues_are_purged_and_deleted(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        numbers = []
        for name in ("first", "second"):
            await found.post("/queues", path=name)
            link = await link_of(found, name)
            numbers.append(link.removeprefix("/queues/"))
            await found.post(f"{link}/send", body="x", label=f"of {name}")
        status, text = await found.post("/queues/several", verb="purge", queue=numbers)
        assert status == 200, text
        for number in numbers:
            _, text = await found.get(f"/queues/{number}")
            assert "<dd>0 (0 locked" in text
        status, text = await found.post(
            "/queues/several", verb="delete", queue=[numbers[0], "99999", numbers[1]]
        )
        assert status == 200
        assert "2 done, 1 not" in text
        assert 'href="/queues/99999"' in text
        _, text = await found.get("/queues")
        assert "first" not in text
        assert "second" not in text
        for verb, queue in (("purge", []), ("grow", "1"), ("purge", "x")):
            assert (await found.post("/queues/several", verb=verb, queue=queue))[0] == 400
