"""Counters of the node in the console: totals, and rates between two readings."""

import html
import json
import re
import time
from urllib.parse import quote

import pytest

from qm.console.counters import BEFORE_MAX_CHARS, reading_of
from qm.observe.service_counters import (
    APART_MIN_S,
    SAMPLES_MAX,
    SERVICE,
    Counter,
    Reading,
    counters_of,
    service_of,
    totals_of,
)
from tests.unit.client.world import Clients, scenario
from tests.unit.console.world import browser, sign_in

PARSED_MAX_S = 0.05
TRIES = 5
ARRIVED = "quorate_messages_arrived_total"


def row(text: str, title: str) -> list[str]:
    """Return the cells of a counter's row."""
    (found,) = re.findall(rf'<tr><th scope="row">{title}</th>(.*?)</tr>', text)
    return re.findall(r"<td[^>]*>(.*?)</td>", found)


def before_of(text: str) -> str:
    (found,) = re.findall(r'name="before" value="([^"]*)"', text)
    return html.unescape(found)


@scenario()
async def test_counters_of_the_service_are_shown_with_rates(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        for path in ("/counters", "/counters/live"):
            status, text = await found.get(path)
            assert status == 200
            for title in SERVICE.values():
                total, rate, _ = row(text, title)
                assert (total.isdecimal(), rate) == (True, ""), title
            assert "quorate_commit_index" in text
            assert "quorate_queue_messages" not in text
            assert "_bucket" not in text
            assert "_created" not in text
        before = json.loads(before_of(text))
        before["at_s"] -= 10.0
        before["totals"] |= {"quorate_bytes_arrived_total": 0.0, ARRIVED: -20.0}
        _, text = await found.get(f"/counters/live?before={quote(json.dumps(before))}")
        assert row(text, "Incoming bytes")[1] == "0.0"
        assert float(row(text, "Incoming messages")[1]) == pytest.approx(2.0, abs=0.2)
        assert row(text, "Sessions")[1] == ""
        for hostile in ("x", "[]", '{"started_ms":1}', "<script>", "\udcff", "1" * 2_000):
            status, text = await found.get(
                f"/counters/live?before={quote(hostile, errors='replace')}"
            )
            assert status == 200
            assert row(text, "Incoming bytes")[1] == ""


def rates(now: Reading, before: Reading | None, *counters: Counter) -> dict[str, float | None]:
    return {one.title: one.per_s for one in service_of(counters, now, before)}


def test_a_rate_needs_two_readings_of_one_process() -> None:
    counters = [Counter(ARRIVED, f"verdict {kind}", 30.0) for kind in ("accepted", "ignored")]
    counters.append(Counter("quorate_sessions", "role acceptor", 3.0))
    now = Reading(7, 100.0, totals_of(counters))
    assert now.totals[ARRIVED] == 60.0
    assert rates(now, Reading(7, 95.0, {ARRIVED: 10.0}), *counters)["Incoming messages"] == 10.0
    for before in (
        None,
        Reading(6, 95.0, {ARRIVED: 10.0}),  # the node has restarted
        Reading(7, 100.0 - APART_MIN_S / 2, {ARRIVED: 10.0}),
        Reading(7, 200.0, {ARRIVED: 10.0}),
        Reading(7, 95.0, {ARRIVED: 61.0}),
        Reading(7, 95.0, {}),
    ):
        assert rates(now, before, *counters)["Incoming messages"] is None, before
    sessions = Reading(7, 95.0, {"quorate_sessions": 1.0})
    assert rates(now, sessions, *counters)["Sessions"] is None


def test_an_earlier_reading_is_bounded_and_typed() -> None:
    text = json.dumps({"started_ms": 1, "at_s": 2.0, "totals": {ARRIVED: 3.0}})
    assert reading_of(text) == Reading(1, 2.0, {ARRIVED: 3.0})
    names = {name: 1.7976931348623157e308 for name in SERVICE if name.endswith("_total")}
    largest = json.dumps({"started_ms": 1 << 62, "at_s": 1e308, "totals": names})
    assert len(largest) <= BEFORE_MAX_CHARS
    for wrong in ("", "{}", "null", text.replace("3.0", '"3"'), text.replace("3.0", "NaN")):
        assert reading_of(wrong) is None, wrong
    assert reading_of(text + " " * BEFORE_MAX_CHARS) is None


def exposition(queues: int) -> bytes:
    """What a node with that many queues would tell, if all had series of their own."""
    lines = [
        "# HELP python_info Python",
        "# TYPE python_info gauge",
        'python_info{version="3"} 1.0',
        "# HELP quorate_api_seconds Calls",
        "# TYPE quorate_api_seconds histogram",
        'quorate_api_seconds_bucket{le="1.0",method="m"} 1.0',
        "# HELP quorate_api_seconds_created Calls",
        "# TYPE quorate_api_seconds_created gauge",
        'quorate_api_seconds_created{method="m"} 1.0',
    ]
    for name in ("quorate_queue_messages", "quorate_queue_bytes", "windows_msmq_bytes_in_queue"):
        lines += [f"# HELP {name} Of a queue", f"# TYPE {name} gauge"]
        lines += [f'{name}{{queue="a\\n# HELP \\"q{k}"}} {k}.0' for k in range(queues)]
    lines += ["# HELP quorate_deadletter_messages Dead", "# TYPE quorate_deadletter_messages gauge"]
    lines += [f'quorate_deadletter_messages{{queue="\\\\<{k}>"}} 1.0' for k in range(queues)]
    lines += ["# HELP quorate_term Term", "# TYPE quorate_term gauge", "quorate_term 5.0", ""]
    return "\n".join(lines).encode()


def test_what_is_not_shown_is_not_parsed() -> None:
    found = counters_of(exposition(2))
    assert [(one.name, one.labels, one.value) for one in found] == [
        ("quorate_deadletter_messages", "queue \\<0>", 1.0),
        ("quorate_deadletter_messages", "queue \\<1>", 1.0),
        ("quorate_term", "", 5.0),
    ]
    assert len(counters_of(exposition(SAMPLES_MAX + 5))) == SAMPLES_MAX
    assert counters_of(b"") == []


def test_counters_of_ten_thousand_queues_take_little_time() -> None:
    """The event loop had to wait for all of it, 1.3 s."""
    text = exposition(10_000)
    times = []
    for _ in range(TRIES):
        began = time.thread_time()
        counters_of(text)
        times.append(time.thread_time() - began)
    assert min(times) < PARSED_MAX_S, times
