"""Clients whom a balancer leads to another node than the one that has their objects."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from qm.observe.metrics import Metrics
from qm.rpc.dcom.limits import UNPINGED_MAX_S
from qm.rpc.dcom.runtime import relayed
from qm.rpc.dcom.runtime.exporter import Owner, node_of
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import Bindings
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.relayed import OtherNodes, Question, Unanswered
from qm.rpc.dcom.runtime.resolver import Resolver
from qm.rpc.interface import Fault
from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.codes import AuthLevel
from tests.unit.rpc.dcom.test_references import ALICE, BOB, Made
from tests.unit.rpc.dcom.test_rules import call_at

UNKNOWN_EXPORTER, UNKNOWN_OBJECT, UNKNOWN_SET = 1910, 1911, 1912
Thing = type("Thing", (), {})


class Cluster:
    """Nodes by number, and a client at any of them."""

    def __init__(self, *numbers: int) -> None:
        self.now = 0.0
        self.who = ALICE
        self.made = {number: Made(number) for number in numbers}
        self.down: set[int] = set()
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.looks = 0
        """How often a node has asked which others there are."""
        self.asked: list[tuple[int, Question]] = []
        self.resolvers = {number: self._resolver(number) for number in numbers}

    def _resolver(self, number: int) -> Resolver:
        places = Places(("cluster",), lambda: 2_000 + number, lambda: self.now)
        places.owner = lambda call: self.who  # type: ignore[method-assign]
        exporter = self.made[number].exporter
        return Resolver(exporter, places, AuthLevel.INTEGRITY, self.metrics, Others(self, number))

    def call(self, at: int, method: str, *given: Any) -> list[Any]:
        call = call_at(AuthLevel.INTEGRITY)
        found = getattr(self.resolvers[at], method)(call, list(given))
        return found if isinstance(found, list) else asyncio.run(_result(found))

    def ping(self, at: int, number: int) -> int:
        (status,) = self.call(at, "simple_ping", number)
        return int(status)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for number, made in self.made.items():
            made.exporter.sweep(self.now)
            self.resolvers[number].sweep()


class Others(OtherNodes):
    def __init__(self, cluster: Cluster, own: int) -> None:
        self.cluster, self.own = cluster, own

    @override
    def numbers(self) -> Collection[int]:
        self.cluster.looks += 1
        return self.cluster.made.keys() - {self.own}

    @override
    async def ask(self, node: int, question: Question) -> bytes:
        self.cluster.asked.append((node, question))
        await asyncio.sleep(0)
        if node in self.cluster.down:
            raise Unanswered(f"{node} is down")
        return await self.cluster.resolvers[node].answer(question)


async def _result(found: Any) -> Any:
    return await found


def test_an_exporter_is_resolved_at_every_node() -> None:
    cluster = Cluster(1, 2, 3)
    exporter = cluster.made[3].exporter
    for at in (1, 2, 3):
        bindings, ipid, _, version, status = cluster.call(at, "resolve_2", exporter.oxid, 1, [7])
        assert (ipid, version, status) == (exporter.ipid_rem_unknown, (5, 7), 0)
        assert isinstance(bindings, Bindings)
        assert bindings.addresses == ("cluster[2003]", "vip[2003]"), "what was dialled is among it"
        assert cluster.call(at, "resolve", exporter.oxid, 1, [7])[1:2] == [ipid]
    assert cluster.call(1, "resolve", exporter.oxid + 1, 1, [7]) == [None, NULL, 0, 1910]


def test_an_exporter_of_a_dead_node_is_unknown() -> None:
    cluster = Cluster(1, 2)
    cluster.down.add(2)
    oxid = cluster.made[2].exporter.oxid
    assert cluster.call(1, "resolve_2", oxid, 1, [7]) == [None, NULL, 0, (5, 7), UNKNOWN_EXPORTER]


def test_objects_outlive_the_node_that_had_their_set() -> None:
    cluster = Cluster(1, 2, 3)
    refs = [cluster.made[node].export(Thing()) for node in (2, 1, 3)]
    oids = [ref.oid for ref in refs]
    number, _, status = cluster.call(1, "complex_ping", 0, 1, 2, 0, oids[:2], None)
    assert (node_of(number), status) == (2, 0)
    cluster.down.add(2)
    # The program finds new objects at another node, and its computer pings all of them.
    added = cluster.call(1, "complex_ping", number, 2, 1, 0, oids[2:], None)
    assert added == [number, 0, UNKNOWN_SET]
    assert cluster.ping(1, number) == UNKNOWN_SET
    again, _, status = cluster.call(1, "complex_ping", 0, 1, 3, 0, oids, None)
    assert (node_of(again), status) == (1, UNKNOWN_OBJECT)
    for at in (1, 3, 1):
        cluster.pass_time(UNPINGED_MAX_S - 1)
        assert cluster.ping(at, again) == 0
    assert [len(cluster.made[node].released) for node in (1, 3)] == [0, 0]
    # What was to be added to the dead node is forgotten once it would have been released there.
    cluster.asked.clear()
    assert cluster.ping(1, again) == 0
    assert [node for node, _ in cluster.asked] == [3]


def test_a_node_that_was_cut_off_keeps_objects_of_a_set_made_elsewhere() -> None:
    cluster = Cluster(1, 2)
    ref = cluster.made[2].export(Thing())
    number, _, _ = cluster.call(2, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    cluster.down.add(2)
    assert cluster.ping(1, number) == UNKNOWN_SET
    again, _, status = cluster.call(1, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    assert (node_of(again), status) == (1, UNKNOWN_OBJECT)
    later = cluster.made[2].export(Thing())
    added = cluster.call(1, "complex_ping", again, 2, 1, 0, [later.oid], None)
    assert added == [again, 0, UNKNOWN_OBJECT]
    cluster.pass_time(UNPINGED_MAX_S / 3)
    assert cluster.ping(1, again) == 0
    cluster.down.clear()
    for _ in range(4):
        cluster.pass_time(UNPINGED_MAX_S / 2)
        assert cluster.ping(1, again) == 0
    assert not cluster.made[2].released
    # What leaves the set before its node is back does not enter it.
    cluster.down.add(2)
    third = cluster.made[2].export(Thing())
    given = (again, 3, 1, 0, [third.oid], None)
    assert cluster.call(1, "complex_ping", *given) == [again, 0, UNKNOWN_OBJECT]
    assert cluster.call(1, "complex_ping", again, 4, 0, 1, None, [third.oid]) == [again, 0, 0]
    cluster.down.clear()
    for _ in range(3):
        cluster.pass_time(UNPINGED_MAX_S / 2)
        assert cluster.ping(1, again) == 0
    assert len(cluster.made[2].released) == 1


def test_objects_that_wait_for_too_many_dead_nodes_are_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They end unless their program is heard at their node; what it pings is not refused."""
    monkeypatch.setattr(relayed, "LATE_MAX", 3)
    cluster = Cluster(1, 2)
    kept, *left_out = [cluster.made[2].export(Thing()).oid for _ in range(4)]
    own = cluster.made[1].export(Thing()).oid
    cluster.down.add(2)
    number, _, status = cluster.call(1, "complex_ping", 0, 1, 2, 0, [own, kept], None)
    assert status == UNKNOWN_OBJECT
    for sequence in (2, 3):
        given = (number, sequence, 3, 0, left_out, None)
        assert cluster.call(1, "complex_ping", *given) == [number, 0, UNKNOWN_OBJECT]
    counted = cluster.registry.get_sample_value("quorate_dcom_forgotten_total")
    assert counted == 2 * len(left_out)
    (line,) = [one for one in caplog.records if one.name == "qm.rpc.dcom.runtime.resolver"]
    assert line.__dict__["fields"]["peer"] == 2, "once, as a limited line"
    cluster.down.clear()
    for _ in range(3):
        assert cluster.ping(1, number) == 0
        cluster.pass_time(UNPINGED_MAX_S - 1)
    assert len(cluster.made[2].released) == len(left_out)


def test_a_new_object_enters_the_set_of_a_node_that_began_anew() -> None:
    cluster = Cluster(1, 2)
    number = with_parts(cluster)
    cluster.made[2] = Made(2)
    cluster.resolvers[2] = cluster._resolver(2)
    ref = cluster.made[2].export(Thing())
    added = cluster.call(1, "complex_ping", number, 2, 1, 0, [ref.oid], None)
    assert added == [number, 0, UNKNOWN_OBJECT]
    for _ in range(3):
        assert cluster.ping(1, number) == 0
        cluster.pass_time(UNPINGED_MAX_S - 1)
    assert not cluster.made[2].released


def test_a_ping_at_any_node_keeps_objects_alive() -> None:
    cluster = Cluster(1, 2, 3)
    ref = cluster.made[2].export(Thing())
    number, _, status = cluster.call(1, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    assert (node_of(number), status) == (2, 0), "the set is at the node of its first object"
    for at in (3, 1, 2, 3):
        cluster.pass_time(UNPINGED_MAX_S - 1)
        assert cluster.ping(at, number) == 0
    assert not cluster.made[2].released
    assert cluster.call(3, "complex_ping", number, 2, 0, 1, None, [ref.oid]) == [number, 0, 0]
    cluster.pass_time(UNPINGED_MAX_S + 1)
    assert len(cluster.made[2].released) == 1


def test_a_ping_of_many_objects_looks_for_their_nodes_once() -> None:
    cluster = Cluster(1, 2)
    ref = cluster.made[1].export(Thing())
    nobody = [node << 48 | number for node in range(9) for number in range(1, 500)]
    given = (0, 1, len(nobody) + 1, len(nobody), [ref.oid, *nobody], nobody)
    number, _, status = cluster.call(1, "complex_ping", *given)
    assert (node_of(number), status) == (1, UNKNOWN_OBJECT)
    assert cluster.looks <= 6, "a few times, whatever it adds: here and at the other node"
    assert cluster.ping(1, number) == 0


def test_a_set_may_have_objects_of_several_nodes() -> None:
    cluster = Cluster(1, 2, 3)
    refs = [cluster.made[node].export(Thing()) for node in (1, 2, 3)]
    oids = [ref.oid for ref in refs]
    number, _, status = cluster.call(3, "complex_ping", 0, 1, 2, 0, oids[:2], None)
    assert status == 0
    assert cluster.call(2, "complex_ping", number, 2, 1, 0, oids[2:], None) == [number, 0, 0]
    for at in (1, 2, 3, 1):
        cluster.pass_time(UNPINGED_MAX_S - 1)
        assert cluster.ping(at, number) == 0
    assert [len(made.released) for made in cluster.made.values()] == [0, 0, 0]
    # One that leaves the set ends, the others stay.
    assert cluster.call(1, "complex_ping", number, 3, 0, 1, None, oids[2:]) == [number, 0, 0]
    for _ in range(2):
        cluster.pass_time(UNPINGED_MAX_S - 1)
        assert cluster.ping(1, number) == 0
    assert [len(made.released) for made in cluster.made.values()] == [0, 0, 1]
    # Without pings all end.
    cluster.pass_time(UNPINGED_MAX_S + 1)
    assert [len(made.released) for made in cluster.made.values()] == [1, 1, 1]
    assert cluster.ping(2, number) == UNKNOWN_SET


def with_parts(cluster: Cluster) -> int:
    """Return a set of node 1 with an object at each node."""
    refs = [made.export(Thing()) for made in cluster.made.values()]
    given = (0, 1, len(refs), 0, [ref.oid for ref in refs], None)
    number, _, status = cluster.call(1, "complex_ping", *given)
    assert status == 0
    return int(number)


def test_a_node_that_was_cut_off_keeps_its_part_of_a_set() -> None:
    cluster = Cluster(1, 2)
    number = with_parts(cluster)
    cluster.down.add(2)
    cluster.pass_time(UNPINGED_MAX_S / 3)
    assert cluster.ping(1, number) == 0
    cluster.down.clear()
    for _ in range(3):
        cluster.pass_time(UNPINGED_MAX_S / 2)
        assert cluster.ping(1, number) == 0
    assert not cluster.made[2].released


def test_a_node_that_began_anew_has_no_part_of_a_set() -> None:
    cluster = Cluster(1, 2)
    number = with_parts(cluster)
    cluster.made[2] = Made(2)
    cluster.resolvers[2] = cluster._resolver(2)
    assert cluster.ping(1, number) == 0
    cluster.asked.clear()
    assert cluster.ping(1, number) == 0
    assert cluster.asked == [], "nobody asks for what is gone"
    again = cluster.made[2].export(Thing())
    late = cluster.call(1, "complex_ping", number, 2, 1, 0, [again.oid], None)
    assert late == [number, 0, 0]
    cluster.down.add(2)
    lost = cluster.call(1, "complex_ping", number, 3, 1, 0, [again.oid + 1], None)
    assert lost == [number, 0, UNKNOWN_OBJECT]


def test_pings_at_the_same_moment_lose_no_object() -> None:
    cluster = Cluster(1, 2)
    first = cluster.made[1].export(Thing())
    number, _, _ = cluster.call(1, "complex_ping", 0, 1, 1, 0, [first.oid], None)
    oids = [cluster.made[2].export(Thing()).oid for _ in range(3)]
    call = call_at(AuthLevel.INTEGRITY)
    resolver: Any = cluster.resolvers[1]

    async def both() -> None:
        await asyncio.gather(
            *(
                resolver.complex_ping(call, [number, 2 + k, 1, 0, [oid], None])
                for k, oid in enumerate(oids)
            )
        )

    asyncio.run(both())
    for _ in range(3):
        cluster.pass_time(UNPINGED_MAX_S - 1)
        assert cluster.ping(1, number) == 0
    assert not cluster.made[2].released


def test_sets_and_objects_of_others_stay_theirs() -> None:
    cluster = Cluster(1, 2)
    ref = cluster.made[2].export(Thing())
    number, _, _ = cluster.call(1, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    cluster.who = BOB
    assert cluster.ping(1, number) == UNKNOWN_SET
    stolen = cluster.call(1, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    assert stolen[2] == UNKNOWN_OBJECT
    assert cluster.call(1, "complex_ping", number, 2, 0, 1, None, [ref.oid])[2] == UNKNOWN_SET


def test_calls_without_signature_are_not_relayed() -> None:
    cluster = Cluster(1, 2)
    oxid = cluster.made[2].exporter.oxid
    with pytest.raises(Fault):
        cluster.resolvers[1].resolve(call_at(AuthLevel.CONNECT), [oxid, 1, [7]])
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("operation", "stub"), [(3, b""), (99, b""), (1, b"\x00"), (2, b"\xff" * 40), (0, b"")]
)
def test_what_another_node_asks_badly_is_refused(operation: int, stub: bytes) -> None:
    resolver = Cluster(1).resolvers[1]
    with pytest.raises((BadStub, Fault)):
        asyncio.run(resolver.answer(Question(operation, stub, Owner("a", "b"), "vip")))


def test_a_question_names_who_asks() -> None:
    cluster = Cluster(1, 2)
    ref = cluster.made[2].export(Thing())
    cluster.call(1, "complex_ping", 0, 1, 1, 0, [ref.oid], None)
    ((node, question),) = cluster.asked
    assert (node, question.owner, question.dialled) == (2, ALICE, "vip")
