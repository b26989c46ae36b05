"""Commands of this node's callers on their way to a leader on another node.

Commands proposed in the same iteration of the event loop share one call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc
import grpc.aio

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.effects import Outcome
from qm.node.relay.channels import FRAME_MAX_BYTES, Unreachable, reply_to
from qm.node.relay.outcome_codec import decode_outcome
from qm.pb import relay_pb2

if TYPE_CHECKING:
    from qm.pb.relay_pb2_grpc import RelayAsyncStub

CALLS_MAX: Final = 8
"""Calls at the same time; commands that come meanwhile share the next one."""
WAITING_MAX_BYTES: Final = 64 << 20
"""Bytes of payloads that wait for a call."""

Payloads: TypeAlias = Sequence[bytes]
Asked: TypeAlias = Sequence[tuple[Payloads, "asyncio.Future[Sequence[Outcome]]"]]
"""Payloads that share a call, and their callers."""


class NotTaken(Exception):
    """The node does not lead, or is not reached: nothing happened. Ask the next leader."""


class Forwarder:
    """Forwards to one leader in one term."""

    def __init__(self, stub: Callable[[], Awaitable["RelayAsyncStub"]]) -> None:
        self._stub = stub
        self._waiting: list[tuple[Payloads, asyncio.Future[Sequence[Outcome]]]] = []
        self._waiting_bytes = 0
        self._calls: dict[asyncio.Task[None], Asked] = {}
        self._is_over = False

    async def propose(self, payloads: Payloads) -> Sequence[Outcome]:
        """Return the outcomes. Raises NotTaken, Unavailable, OutcomeUnknown."""
        if self._is_over:
            raise NotTaken("another node leads")
        size = sum(map(len, payloads))
        if self._waiting and self._waiting_bytes + size > WAITING_MAX_BYTES:
            raise Unavailable("too many commands wait for the leader: try again later")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Sequence[Outcome]] = loop.create_future()
        self._waiting.append((payloads, result))
        self._waiting_bytes += size
        if len(self._waiting) == 1:
            loop.call_soon(self._begin_call)
        return await result

    def _begin_call(self) -> None:
        if not self._waiting or len(self._calls) >= CALLS_MAX or self._is_over:
            return
        taken, size = 0, 0
        for payloads, _ in self._waiting:
            size += sum(map(len, payloads))
            if taken and size > FRAME_MAX_BYTES // 2:
                break
            self._waiting_bytes -= sum(map(len, payloads))
            taken += 1
        asked, self._waiting = self._waiting[:taken], self._waiting[taken:]
        task = asyncio.create_task(self._call(asked), name="forwarded commands")
        self._calls[task] = asked
        task.add_done_callback(self._end_call)
        if self._waiting:
            self._begin_call()

    def _end_call(self, task: asyncio.Task[None]) -> None:
        # The leader may have received a call that was cancelled.
        _fail(self._calls.pop(task), OutcomeUnknown, "the leader changed before it answered")
        self._begin_call()

    async def _call(self, asked: Asked) -> None:
        request = relay_pb2.ProposeRequest()
        for payloads, _ in asked:
            request.payloads.extend(payloads)
        try:
            reply = await reply_to((await self._stub()).Propose, request)
        except Unreachable as error:
            _fail(asked, NotTaken, str(error))
        except grpc.aio.AioRpcError as error:
            kind = _ERRORS.get(error.code(), OutcomeUnknown)
            if kind in _OF_A_COMMAND and len(asked) > 1:
                # Of all that happen to share the call, it may be one that is refused.
                for one in asked:
                    await self._call([one])
                return
            _fail(asked, kind, f"{error.code().name}: {error.details()}")
        else:
            outcomes = iter(reply.outcomes)
            for payloads, result in asked:
                part = [decode_outcome(next(outcomes)) for _ in payloads]
                if not result.done():
                    result.set_result(part)

    def close(self) -> None:
        """Another leader or term has begun."""
        self._is_over = True
        for task in self._calls:
            task.cancel()
        _fail(self._waiting, NotTaken, "another node leads")
        self._waiting = []


_ERRORS: Final[dict[grpc.StatusCode, type[Exception]]] = {
    grpc.StatusCode.FAILED_PRECONDITION: NotTaken,
    grpc.StatusCode.ABORTED: NotTaken,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Unavailable,
    grpc.StatusCode.INVALID_ARGUMENT: ValueError,
}
"""Codes by which a leader says that nothing happened; with any other something may have."""
_OF_A_COMMAND: Final = (Unavailable, ValueError)
"""A command can be refused for its kind: there is no room, or no such command yet."""


def _fail(asked: Asked, kind: type[Exception], text: str) -> None:
    for _, result in asked:
        if not result.done():
            result.set_exception(kind(text))
