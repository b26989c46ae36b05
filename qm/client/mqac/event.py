"""MSMQEvent [MC-MQAC 3.16]: who is told once that a message is there, or that none came.

There is no connection point: the application puts two functions here instead of a sink.
"""

import threading
from collections.abc import Callable

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac.faces import EventSink
from qm.client.mqac.queue import MSMQQueue

Arrived = Callable[[MSMQQueue, int], None]
"""(queue, kind of cursor); called in a thread of its own."""
ArrivedError = Callable[[MSMQQueue, int, int], None]
"""(queue, HRESULT, kind of cursor); called in a thread of its own."""


class MSMQEvent(EventSink[MSMQQueue]):
    """Both functions may be put any time."""

    def __init__(
        self, arrived: Arrived | None = None, arrived_error: ArrivedError | None = None
    ) -> None:
        self.Arrived = arrived
        self.ArrivedError = arrived_error

    @override
    def watch(self, queue: MSMQQueue, cursor: int, look: Callable[[], object]) -> None:
        """Call one of the functions, once, when `look` returns or raises MqError."""

        def wait() -> None:
            try:
                look()
            except MqError as error:
                if self.ArrivedError is not None:
                    self.ArrivedError(queue, error.code, cursor)
            else:
                if self.Arrived is not None:
                    self.Arrived(queue, cursor)

        threading.Thread(target=wait, name="qm-event", daemon=True).start()
