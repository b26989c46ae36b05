"""How much of what is limited belongs to one principal, so that none takes everything.

Rows beside what is counted say whose it is; what is older than VERSION_OF_BINDINGS has none and is
not counted.
"""

from typing import Final

from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.limits import VERSION_OF_BINDINGS
from qm.model.values.records import PrincipalUse
from qm.model.values.rows import QUEUE_KEY

META_PRINCIPAL: Final = b"principal/"
"""Precedes a principal's name or SID, in META."""
META_QUEUE_OF: Final = b"queue of/"
"""Precedes the queue_id of a counted queue, in META: its creator's SID."""
META_CLIENT_OF: Final = b"client of/"
"""Precedes a counted client's key, in META: its principal's name."""


class Principals:
    """Counts clients' sessions by principals' names, and queues by their creators' SIDs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def use(self, principal: bytes) -> PrincipalUse:
        """Return what belongs to a principal, by its name or SID."""
        key = META_PRINCIPAL + principal
        return self._ledger.record(Table.META, key, PrincipalUse) or PrincipalUse()

    def add_client(self, client_key: bytes, name: str) -> None:
        """A client's session was opened; it is counted once until it is forgotten."""
        ledger, key = self._ledger, META_CLIENT_OF + client_key
        if ledger.behaviour < VERSION_OF_BINDINGS or ledger.state.get(Table.META, key) is not None:
            return
        ledger.state.put(Table.META, key, name.encode())
        self._count(name.encode(), clients=1)

    def remove_client(self, client_key: bytes) -> None:
        """A client was forgotten."""
        state, key = self._ledger.state, META_CLIENT_OF + client_key
        name = state.get(Table.META, key)
        if name is not None:
            state.delete(Table.META, key)
            self._count(name, clients=-1)

    def add_queue(self, queue_id: int, creator: bytes) -> None:
        """A principal created a queue."""
        if self._ledger.behaviour >= VERSION_OF_BINDINGS and creator:
            key = META_QUEUE_OF + QUEUE_KEY.pack(queue_id)
            self._ledger.state.put(Table.META, key, creator)
            self._count(creator, queues=1)

    def remove_queue(self, queue_id: int) -> None:
        """A queue is gone."""
        state, key = self._ledger.state, META_QUEUE_OF + QUEUE_KEY.pack(queue_id)
        creator = state.get(Table.META, key)
        if creator is not None:
            state.delete(Table.META, key)
            self._count(creator, queues=-1)

    def _count(self, principal: bytes, *, clients: int = 0, queues: int = 0) -> None:
        use, key = self.use(principal), META_PRINCIPAL + principal
        use.client_count += clients
        use.queue_count += queues
        if use.client_count or use.queue_count:
            self._ledger.put_record(Table.META, key, use)
        else:
            self._ledger.state.delete(Table.META, key)
