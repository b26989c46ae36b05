"""R_QMMgmtGetInfo and R_QMMgmtAction [MS-MQMR 3.1.4.1, .2] over the cluster's control plane."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import override

from qm.client.calls import Method, Stubs
from qm.client.errors import MqError, if_there
from qm.client.mqac.cluster.pages import pages
from qm.client.mqac.manager import Management
from qm.client.values import value_of
from qm.pb import control_pb2 as pb
from qm.wire.codes import ErrorCode
from qm.wire.property_id import MachineManagementProperty as OfMachine
from qm.wire.property_id import QueueManagementProperty as OfQueue
from qm.wire.structures.identifiers import SEQUENCE_INFO

PAGE_QUEUES: Final = 1_000
_MS: Final = 1_000
_YES, _NO, _UNKNOWN = "YES", "NO", "UNKNOWN"
_TYPES: Final = {
    pb.PRIVATE: "PRIVATE",
    pb.PUBLIC: "PUBLIC",
    pb.SYSTEM: "MACHINE",
    pb.CONNECTOR_QUEUE: "CONNECTOR",
}
_STATES: Final = {
    pb.INACTIVE: "INACTIVE",
    pb.LOCKED: "LOCKED",
    pb.NEED_VALIDATION: "NEED VALIDATION",
    pb.WAITING: "WAITING",
    pb.CONNECTED: "CONNECTED",
    pb.DISCONNECTING: "DISCONNECTING",
    pb.DISCONNECTED: "DISCONNECTED",
    pb.ON_HOLD: "ONHOLD",
}
_LOCAL_STATE: Final = "LOCAL CONNECTION"
_ONLINE: Final = {"CONNECT": True, "DISCONNECT": False}

_Q = TypeVar("_Q")
_R = TypeVar("_R")


class Call(Protocol):
    """Makes a call of any service; raises MqError."""

    def __call__(self, method: Callable[[Stubs], Method[_Q, _R]], request: _Q, /) -> _R:
        """Return the answer."""


class ClusterManagement(Management):
    """What the cluster reports about itself and its queues."""

    def __init__(self, call: Call) -> None:
        self._call = call

    # The queue manager ---------------------------------------------------------------------

    @override
    def machine_info(self, property_id: OfMachine) -> Any:
        match property_id:
            case OfMachine.ACTIVEQUEUES:
                return [queue.format_name or queue.path_name for queue in self._active()]
            case OfMachine.PRIVATEQ:
                return [queue.path_name for queue in self._listed() if queue.type == pb.PRIVATE]
            case OfMachine.DSSERVER:
                return "\\\\" + self._manager().computer_name
            case OfMachine.CONNECTED:
                is_online = self._manager().attributes["connection_active"].flag
                return "CONNECTED" if is_online else "DISCONNECTED"
            case OfMachine.BYTES_IN_ALL_QUEUES:
                return self._manager().total_bytes
        raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPID)

    @override
    def act_on_machine(self, action: str) -> None:
        wanted = action.upper()
        if wanted in _ONLINE:
            changes = {"connection_active": value_of(_ONLINE[wanted])}
            self._call(
                lambda stubs: stubs.queues.SetQueueManager,
                pb.SetQueueManagerRequest(changes=changes),
            )
        elif wanted != "TIDY":  # nothing lies around that a call could release
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)

    # Queues --------------------------------------------------------------------------------

    @override
    def queue_info(self, format_name: str, property_id: OfQueue) -> Any:
        queue = self._queue(format_name)
        if queue.kind == pb.OUTGOING:
            read: Any = _OF_OUTGOING.get(property_id)
            found: Any = self._outgoing("GetOutgoing", format_name)
        else:
            read = _OF_LOCAL.get(property_id)
            found = (self, queue)
        if read is None:
            raise MqError(ErrorCode.MQ_ERROR_ILLEGAL_PROPID)
        return read(found)

    @override
    def act_on_queue(self, format_name: str, action: str) -> None:
        method = _ACTIONS.get(action.upper())
        if method is None:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        self._queue(format_name)
        self._outgoing(method, format_name)

    def journal_of(self, queue: pb.Queue) -> pb.Queue:
        """Return a queue's journal, an empty one for a queue that has none."""
        if not queue.journal_queue_id:
            return pb.Queue()
        return self._get(pb.QueueName(queue_id=queue.journal_queue_id))

    def senders_to(self, queue: pb.Queue) -> list[list[Any]]:
        """Return PROPID_MGMT_QUEUE_EOD_SOURCE_INFO: its columns, a row for each queue manager that
        sent to a queue in transactions.
        """
        rows = [
            (
                one.format_name,
                peer.queue_manager,
                one.last.sequence_identifier,
                one.last.sequence_number,
                one.last_access_ms // _MS,
                one.reject_count,
            )
            for peer in self._peers()
            for one in self._sequences(peer)
            if one.queue_id == queue.queue_id
        ]
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(6)]

    # ---------------------------------------------------------------------------------------

    def _peers(self) -> Iterable[pb.Peer]:
        for page in pages(
            lambda token: self._call(
                lambda stubs: stubs.peers.ListPeers,
                pb.ListPeersRequest(page_size=PAGE_QUEUES, page_token=token),
            )
        ):
            yield from page.peers

    def _sequences(self, peer: pb.Peer) -> Iterable[pb.PeerSequence]:
        for page in pages(
            lambda token: self._call(
                lambda stubs: stubs.peers.GetPeer,
                pb.GetPeerRequest(queue_manager=peer.queue_manager, page_token=token),
            )
        ):
            yield from page.sequences

    def _queue(self, format_name: str) -> pb.Queue:
        """Return an active queue, local or outgoing. Raises MQ_ERROR_QUEUE_NOT_ACTIVE."""
        try:
            queue = self._get(pb.QueueName(name=format_name))
        except MqError as error:
            if error.code != ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
                raise
            raise MqError(ErrorCode.MQ_ERROR_QUEUE_NOT_ACTIVE) from error
        if not queue.is_active:
            raise MqError(ErrorCode.MQ_ERROR_QUEUE_NOT_ACTIVE)
        return queue

    def _get(self, name: pb.QueueName) -> pb.Queue:
        return self._call(lambda stubs: stubs.queues.GetQueue, pb.GetQueueRequest(queue=name))

    def _outgoing(self, method: str, format_name: str) -> pb.OutgoingQueue:
        request = pb.GetOutgoingRequest(queue=pb.QueueName(name=format_name))
        found: pb.OutgoingQueue = self._call(lambda stubs: getattr(stubs.outgoing, method), request)
        return found

    def _manager(self) -> pb.QueueManager:
        return self._call(lambda stubs: stubs.queues.GetQueueManager, pb.GetQueueManagerRequest())

    def _active(self) -> Iterable[pb.Queue]:
        for listed in self._listed(pb.APPLICATION, pb.OUTGOING):
            name = pb.QueueName(queue_id=listed.queue_id)
            queue = if_there(partial(self._get, name))
            if queue is not None and queue.is_active:
                yield queue

    def _listed(self, *kinds: pb.QueueKind.ValueType) -> Iterable[pb.Queue]:
        for page in pages(
            lambda token: self._call(
                lambda stubs: stubs.queues.ListQueues,
                pb.ListQueuesRequest(page_size=PAGE_QUEUES, page_token=token, kinds=kinds),
            )
        ):
            yield from page.queues


_Local = tuple[ClusterManagement, pb.Queue]
_OF_LOCAL: Final[Mapping[OfQueue, Callable[[_Local], Any]]] = {
    OfQueue.PATHNAME: lambda found: found[1].path_name,
    OfQueue.FORMATNAME: lambda found: found[1].format_name,
    OfQueue.TYPE: lambda found: _TYPES[found[1].type],
    OfQueue.LOCATION: lambda found: "LOCAL",
    OfQueue.XACT: lambda found: _YES if found[1].is_transactional else _NO,
    OfQueue.FOREIGN: lambda found: _NO,  # RP-A50
    OfQueue.MESSAGE_COUNT: lambda found: found[1].message_count,
    OfQueue.BYTES_IN_QUEUE: lambda found: found[1].total_bytes,
    OfQueue.JOURNAL_MESSAGE_COUNT: lambda found: found[0].journal_of(found[1]).message_count,
    # What is left in one that is no longer kept is counted, but has no size [MS-MQMR 3.1.4.1].
    OfQueue.BYTES_IN_JOURNAL: lambda found: (
        found[0].journal_of(found[1]).total_bytes if found[1].is_journaling else 0
    ),
    OfQueue.STATE: lambda found: _LOCAL_STATE,
    OfQueue.EOD_SOURCE_INFO: lambda found: found[0].senders_to(found[1]),
}
_OF_OUTGOING: Final[Mapping[OfQueue, Callable[[pb.OutgoingQueue], Any]]] = {
    OfQueue.FORMATNAME: lambda found: found.format_name,
    OfQueue.TYPE: lambda found: _type_of(found.format_name),
    OfQueue.LOCATION: lambda found: "REMOTE",
    # Only the queue's own queue manager knows, unless something transactional was sent to it.
    OfQueue.XACT: lambda found: _YES if found.HasField("next") else _UNKNOWN,
    OfQueue.FOREIGN: lambda found: _NO,
    OfQueue.MESSAGE_COUNT: lambda found: found.message_count,
    OfQueue.BYTES_IN_QUEUE: lambda found: found.total_bytes,
    OfQueue.STATE: lambda found: _STATES[found.state],
    OfQueue.NEXTHOPS: lambda found: list(found.next_hops),
    OfQueue.EOD_LAST_ACK: lambda found: _sequence_info(found.last_acked),
    OfQueue.EOD_LAST_ACK_TIME: lambda found: found.last_ack_time_s,
    OfQueue.EOD_LAST_ACK_COUNT: lambda found: found.last_ack_count,
    OfQueue.EOD_FIRST_NON_ACK: lambda found: _sequence_info(found.first_unacked),
    OfQueue.EOD_LAST_NON_ACK: lambda found: _sequence_info(found.last_unacked),
    OfQueue.EOD_NEXT_SEQ: lambda found: _sequence_info(found.next),
    OfQueue.EOD_NO_READ_COUNT: lambda found: found.unread_count,
    OfQueue.EOD_NO_ACK_COUNT: lambda found: found.unacked_count,
    OfQueue.EOD_RESEND_TIME: lambda found: found.next_resend_ms // _MS,
    OfQueue.EOD_RESEND_INTERVAL: lambda found: found.resend_interval_s,
    OfQueue.EOD_RESEND_COUNT: lambda found: found.resend_count,
}
_ACTIONS: Final = {"PAUSE": "Pause", "RESUME": "Resume", "EOD_RESEND": "Resend"}


def _type_of(format_name: str) -> str:
    kind = format_name.partition("=")[0].upper()
    return kind if kind in ("PUBLIC", "PRIVATE", "MACHINE", "CONNECTOR", "MULTICAST") else "PRIVATE"


def _sequence_info(place: pb.SequencePlace) -> bytes:
    """SEQUENCE_INFO [MS-MQMQ 2.2.5]; zeros: there is none."""
    return SEQUENCE_INFO.pack(
        place.sequence_identifier, place.sequence_number, place.previous_number
    )
