"""Turns of a principal's calls whose answers may be large: further ones wait.

Lists, definitions and the like have answers of up to some megabytes, which gRPC holds until their
caller takes them. A call's turn lasts until its answer is taken.
"""

import asyncio
from collections import deque
from typing import Any, Final

TURNS_PER_PRINCIPAL_MAX: Final = 64
"""Calls of the control plane that a node answers for one principal at the same time."""


class _Principal:
    """How many turns are taken, and who waits, first come first served."""

    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class Turns:
    """Of all principals at a node. Use it in the server's event loop."""

    def __init__(self, per_principal_max: int = TURNS_PER_PRINCIPAL_MAX) -> None:
        self._per_principal_max = per_principal_max
        self._principals: dict[str, _Principal] = {}
        """Only those that have or want one."""

    async def take(self, principal: str, context: Any) -> None:
        """Wait for a turn; the call has it to its end."""
        found = self._principals.setdefault(principal, _Principal())
        if found.taken < self._per_principal_max:
            found.taken += 1
        else:
            turn = asyncio.get_running_loop().create_future()
            found.waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it had its turn meanwhile
                    self._give_back(principal)
                raise
        context.add_done_callback(lambda _: self._give_back(principal))

    def _give_back(self, principal: str) -> None:
        found = self._principals[principal]
        while found.waiting:
            turn = found.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        found.taken -= 1
        if not found.taken:
            del self._principals[principal]
