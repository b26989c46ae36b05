"""What the replicated values may say: numbers of the specifications, fields of records."""

import inspect
from enum import IntEnum

import msgspec
import pytest

from qm.model.values import elements, event_records, records
from qm.model.values.elements import LockKind
from qm.model.values.records import Lock, OutgoingPosition, Record, decode, encode
from qm.model.values.results import RequestResult, consecutive_runs
from qm.model.values.rows import ResultKind

KINDS = [
    kind
    for _, kind in inspect.getmembers(elements, inspect.isclass)
    if issubclass(kind, IntEnum) and kind.__module__ == elements.__name__
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_name_stands_for_anothers_value(kind: type[IntEnum]) -> None:
    assert len(list(kind)) == len(kind.__members__)


@pytest.mark.parametrize("kind", Record.__subclasses__(), ids=lambda kind: kind.__name__)
def test_what_a_record_does_not_say_is_never_below_nothing(kind: type[Record]) -> None:
    defaults = [field.default for field in msgspec.structs.fields(kind)]
    assert not [value for value in defaults if isinstance(value, int) and value < 0]
    assert kind.__module__ in (records.__name__, event_records.__name__)


def test_a_record_with_a_field_too_many_is_refused() -> None:
    row = encode(Lock(LockKind.TX_DEQUEUE, b"owner", 3))
    fields = msgspec.msgpack.decode(row)
    assert decode(Lock, row).number == 3
    with pytest.raises(msgspec.ValidationError):
        decode(Lock, msgspec.msgpack.encode([*fields, 0]))


def test_results_of_consecutive_numbers_share_a_row() -> None:
    results = [
        RequestResult(number, 0, 0, ResultKind.RECEIVED, value=value)
        for number, value in ((1, None), (2, None), (3, b"alone"), (4, None), (7, None), (6, None))
    ]
    runs = consecutive_runs(results)
    assert [[one.number for one in run] for run in runs] == [[1, 2], [3], [4], [7], [6]]


def test_an_outgoing_position_begins_without_numbers() -> None:
    assert encode(OutgoingPosition()) == encode(OutgoingPosition(0, 0, 0))
    assert OutgoingPosition().sequence_identifier == 0
