"""MSMQEvent [MC-MQAC 3.16]: notifies once that a message is there, or that none arrived.

Sinks are Python objects with the two methods of _DMSMQEventEvents; an application that has only
functions gives those to the constructor instead.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Final, NoReturn, Protocol

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac.constants import (
    CONNECT_E_ADVISELIMIT,
    CONNECT_E_CANNOTCONNECT,
    CONNECT_E_NOCONNECTION,
    E_NOTIMPL,
    E_POINTER,
)
from qm.client.mqac.faces import EventSink
from qm.client.mqac.queue import MSMQQueue

CONNECTIONS_MAX: Final = 64
"""ConnectionLimit: sinks of one event."""
EVENTS_IID: Final = "d7d6e078-dccd-11d0-aa4b-0060970debae"
"""IID of _DMSMQEventEvents."""

Arrived = Callable[[MSMQQueue, int], None]
"""(queue, kind of cursor); called in a separate thread."""
ArrivedError = Callable[[MSMQQueue, int, int], None]
"""(queue, HRESULT, kind of cursor); called in a separate thread."""


class Sink(Protocol):
    """_DMSMQEventEvents: what an application implements (AC-A38). Called in a separate thread."""

    def Arrived(self, Queue: MSMQQueue, Cursor: int) -> None:
        """A message is there; `Cursor` is what EnableNotification was given."""

    def ArrivedError(self, Queue: MSMQQueue, ErrorCode: int, Cursor: int) -> None:
        """No message came: an HRESULT says why."""


class _Functions:
    """A sink of two functions, each of which may be missing."""

    def __init__(self, event: "MSMQEvent") -> None:
        self._event = event

    def Arrived(self, Queue: MSMQQueue, Cursor: int) -> None:
        if self._event.Arrived is not None:
            self._event.Arrived(Queue, Cursor)

    def ArrivedError(self, Queue: MSMQQueue, ErrorCode: int, Cursor: int) -> None:
        if self._event.ArrivedError is not None:
            self._event.ArrivedError(Queue, ErrorCode, Cursor)


class MSMQEvent(EventSink[MSMQQueue]):
    """A connection point for sinks. Both functions may be set at any time."""

    def __init__(
        self, arrived: Arrived | None = None, arrived_error: ArrivedError | None = None
    ) -> None:
        self.Arrived = arrived
        self.ArrivedError = arrived_error
        self._functions = _Functions(self)
        self._sinks: dict[int, Sink] = {}
        self._cookies = itertools.count(1)

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.16.4.1.1]."""
        raise MqError(E_NOTIMPL)

    # IConnectionPointContainer and IConnectionPoint ----------------------------------------

    def EnumConnectionPoints(self) -> list["MSMQEvent"]:
        """Return the one connection point, which the object is itself."""
        return [self]

    def FindConnectionPoint(self, riid: str) -> "MSMQEvent":
        """Return the connection point of _DMSMQEventEvents, by its IID; there is no other one."""
        if riid.strip("{}").casefold() != EVENTS_IID:
            raise MqError(CONNECT_E_NOCONNECTION)
        return self

    def GetConnectionInterface(self) -> str:
        """Return the IID of _DMSMQEventEvents."""
        return EVENTS_IID

    def GetConnectionPointContainer(self) -> "MSMQEvent":
        """Return what has this connection point: the object itself."""
        return self

    def Advise(self, pUnkSink: Sink) -> int:
        """Have a sink called from now on; return the cookie that ends it."""
        if pUnkSink is None:
            raise MqError(E_POINTER)
        if len(self._sinks) >= CONNECTIONS_MAX:
            raise MqError(CONNECT_E_ADVISELIMIT)
        for name in ("Arrived", "ArrivedError"):
            if not callable(getattr(pUnkSink, name, None)):
                raise MqError(CONNECT_E_CANNOTCONNECT)
        cookie = next(self._cookies)
        self._sinks[cookie] = pUnkSink
        return cookie

    def Unadvise(self, dwCookie: int) -> None:
        """Do not call a sink any more. Raises CONNECT_E_NOCONNECTION."""
        if self._sinks.pop(dwCookie, None) is None:
            raise MqError(CONNECT_E_NOCONNECTION)

    def EnumConnections(self) -> NoReturn:
        """Not implemented, as the document allows."""
        raise MqError(E_NOTIMPL)

    # IMSMQPrivateEvent ---------------------------------------------------------------------

    @property
    def Hwnd(self) -> int:
        """There is no window."""
        return 0

    def FireArrivedEvent(self, pq: MSMQQueue, msgcursor: int) -> None:
        """Tell every sink that a message is there. What one of them raises, this raises then."""
        with contextlib.ExitStack() as calls:
            for sink in reversed(self._all()):
                calls.callback(sink.Arrived, pq, msgcursor)

    def FireArrivedErrorEvent(self, pq: MSMQQueue, hrStatus: int, msgcursor: int) -> None:
        """Tell every sink that no message came. What one of them raises, this raises then."""
        with contextlib.ExitStack() as calls:
            for sink in reversed(self._all()):
                calls.callback(sink.ArrivedError, pq, hrStatus, msgcursor)

    # ---------------------------------------------------------------------------------------

    @override
    def watch(self, queue: MSMQQueue, cursor: int, look: Callable[[], object]) -> None:
        """Tell every sink, once, when `look` returns or raises MqError."""

        def wait() -> None:
            try:
                look()
            except MqError as error:
                self.FireArrivedErrorEvent(queue, error.code, cursor)
            else:
                self.FireArrivedEvent(queue, cursor)

        threading.Thread(target=wait, name="qm-event", daemon=True).start()

    def _all(self) -> list[Sink]:
        return [*self._sinks.values(), self._functions]
