"""Client sessions as this node serves them: their owners and their leases.

A session is replicated and belongs to the principal that opened it; any node serves it. A node
renews the lease of every client that calls it, waits on it or streams from it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from qm.api.convert.outcomes import numbers_of
from qm.api.gate.calls import session_epoch
from qm.api.gate.errors import ClientFenced, InvalidArgument, MsmqError, QuotaReached, check
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.model.clients.clients import (
    ADDRESS_MAX_CHARS,
    CLIENT_ID_MAX_BYTES,
    INSTANCE_MAX_BYTES,
    LEASE_MAX_MS,
)
from qm.model.queries import ClientInfo, get_client, get_client_holder
from qm.model.values.commands import CloseClient, Confirm, OpenClient, RenewClients, Request
from qm.model.values.limits import CLIENTS_FEW_COUNT, CLIENTS_SHARED_MAX, QUOTA_SESSIONS
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

logger = logging.getLogger(__name__)

LEASE_DEFAULT_MS: Final = 60_000
LEASE_MIN_MS: Final = 3_000
"""A shorter lease would not survive a change of leader."""
RENEW_EVERY_S: Final = 1.0
_U64_MAX: Final = (1 << 64) - 1


class Sessions:
    """The client sessions that this node serves."""

    def __init__(self, cluster: Cluster, proposer: Proposer) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._held: Counter[str] = Counter()
        self._due: dict[str, int] = {}
        """Clients to renew -> lease_ms."""
        self._renewing: asyncio.Task[None] | None = None

    # The calls ---------------------------------------------------------------------------

    async def open(
        self, request: data_pb2.OpenSessionRequest, who: Principal, address: str
    ) -> data_pb2.OpenSessionReply:
        """Begin or resume a session; another instance takes it over. `address`: the caller's."""
        if len(request.instance) > INSTANCE_MAX_BYTES:
            raise InvalidArgument("instance", f"at most {INSTANCE_MAX_BYTES} bytes are allowed")
        client_id = checked_client_id(request.client_id)
        lease_ms = _checked_lease(request.lease_ms)
        command = OpenClient(
            client_id,
            who.name,
            lease_ms,
            request.instance,
            address,
            request.main_client_id and checked_client_id(request.main_client_id),
            request.main_session_epoch,
        )
        (outcome,) = await self._proposer.repeat(command)
        if outcome.value == QUOTA_SESSIONS:
            raise QuotaReached(
                QUOTA_SESSIONS,
                f"{CLIENTS_SHARED_MAX} sessions are open or remembered, and the rest is kept for"
                f" principals with fewer than {CLIENTS_FEW_COUNT}: open fewer, or use ids again",
            )
        check(outcome.status)
        epoch, confirmed_upto, highest_number, *session_epoch = numbers_of(outcome)
        if self._cluster.view.ledger.manager is None:
            await self._cluster.read_barrier()  # it may just have been created
        manager = self._cluster.view.ledger.manager
        if manager is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return data_pb2.OpenSessionReply(
            epoch=epoch,
            confirmed_upto=confirmed_upto,
            highest_number=highest_number,
            node=self._cluster.node,
            queue_manager=manager.identifier,
            computer_name=manager.computer_name,
            lease_ms=lease_ms,
            session_epoch=session_epoch[0] if session_epoch else 0,
            principal=who.name,
        )

    async def renew(self, client_id: str, lease_ms: int, who: Principal) -> None:
        """Renew a lease now."""
        client = await self.admit(client_id, who)
        wanted = _checked_lease(lease_ms)
        (outcome,) = await self._proposer.repeat(RenewClients((client.client_id,), wanted))
        check(outcome.status)
        renewed: Any = outcome.value
        if client_id not in renewed:
            raise MsmqError(ErrorCode.MQ_ERROR_STALE_HANDLE)

    async def close(self, client_id: str, who: Principal) -> None:
        """End a session; it is no error if it has already ended."""
        await self.owned(client_id, who)
        (outcome,) = await self._proposer.repeat(CloseClient(client_id, session_epoch()))
        if outcome.status != ErrorCode.MQ_ERROR_STALE_HANDLE:
            check(outcome.status)

    async def confirm(self, client_id: str, upto: int, who: Principal) -> None:
        """Commit that the client holds its results up to a number."""
        await self.admit(client_id, who)
        (outcome,) = await self._proposer.repeat(Confirm(client_id, upto, session_epoch()))
        check(outcome.status)

    # Admission ---------------------------------------------------------------------------

    async def admit(self, client_id: str, who: Principal) -> ClientInfo:
        """Return a client that is open and the caller's; its lease is kept alive.

        Raises MsmqError STALE_HANDLE or ACCESS_DENIED.
        """
        client = await self.owned(client_id, who)
        if not client.is_open:
            # It may just have been opened again at another node.
            await self._cluster.read_barrier()
            client = await self.owned(client_id, who)
        if not client.is_open:
            raise MsmqError(ErrorCode.MQ_ERROR_STALE_HANDLE)
        self._touch(client)
        return client

    async def owned(self, client_id: str, who: Principal) -> ClientInfo:
        """Return a client, open or not, if it is the caller's."""
        checked_client_id(client_id)
        client = get_client(self._cluster.view, client_id)
        if client is None:
            await self._cluster.read_barrier()
            client = get_client(self._cluster.view, client_id)
        if client is None:
            raise MsmqError(ErrorCode.MQ_ERROR_STALE_HANDLE)
        if client.principal != who.name:
            raise MsmqError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"the client id {client_id!r} is another principal's; choose another",
            )
        self._check_holder(client_id)
        return client

    async def tell_fenced(self, client_id: str) -> NoReturn:
        """Raise ClientFenced for a caller whose command found the session taken over.

        The state of this node may not have shown that yet when the call came.
        """
        await self._cluster.read_barrier()
        self._check_holder(client_id)
        raise ClientFenced

    def _check_holder(self, client_id: str) -> None:
        """Raise ClientFenced if another opener is known to hold the session."""
        epoch = session_epoch()
        holder = get_client_holder(self._cluster.view, client_id) if epoch else None
        if holder is not None and holder.session_epoch == epoch and holder.main_session_epoch:
            client_id, epoch = holder.main_client_id, holder.main_session_epoch
            holder = get_client_holder(self._cluster.view, client_id)
        if holder is not None and holder.session_epoch > epoch:
            raise ClientFenced(
                f"client id {client_id!r} was opened by {_who(holder.address)} at"
                f" {_when(holder.since_ms)}, after {_who(holder.before_address)} had opened it at"
                f" {_when(holder.before_since_ms)}"
            )

    async def numbered(
        self, request: data_pb2.RequestNumber, who: Principal, count: int = 1
    ) -> Request:
        """Return the number of an admitted client's request, which uses `count` numbers."""
        if not 1 <= request.number <= _U64_MAX - count:
            raise InvalidArgument("request.number", "numbers start at 1")
        if request.confirmed_upto >= request.number:
            raise InvalidArgument(
                "request.confirmed_upto",
                f"{request.confirmed_upto} is not below the request's number {request.number}",
            )
        await self.admit(request.client_id, who)
        return Request(
            request.client_id,
            request.number,
            request.confirmed_upto,
            session_epoch=session_epoch(),
        )

    # Leases ------------------------------------------------------------------------------

    @contextmanager
    def hold(self, client_id: str) -> Iterator[None]:
        """Keep a client's lease alive as long as it waits here."""
        self._held[client_id] += 1
        self._run()
        try:
            yield
        finally:
            self._held[client_id] -= 1
            if not self._held[client_id]:
                del self._held[client_id]

    def _touch(self, client: ClientInfo) -> None:
        """Renew when half of the lease is over."""
        left_ms = client.lease_deadline_ms - self._cluster.now_ms()
        if client.is_open and left_ms < client.lease_ms // 2:
            self._due[client.client_id] = client.lease_ms
            self._run()

    def _run(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(self._renew_due())

    async def _renew_due(self) -> None:
        """Renew what is due, and continue while any client waits here."""
        while self._due or self._held:
            # Not while the state is replaced or opened again, which a lease outlives.
            with suppress(Unavailable):
                for client_id in list(self._held):
                    client = get_client(self._cluster.view, client_id)
                    if client is not None:
                        self._touch(client)
            due, self._due = self._due, {}
            by_lease: dict[int, list[str]] = {}
            for client_id, lease_ms in due.items():
                by_lease.setdefault(lease_ms, []).append(client_id)
            commands = [
                RenewClients(tuple(client_ids), lease_ms)
                for lease_ms, client_ids in by_lease.items()
            ]
            try:
                if commands:
                    await self._proposer.once(*commands)
            except (Unavailable, OutcomeUnknown) as error:
                logger.info("leases of %d clients are not renewed yet: %s", len(due), error)
                self._due = due | self._due
            if self._due or self._held:
                await asyncio.sleep(RENEW_EVERY_S)

    def stop(self) -> None:
        """Stop renewing."""
        if self._renewing is not None:
            self._renewing.cancel()


def host_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer, such as `ipv4:10.0.0.1:5000`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]")[:ADDRESS_MAX_CHARS] if kind[:2] == "ip" else ""


def _who(address: str) -> str:
    return address or "an unknown address"


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def checked_client_id(client_id: str) -> str:
    """Return a valid client id. Raises InvalidArgument."""
    if not 1 <= len(client_id.encode()) <= CLIENT_ID_MAX_BYTES or "\0" in client_id:
        raise InvalidArgument(
            "client_id", f"1 to {CLIENT_ID_MAX_BYTES} bytes of UTF-8 without NUL are allowed"
        )
    return client_id


def _checked_lease(lease_ms: int) -> int:
    if lease_ms == 0:
        return LEASE_DEFAULT_MS
    if not LEASE_MIN_MS <= lease_ms <= LEASE_MAX_MS:
        raise InvalidArgument("lease_ms", f"{LEASE_MIN_MS} to {LEASE_MAX_MS} are allowed, or 0")
    return lease_ms
