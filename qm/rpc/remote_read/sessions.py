"""The replicated sessions of remote readers: one per association and principal.

Nothing waits under a number of its session: each try takes a number and closes it in the same
proposal, so that what readers hold never keeps results from being confirmed.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from qm.api.convert.outcomes import has_message, results_of
from qm.api.data.sessions import LEASE_DEFAULT_MS, Sessions
from qm.api.gate.errors import ApiError, MsmqError, check
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.clients.clients import ADDRESS_MAX_CHARS
from qm.model.values.commands import (
    CancelRequests,
    CloseClient,
    CloseQueue,
    Command,
    OpenClient,
    ReadEnd,
    ReceiveRun,
    Request,
    Selector,
)
from qm.model.values.effects import Outcome
from qm.model.values.limits import QUOTA_SESSIONS
from qm.model.values.results import RequestResult
from qm.rpc.security.provider import Identity
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

logger: Final = logging.getLogger(__name__)

SETTLE_PAUSE_S: Final = 1.0
"""Between attempts to learn the outcome of a request, or to return what was lent."""
Failures: Final = (Unavailable, OutcomeUnknown, ApiError)
"""What a command may end with besides an outcome."""


class ReadSession:
    """One principal's session on one association."""

    def __init__(
        self, client_id: str, who: Identity, address: str, proposer: Proposer, sessions: Sessions
    ) -> None:
        self.client_id = client_id
        self.who = who
        self._address = address
        self._proposer = proposer
        self._sessions = sessions
        self._next = 1
        self._open_numbers: set[int] = set()
        self._opening: asyncio.Future[None] | None = None
        self._lease: AbstractContextManager[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ended = False

    async def opened(self) -> "ReadSession":
        """Open it, once. Raises MsmqError, Unavailable, OutcomeUnknown."""
        while self._opening is None or (self._opening.done() and self._opening.exception()):
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)
        return self

    async def _open(self) -> None:
        command = OpenClient(
            self.client_id,
            self.who.name,
            LEASE_DEFAULT_MS,
            address=self._address[:ADDRESS_MAX_CHARS],
        )
        (outcome,) = await self._proposer.repeat(command)
        if outcome.value == QUOTA_SESSIONS:
            raise MsmqError(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        check(outcome.status)
        self._lease = self._sessions.hold(self.client_id)
        self._lease.__enter__()

    # Numbers -----------------------------------------------------------------------------

    def _begin(self) -> Request:
        """Take a number. Everything below the lowest open one is confirmed with it."""
        number = self._next
        self._next += 1
        self._open_numbers.add(number)
        return Request(self.client_id, number, min(self._open_numbers) - 1)

    async def numbered(self, make: Callable[[Request], Command]) -> Outcome:
        """Propose a command with a number of its own. Raises Unavailable, OutcomeUnknown."""
        request = self._begin()
        try:
            (outcome,) = await self._proposer.repeat(make(request))
        finally:
            self._open_numbers.discard(request.number)
        return outcome

    # Lending -----------------------------------------------------------------------------

    async def lend(self, handle: int, queue_id: int, selector: Selector) -> RequestResult | None:
        """Lend a message to this session; None if there is none now.

        Raises MsmqError, Unavailable, OutcomeUnknown; what the last may have lent is returned.
        """
        request = self._begin()
        number = request.number
        run = ReceiveRun(
            self.client_id,
            handle,
            queue_id,
            number,
            1,
            request.confirmed_upto,
            selector,
            is_two_phase=True,
        )
        closing = CancelRequests(self.client_id, number, 1, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        try:
            (took,) = await self._proposer.repeat(run)
            results = results_of(took)
            if not results:
                # An earlier copy of the proposal may still be on its way: it must lend nothing.
                (closed,) = await self._proposer.repeat(closing)
                results = [one for one in results_of(closed) if has_message(one)]
        except (OutcomeUnknown, asyncio.CancelledError):
            self._in_background(self._settle(number))
            raise
        self._open_numbers.discard(number)
        if not results:
            check(took.status)
            return None
        return results[0]

    async def _settle(self, number: int) -> None:
        """Learn what became of a request, and return what it lent."""
        closing = CancelRequests(self.client_id, number, 1, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        outcome = await self._until_known(closing, number)
        for one in [] if outcome is None else results_of(outcome):
            if has_message(one):
                await self._give_back(one.queue_id, one.lookup_identifier)

    async def _until_known(self, command: Command, number: int) -> Outcome | None:
        """Propose a command of an open number until its outcome is known; None: the session ended.

        It keeps its number, so that it is done once: a second return of a message would be that of
        whoever it was lent to meanwhile.
        """
        while not self.is_ended:
            try:
                (outcome,) = await self._proposer.repeat(command)
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(SETTLE_PAUSE_S)
            else:
                self._open_numbers.discard(number)
                return outcome
        return None

    # Ending reads ------------------------------------------------------------------------

    async def end_read(self, queue_id: int, key: int, *, is_accepted: bool) -> int:
        """Accept or return a lent message; return the status of it.

        Raises Unavailable, OutcomeUnknown. It is done as soon as it can be then: nobody asks again,
        and the message would stay hidden as long as the session lasts.
        """
        command = self._end_of(queue_id, key, is_accepted=is_accepted)
        try:
            (outcome,) = await self._proposer.repeat(command)
        except (Unavailable, OutcomeUnknown):
            self._in_background(self._end_later(command))
            raise
        self._open_numbers.discard(command.request.number)
        return outcome.status

    def _end_of(self, queue_id: int, key: int, *, is_accepted: bool) -> ReadEnd:
        reason = int(MessageClass.ACK_RECEIVE)
        return ReadEnd(self._begin(), queue_id, key, is_accepted, reason)

    async def _end_later(self, command: ReadEnd) -> None:
        await self._until_known(command, command.request.number)

    def give_back(self, queue_id: int, key: int) -> None:
        """Return a lent message, without anybody waiting for it."""
        self._in_background(self._give_back(queue_id, key))

    async def _give_back(self, queue_id: int, key: int) -> None:
        await self._end_later(self._end_of(queue_id, key, is_accepted=False))

    def close_queue(self, handle: int) -> None:
        """Close a queue without anybody waiting for it."""
        self._in_background(self._close_queue(handle))

    async def _close_queue(self, handle: int) -> None:
        while not self.is_ended:
            try:
                await self.numbered(lambda request: CloseQueue(request, handle))
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(SETTLE_PAUSE_S)
            else:
                return

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""
        self._in_background(work)

    # End ---------------------------------------------------------------------------------

    def end(self, ended: Callable[["ReadSession"], None]) -> None:
        """Its association is gone: end the session, which returns all that it was lent.

        `ended` is told once that is committed, or left to its lease.
        """
        self.is_ended = True
        self._in_background(self._close(ended))

    async def _close(self, ended: Callable[["ReadSession"], None]) -> None:
        try:
            if self._opening is not None:
                await self._close_client()
        finally:
            ended(self)

    async def _close_client(self) -> None:
        if self._lease is not None:
            self._lease.__exit__(None, None, None)
            self._lease = None
        try:
            await self._proposer.repeat(CloseClient(self.client_id))
        except (Unavailable, OutcomeUnknown) as error:
            # Its lease does the same a little later.
            logger.info("the session of a remote reader ends with its lease: %s", error)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What goes on in the background."""
        return list(self._tasks)
