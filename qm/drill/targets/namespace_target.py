"""Nodes as processes of this machine, each in its own network namespace."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.fronts import Fronts, front_abilities
from qm.drill.targets.namespaces import Namespaces, NamespacesRefused
from qm.drill.targets.process_target import MACHINES, ProcessTarget
from qm.drill.targets.target import CLIENTS
from qm.node.dev.layout import DevNode

_NETWORK: Final = frozenset({Ability.NETWORK, Ability.UNPLUG})


class NamespaceTarget(ProcessTarget):
    """A namespace for each node; clients are on the machine itself."""

    def __init__(
        self,
        name: str,
        folder: Path,
        say: Callable[[str], None],
        other_build: Path | None = None,
        guests: Sequence[str] = (),
    ) -> None:
        """`guests`: hosts without a node. Raises Refused if namespaces cannot be created."""
        names = [*(f"n{k + 1}" for k in range(MACHINES)), *guests]
        # Two drills on one machine must not reach each other.
        network = f"10.181.{os.getpid() % 256}"
        self._spaces = Namespaces(f"d{os.getpid() % 10_000}", names, f"{network}.0/24", first=11)
        super().__init__(name, folder, network, say, other_build)
        self._fronts = Fronts(
            self._spaces, folder / "fronts", lambda: [node.name for node in self.nodes]
        )
        self._is_made = False

    @property
    def spaces(self) -> Namespaces:
        """The hosts."""
        return self._spaces

    @property
    @override
    def abilities(self) -> frozenset[Ability]:
        return super().abilities | _NETWORK | front_abilities()

    @override
    def _command(self, node: str, *argv: str) -> list[str]:
        return self._spaces.command(node, *argv)

    @override
    async def up(self) -> None:
        if not self._is_made:
            try:
                self._spaces.__enter__()
            except NamespacesRefused as error:
                raise Refused(str(error)) from error
            self._is_made = True
        await super().up()

    @override
    def _configure(self, node: DevNode) -> None:
        """Serve at the fronts' addresses, too."""
        super()._configure(node)
        with self._layout.config(node.name).open("a", encoding="utf-8") as config:
            config.write(self._fronts.node_section(node.host))

    @override
    async def down(self) -> None:
        await self._fronts.stop()
        await super().down()

    @override
    async def front(self, kind: Ability) -> str:
        return await self._fronts.start(kind)

    @override
    async def holder(self) -> str:
        return self._spaces.who_has(self._spaces.virtual_address)

    def remove(self) -> None:
        """Remove the namespaces."""
        if self._is_made:
            self._spaces.__exit__(None, None, None)
            self._is_made = False

    @override
    async def partition(self, *sides: list[str]) -> None:
        self._spaces.partition(*sides)

    @override
    async def cut(self, nodes: list[str], sources: list[str]) -> None:
        machine = self._spaces.machine_address
        self._spaces.cut(nodes, [machine if source == CLIENTS else source for source in sources])

    @override
    async def unplug(self, node: str) -> None:
        self._spaces.unplug(node)

    @override
    async def heal(self) -> None:
        self._spaces.heal()
        await super().heal()
