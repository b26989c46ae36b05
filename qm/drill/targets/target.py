"""What a drill acts on: nodes that can be killed, paused, cut off, as far as the target can."""

from pathlib import Path
from typing import Final, Protocol

import msgspec

from qm.client.calls import Tls
from qm.drill.targets.ability import Ability
from qm.drill.targets.tampering import Tampering


class TargetFailed(Exception):
    """The target does not do what it should: nothing is proven about messages."""


CLIENTS: Final = "clients"
"""A source that `cut` knows: where this drill's clients are."""


class NodeEnded(TargetFailed):
    """A node ended by itself: it found something wrong, or it is."""


class DrillNode(msgspec.Struct, frozen=True):
    """A node and where it serves."""

    name: str
    host: str
    api: str
    http: str
    """Base URL."""


class Target(Protocol):
    """A cluster under drill. Calls are made by one task; faults add up until `heal`."""

    folder: Path
    """For histories and reports."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do here and now."""

    @property
    def nodes(self) -> tuple[DrillNode, ...]:
        """The members, in a stable order."""

    @property
    def tls(self) -> Tls:
        """Of an administrator."""

    async def up(self) -> None:
        """Have a fresh cluster. Raises TargetFailed."""

    async def down(self) -> None:
        """End everything."""

    async def kill(self, *nodes: str) -> None:
        """SIGKILL, at once."""

    async def pause(self, node: str) -> None:
        """SIGSTOP."""

    async def resume(self, node: str) -> None:
        """SIGCONT."""

    async def stop(self, node: str) -> None:
        """SIGTERM; return when the process is gone."""

    async def start(self, *nodes: str) -> None:
        """Start nodes that do not run."""

    @property
    def tampering(self) -> "Tampering":
        """With nodes' disks and clocks. Raises Refused; see SYNCS, SMALL_DISKS, CLOCKS."""

    async def lose_disk(self, node: str) -> None:
        """Empty the folder of a node that does not run."""

    async def rejoin(self, node: str) -> None:
        """Have a node that was started with an empty folder come back; return when it votes."""

    async def grow(self) -> str:
        """Take one more node in; return its name when it votes. Raises TargetFailed."""

    async def shrink(self, node: str) -> None:
        """Let a node leave for good, which may be dead. Raises TargetFailed."""

    async def change_build(self, node: str, *, is_other: bool) -> None:
        """Have a node that does not run start with the other build, or again with its first."""

    async def front(self, kind: Ability) -> str:
        """Return the address that clients know instead of the nodes', once somebody serves there.

        `kind`: VIRTUAL_ADDRESS or PROXY. Raises TargetFailed.
        """

    async def holder(self) -> str:
        """Return the node that has the virtual address; "" where that cannot be known."""

    async def partition(self, *sides: list[str]) -> None:
        """Have no node hear one of another side."""

    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        """Have `nodes` hear nothing from `sources`, nodes or "clients". One way."""

    async def unplug(self, node: str) -> None:
        """Have a node's machine neither hear nor be heard by anybody."""

    async def heal(self) -> None:
        """End every network fault, resume and start every node."""
