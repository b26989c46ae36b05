"""The control plane's services, created and registered together."""

import grpc.aio

from qm.api.control.certificates import CertificateControl
from qm.api.control.clients import ClientControl
from qm.api.control.cluster import ClusterControl
from qm.api.control.console import ConsoleControl
from qm.api.control.definitions import DefinitionControl
from qm.api.control.directory import DirectoryControl
from qm.api.control.manager_keys import KeyControl
from qm.api.control.messages import MessageControl
from qm.api.control.node import NodeControl
from qm.api.control.outgoing import OutgoingControl
from qm.api.control.peers import PeerControl
from qm.api.control.queues import QueueControl
from qm.api.control.return_to_source import Returning
from qm.api.data.service import Data
from qm.api.gate.events import EventLog
from qm.api.gate.operations import Console, Operations
from qm.api.propose.control_once import Decider
from qm.cluster.cluster import Cluster
from qm.cluster.membership import Membership
from qm.pb import control_pb2_grpc as stubs


class Control:
    """All services of the control plane."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        operations: Operations,
        events: EventLog,
        data: Data,
        console: Console,
    ) -> None:
        decider = Decider(cluster, data.proposer)
        returning = Returning(cluster, data.proposer, decider, data.bodies)
        self._cluster = ClusterControl(cluster, membership, operations, decider)
        self._queues = QueueControl(cluster, decider)
        self._outgoing = OutgoingControl(cluster, operations, decider)
        self._peers = PeerControl(cluster, membership, operations, decider)
        self._keys = KeyControl(cluster, operations, decider)
        self._directory = DirectoryControl(cluster, operations, decider)
        self._certificates = CertificateControl(cluster, decider)
        self._messages = MessageControl(cluster, data.bodies, returning)
        self._clients = ClientControl(cluster, decider)
        self._definitions = DefinitionControl(cluster, self._queues)
        self._node = NodeControl(cluster, operations, events)
        self._console = ConsoleControl(console)

    def register(self, server: grpc.aio.Server) -> None:
        """Register every service with a server."""
        stubs.add_ClusterControlServicer_to_server(self._cluster, server)
        stubs.add_QueueControlServicer_to_server(self._queues, server)
        stubs.add_OutgoingControlServicer_to_server(self._outgoing, server)
        stubs.add_PeerControlServicer_to_server(self._peers, server)
        stubs.add_KeyControlServicer_to_server(self._keys, server)
        stubs.add_DirectoryControlServicer_to_server(self._directory, server)
        stubs.add_CertificateControlServicer_to_server(self._certificates, server)
        stubs.add_MessageControlServicer_to_server(self._messages, server)
        stubs.add_ClientControlServicer_to_server(self._clients, server)
        stubs.add_DefinitionControlServicer_to_server(self._definitions, server)
        stubs.add_ConsoleControlServicer_to_server(self._console, server)
        stubs.add_NodeControlServicer_to_server(self._node, server)
