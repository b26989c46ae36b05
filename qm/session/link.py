"""From a queue with something to send to an open session [MS-MQQB 3.1.5.2, 3.1.5.9, 3.1.6.1].

One link per outgoing queue, at the leader. It owns no socket and no `Session`: `next_action` says
what to do next, and the methods take the results. The owner knows which `Session` belongs to the
current connection and reports its progress to the link.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

from qm.session.config import SessionConfig
from qm.session.errors import SessionMisuse
from qm.session.events import CloseReason
from qm.session.limits import (
    CONNECTION_HISTORY_MAX_COUNT,
    NEXT_HOPS_MAX_COUNT,
    RETRY_CONNECT_TIMEOUT_MS,
)
from qm.wire.codes import ErrorCode
from qm.wire.guid import GUID_NULL, Guid


class OutgoingState(Enum):
    """OutgoingQueue.State [MS-MQDMPR 3.1.1.3], without Locked, a state that no link can leave."""

    INACTIVE = "Inactive"
    NEED_VALIDATION = "NeedValidation"
    WAITING = "Waiting"
    CONNECTED = "Connected"
    DISCONNECTING = "Disconnecting"
    DISCONNECTED = "Disconnected"
    ON_HOLD = "OnHold"


class ConnectionStatus(Enum):
    """OutgoingQueue.ConnectionHistory.Status [MS-MQDMPR 3.1.1.3]."""

    IN_PROCESS = "InProcess"
    ESTABLISH_PACKET_RECEIVED = "EstablishPacketReceived"
    ESTABLISHED = "Established"
    UNKNOWN_FAILURE = "UnknownFailure"
    PING_FAILURE = "PingFailure"
    SOCKET_CREATE_FAILURE = "SocketCreateFailure"
    SOCKET_BIND_FAILURE = "SocketBindFailure"
    SOCKET_CONNECT_FAILURE = "SocketConnectFailure"
    TCP_NOT_ENABLED = "TcpNotEnabled"
    SOCKET_SEND_FAILURE = "SocketSendFailure"
    CONNECTION_NOT_READY = "ConnectionNotReady"
    DNS_FAILURE = "DnsFailure"
    CERTIFICATE_VALIDATION_FAILURE = "CertificateValidationFailure"
    CONNECTION_LIMIT_REACHED = "ConnectionLimitReached"
    CONNECTION_REFUSED = "ConnectionRefused"
    ROUTING_DATA_NOT_AVAILABLE = "RoutingDataNotAvailable"
    LOW_RESOURCE = "LowResource"


# The status recorded for a session that never opened; other reasons are UnknownFailure.
_STATUS_OF: Final = {
    CloseReason.REFUSED_BY_PEER: ConnectionStatus.CONNECTION_REFUSED,
    CloseReason.INITIALIZATION_TIMEOUT: ConnectionStatus.CONNECTION_NOT_READY,
    CloseReason.DISCONNECTED: ConnectionStatus.SOCKET_SEND_FAILURE,
    CloseReason.LIMIT: ConnectionStatus.LOW_RESOURCE,
}


class ConnectionHistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """One row of OutgoingQueue.ConnectionHistory [MS-MQDMPR 3.1.1.3]."""

    status: ConnectionStatus
    """Status."""
    connection_history_time: int
    """Seconds since 1970 UTC."""
    error: int
    """HRESULT, 0 without error."""
    address_list: str
    """RemoteQMAddress."""


class NextHop(msgspec.Struct, frozen=True, gc=False):
    """NextHop [MS-MQQB 3.1.1.3.1.3]."""

    address: str
    """Textual IPv4 or IPv6 address, without port."""
    host_name: str = ""
    """HostName."""
    qm_guid: Guid = GUID_NULL
    """QMGuid, zeros for a direct format name."""


class Resolve(msgspec.Struct, frozen=True, gc=False):
    """Find the next hops; answer with `resolved` or `resolve_failed`."""


class SendPing(msgspec.Struct, frozen=True, gc=False):
    """Ping the hop; answer with `ping_ended`."""

    hop: NextHop
    """The hop to ping."""


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Connect to the hop and start a `Session`; answer with `connected` or `connect_failed`."""

    hop: NextHop
    """The hop to connect to; `qm_guid` is the session's `remote_guid`."""
    pinged: bool
    """Passed to the session: whether a ping came before."""


Action = Resolve | SendPing | Connect


class _Stage(Enum):
    IDLE = "nothing to send, or on hold"
    RESOLVING = "waits for resolved or resolve_failed"
    PINGING = "waits for ping_ended"
    CONNECTING = "waits for connected or connect_failed"
    ESTABLISHING = "waits for established or closed"
    OPEN = "waits for closed"
    WAITING_RECONNECT = "waits for the retry timer"


class OutgoingLink:
    """The connection side of one outgoing queue.

    `now` is in monotonic seconds, `utc_s` in seconds since 1970. `has_backlog` says whether
    OutgoingMessageTable is non-empty.
    """

    __slots__ = (
        "_actions",
        "_history",
        "_hop_index",
        "_hops",
        "_is_held",
        "_is_retry",
        "_next_hops",
        "_retry_at",
        "_retry_period",
        "_stage",
        "_state",
        "_uses_ping",
    )

    def __init__(self, config: SessionConfig, *, uses_ping: bool = False) -> None:
        """`uses_ping`: ask by UDP before connecting, as Windows up to 2003 does (note <56>)."""
        self._uses_ping = uses_ping
        self._retry_period = (RETRY_CONNECT_TIMEOUT_MS + config.round_trip_delay_ms) / 1000
        self._stage = _Stage.IDLE
        self._state = OutgoingState.INACTIVE
        self._is_held = False
        self._is_retry = False
        self._hops: tuple[NextHop, ...] = ()
        self._hop_index = 0
        self._next_hops: tuple[str, ...] = ()
        self._retry_at: float | None = None
        self._actions: deque[Action] = deque()
        self._history: deque[ConnectionHistoryEntry] = deque(maxlen=CONNECTION_HISTORY_MAX_COUNT)

    @property
    def state(self) -> OutgoingState:
        """OutgoingQueue.State; OnHold hides the others."""
        return OutgoingState.ON_HOLD if self._is_held else self._state

    @property
    def is_waiting_reconnect(self) -> bool:
        """Whether SessionState is WAITING_RECONNECT [MS-MQQB 3.1.5.9]."""
        return self._stage is _Stage.WAITING_RECONNECT

    @property
    def history(self) -> tuple[ConnectionHistoryEntry, ...]:
        """OutgoingQueue.ConnectionHistory, oldest first."""
        return tuple(self._history)

    @property
    def next_hops(self) -> tuple[str, ...]:
        """OutgoingQueue.NextHops as PROPID_MGMT_QUEUE_NEXTHOPS shows them [MS-MQMQ 2.3.12.12]."""
        return self._next_hops

    @property
    def remote(self) -> NextHop | None:
        """What NextHopIndexer points at: RemoteQMAddress, RemoteQMHostName, RemoteQMGuid."""
        return self._hops[self._hop_index] if self._hops else None

    def next_action(self) -> Action | None:
        """Return what to do next, or None."""
        return self._actions.popleft() if self._actions else None

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""
        return self._retry_at

    # Requests of the queue ------------------------------------------------------------------

    def message_available(self) -> None:
        """The queue has a message [MS-MQQB 3.1.7.12, 3.1.4.1].

        QB-A35: connects whenever no session is open or opening, not only the first time. A link
        that waits for its retry timer keeps waiting.
        """
        if self._stage is _Stage.IDLE and not self._is_held:
            self._is_retry = False
            self._resolve()

    def pause(self) -> None:
        """Put the queue on hold; the open session is paused by the owner [MS-MQQB 3.1.7.13]."""
        self._is_held = True
        if self._stage is _Stage.WAITING_RECONNECT:
            self._stage = _Stage.IDLE
            self._retry_at = None

    def resume(self, *, has_backlog: bool) -> None:
        """Take the queue off hold [MS-MQQB 3.1.7.14]; Inactive counts as Disconnected (QB-A52).

        It is Inactive then [MS-MQDMPR 3.1.7.2.4], unless it has a connection or asks for one.
        """
        self._is_held = False
        if self._stage is _Stage.IDLE:
            self._state = OutgoingState.INACTIVE
        if has_backlog:
            self.message_available()

    # Results of the actions -----------------------------------------------------------------

    def resolved(self, hops: Sequence[NextHop]) -> None:
        """Take the next hops, best first; at least one [MS-MQQB 3.1.5.2.1]."""
        self._expect(_Stage.RESOLVING)
        if not hops:
            raise SessionMisuse("no next hop: call resolve_failed instead")
        self._hops = tuple(hops[:NEXT_HOPS_MAX_COUNT])
        self._hop_index = 0
        self._next_hops = tuple(formatted_address(hop.address) for hop in self._hops)
        self._approach()

    def resolve_failed(
        self, status: ConnectionStatus, error: int, now: float, utc_s: int, *, has_backlog: bool
    ) -> None:
        """No next hop was found [MS-MQQB 3.1.5.2.1]."""
        self._expect(_Stage.RESOLVING)
        self._record(status, error, utc_s)
        self._state = OutgoingState.NEED_VALIDATION
        self._hops = ()
        self._wait(now, has_backlog=has_backlog)

    def ping_ended(self, is_success: bool, now: float, utc_s: int, *, has_backlog: bool) -> None:
        """The ping was answered or timed out [MS-MQQB 3.1.5.2.2]."""
        self._expect(_Stage.PINGING)
        if is_success:
            self._connect(pinged=True)
            return
        self._record(ConnectionStatus.PING_FAILURE, ErrorCode.MQ_ERROR, utc_s)
        self._wait(now, has_backlog=has_backlog)

    def connect_failed(
        self, status: ConnectionStatus, error: int, now: float, utc_s: int, *, has_backlog: bool
    ) -> None:
        """The transport connection failed."""
        self._expect(_Stage.CONNECTING)
        self._record(status, error, utc_s)
        self._state = OutgoingState.DISCONNECTED
        self._wait(now, has_backlog=has_backlog)

    def connected(self, utc_s: int) -> None:
        """The session has sent EstablishConnection [MS-MQQB 3.1.5.2.3].

        DM-A37: until then the state is what it was before the attempt.
        """
        self._expect(_Stage.CONNECTING)
        self._stage = _Stage.ESTABLISHING
        self._state = OutgoingState.WAITING
        self._record(ConnectionStatus.IN_PROCESS, 0, utc_s)

    # Events of the session ------------------------------------------------------------------

    def establish_received(self, utc_s: int) -> None:
        """`EstablishReceived` [MS-MQQB 3.1.5.3.2]."""
        self._expect(_Stage.ESTABLISHING)
        self._record(ConnectionStatus.ESTABLISH_PACKET_RECEIVED, 0, utc_s)

    def established(self, utc_s: int) -> None:
        """`Established` [MS-MQQB 3.1.5.4.2]: only the address in use remains in NextHops."""
        self._expect(_Stage.ESTABLISHING)
        self._stage = _Stage.OPEN
        self._state = OutgoingState.CONNECTED
        hop = self._hops[self._hop_index]
        self._next_hops = (formatted_address(hop.address),)
        self._record(ConnectionStatus.ESTABLISHED, 0, utc_s)

    def closing(self) -> None:
        """`Closed` was read and the transport is about to be closed [MS-MQQB 3.1.5.9]."""
        self._state = OutgoingState.DISCONNECTING

    def closed(self, reason: CloseReason, now: float, utc_s: int, *, has_backlog: bool) -> None:
        """The transport is closed, after `Closed` with `reason` [MS-MQQB 3.1.5.9]."""
        if self._stage not in (_Stage.ESTABLISHING, _Stage.OPEN):
            raise SessionMisuse(f"closed, but the link {self._stage.value}")
        if self._stage is _Stage.ESTABLISHING:
            status = _STATUS_OF.get(reason, ConnectionStatus.UNKNOWN_FAILURE)
            self._record(status, ErrorCode.MQ_ERROR, utc_s)
        self._state = OutgoingState.DISCONNECTED
        if reason is CloseReason.RECYCLED and not self._is_held:
            # QB-A7: the peer did nothing wrong, so reconnect without a delay.
            self._connect(pinged=False)
            return
        self._wait(now, has_backlog=has_backlog and reason is not CloseReason.STOPPED)

    def handle_timer(self, now: float, *, has_backlog: bool) -> None:
        """Session Retry Connect Timer Event [MS-MQQB 3.1.6.1]."""
        if self._retry_at is None or now < self._retry_at:
            return
        self._retry_at = None
        self._stage = _Stage.IDLE
        if not has_backlog:
            return
        self._is_retry = True
        if self._hop_index + 1 < len(self._hops):
            self._hop_index += 1
            self._approach()
        else:
            self._resolve()

    # ---------------------------------------------------------------------------------------

    def _expect(self, stage: _Stage) -> None:
        if self._stage is not stage:
            raise SessionMisuse(f"the link {self._stage.value}")

    def _resolve(self) -> None:
        self._stage = _Stage.RESOLVING
        self._actions.append(Resolve())

    def _approach(self) -> None:
        """Ping first, except on a retry [MS-MQQB 3.1.5.2.2]."""
        hop = self._hops[self._hop_index]
        if self._uses_ping and not self._is_retry:
            self._stage = _Stage.PINGING
            self._actions.append(SendPing(hop))
        else:
            self._connect(pinged=False)

    def _connect(self, *, pinged: bool) -> None:
        self._stage = _Stage.CONNECTING
        self._actions.append(Connect(self._hops[self._hop_index], pinged))

    def encryption_failed(self, utc_s: int) -> None:
        """A message could not be encrypted for the peer [MS-MQQB 3.1.7.1.5.1]."""
        status = ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE
        self._record(status, ErrorCode.MQ_ERROR_PUBLIC_KEY_NOT_FOUND, utc_s)

    def _wait(self, now: float, *, has_backlog: bool) -> None:
        """Start Session Retry Connect if there is a backlog, unless on hold."""
        if has_backlog and not self._is_held:
            self._stage = _Stage.WAITING_RECONNECT
            self._retry_at = now + self._retry_period
        else:
            self._stage = _Stage.IDLE

    def _record(self, status: ConnectionStatus, error: int, utc_s: int) -> None:
        hop = self.remote
        address = hop.address if hop is not None else ""
        self._history.append(ConnectionHistoryEntry(status, utc_s, int(error), address))


def formatted_address(address: str) -> str:
    """Return one element of PROPID_MGMT_QUEUE_NEXTHOPS [MS-MQMQ 2.3.12.12]."""
    return f"IPv6={address}" if ":" in address else f"IP={address}"
