"""What a scenario is, and the stage that it acts on."""

import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from qm.drill.targets.ability import Ability
from qm.drill.targets.target import Target


class Stage(Protocol):
    """The actions available to a scenario; every fault is marked in the history."""

    target: Target
    chance: random.Random

    async def leader(self) -> str:
        """Return the leader, waiting for one."""

    async def followers(self) -> list[str]:
        """Return the other nodes, in a stable order."""

    def fault(self, text: str, *struck: str) -> None:
        """Record that a fault begins now.

        Senders whose session is at a `struck` node must reconnect, or wait with it; the gap that
        counts is that of the others.
        """

    def healed(self, text: str) -> None:
        """Record that the fault has ended."""

    @property
    def acknowledged(self) -> int:
        """The number of messages that senders know to be safe."""

    @property
    def received(self) -> int:
        """The number of messages whose read took effect."""

    def wrong(self, text: str) -> None:
        """Record that something was seen that must not be."""

    async def heal(self) -> None:
        """Make every node serve again."""

    async def transfer(self, to: str) -> None:
        """Hand leadership over."""

    async def apply_version(self) -> int:
        """Return the apply version that is in force."""

    async def known_version(self) -> int:
        """Return the highest apply version that every member's build knows."""

    async def now_ms(self) -> int:
        """Return cluster time."""

    async def drain(self, node: str) -> None:
        """Make a node hand over leadership and accept no new sessions."""


Act = Callable[[Stage], Awaitable[None]]
Prepare = Callable[[Target], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True):
    """One drill."""

    name: str
    text: str
    act: Act
    needs: frozenset[Ability] = frozenset({Ability.PROCESSES})
    prepare: Prepare | None = None
    """What must be done to the nodes before the load starts."""
    through: Ability | None = None
    """The front between the nodes and one more sender, whose gap is the one that counts."""
    is_short: bool = False
    """Whether it is on the short list that every test run executes."""
