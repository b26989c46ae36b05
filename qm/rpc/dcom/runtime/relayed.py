"""Questions about objects of another node, when a balancer leads clients to any of them: what
they are, who answers them, and ping sets whose objects are at several nodes.

Numbers begin with their node's (`exporter.node_of`). A ping set belongs to the node of its first
object; of objects elsewhere it keeps there a set of its own, a part.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec
from typing_extensions import override

from qm.rpc.dcom.runtime.exporter import Owner, node_of


class Unanswered(Exception):
    """No node has this number, or it does not answer."""


class Question(msgspec.Struct, frozen=True):
    """A call of IObjectExporter."""

    operation: int
    stub: bytes
    """NDR, little endian."""
    owner: Owner
    """Who asks."""
    dialled: str
    """The address that was called."""


class OtherNodes(Protocol):
    """The other nodes of the cluster."""

    def has(self, node: int) -> bool:
        """Whether a node has this number."""

    async def ask(self, node: int, question: Question) -> bytes:
        """Return a node's answer, NDR in little endian. Raises Unanswered."""


class NoOthers(OtherNodes):
    """Of a node alone."""

    @override
    def has(self, node: int) -> bool:
        return False

    @override
    async def ask(self, node: int, question: Question) -> bytes:
        raise Unanswered(f"there is no node {node}")


class Parts:
    """Sets at other nodes that belong to sets of this one."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[int, int]] = {}
        """By set: by node, its part."""

    def of(self, number: int) -> Mapping[int, int]:
        """Return the parts of a set, by node."""
        return self._numbers.get(number, {})

    def put(self, number: int, node: int, part: int) -> None:
        """A set has a part at a node; 0: not any more."""
        parts = self._numbers.setdefault(number, {})
        if part:
            parts[node] = part
        else:
            parts.pop(node, None)
        if not parts:
            del self._numbers[number]

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget the parts of all other sets: without pings they end by themselves."""
        kept: Final = frozenset(numbers)
        for number in [each for each in self._numbers if each not in kept]:
            del self._numbers[number]


def by_node(oids: Iterable[int], others: OtherNodes, own: int) -> dict[int, list[int]]:
    """Group objects by the node to ask; this one for those of no other."""
    found: dict[int, list[int]] = {}
    for oid in oids:
        node = node_of(oid)
        found.setdefault(node if others.has(node) else own, []).append(oid)
    return found


Given = list[Any]
"""Parameters or results of a call."""
