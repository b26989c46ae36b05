"""A coroutine that begins at once, where a task would begin in the loop's next round.

Python 3.12 has eager tasks; this replaces them while 3.11 is supported.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class EagerCall:
    """Runs a coroutine outside of any task: now as far as it goes, then from the loop."""

    __slots__ = ("_done", "_loop", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, object], done: Callable[[BaseException | None], None]
    ) -> None:
        """`done(error)` is called once, by the loop, never before this returns."""
        self._work = work
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        try:
            awaited = self._work.send(None)
        except StopIteration:
            self._loop.call_soon(self._done, None)
        except (Exception, asyncio.CancelledError) as error:
            self._loop.call_soon(self._done, error)
        else:
            if awaited is None:  # asyncio.sleep(0)
                self._loop.call_soon(self._go_on)
                return
            awaited._asyncio_future_blocking = False  # as asyncio.Task does
            awaited.add_done_callback(self._go_on)
