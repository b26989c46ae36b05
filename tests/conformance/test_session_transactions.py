"""Tables and timers of transactional messages [MS-MQQB 3.1.1.6.2, 3.1.5.6, 3.1.6.5, 3.1.6.9]."""

from __future__ import annotations

import pytest

from qm.session import (
    KIND_EXPRESS,
    KIND_RECOVERABLE,
    KIND_TRANSACTIONAL,
    AcksReceived,
    CloseReason,
    OrderAckTimer,
    OutgoingTable,
    ResendSchedule,
    SessionMisuse,
    resend_timer_table,
)
from qm.session.outgoing import Numbers, own_packet
from qm.wire.errors import ValueOutOfRange
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from tests.unit.session.builders import ack, message, messages, open_initiator

LIVE = (5 << 32) | 1
DEFAULT_TABLE = (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600)


def table_of(*numbers: int) -> OutgoingTable:
    """A table whose tokens are 100 + TxSequenceNumber; 0 is a token without number."""
    table = OutgoingTable()
    table.start_sequence(LIVE)
    for number in numbers:
        table.add(100 + number, number)
    return table


@pytest.mark.spec("QB-3.1.3.1-01", "QB-3.1.1.3-13", "QB-6-03")
def test_resend_timer_table() -> None:
    assert resend_timer_table() == DEFAULT_TABLE
    assert resend_timer_table(1, 2, 3, 4) == (1, 1, 1, 2, 2, 2, 3, 3, 3, 4)


@pytest.mark.spec("QB-3.1.6.5-01", "QB-3.1.2.6-01", "QB-6-03", "QB-3.1.1.3-04")
def test_resend_interval_grows_with_each_timeout_and_stays_at_the_last() -> None:
    schedule = ResendSchedule(0.0)
    now = 100.0
    schedule.sent(now)
    waits = []
    for _ in range(12):
        due = schedule.next_timer()
        assert due is not None
        assert schedule.resend_time == due
        assert not schedule.handle_timer(due - 0.001)
        assert schedule.handle_timer(due)
        waits.append(round(due - now))
        now = due
    assert waits == [*DEFAULT_TABLE, 21600, 21600]
    assert schedule.resend_interval_index == 9


@pytest.mark.spec("QB-3.1.5.6-02", "QB-3.1.5.6-04", "QB-3.1.5.6-01", "QB-3.1.1.3.1.1-01")
def test_progress_takes_the_interval_back_to_the_first() -> None:
    schedule = ResendSchedule(3.0)
    assert (schedule.time_of_last_ack, schedule.last_ack_count) == (3.0, 0)
    assert schedule.resend_time is None
    schedule.sent(10.0)
    for due in (40.0, 70.0, 100.0):
        assert schedule.handle_timer(due)
    assert schedule.resend_interval_s == 300
    # QB-A18: an OrderAck that says nothing new is no progress.
    schedule.order_acked(150.0, progress=False, unacked=2)
    assert (schedule.resend_interval_s, schedule.next_timer()) == (300, 400.0)
    schedule.order_acked(160.0, progress=True, unacked=1)
    assert (schedule.resend_interval_s, schedule.next_timer()) == (30, 190.0)
    schedule.order_acked(170.0, progress=True, unacked=0)
    assert schedule.next_timer() is None
    assert (schedule.time_of_last_ack, schedule.last_ack_count) == (170.0, 3)
    assert schedule.resend_interval_index == 0
    # The list becomes empty while the interval is a later one.
    schedule.sent(200.0)
    for due in (230.0, 260.0, 290.0, 590.0):
        assert schedule.handle_timer(due)
    assert schedule.resend_interval_index == 4
    # Perhaps since what was left of it has expired.
    schedule.order_acked(600.0, progress=False, unacked=0)
    assert (schedule.resend_interval_index, schedule.resend_interval_s) == (0, 30)
    # The last interval is followed by no other.
    schedule.sent(600.0)
    for expected in (1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9):
        assert schedule.handle_timer(schedule.next_timer() or 0)
        assert schedule.resend_interval_index == expected


@pytest.mark.spec("QB-3.1.2.6-01", "QB-3.1.3.2-03", "QB-3.1.3.2-02")
def test_resend_timer_starts_with_the_first_message_only() -> None:
    schedule = ResendSchedule(3.0, (7, 8))
    assert (schedule.time_of_last_ack, schedule.last_ack_count) == (3.0, 0)
    assert (schedule.resend_interval_index, schedule.resend_interval_s) == (0, 7)
    assert schedule.resend_time is None
    assert OutgoingTable().last_ack == 0
    table = table_of(1)
    table.dispatch(1)
    table.session_acked([], [101])
    assert table.order_acked(LIVE, 1).ended == [101]
    assert table.last_ack == 1
    table.start_sequence(LIVE + 1)
    assert (table.last_ack, table.unacked_numbers) == (0, [])
    assert schedule.next_timer() is None
    assert not schedule.handle_timer(1e9)
    schedule.sent(10.0)
    schedule.sent(12.0)
    assert schedule.next_timer() == 17.0
    schedule.stop()
    assert schedule.next_timer() is None
    schedule.sent(20.0)
    schedule.begin_session(21.0)
    assert schedule.next_timer() is None, "it is stopped at the start of another session, too"
    with pytest.raises(SessionMisuse):
        ResendSchedule(0.0, ())


@pytest.mark.spec("QB-3.1.2.7-01", "QB-3.1.3.2-09", "QB-3.1.1.6.2-03", "QB-3.1.5.8.6-02")
def test_order_ack_leaves_half_a_second_after_the_last_message() -> None:
    schedule = OrderAckTimer(0.0)
    assert schedule.next_timer() is None
    assert not schedule.received(100.0, is_last=True)
    # Eleven seconds after the last OrderAck, but the timer was inactive: it starts.
    assert schedule.next_timer() == 100.5
    assert not schedule.handle_timer(100.4)
    assert schedule.handle_timer(100.5)
    assert schedule.next_timer() is None
    assert not schedule.received(101.0, is_last=True)
    assert not schedule.received(101.4, is_last=True)
    assert schedule.next_timer() == 101.9


@pytest.mark.spec("QB-3.1.3.2-10", "QB-3.1.1.6.2-03", "QB-3.1.6.9-01")
def test_order_ack_is_not_pushed_further_than_ten_seconds() -> None:
    schedule = OrderAckTimer(0.0)
    now = 0.0
    while now < 9.9:
        assert not schedule.received(now, is_last=True)
        now += 0.4
    due = schedule.next_timer()
    assert due is not None
    assert due == pytest.approx(9.6 + 0.5)
    assert not schedule.received(10.0, is_last=True)
    assert not schedule.received(10.09, is_last=True)
    assert schedule.next_timer() == due
    assert schedule.handle_timer(due)
    # LastOrderAckSendTime is now: messages push the next one back again.
    assert not schedule.received(due + 0.1, is_last=True)
    assert not schedule.received(due + 0.5, is_last=True)
    assert schedule.next_timer() == due + 1.0
    # It may also leave with a SessionAck.
    schedule.sent(due + 0.6)
    assert schedule.next_timer() is None
    # Nothing was sent before it was made: the ten seconds begin then.
    late = OrderAckTimer(500.0)
    for now in (509.0, 509.4):
        assert not late.received(now, is_last=True)
        assert late.next_timer() == now + 0.5


@pytest.mark.spec("QB-3.1.5.6-03", "QB-3.1.5.6-05", "QB-3.1.1.6.2-04", "QB-3.1.5.5.3-03")
def test_an_order_ack_is_cumulative_and_needs_the_session_ack_too() -> None:
    table = table_of(1, 2, 3, 4)
    table.dispatch(3)
    assert table.unacked_numbers == [1, 2, 3]
    assert table.session_acked([], [101, 102]) == []
    effect = table.order_acked(LIVE, 3)
    assert (effect.ended, effect.is_progress, effect.unacked) == ([101, 102], True, 0)
    assert table.last_ack == 3
    # ReceivedOrderAck is remembered until the session acknowledgement comes (QB-A10).
    assert table.session_acked([], [103]) == [103]
    assert len(table) == 1
    # 4 has not been sent: no number acknowledges it.
    assert table.order_acked(LIVE, 4).ended == []
    table.dispatch(1)
    assert table.session_acked([], [104]) == []
    assert table.order_acked(LIVE, 4).ended == [104]


@pytest.mark.spec("QB-3.1.5.6-03")
@pytest.mark.parametrize("sequence", [LIVE - 1, LIVE + 1, (6 << 32) | 1, 0])
def test_an_order_ack_of_another_sequence_changes_nothing(sequence: int) -> None:
    table = table_of(1, 2)
    table.dispatch(2)
    table.session_acked([], [101, 102])
    effect = table.order_acked(sequence, 2)
    assert (effect.ended, effect.is_progress) == ([], False)
    assert table.last_ack == 0
    assert len(table) == 2
    # A new sequence starts with no LastAck (QB-A8).
    table.order_acked(LIVE, 2)
    assert table.last_ack == 2
    table.start_sequence(LIVE + 1)
    assert table.last_ack == 0


@pytest.mark.spec("QB-3.1.5.6-03")
def test_a_forged_number_acknowledges_nothing_that_was_not_sent() -> None:
    table = table_of(1, 2)
    table.dispatch(1)
    effect = table.order_acked(LIVE, 0xFFFF_FFFF)
    assert effect.is_progress
    assert table.last_ack == 1
    table.dispatch(1)
    assert table.session_acked([], [102]) == []
    assert len(table) == 2


@pytest.mark.spec("QB-3.1.6.5-01", "QB-3.1.7.1.3-02")
def test_resend_repeats_every_transactional_message_with_its_number() -> None:
    table = table_of(1, 2, 3)
    table.add(50)
    table.dispatch(4)
    table.session_acked([], [101, 102])
    table.resend_transactional()
    # The other message is in flight and stays so.
    assert table.dispatch(10) == [101, 102, 103]
    assert table.previous_numbers([101, 102, 103]) == [0, 1, 2]
    assert table.order_acked(LIVE, 3).ended == []
    assert table.session_acked([], [101, 102, 103]) == [101, 102, 103]


@pytest.mark.spec("QB-3.1.7.1.3-02", "QB-3.1.1.5-01", "MQ-2.2.20.5-13")
def test_previous_number_bridges_gaps() -> None:
    table = table_of(1, 2, 3, 4)
    assert table.dispatch(2) == [101, 102]
    assert table.previous_numbers([101, 102]) == [0, 1]
    table.remove(103)
    # 3 expired before it was sent.
    assert table.dispatch(1) == [104]
    assert table.previous_numbers([104]) == [2]
    table.remove(102)
    table.remove(101)
    table.resend_transactional()
    assert table.dispatch(1) == [104]
    assert table.previous_numbers([104]) == [0]
    with pytest.raises(SessionMisuse):
        table.previous_numbers([102])


@pytest.mark.spec("QB-3.1.1.5-02")
def test_first_sending_names_the_acknowledged_number_before_it() -> None:
    table = table_of(1)
    table.dispatch(1)
    table.order_acked(LIVE, 1)
    table.session_acked([], [101])
    assert (table.sequence, table.unacked_numbers) == (LIVE, [])
    table.add(102, 2)
    assert table.unacked_numbers == [], "it is not in the list before it was sent"
    assert table.dispatch(1) == [102]
    assert table.previous_numbers([102]) == [1]
    assert table.unacked_numbers == [2]
    for number in (3, 4):
        table.add(100 + number, number)
    assert table.dispatch(2) == [103, 104]
    assert table.previous_numbers([103, 104]) == [2, 3], "none of these is acknowledged"
    assert table.unacked_numbers == [2, 3, 4]


@pytest.mark.spec("QB-3.1.3.2-04", "QB-3.1.6.1-02", "QB-3.1.1.6-01")
def test_a_new_session_sends_the_whole_table_again_in_order() -> None:
    table = table_of(1, 2)
    for token in (7, 8, 9):
        table.add(token)
    assert table.dispatch(10) == [101, 102, 7, 8, 9]
    table.session_acked([7], [101, 102])
    table.session_ended()
    # Acknowledgements of the session that is gone count no more; the numbers stay (QB-A1).
    assert table.dispatch(10) == [101, 102, 8, 9]
    table.order_acked(LIVE, 1)
    table.session_ended()
    assert table.dispatch(10) == [101, 102, 8, 9]
    assert table.session_acked([8, 9], [101, 102]) == [8, 9]
    assert table.order_acked(LIVE, 2).ended == [101, 102]
    # What was sent before counts as not sent yet, under the numbers that it had.
    table.add(103, 3)
    table.add(104, 4)
    for token in (10, 11):
        table.add(token, priority=token - 6)
    for _ in range(2):
        assert [table.dispatch(10) for _ in range(3)] == [[11], [10], [103, 104]]
        assert table.previous_numbers([103, 104]) == [2, 3]
        table.session_ended()


@pytest.mark.spec("QB-3.1.5.5.1-02", "QB-3.1.7.12-03")
def test_only_what_is_neither_in_flight_nor_acknowledged_is_dispatched() -> None:
    table = table_of(0, 1)
    table.add(7)
    # Appended with all attributes FALSE and without numbers of a session: all are to be sent.
    assert table.dispatch(2) == [100, 101]
    assert table.dispatch(2) == [7]
    assert table.dispatch(2) == []
    table.session_acked([100], [101])
    assert table.dispatch(2) == []
    table.withdrawn([7, 101])
    assert table.dispatch(2) == [7]
    # It went out, was taken back and is acknowledged after all.
    table.withdrawn([7])
    table.session_acked([], [7])
    assert table.dispatch(2) == []


@pytest.mark.spec("QB-3.1.1.3.1.1-01")
def test_unacked_sequence_is_sorted_and_shrinks_from_the_front() -> None:
    table = table_of(2, 5, 9)
    assert table.unacked_numbers == []
    table.dispatch(3)
    assert table.unacked_numbers == [2, 5, 9]
    assert table.order_acked(LIVE, 5).unacked == 1
    assert table.unacked_numbers == [9]
    assert not table.order_acked(LIVE, 2).is_progress
    assert table.unacked_numbers == [9]


@pytest.mark.spec("QB-3.1.1.3.1.2-01")
def test_what_is_known_of_an_outgoing_message() -> None:
    """AwaitingAck, Transmitted, ReceivedSessionAck, ReceivedOrderAck and the numbers each tell."""
    table = table_of(0, 1, 2)
    # AwaitingAck: what is in flight is not dispatched; Transmitted: it bridges gaps from then on.
    assert table.dispatch(3) == [100, 101, 102]
    assert table.dispatch(3) == []
    # TxSequenceNumber: 0 is none, and no OrderAck ends it.
    assert table.order_acked(LIVE, 2).ended == []
    # ReceivedOrderAck is set, and ReceivedSessionAck ends the entry.
    assert table.session_acked([], [101, 102]) == [101, 102]
    # Transmitted: sent for the first time, a number follows the acknowledged one before it; sent
    # again, it is the first of what is left.
    table = table_of(4, 5)
    assert table.dispatch(2) == [104, 105]
    assert table.session_acked([], [104]) == []
    assert table.order_acked(LIVE, 4).ended == [104]
    assert table.previous_numbers([105]) == [4]
    table.resend_transactional()
    assert table.dispatch(2) == [105]
    assert table.previous_numbers([105]) == [0]
    # RecoverableSequenceNumber, SequenceNumber: an express message is counted, not named.
    driven = open_initiator()
    driven.offer(1, 1, KIND_EXPRESS)
    driven.offer(2, 1, KIND_RECOVERABLE)
    driven.out()
    driven.feed(ack(1))
    assert driven.event(AcksReceived).released == [1]
    assert driven.session.in_flight == 1
    driven.feed(ack(2, 1, 1))
    assert driven.event(AcksReceived).released == [2]


@pytest.mark.spec("QB-3.1.7.16-01", "QB-3.1.7.1.6-01")
def test_what_was_sent_leaves_the_dispatch_collection_until_the_session_ends() -> None:
    table = OutgoingTable()
    for token in (1, 2, 3):
        table.add(token)
    driven = open_initiator(window=2)
    tokens = table.dispatch(driven.session.room)
    driven.session.offer(tokens, messages(1, 2))
    driven.out()
    assert tokens == [1, 2]
    assert table.dispatch(9) == [3]
    driven.session.close(CloseReason.DISCONNECTED)
    assert driven.closed() is CloseReason.DISCONNECTED
    assert driven.out() == []
    table.session_ended()
    assert table.dispatch(9) == [1, 2, 3]


def parsed(packet: bytes | None) -> UserMessage:
    assert packet is not None
    return parse_user_message(packet, 0, len(packet))[0]


def test_an_own_message_gets_what_was_committed_for_it() -> None:
    stored = write_packet(message(1, KIND_TRANSACTIONAL))
    sequence = TxSequenceId(time_stamp=70, ordinal=8)
    ready = parsed(own_packet(stored, 4711, 1_700_000_000, Numbers(sequence, 9, 6)))
    assert ready.user_header.message_id == 4711
    assert ready.user_header.sent_time == 1_700_000_000
    assert ready.transaction is not None
    assert ready.transaction.tx_sequence_id == sequence
    assert ready.transaction.tx_sequence_number == 9
    assert ready.transaction.previous_tx_sequence_number == 6
    plain = write_packet(message(1, KIND_RECOVERABLE))
    assert parsed(own_packet(plain, 3, 4)).user_header.message_id == 3
    with pytest.raises(ValueOutOfRange):
        own_packet(plain, 3, 4, Numbers(sequence, 9, 6))


def test_misuse_of_the_table() -> None:
    table = table_of(3)
    with pytest.raises(SessionMisuse):
        table.add(103)
    with pytest.raises(SessionMisuse):
        table.add(102, 2)
    with pytest.raises(SessionMisuse):
        table.start_sequence(LIVE + 1)
    with pytest.raises(SessionMisuse):
        OutgoingTable().add(1, 1)
