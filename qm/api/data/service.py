"""The data plane's service: each call handed to the part that knows it."""

from collections.abc import AsyncIterator

from qm.api.data.batches import Bodies
from qm.api.data.handles import Handles
from qm.api.data.peek import Peeking
from qm.api.data.receive import Receiving
from qm.api.data.send import Sending
from qm.api.data.sessions import Sessions
from qm.api.data.stream_receive import Streaming
from qm.api.data.transactions import Transacting
from qm.api.data.waits import Waits
from qm.api.gate.calls import Context, caller
from qm.api.propose.applied_index import AppliedWatch
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.values.commands import TxAbort, TxCommit, TxPrepare
from qm.observe.metrics import Metrics
from qm.pb import data_pb2 as pb
from qm.pb import data_pb2_grpc


class Data(data_pb2_grpc.DataServicer):
    """Implements `quorate.data.v1.Data`; its parts serve the control plane, too."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self.applied = AppliedWatch(cluster)
        self.proposer = Proposer(cluster)
        self.bodies = Bodies(cluster, self.applied)
        self._waits = Waits(cluster, metrics)
        self._sessions = Sessions(cluster, self.proposer)
        self._handles = Handles(cluster, self.proposer, self._sessions, self._waits)
        self._sending = Sending(cluster, self.proposer, self._sessions)
        self._receiving = Receiving(
            self.proposer, self._sessions, self._handles, self._waits, self.bodies
        )
        self._peeking = Peeking(cluster, self._sessions, self._handles, self._waits, self.bodies)
        self._streaming = Streaming(
            cluster, self.proposer, self._sessions, self._handles, self._waits, self.bodies
        )
        self._transacting = Transacting(cluster, self.proposer, self._sessions)

    def stop(self) -> None:
        """End waits and streams; their clients go on at another node."""
        self._waits.stop()
        self._sessions.stop()

    async def close(self) -> None:
        """Finish; no call comes any more."""
        self.applied.close()
        await self.proposer.close()

    # Sessions ----------------------------------------------------------------------------

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Context
    ) -> pb.OpenSessionReply:
        """See data.proto."""
        return await self._sessions.open(request, caller())

    async def RenewSession(
        self, request: pb.RenewSessionRequest, context: Context
    ) -> pb.RenewSessionReply:
        """See data.proto."""
        await self._sessions.renew(request.client_id, request.lease_ms, caller())
        return pb.RenewSessionReply()

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionReply:
        """See data.proto."""
        await self._sessions.close(request.client_id, caller())
        return pb.CloseSessionReply()

    async def Confirm(self, request: pb.ConfirmRequest, context: Context) -> pb.ConfirmReply:
        """See data.proto."""
        await self._sessions.confirm(request.client_id, request.confirmed_upto, caller())
        return pb.ConfirmReply()

    # Queues ------------------------------------------------------------------------------

    async def OpenQueue(self, request: pb.OpenQueueRequest, context: Context) -> pb.OpenQueueReply:
        """See data.proto."""
        return await self._handles.open(request, caller())

    async def CloseQueue(
        self, request: pb.CloseQueueRequest, context: Context
    ) -> pb.CloseQueueReply:
        """See data.proto."""
        await self._handles.close(request, caller())
        return pb.CloseQueueReply()

    async def CreateCursor(
        self, request: pb.CreateCursorRequest, context: Context
    ) -> pb.CreateCursorReply:
        """See data.proto."""
        cursor = await self._handles.create_cursor(request.client_id, request.handle, caller())
        return pb.CreateCursorReply(cursor=cursor)

    async def CloseCursor(
        self, request: pb.CloseCursorRequest, context: Context
    ) -> pb.CloseCursorReply:
        """See data.proto."""
        await self._handles.close_cursor(request.client_id, request.cursor, caller())
        return pb.CloseCursorReply()

    # Messages ----------------------------------------------------------------------------

    async def Send(self, request: pb.SendRequest, context: Context) -> pb.SendReply:
        """See data.proto."""
        return await self._sending.send(request, caller())

    async def Receive(self, request: pb.ReceiveRequest, context: Context) -> pb.ReceiveReply:
        """See data.proto."""
        return await self._receiving.receive(request, caller())

    async def Peek(self, request: pb.PeekRequest, context: Context) -> pb.PeekReply:
        """See data.proto."""
        return await self._peeking.peek(request, caller())

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelReply:
        """See data.proto."""
        return await self._receiving.cancel(request, caller())

    async def Complete(self, request: pb.CompleteRequest, context: Context) -> pb.CompleteReply:
        """See data.proto."""
        await self._receiving.complete(request, caller())
        return pb.CompleteReply()

    async def Move(self, request: pb.MoveRequest, context: Context) -> pb.MoveReply:
        """See data.proto."""
        return await self._receiving.move(request, caller())

    async def StreamReceive(
        self, request_iterator: AsyncIterator[pb.StreamRequest], context: Context
    ) -> AsyncIterator[pb.StreamReply]:
        """See data.proto."""
        async for reply in self._streaming.stream(request_iterator, caller()):
            yield reply

    # Transactions ------------------------------------------------------------------------

    async def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionReply:
        """See data.proto."""
        await self._transacting.begin(request, caller())
        return pb.BeginTransactionReply()

    async def PrepareTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        """See data.proto."""
        await self._transacting.end(TxPrepare, request, caller())
        return pb.EndTransactionReply()

    async def CommitTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        """See data.proto."""
        await self._transacting.end(TxCommit, request, caller())
        return pb.EndTransactionReply()

    async def AbortTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionReply:
        """See data.proto."""
        await self._transacting.end(TxAbort, request, caller())
        return pb.EndTransactionReply()
