"""The entries of an outgoing queue, by what acknowledgements end."""

from qm.session.outgoing_table import OutgoingTable

SEQUENCE = 7 << 32


def test_an_entry_that_was_sent_twice_ends_once() -> None:
    """Transactional Ack Wait expired before the session acknowledged the first copy."""
    table = OutgoingTable()
    table.start_sequence(SEQUENCE)
    for token in (1, 2):
        table.add(token, tx_number=token)
    assert table.dispatch(9) == [1, 2]
    table.resend_transactional()
    assert table.dispatch(9) == [1, 2]
    assert table.order_acked(SEQUENCE, 1).ended == []
    assert table.session_acked([], [1, 2, 1, 2]) == [1]
    assert table.order_acked(SEQUENCE, 2).ended == [2]
    assert len(table) == 0
