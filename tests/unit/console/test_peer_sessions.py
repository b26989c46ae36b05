"""Sessions with other queue managers in the console: what each carried, and how fast."""

import html
import re
from base64 import urlsafe_b64encode
from urllib.parse import quote

import msgspec
import pytest

from qm.api.gate.identity import Role
from qm.console.peer_sessions import READING_MAX_CHARS, SESSIONS_SHOWN_MAX, Reading, rates
from qm.console.peer_sessions import reading_of as read
from qm.names.guid import guid_text
from qm.observe.service_counters import APART_MIN_S
from tests.cluster.messages import create_queue
from tests.cluster.test_edge import connect, numbered
from tests.unit.api.world import eventually
from tests.unit.client.world import Clients, scenario
from tests.unit.console.test_client_pages import signed_in
from tests.unit.console.test_peers import rows
from tests.unit.console.world import Browser, browser, sign_in
from tests.unit.model.world import PEER

HANDSHAKE_BYTES = 604
KEY = ("n1", 7, 1_795_902_391_483)
U64_MAX = (1 << 64) - 1


def before_of(text: str) -> str:
    (found,) = re.findall(r'name="before" value="([^"]*)"', text)
    return html.unescape(found)


async def renewed(found: Browser, before: str = "") -> tuple[list[list[str]], str]:
    """Return the rows of the list, and its reading."""
    status, text = await found.get(f"/peers/sessions?before={quote(before, errors='replace')}")
    assert status == 200, text
    assert "<nav" not in text
    return rows(f"<h2>{text}", ""), before_of(text)


@scenario()
async def test_sessions_are_shown_with_rates(made: Clients) -> None:
    leader = await made.harness.leader()
    await create_queue(leader, "odd")
    async with browser(made) as found:
        await sign_in(made, found)
        _, text = await found.get("/peers")
        assert "There is none." in text
        peer = await connect(leader)
        _, text = await found.get("/peers")
        (row,) = rows(text, "Sessions now")
        assert row[:4] == ["127.0.0.1", guid_text(PEER), "incoming", "n1"]
        handshake = str(HANDSHAKE_BYTES)
        assert row[5:] == ["0", "", "0", "", handshake, "", handshake, ""]
        assert 'hx-get="/peers/sessions"' in text
        assert "counted of all peers together" not in text

        earlier = before_of(text)
        peer.offer([1, 3, 5], [numbered(number) for number in (1, 3, 5)])
        await peer.has(3)
        reading = read(earlier)
        assert reading is not None
        ten_s_ago = msgspec.structs.replace(reading, at_s=reading.at_s - 10.0).text()
        (row,), _ = await renewed(found, ten_s_ago)
        assert row[5] == "3"
        assert float(row[6]) == pytest.approx(0.3, abs=0.1)
        assert row[7:9] == ["0", "0.0"]
        assert int(row[9]) > HANDSHAKE_BYTES + 3 * 100
        assert float(row[10]) == pytest.approx((int(row[9]) - HANDSHAKE_BYTES) / 10, rel=0.3)

        (row,), again = await renewed(found, "x")
        assert row[6] == ""
        for hostile in ("\x1b", "%00", "<script>", "\udcff", "A" * 7_000, "gA==", "k8s="):
            (row,), _ = await renewed(found, hostile)
            assert row[6] == ""
        assert len(again) < READING_MAX_CHARS
        peer.transport.abort()

        async def listed() -> list[list[str]]:
            return (await renewed(found, again))[0]

        await eventually(listed, lambda seen: not seen)
    async with signed_in(made, "carol", Role.CLIENT) as carol:
        assert (await carol.get("/peers/sessions"))[0] == 403
    async with signed_in(made, "oscar", Role.OPERATOR) as oscar:
        assert (await oscar.get("/peers/sessions"))[0] == 200


def test_a_rate_needs_two_readings_of_one_session() -> None:
    now = Reading(100.0, {KEY: (60, 6, 6_000, 600)})
    earlier = {KEY: (10, 6, 1_000, 700)}
    assert rates(KEY, now, Reading(95.0, earlier)) == [10.0, 0.0, 1_000.0, None]
    nothing = [None] * 4
    assert rates(KEY, now, None) == nothing
    assert rates(KEY, now, Reading(95.0, {("n1", 7, 5): earlier[KEY]})) == nothing
    for at_s in (100.0 - APART_MIN_S / 2, 100.0, 105.0, float("nan")):
        assert rates(KEY, now, Reading(at_s, earlier)) == nothing


def test_a_reading_fits_into_an_address_whatever_it_holds() -> None:
    names = [f"{number}".ljust(63, "n") for number in range(5)]
    keys = [(names[k % 5], U64_MAX - k, 1 << 42) for k in range(SESSIONS_SHOWN_MAX)]
    made = Reading(1e9 / 7, dict.fromkeys(keys, (U64_MAX, U64_MAX, U64_MAX, U64_MAX)))
    text = made.text()
    assert len(text) <= READING_MAX_CHARS
    assert quote(text, safe="=") == text
    assert read(text) == made


@pytest.mark.parametrize(
    "told",
    [
        [1.0, ["n1"], [[5, 1, 1, [1, 1, 1, 1]]]],
        [1.0, ["n1"], [[-1, 1, 1, [1, 1, 1, 1]]]],
        [1.0, ["n1"], []],
    ],
)
def test_sessions_of_no_node_are_left_out_of_a_reading(told: object) -> None:
    found = read(urlsafe_b64encode(msgspec.msgpack.encode(told)).decode())
    assert found == Reading(1.0, {})
