"""Report messages, and whose a message is [MS-MQQB 3.1.5.8, 3.1.7.1]."""

from __future__ import annotations

import re
from datetime import UTC as TIME_ZONE
from datetime import datetime

import pytest

from qm.names.guid import guid_text
from qm.session.destination import is_local
from qm.wire.guid import GUID_NULL
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.packets.report import Report, Traced, received_report, report_queue, sent_report
from tests.unit.model.world import World, packet
from tests.unit.session.builders import STRANGER, THEM, US

UTC = 1_700_000_000  # Tue, 14 Nov 2023 22:13:20
QUEUE = bytes(range(100, 116))
TRACED = Traced(THEM, 0x1AB, 3, r"DIRECT=OS:host\private$\q")
LABEL = re.compile(
    r"[0-9A-F]{4}:[0-9A-F]{8}:[0-9A-F]{2} received by "
    r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12} "
    r"at \d\d:\d\d(:\d\d)? (AM|PM) (Mon|Tue|Wed|Thu|Fri|Sat|Sun),[A-Z][a-z]{2} \d\d \d\d"
)


@pytest.mark.spec("QB-3.1.5.8.9-01", "QB-3.1.7.1.7-01", "AC-2.2.2.13-01")
def test_reports_are_wanted_by_tr_and_a_queue() -> None:
    assert report_queue(True, DebugHeader(QUEUE)) == QUEUE
    assert report_queue(False, DebugHeader(QUEUE)) is None
    assert report_queue(True, DebugHeader()) is None
    assert report_queue(True, None) is None
    for report in (received_report(TRACED, QUEUE, UTC), sent_report(TRACED, QUEUE, UTC, "::1")):
        assert report.destination.public_queue_identifier == QUEUE
        assert report.message_class == 0x0001
        assert not report.is_recoverable


@pytest.mark.spec("QB-3.1.5.8.9-02", "QB-3.1.7.1.7-01")
@pytest.mark.parametrize(
    ("seconds", "time"),
    [
        (0, "10:13:20 PM Tue,Nov 14 23"),
        (2 * 3600, "12:13:20 AM Wed,Nov 15 23"),
        (14 * 3600, "12:13:20 PM Wed,Nov 15 23"),
        (13 * 3600, "11:13:20 AM Wed,Nov 15 23"),
        (48 * 86400, "10:13:20 PM Mon,Jan 01 24"),
    ],
)
def test_label_of_reports(seconds: int, time: str) -> None:
    source = guid_text(THEM)
    label = f"{source[:4]}:000001AB:03 received by {source} at {time}"
    assert LABEL.fullmatch(label)
    assert received_report(TRACED, QUEUE, UTC + seconds).label == label
    assert sent_report(TRACED, QUEUE, UTC + seconds, "::1").label == label


@pytest.mark.spec("QB-3.1.5.8.9-02")
def test_labels_of_a_week_and_of_a_year() -> None:
    saturday = 981_173_106  # 3 February 2001, 04:05:06
    days = [
        f"{day},Feb {3 + k:02} 01"
        for k, day in enumerate(["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"])
    ]
    for k, day in enumerate(days):
        label = received_report(TRACED, QUEUE, saturday + k * 86_400).label
        assert label.endswith(f" at 04:05:06 AM {day}")
        assert LABEL.fullmatch(label)
    names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    for month, name in enumerate(names, start=1):
        middle = int(datetime(2010, month, 15, 12, tzinfo=TIME_ZONE).timestamp())
        label = received_report(TRACED, QUEUE, middle).label
        assert re.search(f" at 12:00:00 PM [A-Z][a-z][a-z],{name} 15 10$", label)


@pytest.mark.spec("QB-3.1.5.8.9-03", "QB-3.1.7.1.7-02")
def test_body_of_reports() -> None:
    def text(report: Report) -> str:
        return report.body.decode("utf-16-le")

    received = (
        "<MESSAGE ID>000001AB</MESSAGE ID>\r\n"
        "<TARGET QUEUE>DIRECT=OS:host\\private$\\q</TARGET QUEUE>\r\n"
    )
    assert text(received_report(TRACED, QUEUE, UTC)) == received
    assert text(sent_report(TRACED, QUEUE, UTC, "10.1.2.3")) == (
        received + "<NEXT HOP>10.1.2.3</NEXT HOP>\r\n<HOP COUNT>03 </HOP COUNT>\r\n"
    )


@pytest.mark.spec("QB-3.1.5.8.9-03")
def test_the_report_of_an_arrival_says_which_message_came_to_which_queue() -> None:
    world = World()
    wanted, other = (world.create(name) for name in ("reports", "others"))
    world.create("orders")
    world.create("private$\\bills")
    for number, (queue, to) in enumerate(((wanted, "orders"), (other, "private$\\bills")), 0x1AB):
        world.arrive(packet(number, to=to, report_to=world.record(queue).identifier))
        (report,) = world.messages(queue)
        assert bytes(report.properties.message_body).decode("utf-16-le") == (
            f"<MESSAGE ID>00000{number:X}</MESSAGE ID>\r\n"
            f"<TARGET QUEUE>DIRECT=OS:vhost\\{to}</TARGET QUEUE>\r\n"
        )


def test_a_message_for_this_queue_manager_names_it_or_none() -> None:
    assert is_local(US, US)
    assert is_local(GUID_NULL, US)
    assert not is_local(THEM, US)
    assert not is_local(STRANGER, US)
