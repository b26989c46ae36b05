"""What a scenario may do with a cluster, whoever implements it. Standard library only: the
raftos side runs in an environment of its own.
"""

from dataclasses import dataclass
from typing import Protocol

Leadership = tuple[int, str]
"""(term, machine): that machine led in that term."""


@dataclass(slots=True)
class Handle:
    """A request that a client made and waits for."""

    is_done: bool = False
    is_failed: bool = False
    value: int | None = None
    """Of a read."""


@dataclass(slots=True)
class Frame:
    """A message that travelled, kept for delivering it again."""

    source: str
    target: str
    kind: str
    """`append`, `append_reply`, `vote`, `vote_reply` or another."""
    entries: int
    """How many entries an `append` carries."""
    content: object


class Cluster(Protocol):
    """Machines `a`, `b`, ... with a network and virtual time. Nothing runs by itself."""

    names: list[str]

    def start(self, *names: str) -> None:
        """Start processes, for the first time or again, on what their disks hold."""

    def kill(self, *names: str) -> None:
        """End processes; their disks keep what was written."""

    def cut_power(self) -> None:
        """End all processes; the disks keep what was synced."""

    def pause(self, name: str) -> None:
        """Stop a process in its tracks; what arrives waits."""

    def resume(self, name: str) -> None:
        """Let it go on. Nothing that waited is handled before `run`."""

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one machine to the other."""

    def split(self, *camps: str) -> None:
        """Let machines reach only those of their own camp: `split("ab", "cd")`."""

    def heal(self) -> None:
        """End every cut."""

    def repeat(self, kind: str, times: int) -> None:
        """From now on deliver each message of that kind so many times."""

    def frames(self, kind: str, source: str, target: str) -> list[Frame]:
        """Return the messages that arrived so far."""

    def deliver(self, frame: Frame) -> None:
        """Deliver a message once more."""

    def close(self) -> None:
        """End everything; the cluster is not used any more."""

    def run(self, ms: int) -> None:
        """Let virtual time pass."""

    def campaign(self, name: str) -> None:
        """Have the election timer of a machine run out (and the others' patience, where the
        protocol has any)."""

    def leaderships(self) -> list[Leadership]:
        """Return every leadership so far, in order."""

    def leader(self) -> str | None:
        """Return the running leader of the newest term."""

    def put(self, name: str, key: str, value: int) -> Handle:
        """Ask a machine to replicate `key = value`."""

    def read(self, name: str, key: str) -> Handle:
        """Ask a machine for the current value."""
