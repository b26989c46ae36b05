"""Report messages, source journaling, expiry, hop count [MS-MQQB 1.3.4, 3.1.5.8, 3.1.7.1]."""

from __future__ import annotations

import re

import pytest

from qm.session.expiry import is_expired
from qm.session.hops import is_local, next_hop_count
from qm.session.journal import (
    Copy,
    Journaling,
    on_failure,
    on_final_ack,
    on_order_ack,
    on_session_ack,
)
from qm.session.trace import Report, Traced, received_report, report_queue, sent_report
from qm.wire.debug_header import DebugHeader
from qm.wire.guid import GUID_NULL, guid_text
from qm.wire.message_class import MessageClass
from tests.unit.session.builders import STRANGER, THEM, US

UTC = 1_700_000_000  # Tue, 14 Nov 2023 22:13:20
QUEUE = bytes(range(100, 116))
TRACED = Traced(THEM, 0x1AB, 3, r"DIRECT=OS:host\private$\q")
LABEL = re.compile(
    r"[0-9A-F]{4}:[0-9A-F]{8}:[0-9A-F]{2} received by "
    r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12} "
    r"at \d\d:\d\d(:\d\d)? (AM|PM) (Mon|Tue|Wed|Thu|Fri|Sat|Sun),[A-Z][a-z]{2} \d\d \d\d"
)


@pytest.mark.spec("QB-3.1.5.8.9-01", "QB-3.1.7.1.7-01")
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


@pytest.mark.spec("QB-3.1.7.1.2-01", "QB-3.1.5.8-02")
@pytest.mark.parametrize(
    ("now", "sent", "limit", "expired"),
    [
        (100, 90, 10, False),
        (101, 90, 10, True),
        (100, 100, 0, False),
        (101, 100, 0, True),
        (10**12, 0, 0xFFFF_FFFF, False),
        (100 + 0xFFFF_FFFE, 100, 0xFFFF_FFFE, False),
        (101 + 0xFFFF_FFFE, 100, 0xFFFF_FFFE, True),
        # MQ-A28: sent in our future.
        (100, 4_000_000_000, 0, False),
    ],
)
def test_expiry(now: int, sent: int, limit: int, expired: bool) -> None:
    assert is_expired(now, sent, limit) is expired


@pytest.mark.spec("QB-1.3.4.2-01", "QB-3.1.7.1.2-03")
@pytest.mark.parametrize(
    ("message", "copy"),
    [
        (Journaling(), Copy.DROP),
        (Journaling(positive=True), Copy.DROP),
        (Journaling(negative=True), Copy.SYSTEM_DEADLETTER),
        (
            Journaling(negative=True, has_application_deadletter=True),
            Copy.SYSTEM_DEADLETTER,
        ),
        (
            Journaling(negative=True, is_transactional=True),
            Copy.SYSTEM_TRANSACTIONAL_DEADLETTER,
        ),
        (
            Journaling(negative=True, is_transactional=True, has_application_deadletter=True),
            Copy.APPLICATION_DEADLETTER,
        ),
        (Journaling(positive=True, is_transactional=True), Copy.DROP),
    ],
)
def test_copy_of_a_message_that_cannot_be_sent(message: Journaling, copy: Copy) -> None:
    assert on_failure(message) is copy


@pytest.mark.spec("QB-3.1.5.5.4-01", "QB-6-02")
def test_copy_of_an_acknowledged_message() -> None:
    assert on_session_ack(Journaling(), is_order_acked=False) is Copy.DROP
    assert on_session_ack(Journaling(negative=True), is_order_acked=False) is Copy.DROP
    assert on_session_ack(Journaling(positive=True), is_order_acked=False) is Copy.SYSTEM_JOURNAL
    system = Journaling(positive=True, negative=True, is_to_system_queue=True)
    assert on_session_ack(system, is_order_acked=False) is Copy.DROP
    assert on_failure(system) is Copy.DROP
    for positive in (False, True):
        transactional = Journaling(positive=positive, is_transactional=True)
        assert on_session_ack(transactional, is_order_acked=False) is Copy.KEEP
    # Journaled by its FinalAck, never by its session acknowledgement (QB-A19).
    assert on_session_ack(transactional, is_order_acked=True) is Copy.AWAIT_FINAL_ACK


@pytest.mark.spec("QB-3.1.5.6-06", "QB-3.1.1.6.2-05")
@pytest.mark.parametrize("flag", ["positive", "negative", "final_ack", None])
def test_copy_after_the_order_ack(flag: str | None) -> None:
    message = Journaling(**({flag: True} if flag else {}), is_transactional=True)
    assert on_order_ack(message, is_session_acked=False) is Copy.KEEP
    copy = Copy.AWAIT_FINAL_ACK if flag else Copy.DROP
    assert on_order_ack(message, is_session_acked=True) is copy
    assert on_session_ack(message, is_order_acked=True) is copy


@pytest.mark.spec("QB-3.1.5.7-02", "QB-3.1.5.7-03", "QB-3.1.5.7-04")
@pytest.mark.parametrize(
    "message_class", [MessageClass.NACK_BAD_DST_Q, MessageClass.NACK_RECEIVE_TIMEOUT, 0x8005]
)
def test_copy_after_the_final_ack(message_class: int) -> None:
    asks_nothing = Journaling(final_ack=True, is_transactional=True)
    positive = Journaling(positive=True, is_transactional=True)
    negative = Journaling(negative=True, is_transactional=True)
    application = Journaling(negative=True, is_transactional=True, has_application_deadletter=True)
    received = MessageClass.ACK_RECEIVE
    assert on_final_ack(positive, received) is Copy.SYSTEM_JOURNAL
    assert on_final_ack(negative, received) is Copy.DROP
    assert on_final_ack(asks_nothing, received) is Copy.DROP
    assert on_final_ack(positive, message_class) is Copy.DROP
    assert on_final_ack(negative, message_class) is Copy.SYSTEM_TRANSACTIONAL_DEADLETTER
    assert on_final_ack(application, message_class) is Copy.APPLICATION_DEADLETTER
    assert on_final_ack(asks_nothing, message_class) is Copy.DROP


@pytest.mark.spec("QB-3.1.5.8.2-09", "QB-3.1.5.8.5-01")
def test_hops_and_destination() -> None:
    assert next_hop_count(0) == 1
    assert next_hop_count(0x1C) == 0x1D
    assert next_hop_count(0x1D) is None
    assert next_hop_count(0x1F) is None
    assert is_local(US, US)
    assert is_local(GUID_NULL, US)
    assert not is_local(THEM, US)
    assert not is_local(STRANGER, US)
