"""Callers: accounts at addresses, each with a client of this node's API.

An object acts as who had it created: in its caller's sessions, with its caller's SIDs. An account
that logs on with other SIDs than before, such as those of a group that it has left or joined, is
another caller. A caller without objects is forgotten after a while; the cluster then ends what its
sessions hold.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from qm.api.gate.identity import OPERATORS, Principal, Role
from qm.api.gate.local import LocalChannel
from qm.client.blocking import BlockingClient
from qm.client.calls import Calls
from qm.client.client import Client
from qm.client.errors import ClientError
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.service import MSMQService
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import ACTIVATION_WAIT_MAX_S, CALLERS_MAX
from qm.rpc.dcom.mqac.threads import LoopRunner
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.security.provider import Identity
from qm.security.sid import ADMINISTRATORS
from qm.wire.codes import ErrorCode

logger: Final = logging.getLogger(__name__)

IDLE_MAX_S: Final = 60.0
"""How long a caller without objects is remembered."""
TRANSACTION_MAX_S: Final = 60.0
"""How long a transaction may take. MSMQ has no such limit, but learns at once that a program has
died; here its objects, and with them what it has taken, would live for six minutes more."""
_ID_BYTES: Final = 12
_NOWHERE: Final = "127.0.0.1:1"
"""Endpoint of calls that never leave the process."""

Channels = Callable[[Principal, str], LocalChannel]
"""Return a channel on which a principal, at an address, calls this node's API."""


class _LocalCalls(Calls):
    """Calls of this process's own API."""

    def __init__(self, channel: LocalChannel) -> None:
        super().__init__((_NOWHERE,))
        self._local = channel

    @override
    def _channel(self, endpoint: str) -> Any:
        return self._local


_Key = tuple[Owner, Principal]


class Caller:
    """One account at one address, with the SIDs of one logon."""

    def __init__(self, owner: Owner, client: Client, runner: LoopRunner) -> None:
        self.owner = owner
        blocking = BlockingClient.over(client, runner)
        manager = ClusterManager(blocking, transaction_s=TRANSACTION_MAX_S)
        self.service: Final = MSMQService(manager)
        """What its objects are made with."""
        self._client = client
        self.idle_since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether its session goes on."""
        return self._client.is_open

    async def close(self) -> None:
        """End its sessions: what they hold is released, and what was received last, whose answer
        may not have reached the program, is in the dead-letter queue.
        """
        try:
            await self._client.end()
        except ClientError as error:
            # Their leases do the same a little later.
            logger.info("the sessions of %s end with their leases: %s", self.owner.name, error)


def _is_of_use(found: "asyncio.Future[Caller]") -> bool:
    """Whether a caller is being opened, or is open and its session goes on."""
    if not found.done():
        return True
    return not found.cancelled() and found.exception() is None and found.result().is_open


class Callers:
    """All callers of a node."""

    def __init__(self, channels: Channels, runner: LoopRunner) -> None:
        self._channels = channels
        self._runner = runner
        self._known: dict[_Key, asyncio.Future[Caller]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, owner: Owner, identity: Identity) -> Caller:
        """Return a caller, whose client is opened by its first object.

        Raises ComError, MQ_ERROR_SERVICE_NOT_AVAILABLE if the cluster does not answer in
        ACTIVATION_WAIT_MAX_S; the client is being opened meanwhile, for who comes next.
        """
        key = (owner, principal_of_identity(identity))
        found = self._known.get(key)
        if found is None or not _is_of_use(found):
            if len(self._known) >= CALLERS_MAX:
                raise ComError(Hresult.E_OUTOFMEMORY, "too many callers")
            found = self._known[key] = asyncio.ensure_future(self._open(*key))
        try:
            async with asyncio.timeout(ACTIVATION_WAIT_MAX_S):
                caller = await asyncio.shield(found)
        except TimeoutError:
            code = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
            raise ComError(code, "the cluster does not answer") from None
        except ClientError as error:
            code = getattr(error, "code", ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
            raise ComError(code, str(error)) from error
        caller.idle_since = None
        return caller

    async def _open(self, owner: Owner, principal: Principal) -> Caller:
        channel = self._channels(principal, owner.address)
        client_id = f"dcom-{secrets.token_hex(_ID_BYTES)}"
        client = Client((_NOWHERE,), client_id=client_id, wire=_LocalCalls(channel))
        await client.open()
        return Caller(owner, client, self._runner)

    def sweep(self, now: float, count: Callable[[Owner], int]) -> None:
        """Forget callers that have had no objects for a while; `count`: of an owner's objects,
        whose transactions and messages may be of different callers.
        """
        for key, future in list(self._known.items()):
            if not future.done():
                continue
            if future.cancelled() or future.exception() is not None:
                del self._known[key]
                continue
            caller = future.result()
            if count(caller.owner):
                caller.idle_since = None
            elif caller.idle_since is None:
                caller.idle_since = now
            elif now - caller.idle_since > IDLE_MAX_S:
                del self._known[key]
                self._close(caller)

    def _close(self, caller: Caller) -> None:
        task = asyncio.ensure_future(caller.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self, within_s: float) -> None:
        """End all sessions, as far as that goes in the time."""
        callers = [
            one.result()
            for one in self._known.values()
            if one.done() and not one.cancelled() and one.exception() is None
        ]
        for future in self._known.values():
            future.cancel()
        self._known.clear()
        if within_s:
            for each in callers:
                self._close(each)
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=within_s)
            for task in late:
                task.cancel()


def principal_of_identity(identity: Identity) -> Principal:
    """Return whom the API sees: the caller's own SIDs, and the role that its groups give."""
    if ADMINISTRATORS in identity.sids:
        role = Role.ADMIN
    else:
        role = Role.OPERATOR if OPERATORS in identity.sids else Role.CLIENT
    return Principal(identity.name, role, identity.sids, identity.is_authenticated)
