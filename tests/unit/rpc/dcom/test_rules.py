"""Rules of DCOM and automation, each where it could be broken alone."""

import secrets
import struct
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from qm.observe.metrics import Metrics
from qm.rpc.dcom.automation.dispatch import DISPID_PROPERTYPUT, IDISPATCH, Arguments, InvokeFlag
from qm.rpc.dcom.automation.type_interfaces import (
    ITYPECOMP,
    ITYPEINFO,
    ITYPEINFO2,
    ITYPELIB,
    ITYPELIB2,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import BYREF, VarType
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.limits import UNPINGED_MAX_S
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import IACTIVATION, ICLASSFACTORY, IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.exporter import REFS_GIVEN
from qm.rpc.dcom.runtime.identifiers import IID_ICLASSFACTORY, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import Objref, parse_objref
from qm.rpc.dcom.runtime.orpc import (
    ORPC_THIS,
    Extension,
    Listed,
    OrpcThis,
    orpc_interface,
    orpc_operation,
)
from qm.rpc.dcom.runtime.properties import BadProperties, Wanted, parse_wanted, write_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, IREMUNKNOWN2, InterfaceRef
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER, Resolver
from qm.rpc.interface import Fault
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import U32
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import PRIVATE, clsid, dcom_world, iid
from tests.unit.rpc.dcom.test_automation import read, written
from tests.unit.rpc.dcom.test_references import ALICE, BOB, Made, blob, instantiation
from tests.unit.rpc.dialogue import Client, served, status_of
from tests.unit.rpc.reading import MAPPER_PORT
from tests.unit.rpc.vectors import vector

Thing = type("Thing", (), {})
UNKNOWN_OBJECT, UNKNOWN_SET = 1911, 1912
E_NOINTERFACE = 0x80004002
BAD_STUB = 0x6F7
UNSEEN = Metrics(CollectorRegistry())
PATH = 12
"""Slot of a queue's path name, in all revisions; behind it that of its put."""
_PROBE = orpc_operation("probe", (), (U32,))


def call_at(level: AuthLevel) -> Any:
    request = SimpleNamespace(security=SimpleNamespace(level=level))
    return SimpleNamespace(request=request, local=("vip", 135))


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.2-01", "RP-DCOM-3.1.2.5.1.3-01")
def test_pings_of_known_and_unknown_sets() -> None:
    made = Made()
    who: list[Any] = [ALICE]
    clock = [0.0]
    places: Any = SimpleNamespace(owner=lambda call: who[0], now=lambda: clock[0])
    resolver: Any = Resolver(made.exporter, places, AuthLevel.INTEGRITY, UNSEEN)
    call = call_at(AuthLevel.INTEGRITY)

    def ping(number: int) -> int:
        raw = IOBJECTEXPORTER.operations[1].gives.marshal(resolver.simple_ping(call, [number]))
        return int.from_bytes(raw, "little")

    ref = made.export(Thing())
    number, back_off, status = resolver.complex_ping(call, [0, 0, 1, 0, [ref.oid], None])
    assert (number != 0, back_off, status) == (True, 0, 0)
    assert ping(number) == 0
    assert ping(number + 1) == ping(0) == UNKNOWN_SET
    who[0] = BOB
    assert ping(number) == UNKNOWN_SET, "it is of somebody else"
    who[0] = ALICE
    # Each ping gives it another three periods.
    for _ in range(3):
        clock[0] += UNPINGED_MAX_S
        assert ping(number) == 0
        assert made.exporter.sweep(clock[0] + 1) == 0
    clock[0] += UNPINGED_MAX_S + 1
    made.exporter.sweep(clock[0])
    assert ping(number) == UNKNOWN_SET
    assert resolver.complex_ping(call, [number, 1, 0, 0, None, None])[2] == UNKNOWN_SET
    with pytest.raises(Fault) as unsigned:
        resolver.simple_ping(call_at(AuthLevel.CONNECT), [number])
    assert unsigned.value.status == 5


@pytest.mark.spec("RP-DCOM-3.1.2.2-01", "RP-DCOM-3.1.2.5.1.3-02", "RP-DCOM-3.1.2.5.1.3-03")
def test_changes_of_ping_sets_by_their_numbers() -> None:
    assert UNPINGED_MAX_S == 3 * 120
    made = Made()
    places: Any = SimpleNamespace(owner=lambda call: ALICE, now=lambda: 0.0)
    resolver: Any = Resolver(made.exporter, places, AuthLevel.INTEGRITY, UNSEEN)
    call = call_at(AuthLevel.INTEGRITY)
    things = [Thing(), Thing()]
    kept, other = [made.export(one) for one in things]
    number, _, status = resolver.complex_ping(call, [0, 5, 2, 0, [4711, kept.oid], None])
    assert status == UNKNOWN_OBJECT
    # A lower sequence number neither adds nor removes, and says that all is well.
    late = resolver.complex_ping(call, [number, 4, 1, 1, [other.oid], [kept.oid]])
    assert late == [number, 0, 0]
    made.exporter.ping(number, ALICE, UNPINGED_MAX_S)
    assert made.exporter.sweep(UNPINGED_MAX_S + 1) == 1
    assert made.released == things[1:], "the one that was not added"
    assert resolver.complex_ping(call, [number, 6, 0, 0, None, None]) == [number, 0, 0]


@pytest.mark.spec("RP-DCOM-3.1.1.5.1-01")
def test_a_reference_carries_five() -> None:
    made = Made()
    ref = made.export(Thing())
    assert ref.public_refs == REFS_GIVEN == made.pointer(ref).public == 5


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.1-01")
def test_an_exporter_that_nobody_knows_has_its_number() -> None:
    places: Any = SimpleNamespace(owner=lambda call: ALICE, now=lambda: 0.0)
    resolver: Any = Resolver(Made().exporter, places, AuthLevel.INTEGRITY, UNSEEN)
    call = call_at(AuthLevel.INTEGRITY)
    assert resolver.resolve(call, [4711, 1, [7]]) == [None, NULL, 0, 1910]
    assert resolver.resolve_2(call, [4711, 1, [7]]) == [None, NULL, 0, (5, 7), 1910]


# Structures --------------------------------------------------------------------------------


@pytest.mark.spec("RP-DCOM-2.2.13.1-01", "RP-DCOM-2.2.13.2-01")
def test_extensions_agree_with_their_array() -> None:
    one = Listed((ORPC_THIS,))
    for count in (1, 2, 3):
        extensions = [Extension(bytes([k]) * 16, b"hello") for k in range(count)]
        raw = one.marshal([OrpcThis(bytes(16), extensions=extensions)])
        # referent, size, reserved, referent, conformance
        at = raw.index(struct.pack("<II", count, 0), 32)
        conformance = struct.unpack_from("<I", raw, at + 12)[0]
        assert conformance == count + count % 2
        (found,), _ = one.unmarshal(raw)
        assert [each for each in found.extensions if each is not None] == extensions
        for wrong in (count + 2, max(count - 2, 0), 0x7FFF):
            bad = raw[:at] + struct.pack("<I", wrong) + raw[at + 4 :]
            if wrong + wrong % 2 != conformance:
                with pytest.raises(BadStub):
                    one.unmarshal(bad)


@pytest.mark.spec("RP-DCOM-1.7-01", "RP-DCOM-1.7-02")
@pytest.mark.parametrize("minor", range(10))
def test_versions_that_are_spoken(minor: int) -> None:
    assert (OrpcThis(bytes(16)).major, OrpcThis(bytes(16)).minor) == (5, 7)
    if minor <= 7:
        OrpcThis(bytes(16), 5, minor).check()
    for major in (4, 6) if minor <= 7 else (5,):
        with pytest.raises(ComError) as other:
            OrpcThis(bytes(16), major, minor).check()
        assert other.value.status == 0x80010110


@pytest.mark.spec("RP-DCOM-2.2.22.1-02")
@pytest.mark.parametrize("count", [0, 11, 0xFFFF_FFFF])
def test_a_blob_has_one_to_ten_properties(count: int) -> None:
    raw = write_wanted(Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,)))
    assert parse_wanted(raw) == Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,))
    # OBJREF_CUSTOM 48, size and reserved 8, headers of serialization 16, then four fields.
    at = 48 + 8 + 16 + 16
    assert 1 <= struct.unpack_from("<I", raw, at)[0] <= 10
    with pytest.raises(BadProperties):
        parse_wanted(raw[:at] + struct.pack("<I", count) + raw[at + 4 :])
    # So it is with as many properties as are told of.
    others = [(bytes([k]) * 16, bytes(8)) for k in range(10)]
    assert parse_wanted(blob(instantiation(), *others[:9])).clsid == clsid("MSMQQueue")
    with pytest.raises(BadProperties):
        parse_wanted(blob(instantiation(), *others) if count else blob())


@pytest.mark.spec("RP-DCOM-2.2.22.1-02")
def test_sizes_of_properties_stay_within_the_blob() -> None:
    raw = write_wanted(Wanted(clsid("MSMQQueue"), (IID_IUNKNOWN,)))
    count = struct.unpack_from("<I", raw, 48 + 8 + 16 + 16)[0]
    header_size = struct.unpack_from("<I", raw, 48 + 8 + 16 + 4)[0]
    sizes_at = 48 + 8 + header_size
    # The sizes are the last of the header, before its padding: each may be too large.
    found = 0
    for at in range(sizes_at - 4 * count - 8, sizes_at, 4):
        size = struct.unpack_from("<I", raw, at)[0]
        if 16 <= size <= len(raw):
            found += 1
            with pytest.raises(BadProperties):
                parse_wanted(raw[:at] + struct.pack("<I", len(raw)) + raw[at + 4 :])
    assert found == count


@pytest.mark.spec("RP-OAUT-2.2.29.1-02")
@pytest.mark.parametrize("tag", [0, 2, 5, 8, 0x2003, 0x4003, 0xFFFF_FFFF])
def test_a_variant_s_tag_agrees_with_its_type(tag: int) -> None:
    raw = bytearray(written(Variant(VarType.I4, 1)))
    assert read(bytes(raw)) == Variant(VarType.I4, 1)
    assert struct.unpack_from("<I", raw, 16) == (3,)
    struct.pack_into("<I", raw, 16, tag)
    with pytest.raises(BadStub):
        read(bytes(raw))
    # All arrays share one tag.
    array = bytearray(vector("rpc_oaut_variant_array_ui1"))
    assert struct.unpack_from("<H6xI", array, 8) == (0x2011, 0x2000)
    assert read(bytes(array)).vt == 0x2011
    struct.pack_into("<I", array, 16, 0x2011 if tag == 0x2003 else tag)
    with pytest.raises(BadStub):
        read(bytes(array))


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-03", "RP-DCOM-3.1.1.5.4-06", "RP-DCOM-3.1.2.5.2.3-02")
def test_a_call_without_signature_reaches_no_object_and_makes_none() -> None:
    info = object_interfaces()[iid("IMSMQQueueInfo4")]
    for interface, opnum, status in ((info, 8, 5), (IREMOTESCMACTIVATOR, 4, 5)):
        client = Client(
            served(interfaces={(interface.syntax.uuid, interface.syntax.major): interface})
        )
        client.bound(interface)
        assert status_of(client.request(2, opnum=opnum)) == status
        assert client.events == []
    unlocked = served(
        interfaces={(info.syntax.uuid, 0): info}, levels={info.syntax.uuid: AuthLevel.NONE}
    )
    for opnum in (0, 1, 2):
        client = Client(unlocked)
        client.bound(info)
        assert status_of(client.request(2, opnum=opnum)) == 0x1C010002


# On a node ---------------------------------------------------------------------------------


@pytest.mark.spec(
    "RP-DCOM-3.1.2.5.1.1-02",
    "RP-DCOM-3.1.2.5.1.4-01",
    "RP-DCOM-3.1.2.5.1.5-01",
    "RP-DCOM-3.1.2.5.1.6-01",
    "RP-DCOM-3.1.2.5.2.3.1-01",
)
def test_what_resolver_and_activation_tell() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            message = await program.create("MSMQMessage")
            client = await program.server.resolver()
            bindings, ipid, hint, status = await client.call(
                IOBJECTEXPORTER, 0, [message.ref.oxid, 1, [7]]
            )
            assert (ipid, hint, status) == (program.server.ipid_rem_unknown, 5, 0)
            assert all(one.endswith("]") and "[" in one for one in bindings.addresses)
            again, ipid, hint, version, status = await client.call(
                IOBJECTEXPORTER, 4, [message.ref.oxid, 1, [7]]
            )
            assert (again, ipid, hint) == (bindings, program.server.ipid_rem_unknown, 5)
            assert (version, status) == ((5, 7), 0)

            await client.add(IACTIVATION)

            async def activated(mode: int, wanted: bytes) -> int:
                head = [program.server.this(), clsid("MSMQMessage"), None, None, 2, mode]
                found = await client.call(IACTIVATION, 0, [*head, 1, [wanted], 1, [7]])
                return int(found[-4] or found[-2][0])

            assert await activated(0xFFFF_FFFF, IID_ICLASSFACTORY) == 0
            assert await activated(0xFFFF_FFFF, iid("IMSMQMessage4")) == E_NOINTERFACE
            assert await activated(0, iid("IMSMQMessage4")) == 0
            assert await activated(0, IID_ICLASSFACTORY) == E_NOINTERFACE
            for mode in (1, 0x7FFF_FFFF, 0xFFFF_FFFE):
                assert await activated(mode, iid("IMSMQMessage4")) == 0
            program.close()

            anonymous = await world.program(user="")
            client = await anonymous.server.resolver()
            assert await client.call(IOBJECTEXPORTER, 3, []) == [0]
            version, bindings, reserved, status = await client.call(IOBJECTEXPORTER, 5, [])
            assert (version, reserved, status) == ((5, 7), 0, 0)
            assert bindings.addresses
            assert not any("[" in one for one in bindings.addresses), "without ports"
            anonymous.close()

    run(scenario())


@pytest.mark.spec(
    "RP-DCOM-3.1.1.5.6.1.1-02",
    "RP-DCOM-3.1.1.5.6.1.1-04",
    "RP-DCOM-3.1.1.5.6.1.1-05",
    "RP-DCOM-3.1.1.5.6.1.2-01",
)
def test_references_are_counted_as_they_are_asked_for() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            server = program.server
            (info,) = await server.create(clsid("MSMQQueueInfo"), iid("IMSMQQueueInfo4"))
            first, second = [
                (await server.query(info.ipid, iid("IMSMQQueueInfo2"), refs=refs))[0]
                for refs in (1, 3)
            ]
            assert isinstance(first, Objref)
            assert isinstance(second, Objref)
            assert (first.ipid, first.public_refs, second.ipid, second.public_refs) == (
                second.ipid, 1, first.ipid, 3,
            )  # fmt: skip
            assert (first.flags, second.flags, first.oid) == (0, 0, info.oid)
            for name in (
                "c3fcc19e-a970-11d2-8b5a-00a0c9b7c9c4",  # IManagedObject
                "00000003-0000-0000-c000-000000000046",  # IMarshal
                "b196b283-bab4-101a-b69c-00aa00341d07",  # IProvideClassInfo
                "a6ef9860-c720-11d0-9337-00a0c90dcaa9",  # IDispatchEx
            ):
                raw = UUID(name).bytes_le
                assert await server.query(info.ipid, raw) == [E_NOINTERFACE]
            # It lives by what is counted: four of the queries, two that are added, no more.
            added = await server.call(
                server.ipid_rem_unknown, IREMUNKNOWN, 4, (1, [InterfaceRef(first.ipid, 2, 0)])
            )
            assert added == [[0], 0]
            old = object_interfaces()[iid("IMSMQQueueInfo2")]

            async def release(count: int) -> None:
                refs = [InterfaceRef(first.ipid, count, 0)]
                await server.call(server.ipid_rem_unknown, IREMUNKNOWN, 5, (1, refs))

            await release(5)
            await server.call(first.ipid, old, 8, [])
            await release(1)
            with pytest.raises(Fault) as gone:
                await server.call(first.ipid, old, 8, [])
            assert gone.value.status == 0x80010108
            program.close()

    run(scenario())


@pytest.mark.spec("RP-OAUT-3.1.4.4-01", "RP-OAUT-3.1.4.3-01", "RP-OAUT-3.1.4.4-03")
def test_names_numbers_and_the_order_of_arguments() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.queue_info()
            await info.call("Create")

            async def numbers(*names: str) -> tuple[list[int], int]:
                given = [NULL, list(names), len(names), 0x409]
                found, status = await program.server.call(info.ref.ipid, IDISPATCH, 5, given)
                return list(found), status

            known = await numbers("PathName")
            assert known[1] == 0
            assert await numbers("PATHNAME") == await numbers("pathname") == known
            unknown, status = await numbers("Colour")
            assert ([one & 0xFFFF_FFFF for one in unknown], status) == ([0xFFFF_FFFF], 0x80020006)
            # Of a member's parameters, too: those that are known have their places.
            (opens,), _ = await numbers("Open")
            assert await numbers("oPEN", "SHAREMODE", "access") == ([opens, 1, 0], 0)
            for given, numbered in (
                (("Open", "Colour"), [opens, -1]),
                (("Open", "Colour", "Access"), [opens, -1, 0]),
                (("Colour", "Access"), [-1, -1]),
            ):
                assert await numbers(*given) == (numbered, 0x80020006)
            # Open(Access, ShareMode), the last one first: receive, deny receive.
            receive, deny = Variant(VarType.I4, 1), Variant(VarType.I4, 1)
            peek, free = Variant(VarType.I4, 32), Variant(VarType.I4, 0)
            found = await info.invoke("Open", InvokeFlag.METHOD, Arguments([free, peek], [], 0, 0))
            assert found[-1] == 0
            assert await info.python(found[0]).get("Access") == 32
            found = await info.invoke(
                "Open", InvokeFlag.METHOD, Arguments([deny, receive], [], 0, 0)
            )
            assert found[-1] == 0
            assert DISPID_PROPERTYPUT == -3
            label = Variant(VarType.BSTR, "named")
            put = Arguments([label], [-3], 0, 0)
            assert (await info.invoke("Label", InvokeFlag.PROPERTYPUT, put))[-1] == 0
            assert await info.get("Label") == "named"
            for dispid, values, wanted in (
                (4711, [], 0x80020003),
                ("Delete", [label], 0x8002000E),
                ("Open", [free], 0x8002000E),
            ):
                found = await info.invoke(
                    dispid, InvokeFlag.METHOD, Arguments(list(values), [], 0, 0)
                )
                assert found[-1] == wanted
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-2.1-02")
def test_every_interface_is_added_to_a_connection_under_its_first_logon() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            logons: list[int] = []

            def provider() -> NtlmClient:
                logons.append(1)
                return NtlmClient("alice", "pw", "", secrets.token_bytes)

            node = await world.harness.leader()
            server = Server(node.host, MAPPER_PORT, Logon(provider))
            (info,) = await server.create(clsid("MSMQQueueInfo"), iid("IMSMQQueueInfo4"))
            assert len(logons) == 2, "at the resolver and at the objects"
            types = (ITYPEINFO, ITYPEINFO2, ITYPELIB, ITYPELIB2, ITYPECOMP)
            for interface in (*object_interfaces().values(), *types, ICLASSFACTORY, IREMUNKNOWN2):
                # Each is taken: the object it is not of refuses, not the connection.
                probe = orpc_interface(interface.name, interface.syntax.uuid, {3: _PROBE})
                if interface.syntax.uuid == info.iid:
                    assert await server.call(info.ipid, probe, 3, []) == [1]
                    continue
                with pytest.raises(Fault) as refused:
                    await server.call(info.ipid, probe, 3, [])
                assert refused.value.status in (0x80010108, BAD_STUB), interface.name
            assert len(logons) == 2
            server.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-02")
def test_a_pointer_takes_calls_of_its_own_interface_alone() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            server = program.server
            names = ("IMSMQQueueInfo", "IMSMQQueueInfo2", "IMSMQQueueInfo3", "IMSMQQueueInfo4")
            pointers = await server.create(clsid("MSMQQueueInfo"), *map(iid, names))
            last = object_interfaces()[pointers[-1].iid]
            assert await server.call(pointers[-1].ipid, last, PATH + 1, [PRIVATE]) == [0]
            # All have the slot of a path name: nothing but the interface tells them apart.
            for pointer in pointers:
                for interface in (object_interfaces()[iid(name)] for name in names):
                    if interface.syntax.uuid == pointer.iid:
                        assert (await server.call(pointer.ipid, interface, PATH, []))[-1] == 0
                        continue
                    with pytest.raises(Fault) as refused:
                        await server.call(pointer.ipid, interface, PATH, [])
                    assert refused.value.status == 0x80010108
            raw, _ = await server.call(
                pointers[0].ipid, object_interfaces()[iid(names[0])], 4, [0, 0]
            )
            described = parse_objref(raw)
            assert isinstance(described, Objref)
            assert (await server.call(described.ipid, ITYPEINFO, 3, []))[-1] == 0
            for interface in (ITYPEINFO2, IDISPATCH):
                with pytest.raises(Fault) as refused:
                    await server.call(described.ipid, interface, 3, [])
                assert refused.value.status == 0x80010108
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.2.5.1.3-04")
def test_unknown_objects_are_taken_out_of_a_ping_set_without_a_word() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            first, second = [await program.create("MSMQMessage") for _ in range(2)]
            client = await program.server.resolver()

            async def change(number: int, sequence: int, added: list[int], gone: list[int]) -> Any:
                sizes = (len(added), len(gone))
                given = [number, sequence, *sizes, added or None, gone or None]
                return await client.call(IOBJECTEXPORTER, 2, given)

            number, factor, status = await change(0, 1, [first.ref.oid], [4711])
            assert (factor, status) == (0, 0)
            strangers = [4711, second.ref.oid, 1 << 63, 0]
            assert await change(number, 2, [], strangers) == [number, 0, 0]
            # Those that are known go nevertheless, and those that are new come.
            both = [4711, first.ref.oid]
            assert await change(number, 3, [second.ref.oid], both) == [number, 0, 0]
            assert await change(number, 4, [], [first.ref.oid]) == [number, 0, 0]
            assert await change(number, 5, [], [second.ref.oid]) == [number, 0, 0]
            program.close()

    run(scenario())


@pytest.mark.spec("RP-OAUT-3.1.4.4-04")
def test_arguments_by_reference_are_those_of_their_indexes_and_come_back_in_their_order() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.queue_info()
            await info.call("Create")
            opens = await info.number("Open")

            async def opened(indexes: list[int], refs: list[Variant]) -> list[Any]:
                blank = Arguments([Variant(), Variant()], [], 0, 0)
                given = [opens, NULL, 0x409, 1, blank, len(refs), indexes, refs]
                return await program.server.call(info.ref.ipid, IDISPATCH, 6, given)

            # The last argument stands first: 1 is the access, 0 the share mode.
            peek, free = Variant(BYREF | VarType.I4, 32), Variant(BYREF | VarType.I2, 0)
            for indexes, refs in (([1, 0], [peek, free]), ([0, 1], [free, peek])):
                result, _, _, echoed, status = await opened(indexes, refs)
                assert status == 0
                assert echoed == refs
                assert await info.python(result).get("Access") == 32
            # The other way round they are an access of 0.
            _, exception, _, echoed, status = await opened([0, 1], [peek, free])
            assert (status, exception.scode) == (0x80020009, 0xC00E0045)
            assert echoed == [peek, free]
            for place in (2, 0x7FFF_FFFF, 0xFFFF_FFFF):
                *_, echoed, status = await opened([1, place], [peek, free])
                assert (echoed, status) == ([peek, free], 0x80020004)
            program.close()

    run(scenario())
