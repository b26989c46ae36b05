"""One node, with or without a cluster.

A node without an identity in its data folder belongs to no cluster: it serves its relay endpoint,
where `qm cluster init` or `qm node join` gives it one, or finds its cluster by itself if it may
(`qm.node.membership.automatic_entry`). Until then it says over HTTP that it is not ready.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry
from typing_extensions import override

from qm.cluster.membership import ChangeRefused
from qm.node.config.addresses import AddressBook, address_of, host_and_port
from qm.node.config.schema import NodeConfig
from qm.node.config.tls import Identities
from qm.node.http import Health, HttpServer
from qm.node.leader.pod_events import REMOVED, PodEvents
from qm.node.membership import birth
from qm.node.membership.automatic_entry import Entry, MemberRemoved
from qm.node.membership.former_member import FormerMember
from qm.node.membership.status import inspect_reply
from qm.node.platform import MACHINE, Platform
from qm.node.relay.channels import Channels
from qm.node.relay.copies import PeerCopies
from qm.node.relay.roster import Roster
from qm.node.relay.server import Member, RelayServer
from qm.node.replica.log_repair import RefusedLog, repair_log
from qm.node.replica.replicated_store import RAFT_FOLDER, ReplicatedStore, found
from qm.node.service import Service, replicated_config
from qm.node.upkeep.housekeeping import DiskWatch, refuse_small_disk
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.store.reserve import DiskLevel
from raft import identity
from raft.driver import end_process
from raft.identity import Identity, IdentityRefused
from raft.log.recovery import LogDamaged
from raft.log.segment import is_disk_full, may_pass
from raft.types import Configuration

logger = logging.getLogger(__name__)

OPEN_AGAIN_AFTER_S: Final = 1.0
"""Between attempts on a full disk whose reserve is used up, or without descriptors."""


class Node(Health):
    """One node, with or without a cluster. Create and use it in one event loop."""

    def __init__(
        self,
        config: NodeConfig,
        die: Callable[[str], None] = end_process,
        platform: Platform = MACHINE,
    ) -> None:
        """Raises TlsError when the certificate files cannot be used."""
        self.config: Final = config
        self.metrics: Final = Metrics(CollectorRegistry())
        self.service: Service | None = None
        """None while the node belongs to no cluster."""
        self._die = die
        self._waits_for = ""
        """Why it does not take part yet, while its disk is full or its log is repaired."""
        self._platform = platform
        self._adopting = asyncio.Lock()
        self._adoptions: set[asyncio.Task[None]] = set()
        self._tls = tls = Identities(config.tls)
        self._roster = Roster(config.name, (member.name for member in config.members))
        self._addresses = AddressBook(config.members)
        self._channels = Channels(tls.peers, self._addresses.relay_of)
        bind = config.bind or config.host
        listen = host_and_port(bind, config.raft.relay_port)
        self._relay = RelayServer(
            config.name,
            listen,
            tls.peers,
            self._roster,
            self.metrics,
            self._inspect,
            self._adopt,
        )
        self._copies = PeerCopies(
            self._channels,
            lambda: [each.name for each in config.members if each.name != config.name],
        )
        self._former = FormerMember(config.data)
        self._entry = Entry(config, self._begun_cluster)
        self._events = PodEvents(config.kubernetes, config.name)
        self._entering: asyncio.Task[None] | None = None
        http = config.http
        self._http = HttpServer(
            http.listen or bind,
            http.port,
            self,
            self.metrics.registry,
            self._refresh,
            self.metrics.counter("quorate_http_refused_total"),
        )

    @property
    def replicated(self) -> ReplicatedStore | None:
        """The node's replica of the store, None while it belongs to no cluster."""
        return None if self.service is None else self.service.replicated

    async def start(self) -> None:
        """Begin to serve. Raises OSError when an address cannot be had, IdentityRefused when the
        data folder is not this node's, StartRefused when its disk is too small, and the errors of
        opening log and state. On a full disk it waits until there is space.
        """
        self._former.set_aside()
        known = self._own_identity()  # before any port opens
        refuse_small_disk(self.config.data, self.config.storage.reserve_mb << 20)
        try:
            await self._http.start()
            await self._relay.start()
            if known is not None and known.is_started:
                await self._take_part(known)
        except BaseException:
            await self._close()
            raise
        if self.config.birth.automatic:
            self._entering = asyncio.create_task(self._enter(), name="entering")
            self._entering.add_done_callback(self._on_entered)

    async def _enter(self) -> None:
        watching = asyncio.create_task(self._events.watch(lambda: self._entry.waits_for))
        try:
            await self._entry.run()
        except MemberRemoved as error:
            await asyncio.to_thread(self._former.note, str(error))
            why = f"{error} was removed: this node starts again as a new member"
            await self._events.tell(REMOVED, why)
            self._die(why)
        else:
            await asyncio.to_thread(self._former.forget)
        finally:
            watching.cancel()

    def _on_entered(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("this node cannot find its cluster", exc_info=error)
            self._die(f"this node cannot find its cluster: {error!r}")

    async def _end_entering(self) -> None:
        tasks = [*self._adoptions, *([self._entering] if self._entering is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _identity(self) -> Identity | None:
        folder = self.config.data / RAFT_FOLDER
        return identity.load(self._platform.directory(folder)) if folder.exists() else None

    def _own_identity(self) -> Identity | None:
        """Return the data folder's identity. Raises IdentityRefused if it is another node's."""
        known = self._identity()
        if known is not None and known.is_started and known.name != self.config.name:
            raise IdentityRefused(
                f"the data folder belongs to node {known.name}, the configuration says"
                f" {self.config.name}: correct the configuration, or use an empty folder"
            )
        return known

    def _begun_cluster(self) -> bytes:
        known = self._identity()
        return b"" if known is None or known.is_started else known.cluster_id

    async def _take_part(self, known: Identity) -> None:
        """Take part as a member of the cluster that the data folder belongs to."""
        service = await self._opened(known)
        self._relay.member = Member(
            service.replicated,
            service.members.ask_leader,
            service.operations,
            service.copies,
            service.windows.ask_exporter,
        )
        try:
            await service.start()
        except BaseException:
            await service.abort()
            raise
        self.service = service

    async def _opened(self, known: Identity) -> Service:
        """Open log and state: on a full disk with the reserve's space, or once there is space and
        there are descriptors.
        """
        config = self.config
        disk = DiskWatch(
            config.data,
            self._platform.directory(config.data),
            config.storage.reserve_mb << 20,
            self.metrics,
        )
        damaged: LogDamaged | None = None
        while True:
            try:
                if damaged is not None:
                    await self._repair(damaged)
                    damaged = None
                service = Service(
                    config,
                    known,
                    self._addresses,
                    self._channels,
                    self._tls,
                    self._roster,
                    disk,
                    self.metrics,
                    self._die,
                    self._platform,
                )
            except LogDamaged as error:
                if damaged is not None:  # it cannot be repaired
                    raise
                damaged = error
            except OSError as error:
                if not may_pass(error):
                    raise
                self._waits_for = (
                    "this node waits for space on its disk, or for descriptors, to open its log and"
                    f" state: {error}"
                )
                logger.error("%s", self._waits_for)
                has_reserve = is_disk_full(error) and disk.level is not DiskLevel.EXHAUSTED
                if has_reserve:
                    disk.full()
                await asyncio.sleep(0.0 if has_reserve else OPEN_AGAIN_AFTER_S)
            else:
                self._waits_for = ""
                self._relay.refused_log = None
                return service

    async def _repair(self, damaged: LogDamaged) -> None:
        """Repair the log, and give what is whole in it. Raises LogDamaged if it cannot be
        repaired, OSError.
        """
        self._waits_for = f"this node asks the others to repair its log: {damaged}"
        folder = self._platform.directory(self.config.data / RAFT_FOLDER)
        self._relay.refused_log = RefusedLog(folder).entry
        await repair_log(folder, damaged, self._copies)
        logger.warning("the log is opened again after a repair")

    async def stop(self) -> None:
        """Finish accepted work, hand leadership over, and close."""
        await self._end_entering()
        if self.service is not None:
            await self.service.stop()
        await self._close()

    async def abort(self) -> None:
        """Close at once, as in a crash; only durable data stays."""
        await self._end_entering()
        if self.service is not None:
            await self.service.abort()
        await self._close()

    async def _close(self) -> None:
        await self._relay.stop()
        await self._http.stop()
        await self._channels.close()

    # Health

    @override
    def not_ready_reason(self, no_leader_max_s: float | None = None) -> str | None:
        has_entered = self._entering is not None and self._entering.done()
        is_entering = self.config.birth.automatic and not has_entered
        if self.service is None and self._waits_for:
            return self._waits_for
        if self.service is None:
            how = self._entry.waits_for if is_entering else "`qm cluster init` or `qm node join`"
            return f"this node belongs to no cluster yet: {how}"
        reason = self.service.not_ready_reason(no_leader_max_s)
        return f"{reason}; {self._entry.waits_for}" if reason and is_entering else reason

    @override
    def leader(self) -> str | None:
        """Return the leader, as far as this node knows."""
        return None if self.replicated is None else self.replicated.leadership.node

    @override
    def leads(self) -> bool:
        """Return whether this node leads and serves."""
        return self.replicated is not None and self.replicated.leadership.is_here

    async def _refresh(self) -> None:
        if self.service is not None:
            await self.service.gauges.refresh()

    # Relay endpoint

    def _inspect(self) -> relay_pb2.InspectReply:
        config, service = self.config, self.service
        reply = inspect_reply(config.name) if service is None else service.inspect()
        reply.address.CopyFrom(address_of(config).encoded())
        for name, address in self._addresses.members.items():
            reply.addresses[name].CopyFrom(address.encoded())
        return reply

    async def _adopt(self, request: relay_pb2.AdoptRequest) -> None:
        """Become a founder or a learner. Raises ChangeRefused."""
        name, _, incarnation = request.raft_id.rpartition(".")
        if name != self.config.name or not incarnation.isdecimal():
            raise ChangeRefused(f"this is node {self.config.name}, not {request.raft_id!r}")
        wanted = Identity(request.cluster, name, int(incarnation))
        # A caller may stop waiting: adoption is completed all the same, and the next call finds it.
        adoption = asyncio.create_task(self._become(wanted, request), name="adoption")
        self._adoptions.add(adoption)
        adoption.add_done_callback(self._adoptions.discard)
        await asyncio.shield(adoption)

    async def _become(self, wanted: Identity, request: relay_pb2.AdoptRequest) -> None:
        async with self._adopting:
            known = self._identity()
            if known is None or not known.is_started:
                self._found(wanted, request)
                await self._take_part(wanted)
            elif (known.cluster_id, known.node_id) != (request.cluster, request.raft_id):
                raise ChangeRefused(
                    f"{known.node_id} belongs to cluster {known.cluster_id.hex()} already"
                )

    def _found(self, wanted: Identity, request: relay_pb2.AdoptRequest) -> None:
        founders = Configuration(tuple(sorted(request.founders)))
        try:
            found(replicated_config(self.config, wanted), founders, self._platform)
        except IdentityRefused as error:
            raise ChangeRefused(str(error)) from error
        if request.sealing_key:
            birth.keep_sealing_key(self.config.storage, self.config.data, request.sealing_key)
