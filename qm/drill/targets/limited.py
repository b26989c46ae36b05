"""A target that refuses whatever its subclass does not do, with the reason."""

from typing import TYPE_CHECKING, Never

from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.reasons import refusal

if TYPE_CHECKING:
    from qm.drill.targets.tampering import Tampering


class LimitedTarget:
    """See Target for what the calls mean."""

    def __init__(self, name: str) -> None:
        """`name`: the kind of target."""
        self.name = name

    def refuse(self, ability: Ability) -> Never:
        """Raise Refused."""
        raise Refused(refusal(self.name, ability))

    @property
    def tampering(self) -> "Tampering":
        """See Target.tampering."""
        self.refuse(Ability.SYNCS)

    async def pause(self, node: str) -> None:
        """See Target.pause."""
        self.refuse(Ability.PAUSE)

    async def resume(self, node: str) -> None:
        """See Target.resume."""
        self.refuse(Ability.PAUSE)

    async def lose_disk(self, node: str) -> None:
        """See Target.lose_disk."""
        self.refuse(Ability.DISKS)

    async def rejoin(self, node: str) -> None:
        """See Target.rejoin."""
        self.refuse(Ability.DISKS)

    async def grow(self) -> str:
        """See Target.grow."""
        self.refuse(Ability.SCALE)

    async def shrink(self, node: str) -> None:
        """See Target.shrink."""
        self.refuse(Ability.SCALE)

    async def change_build(self, node: str, *, is_other: bool) -> None:
        """See Target.change_build."""
        self.refuse(Ability.BUILDS)

    async def front(self, kind: Ability) -> str:
        """See Target.front."""
        self.refuse(kind)

    async def holder(self) -> str:
        """See Target.holder."""
        return ""

    async def partition(self, *sides: list[str]) -> None:
        """See Target.partition."""
        self.refuse(Ability.NETWORK)

    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        """See Target.cut."""
        self.refuse(Ability.NETWORK)

    async def unplug(self, node: str) -> None:
        """See Target.unplug."""
        self.refuse(Ability.UNPLUG)
