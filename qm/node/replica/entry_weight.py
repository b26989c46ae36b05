"""How many positions a command touches, so that no entry touches too many (DESIGN 1.6).

Commands bound what each of them touches; what shares an entry is bounded here, by the leader, as it
knows the state. Weights are estimates: what is still in flight may add to a transaction. They
decide where an entry ends, never what comes of it.
"""

from collections.abc import Callable
from typing import Any, Final

from qm.model.clients.clients import client_key
from qm.model.clients.transactions import TRANSACTION_RECORD
from qm.model.delivery import BATCH_MAX
from qm.model.queries import View
from qm.model.state.tables import Table
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, READS_PER_CLIENT_MAX
from qm.model.values.records import Client, Transaction, decode
from qm.store.codec import UnknownCommand, peek_command

_KEY_BYTES: Final = 8
_POSITIONS_OF_A_MOVE: Final = 2

Weigh = Callable[[Any], int]
"""Takes a command's message."""


class Weights:
    """Weighs encoded commands."""

    def __init__(self, view: Callable[[], View]) -> None:
        """`view`: of what is applied here."""
        self._view = view
        self._rules: dict[str, Weigh] = _RULES | {
            "receive_run": self._run,
            "tx_commit": self._transaction,
            "tx_abort": self._transaction,
            "close_client": self._client,
        }

    def of(self, payload: bytes) -> int:
        """Return how many positions a command may touch, at least 1."""
        try:
            op, message = peek_command(payload)
        except UnknownCommand:
            return 1  # whoever proposes it hears of that
        rule = self._rules.get(op)
        return 1 if rule is None else max(1, min(rule(message), POSITIONS_PER_ENTRY_MAX))

    def _run(self, message: Any) -> int:
        """Whoever receives by credit asks for much more than there is."""
        queue = self._view().queue(message.queue_id)
        return 1 if queue is None else min(int(message.count), queue.count())

    def _transaction(self, message: Any) -> int:
        row = self._view().ledger.state.get(
            Table.TRANSACTION, TRANSACTION_RECORD + message.transaction
        )
        if row is None:
            return 1
        return decode(Transaction, row).operation_count * _POSITIONS_OF_A_MOVE

    def _client(self, message: Any) -> int:
        """Its unconfirmed results become dead letters, what it borrowed goes back."""
        row = self._view().ledger.state.get(Table.CLIENT, client_key(message.client_id))
        if row is None:
            return 1
        return decode(Client, row).unconfirmed_count + READS_PER_CLIENT_MAX


def _keys(message: Any) -> int:
    return len(message.lookup_identifiers) // _KEY_BYTES


def _count(message: Any) -> int:
    return int(message.count)


_RULES: Final[dict[str, Weigh]] = {
    "send": lambda message: len(message.targets),
    "edge_batch": lambda message: len(message.facts_of),
    "cancel_requests": _count,
    "move": lambda _: _POSITIONS_OF_A_MOVE,
    "purge_step": _count,
    "clock_tick": _count,
    "assign_transfer": _keys,
    "transfer_acked": _keys,
    "transfer_failed": _keys,
    "order_acked": lambda _: BATCH_MAX,
    "final_acked": lambda message: len(message.message_ordinals) // _KEY_BYTES,
    "transfer_traced": lambda message: len(message.message_ordinals) // _KEY_BYTES,
    "renumber_step": _count,
}
"""By op; every other command weighs 1."""
