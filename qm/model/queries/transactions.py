"""Transactions (3.1.1.14): undecided, decided and in doubt."""

from collections.abc import Collection

import msgspec

from qm.model.clients.transactions import OPERATION_KEY, TRANSACTION_ID_BYTES, TRANSACTION_RECORD
from qm.model.queries.view import Page, View, Walk, page_size
from qm.model.state.tables import Table
from qm.model.values.elements import OperationType, TransactionState
from qm.model.values.records import Transaction, TransactionalOperation, decode

_ID_END = b"\xff" * 17


class TransactionInfo(msgspec.Struct, frozen=True):
    """One transaction. It is in doubt when it is PREPARED and its outcome does not come."""

    identifier: bytes
    state: TransactionState
    is_single_phase: bool
    owner: str
    """Client id."""
    coordinator: str
    operation_count: int
    deadline_ms: int
    """Cluster time of its inactivity abort; once decided, when the outcome is forgotten."""
    outcome_ms: int
    """Cluster time of the outcome, 0 = none yet."""


class OperationInfo(msgspec.Struct, frozen=True):
    """One TransactionalOperation (3.1.1.13)."""

    number: int
    operation_type: OperationType
    queue_id: int
    lookup_identifier: int
    target_queue_id: int
    """Target of a move; else 0."""


def list_transactions(
    view: View,
    *,
    after: bytes = b"",
    limit: int = 100,
    states: Collection[TransactionState] | None = None,
) -> Page[TransactionInfo, bytes]:
    """Return transactions by identifier: those in `states`, or all."""
    wanted = page_size(limit)
    low = TRANSACTION_RECORD + (after + b"\0" if after else b"")
    high = TRANSACTION_RECORD + _ID_END
    walk = Walk(view.ledger.state, Table.TRANSACTION, low, high)
    items: list[TransactionInfo] = []
    last = after
    for key, row in walk:
        if len(items) == wanted:
            return Page(items, last)
        last = key[len(TRANSACTION_RECORD) :]
        record = decode(Transaction, row)
        if states is None or record.state in states:
            items.append(_info(last, record))
    return Page(items, last if walk.is_cut else None)


def get_transaction(view: View, identifier: bytes) -> TransactionInfo | None:
    """Return one transaction, None if it is not known (any more)."""
    record = view.ledger.record(Table.TRANSACTION, TRANSACTION_RECORD + identifier, Transaction)
    return None if record is None else _info(identifier, record)


def _info(identifier: bytes, record: Transaction) -> TransactionInfo:
    return TransactionInfo(
        identifier,
        record.state,
        record.single_phase,
        record.owner,
        record.coordinator,
        record.operation_count,
        record.deadline_ms,
        record.outcome_ms,
    )


def transaction_operations(
    view: View, identifier: bytes, *, after: int = -1, limit: int = 100
) -> Page[OperationInfo, int]:
    """Return the operations of an undecided transaction in their order."""
    if len(identifier) != TRANSACTION_ID_BYTES:
        return Page([], None)
    low = OPERATION_KEY.pack(identifier, min(max(after, -1) + 1, 0xFFFF))
    high = OPERATION_KEY.pack(identifier, 0xFFFF) + b"\0"
    rows, has_more = view.rows_after(Table.OPERATION, low, high, page_size(limit))
    items = []
    for key, row in rows:
        number = OPERATION_KEY.unpack(key)[1]
        one = decode(TransactionalOperation, row)
        items.append(
            OperationInfo(
                number,
                one.operation_type,
                one.queue_id,
                one.lookup_identifier,
                one.target_queue,
            )
        )
    return Page(items, items[-1].number if has_more else None)
