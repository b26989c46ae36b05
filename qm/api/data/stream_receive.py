"""StreamReceive: continuous receiving by credit. Credit consists of request numbers, so after any
failure between node and client, granting the same numbers again yields the same messages.

A stream is one reader in its queue's line. Each round it requests as many messages as it has
credit for, in one command; the runs of all streams of a round share a proposal (`Proposer`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from qm.api.convert.outcomes import Answers, answers_of
from qm.api.data.batches import BATCH_MAX_BYTES, Bodies, batch_of, parts_of
from qm.api.data.credit import Credit
from qm.api.data.handles import RECEIVING, Handles
from qm.api.data.sessions import Sessions
from qm.api.data.waits import Reader, Waits
from qm.api.gate.calls import session_epoch
from qm.api.gate.errors import InvalidArgument, MsmqError, TryAgain, check
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.queries import get_client
from qm.model.values.commands import CancelRequests, Confirm, ReceiveRun
from qm.model.values.effects import Outcome
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

RUN_MAX: Final = 1_024
"""Messages of one command, and so of one entry."""
RUN_MIN: Final = 64
"""A run takes half of the most credit that the client ever had open, so that confirmations
travel while the other half is read, but at least this many numbers if there are so many."""
LAUNCH_ROUNDS: Final = 5
"""Rounds of the loop in which a run becomes a proposal, then an entry, then a frame. Slow work
waits until then, since two nodes wait for the run."""

Frames = AsyncIterator[data_pb2.StreamRequest]
Replies = AsyncIterator[data_pb2.StreamReply]


class _Flight(NamedTuple):
    """A run that has been proposed."""

    run: ReceiveRun
    outcomes: asyncio.Task[Sequence[Outcome]]


class _Stream:
    """What a client has requested of one stream so far."""

    def __init__(self, opened: data_pb2.StreamOpen, queue_id: int, who: Principal) -> None:
        self.client_id = opened.client_id
        self.session_epoch = session_epoch()
        self.handle = opened.handle
        self.queue_id = queue_id
        self.is_two_phase = opened.is_two_phase
        self.commits_confirms = opened.commit_confirms
        self.view: int = opened.view
        self.credit = Credit()
        self.confirm_upto = 0
        """Number up to which the client holds its results."""
        self.confirmed_upto = 0
        """The part of that which is committed."""
        self.is_ended = False
        """The client has closed its side."""
        self.flight: _Flight | None = None
        """The run in progress."""
        self.fault: Exception | None = None
        """The error in a frame."""
        self.news = asyncio.Event()
        self.reader = Reader(
            self.client_id,
            self.handle,
            0,
            principal=who.name,
            is_destructive=True,
            news=self.news,
        )

    def run(self) -> ReceiveRun:
        """Return a command that uses the next credit."""
        most = min(RUN_MAX, max(RUN_MIN, self.credit.most // 2))
        first, count = self.credit.head(most)
        return ReceiveRun(
            self.client_id,
            self.handle,
            self.queue_id,
            first,
            count,
            self.confirm_upto,
            is_two_phase=self.is_two_phase,
            session_epoch=self.session_epoch,
        )

    def credit_changed(self) -> None:
        """Tell the reader how much it can take, and for which number it waits."""
        self.reader.wanted = self.credit.count
        self.reader.number = self.credit.head(1)[0]


class Streaming:
    """Answers StreamReceive."""

    def __init__(
        self,
        cluster: Cluster,
        proposer: Proposer,
        sessions: Sessions,
        handles: Handles,
        waits: Waits,
        bodies: Bodies,
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._sessions = sessions
        self._handles = handles
        self._waits = waits
        self._bodies = bodies

    async def stream(self, frames: Frames, who: Principal) -> Replies:
        """Serve one stream until its client ends it."""
        first = await anext(frames, None)
        if first is None or first.WhichOneof("kind") != "open":
            raise InvalidArgument("open", "the first frame must open the stream")
        opened = first.open
        await self._sessions.admit(opened.client_id, who)
        handle = await self._handles.find(opened.client_id, opened.handle)
        if handle.access not in RECEIVING:
            raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED, "the queue is not open for receiving")
        # From here on this node knows which of the client's numbers have results.
        await self._cluster.read_barrier()
        stream = _Stream(opened, handle.queue_id, who)
        self._waits.join(stream.queue_id, stream.reader)
        listening = asyncio.ensure_future(self._listen(stream, frames))
        try:
            with self._sessions.hold(stream.client_id):
                async for reply in self._rounds(stream):
                    yield reply
                async for reply in self._wind_down(stream):
                    yield reply
        finally:
            listening.cancel()
            if stream.flight is not None:
                stream.flight.outcomes.cancel()
            self._waits.leave(stream.queue_id, stream.reader)

    # Frames from the client --------------------------------------------------------------

    async def _listen(self, stream: _Stream, frames: Frames) -> None:
        try:
            async for frame in frames:
                kind = frame.WhichOneof("kind")
                if kind == "credit":
                    self._grant(stream, frame.credit)
                elif kind == "confirm":
                    self._confirm(stream, frame.confirm.confirmed_upto)
                else:
                    raise InvalidArgument(
                        "kind", "after the first frame, frames have credit or confirm"
                    )
        except Exception as error:
            stream.fault = error
        stream.is_ended = True
        stream.news.set()

    def _grant(self, stream: _Stream, given: data_pb2.StreamCredit) -> None:
        stream.credit.grant(given.first_number, given.count)
        stream.credit_changed()
        client = get_client(self._cluster.view, stream.client_id)
        may_have_result = client is not None and given.first_number <= client.highest_number
        if may_have_result or self._waits.available(stream.queue_id) > 0:
            stream.reader.call()

    def _confirm(self, stream: _Stream, upto: int) -> None:
        stream.confirm_upto = max(stream.confirm_upto, upto)
        stream.news.set()
        if stream.credit.count and self._waits.available(stream.queue_id) > 0:
            stream.reader.call()  # it may have lacked room for results

    # Rounds ------------------------------------------------------------------------------

    async def _rounds(self, stream: _Stream) -> Replies:
        reader = stream.reader
        while not stream.is_ended:
            stream.news.clear()
            told_upto = stream.confirmed_upto
            if reader.is_closed:
                raise self._closed()
            if stream.flight is not None or (reader.is_called and stream.credit.count):
                async for reply in self._round(stream):
                    yield reply
            elif stream.confirm_upto > stream.confirmed_upto:
                await self._commit_confirm(stream)  # no run will carry it soon
            else:
                await stream.news.wait()
            if stream.commits_confirms and stream.confirmed_upto > told_upto:
                yield data_pb2.StreamReply(confirmed_upto=stream.confirmed_upto)

    def _launch(self, stream: _Stream) -> _Flight:
        stream.reader.begin()
        run = stream.run()
        stream.flight = _Flight(run, asyncio.ensure_future(self._proposer.repeat(run)))
        return stream.flight

    async def _land(self, stream: _Stream, flight: _Flight) -> Answers:
        """Return the results of a run; launch the next while there is credit and messages."""
        try:
            (outcome,) = await flight.outcomes
        finally:
            stream.flight = None
        answers = answers_of(outcome)
        if not answers.numbers and outcome.status != ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
            check(outcome.status)  # confirmations by the client make room
        stream.confirmed_upto = max(stream.confirmed_upto, flight.run.confirmed_upto)
        stream.credit.answered(answers.numbers)
        stream.credit_changed()
        if len(answers.numbers) < flight.run.count:
            stream.reader.missed()
        elif stream.credit.count and not stream.is_ended:
            self._launch(stream)
        return answers

    async def _round(self, stream: _Stream) -> Replies:
        """Process one run; the next is in progress while this one's bodies are read and sent."""
        answers = await self._land(stream, stream.flight or self._launch(stream))
        for _ in range(LAUNCH_ROUNDS if stream.flight is not None else 0):
            await asyncio.sleep(0)
        async for reply in self._replies(stream, answers):
            yield reply

    async def _replies(self, stream: _Stream, answers: Answers) -> Replies:
        messages = answers.messages
        await self._bodies.ready(messages)
        for part in parts_of(messages, BATCH_MAX_BYTES):
            batch = await batch_of(self._bodies, part, stream.view)
            yield data_pb2.StreamReply(messages=batch)
        if answers.others:
            cancelled = [
                data_pb2.StreamCredit(first_number=number, count=1) for number in answers.others
            ]
            yield data_pb2.StreamReply(cancelled=cancelled)

    async def _commit_confirm(self, stream: _Stream) -> None:
        upto = stream.confirm_upto
        (outcome,) = await self._proposer.repeat(
            Confirm(stream.client_id, upto, stream.session_epoch)
        )
        check(outcome.status)
        stream.confirmed_upto = upto

    def _closed(self) -> Exception:
        if self._waits.is_stopped:
            return TryAgain("this node is stopping: continue at another with the same numbers")
        return MsmqError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED, "the queue was closed")

    # The end -----------------------------------------------------------------------------

    async def _wind_down(self, stream: _Stream) -> Replies:
        """Answer every remaining number: with what it found before, or as cancelled."""
        if stream.fault is not None:
            raise stream.fault
        if stream.flight is not None:
            async for reply in self._round(stream):
                yield reply
        if stream.confirm_upto > stream.confirmed_upto:
            await self._commit_confirm(stream)
        while stream.credit.count:
            first, count = stream.credit.head(RUN_MAX)
            command = CancelRequests(
                stream.client_id,
                first,
                count,
                ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
                stream.session_epoch,
            )
            (outcome,) = await self._proposer.repeat(command)
            answers = answers_of(outcome)
            check(outcome.status)
            stream.credit.answered(answers.numbers)
            async for reply in self._replies(stream, answers):
                yield reply
