"""The control plane's services, made and registered together."""

import grpc.aio

from qm.api.control_clients import ClientControl
from qm.api.control_cluster import ClusterControl
from qm.api.control_definitions import DefinitionControl
from qm.api.control_messages import MessageControl
from qm.api.control_node import NodeControl
from qm.api.control_outgoing import OutgoingControl
from qm.api.control_queues import QueueControl
from qm.api.data import Data
from qm.api.deciding import Decider
from qm.api.events import EventLog
from qm.api.operations import Operations
from qm.api.returning import Returning
from qm.pb import control_pb2_grpc as stubs
from qm.store.cluster import Cluster
from qm.store.membership import Membership


class Control:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        operations: Operations,
        events: EventLog,
        data: Data,
    ) -> None:
        decider = Decider(cluster, data.proposer)
        returning = Returning(cluster, data.proposer, decider, data.bodies)
        self._cluster = ClusterControl(cluster, membership, operations, decider)
        self._queues = QueueControl(cluster, decider)
        self._outgoing = OutgoingControl(cluster, operations, decider)
        self._messages = MessageControl(cluster, data.bodies, returning)
        self._clients = ClientControl(cluster, decider)
        self._definitions = DefinitionControl(cluster, self._queues)
        self._node = NodeControl(cluster, operations, events)

    def register(self, server: grpc.aio.Server) -> None:
        """Offer every service on a server."""
        stubs.add_ClusterControlServicer_to_server(self._cluster, server)
        stubs.add_QueueControlServicer_to_server(self._queues, server)
        stubs.add_OutgoingControlServicer_to_server(self._outgoing, server)
        stubs.add_MessageControlServicer_to_server(self._messages, server)
        stubs.add_ClientControlServicer_to_server(self._clients, server)
        stubs.add_DefinitionControlServicer_to_server(self._definitions, server)
        stubs.add_NodeControlServicer_to_server(self._node, server)
