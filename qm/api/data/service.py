"""The data plane's service: passes each call to the part that answers it."""

from collections.abc import AsyncIterator

from typing_extensions import override

from qm.api.data.batches import Bodies
from qm.api.data.handles import Handles
from qm.api.data.peek import Peeking
from qm.api.data.receive import Receiving
from qm.api.data.send import Sending
from qm.api.data.sessions import Sessions, host_of
from qm.api.data.stream_receive import Streaming
from qm.api.data.transactions import Transacting
from qm.api.data.waits import Waits
from qm.api.gate.calls import Context, caller
from qm.api.propose.applied_index import AppliedWatch
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.cluster.examining import Examining
from qm.model.values.commands import TxAbort, TxCommit, TxPrepare
from qm.observe.metrics import Metrics
from qm.pb import data_pb2 as pb
from qm.pb import data_pb2_grpc


class Data(data_pb2_grpc.DataServicer):
    """Implements `quorate.data.v1.Data`; the control plane uses its parts, too."""

    def __init__(self, cluster: Cluster, metrics: Metrics, examining: Examining) -> None:
        self.applied = AppliedWatch(cluster)
        self.proposer = Proposer(cluster)
        self.bodies = Bodies(cluster, self.applied)
        self.waits = Waits(cluster, metrics)
        self.sessions = Sessions(cluster, self.proposer)
        self._handles = Handles(cluster, self.proposer, self.sessions, self.waits)
        self._sending = Sending(cluster, self.proposer, self.sessions, examining)
        self._receiving = Receiving(
            cluster, self.proposer, self.sessions, self._handles, self.waits, self.bodies
        )
        self._peeking = Peeking(cluster, self.sessions, self._handles, self.waits, self.bodies)
        self._streaming = Streaming(
            cluster, self.proposer, self.sessions, self._handles, self.waits, self.bodies
        )
        self._transacting = Transacting(cluster, self.proposer, self.sessions)

    def stop(self) -> None:
        """End waits and streams; their clients continue at another node."""
        self.waits.stop()
        self.sessions.stop()

    async def close(self) -> None:
        """Finish; there are no more calls."""
        self.applied.close()

    # Sessions ----------------------------------------------------------------------------

    @override
    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Context
    ) -> pb.OpenSessionReply:
        return await self.sessions.open(request, caller(), host_of(context.peer()))

    @override
    async def RenewSession(
        self, request: pb.RenewSessionRequest, context: Context
    ) -> pb.RenewSessionReply:
        await self.sessions.renew(request.client_id, request.lease_ms, caller())
        return pb.RenewSessionReply()

    @override
    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionReply:
        await self.sessions.close(request.client_id, caller())
        return pb.CloseSessionReply()

    @override
    async def Confirm(self, request: pb.ConfirmRequest, context: Context) -> pb.ConfirmReply:
        await self.sessions.confirm(request.client_id, request.confirmed_upto, caller())
        return pb.ConfirmReply()

    # Queues ------------------------------------------------------------------------------

    @override
    async def OpenQueue(self, request: pb.OpenQueueRequest, context: Context) -> pb.OpenQueueReply:
        return await self._handles.open(request, caller())

    @override
    async def CloseQueue(
        self, request: pb.CloseQueueRequest, context: Context
    ) -> pb.CloseQueueReply:
        await self._handles.close(request, caller())
        return pb.CloseQueueReply()

    @override
    async def CreateCursor(
        self, request: pb.CreateCursorRequest, context: Context
    ) -> pb.CreateCursorReply:
        cursor = await self._handles.create_cursor(request.client_id, request.handle, caller())
        return pb.CreateCursorReply(cursor=cursor)

    @override
    async def CloseCursor(
        self, request: pb.CloseCursorRequest, context: Context
    ) -> pb.CloseCursorReply:
        await self._handles.close_cursor(request.client_id, request.cursor, caller())
        return pb.CloseCursorReply()

    # Messages ----------------------------------------------------------------------------

    @override
    async def Compose(self, request: pb.ComposeRequest, context: Context) -> pb.ComposeReply:
        return await self._sending.compose(request, caller())

    @override
    async def Send(self, request: pb.SendRequest, context: Context) -> pb.SendReply:
        return await self._sending.send(request, caller())

    @override
    async def Receive(self, request: pb.ReceiveRequest, context: Context) -> pb.ReceiveReply:
        return await self._receiving.receive(request, caller())

    @override
    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekReply:
        return await self._peeking.peek(request, caller())

    @override
    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelReply:
        return await self._receiving.cancel(request, caller())

    @override
    async def Complete(self, request: pb.CompleteRequest, context: Context) -> pb.CompleteReply:
        await self._receiving.complete(request, caller())
        return pb.CompleteReply()

    @override
    async def Move(self, request: pb.MoveRequest, context: Context) -> pb.MoveReply:
        return await self._receiving.move(request, caller())

    @override
    async def StreamReceive(
        self, request_iterator: AsyncIterator[pb.StreamRequest], context: Context
    ) -> AsyncIterator[pb.StreamReply]:
        async for reply in self._streaming.stream(request_iterator, caller()):
            yield reply

    # Transactions ------------------------------------------------------------------------

    @override
    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionReply:
        await self._transacting.begin(request, caller())
        return pb.BeginTransactionReply()

    @override
    async def PrepareTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        await self._transacting.end(TxPrepare, request, caller())
        return pb.EndTransactionReply()

    @override
    async def CommitTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        await self._transacting.end(TxCommit, request, caller())
        return pb.EndTransactionReply()

    @override
    async def AbortTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        await self._transacting.end(TxAbort, request, caller())
        return pb.EndTransactionReply()
