"""IObjectExporter on the mapper's port: where objects are, and pings [MS-DCOM 3.1.2.5.1].

What is about another node's objects is asked there (`relayed`).
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import Final, TypeAlias

from msgspec.structs import replace

from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.rpc.dcom.hresults import OR_INVALID_OID, OR_INVALID_OXID, OR_INVALID_SET, ComError
from qm.rpc.dcom.limits import OBJECTS_PER_CALLER_MAX, PROTOCOLS_MAX, UNPINGED_MAX_S
from qm.rpc.dcom.runtime.exporter import Exporter, Owner, node_of
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import DUAL_STRING_ARRAY
from qm.rpc.dcom.runtime.orpc import COM_VERSION, MAJOR, MINOR, Listed
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.relayed import (
    Given,
    Late,
    NoOthers,
    OtherNodes,
    Parts,
    Question,
    Unanswered,
    by_node,
)
from qm.rpc.interface import Fault, Interface, Operation, interface_syntax
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import GUID, U16, U32, U64, Array, Unique
from qm.rpc.pdu.codes import AuthLevel, FaultStatus
from qm.rpc.server.call import Call

_LOGGER: Final = logging.getLogger(__name__)
_OIDS: Final = Unique(Array(U64, OBJECTS_PER_CALLER_MAX))
_BINDINGS: Final = Unique(DUAL_STRING_ARRAY)
_NO_OTHERS: Final = NoOthers()
_RESOLVE: Final = (U64, U16, Array(U16, PROTOCOLS_MAX))
IOBJECTEXPORTER: Final = Interface(
    "IObjectExporter",
    interface_syntax("99fcfec4-5260-101b-bbcb-00aa0021347a", 0),
    {
        0: Operation("resolve", Listed(_RESOLVE), Listed((_BINDINGS, GUID, U32, U32))),
        1: Operation("simple_ping", Listed((U64,)), Listed((U32,))),
        2: Operation(
            "complex_ping",
            Listed((U64, U16, U16, U16, _OIDS, _OIDS)),
            Listed((U64, U16, U32)),
        ),
        3: Operation("alive", Listed(()), Listed((U32,))),
        4: Operation(
            "resolve_2", Listed(_RESOLVE), Listed((_BINDINGS, GUID, U32, COM_VERSION, U32))
        ),
        5: Operation("alive_2", Listed(()), Listed((COM_VERSION, _BINDINGS, U32, U32))),
    },
)


RESOLVE, SIMPLE_PING, COMPLEX_PING, RESOLVE_2 = 0, 1, 2, 4
_ABOUT_OBJECTS: Final = frozenset((RESOLVE, SIMPLE_PING, COMPLEX_PING, RESOLVE_2))
Answer: TypeAlias = Given | Awaitable[Given]


class Resolver:
    """Implements it."""

    def __init__(
        self,
        exporter: Exporter,
        places: Places,
        hint: AuthLevel,
        metrics: Metrics,
        others: OtherNodes = _NO_OTHERS,
    ) -> None:
        """`hint`: the least protection of calls of objects (RP-A73)."""
        self._exporter = exporter
        self._places = places
        self._hint = int(hint)
        self._others = others
        self._parts = Parts()
        self._forgotten = metrics.counter("quorate_dcom_forgotten_total")
        self._log = LimitedLog(_LOGGER, places.now)

    def alive(self, call: Call, given: Given) -> Given:
        """ServerAlive."""
        return [0]

    def alive_2(self, call: Call, given: Given) -> Given:
        """ServerAlive2: Windows asks without security, before anything else."""
        return [(MAJOR, MINOR), self._places.resolver(call), 0, 0]

    def resolve(self, call: Call, given: Given) -> Answer:
        """ResolveOxid."""
        return self._asked(RESOLVE, call, given)

    def resolve_2(self, call: Call, given: Given) -> Answer:
        """ResolveOxid2."""
        return self._asked(RESOLVE_2, call, given)

    def simple_ping(self, call: Call, given: Given) -> Answer:
        """SimplePing."""
        return self._asked(SIMPLE_PING, call, given)

    def complex_ping(self, call: Call, given: Given) -> Answer:
        """ComplexPing; no back-off is asked for."""
        return self._asked(COMPLEX_PING, call, given)

    async def answer(self, question: Question) -> bytes:
        """Answer what another node was asked about this node's objects. Raises BadStub."""
        if question.operation not in _ABOUT_OBJECTS:
            raise BadStub(f"operation {question.operation}")
        operation = IOBJECTEXPORTER.operations[question.operation]
        given, _ = operation.takes.unmarshal(question.stub)
        _check(question.operation, given)
        found = self._answer(question.operation, given, question.owner, question.dialled)
        return operation.gives.marshal(await found if isawaitable(found) else found)

    def sweep(self) -> None:
        """Forget what belongs to ping sets that ended."""
        self._parts.keep(self._exporter.set_numbers())

    def _asked(self, operation: int, call: Call, given: Given) -> Answer:
        _protected(call)
        _check(operation, given)
        owner, dialled = self._places.owner(call), call.local[0]
        home = node_of(_subject(operation, given))
        if home in self._others.numbers():
            return self._answer_elsewhere(home, operation, given, owner, dialled)
        return self._answer(operation, given, owner, dialled)

    async def _answer_elsewhere(
        self, node: int, operation: int, given: Given, owner: Owner, dialled: str
    ) -> Given:
        """Have another node answer. Nobody can tell one that is dead from one that is cut off: an
        exporter is unknown then. So is a ping set: its client makes another one, which is kept
        here, or objects of nodes that live would die with the node that had their set.
        """
        try:
            return await self._relayed(node, operation, given, owner, dialled)
        except Unanswered:
            if operation == SIMPLE_PING:
                return [OR_INVALID_SET]
            if operation != COMPLEX_PING:
                return _unknown(operation)
            if given[0]:
                return [given[0], 0, OR_INVALID_SET]
            made = self._answer(operation, given, owner, dialled)
            return await made if isawaitable(made) else made

    async def _relayed(
        self, node: int, operation: int, given: Given, owner: Owner, dialled: str
    ) -> Given:
        """Return another node's answer. Raises Unanswered."""
        declared = IOBJECTEXPORTER.operations[operation]
        question = Question(operation, declared.takes.marshal(given), owner, dialled)
        answer = await self._others.ask(node, question)
        try:
            found, _ = declared.gives.unmarshal(answer)
        except BadStub as error:
            raise Unanswered(f"node {node} answers what cannot be read: {error}") from error
        return list(found)

    def _answer(self, operation: int, given: Given, owner: Owner, dialled: str) -> Answer:
        if operation == SIMPLE_PING:
            return self._simple_ping(given[0], owner, dialled)
        if operation == COMPLEX_PING:
            return self._complex_ping(given, owner, dialled)
        if given[0] != self._exporter.oxid:
            return _unknown(operation)
        bindings = self._places.exporter_at(dialled)
        version = ((MAJOR, MINOR),) if operation == RESOLVE_2 else ()
        return [bindings, self._exporter.ipid_rem_unknown, self._hint, *version, 0]

    # Pings

    def _simple_ping(self, number: int, owner: Owner, dialled: str) -> Answer:
        if not self._exporter.ping(number, owner, self._places.now()):
            return [OR_INVALID_SET]
        parts, late = self._parts.all_of(number), self._late(number)
        return self._ping_parts(number, parts, late, owner, dialled) if parts or late else [0]

    def _late(self, number: int) -> Mapping[int, Late]:
        return self._parts.take_late(number, self._places.now())

    async def _ping_parts(
        self,
        number: int,
        parts: Sequence[tuple[int, int]],
        late: Mapping[int, Late],
        owner: Owner,
        dialled: str,
    ) -> Given:
        await self._change_parts(number, 0, {}, late, 0, owner, dialled)
        for node, part in parts:
            with suppress(Unanswered):  # the next ping may reach it
                (status,) = await self._relayed(node, SIMPLE_PING, [part], owner, dialled)
                if status:
                    self._parts.drop(number, node, part)
        return [0]

    def _complex_ping(self, given: Given, owner: Owner, dialled: str) -> Answer:
        number, sequence, _, _, added, removed = given
        own = self._exporter.node
        adds = by_node(added or (), self._others, own)
        removes = by_node(removed or (), self._others, own)
        here = (adds.pop(own, ()), removes.pop(own, ()))
        try:
            number, are_known = self._exporter.change_set(
                number, sequence, *here, owner, self._places.now()
            )
        except KeyError:
            return [number, 0, OR_INVALID_SET]
        except ComError as error:
            return [number, 0, error.status]
        status = 0 if are_known else OR_INVALID_OID
        late = self._late(number)
        nodes = {*adds, *removes, *self._parts.nodes(number)}
        if not nodes and not late:
            return [number, 0, status]
        changes = {node: (adds.get(node, []), removes.get(node, [])) for node in sorted(nodes)}
        return self._change_parts(number, sequence, changes, late, status, owner, dialled)

    async def _change_parts(
        self,
        number: int,
        sequence: int,
        changes: Mapping[int, tuple[list[int], list[int]]],
        late: Mapping[int, Late],
        status: int,
        owner: Owner,
        dialled: str,
    ) -> Given:
        """Change the parts of a set. What cannot be added since its node does not answer is tried
        again with later pings: by `late`, before what they add.
        """
        for node, one in late.items():
            _, removed = changes.get(node, ([], []))
            left = replace(one, oids=[oid for oid in one.oids if oid not in removed])
            if left.oids:
                await self._add_to_part(number, node, left, [], owner, dialled)
        until = self._places.now() + UNPINGED_MAX_S
        for node, (added, removed) in changes.items():
            if self._parts.at(number, node) or added:
                one = Late(sequence, added, until)
                are_known = await self._add_to_part(number, node, one, removed, owner, dialled)
                if added and not are_known:
                    status = OR_INVALID_OID
        return [number, 0, status]

    async def _add_to_part(
        self,
        number: int,
        node: int,
        added: Late,
        removed: Sequence[int],
        owner: Owner,
        dialled: str,
    ) -> bool:
        """Change a set's part at a node; whether it knows all that is added."""
        part, oids = self._parts.at(number, node), list(added.oids)
        given = [part, added.sequence, len(oids), len(removed), oids or None, removed or None]
        try:
            made, _, fault = await self._relayed(node, COMPLEX_PING, given, owner, dialled)
        except Unanswered:
            fault = OR_INVALID_OID
        else:
            if part and fault == OR_INVALID_SET:
                self._parts.drop(number, node, part)
            else:
                oids.clear()
                if not part:
                    self._parts.add(number, node, made)
        if oids and not self._parts.put_late(number, node, added):
            self._forgotten.inc(len(oids))
            text = "too many objects of nodes that do not answer: those left out end unless pinged"
            self._log.warning("forgotten", text, peer=node, objects=len(oids))
        return not fault


def _check(operation: int, given: Given) -> None:
    """Raise BadStub unless counts are those of their arrays."""
    if operation == COMPLEX_PING:
        _, _, added_count, removed_count, added, removed = given
        if (added_count, removed_count) != (len(added or ()), len(removed or ())):
            raise BadStub("counts of a ping that are not those of its arrays")


def _subject(operation: int, given: Given) -> int:
    """Return the number that names the node to ask; of a new ping set its first object's."""
    if operation == COMPLEX_PING and not given[0]:
        return given[4][0] if given[4] else 0
    return int(given[0])


def _unknown(operation: int) -> Given:
    """Return what ResolveOxid or ResolveOxid2 answers for an OXID that nobody knows."""
    version = ((MAJOR, MINOR),) if operation == RESOLVE_2 else ()
    return [None, NULL, 0, *version, OR_INVALID_OXID]


def _protected(call: Call) -> None:
    """Raise Fault unless the call is signed at least."""
    context = call.request.security
    if context is None or context.level < AuthLevel.INTEGRITY:
        raise Fault(FaultStatus.ACCESS_DENIED, "a call of the resolver without signature")
