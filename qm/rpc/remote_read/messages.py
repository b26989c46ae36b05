"""What a remote reader is told of a message: its packet, its place, when it came."""

from functools import partial
from typing import Final

import msgspec

from qm.api.data.batches import Bodies, columns_of_positions
from qm.api.data.sessions import Sessions
from qm.api.data.waits import Waits
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.queries import find_by_format_name, get_peer, returns_of
from qm.model.values.elements import QueueKind
from qm.model.values.records import Obligation
from qm.model.values.results import MessageColumns, RequestResult, columns_of
from qm.model.values.rows import PositionFlag
from qm.rpc.queue_formats import full_path
from qm.rpc.remote_read.actions import SEQUENCE_MASK
from qm.rpc.remote_read.interface import StartOut
from qm.rpc.remote_read.opened import CLEANUP_AFTER_S
from qm.rpc.remote_read.reading import Found
from qm.rpc.remote_read.sections import Trailing, reader_packet, sections_of
from qm.wire.codes import MQ_OK
from qm.wire.guid import Guid

_HAS_OBLIGATION: Final = int(PositionFlag.HAS_OBLIGATION)
_NO_OBLIGATION: Final = Obligation()


class ReadPorts(msgspec.Struct, frozen=True):
    """What remote read needs of the API, whose readers stand in the same lines."""

    cluster: Cluster
    proposer: Proposer
    sessions: Sessions
    waits: Waits
    bodies: Bodies


class ReadSettings(msgspec.Struct, frozen=True):
    """What a deployment chooses."""

    cleanup_after_s: float = CLEANUP_AFTER_S
    """From lending to return, if the client does not end its read [MS-MQRR 3.1.2.2]."""
    trailing_headers: bool = True
    """Whether the four headers behind the message are sent (RP-A36)."""


class ReaderMessages:
    """Makes answers of messages."""

    def __init__(self, ports: ReadPorts, settings: ReadSettings) -> None:
        self._ports = ports
        self._settings = settings

    def is_here(self, columns: MessageColumns) -> bool:
        """Whether this node holds a message by now."""
        return self._ports.bodies.are_here(columns)

    async def told_later(
        self, local: str, queue_id: int, found: Found, columns: MessageColumns, body_max: int
    ) -> StartOut:
        """As `told`, once this node holds the message, restored from another one if it is damaged
        here. Raises ApiError, Unavailable, KeyError, BodyDamaged.
        """
        await self._ports.bodies.ready(columns)
        given = (local, queue_id, found, columns, body_max)
        return await self._ports.bodies.healed(partial(self.told, *given))

    def told(
        self, local: str, queue_id: int, found: Found, columns: MessageColumns, body_max: int
    ) -> StartOut:
        """Return the answer with a message that is lent, or was seen, and is here.

        `local`: address that the reader has called. `body_max`: bytes of the body that it takes.
        Raises Unavailable, KeyError, BodyDamaged.
        """
        stored = self._ports.bodies.of_all(columns).block
        address = self._sender_address(local, found.source_queue_manager)
        trailing = self._trailing(queue_id, found) if self._settings.trailing_headers else None
        packet = reader_packet(stored, address=address, trailing=trailing)
        sections = sections_of(packet, body_max)
        sequence = found.lookup_identifier & SEQUENCE_MASK
        return StartOut(found.arrival_time, sequence, len(sections), sections, MQ_OK)

    def _trailing(self, queue_id: int, found: Found) -> Trailing:
        """Return what is told of where a message stands."""
        known = _NO_OBLIGATION
        if found.flags & _HAS_OBLIGATION:
            view = self._ports.cluster.view
            known = returns_of(view, queue_id, found.lookup_identifier) or known
        name, is_valid = self._dead_letter_queue(known.application_deadletter_queue)
        return Trailing(self._subqueue(queue_id), known.aborts, known.moves, name, is_valid)

    def _dead_letter_queue(self, format_name: str) -> tuple[str, bool]:
        """Return the path of a message's own dead-letter queue, and whether it can take it."""
        view = self._ports.cluster.view
        found = find_by_format_name(view, format_name).queue_id if format_name else 0
        queue, manager = view.ledger.queue(found) if found else None, view.ledger.manager
        if queue is None or manager is None or queue.record.kind is not QueueKind.APPLICATION:
            return format_name, False
        is_valid = queue.record.transactional and not queue.record.is_deleting
        return full_path(manager.computer_name, queue.record.pathname), is_valid

    def _sender_address(self, local: str, queue_manager: Guid) -> str:
        """Return the address that a queue manager speaks from, "" if that is not known.

        One that is bound to none, or pinned to networks, was counted where it was first seen. What
        this cluster's clients sent is from where the reader has found it.
        """
        view = self._ports.cluster.view
        manager = view.ledger.manager
        if manager is not None and manager.identifier == queue_manager:
            return local
        peer = get_peer(view, queue_manager)
        return "" if peer is None else peer.address or peer.counted_at

    def _subqueue(self, queue_id: int) -> str:
        queue = self._ports.cluster.view.ledger.queue(queue_id)
        if queue is None or queue.record.kind is not QueueKind.SUBQUEUE:
            return ""
        return queue.record.pathname.rpartition(";")[2]


def columns_of_found(found: Found) -> MessageColumns:
    """Return one message as columns."""
    if isinstance(found, RequestResult):
        return columns_of([found])
    return columns_of_positions([found])
