"""The control plane's services, made and registered together."""

import grpc.aio

from qm.api.data import Data
from qm.api.events import EventLog
from qm.api.operations import Operations
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
        self._cluster = cluster

    def register(self, server: grpc.aio.Server) -> None:
        """Offer every service on a server."""
