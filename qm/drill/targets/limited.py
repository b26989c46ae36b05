"""A target that refuses, with the reason, everything that its subclass does not support."""

from typing import TYPE_CHECKING, Never

from typing_extensions import override

from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.reasons import refusal
from qm.drill.targets.target import Target

if TYPE_CHECKING:
    from qm.drill.targets.tampering import Tampering


class LimitedTarget(Target):
    """A target whose calls are refused, with the reason, unless a subclass supports them."""

    def __init__(self, name: str) -> None:
        """`name` is the kind of target."""
        self._name = name

    @property
    @override
    def name(self) -> str:
        return self._name

    def refuse(self, ability: Ability) -> Never:
        """Raise Refused."""
        raise Refused(refusal(self.name, ability))

    @property
    @override
    def rpc_port(self) -> int:
        self.refuse(Ability.REMOTE_READ)

    @property
    @override
    def tampering(self) -> "Tampering":
        self.refuse(Ability.SYNCS)

    @override
    async def pause(self, node: str) -> None:
        self.refuse(Ability.PAUSE)

    @override
    async def resume(self, node: str) -> None:
        self.refuse(Ability.PAUSE)

    @override
    async def ended(self, node: str, timeout_s: float) -> bool:
        self.refuse(Ability.DISK_ERRORS)

    @override
    async def check_room(self, count: int) -> None:
        return  # a node that cannot be added says so

    @override
    async def lose_disk(self, node: str) -> None:
        self.refuse(Ability.DISKS)

    @override
    async def rejoin(self, node: str) -> None:
        self.refuse(Ability.DISKS)

    @override
    async def grow(self) -> str:
        self.refuse(Ability.SCALE)

    @override
    async def shrink(self, node: str) -> None:
        self.refuse(Ability.SCALE)

    @override
    async def change_build(self, node: str, *, is_other: bool) -> None:
        self.refuse(Ability.BUILDS)

    @override
    async def front(self, kind: Ability) -> str:
        self.refuse(kind)

    @override
    async def holder(self) -> str:
        return ""

    @override
    async def partition(self, *sides: list[str]) -> None:
        self.refuse(Ability.NETWORK)

    @override
    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        self.refuse(Ability.NETWORK)

    @override
    async def unplug(self, node: str) -> None:
        self.refuse(Ability.UNPLUG)
