"""MSMQEvent [MC-MQAC 3.16]: notifies once that a message is there, or that none arrived.

There is no connection point: the application sets two functions here instead of a sink.
"""

import threading
from collections.abc import Callable

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac.faces import EventSink
from qm.client.mqac.queue import MSMQQueue

Arrived = Callable[[MSMQQueue, int], None]
"""(queue, kind of cursor); called in a separate thread."""
ArrivedError = Callable[[MSMQQueue, int, int], None]
"""(queue, HRESULT, kind of cursor); called in a separate thread."""


class MSMQEvent(EventSink[MSMQQueue]):
    """Both functions may be set at any time."""

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
