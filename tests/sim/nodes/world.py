"""One virtual time for all processes: what is planned when, and who runs next.

Order is first come, first served within a process, as in asyncio, and drawn between processes.
Nothing happens but by `World.step`: whoever runs two worlds of one seed sees the same events.
"""

import heapq
import random
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from tests.sim.nodes.loop import SimLoop

NS: Final = 1_000_000_000
BEGIN_NS: Final = 1_000 * NS
"""Of the monotonic clocks."""
EPOCH_NS: Final = 1_760_000_000 * NS
"""What wall clocks say when the monotonic ones say nothing."""


class ProcessDied(SystemExit):
    """The process ends at this instruction: asyncio and `except Exception` let it pass."""


def end_process(world: "World", why: str) -> NoReturn:
    """End the process that runs now, whatever its `except` and `finally` would do about it."""
    if world.current is not None:
        world.current.condemned = why
    raise ProcessDied(why)


class Deadlock(Exception):
    """Nothing is planned any more."""


class World:
    """Time, order, chance, and the trace of one seed."""

    def __init__(self, seed: int, folder: Path, write: Callable[[str], None] | None = None) -> None:
        """`write` takes the lines of the transcript; `folder` stays out of them."""
        self.seed = seed
        self.folder = folder
        self.time_ns = BEGIN_NS
        self.loops: list[SimLoop] = []
        self.current: SimLoop | None = None
        """Whose process runs now."""
        self.on_died: Callable[[SimLoop, str], None] = lambda loop, why: None
        self.turns = 0
        self.events = 0
        self._write = write
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._chances: dict[str, random.Random] = {}
        self._order = self.chance("order")
        self._trace = blake2b(digest_size=16)

    # Time and chance of a process (`tests.sim.nodes.patches`) ----------------------------------

    def now_ns(self) -> int:
        """See Source.now_ns."""
        return self.time_ns

    def wall_ns(self) -> int:
        """See Source.wall_ns."""
        offset_ns = 0 if self.current is None else self.current.offset_ns
        return EPOCH_NS + self.time_ns + offset_ns

    def entropy(self, size: int) -> bytes:
        """See Source.entropy."""
        name = "world" if self.current is None else self.current.name
        return self.chance(f"entropy of {name}").randbytes(size)

    def chance(self, name: str) -> random.Random:
        """Return a stream of dice: what one draws moves no other."""
        found = self._chances.get(name)
        if found is None:
            found = self._chances[name] = random.Random(f"{self.seed}/{name}")
        return found

    @property
    def elapsed_s(self) -> float:
        """Seconds since the world began."""
        return (self.time_ns - BEGIN_NS) / NS

    # The trace ---------------------------------------------------------------------------------

    def say(self, *fields: object) -> None:
        """Put an event into the transcript and the trace."""
        text = " ".join(map(str, fields)).replace(str(self.folder), "")
        line = f"{(self.time_ns - BEGIN_NS) // 1000:>9} {text}"
        self._note(line)
        if self._write is not None:
            self._write(line)

    def mark(self, *fields: object) -> None:
        """Put an event into the trace alone."""
        self._note(f"{self.time_ns} {fields}")

    def _note(self, line: str) -> None:
        self._trace.update(line.encode() + b"\n")
        self.events += 1

    def trace_hash(self) -> str:
        """Return the hash of everything that happened so far."""
        return self._trace.hexdigest()

    # Order -------------------------------------------------------------------------------------

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        """Plan something that is no process' own: a wire, a disk, a fault."""
        self._sequence += 1
        heapq.heappush(self._planned, (max(when_ns, self.time_ns), self._sequence, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Plan it so many seconds from now."""
        self.at(self.time_ns + int(delay_s * NS), action)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until then. Raises Deadlock."""
        while not is_over():
            self.step()

    def step(self) -> None:
        """Do what comes next. Raises Deadlock."""
        due: list[SimLoop] = []
        when: int | None = None
        for loop in self.loops:
            ready_ns = loop.due_ns()
            if ready_ns is None:
                continue
            if when is None or ready_ns < when:
                due, when = [loop], ready_ns
            elif ready_ns == when:
                due.append(loop)
        if self._planned and (when is None or self._planned[0][0] <= when):
            self.time_ns, _, action = heapq.heappop(self._planned)
            action()
            return
        if when is None:
            raise Deadlock("nothing is planned any more")
        self.time_ns = max(self.time_ns, when)
        loop = due[0] if len(due) == 1 else due[self._order.randrange(len(due))]
        self.turns += 1
        loop.turn()
