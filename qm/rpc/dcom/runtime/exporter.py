"""The objects that a node exports: who holds which interface pointers of them, and until when.

An object is released when its last reference is, or after three ping periods without a ping or a
call [MS-DCOM 3.1.2.2, 3.1.1.6.1]. No I/O; time and random bytes come from outside.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import (
    INTERFACES_PER_OBJECT_MAX,
    OBJECTS_MAX,
    OBJECTS_PER_CALLER_MAX,
    PING_SETS_MAX,
    PING_SETS_PER_CALLER_MAX,
    REFERENCES_MAX,
    UNPINGED_MAX_S,
)
from qm.rpc.dcom.runtime.objref import Bindings, Objref
from qm.wire.guid import Guid

REFS_GIVEN: Final = 5
"""Public references that go with an interface pointer, so that clients need not ask for more."""
NODE_SHIFT: Final = 48
"""OXIDs, OIDs and SETIDs begin with the number of their node."""
_LOW_BYTES: Final = 6
_GUID_BYTES: Final = 16
_SEQUENCES: Final = 1 << 16
_NEWER_MAX: Final = _SEQUENCES // 2


class Owner(msgspec.Struct, frozen=True):
    """Who may use an object: the account that had it created, from where it did."""

    name: str
    address: str


class Classes(Protocol):
    """What the exporter asks about objects."""

    def facet(self, target: Any, iid: Guid) -> Any:
        """Return what implements an interface of an object; None if it has none such."""

    def is_pinged(self, target: Any) -> bool:
        """Whether clients must keep the object alive."""


class Exported:
    """An object with its interface pointers."""

    __slots__ = ("oid", "owner", "pointers", "seen_at", "set_count", "target")

    def __init__(self, oid: int, target: Any, owner: Owner, now: float) -> None:
        self.oid = oid
        self.target = target
        self.owner = owner
        self.pointers: dict[Guid, Pointer] = {}
        self.seen_at = now
        self.set_count = 0
        """Ping sets that it is in."""


class Pointer:
    """An interface pointer: an IPID with its references."""

    __slots__ = ("facet", "iid", "ipid", "of", "private", "public")

    def __init__(self, ipid: Guid, iid: Guid, of: Exported, facet: Any) -> None:
        self.ipid = ipid
        self.iid = iid
        self.of = of
        self.facet = facet
        """What implements the interface."""
        self.public = 0
        self.private = 0


class PingSet:
    """Objects that a client keeps alive together."""

    __slots__ = ("number", "oids", "owner", "pinged_at", "sequence")

    def __init__(self, number: int, owner: Owner, now: float) -> None:
        self.number = number
        self.owner = owner
        self.oids: set[int] = set()
        self.sequence: int | None = None
        self.pinged_at = now


class Exporter:
    """The object exporter of a node."""

    def __init__(
        self,
        node: int,
        classes: Classes,
        released: Callable[[Any, bool], None],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`node`: 0 to 65,535. `released`: told of each object that clients do not hold any more,
        and whether they are lost, rather than have released it; not when everything ends at once.
        """
        self.node: Final = node
        self._classes = classes
        self._released = released
        self._random = random_bytes
        self._by_oid: dict[int, Exported] = {}
        self._by_ipid: dict[Guid, Pointer] = {}
        self._by_target: dict[int, Exported] = {}
        self._owned: Counter[Owner] = Counter()
        self._sets: dict[int, PingSet] = {}
        self._sets_owned: Counter[Owner] = Counter()
        self.oxid: Final = self._number()
        self.ipid_rem_unknown: Final[Guid] = random_bytes(_GUID_BYTES)

    def __len__(self) -> int:
        return len(self._by_oid)

    def owned(self, owner: Owner) -> int:
        """Return how many objects an owner has."""
        return self._owned[owner]

    def _number(self) -> int:
        low = int.from_bytes(self._random(_LOW_BYTES), "little") or 1
        return self.node << NODE_SHIFT | low

    # Pointers ------------------------------------------------------------------------------

    def export(
        self, target: Any, iid: Guid, owner: Owner, resolver: Bindings, now: float
    ) -> Objref:
        """Return a reference to an interface of an object, with references for the client.

        Raises ComError E_NOINTERFACE, or E_OUTOFMEMORY at a limit.
        """
        exported = self._by_target.get(id(target)) or self._add(target, iid, owner, now)
        return self.refer(self.query(exported, iid), resolver)

    def _add(self, target: Any, iid: Guid, owner: Owner, now: float) -> Exported:
        if self._classes.facet(target, iid) is None:
            raise ComError(Hresult.E_NOINTERFACE)
        if len(self._by_oid) >= OBJECTS_MAX or self._owned[owner] >= OBJECTS_PER_CALLER_MAX:
            text = f"{owner.name} has {self._owned[owner]} objects of {len(self._by_oid)}"
            raise ComError(Hresult.E_OUTOFMEMORY, text)
        made = Exported(self._number(), target, owner, now)
        self._by_oid[made.oid] = self._by_target[id(target)] = made
        self._owned[owner] += 1
        return made

    def query(self, exported: Exported, iid: Guid) -> Pointer:
        """Return the one pointer of an interface of an object. Raises ComError E_NOINTERFACE."""
        found = exported.pointers.get(iid)
        if found is not None:
            return found
        facet = self._classes.facet(exported.target, iid)
        if facet is None or len(exported.pointers) >= INTERFACES_PER_OBJECT_MAX:
            raise ComError(Hresult.E_NOINTERFACE)
        made = Pointer(self._random(_GUID_BYTES), iid, exported, facet)
        exported.pointers[iid] = self._by_ipid[made.ipid] = made
        return made

    def refer(self, pointer: Pointer, resolver: Bindings, refs: int = REFS_GIVEN) -> Objref:
        """Return a reference with `refs` public references for the client.

        Raises ComError E_INVALIDARG beyond the limit of references.
        """
        if pointer.public + refs > REFERENCES_MAX:
            raise ComError(Hresult.E_INVALIDARG, "too many references")
        pointer.public += refs
        return Objref(pointer.iid, self.oxid, pointer.of.oid, pointer.ipid, refs, resolver=resolver)

    def pointer(self, ipid: Guid, owner: Owner, now: float) -> Pointer:
        """Return an owner's pointer, in use now.

        Raises ComError RPC_E_DISCONNECTED, or E_ACCESSDENIED for another account's.
        """
        found = self._by_ipid.get(ipid)
        if found is None:
            raise ComError(Hresult.RPC_E_DISCONNECTED, "no object has this IPID")
        if found.of.owner.name != owner.name:
            raise ComError(Hresult.E_ACCESSDENIED, "the object is another account's")
        found.of.seen_at = now
        return found

    def owner_of(self, ipid: Guid, caller: Owner) -> Owner:
        """Return whose object an IPID is of; the caller's own for none of its account."""
        found = self._by_ipid.get(ipid)
        is_own = found is not None and found.of.owner.name == caller.name
        return found.of.owner if found is not None and is_own else caller

    def resolve(self, ref: Objref, owner: Owner) -> Any:
        """Return the object of an owner's reference; None if it is none of this node."""
        exported = self._by_oid.get(ref.oid) if ref.oxid == self.oxid else None
        if exported is None or exported.owner.name != owner.name:
            return None
        return exported.target

    # References ----------------------------------------------------------------------------

    def take_back(self, ref: Objref, owner: Owner) -> None:
        """Take the references that came with an argument [MS-DCOM 3.1.1.5.3].

        A client keeps one when it sends others (3.2.4.3): the last one is left to it, so one that
        does not count and sends all that it was given has its object still.
        """
        pointer = self._by_ipid.get(ref.ipid)
        if ref.oxid != self.oxid or pointer is None or pointer.of.owner.name != owner.name:
            return
        if pointer.of.oid == ref.oid and pointer.public:
            pointer.public = max(1, pointer.public - ref.public_refs)

    def add_refs(self, pointer: Pointer, public: int, private: int) -> None:
        """Add references. Raises ComError E_INVALIDARG beyond the limit."""
        if pointer.public + public > REFERENCES_MAX or pointer.private + private > REFERENCES_MAX:
            raise ComError(Hresult.E_INVALIDARG, "too many references")
        pointer.public += public
        pointer.private += private

    def release(self, pointer: Pointer, public: int, private: int) -> None:
        """Take references back, never below none; with the last one the pointer goes, and with
        the last pointer the object.
        """
        pointer.public = max(0, pointer.public - public)
        pointer.private = max(0, pointer.private - private)
        if pointer.public or pointer.private or self._by_ipid.get(pointer.ipid) is not pointer:
            return
        del self._by_ipid[pointer.ipid]
        del pointer.of.pointers[pointer.iid]
        if not pointer.of.pointers:
            self._remove(pointer.of, is_lost=False)

    def _remove(self, exported: Exported, *, is_lost: bool) -> None:
        if self._by_oid.pop(exported.oid, None) is None:
            return
        del self._by_target[id(exported.target)]
        for one in exported.pointers.values():
            del self._by_ipid[one.ipid]
        self._owned[exported.owner] -= 1
        if not self._owned[exported.owner]:
            del self._owned[exported.owner]
        self._released(exported.target, is_lost)

    # Pings ---------------------------------------------------------------------------------

    def set_numbers(self) -> Collection[int]:
        """Return the numbers of all ping sets."""
        return self._sets.keys()

    def ping(self, number: int, owner: Owner, now: float) -> bool:
        """SimplePing: keep a set alive; False if there is no such set of this owner."""
        found = self._sets.get(number)
        if found is None or found.owner.name != owner.name:
            return False
        found.pinged_at = now
        return True

    def change_set(
        self,
        number: int,
        sequence: int,
        added: Iterable[int],
        removed: Iterable[int],
        owner: Owner,
        now: float,
    ) -> tuple[int, bool]:
        """ComplexPing: make (0) or change a set; return its number, and whether all objects that
        were added are the owner's (RP-A64). With an older sequence number than the last one
        nothing is done.

        Raises KeyError for a set that the owner does not have, ComError at a limit.
        """
        found = self._sets.get(number)
        if not number:
            found = self._new_set(owner, now)
        elif found is None or found.owner.name != owner.name:
            raise KeyError(number)
        assert found is not None
        last = found.sequence
        if last is not None and (sequence - last) % _SEQUENCES > _NEWER_MAX:
            return found.number, True
        found.pinged_at = now
        found.sequence = sequence
        are_known = self._enter(found, added)
        for oid in removed:
            self._leave(found, oid, now)
        return found.number, are_known

    def _new_set(self, owner: Owner, now: float) -> PingSet:
        full = len(self._sets) >= PING_SETS_MAX
        if full or self._sets_owned[owner] >= PING_SETS_PER_CALLER_MAX:
            raise ComError(Hresult.E_OUTOFMEMORY, f"{owner.name} has too many ping sets")
        made = PingSet(self._number(), owner, now)
        self._sets[made.number] = made
        self._sets_owned[owner] += 1
        return made

    def _enter(self, found: PingSet, added: Iterable[int]) -> bool:
        are_known = True
        for oid in added:
            exported = self._by_oid.get(oid)
            if exported is None or exported.owner.name != found.owner.name:
                are_known = False
            elif oid not in found.oids:
                found.oids.add(oid)
                exported.set_count += 1
        return are_known

    def _leave(self, found: PingSet, oid: int, now: float) -> None:
        if oid not in found.oids:
            return
        found.oids.discard(oid)
        exported = self._by_oid.get(oid)
        if exported is not None:
            exported.set_count -= 1
            exported.seen_at = now

    def sweep(self, now: float) -> int:
        """Release what nobody has pinged or called for three periods; return how many objects."""
        for one in list(self._sets.values()):
            one.oids &= self._by_oid.keys()
            if now - one.pinged_at > UNPINGED_MAX_S:
                for oid in list(one.oids):
                    self._by_oid[oid].set_count -= 1
                del self._sets[one.number]
                self._sets_owned[one.owner] -= 1
                if not self._sets_owned[one.owner]:
                    del self._sets_owned[one.owner]
        gone = [
            one
            for one in self._by_oid.values()
            if not one.set_count
            and now - one.seen_at > UNPINGED_MAX_S
            and self._classes.is_pinged(one.target)
        ]
        for each in gone:
            self._remove(each, is_lost=True)
        return len(gone)

    def targets(self) -> Sequence[Any]:
        """Return all objects."""
        return [one.target for one in self._by_oid.values()]


def node_of(number: int) -> int:
    """Return the number of the node that made an OXID, OID or SETID."""
    return number >> NODE_SHIFT
