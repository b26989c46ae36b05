"""OBJREFs, bindings, activation properties and the exporter's counts, without a network."""

from __future__ import annotations

import contextlib
import itertools
from struct import pack, unpack_from
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import OBJECTS_PER_CALLER_MAX, REFERENCES_MAX, UNPINGED_MAX_S
from qm.rpc.dcom.runtime.exporter import REFS_GIVEN, Classes, Exporter, Owner, Pointer, node_of
from qm.rpc.dcom.runtime.identifiers import (
    CLSID_INSTANCE,
    CLSID_INSTANTIATION,
    CLSID_PROPERTIES_IN,
    CLSID_SCM_REQUEST,
    IID_IUNKNOWN,
    IID_PROPERTIES_IN,
    guid,
)
from qm.rpc.dcom.runtime.objref import (
    DUAL_STRING_ARRAY,
    BadObjref,
    Bindings,
    CustomRef,
    Objref,
    parse_objref,
    parse_standard,
    standard_bytes,
    write_custom,
    write_objref,
)
from qm.rpc.dcom.runtime.orpc import (
    COM_VERSION,
    ORPC_THAT,
    ORPC_THIS,
    POINTER,
    Extension,
    Listed,
    OrpcThis,
    orpc_operation,
)
from qm.rpc.dcom.runtime.places import Places
from qm.rpc.dcom.runtime.properties import (
    _INSTANTIATION,
    _SCM_REQUEST,
    BadProperties,
    Reply,
    Wanted,
    _blob,
    parse_reply,
    parse_wanted,
    serialized,
    write_reply,
    write_wanted,
)
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN
from qm.rpc.limits import CONNECTIONS_PER_ADDRESS_MAX
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import U32
from qm.rpc.server.call import Call
from tests.unit.rpc.dcom.scripts import clsid, iid
from tests.unit.rpc.dialogue import Client
from tests.unit.rpc.vectors import vector

ALICE, BOB = Owner("alice", "10.0.0.9"), Owner("bob", "10.0.0.9")
HERE = Bindings(("node3",), (9, 10))


@pytest.mark.spec("RP-DCOM-2.2.19.4-01")
@pytest.mark.parametrize(("has_kerberos", "services"), [(False, (9, 10)), (True, (9, 10, 16))])
def test_bindings_list_the_ways_to_log_on(has_kerberos: bool, services: tuple[int, ...]) -> None:
    places = Places((), lambda: 2_103, lambda: 0.0, has_kerberos=has_kerberos)
    stub = Listed((DUAL_STRING_ARRAY,)).marshal([places.exporter_at("10.0.0.1")])
    (found,), _ = Listed((DUAL_STRING_ARRAY,)).unmarshal(stub)
    assert found.services == services
    # Each with 0xFFFF, and the NUL of an empty name.
    ends = b"".join(pack("<3H", service, 0xFFFF, 0) for service in services) + bytes(2)
    assert stub.endswith(ends)
    # Both where objects are called and where their exporter is resolved.
    client = Client()
    client.bound()
    client.request()
    call = Call(client.call(), client.connection, lambda *_: None, "10.0.0.9", ("10.0.0.1", 135))
    assert places.exporter(call).services == places.resolver(call).services == services
    assert places.resolver(call).units[1].endswith(ends)


# References ------------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-2.2.18-01", "RP-DCOM-2.2.18.2-01", "RP-DCOM-2.2.19.1-01")
def test_a_reference_is_read_and_written_as_the_guide_has_it() -> None:
    raw = vector("rpc_dcom_objref_standard")
    found = parse_objref(raw)
    assert isinstance(found, Objref)
    assert found.iid == iid("IMSMQQueueInfo4")
    assert (found.oxid, found.oid) == (0x0003_0001_0000_0001, 0x0003_0000_0000_0042)
    assert (found.flags, found.public_refs) == (0, 5)
    assert found.ipid == raw[48:64] == bytes.fromhex("6d6c6b6a010002000003000000000004")
    assert found.resolver.addresses == ("node3.example.test", "192.0.2.13")
    assert found.resolver.services == (10, 9)
    assert write_objref(found) == raw
    assert replace(parse_standard(raw[24:64], found.iid), resolver=found.resolver) == found
    # With flags, in a reference and in an answer to a query.
    flagged = replace(found, flags=0x1000, public_refs=0x0102_0304)
    standard = pack("<IIQQ", 0x1000, 0x0102_0304, found.oxid, found.oid) + found.ipid
    assert (len(standard), write_objref(flagged)[24:64]) == (40, standard)
    assert standard_bytes(flagged) == standard
    assert parse_objref(write_objref(flagged)) == flagged


@pytest.mark.spec("RP-DCOM-2.2.14-01")
def test_an_interface_pointer_is_counted_twice() -> None:
    one = Listed((POINTER,))
    for data in (b"", b"MEOW!", bytes(range(64))):
        raw = pack("<II", len(data), len(data)) + data
        assert one.marshal([data]) == raw
        assert one.unmarshal(raw) == ([data], len(raw))
        for conformance, length in ((len(data) + 1, len(data)), (len(data), len(data) + 1)):
            with pytest.raises(BadStub):
                one.unmarshal(pack("<II", conformance, length) + data + b"more")


@pytest.mark.spec("RP-DCOM-2.2.19.1-01", "RP-DCOM-2.2.19.1-02", "RP-DCOM-2.2.19.3-01")
def test_bindings_of_an_exporter_have_ports() -> None:
    raw = vector("rpc_dcom_dualstringarray_exporter")
    stub = (len(raw) // 2 - 2).to_bytes(4, "little") + raw
    (found,), _ = Listed((DUAL_STRING_ARRAY,)).unmarshal(stub)
    assert found.addresses == ("node3.example.test[49713]", "192.0.2.13[49713]")
    assert Listed((DUAL_STRING_ARRAY,)).marshal([found]) == stub


@given(st.binary(max_size=200))
def test_no_bytes_that_pretend_to_be_a_reference_do_harm(raw: bytes) -> None:
    for each in (raw, vector("rpc_dcom_objref_standard")[: len(raw)], b"MEOW\1\0\0\0" + raw):
        try:
            parse_objref(each)
        except BadObjref:
            continue


# Activation ------------------------------------------------------------------------------


@pytest.mark.spec(
    "RP-DCOM-2.2.22-01",
    "RP-DCOM-2.2.22.1-01",
    "RP-DCOM-2.2.22.1-04",
    "RP-DCOM-2.2.22.2.5-01",
    "RP-DCOM-2.2.22.2.6-01",
)
def test_another_client_s_blob_says_what_it_wants() -> None:
    raw = vector("rpc_dcom_remotecreateinstance_request")
    at = raw.index(b"MEOW")
    wanted = parse_wanted(raw[at:])
    assert wanted == Wanted(clsid("MSMQQueueInfo"), (iid("IMSMQQueueInfo4"),))
    assert parse_wanted(write_wanted(wanted)) == wanted
    # CustomHeader, as that client and this one write it.
    for blob in (raw[at:], write_wanted(wanted)):
        ref = parse_objref(blob)
        assert isinstance(ref, CustomRef)
        total, zero, first, filler, length, _ = unpack_from("<6I", ref.data)
        assert (total, zero) == (len(ref.data) - 8, 0)
        assert (first, filler) == (0x0008_1001, 0xCCCC_CCCC)
        size, head, reserved, context, count = unpack_from("<5I", ref.data, 24)
        assert (size, head, reserved, context) == (total, 16 + length, 0, 2)
        assert ref.data[44:60] == bytes(16), "class info"
        clsids, sizes, null = unpack_from("<3I", ref.data, 60)
        assert (bool(clsids), bool(sizes), null) == (True, True, 0)
        assert unpack_from("<I", ref.data, 72) == (count,)
        lengths = unpack_from(f"<{1 + count}I", ref.data, 76 + 16 * count)
        assert (lengths[0], head + sum(lengths[1:])) == (count, total)


@pytest.mark.spec("RP-DCOM-2.2.22.2.8-01")
def test_an_answer_is_what_another_client_read() -> None:
    """The bytes that impacket took in the spike."""
    raw = vector("rpc_dcom_remotecreateinstance_response")
    at = raw.index(b"MEOW")
    reply = parse_reply(raw[at:-4])
    assert reply.statuses == [0]
    assert reply.bindings.addresses == ("127.0.0.1[49777]", "vm[49777]")
    assert parse_reply(write_reply(reply)) == reply


@pytest.mark.spec("RP-DCOM-2.2.22.1-02")
@pytest.mark.parametrize("cut", [20, 60, 100, 200, 300])
def test_a_blob_that_is_cut_short_is_refused(cut: int) -> None:
    raw = write_wanted(Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,)))
    with pytest.raises(BadProperties):
        parse_wanted(raw[:cut])
    with pytest.raises(BadProperties):
        parse_wanted(write_custom(CustomRef(IID_IUNKNOWN, IID_IUNKNOWN, raw)))


@given(st.binary(max_size=400), st.integers(0, 500))
def test_no_blob_does_harm(noise: bytes, at: int) -> None:
    raw = bytearray(vector("rpc_dcom_remotecreateinstance_request"))
    raw = raw[raw.index(b"MEOW") :]
    raw[at : at + len(noise)] = noise
    with contextlib.suppress(BadProperties):
        parse_wanted(bytes(raw))


def blob(*properties: tuple[bytes, bytes]) -> bytes:
    return _blob(IID_PROPERTIES_IN, CLSID_PROPERTIES_IN, properties)


def instantiation(
    count: int = 1, flags: int = 0, number: int = 4711, version: tuple[int, int] = (5, 1)
) -> tuple[bytes, bytes]:
    """`number`: what stands where nothing is looked at."""
    iids = [IID_IUNKNOWN] * count or None
    value = [clsid("MSMQQueue"), number, flags, number, count, number, iids, number, version]
    return CLSID_INSTANTIATION, serialized(_INSTANTIATION, value)


@pytest.mark.spec(
    "RP-DCOM-2.2.22.2.1-03",
    "RP-DCOM-2.2.22.2.1-04",
    "RP-DCOM-2.2.22.2.2-01",
    "RP-DCOM-2.2.22.2.2-02",
    "RP-DCOM-2.2.22.2.7-01",
)
def test_what_an_activation_does_not_need_is_skipped() -> None:
    wanted = Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,))
    special, security = guid_of("000001b9"), guid_of("000001a6")
    assert parse_wanted(blob(instantiation(flags=0x0C))) == wanted
    for number in (0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF):
        assert parse_wanted(blob(instantiation(number=number))) == wanted
    for version in ((0, 0), (4, 9), (5, 8), (0xFFFF, 0xFFFF)):
        assert parse_wanted(blob(instantiation(version=version))) == wanted
    for size in (96, 88):  # both layouts of SpecialPropertiesData
        properties = ((special, b"\xff" * size), (security, b"\xee" * 24), instantiation())
        assert parse_wanted(blob(*properties)) == wanted


@pytest.mark.spec("RP-DCOM-2.2.22.2.1-01", "RP-DCOM-2.2.22.2.1-02", "RP-DCOM-2.2.22.2.3-01")
def test_what_an_activation_needs() -> None:
    with pytest.raises(BadProperties):
        parse_wanted(blob((guid_of("000001b9"), bytes(96))))
    for count in (0, 65):
        with pytest.raises(BadProperties):
            parse_wanted(blob(instantiation(count)))
    for count in (1, 64):
        assert len(parse_wanted(blob(instantiation(count))).iids) == count
    assert parse_wanted(blob(instantiation(), (CLSID_INSTANCE, bytes(40)))).has_state


@pytest.mark.spec("RP-DCOM-2.2.22.2.4-01")
def test_clients_speak_tcp() -> None:
    def request(*protocols: int) -> tuple[bytes, bytes]:
        value = [None, [3, len(protocols), list(protocols) or None]]
        return CLSID_SCM_REQUEST, serialized(_SCM_REQUEST, value)

    for each in (request(), request(7), request(15, 7)):
        assert parse_wanted(blob(instantiation(), each)).clsid == clsid("MSMQQueue")
    with pytest.raises(BadProperties):
        parse_wanted(blob(instantiation(), request(15)))


def guid_of(first: str) -> bytes:
    return guid(f"{first}-0000-0000-c000-000000000046")


@pytest.mark.spec(
    "RP-DCOM-2.2.22.2.9-01",
    "RP-DCOM-2.2.22.2.9-02",
    "RP-DCOM-2.2.22.2.9-03",
    "RP-DCOM-2.2.22.1-03",
)
def test_replies_hold_interfaces_that_are_missing() -> None:
    reply = Reply([IID_IUNKNOWN] * 2, [0, 0x80004002], [b"abc", None], 7, HERE, bytes(16), 5)
    raw = write_reply(reply)
    assert parse_reply(raw) == reply
    # The header's destination context, and which property stands first.
    head = raw.index(b"MEOW") + 24 + 16 + 8 + 8 + 16
    assert raw[head + 12 : head + 16] == b"\2\0\0\0"
    assert 0 < raw.index(guid_of("00000339"), head) < raw.index(guid_of("000001b6"), head)


@pytest.mark.spec(
    "RP-DCOM-2.2.11-01", "RP-DCOM-2.2.13.3-01", "RP-DCOM-2.2.13.3-03", "RP-DCOM-2.2.13.4-01"
)
def test_heads_of_requests_and_answers() -> None:
    this, that = Listed((ORPC_THIS,)), Listed((ORPC_THAT,))
    raw = bytearray(this.marshal([OrpcThis(b"c" * 16)]))
    assert bytes(raw) == bytes.fromhex("0500 0700 00000000 00000000") + b"c" * 16 + bytes(4)
    raw[8:12] = b"\xff" * 4
    assert this.unmarshal(bytes(raw)) == ([OrpcThis(b"c" * 16)], 32)
    raw[4:8] = b"\1\2\3\4"
    flagged = OrpcThis(b"c" * 16, flags=0x0403_0201)
    assert this.unmarshal(bytes(raw)) == ([flagged], 32)
    assert this.marshal([flagged])[4:12] == b"\1\2\3\4" + bytes(4)
    swapped = bytes.fromhex("0005 0007 04030201 00000000") + b"c" * 16 + bytes(4)
    assert this.unmarshal(swapped, ">") == ([flagged], 32)
    assert that.marshal([None]) == bytes(8)
    # Of each operation: in front of what it gives.
    operation = orpc_operation("count", (U32,), (U32, U32))
    assert operation.gives.marshal([None, 7, 8]) == bytes(8) + pack("<II", 7, 8)
    version = Listed((COM_VERSION,))
    assert version.marshal([(5, 0x0107)]) == bytes.fromhex("0500 0701")
    assert version.unmarshal(bytes.fromhex("0500 0701")) == ([(5, 0x0107)], 4)
    assert version.unmarshal(bytes.fromhex("0005 0107"), ">") == ([(5, 0x0107)], 4)


@pytest.mark.spec("RP-DCOM-2.2.18-01")
@pytest.mark.parametrize("flags", [0, 3, 5, 6, 7, 16, 0x0100_0001, 0xFFFF_FFFF])
def test_there_are_four_kinds_of_references(flags: int) -> None:
    raw = vector("rpc_dcom_objref_standard")
    assert raw[:24] == b"MEOW" + pack("<I", 1) + iid("IMSMQQueueInfo4")
    with pytest.raises(BadObjref):
        parse_objref(raw[:4] + pack("<I", flags) + raw[8:])
    with pytest.raises(BadObjref):
        parse_objref(b"WOEM" + raw[4:])
    custom = write_custom(CustomRef(IID_IUNKNOWN, clsid("MSMQQueue"), b"data"))
    assert custom[:24] == b"MEOW" + pack("<I", 4) + IID_IUNKNOWN
    assert parse_objref(custom) == CustomRef(IID_IUNKNOWN, clsid("MSMQQueue"), b"data")


@pytest.mark.spec("RP-DCOM-2.2.18.5-01", "RP-DCOM-2.2.18-01")
def test_handlers_and_extended_references_are_read_as_standard_ones() -> None:
    raw = vector("rpc_dcom_objref_standard")
    known = parse_objref(raw)
    handler = raw[:4] + b"\2" + raw[5:64] + bytes(16) + raw[64:]
    assert parse_objref(handler) == known
    extended = raw[:4] + b"\x08" + raw[5:64] + b"NSYV" + raw[64:]
    assert parse_objref(extended) == known


# ORPC ------------------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-2.2.13.1-01", "RP-DCOM-2.2.13.2-01", "RP-DCOM-2.2.13.3-01")
def test_extensions_are_read_and_an_odd_number_has_a_pointer_to_nothing() -> None:
    this = OrpcThis(bytes(16), extensions=[Extension(bytes(range(16)), b"hello")])
    one = Listed((ORPC_THIS,))
    (found,), end = one.unmarshal(one.marshal([this]))
    assert found.extensions[0] == Extension(bytes(range(16)), b"hello")
    # The room, the identifier, the size, and as many bytes more as fill the room.
    for size, room in ((0, 0), (1, 8), (5, 8), (8, 8), (9, 16), (12, 16)):
        data = b"hello and more"[:size]
        written = one.marshal([OrpcThis(bytes(16), extensions=[Extension(bytes(16), data)])])
        padded = pack("<I", room) + bytes(16) + pack("<I", size) + data.ljust(room, b"\0")
        assert written.endswith(padded)
        assert one.unmarshal(written)[0][0].extensions[0] == Extension(bytes(16), data)
        for wrong in {room + 8, max(room - 8, 0), room + 4} - {room}:
            with pytest.raises(BadStub):
                one.unmarshal(written[: -len(padded)] + pack("<I", wrong) + padded[4:] + bytes(8))
    assert end == len(one.marshal([this]))


@pytest.mark.spec("RP-DCOM-1.7-02", "RP-DCOM-2.2.13.3-02")
@pytest.mark.parametrize(
    ("this", "status"),
    [
        (OrpcThis(bytes(16), 4, 1), Hresult.RPC_E_VERSION_MISMATCH),
        (OrpcThis(bytes(16), 5, 8), Hresult.RPC_E_VERSION_MISMATCH),
        (OrpcThis(bytes(16), flags=1), Hresult.RPC_E_INVALID_HEADER),
    ],
)
def test_calls_of_other_versions_and_with_flags_are_refused(this: OrpcThis, status: int) -> None:
    with pytest.raises(ComError) as refused:
        this.check()
    assert refused.value.status == status


@pytest.mark.spec("RP-DCOM-1.7-01")
def test_older_versions_are_served() -> None:
    OrpcThis(bytes(16), 5, 1).check()


def test_queries_and_releases_are_read_as_another_client_writes_them() -> None:
    query, release = (IREMUNKNOWN.operations[k] for k in (3, 5))
    takes: Any = query.takes
    (_, _, refs, count, iids), _ = takes.unmarshal(vector("rpc_dcom_remqueryinterface_request"))
    assert (refs, count, len(iids)) == (1, 1, 1)
    given, _ = release.takes.unmarshal(vector("rpc_dcom_remrelease_request"))
    assert given[1:] == [1, given[2]]
    assert (given[2][0].public, given[2][0].private) == (1, 0)
    for name in ("response", "nointerface"):
        raw = vector(f"rpc_dcom_remqueryinterface_{name}")
        found, _ = query.gives.unmarshal(raw)
        assert len(query.gives.marshal(found)) == len(raw)


# The exporter ----------------------------------------------------------------------------


class Everything:
    """Every object has IUnknown."""

    def facet(self, target: Any, wanted: bytes) -> Any:
        return target if wanted == IID_IUNKNOWN else None

    def is_pinged(self, target: Any) -> bool:
        return True


class Thing:
    """An object."""


class Made:
    def __init__(self, node: int = 3, classes: Classes | None = None) -> None:
        numbers = itertools.count(1)
        self.released: list[Any] = []
        self.exporter = Exporter(
            node,
            classes or Everything(),
            lambda target, _: self.released.append(target),
            lambda size: next(numbers).to_bytes(size, "little"),
        )

    def export(self, target: Any, owner: Owner = ALICE, now: float = 0.0) -> Objref:
        return self.exporter.export(target, IID_IUNKNOWN, owner, HERE, now)

    def pointer(self, ref: Objref, owner: Owner = ALICE, now: float = 0.0) -> Pointer:
        return self.exporter.pointer(ref.ipid, owner, now)


@pytest.mark.spec("RP-DCOM-3.1.1.5.1-01", "RP-DCOM-3.1.1.5.1-02")
def test_an_object_is_one_object_however_often_it_is_sent() -> None:
    made, thing = Made(), Thing()
    first, second = made.export(thing), made.export(thing)
    assert (first.oid, first.ipid) == (second.oid, second.ipid)
    assert made.pointer(first).public == 2 * REFS_GIVEN


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.3-01", "RP-DCOM-3.1.1.5.6.1.3-02")
def test_the_last_release_ends_it_and_more_do_no_harm() -> None:
    made, thing = Made(), Thing()
    pointer = made.pointer(made.export(thing))
    made.exporter.add_refs(pointer, 0, 2)
    made.exporter.release(pointer, 1_000, 0)
    assert made.released == []
    made.exporter.release(pointer, 0, 1_000)
    assert made.released == [thing]
    made.exporter.release(pointer, 1, 1)
    assert made.released == [thing]


class TwoFaced(Everything):
    """Every object has another interface besides IUnknown, by itself."""

    def facet(self, target: Any, wanted: bytes) -> Any:
        return target if wanted in (IID_IUNKNOWN, iid("IMSMQQueue")) else None


@pytest.mark.spec("RP-DCOM-3.1.1.5.6.1.3-02")
@pytest.mark.parametrize("first", [0, 1])
def test_an_interface_that_is_released_leaves_the_object_its_other_one(first: int) -> None:
    made, thing = Made(classes=TwoFaced()), Thing()
    refs = [
        made.exporter.export(thing, one, ALICE, HERE, 0.0)
        for one in (IID_IUNKNOWN, iid("IMSMQQueue"))
    ]
    assert refs[0].oid == refs[1].oid
    assert refs[0].ipid != refs[1].ipid
    gone, left = refs[first], refs[1 - first]
    made.exporter.release(made.pointer(gone), REFS_GIVEN, 0)
    assert made.released == []
    with pytest.raises(ComError) as disconnected:
        made.pointer(gone)
    assert disconnected.value.status == Hresult.RPC_E_DISCONNECTED
    assert made.pointer(left).facet is thing
    assert made.exporter.resolve(left, ALICE) is thing
    made.exporter.release(made.pointer(left), REFS_GIVEN, 0)
    assert made.released == [thing]
    with pytest.raises(ComError) as disconnected:
        made.pointer(left)
    assert disconnected.value.status == Hresult.RPC_E_DISCONNECTED
    assert made.exporter.resolve(left, ALICE) is None


def test_references_have_a_limit() -> None:
    made = Made()
    pointer = made.pointer(made.export(Thing()))
    with pytest.raises(ComError):
        made.exporter.add_refs(pointer, REFERENCES_MAX, 0)
    assert pointer.public == REFS_GIVEN


def test_others_do_not_know_an_object() -> None:
    made = Made()
    ref = made.export(Thing())
    with pytest.raises(ComError) as unknown:
        made.pointer(ref, BOB)
    assert unknown.value.status == Hresult.E_ACCESSDENIED
    assert made.exporter.resolve(ref, BOB) is None
    number, are_known = made.exporter.change_set(0, 0, [ref.oid], (), BOB, 0.0)
    assert not are_known
    assert not made.exporter.ping(number, ALICE, 0.0)


def test_numbers_say_which_node_made_them() -> None:
    made = Made(node=7)
    ref = made.export(Thing())
    number, _ = made.exporter.change_set(0, 0, [ref.oid], (), ALICE, 0.0)
    assert {node_of(one) for one in (ref.oxid, ref.oid, number)} == {7}


@pytest.mark.spec(
    "RP-DCOM-3.1.2.2-01", "RP-DCOM-3.1.2.6-01", "RP-DCOM-3.1.2.5.1.2-01", "RP-DCOM-3.1.2.5.1.3-01"
)
def test_what_nobody_pings_is_released_after_three_periods() -> None:
    made, kept, lost = Made(), Thing(), Thing()
    ref, _ = made.export(kept), made.export(lost)
    number, _ = made.exporter.change_set(0, 0, [ref.oid], (), ALICE, 0.0)
    assert made.exporter.sweep(UNPINGED_MAX_S) == 0
    assert made.exporter.ping(number, ALICE, UNPINGED_MAX_S)
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == 1
    assert made.released == [lost]
    # The set dies in turn, and with it what it kept.
    assert made.exporter.sweep(2 * UNPINGED_MAX_S + 1) == 1
    assert made.released == [lost, kept]
    assert not made.exporter.ping(number, ALICE, 2 * UNPINGED_MAX_S + 1)
    # Of two sets with the same objects, one of which dies: each object loses one reference alone.
    made = Made()
    both, alone, single = Thing(), Thing(), Thing()
    refs = [made.export(one) for one in (both, alone, single)]
    dying, _ = made.exporter.change_set(0, 0, [one.oid for one in refs], (), ALICE, 0.0)
    living, _ = made.exporter.change_set(0, 0, [refs[0].oid], (), ALICE, 0.0)
    assert made.exporter.ping(living, ALICE, UNPINGED_MAX_S)
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == 2, "every other object of the set"
    assert made.released == [alone, single]
    assert not made.exporter.ping(dying, ALICE, UNPINGED_MAX_S + 1)
    assert made.exporter.sweep(2 * UNPINGED_MAX_S) == 0
    assert made.exporter.sweep(2 * UNPINGED_MAX_S + 1) == 1
    assert made.released == [alone, single, both]


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-05", "RP-DCOM-3.1.1.6.2-01")
def test_a_call_postpones_the_end() -> None:
    made = Made()
    ref = made.export(Thing())
    for periods in range(1, 4):
        made.pointer(ref, now=periods * UNPINGED_MAX_S)
        assert made.exporter.sweep((periods + 1) * UNPINGED_MAX_S) == 0
    assert made.exporter.sweep(4 * UNPINGED_MAX_S + 1) == 1


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-03")
def test_a_ping_of_an_unknown_object_adds_the_others() -> None:
    made = Made()
    ref = made.export(Thing())
    number, are_known = made.exporter.change_set(0, 0, [4711, ref.oid], (), ALICE, 0.0)
    assert not are_known
    made.exporter.ping(number, ALICE, UNPINGED_MAX_S)
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == 0


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-02")
def test_an_older_change_of_a_set_is_none_at_all() -> None:
    made = Made()
    ref = made.export(Thing())
    number, _ = made.exporter.change_set(0, 5, [ref.oid], (), ALICE, 0.0)
    made.exporter.change_set(number, 4, (), [ref.oid], ALICE, UNPINGED_MAX_S)
    made.exporter.ping(number, ALICE, UNPINGED_MAX_S)
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == 0
    made.exporter.change_set(number, 6, (), [ref.oid], ALICE, UNPINGED_MAX_S)
    made.exporter.ping(number, ALICE, 2 * UNPINGED_MAX_S + 2)
    assert made.exporter.sweep(2 * UNPINGED_MAX_S + 2) == 1


def test_each_computer_behind_one_address_has_a_ping_set() -> None:
    made = Made()
    refs = [made.export(f"of computer {number}") for number in range(CONNECTIONS_PER_ADDRESS_MAX)]
    for ref in refs:
        _, are_known = made.exporter.change_set(0, 1, [ref.oid], [], ALICE, 0.0)
        assert are_known
    with pytest.raises(ComError) as full:
        made.exporter.change_set(0, 1, [refs[0].oid], [], ALICE, 0.0)
    assert full.value.status == Hresult.E_OUTOFMEMORY
    # They end without pings, and others take their places.
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == len(refs)
    made.exporter.change_set(0, 1, [], [], ALICE, UNPINGED_MAX_S + 1)


def test_one_caller_cannot_have_all_the_memory() -> None:
    made = Made()
    things = [Thing() for _ in range(OBJECTS_PER_CALLER_MAX)]
    for each in things:
        made.export(each)
    with pytest.raises(ComError) as full:
        made.export(Thing())
    assert full.value.status == Hresult.E_OUTOFMEMORY
    made.export(Thing(), BOB)


@given(st.binary(max_size=120))
def test_no_stub_of_the_runtime_does_harm(raw: bytes) -> None:
    for operation in IREMUNKNOWN.operations.values():
        try:
            operation.takes.unmarshal(raw)
        except BadStub:
            continue
