"""Every read method of MSMQQueue over a real node [MC-MQAC 3.11.4.1.7 to .33], rule by rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qm.client.mqac import MSMQService
from tests.conformance import mqac_reads as reads
from tests.conformance.mqac_world import serving


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


@pytest.mark.spec("AC-3.11.4.1.7-01", "AC-3.11.4.1.7-02", "AC-3.11.4.1.7-03", "AC-3.11.4.1.7-05")
def test_receive_v1_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "Receive_v1")
    reads.may_be_read(service, "Receive_v1")
    reads.same_as(service, "Receive_v1", "Receive")
    reads.refuses_other_transactions(service, "Receive_v1")


@pytest.mark.spec("AC-3.11.4.1.7-04", "AC-3.11.4.1.7-06", "AC-3.11.4.1.7-07", "AC-3.11.4-07")
def test_receive_v1_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "Receive_v1")
    reads.finds_nothing(service, "Receive_v1")
    reads.waits(service, "Receive_v1")


@pytest.mark.spec("AC-3.11.4.1.7-08", "AC-3.11.4.1.7-09", "AC-3.11.4.1.7-10")
def test_receive_v1_takes_a_message(service: MSMQService) -> None:
    reads.locks(service, "Receive_v1")
    reads.journals(service, "Receive_v1")


@pytest.mark.spec("AC-3.11.4.1.8-01", "AC-3.11.4.1.8-02", "AC-3.11.4.1.8-03")
def test_peek_v1_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "Peek_v1")
    reads.same_as(service, "Peek_v1", "Peek")
    reads.may_be_read(service, "Peek_v1")


@pytest.mark.spec("AC-3.11.4.1.8-04", "AC-3.11.4.1.8-05", "AC-3.11.4.1.8-06", "AC-3.11.4-07")
def test_peek_v1_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "Peek_v1")
    reads.finds_nothing(service, "Peek_v1")
    reads.waits(service, "Peek_v1")


@pytest.mark.spec(
    "AC-3.11.4.1.11-01", "AC-3.11.4.1.11-02", "AC-3.11.4.1.11-03", "AC-3.11.4.1.11-05"
)
def test_receive_current_v1_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveCurrent_v1")
    reads.may_be_read(service, "ReceiveCurrent_v1")
    reads.same_as(service, "ReceiveCurrent_v1", "ReceiveCurrent")
    reads.refuses_other_transactions(service, "ReceiveCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.11-04", "AC-3.11.4.1.11-06", "AC-3.11.4.1.11-07", "AC-3.11.4-07")
def test_receive_current_v1_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveCurrent_v1")
    reads.finds_nothing(service, "ReceiveCurrent_v1")
    reads.waits(service, "ReceiveCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.11-08", "AC-3.11.4.1.11-09")
def test_receive_current_v1_goes_by_the_cursor(service: MSMQService) -> None:
    reads.misses_its_own(service, "ReceiveCurrent_v1")
    reads.advances(service, "ReceiveCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.11-10", "AC-3.11.4.1.11-11")
def test_receive_current_v1_takes_a_message(service: MSMQService) -> None:
    reads.locks(service, "ReceiveCurrent_v1")
    reads.journals(service, "ReceiveCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.12-01", "AC-3.11.4.1.12-02", "AC-3.11.4.1.12-03")
def test_peek_next_v1_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekNext_v1")
    reads.same_as(service, "PeekNext_v1", "PeekNext")
    reads.may_be_read(service, "PeekNext_v1")


@pytest.mark.spec("AC-3.11.4.1.12-04", "AC-3.11.4.1.12-05", "AC-3.11.4.1.12-06", "AC-3.11.4-07")
def test_peek_next_v1_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekNext_v1")
    reads.finds_nothing(service, "PeekNext_v1")
    reads.waits(service, "PeekNext_v1")


@pytest.mark.spec("AC-3.11.4.1.12-07")
def test_peek_next_v1_needs_a_place(service: MSMQService) -> None:
    reads.needs_a_place(service, "PeekNext_v1")


@pytest.mark.spec("AC-3.11.4.1.13-01", "AC-3.11.4.1.13-02", "AC-3.11.4.1.13-03")
def test_peek_current_v1_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekCurrent_v1")
    reads.same_as(service, "PeekCurrent_v1", "PeekCurrent")
    reads.may_be_read(service, "PeekCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.13-04", "AC-3.11.4.1.13-05", "AC-3.11.4.1.13-06", "AC-3.11.4-07")
def test_peek_current_v1_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekCurrent_v1")
    reads.finds_nothing(service, "PeekCurrent_v1")
    reads.waits(service, "PeekCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.13-07")
def test_peek_current_v1_goes_by_the_cursor(service: MSMQService) -> None:
    reads.misses_its_own(service, "PeekCurrent_v1")


@pytest.mark.spec("AC-3.11.4.1.14-02", "AC-3.11.4.1.14-03", "AC-3.11.4.1.14-05")
def test_receive_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "Receive")
    reads.may_be_read(service, "Receive")
    reads.refuses_other_transactions(service, "Receive")


@pytest.mark.spec("AC-3.11.4.1.14-04", "AC-3.11.4.1.14-06", "AC-3.11.4.1.14-07", "AC-3.11.4-07")
def test_receive_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "Receive")
    reads.finds_nothing(service, "Receive")
    reads.waits(service, "Receive")


@pytest.mark.spec("AC-3.11.4.1.14-06")
def test_receive_in_a_transaction_finds_nothing_at_once(service: MSMQService) -> None:
    for name in ("Receive", "Receive_v1", "ReceiveCurrent"):
        reads.finds_nothing_in_a_transaction(service, name)


@pytest.mark.spec("AC-3.11.4.1.14-08", "AC-3.11.4.1.14-09")
def test_receive_takes_a_message(service: MSMQService) -> None:
    reads.locks(service, "Receive")
    reads.journals(service, "Receive")


@pytest.mark.spec("AC-3.11.4.1.15-02", "AC-3.11.4.1.15-03")
def test_peek_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "Peek")
    reads.may_be_read(service, "Peek")


@pytest.mark.spec("AC-3.11.4.1.15-04", "AC-3.11.4.1.15-05", "AC-3.11.4.1.15-06", "AC-3.11.4-07")
def test_peek_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "Peek")
    reads.finds_nothing(service, "Peek")
    reads.waits(service, "Peek")


@pytest.mark.spec("AC-3.11.4.1.16-02", "AC-3.11.4.1.16-03", "AC-3.11.4.1.16-05")
def test_receive_current_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveCurrent")
    reads.may_be_read(service, "ReceiveCurrent")
    reads.refuses_other_transactions(service, "ReceiveCurrent")


@pytest.mark.spec("AC-3.11.4.1.16-04", "AC-3.11.4.1.16-06", "AC-3.11.4.1.16-07", "AC-3.11.4-07")
def test_receive_current_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveCurrent")
    reads.finds_nothing(service, "ReceiveCurrent")
    reads.waits(service, "ReceiveCurrent")


@pytest.mark.spec("AC-3.11.4.1.16-08", "AC-3.11.4.1.16-09")
def test_receive_current_goes_by_the_cursor(service: MSMQService) -> None:
    reads.misses_its_own(service, "ReceiveCurrent")
    reads.advances(service, "ReceiveCurrent")


@pytest.mark.spec("AC-3.11.4.1.16-10", "AC-3.11.4.1.16-11")
def test_receive_current_takes_a_message(service: MSMQService) -> None:
    reads.locks(service, "ReceiveCurrent")
    reads.journals(service, "ReceiveCurrent")


@pytest.mark.spec("AC-3.11.4.1.17-02", "AC-3.11.4.1.17-03")
def test_peek_next_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekNext")
    reads.may_be_read(service, "PeekNext")


@pytest.mark.spec("AC-3.11.4.1.17-04", "AC-3.11.4.1.17-05", "AC-3.11.4.1.17-06", "AC-3.11.4-07")
def test_peek_next_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekNext")
    reads.finds_nothing(service, "PeekNext")
    reads.waits(service, "PeekNext")


@pytest.mark.spec("AC-3.11.4.1.17-07")
def test_peek_next_needs_a_place(service: MSMQService) -> None:
    reads.needs_a_place(service, "PeekNext")


@pytest.mark.spec("AC-3.11.4.1.18-02", "AC-3.11.4.1.18-03")
def test_peek_current_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekCurrent")
    reads.may_be_read(service, "PeekCurrent")


@pytest.mark.spec("AC-3.11.4.1.18-04", "AC-3.11.4.1.18-05", "AC-3.11.4.1.18-06", "AC-3.11.4-07")
def test_peek_current_waits_as_long_as_it_is_told(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekCurrent")
    reads.finds_nothing(service, "PeekCurrent")
    reads.waits(service, "PeekCurrent")


@pytest.mark.spec("AC-3.11.4.1.18-07")
def test_peek_current_goes_by_the_cursor(service: MSMQService) -> None:
    reads.misses_its_own(service, "PeekCurrent")


@pytest.mark.spec(
    "AC-3.11.4.1.21-02", "AC-3.11.4.1.21-03", "AC-3.11.4.1.21-04", "AC-3.11.4.1.21-06"
)
def test_receive_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveByLookupId")
    reads.may_be_read(service, "ReceiveByLookupId")
    reads.refuses_other_transactions(service, "ReceiveByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.21-05",
    "AC-3.11.4.1.21-07",
    "AC-3.11.4.1.21-08",
    "AC-3.11.4.1.21-09",
    "AC-3.11.4-07",
)
def test_receive_by_lookup_id_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveByLookupId")
    reads.finds_nothing(service, "ReceiveByLookupId")
    reads.locks(service, "ReceiveByLookupId")
    reads.journals(service, "ReceiveByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.22-02", "AC-3.11.4.1.22-03", "AC-3.11.4.1.22-04", "AC-3.11.4.1.22-06"
)
def test_receive_next_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveNextByLookupId")
    reads.may_be_read(service, "ReceiveNextByLookupId")
    reads.refuses_other_transactions(service, "ReceiveNextByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.22-05",
    "AC-3.11.4.1.22-07",
    "AC-3.11.4.1.22-08",
    "AC-3.11.4.1.22-09",
    "AC-3.11.4-07",
)
def test_receive_next_by_lookup_id_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveNextByLookupId")
    reads.finds_nothing(service, "ReceiveNextByLookupId")
    reads.locks(service, "ReceiveNextByLookupId")
    reads.journals(service, "ReceiveNextByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.23-02", "AC-3.11.4.1.23-03", "AC-3.11.4.1.23-04", "AC-3.11.4.1.23-06"
)
def test_receive_previous_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceivePreviousByLookupId")
    reads.may_be_read(service, "ReceivePreviousByLookupId")
    reads.refuses_other_transactions(service, "ReceivePreviousByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.23-05",
    "AC-3.11.4.1.23-07",
    "AC-3.11.4.1.23-08",
    "AC-3.11.4.1.23-09",
    "AC-3.11.4-07",
)
def test_receive_previous_by_lookup_id_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceivePreviousByLookupId")
    reads.finds_nothing(service, "ReceivePreviousByLookupId")
    reads.locks(service, "ReceivePreviousByLookupId")
    reads.journals(service, "ReceivePreviousByLookupId")


@pytest.mark.spec("AC-3.11.4.1.24-02", "AC-3.11.4.1.24-03", "AC-3.11.4.1.24-05")
def test_receive_first_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveFirstByLookupId")
    reads.may_be_read(service, "ReceiveFirstByLookupId")
    reads.refuses_other_transactions(service, "ReceiveFirstByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.24-04",
    "AC-3.11.4.1.24-06",
    "AC-3.11.4.1.24-07",
    "AC-3.11.4.1.24-08",
    "AC-3.11.4-07",
)
def test_receive_first_by_lookup_id_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveFirstByLookupId")
    reads.finds_nothing(service, "ReceiveFirstByLookupId")
    reads.locks(service, "ReceiveFirstByLookupId")
    reads.journals(service, "ReceiveFirstByLookupId")


@pytest.mark.spec("AC-3.11.4.1.25-02", "AC-3.11.4.1.25-03", "AC-3.11.4.1.25-05")
def test_receive_last_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveLastByLookupId")
    reads.may_be_read(service, "ReceiveLastByLookupId")
    reads.refuses_other_transactions(service, "ReceiveLastByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.25-04",
    "AC-3.11.4.1.25-06",
    "AC-3.11.4.1.25-07",
    "AC-3.11.4.1.25-08",
    "AC-3.11.4-07",
)
def test_receive_last_by_lookup_id_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveLastByLookupId")
    reads.finds_nothing(service, "ReceiveLastByLookupId")
    reads.locks(service, "ReceiveLastByLookupId")
    reads.journals(service, "ReceiveLastByLookupId")


@pytest.mark.spec(
    "AC-3.11.4.1.33-02", "AC-3.11.4.1.33-03", "AC-3.11.4.1.33-04", "AC-3.11.4.1.33-06"
)
def test_receive_by_lookup_id_allow_peek_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "ReceiveByLookupIdAllowPeek")
    reads.may_be_read(service, "ReceiveByLookupIdAllowPeek")
    reads.refuses_other_transactions(service, "ReceiveByLookupIdAllowPeek")


@pytest.mark.spec(
    "AC-3.11.4.1.33-05",
    "AC-3.11.4.1.33-07",
    "AC-3.11.4.1.33-08",
    "AC-3.11.4.1.33-09",
    "AC-3.11.4-07",
)
def test_receive_by_lookup_id_allow_peek_takes_a_message(service: MSMQService) -> None:
    reads.has_defaults(service, "ReceiveByLookupIdAllowPeek")
    reads.finds_nothing(service, "ReceiveByLookupIdAllowPeek")
    reads.locks(service, "ReceiveByLookupIdAllowPeek", is_visible=True)
    reads.journals(service, "ReceiveByLookupIdAllowPeek")


@pytest.mark.spec("AC-3.11.4.1.26-02", "AC-3.11.4.1.26-03", "AC-3.11.4.1.26-04")
def test_peek_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekByLookupId")
    reads.may_be_read(service, "PeekByLookupId")


@pytest.mark.spec("AC-3.11.4.1.26-05", "AC-3.11.4.1.26-06", "AC-3.11.4-07")
def test_peek_by_lookup_id_finds_or_fails_at_once(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekByLookupId")
    reads.finds_nothing(service, "PeekByLookupId")


@pytest.mark.spec("AC-3.11.4.1.27-02", "AC-3.11.4.1.27-03", "AC-3.11.4.1.27-04")
def test_peek_next_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekNextByLookupId")
    reads.may_be_read(service, "PeekNextByLookupId")


@pytest.mark.spec("AC-3.11.4.1.27-05", "AC-3.11.4.1.27-06", "AC-3.11.4-07")
def test_peek_next_by_lookup_id_finds_or_fails_at_once(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekNextByLookupId")
    reads.finds_nothing(service, "PeekNextByLookupId")


@pytest.mark.spec("AC-3.11.4.1.28-02", "AC-3.11.4.1.28-03", "AC-3.11.4.1.28-04")
def test_peek_previous_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekPreviousByLookupId")
    reads.may_be_read(service, "PeekPreviousByLookupId")


@pytest.mark.spec("AC-3.11.4.1.28-05", "AC-3.11.4.1.28-06", "AC-3.11.4-07")
def test_peek_previous_by_lookup_id_finds_or_fails_at_once(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekPreviousByLookupId")
    reads.finds_nothing(service, "PeekPreviousByLookupId")


@pytest.mark.spec("AC-3.11.4.1.29-02", "AC-3.11.4.1.29-03")
def test_peek_first_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekFirstByLookupId")
    reads.may_be_read(service, "PeekFirstByLookupId")


@pytest.mark.spec("AC-3.11.4.1.29-04", "AC-3.11.4.1.29-05", "AC-3.11.4-07")
def test_peek_first_by_lookup_id_finds_or_fails_at_once(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekFirstByLookupId")
    reads.finds_nothing(service, "PeekFirstByLookupId")


@pytest.mark.spec("AC-3.11.4.1.30-02", "AC-3.11.4.1.30-03")
def test_peek_last_by_lookup_id_is_guarded(service: MSMQService) -> None:
    reads.is_guarded(service, "PeekLastByLookupId")
    reads.may_be_read(service, "PeekLastByLookupId")


@pytest.mark.spec("AC-3.11.4.1.30-04", "AC-3.11.4.1.30-05", "AC-3.11.4-07")
def test_peek_last_by_lookup_id_finds_or_fails_at_once(service: MSMQService) -> None:
    reads.has_defaults(service, "PeekLastByLookupId")
    reads.finds_nothing(service, "PeekLastByLookupId")
