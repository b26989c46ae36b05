"""ClientControl: client sessions, their open queues, transactions in doubt."""

from typing import Final

from typing_extensions import override

from qm.api.data.sessions import checked_client_id
from qm.api.gate.calls import Context
from qm.api.gate.errors import Conflict, InvalidArgument, MsmqError, NotFound, check
from qm.api.gate.pages import bytes_after, number_after, page_size, token_of
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.cluster.cluster import Cluster
from qm.model.clients.transactions import TRANSACTION_ID_BYTES
from qm.model.queries import (
    get_client,
    get_transaction,
    list_clients,
    list_opens,
    list_transactions,
    transaction_operations,
)
from qm.model.values.commands import CloseClient, Command, TxAbort, TxCommit
from qm.model.values.elements import OperationType, TransactionState
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc, data_pb2
from qm.wire.codes import ErrorCode

_STATES: Final = dict(zip(TransactionState, pb.TransactionState.values(), strict=True))
_ACCESS: Final = data_pb2.QueueAccess.values()
_SHARE_MODES: Final = data_pb2.QueueShareMode.values()
_OPERATIONS: Final = dict(zip(OperationType, pb.OperationType.values(), strict=True))
_UNDECIDED: Final = frozenset({TransactionState.ACTIVE, TransactionState.PREPARED})


class ClientControl(control_pb2_grpc.ClientControlServicer):
    """Implements `quorate.control.v1.ClientControl`."""

    def __init__(self, cluster: Cluster, decider: Decider) -> None:
        self._cluster = cluster
        self._decider = decider

    @override
    async def ListClients(
        self, request: pb.ListClientsRequest, context: Context
    ) -> pb.ListClientsReply:
        size = page_size(request.page_size)
        after = checked_client_id(request.page_token) if request.page_token else ""
        await self._cluster.read_barrier()
        page = list_clients(self._cluster.view, after=after, limit=size)
        shown = [
            pb.Client(
                client_id=one.client_id,
                principal=one.principal,
                is_open=one.is_open,
                epoch=one.epoch,
                lease_deadline_ms=one.lease_deadline_ms,
                confirmed_upto=one.confirmed_upto,
                highest_number=one.highest_number,
                unconfirmed_count=one.unconfirmed_count,
                unconfirmed_bytes=one.unconfirmed_bytes,
            )
            for one in page.items
        ]
        return pb.ListClientsReply(clients=shown, page_token=token_of(page.next))

    @override
    async def CloseClient(
        self, request: pb.CloseClientRequest, context: Context
    ) -> pb.CloseClientReply:
        client_id = checked_client_id(request.client_id)
        await self._cluster.read_barrier()
        if get_client(self._cluster.view, client_id) is None:
            raise MsmqError(ErrorCode.MQ_ERROR_STALE_HANDLE, f"no client {client_id!r} is known")
        outcome = await self._decider.decide(CloseClient(client_id))
        if outcome.status != ErrorCode.MQ_ERROR_STALE_HANDLE:  # already closed is fine
            check(outcome.status)
        return pb.CloseClientReply()

    @override
    async def ListOpens(self, request: pb.ListOpensRequest, context: Context) -> pb.ListOpensReply:
        size, after = page_size(request.page_size), number_after(request.page_token)
        await self._cluster.read_barrier()
        page = list_opens(
            self._cluster.view,
            after=after or 0,
            limit=size,
            queue_id=request.queue_id or None,
            client_id=request.client_id or None,
        )
        shown = [
            pb.Open(
                handle=one.handle,
                queue_id=one.queue_id,
                access=_ACCESS[one.access],
                share_mode=_SHARE_MODES[one.share_mode],
                client_id=one.client_id,
                format_name=one.format_name,
            )
            for one in page.items
        ]
        return pb.ListOpensReply(opens=shown, page_token=token_of(page.next))

    @override
    async def ListTransactions(
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsReply:
        size, after = page_size(request.page_size), bytes_after(request.page_token)
        try:
            states = frozenset(TransactionState(int(state)) for state in request.states)
        except ValueError as error:
            raise InvalidArgument("states", str(error)) from None
        await self._cluster.read_barrier()
        page = list_transactions(
            self._cluster.view, after=after, limit=size, states=states or _UNDECIDED
        )
        shown = [
            pb.Transaction(
                identifier=one.identifier,
                state=_STATES[one.state],
                is_single_phase=one.is_single_phase,
                owner=one.owner,
                coordinator=one.coordinator,
                operation_count=one.operation_count,
                deadline_ms=one.deadline_ms,
                outcome_ms=one.outcome_ms,
                is_in_doubt=one.state is TransactionState.PREPARED,
            )
            for one in page.items
        ]
        return pb.ListTransactionsReply(transactions=shown, page_token=token_of(page.next))

    @override
    async def ListOperations(
        self, request: pb.ListOperationsRequest, context: Context
    ) -> pb.ListOperationsReply:
        size, after = page_size(request.page_size), number_after(request.page_token)
        identifier = _transaction(request.identifier)
        await self._cluster.read_barrier()
        if self._state_of(identifier) is None:
            raise NotFound("no such transaction is known")
        page = transaction_operations(
            self._cluster.view, identifier, after=-1 if after is None else after, limit=size
        )
        shown = [
            pb.Operation(
                number=one.number,
                type=_OPERATIONS[one.operation_type],
                queue_id=one.queue_id,
                lookup_identifier=one.lookup_identifier,
                target_queue_id=one.target_queue_id,
            )
            for one in page.items
        ]
        return pb.ListOperationsReply(operations=shown, page_token=token_of(page.next))

    @override
    async def ResolveTransaction(
        self, request: pb.ResolveTransactionRequest, context: Context
    ) -> pb.ResolveTransactionReply:
        _transaction(request.identifier)
        wanted = TransactionState.COMMITTED if request.commit else TransactionState.ABORTED
        kind = TxCommit if request.commit else TxAbort

        def make() -> Command:
            state = self._state_of(request.identifier)
            if state is None:
                text = "no such transaction is known"
                raise MsmqError(ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, text)
            if state is TransactionState.ACTIVE and request.commit:
                raise Conflict("the transaction is not prepared: only its owner can commit it")
            return kind(UNNUMBERED, request.identifier)

        outcome = await self._decider.once(request, make)
        if outcome.status and self._state_of(request.identifier) is not wanted:
            check(outcome.status)
        return pb.ResolveTransactionReply()

    def _state_of(self, transaction: bytes) -> TransactionState | None:
        found = get_transaction(self._cluster.view, transaction)
        return None if found is None else found.state


def _transaction(given: bytes) -> bytes:
    if len(given) != TRANSACTION_ID_BYTES:
        raise InvalidArgument("identifier", f"a GUID of {TRANSACTION_ID_BYTES} bytes")
    return given
