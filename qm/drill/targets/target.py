"""What a drill acts on: nodes that can be killed, paused or cut off, as the target allows."""

from pathlib import Path
from typing import Final, Protocol

import msgspec

from qm.client.calls import Tls
from qm.drill.targets.ability import Ability
from qm.drill.targets.tampering import Tampering


class TargetFailed(Exception):
    """The target did not do what it should: nothing is proven about messages."""


CLIENTS: Final = "clients"
"""A source for `cut`: this drill's clients."""


class NodeEnded(TargetFailed):
    """A node exited on its own: it detected an error, or has one."""


class DrillNode(msgspec.Struct, frozen=True):
    """A node and its addresses."""

    name: str
    host: str
    api: str
    http: str
    """Base URL of its health endpoint."""


class Target(Protocol):
    """A cluster under drill. Calls are made by one task; faults add up until `heal`."""

    folder: Path
    """For histories and reports."""

    @property
    def name(self) -> str:
        """The target's name, as on the command line."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can currently do here."""

    @property
    def nodes(self) -> tuple[DrillNode, ...]:
        """The members, in a stable order."""

    @property
    def tls(self) -> Tls:
        """An administrator's credentials."""

    @property
    def rpc_port(self) -> int:
        """The port of remote read, where nodes have Ability.REMOTE_READ."""

    async def up(self) -> None:
        """Start a fresh cluster. Raises TargetFailed."""

    async def down(self) -> None:
        """Stop everything."""

    async def kill(self, *nodes: str) -> None:
        """Kill nodes with SIGKILL, at once."""

    async def pause(self, node: str) -> None:
        """SIGSTOP."""

    async def resume(self, node: str) -> None:
        """SIGCONT."""

    async def ended(self, node: str, timeout_s: float) -> bool:
        """Return whether a node ends by itself, which it is to do, within this time."""

    async def stop(self, node: str) -> None:
        """Stop a node with SIGTERM; return when the process is gone."""

    async def start(self, *nodes: str) -> None:
        """Start nodes that are not running."""

    @property
    def tampering(self) -> "Tampering":
        """Return the faults of nodes' disks and clocks. Raises Refused; see SYNCS, SMALL_DISKS,
        CLOCKS.
        """

    async def lose_disk(self, node: str) -> None:
        """Empty the data folder of a node that is not running."""

    async def rejoin(self, node: str) -> None:
        """Make a node that was started with an empty folder rejoin; return when it votes."""

    async def check_room(self, count: int) -> None:
        """Do nothing where `count` more nodes have a place, as far as can be told beforehand.

        Raises TargetFailed.
        """

    async def grow(self) -> str:
        """Add one more node; return its name when it votes. Raises TargetFailed."""

    async def shrink(self, node: str) -> None:
        """Remove a node for good; it may be dead. Raises TargetFailed."""

    async def change_build(self, node: str, *, is_other: bool) -> None:
        """Make a stopped node start with the other build, or with its first build again."""

    async def front(self, kind: Ability) -> str:
        """Return the address that clients know instead of the nodes', once a node serves there.

        `kind`: VIRTUAL_ADDRESS or PROXY. Raises TargetFailed.
        """

    async def holder(self) -> str:
        """Return the node that has the virtual address; "" if that cannot be determined."""

    async def partition(self, *sides: list[str]) -> None:
        """Cut off the sides from each other."""

    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        """Make `nodes` receive nothing from `sources`, nodes or "clients". One way."""

    async def unplug(self, node: str) -> None:
        """Cut a node's machine off from all others in both directions."""

    async def heal(self) -> None:
        """End every network fault, resume and start every node."""
