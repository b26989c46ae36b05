"""Questions about objects of another node, when a balancer leads clients to any of them: what
they are, who answers them, and ping sets whose objects are at several nodes.

Numbers begin with their node's (`exporter.node_of`). A ping set belongs to the node of its first
object; of objects elsewhere it keeps there a set of its own, a part.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from qm.rpc.dcom.limits import OBJECTS_MAX
from qm.rpc.dcom.runtime.exporter import Owner, node_of

PARTS_MAX: Final = 32
"""Of a ping set: several times the nodes of a cluster."""
LATE_MAX: Final = OBJECTS_MAX
"""Objects of nodes that do not answer, in all ping sets."""


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

    def numbers(self) -> Collection[int]:
        """Return the numbers of those that can be asked."""

    async def ask(self, node: int, question: Question) -> bytes:
        """Return a node's answer, NDR in little endian. Raises Unanswered."""


class NoOthers(OtherNodes):
    """Of a node alone."""

    @override
    def numbers(self) -> Collection[int]:
        return ()

    @override
    async def ask(self, node: int, question: Question) -> bytes:
        raise Unanswered(f"there is no node {node}")


class Late(msgspec.Struct, frozen=True):
    """Objects that are to enter a part of a set once their node answers."""

    sequence: int
    """Of the ping that added them."""
    oids: Sequence[int]
    until: float
    """When their node would have released them."""


class Parts:
    """Sets at other nodes that belong to sets of this one.

    A set has one part at a node; another one, made by a ping at the same moment, is pinged too.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, list[tuple[int, int]]] = {}
        """By set: (node, part)."""
        self._late: dict[int, dict[int, Late]] = {}
        """By set and node."""
        self._late_count = 0

    def all_of(self, number: int) -> Sequence[tuple[int, int]]:
        """Return the parts of a set, as (node, part)."""
        return tuple(self._numbers.get(number, ()))

    def nodes(self, number: int) -> set[int]:
        """Return the nodes at which a set has parts."""
        return {node for node, _ in self._numbers.get(number, ())}

    def at(self, number: int, node: int) -> int:
        """Return the part of a set that changes at a node; 0: it has none there."""
        found = (part for where, part in self._numbers.get(number, ()) if where == node)
        return next(found, 0)

    def add(self, number: int, node: int, part: int) -> None:
        """A part was made, unless too many were: the rest end by themselves."""
        parts = self._numbers.setdefault(number, [])
        if len(parts) < PARTS_MAX:
            parts.append((node, part))

    def drop(self, number: int, node: int, part: int) -> None:
        """A part has ended."""
        parts = [each for each in self._numbers.pop(number, ()) if each != (node, part)]
        if parts:
            self._numbers[number] = parts

    def keep(self, numbers: Collection[int]) -> None:
        """Forget the parts of all other sets: without pings they end by themselves."""
        for number in [each for each in self._numbers if each not in numbers]:
            del self._numbers[number]
        for number in [each for each in self._late if each not in numbers]:
            self.take_late(number, 0.0)

    def put_late(self, number: int, node: int, late: Late) -> bool:
        """Note objects of a node that does not answer; False: there are too many, and these end
        like all that nobody pings.
        """
        if self._late_count + len(late.oids) > LATE_MAX:
            return False
        self._late_count += len(late.oids)
        of_set = self._late.setdefault(number, {})
        if node in of_set:
            late = replace(late, oids=[*of_set[node].oids, *late.oids])
        of_set[node] = late
        return True

    def take_late(self, number: int, now: float) -> dict[int, Late]:
        """Return by node what was noted of a set, which is noted no more."""
        found = self._late.pop(number, {})
        self._late_count -= sum(len(late.oids) for late in found.values())
        return {node: late for node, late in found.items() if now < late.until}


def by_node(oids: Iterable[int], others: OtherNodes, own: int) -> dict[int, list[int]]:
    """Group objects by the node to ask; this one for those of no other."""
    found: dict[int, list[int]] = {}
    known = others.numbers()
    for oid in oids:
        node = node_of(oid)
        found.setdefault(node if node in known else own, []).append(oid)
    return found


Given = list[Any]
"""Parameters or results of a call."""
