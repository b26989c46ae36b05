"""A call as its implementation sees it, and how methods are found and run.

A method takes the call and its parameters. It returns the results; or None, and answers through the
call later, which costs no task; or it is a coroutine function.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from qm.rpc.association.calls import IncomingCall
from qm.rpc.association.connection import Connection
from qm.rpc.association.groups import Association
from qm.rpc.interface import Fault, Interface
from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.call import verify_trailer
from qm.rpc.pdu.codes import FaultStatus, PduType
from qm.rpc.security.provider import Identity
from qm.wire.guid import Guid

Implementations = Mapping[Guid, object]
"""By UUID of the interface: an object with a method for each operation."""


class Call:
    """One call in progress."""

    __slots__ = ("_connection", "_done", "_request", "address", "association", "local", "on_end")

    def __init__(
        self,
        request: IncomingCall,
        connection: Connection,
        done: Callable[["Call", str], None],
        address: str,
        local: tuple[str, int],
    ) -> None:
        """`done`: told once, with the result for metrics. `address`: the client's. `local`: where
        its connection was accepted.
        """
        self._request = request
        self._connection = connection
        self._done = done
        self.address = address
        self.local = local
        association = connection.association
        assert association is not None
        self.association: Final[Association] = association
        self.on_end: Callable[[bool], None] | None = None
        """Called when a call that waits is to end: True if the client still expects an answer,
        False if it or its connection is gone."""

    @property
    def identity(self) -> Identity:
        """Who calls."""
        return self._request.identity

    @property
    def interface(self) -> Interface:
        """The interface that is called."""
        return self._request.interface

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self._connection.is_in_progress(self._request)

    @property
    def request(self) -> IncomingCall:
        """The request."""
        return self._request

    def answer(self, results: Any) -> None:
        """Answer with results, unless nobody waits any more."""
        self._connection.respond(self._request, self._request.operation.gives.marshal(results))
        self._done(self, "ok")

    def fail(self, status: int) -> None:
        """Answer with a fault."""
        self._connection.fault(self._request, status or FaultStatus.CALL_FAILED)
        self._done(self, f"{status:08x}")

    def forget(self) -> None:
        """End without an answer."""
        self._connection.forget(self._request)
        self._done(self, "dropped")

    def end(self, *, is_awaited: bool) -> None:
        """Have it end early; see `on_end`."""
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None
            on_end(is_awaited)


class Dispatcher:
    """Gives calls to implementations."""

    def __init__(
        self, implementations: Implementations, failed: Callable[[Call, Exception], None]
    ) -> None:
        """`failed`: told of an error of a method that no fault stands for."""
        self._implementations = implementations
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, call: Call) -> None:
        """Execute a call. Nothing is raised: what goes wrong is a fault of the call."""
        request = call.request
        try:
            given, end = request.operation.takes.unmarshal(request.stub, request.order)
            self._verify(call, end)
            request.stub = b""
            implementation = self._implementations[request.interface.syntax.uuid]
            result = getattr(implementation, request.operation.name)(call, given)
        except Exception as error:
            call.fail(self._status_of(error, call))
            return
        if inspect.iscoroutine(result):
            task = asyncio.ensure_future(self._finish(call, result))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif result is not None:
            call.answer(result)

    async def _finish(self, call: Call, result: Any) -> None:
        try:
            values = await result
        except asyncio.CancelledError:
            call.fail(FaultStatus.CANCELLED)
            raise
        except Exception as error:
            call.fail(self._status_of(error, call))
        else:
            if values is not None:
                call.answer(values)

    def _verify(self, call: Call, end: int) -> None:
        request, connection = call.request, call._connection
        presentation = connection.presentation_of(request)
        agrees = verify_trailer(
            request.stub,
            end,
            signs_header=connection.signs_header,
            interface=presentation.interface.syntax,
            transfer=presentation.transfer,
            pdu_head=(
                int(PduType.REQUEST),
                request.drep,
                request.call_id,
                request.context_id,
                request.opnum,
            ),
        )
        if not agrees:
            raise Fault(FaultStatus.ACCESS_DENIED, "the verification trailer disagrees")

    def _status_of(self, error: Exception, call: Call) -> int:
        if isinstance(error, Fault):
            return error.status
        if isinstance(error, BadStub):
            return FaultStatus.BAD_STUB_DATA
        self._failed(call, error)
        return FaultStatus.CALL_FAILED

    async def stop(self) -> None:
        """Cancel what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
