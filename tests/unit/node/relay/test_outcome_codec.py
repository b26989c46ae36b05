"""Outcomes between nodes keep what they say."""

from array import array

import pytest

from qm.model.values.effects import Outcome
from qm.model.values.results import RequestResult, ResultRow
from qm.node.relay.outcome_codec import decode_outcome, encode_outcome
from qm.pb import relay_pb2


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(0),
        Outcome(0xC00E_0003, None, None),
        Outcome(0, array("H", [0, 1, 0x8003, 4])),
        Outcome(0, None, True),
        Outcome(0, None, [7, "text", b"bytes", {"a": 1}]),
        Outcome(0, None, [RequestResult(1, 0), RequestResult(2, 5, value=[1, "x"])]),
    ],
)
def test_what_is_encoded_is_decoded(outcome: Outcome) -> None:
    message = relay_pb2.OutcomeValue.FromString(encode_outcome(outcome).SerializeToString())
    assert decode_outcome(message) == outcome


def test_tuples_arrive_as_lists_and_packed_rows_as_rows() -> None:
    row = ResultRow(RequestResult(9, 0).pack(), 1234)
    outcome = decode_outcome(encode_outcome(Outcome(0, None, (3, row))))
    assert isinstance(outcome.value, list)
    number, decoded = outcome.value
    assert number == 3
    assert (decoded.packed, decoded.body_bytes) == (row.packed, 1234)


def test_what_this_build_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="upgrade"):
        decode_outcome(relay_pb2.OutcomeValue(value=b"\xd4\x63\x00"))
