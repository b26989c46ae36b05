"""This node's MSMQ endpoint, from its configuration: the edge, and the leader's outgoing queues."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from qm.cluster.cluster import Cluster, Unavailable
from qm.cluster.examining import Examined
from qm.cluster.peer_sessions import NO_SESSIONS, SessionsFound, SessionsWanted
from qm.cluster.sealing import Sealing
from qm.edge import Edge, EdgeSettings
from qm.edge.outgoing import OutgoingManager, OutgoingSettings
from qm.edge.outgoing.link.destination_rules import rules_of
from qm.edge.tcp.listeners import bind
from qm.model.queries.people import ReplicatedDirectory
from qm.model.values.commands import Facts
from qm.node.config.addresses import peer_hosts
from qm.node.config.schema import NodeConfig
from qm.observe.metrics import Metrics
from qm.security.body_encryption import EncryptionPolicy
from qm.security.own_keys import OwnKeys
from qm.session import SessionConfig, resend_timer_table
from qm.wire.enums import EncryptionAlgorithm

DRAIN_MAX_S: Final = 10.0
"""For messages read from peers to be committed and acknowledged."""


def session_config(config: NodeConfig) -> SessionConfig:
    """Return what a node's configuration says about sessions, those of both directions."""
    msmq = config.msmq
    return SessionConfig(
        window_size=msmq.window_size,
        ack_wait_timeout_ms=msmq.ack_wait_timeout_ms,
        round_trip_delay_ms=msmq.round_trip_delay_ms,
    )


def outgoing_settings(
    config: NodeConfig, session: SessionConfig, own_addresses: Sequence[str]
) -> OutgoingSettings:
    """Return what a node's configuration says about sending; `own_addresses`: where it listens."""
    section = config.outgoing
    return OutgoingSettings(
        source_address=config.msmq.source_address,
        port=config.msmq.port,
        peers={guid: hosts[0] for guid, hosts in peer_hosts(config).items()},
        rules=rules_of(section.allow, section.deny, own_addresses),
        session=session,
        encryption=EncryptionPolicy(
            advanced=EncryptionAlgorithm[section.encrypt_advanced.upper()],
            enhanced=EncryptionAlgorithm[section.encrypt_enhanced.upper()],
            base=EncryptionAlgorithm[section.encrypt_base.upper()],
            reduced_rc2=section.encrypt_reduced_rc2,
        ),
        are_order_acks_prompt=config.msmq.order_acks == "prompt",
        resend_timer_table=resend_timer_table(
            section.resend_short_s,
            section.resend_medium_s,
            section.resend_long_s,
            section.resend_final_s,
        ),
    )


class MsmqEndpoint:
    """Edge and outgoing queues, started and stopped together."""

    def __init__(
        self,
        config: NodeConfig,
        cluster: Cluster,
        metrics: Metrics,
        keys: OwnKeys,
        sealing: Sealing,
        on_insecure: Callable[[str, int, Facts], None],
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._metrics = metrics
        self._keys = keys
        self._sealing = sealing
        self._on_insecure = on_insecure
        self._bind = bind
        self._session = session_config(config)
        self.edge: Edge | None = None
        self.outgoing: OutgoingManager | None = None

    async def start(self) -> None:
        """Take the addresses; serve when there is a leader. Raises OSError."""
        msmq = self._config.msmq
        settings = EdgeSettings(
            addresses=await self._addresses(),
            port=msmq.port,
            ping_port=msmq.ping_port,
            answer_pings=msmq.answer_pings,
            sessions_max=msmq.sessions_max,
            sessions_per_address_max=msmq.sessions_per_address_max,
            sessions_per_queue_manager_max=msmq.sessions_per_queue_manager_max,
            session=self._session,
        )
        edge = Edge(
            self._cluster,
            settings,
            self._metrics,
            self._bind,
            directory=ReplicatedDirectory(lambda: self._cluster.state),
            keys=self._keys,
            sealing=self._sealing,
            on_insecure=self._on_insecure,
        )
        await edge.start()
        self.edge = edge
        self.outgoing = OutgoingManager(
            self._cluster,
            outgoing_settings(self._config, self._session, settings.addresses),
            self._metrics,
            relay=edge.relay,
        )
        self.outgoing.start()

    async def _addresses(self) -> tuple[str, ...]:
        """Return the addresses to listen on, names resolved. Raises OSError."""
        config = self._config
        hosts = config.msmq.listen or (config.bind or config.host,)
        loop = asyncio.get_running_loop()
        found: dict[str, None] = {}
        for host in hosts:
            infos = await loop.getaddrinfo(host, config.msmq.port, type=socket.SOCK_STREAM)
            found |= {str(info[4][0]): None for info in infos}
        return tuple(found)

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        """Return why peers are not served; see `Edge.not_ready_reason`."""
        if self.edge is None:
            return "the MSMQ endpoint is starting"
        return self.edge.not_ready_reason(no_leader_max_s)

    def session_count(self) -> int:
        """Return how many peers are connected here."""
        return 0 if self.edge is None else self.edge.connection_count

    def sessions(self, wanted: SessionsWanted) -> SessionsFound:
        """Return sessions with other queue managers that live here now."""
        return NO_SESSIONS if self.edge is None else self.edge.relay.sessions.found(wanted)

    async def examine(self, packet: bytes, sender: str) -> Examined:
        """Examine a client's message; see `Examining`."""
        if self.edge is None:
            raise Unavailable("the MSMQ endpoint does not run on this node")
        return await self.edge.examine(packet, sender)

    async def drain(self) -> None:
        """Read nothing more from peers; acknowledge what was read."""
        if self.edge is not None:
            await self.edge.drain(DRAIN_MAX_S)

    async def stop(self) -> None:
        """Close every session."""
        if self.outgoing is not None:
            self.outgoing.stop()
            self.outgoing = None
        if self.edge is not None:
            await self.edge.stop()
            self.edge = None
