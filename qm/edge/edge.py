"""A node's MSMQ endpoint: TCP 1801 and UDP 3527 in front, the leader behind (DESIGN section 7).

It serves while it knows its own GUID and has a relay stream. Without a leader for
`no_leader_max_s` it closes its sessions and its listeners, and opens them again with a leader. It
also closes them while an administrator has taken the queue manager offline ([MS-MQDMPR] 3.1.4.12).
The node is ready nevertheless: nothing is wrong, and its other endpoints serve.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from math import inf
from typing import Final

import msgspec
from typing_extensions import override

from qm.cluster.cluster import Cluster, ClusterListener, Leadership
from qm.cluster.examining import Examined
from qm.cluster.sealing import NO_SEALING, Sealing
from qm.edge.ack_marks import AckMark
from qm.edge.edge_metrics import EdgeMetrics
from qm.edge.limits import LINGER_MAX_S
from qm.edge.relay.relay import Relay
from qm.edge.security.verification import Verification
from qm.edge.settings import EdgeSettings
from qm.edge.tcp.admission import Admission
from qm.edge.tcp.connection import Connection
from qm.edge.tcp.context import EdgeContext
from qm.edge.tcp.listeners import Listeners, bind
from qm.edge.tcp.pings import PingAnswerer
from qm.model.state.ledger import META_QUEUE_MANAGER
from qm.model.state.tables import Table
from qm.model.values.commands import Facts
from qm.model.values.effects import Applied
from qm.model.values.records import QueueManager, decode
from qm.observe.metrics import Metrics
from qm.security.directory import EMPTY_DIRECTORY, Directory
from qm.security.own_keys import NO_KEYS, OwnKeys
from qm.session import CloseReason
from qm.wire.guid import Guid

NO_LEADER: Final = "there is no leader: is a majority of the nodes up and connected?"
LISTEN_RETRY_S: Final = 1.0
"""Between attempts to take an address again."""


class Edge(ClusterListener):
    """A node's MSMQ endpoint. Create, start and stop it in the node's event loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: EdgeSettings,
        metrics: Metrics,
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
        directory: Directory = EMPTY_DIRECTORY,
        keys: OwnKeys = NO_KEYS,
        sealing: Sealing = NO_SEALING,
        on_insecure: Callable[[str, int, Facts], None] | None = None,
    ) -> None:
        """`directory` and `keys`: by which signatures are verified and bodies decrypted; `sealing`:
        which of them are sealed for the disk; `on_insecure`: of `EdgeMetrics`.
        """
        self._cluster = cluster
        self._settings = settings
        self._bind = bind
        self._loop = asyncio.get_running_loop()
        self._metrics = EdgeMetrics(metrics, self._loop)
        self._metrics.on_insecure = on_insecure
        self._admission = Admission(settings)
        self._session = msgspec.structs.replace(
            settings.session, admit=self._admission.admit
        ).check()
        self._verification = Verification(
            self._metrics, self._loop, cluster.now_ms, directory, keys
        )
        self.relay: Final = Relay(
            cluster, self._metrics, self._loop, self._on_change, self._verification, sealing
        )
        """Receives the arrivals of all sessions, those that this node opens included."""
        self._listeners = Listeners(settings.addresses, settings.port, self._loop, bind)
        self._pings: list[asyncio.DatagramTransport] = []
        self._context = EdgeContext(
            self._loop, self.relay, self._metrics, self._admission, self._session
        )
        self._is_wanted = False
        self._is_online = True
        """QueueManager.ConnectionActive: an administrator's, a new leader keeps it (DM-A34)."""
        self._changed = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._no_leader: asyncio.TimerHandle | None = None
        self._leaderless_since: float | None = -inf
        """Loop time; None while there is a leader; minus infinity until there was one, and once the
        wait for a new one is over."""
        self._is_leaving = False
        self._unlisten: Callable[[], None] | None = None

    # What the node asks --------------------------------------------------------------------

    async def examine(self, packet: bytes, sender: str) -> Examined:
        """Examine a message of a client; see `Examining`."""
        return await self._verification.examine(packet, sender)

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        """Return why peers are not served; None when they are.

        While a new leader is awaited, they count as served for `no_leader_max_s` seconds: this
        edge's setting, if it is None (DESIGN section 7).
        """
        if self._is_leaving:
            return "the edge is stopping"
        if self.relay.queue_manager is None:
            return "the cluster has no identity yet: run `qm cluster init`"
        awaited_s = self._settings.no_leader_max_s if no_leader_max_s is None else no_leader_max_s
        since = None if self._has_leader else self._leaderless_since
        if since is not None and self._loop.time() - since >= awaited_s:
            return NO_LEADER
        is_waiting = self._is_online and not self._listeners.is_open
        return "the MSMQ listeners are not open yet" if is_waiting else None

    @property
    def is_ready(self) -> bool:
        """Whether peers are served."""
        return self.not_ready_reason() is None

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Address and TCP port of each listener."""
        return self._listeners.endpoints

    @property
    def ping_endpoints(self) -> list[tuple[str, int]]:
        """Address and UDP port of each ping socket."""
        return [ping.get_extra_info("sockname")[:2] for ping in self._pings]

    @property
    def held_bytes(self) -> int:
        """Bytes of packets that were read and have no outcome yet."""
        return self.relay.held_bytes

    @property
    def connection_count(self) -> int:
        """How many peers are connected."""
        return len(self._context.connections)

    def drain_ack_marks(self) -> list[AckMark]:
        """Return the marks of acknowledgements since the last call, for the archive."""
        return self._context.marks.drain()

    # Life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the addresses and serve as soon as there is a leader. Raises OSError."""
        self._listeners.bind()
        try:
            await self._start_pings()
        except OSError:
            self._close_endpoints()
            raise
        self._unlisten = self._cluster.listen(self)
        self._learn_manager()
        self._supervisor = self._loop.create_task(self._supervise())
        self.relay.connect()

    async def drain(self, timeout_s: float) -> None:
        """Accept and read nothing more; let what was read be committed and acknowledged."""
        self._leave()
        self.relay.read_no_more()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.relay.idle(), timeout_s)

    async def stop(self) -> None:
        """Close everything. Without an earlier `drain`, peers must resend what has no outcome."""
        self._leave()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self._close_sessions(CloseReason.STOPPED, "this node stops")
        self.relay.stop()
        self._verification.stop()
        self._close_endpoints()
        await self._context.wait_until_empty(LINGER_MAX_S)
        self._context.deadlines.stop()

    def _close_endpoints(self) -> None:
        self._listeners.close()
        for ping in self._pings:
            ping.close()

    def _leave(self) -> None:
        self._is_leaving = True
        self._is_wanted = False
        self._changed.set()
        self._listeners.close()
        if self._no_leader is not None:
            self._no_leader.cancel()

    async def _start_pings(self) -> None:
        if not self._settings.answer_pings:
            return
        for address in self._settings.addresses:
            bound = self._bind(address, self._settings.ping_port, socket.SOCK_DGRAM)
            transport, _ = await self._loop.create_datagram_endpoint(self._answerer, sock=bound)
            self._pings.append(transport)

    def _answerer(self) -> PingAnswerer:
        return PingAnswerer(
            lambda: self.relay.queue_manager, self._is_accepting, self._metrics, self._loop.time
        )

    def _is_accepting(self, address: str, queue_manager: Guid) -> bool:
        is_open = self.is_ready and self._is_online
        has_room = self._admission.refusal(address) is None
        return is_open and has_room and self._admission.admit(queue_manager, True)

    # Serving or not ------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Open and close the listeners as `_is_wanted` says."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._is_wanted == self._listeners.is_open:
                continue
            if not self._is_wanted:
                self._listeners.close()
            else:
                try:
                    await self._listeners.open(lambda: Connection(self._context))
                except OSError as error:
                    self._metrics.not_listening(error)
                    self._loop.call_later(LISTEN_RETRY_S, self._changed.set)
                    continue
            self._metrics.serving(self._is_wanted)

    @property
    def _has_leader(self) -> bool:
        """Whether what is relayed can be committed, as far as this node knows.

        A stream may stay open, cut off from its leader, after this node lost it, and resume.
        """
        return self.relay.is_connected and self._cluster.leadership.node is not None

    def _on_change(self) -> None:
        if self._is_leaving:
            return
        if not self._has_leader:
            if self._leaderless_since is None:
                self._leaderless_since = self._loop.time()
            if self._no_leader is None:
                self._no_leader = self._loop.call_later(
                    self._settings.no_leader_max_s, self._on_no_leader
                )
            return
        self._leaderless_since = None
        if self._no_leader is not None:
            self._no_leader.cancel()
            self._no_leader = None
        if self.relay.queue_manager is not None:
            self._is_wanted = self._is_online
            self._changed.set()

    def _on_no_leader(self) -> None:
        """The wait for a new leader is over."""
        self._no_leader = None
        self._leaderless_since = -inf
        self._is_wanted = False
        self._changed.set()
        self._close_sessions(CloseReason.NO_LEADER, "")
        self.relay.drop_closed()

    def _close_sessions(self, reason: CloseReason, detail: str) -> None:
        for connection in list(self._context.connections):
            connection.close(reason, detail)

    def _learn_manager(self) -> None:
        """Read our own identity, and whether peers may connect."""
        row = self._cluster.state.get(Table.META, META_QUEUE_MANAGER)
        manager = None if row is None else decode(QueueManager, row)
        is_online = manager is None or manager.connection_active
        if is_online != self._is_online:
            self._is_online = is_online
            if not is_online:
                self._close_sessions(CloseReason.STOPPED, "the queue manager was taken offline")
            self._on_change()
        self._learn_identity(None if manager is None else manager.identifier)

    def _learn_identity(self, identifier: Guid | None) -> None:
        """Use a GUID as ours; sessions under another one, from before a restore, are closed."""
        if identifier == self.relay.queue_manager:
            return
        if self.relay.queue_manager is not None:
            self._close_sessions(CloseReason.STOPPED, "the queue manager was restored")
        self.relay.queue_manager = identifier
        self._on_change()

    # ClusterListener -----------------------------------------------------------------------

    @override
    def on_applied(self, applied: Applied) -> None:
        if applied.is_manager_changed or self.relay.queue_manager is None:
            self._learn_manager()

    @override
    def on_restored(self, index: int) -> None:
        del index
        self.relay.on_restored()
        self._learn_manager()

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        del leadership
        self.relay.connect()
        self._on_change()
