"""One node: its parts, in the order in which they start and stop.

A node without an identity in its data folder belongs to no cluster: it serves its relay endpoint,
where `qm cluster init` or `qm node join` gives it one, and nothing else.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from typing import Final

from qm.node import birth
from qm.node.addresses import AddressBook, host_and_port
from qm.node.channels import Channels
from qm.node.clock import ClusterClock
from qm.node.config import NodeConfig
from qm.node.members import Members
from qm.node.relay_server import RelayServer
from qm.node.replicated import RAFT_FOLDER, ReplicatedConfig, ReplicatedStore, found
from qm.node.status import inspect_reply
from qm.pb import relay_pb2
from qm.store.membership import ChangeRefused
from raft import identity
from raft.disk import DiskDirectory
from raft.driver import end_process
from raft.grpc_transport import GrpcConfig, GrpcTransport
from raft.identity import Identity, IdentityRefused
from raft.metrics import TransportMetrics
from raft.tls import TlsFiles, TlsIdentity
from raft.transport import TransportEvents
from raft.types import Configuration

logger = logging.getLogger(__name__)


class Node:
    """See the module. Made and used in one loop."""

    def __init__(self, config: NodeConfig, die: Callable[[str], None] = end_process) -> None:
        """Raises TlsError when the certificate files cannot be used."""
        self.config: Final = config
        self.replicated: ReplicatedStore | None = None
        """None while the node belongs to no cluster."""
        self.is_adopted = asyncio.Event()
        self._die = die
        files = TlsFiles(config.tls.authority, config.tls.certificate, config.tls.key)
        self._tls_files = files
        tls = TlsIdentity(files, TransportMetrics())
        self.addresses: Final = AddressBook(config.members)
        self.channels: Final = Channels(tls, self.addresses.relay_of)
        listen = host_and_port(config.bind or config.host, config.raft.relay_port)
        self._relay = RelayServer(listen, tls, self._inspect, self._adopt)

    async def start(self) -> None:
        """Begin to serve. Raises OSError when an address cannot be had, IdentityRefused when the
        data folder is not this node's, and what opening log and state raises.
        """
        await self._relay.start()
        known = self._identity()
        if known is not None and known.is_started:
            await self._join(known)

    def _identity(self) -> Identity | None:
        folder = self.config.data / RAFT_FOLDER
        return identity.load(DiskDirectory(folder)) if folder.exists() else None

    async def _join(self, known: Identity) -> None:
        """Take part in the cluster that the data folder belongs to."""
        if known.name != self.config.name:
            raise IdentityRefused(
                f"the data folder belongs to node {known.name}, the configuration says"
                f" {self.config.name}: correct the configuration, or use an empty folder"
            )
        replicated = ReplicatedStore(
            self._replicated_config(known),
            lambda events: self._transport(known, events),
            self.addresses,
            self.channels,
            ClusterClock(time.monotonic_ns),
            self._die,
        )
        self.members = Members(replicated, self.channels)
        self._relay.leader, self._relay.lead = replicated, self.members.lead
        await replicated.start()
        self.replicated = replicated
        self.is_adopted.set()

    def _replicated_config(self, known: Identity) -> ReplicatedConfig:
        config = self.config
        return ReplicatedConfig(
            node=known.node_id,
            cluster=known.cluster_id,
            data=config.data,
            cache_bytes=config.storage.cache_mb << 20,
            log_retain_bytes=config.raft.log_retain_mb << 20,
        )

    def _transport(self, known: Identity, events: TransportEvents) -> GrpcTransport:
        listen = host_and_port(self.config.bind or self.config.host, self.config.raft.port)
        config = GrpcConfig(known.cluster_id, known.node_id, listen, self._tls_files)
        return GrpcTransport(config, events, random.Random(os.urandom(16)).randrange)

    async def stop(self) -> None:
        """Finish what was taken, hand leadership over, and close."""
        if self.replicated is not None:
            await self.replicated.stop()
        await self._close()

    async def abort(self) -> None:
        """Close at once, as a crash would; what is durable stays."""
        if self.replicated is not None:
            await self.replicated.abort()
        await self._close()

    async def _close(self) -> None:
        await self._relay.stop()
        await self.channels.close()

    # Relay endpoint

    def _inspect(self) -> relay_pb2.InspectReply:
        return inspect_reply(self.config.name, self.replicated)

    async def _adopt(self, request: relay_pb2.AdoptRequest) -> None:
        """Become a founder or a learner. Raises ChangeRefused."""
        name, _, incarnation = request.raft_id.rpartition(".")
        if name != self.config.name or not incarnation.isdecimal():
            raise ChangeRefused(f"this is node {self.config.name}, not {request.raft_id!r}")
        wanted = Identity(request.cluster, name, int(incarnation))
        known = self._identity()
        if known is not None and known.is_started:
            if (known.cluster_id, known.node_id) == (request.cluster, request.raft_id):
                return  # asked again
            raise ChangeRefused(
                f"{known.node_id} belongs to cluster {known.cluster_id.hex()} already"
            )
        try:
            found(self._replicated_config(wanted), Configuration(tuple(sorted(request.founders))))
            if request.sealing_key:
                birth.keep_sealing_key(self.config.data, request.sealing_key)
        except IdentityRefused as error:
            raise ChangeRefused(str(error)) from error
        await self._join(wanted)
