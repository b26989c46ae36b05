"""Associations: the connections of one client that share context handles [MS-RPCE 3.3.1.1.1].

A handle lives in the process that made it. When the last connection of its association has closed
and the calls of that association have ended, it is run down.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from qm.rpc.interface import Fault, Interface
from qm.rpc.limits import GROUPS_MAX, HANDLES_PER_GROUP_MAX
from qm.rpc.ndr.types import NIL
from qm.rpc.pdu.codes import FaultStatus

_ID_BYTES: Final = 4


class HeldObject(Protocol):
    """What a context handle stands for."""

    def run_down(self) -> None:
        """Its client is gone."""


class Association:
    """The connections and handles of one assoc_group_id."""

    def __init__(self, number: int, address: str, random_bytes: Callable[[int], bytes]) -> None:
        self.number = number
        self.address = address
        """The client's, without port: only it may join."""
        self.connections = 0
        self.calls = 0
        """In progress, on whichever connection."""
        self.kept: dict[str, Any] = {}
        """What an implementation keeps per association, by its name."""
        self.at_end: list[Callable[[], None]] = []
        """Called after its handles are run down."""
        self._random_bytes = random_bytes
        self._handles: dict[bytes, tuple[Interface, HeldObject]] = {}

    @property
    def has_handles(self) -> bool:
        """Whether any context handle is open."""
        return bool(self._handles)

    def open(self, interface: Interface, held: HeldObject) -> bytes:
        """Return the UUID of a new handle. Raises Fault when there are too many."""
        if len(self._handles) >= HANDLES_PER_GROUP_MAX:
            raise Fault(FaultStatus.SERVER_TOO_BUSY, f"{len(self._handles)} handles are open")
        raw = self._random_bytes(len(NIL))
        self._handles[raw] = (interface, held)
        return raw

    def find(self, interface: Interface, raw: bytes) -> HeldObject:
        """Return what a handle stands for; one of another interface is unknown. Raises Fault."""
        found = self._handles.get(raw)
        if found is None or found[0].syntax != interface.syntax:
            raise Fault(FaultStatus.CONTEXT_MISMATCH)
        return found[1]

    def held(self, interface: Interface) -> list[HeldObject]:
        """Return what all handles of an interface stand for."""
        syntax = interface.syntax
        return [held for one, held in self._handles.values() if one.syntax == syntax]

    def close(self, interface: Interface, raw: bytes) -> HeldObject:
        """Forget a handle; return what it stood for. Raises Fault."""
        held = self.find(interface, raw)
        del self._handles[raw]
        return held

    def run_down(self) -> None:
        """Forget all handles; tell what they stood for."""
        handles, self._handles = self._handles, {}
        for _, held in handles.values():
            held.run_down()
        for each in self.at_end:
            each()


class Associations:
    """The associations of a process."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._by_number: dict[int, Association] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Association]:
        return iter(list(self._by_number.values()))

    def join(self, number: int, address: str) -> Association | None:
        """Have a connection begin (0) or join an association; None: there is no such for it."""
        if number:
            found = self._by_number.get(number)
            if found is None or found.address != address:
                return None
            found.connections += 1
            return found
        if len(self._by_number) >= GROUPS_MAX:
            return None
        while not number or number in self._by_number:
            number = int.from_bytes(self._random_bytes(_ID_BYTES), "little")
        made = Association(number, address, self._random_bytes)
        self._by_number[number] = made
        made.connections = 1
        return made

    def leave(self, association: Association) -> None:
        """Note that a connection of it closed."""
        association.connections -= 1
        self.settle(association)

    def settle(self, association: Association) -> None:
        """Run an association down once nothing of it goes on."""
        if association.connections or association.calls:
            return
        if self._by_number.pop(association.number, None) is not None:
            association.run_down()
