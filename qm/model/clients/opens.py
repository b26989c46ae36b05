"""Opening queues ([MS-MQDMPR] 3.1.7.1.5, .6): access, share modes, names.

Opens are replicated and end with their client, so that sharing holds across a change of leader.
Names that can be parsed but not delivered to yet (HTTP, multicast, lists, connectors) are refused
with the specification's code. Several elements are open together: one descriptor, which is what a
client has a handle of, and one nested in it for each element.
"""

from struct import Struct
from typing import Final

from qm.model.clients.clients import Clients, client_key
from qm.model.clients.expand_name import expand_format_name
from qm.model.management.administration import Administration
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.registry import Registry, Route
from qm.model.state.tables import State, Table
from qm.model.state.uses import PEEKS, SEND, may_open
from qm.model.values.commands import CloseQueue, OpenQueue
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueAccessType, QueueKind, QueueShareMode
from qm.model.values.limits import (
    OPEN_QUEUES_PER_CLIENT_MAX,
    TARGETS_PER_SEND_MAX,
    VERSION_OF_MULTIPLE_OPEN,
    VERSION_OF_OPEN_STATUS,
)
from qm.model.values.records import OpenQueueRow
from qm.names.direct import DirectName
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    SingleFormatName,
    format_name_text,
    parse_format_name,
)
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
NO_QUEUE: Final = 0
"""QueueReference of a descriptor for several queues."""
OPEN_RECORD_KEY: Final = Struct(">cQ")
"""OPEN_RECORD, handle u64."""
_BY_QUEUE: Final = Struct(">cIBBQ")
OPEN_RECORD, _INDEX, _OWNED, _NESTED = b"\x00", b"\x01", b"\x02", b"\x04"
"""\x03 precedes who holds a client's session."""
_HANDLE: Final = Struct(">Q")
_NESTED_KEY: Final = Struct(">cQQ")
"""_NESTED, handle u64 of the descriptor around, handle u64 of the one inside."""
_NESTED_COUNT: Final = Struct(">H")
_ADMIN: Final = (QueueAccessType.RECEIVE_ADMIN_ACCESS, QueueAccessType.PEEK_ADMIN_ACCESS)
READING: Final = (QueueAccessType.RECEIVE_ACCESS, QueueAccessType.RECEIVE_ADMIN_ACCESS)
"""Access types that can remove messages."""


def sharing_class(access: int) -> int:
    """Return 0 for senders, 1 for peeks, 2 for access that removes messages (DM-A21)."""
    if access == SEND:
        return 0
    return 1 if access in PEEKS else 2


def is_open(state: State, queue_id: int) -> bool:
    """Whether any client has the queue open, in any mode."""
    low = _BY_QUEUE.pack(_INDEX, queue_id, 0, 0, 0)
    high = _BY_QUEUE.pack(_INDEX, queue_id, 0xFF, 0xFF, 0)
    return bool(state.scan(Table.OPEN, low, high, 1))


class Opens:
    """The replicated part of every queue's OpenQueueDescriptorCollection."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        clients: Clients,
        outgoing: OutgoingQueues,
        administration: Administration,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._clients = clients
        self._outgoing = outgoing
        self._administration = administration

    def apply_open_queue(self, command: OpenQueue) -> Outcome:
        """Return (handle, queue_id) as value; the queue_id of several queues is 0."""
        try:
            access = QueueAccessType(command.access)
            share_mode = QueueShareMode(command.share_mode)
        except ValueError:
            return Outcome(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        try:
            name = parse_format_name(command.format_name)
        except QueueNameError as error:
            return Outcome(error.code)
        expanded = expand_format_name(name)
        if expanded is None:
            return Outcome(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
        name = expanded
        has_several = self._ledger.behaviour >= VERSION_OF_MULTIPLE_OPEN
        refusal = _refusal_by_name(name, access, share_mode, has_several=has_several)
        if refusal:
            return Outcome(refusal)
        if isinstance(name, MultipleElementName):
            return self._open_several(name, command)
        if self._held(command.request.client_id) >= OPEN_QUEUES_PER_CLIENT_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        status, queue = self._judged(name, access, share_mode, command.sender_sids)
        if queue is None:
            return Outcome(status)
        handle = self._put(queue, access, share_mode, command, command.format_name)
        self._ledger.state.put(Table.OPEN, _owned_key(command.request.client_id, handle), b"")
        return Outcome(MQ_OK, value=(handle, queue.record.queue_id))

    def _open_several(self, name: MultipleElementName, command: OpenQueue) -> Outcome:
        """Open each element for sending, or none: the first that fails gives the status.

        Outgoing queues made for elements before it stay, as they do after a send (DM-A27).
        """
        client_id = command.request.client_id
        count = len(name.elements)
        if count > TARGETS_PER_SEND_MAX or (
            self._held(client_id) + 1 + count > OPEN_QUEUES_PER_CLIENT_MAX
        ):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        share_mode = QueueShareMode.DENY_NONE
        queues: list[tuple[SingleFormatName, QueueInHand]] = []
        for element in name.elements:
            refusal = _refusal_by_name(element, SEND, share_mode)
            if refusal:
                return Outcome(refusal)
            status, queue = self._judged(element, SEND, share_mode, command.sender_sids)
            if queue is None:
                return Outcome(status)
            queues.append((element, queue))
        state = self._ledger.state
        around = self._put(None, SEND, share_mode, command, format_name_text(name))
        state.put(Table.OPEN, _owned_key(client_id, around), _NESTED_COUNT.pack(count))
        for element, queue in queues:
            nested = self._put(queue, SEND, share_mode, command, format_name_text(element))
            state.put(Table.OPEN, _NESTED_KEY.pack(_NESTED, around, nested), b"")
        return Outcome(MQ_OK, value=(around, NO_QUEUE))

    def _judged(
        self,
        name: FormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        sids: tuple[bytes, ...],
    ) -> tuple[int, QueueInHand | None]:
        """Return the queue that may be opened so, or the status that refuses it."""
        queue_id = self._find(name, access, sids)
        if queue_id >= 1 << 31:
            return queue_id, None
        queue = self._ledger.queue(queue_id)
        if queue is None:
            return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, None
        refusal = self._refusal_by_queue(queue, access, share_mode, sids)
        return (refusal, None) if refusal else (MQ_OK, queue)

    def _find(self, name: FormatName, access: QueueAccessType, sids: tuple[bytes, ...]) -> int:
        """Return a queue_id, or an MQ_ERROR code (its top bit is set)."""
        found = self._registry.format_name(name)
        if access in _ADMIN:
            # PeekAdmin and ReceiveAdmin mean the outgoing queue of a destination.
            outgoing = self._registry.outgoing(name)
            return outgoing if outgoing > 0 else ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        if found > 0:
            return found
        if found == Route.NOT_FOUND:
            is_move = access is QueueAccessType.MOVE_ACCESS
            if is_move and isinstance(name, DirectName) and name.subqueue is not None:
                return self._administration.create_subqueue(name, sids)
            return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        if access is not SEND:
            if self._ledger.behaviour >= VERSION_OF_OPEN_STATUS:
                return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
            return ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        made = self._outgoing.ensure(name)
        return made if made > 0 else ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION

    def _refusal_by_queue(
        self,
        queue: QueueInHand,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        sids: tuple[bytes, ...],
    ) -> int:
        record = queue.record
        if record.is_deleting or record.kind in (QueueKind.ORDER, QueueKind.NOTIFICATION):
            return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        if access is SEND and (record.kind.is_system_store or record.kind is QueueKind.SUBQUEUE):
            return ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        if not may_open(self._ledger, queue, access, sids):
            return ErrorCode.MQ_ERROR_ACCESS_DENIED
        return self._sharing_refusal(queue, access, share_mode)

    def _sharing_refusal(
        self, queue: QueueInHand, access: QueueAccessType, share_mode: QueueShareMode
    ) -> int:
        """Apply the sharing matrix of 3.1.7.1.5; DenyReceive admits peeks (DM-A21)."""
        mine = sharing_class(access)
        denying = QueueShareMode.DENY_RECEIVE
        refused = (
            (self._has(queue, 2, denying) and (share_mode is denying or mine == 2))
            or (self._has(queue, 1, denying) and mine == 2)
            or (self._has(queue, 2, QueueShareMode.DENY_NONE) and share_mode is denying)
        )
        return ErrorCode.MQ_ERROR_SHARING_VIOLATION if refused else MQ_OK

    def _has(self, queue: QueueInHand, sharing: int, share_mode: QueueShareMode) -> bool:
        queue_id = queue.record.queue_id
        low = _BY_QUEUE.pack(_INDEX, queue_id, sharing, share_mode, 0)
        high = _BY_QUEUE.pack(_INDEX, queue_id, sharing, share_mode, (1 << 64) - 1)
        return bool(self._ledger.state.scan(Table.OPEN, low, high, 1))

    def _put(
        self,
        queue: QueueInHand | None,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        command: OpenQueue,
        format_name: str,
    ) -> int:
        """Write a descriptor; return its handle."""
        counters = self._ledger.counters
        counters.handle += 1
        row = OpenQueueRow(
            NO_QUEUE if queue is None else queue.record.queue_id,
            access,
            share_mode,
            command.request.client_id,
            format_name,
            counters.epoch,
        )
        key = OPEN_RECORD_KEY.pack(OPEN_RECORD, counters.handle)
        self._ledger.put_record(Table.OPEN, key, row)
        if queue is not None:
            self._ledger.state.put(Table.OPEN, self._index(counters.handle, row), b"")
        return counters.handle

    @staticmethod
    def _index(handle: int, row: OpenQueueRow) -> bytes:
        return _BY_QUEUE.pack(
            _INDEX, row.queue_id, sharing_class(row.access), row.share_mode, handle
        )

    def find(self, handle: int, client_id: str) -> OpenQueueRow | None:
        """Return what a client opened under a handle, or None."""
        if not 0 < handle < 1 << 64:
            return None
        row = self._ledger.record(
            Table.OPEN, OPEN_RECORD_KEY.pack(OPEN_RECORD, handle), OpenQueueRow
        )
        return row if row is not None and row.client_id == client_id else None

    def apply_close_queue(self, command: CloseQueue) -> Outcome:
        """Close Queue; a nested descriptor ends with the one around it."""
        client_id = command.request.client_id
        if self.find(command.handle, client_id) is None or not self._is_owned(command):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_HANDLE)
        self._close(command.handle, client_id)
        return Outcome(MQ_OK)

    def _is_owned(self, command: CloseQueue) -> bool:
        key = _owned_key(command.request.client_id, command.handle)
        return self._ledger.state.get(Table.OPEN, key) is not None

    def _close(self, handle: int, client_id: str) -> None:
        state = self._ledger.state
        row = self._drop(handle, client_id)
        state.delete(Table.OPEN, _owned_key(client_id, handle))
        if row.queue_id != NO_QUEUE:
            return
        low, high = (_NESTED_KEY.pack(_NESTED, handle, end) for end in (0, (1 << 64) - 1))
        for key, _ in state.scan(Table.OPEN, low, high, TARGETS_PER_SEND_MAX):
            self._drop(_NESTED_KEY.unpack(key)[2], client_id)
            state.delete(Table.OPEN, key)

    def _drop(self, handle: int, client_id: str) -> OpenQueueRow:
        row = self.find(handle, client_id)
        assert row is not None, "an index row without its open"
        self._ledger.state.delete(Table.OPEN, OPEN_RECORD_KEY.pack(OPEN_RECORD, handle))
        if row.queue_id != NO_QUEUE:
            self._ledger.state.delete(Table.OPEN, self._index(handle, row))
        return row

    def _owned_rows(self, client_id: str) -> list[tuple[bytes, bytes]]:
        prefix = _OWNED + client_key(client_id)
        return self._ledger.state.scan(
            Table.OPEN, prefix, prefix + b"\xff" * 9, OPEN_QUEUES_PER_CLIENT_MAX
        )

    def _owned(self, client_id: str) -> list[int]:
        return [
            int(_HANDLE.unpack(key[-_HANDLE.size :])[0]) for key, _ in self._owned_rows(client_id)
        ]

    def _held(self, client_id: str) -> int:
        """Return how many descriptors a client has open, the nested ones among them."""
        return sum(
            1 + (_NESTED_COUNT.unpack(count)[0] if count else 0)
            for _, count in self._owned_rows(client_id)
        )

    def release_owner(self, client_id: str) -> None:
        """Close everything that a client had open when its session ended."""
        for handle in self._owned(client_id):
            self._close(handle, client_id)


def _owned_key(client_id: str, handle: int) -> bytes:
    return _OWNED + client_key(client_id) + _HANDLE.pack(handle)


def _refusal_by_name(
    name: FormatName,
    access: QueueAccessType,
    share_mode: QueueShareMode,
    *,
    has_several: bool = False,
) -> int:
    unsupported = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    if isinstance(name, MultipleElementName | MulticastName | DistributionListName):
        if access is SEND and share_mode is not QueueShareMode.DENY_NONE:
            return ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE
        is_served = has_several and access is SEND and isinstance(name, MultipleElementName)
        return MQ_OK if is_served else unsupported
    if isinstance(name, MachineName) and access is SEND:
        return unsupported
    if isinstance(name, DirectName) and name.address.protocol.is_http:
        return unsupported
    if access is SEND and share_mode is not QueueShareMode.DENY_NONE:
        return ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    return MQ_OK
