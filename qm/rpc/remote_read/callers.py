"""Who reads at this node: the session of each caller on each association.

The cluster may end a session that this node still holds: its lease ran out while the node was cut
off or suspended, or an operator closed it. Handles of that session stay stale, but whoever opens a
queue anew goes on in another session.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from qm.api.gate.errors import ApiError, MsmqError
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.commands import Command, Request
from qm.model.values.effects import Outcome
from qm.rpc.interface import Fault
from qm.rpc.remote_read.messages import ReadPorts
from qm.rpc.remote_read.sessions import ReadSession
from qm.rpc.server.call import Call
from qm.wire.codes import ErrorCode

_KEPT: Final = "remote_read"


class CallerSessions:
    """The sessions of all callers."""

    def __init__(self, ports: ReadPorts) -> None:
        self._ports = ports
        self._sessions: set[ReadSession] = set()
        self._ending: set[ReadSession] = set()

    async def propose(
        self, call: Call, make: Callable[[Request], Command]
    ) -> tuple[ReadSession, Outcome]:
        """Propose a command in the caller's session; return both. Raises Fault."""
        try:
            session = await self._session(call)
            outcome = await session.numbered(make)
            if outcome.status == ErrorCode.MQ_ERROR_STALE_HANDLE:
                self._end(session)
                session = await self._session(call)
                outcome = await session.numbered(make)
        except (Unavailable, OutcomeUnknown) as error:
            raise Fault(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error)) from error
        return session, outcome

    async def _session(self, call: Call) -> ReadSession:
        """Return the caller's session on this association, opened. Raises Fault."""
        association, ports = call.association, self._ports
        kept: dict[str, ReadSession] | None = association.kept.get(_KEPT)
        if kept is None:
            kept = association.kept[_KEPT] = {}
            association.at_end.append(partial(self._end_all, kept))
        session = kept.get(call.identity.name)
        if session is None or session.is_ended:
            client_id = f"rpc-{ports.cluster.node}-{secrets.token_hex(8)}"
            session = ReadSession(
                client_id, call.identity, call.address, ports.proposer, ports.sessions
            )
            kept[call.identity.name] = session
            self._sessions.add(session)
        try:
            return await session.opened()
        except MsmqError as error:
            raise Fault(error.hresult) from error
        except (Unavailable, OutcomeUnknown, ApiError) as error:
            raise Fault(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error)) from error

    def _end_all(self, kept: Mapping[str, ReadSession]) -> None:
        for session in kept.values():
            self._end(session)

    def _end(self, session: ReadSession) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            self._ending.add(session)
            session.end(self._ending.discard)

    def leave(self) -> None:
        """Propose nothing more for any session: their leases end them."""
        for session in self._sessions:
            session.is_ended = True
        self._sessions.clear()

    async def stop(self, within_s: float) -> None:
        """End all sessions, which returns what they were lent; wait so long for it at most."""
        for session in list(self._sessions):
            self._end(session)
        tasks = [task for session in self._ending for task in session.tasks]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        for task in late:
            task.cancel()  # leases end what is left
