"""Host names looked up by the operating system, which may take as long as it likes for each.

A look-up occupies a thread until the system gives up; it cannot be ended. So each kind of asker has
a few threads of its own, and of the names that wait the newest has every second turn: names that
nobody answers for keep only one another waiting.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from qm.edge.outgoing.limits import RESOLVE_TIMEOUT_S

Found = asyncio.Future[list[str]]


class Lookups:
    """Look-ups that run or wait. Use it in one event loop."""

    def __init__(self, count: int) -> None:
        """`count`: how many run at a time."""
        self._left = count
        self._waiting: dict[str, Found] = {}
        """By name, in the order in which they were asked for first."""
        self._running: dict[str, Found] = {}
        self._askers: Counter[Found] = Counter()
        self._turns = 0

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a host name; who asks for one at the same time share the answer.

        Raises OSError: TimeoutError when the system has not answered within RESOLVE_TIMEOUT_S.
        """
        found = self._running.get(host) or self._waiting.get(host)
        if found is None:
            found = self._waiting[host] = asyncio.get_running_loop().create_future()
            found.add_done_callback(_retrieved)
            self._go_on()
        self._askers[found] += 1
        try:
            return await asyncio.shield(found)
        finally:
            self._askers[found] -= 1
            if not self._askers[found]:
                del self._askers[found]
                if self._waiting.get(host) is found:
                    del self._waiting[host]  # nobody wants to know any more

    def _go_on(self) -> None:
        while self._left and self._waiting:
            self._turns += 1
            names = reversed(self._waiting) if self._turns % 2 == 0 else iter(self._waiting)
            self._begin(next(names))

    def _begin(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        found = self._running[host] = self._waiting.pop(host)
        self._left -= 1
        late = loop.call_later(RESOLVE_TIMEOUT_S, self._give_up, host, found)

        def end(addresses: list[str] | OSError) -> None:
            late.cancel()
            self._left += 1
            if self._running.get(host) is found:
                del self._running[host]
            if not found.done():
                if isinstance(addresses, OSError):
                    found.set_exception(addresses)
                else:
                    found.set_result(addresses)
            self._go_on()

        def ask() -> None:
            addresses = _ask(host)
            with suppress(RuntimeError):  # the node has stopped meanwhile
                loop.call_soon_threadsafe(end, addresses)

        # A daemon: a node that ends waits for no name server.
        threading.Thread(target=ask, name="look-up", daemon=True).start()

    def _give_up(self, host: str, found: Found) -> None:
        """Tell who asks that there is no answer; the thread is occupied all the same."""
        del self._running[host]
        if not found.done():
            found.set_exception(TimeoutError(f"no answer within {RESOLVE_TIMEOUT_S:g} s"))


def _ask(host: str) -> list[str] | OSError:
    try:
        places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError as error:  # not a name that can be looked up at all
        return OSError(f"not a host name: {error}")
    return list(dict.fromkeys(str(place[0]) for *_, place in places))


def _retrieved(found: Found) -> None:
    """Those who asked may be gone: their exception need not be logged."""
    if not found.cancelled():
        found.exception()
