"""Requests that are still arriving.

gRPC holds what has come of a message until it is whole, and asks for the rest of each. So nothing
of a request is asked for before its sender is known, only a few of each sender arrive at the same
time, and each has its time. Until then gRPC takes WINDOW_BYTES of a call and no more: the probe of
bandwidth, which would raise that, is off.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

REQUEST_MAX_BYTES: Final = 6 << 20
"""One message of a caller: a packet of 4 MiB, or 4 MiB of smaller ones with their properties. gRPC
may hold so much of each request, and of each stream of requests."""
WINDOW_BYTES: Final = 16 << 10
REQUESTS_MAX: Final = 32
"""Requests that a server is receiving at the same time."""
REQUESTS_PER_CALLER_MAX: Final = 8
REQUEST_MAX_S: Final = 30.0
SERVER_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", REQUEST_MAX_BYTES),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.http2.bdp_probe", 0),
)
_SLOW: Final = f"the request did not arrive within {REQUEST_MAX_S:g} s"


class NoRequest(Exception):
    """A caller ended its side without a request."""


class Receiving:
    """The requests that a server is receiving. Create and use it in its event loop."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(REQUESTS_MAX)
        self._callers: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}
        """Places of each caller, and a mark for each of its requests that has or wants one."""

    async def request(self, caller: str, context: Any) -> bytes:
        """Return a call's request, once it has a place and is whole.

        Raises NoRequest; `grpc.aio.AbortError`, when the call was ended with DEADLINE_EXCEEDED.
        """
        async with self._place(caller):
            loop = asyncio.get_running_loop()
            ends: list[asyncio.Task[BaseException]] = []
            # A read must not be cancelled: its buffers are gRPC's until it is done.
            late = loop.call_later(
                REQUEST_MAX_S, lambda: ends.append(loop.create_task(_end(context)))
            )
            try:
                body = await context.read()
            finally:
                late.cancel()
            for end in ends:
                raise await end
        if not isinstance(body, bytes):
            raise NoRequest("the call has no request")
        return body

    def has_place(self, caller: str) -> bool:
        """Return whether a request of this caller would be asked for at once."""
        places, _ = self._callers.get(caller, (self._places, []))
        return not (places.locked() or self._places.locked())

    @asynccontextmanager
    async def _place(self, caller: str) -> AsyncIterator[None]:
        places, marks = self._callers.setdefault(
            caller, (asyncio.Semaphore(REQUESTS_PER_CALLER_MAX), [])
        )
        marks.append(None)
        try:
            async with places, self._places:
                yield
        finally:
            marks.pop()
            if not marks:
                del self._callers[caller]


async def _end(context: Any) -> BaseException:
    """End a call; return what its handler, which still reads, is to raise then."""
    try:
        await end_call(context, grpc.StatusCode.DEADLINE_EXCEEDED, _SLOW)
    except (grpc.aio.AbortError, asyncio.CancelledError) as error:
        return error


async def end_call(
    context: Any, code: grpc.StatusCode, text: str, trailing_metadata: Any = ()
) -> NoReturn:
    """End a call with an error. Raises CancelledError where its caller is gone."""
    try:
        await context.abort(code, text, trailing_metadata)
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        # gRPC says in several ways, none of them public, that the caller is gone. It would log
        # each with its traceback, as often as a caller likes.
        raise asyncio.CancelledError("the caller is gone") from error
    raise AssertionError("abort raises")
