"""How many positions a command touches, so that no entry touches too many (DESIGN 1.6).

Commands bound what each of them touches; the leader bounds here what an entry's commands touch
together, by the state it knows. Weights are estimates: commands in flight may add to a transaction.
They decide where an entry ends, never its effects. Each command's declaration names its rule.
"""

from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from qm.model.clients.clients import client_key
from qm.model.clients.transactions import TRANSACTION_RECORD
from qm.model.queries import View
from qm.model.state.tables import Table
from qm.model.values.columns import typecode_of
from qm.model.values.commands import (
    DECLARATIONS,
    POSITIONS_PER_MOVE,
    AtMostQueued,
    Declaration,
    Fixed,
    OfClient,
    OfTransaction,
    RowsOf,
    ValueOf,
)
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, READS_PER_CLIENT_MAX
from qm.model.values.records import Client, Transaction, decode
from qm.store.codec import Inspected

Weigh = Callable[[Any], int]
"""Computes a weight from a command's message."""


class Weights:
    """Weighs encoded commands."""

    def __init__(self, view: Callable[[], View]) -> None:
        """`view` returns a view of the state applied here."""
        self._view = view
        self._rules = {d.op: self._rule(d) for d in DECLARATIONS.values()}

    def of(self, command: Inspected) -> int:
        """Return how many positions a command may touch, at least 1."""
        return max(1, min(self._rules[command.op](command.message), POSITIONS_PER_ENTRY_MAX))

    def _rule(self, declaration: Declaration) -> Weigh:
        match declaration.weight:
            case Fixed(positions):
                return lambda _: positions
            case ValueOf(field):
                return attrgetter(field)
            case RowsOf(field, each):
                return _rows(declaration, field, each)
            case AtMostQueued(field, queue):
                return lambda of: self._queued(getattr(of, queue), getattr(of, field))
            case OfTransaction(field):
                return lambda message: self._transaction(getattr(message, field))
            case OfClient(field):
                return lambda message: self._client(getattr(message, field))

    def _queued(self, queue_id: int, wanted: int) -> int:
        queue = self._view().queue(queue_id)
        return 1 if queue is None else min(wanted, queue.count())

    def _transaction(self, identifier: bytes) -> int:
        row = self._view().ledger.state.get(Table.TRANSACTION, TRANSACTION_RECORD + identifier)
        if row is None:
            return 1
        return decode(Transaction, row).operation_count * POSITIONS_PER_MOVE

    def _client(self, client_id: str) -> int:
        row = self._view().ledger.state.get(Table.CLIENT, client_key(client_id))
        if row is None:
            return 1
        return decode(Client, row).unconfirmed_count + READS_PER_CLIENT_MAX


def _rows(declaration: Declaration, name: str, each: int) -> Weigh:
    """Count rows: columns are bytes in a command's message, other sequences have items."""
    types = {field.name: field.type for field in msgspec.structs.fields(declaration.kind)}
    typecode = typecode_of(types[name])
    row_bytes = 1 if typecode is None else array(typecode).itemsize
    return lambda message: len(getattr(message, name)) // row_bytes * each
