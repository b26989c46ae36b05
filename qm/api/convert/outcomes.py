"""Results of commands with their types restored; from another node sequences come as lists."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from qm.model.values.effects import Outcome
from qm.model.values.results import MessageColumns, RequestResult, ResultRow, columns_of
from qm.model.values.rows import ResultKind

_MESSAGES = (ResultKind.RECEIVED, ResultKind.BORROWED)


def numbers_of(outcome: Outcome) -> tuple[int, ...]:
    """Return a value that is a row of integers."""
    value: Any = outcome.value
    return tuple(value)


def number_of(outcome: Outcome) -> int:
    """Return a value that is one integer, 0 for none."""
    value: Any = outcome.value
    return int(value or 0)


def sent(outcome: Outcome) -> tuple[int, list[tuple[int, int]]]:
    """Return (MessageID, [(queue_id, LookupIdentifier), ...]) of a Send, (0, []) for none."""
    value: Any = outcome.value
    if value is None:
        return 0, []
    ordinal, places = value
    return ordinal, [(queue_id, key) for queue_id, key in places]


def results_of(outcome: Outcome) -> Sequence[RequestResult]:
    """Return the results of a ReceiveRun or CancelRequests, ascending by number."""
    value: Any = outcome.value
    if value is None:
        return ()
    results: Sequence[RequestResult] = value.unpack() if isinstance(value, ResultRow) else value
    return results


class Answers(NamedTuple):
    """Results of a run of numbers."""

    numbers: Sequence[int]
    """Numbers that have a result, ascending."""
    messages: MessageColumns
    others: Sequence[int]
    """Numbers with only a status."""


def answers_of(outcome: Outcome) -> Answers:
    """Return the results of a ReceiveRun or CancelRequests in columns."""
    value: Any = outcome.value
    if isinstance(value, ResultRow):
        columns = value.columns()
        return Answers(columns.numbers, columns, ())
    results = results_of(outcome)
    return Answers(
        [result.number for result in results],
        columns_of([result for result in results if has_message(result)]),
        [result.number for result in results if not has_message(result)],
    )


def has_message(result: RequestResult) -> bool:
    """Whether a number got a message rather than only a status."""
    return result.kind in _MESSAGES
