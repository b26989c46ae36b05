"""The parts that a member of a cluster runs, in the order in which they start and stop."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from qm.api.gate.delegation import Delegation
from qm.api.gate.events import EventLog
from qm.api.gate.operations import NoConsole
from qm.api.propose.event_recorder import RECORD_EVERY_S, STOPPING_MAX_S, EventRecorder
from qm.api.server import ApiConfig, ApiServer
from qm.archive.limits import STEP_EVERY_S
from qm.client.calls import Tls
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.console.people import Access
from qm.console.server import ConsoleServer, Files
from qm.edge.edge import NO_LEADER
from qm.edge.outgoing.link.resolver import SystemResolver
from qm.node.audits import Shelf
from qm.node.config.addresses import AddressBook, host_and_port
from qm.node.config.schema import NodeConfig
from qm.node.config.tls import Identities, caller_files, certificate_files, peer_files
from qm.node.grpc_guard import API_LIMITS, RELAY_LIMITS, GrpcGuard
from qm.node.grpc_guard import LOOK_EVERY_S as CONNECTIONS_EVERY_S
from qm.node.http_guard import HttpGuard
from qm.node.leader.audit_marks import Auditor
from qm.node.leader.disk_failover import Yielding
from qm.node.leader.final_claims import FinalClaims
from qm.node.leader.key_publication import KeyPublication
from qm.node.leader.kubernetes import LOOK_EVERY_S, LeaderLabel
from qm.node.leader.leader_tasks import Duties
from qm.node.leader.message_policy import MessagePolicy
from qm.node.leader.peer_bindings import PeerBindings
from qm.node.leader.periodic import Rounds
from qm.node.leader.removed_pods import scaled_away
from qm.node.leader.timekeeping import WATCH_EVERY_S, Timekeeper, wall_ms
from qm.node.leader.upgrade import Versions
from qm.node.membership.address_announcer import REFRESH_EVERY_S, Announcer
from qm.node.membership.body_seals import BodySeals
from qm.node.membership.manager_keys import LOOK_EVERY_S as KEYS_EVERY_S
from qm.node.membership.manager_keys import NodeKeys
from qm.node.membership.members import Members
from qm.node.membership.status import inspect_reply
from qm.node.platform import MACHINE, Platform
from qm.node.relay.channels import Channels
from qm.node.relay.copies import Copies, PeerCopies
from qm.node.relay.exporters import RelayedExporters
from qm.node.relay.roster import ASK_EVERY_S, Roster
from qm.node.replica.clock import ClusterClock
from qm.node.replica.console_people import ways_of
from qm.node.replica.replicated_store import Hooks, ReplicatedConfig, ReplicatedStore
from qm.node.upkeep import consensus_health, descriptors, housekeeping, scrubber
from qm.node.upkeep.backup import Backups
from qm.node.upkeep.descriptors import Descriptors
from qm.node.upkeep.diagnosis import Diagnosis
from qm.node.upkeep.drain import Drain
from qm.node.upkeep.event_journal import Journal
from qm.node.upkeep.export_signer import ExportSigner
from qm.node.upkeep.gauges import Gauges
from qm.node.upkeep.healer import Healer
from qm.node.upkeep.housekeeping import Certificates, DiskWatch, Housekeeping
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from qm.node.upkeep.operations import NodeOperations
from qm.node.upkeep.rpc_endpoint import WindowsEndpoint
from qm.node.upkeep.scrubber import DAY_S, Scrubber
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.store.audit import Mark, Proof
from raft.identity import Identity, IdentityRefused
from raft.step import Alarm, AlarmKind
from raft.transport.grpc_transport import GrpcConfig, GrpcTransport
from raft.transport.transport import TransportEvents

if TYPE_CHECKING:
    from qm.node.upkeep.archive_source import Archiving

logger = logging.getLogger(__name__)

KEEP_FOLLOWING_EVERY_S: Final = 1.0
PROVE_EVERY_S: Final = 1.0


class Service:
    """A member's parts and their lifecycle. Create and use it in one event loop."""

    def __init__(
        self,
        config: NodeConfig,
        identity: Identity,
        addresses: AddressBook,
        channels: Channels,
        tls: Identities,
        roster: Roster,
        disk: DiskWatch,
        metrics: Metrics,
        die: Callable[[str], None],
        platform: Platform = MACHINE,
    ) -> None:
        """Open log and state. Raises IdentityRefused, StartRefused, and the errors of opening;
        after an OSError for lack of space it may be tried again.
        """
        self._config = config
        self._identity = identity
        self._die = die
        self._roster = roster
        self._metrics = metrics
        self._platform = platform
        self._is_stopping = False
        self._phase_s = asyncio.get_running_loop().time()
        self.disk: Final = disk
        self.replicated: Final = self._open_replica(addresses, channels)
        self._announcer = Announcer(self.replicated, addresses, channels, config)
        self.members: Final = Members(self.replicated, channels, self._announcer, self.inspect)
        self._auditor = self._new_auditor()
        self._timekeeper = Timekeeper(
            self.replicated.clock,
            self.members,
            metrics,
            on_step=lambda text: self._note("clock_step", text),
        )
        self.replicated.before_leading = self._timekeeper.before_leading
        self.keys: Final = NodeKeys(config, self.replicated)
        seals = BodySeals(self.keys, self.replicated, metrics)
        self.replicated.seals = seals
        self._duties = self._new_duties()
        # Wall time of this node, as in its log; cluster time is unknown before the first entry.
        self._events = EventLog(wall_ms)
        self._recorder = EventRecorder(self.replicated, metrics)
        self._events.on_add = self._recorder.take
        self._journal = Journal(self._events, metrics.counter("quorate_alarms_total"))
        self.msmq: Final = MsmqEndpoint(
            config,
            self.replicated,
            metrics,
            self.keys,
            seals,
            self._journal.insecure,
            platform.bind,
        )
        self._drain = Drain(
            self.replicated,
            self.msmq,
            self.members.inspect_all,
            self.members.transfer,
            self._note,
        )
        self.copies: Final = Copies(
            self.replicated.driver.scrub.entry,
            self.replicated.copy_of_body,
        )
        self.gauges: Final = Gauges(self.replicated, metrics)
        self._signer = ExportSigner(config.storage, config.data, metrics)
        self._delegation = Delegation()
        self.console: Final = self._new_console(tls)
        self._keeping = Housekeeping(self.replicated.machine, self.replicated.driver.droppable_soon)
        self.scrubber: Final = self._new_scrubber(PeerCopies(channels, self.members.others))
        self.operations: Final = self._new_operations(channels)
        self.api: Final = self._new_api_server(tls)
        self.replicated.announce = self.api.data.waits.expect
        self.windows: Final = WindowsEndpoint(
            config,
            self.replicated,
            self.api.data,
            self.operations,
            self.keys,
            self._audit_management,
            metrics,
            self.api.channel,
            RelayedExporters(config.name, self.members.others, channels, metrics, time.monotonic),
            platform.bind,
        )
        self._rounds = Rounds(
            metrics.counter("quorate_duties_failed_total"), die, self.disk.full, self._phase_s
        )
        self._archiving = self._new_archiving() if config.archive.url else None
        self._descriptors = Descriptors(metrics)
        ports = {config.api.port: API_LIMITS, config.raft.relay_port: RELAY_LIMITS}
        self._grpc_guard = GrpcGuard(ports, metrics)
        self._certificates = Certificates(certificate_files(config.tls), metrics)

    def _open_replica(self, addresses: AddressBook, channels: Channels) -> ReplicatedStore:
        return ReplicatedStore(
            replicated_config(self._config, self._identity),
            self._connect,
            addresses,
            channels,
            ClusterClock(time.monotonic_ns),
            Hooks(
                lambda: self.disk.admits_messages,
                self._on_alarm,
                self._roster.took,
                self._die,
                self.disk.full,
            ),
            self._platform,
        )

    def _new_auditor(self) -> Auditor:
        return Auditor(
            self.replicated,
            lambda: self.replicated.machine,
            self.members,
            self._on_damage,
            self._on_proof,
            self._metrics,
        )

    def _new_duties(self) -> Duties:
        return Duties(
            self.replicated,
            self._timekeeper,
            self._auditor,
            Versions(self.replicated, self.members),
            Yielding(lambda: self.disk.admits_messages, self.members, self.members.transfer),
            PeerBindings(self._config, self.replicated, SystemResolver()),
            FinalClaims(self.replicated),
            MessagePolicy(self._config.msmq, self._config.storage, self.replicated),
            KeyPublication(self.keys, self.replicated),
            scaled_away(self._config.kubernetes, self.members),
            self._metrics,
            self._die,
            self._phase_s,
        )

    def _new_operations(self, channels: Channels) -> NodeOperations:
        return NodeOperations(
            self.replicated,
            channels,
            self.disk,
            self._drain,
            self.msmq,
            Backups(self.replicated, self._metrics, self._signer),
            Diagnosis(self._config, self._metrics.registry, self.gauges.refresh),
            self.scrubber,
            self.keys,
            self._config.data,
            Shelf(
                self._config.console.reports, self._config.archive.url, self._identity.cluster_id
            ),
        )

    def _new_api_server(self, tls: Identities) -> ApiServer:
        config, is_insecure = self._config, self._config.api.insecure
        return ApiServer(
            ApiConfig(
                config.api.listen or config.bind or config.host, config.api.port, is_insecure
            ),
            self.replicated,
            self.members,
            self.operations,
            self._metrics,
            self._events,
            self.console or NoConsole(),
            self._delegation,
            self.msmq,
            None if is_insecure else tls.callers,
        )

    def _new_archiving(self) -> "Archiving":
        from qm.node.upkeep.archive_source import Archiving  # loads Arrow

        return Archiving(
            self._config.archive,
            self.replicated,
            self.msmq,
            self._journal.alarm,
            self._metrics,
            self.members,
            self._signer,
        )

    def _new_scrubber(self, peers: PeerCopies) -> Scrubber:
        replicated, journal, config = self.replicated, self._journal, self._config
        healer = Healer(
            replicated, peers, self._keeping, self._metrics, journal.note, journal.alarm
        )
        replicated.restore = healer.restore
        return Scrubber(
            replicated,
            healer,
            self._platform.directory(config.data),
            config.storage.scrub_days * DAY_S,
            self._metrics,
            time.time,
        )

    def _new_console(self, tls: Identities) -> ConsoleServer | None:
        config = self._config
        if config.api.insecure or not config.console.port:
            return None
        files = caller_files(config.tls)
        host = config.api.listen or config.bind or config.host
        names = Tls(files.authority, files.certificate, files.key, server_name=config.name)
        return ConsoleServer(
            config.console.listen or config.bind or config.host,
            config.console.port,
            Files(files.authority, files.certificate, files.key),
            Access(host_and_port(host, config.api.port), names, self._delegation),
            tls.callers.is_revoked,
            config.host,
            ways_of(config, self.replicated, self.keys.opened, self._events),
            lambda: HttpGuard(self._metrics.counter("quorate_http_refused_total")),
        )

    def _connect(self, events: TransportEvents) -> GrpcTransport:
        config = self._config
        listen = host_and_port(config.bind or config.host, config.raft.port)
        grpc_config = GrpcConfig(
            self._identity.cluster_id,
            self._identity.node_id,
            listen,
            peer_files(config.tls),
            self._roster.admits,
        )
        chance = random.Random(os.urandom(16))
        return self._platform.transport(grpc_config, events, chance.randrange)

    def _note(self, name: str, text: str) -> None:
        self._journal.note(name, text)

    def _audit_management(self, name: str, principal: str, text: str) -> None:
        self._events.add("control", name, text, principal=principal)

    def _on_alarm(self, alarm: Alarm) -> None:
        self._journal.alarm(alarm.kind.name.lower(), alarm.text)
        if alarm.kind is AlarmKind.DISK_FULL:
            self.disk.full()

    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        """Return why this node should not be used now; None when it is ready.

        `no_leader_max_s`: see `qm.edge.edge.Edge.not_ready_reason`.
        """
        if self._is_stopping:
            return "this node is stopping"
        if self._drain.is_draining:
            return "this node drains: `qm cluster undrain` lets it serve again"
        if self.replicated.machine.is_installing:
            return "this node's state is being replaced, or opened again after its disk was full"
        status = self.replicated.driver.status()
        if (reason := consensus_health.not_ready_reason(self._config.name, status)) is not None:
            return reason
        if self.replicated.view.ledger.manager is None:
            if self.replicated.leadership.node is None:
                return NO_LEADER
            return "the cluster is not a queue manager yet: run `qm cluster init` again"
        return self.msmq.not_ready_reason(no_leader_max_s)

    def _on_damage(self, text: str) -> None:
        """This node's rows have changed since they were written."""
        self.replicated.quarantine.enter(text)
        self._die(text)

    def _on_proof(self, mark: Mark, proof: Proof) -> None:
        if self._archiving is not None:
            self._archiving.proved(mark, proof)

    def inspect(self) -> relay_pb2.InspectReply:
        """Return this node's state for other nodes."""
        reply = inspect_reply(self._config.name, self.replicated, self._auditor.proofs)
        reply.takes_messages = self.disk.admits_messages and not self._drain.is_draining
        if self._archiving is not None:
            self._archiving.describe(reply)
        return reply

    async def start(self) -> None:
        """Take part. Raises OSError when an address cannot be had, IdentityRefused when another
        process does so under this node's identity.
        """
        if self.replicated.machine.store.applied.index:  # an empty node cannot be a copy
            self._announcer.read()
            await self._announcer.refuse_second()
        self.replicated.listen(self._duties)
        self.replicated.listen(self._rounds)
        self.replicated.listen(self.gauges)
        await self.replicated.start()
        self.replicated.listen(self._journal)
        await self.msmq.start()
        await self.api.start()
        await self.windows.start()
        if self.console is not None:
            await self.console.start()
        self._begin_rounds()
        self._note("started", f"{self._config.name} started, version {self.operations.version}")

    def _begin_rounds(self) -> None:
        keeping, begin = self._keeping, self._rounds.begin
        begin("manager keys", KEYS_EVERY_S, self.keys.look)
        begin("disk", housekeeping.LOOK_EVERY_S, self.disk.look, is_durable=True)
        begin("state", housekeeping.LOOK_EVERY_S, self._look_at_state, is_durable=True)
        begin("flush", housekeeping.LOOK_EVERY_S, keeping.flush, is_durable=True)
        begin("log", housekeeping.SHORTEN_EVERY_S, self._shorten_log, is_durable=True)
        begin(
            "bodies",
            housekeeping.MOVE_EVERY_S,
            keeping.move_ahead,
            is_durable=True,
            is_idle=keeping.has_moved_ahead,
        )
        begin("blobs", housekeeping.SPARSE_EVERY_S, keeping.empty_sparse, is_durable=True)
        begin("scrub", scrubber.STEP_EVERY_S, self.scrubber.step)
        begin("connections", CONNECTIONS_EVERY_S, self._grpc_guard.look)
        begin("descriptors", descriptors.LOOK_EVERY_S, self._descriptors.look)
        begin("certificates", housekeeping.CERTIFICATES_EVERY_S, self._certificates.look)
        begin("announcing", REFRESH_EVERY_S, self._announce)
        begin("draining", KEEP_FOLLOWING_EVERY_S, self._drain.keep_following)
        begin("audit proof", PROVE_EVERY_S, self._auditor.prove_marks, is_durable=True)
        begin("roster", ASK_EVERY_S, self._look_for_members)
        begin("clock", WATCH_EVERY_S, self._timekeeper.watch)
        begin("events", RECORD_EVERY_S, self._recorder.step)
        if self._archiving is not None:
            begin("archive", STEP_EVERY_S, self._archiving.archiver.step)
        if self._config.kubernetes.label_leader:
            label = LeaderLabel(
                self._config.kubernetes,
                self._config.name,
                lambda: self.replicated.leadership,
                lambda: [member.name for member in self.members.members],
            )
            begin("leader label", LOOK_EVERY_S, label.look)

    async def _shorten_log(self) -> None:
        free_bytes, retention = self.disk.free_bytes(), self.replicated.driver.retention
        reserve_bytes = self._config.storage.reserve_mb << 20
        await self._keeping.shorten_log(retention, free_bytes, reserve_bytes)

    async def _look_at_state(self) -> None:
        """Open the state again after it found no space, once there is some."""
        if self.disk.has_room_to_reopen:
            await self.replicated.reopen_state()

    async def _look_for_members(self) -> None:
        commit = self.replicated.driver.status().commit
        await self._roster.look(self._announcer.inspect, self._identity.cluster_id, commit)

    async def _announce(self) -> None:
        try:
            await self._announcer.announce()
        except IdentityRefused as error:
            self._die(str(error))

    async def stop(self) -> None:
        """Finish accepted work, hand leadership over, and close."""
        self._is_stopping = True
        self._note("stopping", f"{self._config.name} stops as it was asked to")
        await self.msmq.drain()
        await self.windows.stop()
        await self._stop_console()
        await self.api.stop()
        await self.msmq.stop()
        await self._end_rounds()
        await self._leave_events()
        await self.replicated.stop()

    async def _leave_events(self) -> None:
        """Have the last events recorded, if that is possible now."""
        with suppress(TimeoutError, Unavailable, OutcomeUnknown):
            async with asyncio.timeout(STOPPING_MAX_S):
                await self._recorder.step()

    async def abort(self) -> None:
        """Close at once; only durable data stays."""
        self._is_stopping = True
        await self._stop_console()
        await self.windows.abort()
        await self.api.stop(None)
        await self.msmq.stop()
        await self._end_rounds()
        await self.replicated.abort()

    async def _stop_console(self) -> None:
        if self.console is not None:
            await self.console.stop()

    async def _end_rounds(self) -> None:
        self.operations.log_levels.close()
        await asyncio.gather(self._rounds.stop(), self._duties.stop())
        if self._archiving is not None:
            await self._archiving.stop()


def replicated_config(config: NodeConfig, identity: Identity) -> ReplicatedConfig:
    """Return which replica a node is and its settings."""
    return ReplicatedConfig(
        node=identity.node_id,
        cluster=identity.cluster_id,
        data=config.data,
        cache_bytes=config.storage.cache_mb << 20,
        log_retain_bytes=config.raft.log_retain_mb << 20,
        keeps_effects=bool(config.archive.url),
    )
