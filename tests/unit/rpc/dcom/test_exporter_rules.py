"""Rules of exported objects and of serialized types, each where it could be broken alone."""

import secrets
import struct

import pytest

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.runtime.exporter import NODE_SHIFT, Exporter
from qm.rpc.dcom.runtime.identifiers import IID_IUNKNOWN
from qm.rpc.dcom.runtime.properties import _deserialized, serialized
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import U8, U32, Array, Unique
from tests.unit.rpc.dcom.test_references import (
    ALICE,
    BOB,
    HERE,
    Everything,
    Made,
    Thing,
)

COUNT = 200


@pytest.mark.spec("RP-DCOM-3.1.1.5.1-03")
def test_numbers_of_objects_are_random_and_come_once() -> None:
    seen: set[object] = set()
    drawn: list[bytes] = []

    def draw(size: int) -> bytes:
        drawn.append(secrets.token_bytes(size))
        return drawn[-1]

    def is_drawn(number: int) -> bool:
        """Whether it is the node's number and chance, and nothing else."""
        return any(number == 3 << NODE_SHIFT | int.from_bytes(one, "little") for one in drawn)

    for _ in range(2):
        exporter = Exporter(3, Everything(), lambda *_: None, draw)
        assert is_drawn(exporter.oxid)
        assert exporter.ipid_rem_unknown in drawn
        assert not {exporter.oxid, exporter.ipid_rem_unknown} & seen
        seen |= {exporter.oxid, exporter.ipid_rem_unknown}
        for _ in range(COUNT):
            drawn.clear()
            ref = exporter.export(Thing(), IID_IUNKNOWN, ALICE, HERE, 0.0)
            assert is_drawn(ref.oid)
            assert ref.ipid in drawn
            assert not {ref.oid, ref.ipid} & seen
            seen |= {ref.oid, ref.ipid}
            pointer = exporter.pointer(ref.ipid, ALICE, 0.0)
            exporter.release(pointer, pointer.public, pointer.private)
    low = {one & 0xFFFF_FFFF for one in seen if isinstance(one, int)}
    assert len(low) > COUNT, "they are no counters"


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.3-04")
def test_references_are_released_by_their_client_alone() -> None:
    made, thing = Made(), Thing()
    ref = made.export(thing)
    made.exporter.add_refs(made.pointer(ref), 0, 2)
    with pytest.raises(ComError) as refused:
        made.pointer(ref, BOB)
    assert refused.value.status == Hresult.E_ACCESSDENIED
    pointer = made.pointer(ref)
    assert pointer.private == 2
    made.exporter.release(pointer, pointer.public, 1)
    assert made.released == []
    made.exporter.release(pointer, 0, 1)
    assert made.released == [thing]


@pytest.mark.spec("RP-RPCE-2.2.6.1-01", "RP-RPCE-2.2.6.2-01", "RP-RPCE-2.2.6.2-02")
def test_a_serialized_type_has_two_headers_and_its_own_alignment() -> None:
    for count in range(9):
        raw = serialized(Unique(Array(U8, 100)), list(range(count)))
        assert raw[:8] == bytes.fromhex("01100800cccccccc")
        length, filler = struct.unpack_from("<II", raw, 8)
        assert (length % 8, filler) == (0, 0)
        assert length == len(raw) - 16
        # A pointer and a count, from the first byte behind the headers on.
        assert struct.unpack_from("<I", raw, 20) == (count,)
        assert raw[24 : 24 + count] == bytes(range(count))
        for at in range(5):
            shifted = b"x" * at + raw
            assert _deserialized(Unique(Array(U8, 100)), shifted[at:]) == list(range(count))
    raw = serialized(U32, 7)
    changed = (raw[:at] + bytes((raw[at] ^ 0x18,)) + raw[at + 1 :] for at in range(4))
    for bad in (*changed, raw[:8] + b"\x10" + raw[9:], raw[:-4]):
        with pytest.raises((BadStub, struct.error)):
            _deserialized(U32, bad)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-04")
def test_a_call_that_is_denied_keeps_nothing_alive() -> None:
    made, thing = Made(), Thing()
    ref = made.export(thing)
    with pytest.raises(ComError) as refused:
        made.pointer(ref, BOB, now=300)
    assert refused.value.status == 0x80070005
    assert made.exporter.sweep(361) == 1
    assert made.released == [thing]


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-02")
@pytest.mark.parametrize(("sequence", "is_done"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_change_of_a_set_is_made_unless_a_later_one_was(sequence: int, is_done: bool) -> None:
    made = Made()
    kept, new = Thing(), Thing()
    old_ref, new_ref = made.export(kept), made.export(new)
    number, _ = made.exporter.change_set(0, 5, [old_ref.oid], (), ALICE, 0.0)
    change = (number, sequence, [new_ref.oid], [old_ref.oid], ALICE, 0.0)
    assert made.exporter.change_set(*change) == (number, True)
    assert made.exporter.ping(number, ALICE, 360)
    assert made.exporter.sweep(361) == 1
    assert made.released == [kept if is_done else new]


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-02")
def test_a_change_that_comes_too_late_does_not_ping_its_set() -> None:
    made, thing = Made(), Thing()
    ref = made.export(thing)
    number, _ = made.exporter.change_set(0, 5, [ref.oid], (), ALICE, 0.0)
    assert made.exporter.change_set(number, 4, (), (), ALICE, 300) == (number, True)
    assert made.exporter.sweep(361) == 1
    assert made.released == [thing]
