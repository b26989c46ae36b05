"""Transactions of clients ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to .5)."""

from typing import Final

from qm.api.data.send import checked_transaction
from qm.api.data.sessions import Sessions
from qm.api.gate.errors import InvalidArgument, MsmqError, check
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.clients.transactions import TIMEOUT_MAX_MS
from qm.model.queries import get_transaction
from qm.model.values.commands import TxAbort, TxBegin, TxCommit, TxPrepare
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

TIMEOUT_DEFAULT_MS: Final = 60_000
COORDINATOR_MAX_CHARS: Final = 256


class Transacting:
    """Answers the calls that begin and end transactions."""

    def __init__(self, cluster: Cluster, proposer: Proposer, sessions: Sessions) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._sessions = sessions

    async def begin(self, request: data_pb2.BeginTransactionRequest, who: Principal) -> None:
        """Begin one under the client's own GUID, so that a repeated call has the same effect."""
        transaction = _required(request.transaction)
        timeout_ms = request.timeout_ms or TIMEOUT_DEFAULT_MS
        if timeout_ms > TIMEOUT_MAX_MS:
            raise InvalidArgument("timeout_ms", f"{timeout_ms}; at most {TIMEOUT_MAX_MS}")
        if len(request.coordinator) > COORDINATOR_MAX_CHARS:
            raise InvalidArgument("coordinator", f"at most {COORDINATOR_MAX_CHARS} characters")
        numbered = await self._sessions.numbered(request.request, who)
        command = TxBegin(
            numbered, transaction, not request.is_two_phase, request.coordinator, timeout_ms
        )
        (outcome,) = await self._proposer.repeat(command)
        check(outcome.status)

    async def end(
        self,
        kind: type[TxPrepare] | type[TxCommit] | type[TxAbort],
        request: data_pb2.EndTransactionRequest,
        who: Principal,
    ) -> None:
        """Prepare, commit or abort; the call returns when that is committed."""
        transaction = _required(request.transaction)
        numbered = await self._sessions.numbered(request.request, who)
        await self._check_party(transaction, numbered.client_id, who)
        (outcome,) = await self._proposer.repeat(kind(numbered, transaction))
        check(outcome.status)

    async def _check_party(self, transaction: bytes, client_id: str, who: Principal) -> None:
        """Check that the caller owns the transaction or is the principal that coordinates it."""
        found = get_transaction(self._cluster.view, transaction)
        if found is None:
            await self._cluster.read_barrier()
            found = get_transaction(self._cluster.view, transaction)
        if found is not None and client_id != found.owner and who.name != found.coordinator:
            raise MsmqError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, "the transaction belongs to another client"
            )


def _required(raw: bytes) -> bytes:
    transaction = checked_transaction(raw)
    if transaction is None:
        raise InvalidArgument("transaction", "16 bytes of a random GUID are needed")
    return transaction
