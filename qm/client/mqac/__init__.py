r"""The object names of [MC-MQAC] over the data plane, for programs written for COM.

    service = connect(["127.0.0.11:1811"], tls=...)
    info = MSMQQueueInfo(service)
    info.PathName = r".\private$\orders"
    queue = info.Open(constants.MQACCESS.MQ_RECEIVE_ACCESS, constants.MQSHARE.MQ_DENY_NONE)
    message = queue.Receive(ReceiveTimeout=1000)

Names, arguments, defaults, order of checks and HRESULTs follow the document. There is no DCOM:
interface pointers, revisions and dispatch identifiers have no counterpart, VARIANTs are Python
values, and [out] parameters are results. Failures raise MqError. May import the rest of
`qm.client`.
"""

from collections.abc import Sequence
from pathlib import Path

from qm.client.blocking import BlockingClient
from qm.client.calls import Tls
from qm.client.mqac import constants
from qm.client.mqac.application import MSMQApplication
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.collection import MSMQCollection
from qm.client.mqac.destination import MSMQDestination
from qm.client.mqac.event import MSMQEvent
from qm.client.mqac.management import (
    MSMQManagement,
    MSMQOutgoingQueueManagement,
    MSMQQueueManagement,
)
from qm.client.mqac.message import MSMQMessage
from qm.client.mqac.query import MSMQQuery, MSMQQueueInfos
from qm.client.mqac.queue import MSMQQueue
from qm.client.mqac.queue_info import MSMQQueueInfo
from qm.client.mqac.service import MSMQService
from qm.client.mqac.transaction import (
    MSMQCoordinatedTransactionDispenser,
    MSMQTransaction,
    MSMQTransactionDispenser,
)
from qm.client.signing import Signer

__all__ = [
    "MSMQApplication",
    "MSMQCollection",
    "MSMQCoordinatedTransactionDispenser",
    "MSMQDestination",
    "MSMQEvent",
    "MSMQManagement",
    "MSMQMessage",
    "MSMQOutgoingQueueManagement",
    "MSMQQuery",
    "MSMQQueue",
    "MSMQQueueInfo",
    "MSMQQueueInfos",
    "MSMQQueueManagement",
    "MSMQService",
    "MSMQTransaction",
    "MSMQTransactionDispenser",
    "connect",
    "constants",
]


def connect(
    endpoints: Sequence[str],
    *,
    tls: Tls | None = None,
    client_id: str = "",
    memory: Path | None = None,
    null_on_empty: bool = False,
    signers: Sequence[Signer] = (),
) -> MSMQService:
    """Return the service that creates the objects; its `close` ends it.

    Arguments are those of `qm.client.client.Client`, `MSMQService` and `ClusterManager`. Raises
    ClientError.
    """
    client = BlockingClient(endpoints, tls=tls, client_id=client_id, memory=memory)
    return MSMQService(ClusterManager(client, signers), null_on_empty=null_on_empty)
