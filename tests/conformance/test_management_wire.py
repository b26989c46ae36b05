"""What [MS-MQMQ] says of the parameters of remote management, seen from a program's stub."""

import re
import struct
from functools import partial
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.pb import data_pb2
from qm.rpc.interface import Fault
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Arm
from qm.rpc.path_names import QMCOMM, ObjectFormat, PathOut
from qm.rpc.queue_formats import WireFormat, format_of
from qm.rpc.remote_management.interface import QMMGMT, InfoIn, InfoOut, ManagementObject
from qm.rpc.remote_management.properties import NULL
from qm.rpc.variants import Variant
from qm.wire.enums import QueueFormatType, VarType
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.rpc.reading import ORDERS, RpcWorld, with_orders
from tests.unit.rpc.test_remote_management import MACHINE, in_world, info, queue

ACTIVE, HISTORY = 1, 25
COUNT = 7
AWAY = r"DIRECT=OS:elsewhere.invalid\private$\q"
SIX = r"DIRECT=TCP:::1\private$\q"
NOT_FOUND = 0xC00E0003
ADDRESS = re.compile(r"\\[A-Za-z]+|\d{1,3}(\.\d{1,3}){3}")
GUID = "01020304-0506-0708-090a-0b0c0d0e0f10"


def asking(what: ManagementObject, *properties: int, given: Variant = NULL) -> bytes:
    """Return the stub of R_QMMgmtGetInfo."""
    values = [given for _ in properties]
    return QMMGMT.operations[0].takes.marshal(
        InfoIn(what, len(properties), list(properties), values)
    )


def answering(*values: Variant) -> bytes:
    """Return the stub of its answer."""
    return QMMGMT.operations[0].gives.marshal(InfoOut(list(values), 0))


def named(name: str) -> ManagementObject:
    parsed: Any = parse_format_name(name)
    return ManagementObject(2, Arm(2, format_of(parsed)))


@pytest.mark.spec("MQ-1.1-01")
def test_an_active_queue_is_open_or_has_messages() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)

        async def active() -> set[str]:
            (names,) = (await info(caller, MACHINE, ACTIVE))[1]
            return {name.casefold() for name in names}

        await create(client)
        await create(client, r".\public")
        assert await active() == set()
        reading = await client.open(ORDERS)
        (private,) = await active()
        assert private.startswith("private=")
        await client.data.CloseQueue(
            data_pb2.CloseQueueRequest(request=client.next(), handle=reading.handle)
        )
        assert await active() == set()
        await client.send(ORDERS, b"one")
        await client.send(r".\public", b"two")
        await client.send(AWAY, b"three")
        kinds = {name.partition("=")[0] for name in await active()}
        assert kinds == {"private", "public", "direct"}
        assert AWAY.casefold() in await active()

    in_world(scenario)


@pytest.mark.spec("MQ-2.3-01")
def test_answers_stand_in_the_places_of_their_identifiers() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        caller = await world.caller(QMMGMT)
        told = {3: "PRIVATE", 4: "LOCAL", 5: "NO", 7: 2, 12: None}
        for numbers in ((12, 7, 3, 7, 4, 5), (5, 12, 4), (7,)):
            answers = [told[number] for number in numbers]
            assert await info(caller, queue(ORDERS), *numbers) == (0, answers)
        connected = "CONNECTED"
        status, values = await info(caller, MACHINE, 4, 2, 4)
        assert (status, values[0], len(values[1]), values[2]) == (0, connected, 1, connected)
        for number in (0x8000_0004, 0xFFFF_FFFF):  # no sign, and no less than 32 bits
            assert await info(caller, MACHINE, number) == (0xC00E_0039, [None])

    in_world(scenario)


@pytest.mark.spec("MQ-2.3-01")
def test_there_are_as_many_values_as_identifiers() -> None:
    takes = QMMGMT.operations[0].takes
    for counted, identifiers, values in ((3, 3, 2), (2, 2, 3), (3, 2, 2), (1, 2, 2), (2, 1, 2)):
        given = InfoIn(MACHINE, counted, [6] * identifiers, [NULL] * values)
        with pytest.raises(BadStub):
            takes.unmarshal(takes.marshal(given))
    given = InfoIn(MACHINE, 2, [0xFFFF_FFFF, 6], [NULL] * 2)
    assert takes.unmarshal(takes.marshal(given))[0] == given


@pytest.mark.spec("MQ-2.3-01", "MQ-5-02")
def test_values_stand_in_an_array_beside_that_of_their_identifiers() -> None:
    stub = asking(MACHINE, 6, 0xFFFF_FFFF, 6)
    at = stub.index(struct.pack("<3I", 6, 0xFFFF_FFFF, 6))
    assert struct.unpack_from("<2I", stub, at - 8) == (3, 3), "cElems, and size_is of the array"
    values = at + 12
    assert struct.unpack_from("<I", stub, values) == (3,), "the same count once more"
    # Each is a tag in eight bytes and the tag of its arm, on a boundary of eight.
    one = struct.pack("<H6xH", VarType.NULL, VarType.NULL)
    assert stub[values + 4 :] == (one.ljust(16, b"\0") * 3)[:-6]
    # A BLOB has as many bytes as cbSize, and a text its characters with an end.
    blob = answering(Variant(VarType.BLOB, b"\1\2\3"))
    assert struct.pack("<I", 3) + b"\1\2\3" in blob
    text = answering(Variant(VarType.LPWSTR, "ab"))
    assert struct.pack("<3I", 3, 0, 3) + "ab\0".encode("utf-16-le") in text
    many = answering(Variant(VarType.VECTOR_UI4, [5, 6]))
    assert struct.pack("<3I", 2, 5, 6) in many
    for raw in (blob, text, many):
        assert QMMGMT.operations[0].gives.unmarshal(raw)[1] == len(raw)


COUNTED: dict[VarType, Any] = {
    VarType.BLOB: b"\1\2\3",
    VarType.VECTOR_UI1: b"\1\2\3",
    VarType.VECTOR_UI2: [1, 2, 3],
    VarType.VECTOR_I4: [1, -2, 3],
    VarType.VECTOR_UI4: [1, 2, 3],
    VarType.VECTOR_UI8: [1, 2, 3],
    VarType.VECTOR_LPWSTR: ["a", "", "c"],
    VarType.VECTOR_CLSID: [b"A" * 16, b"B" * 16, b"C" * 16],
    VarType.VECTOR_VARIANT: [
        Variant(VarType.UI1, 7),
        Variant(VarType.LPWSTR, "x"),
        Variant(VarType.VECTOR_VARIANT, [NULL]),
    ],
}


@pytest.mark.spec("MQ-5-02", "MQ-2.2.16.8-01")
def test_a_counted_array_has_as_many_elements_as_it_says() -> None:
    assert {kind for kind in VarType if kind > VarType.VECTOR} | {VarType.BLOB} == {*COUNTED}
    gives = QMMGMT.operations[0].gives
    for kind, value in COUNTED.items():
        raw = answering(Variant(kind, value))
        assert gives.unmarshal(raw)[0].values == [Variant(kind, value)]
        # One value: its tag in eight bytes, the tag again, the count, a pointer, the count again.
        assert struct.unpack_from("<I4xH6xHxxI", raw) == (1, kind, kind, 3)
        assert struct.unpack_from("<I", raw, 28) == (3,), kind
        assert raw[24:28] != bytes(4)
        for count in (0, 2, 4):
            with pytest.raises(BadStub):
                gives.unmarshal(raw[:20] + struct.pack("<I", count) + raw[24:])
        with pytest.raises(BadStub):
            gives.unmarshal(raw[:24] + bytes(8))  # elements, and no pointer to them
        none = answering(Variant(kind, value[:0]))
        assert struct.unpack_from("<I", none, 20) == (0,)
        assert gives.unmarshal(none)[0].values == [Variant(kind, value[:0])]
    # A text ends with its only NUL.
    text = answering(Variant(VarType.LPWSTR, "ab"))
    for other in ("abc", "a\0\0", "\0b\0"):
        with pytest.raises(BadStub):
            gives.unmarshal(text.replace("ab\0".encode("utf-16-le"), other.encode("utf-16-le")))


@pytest.mark.spec("RP-C706-14.3.8-01")
def test_a_union_that_is_not_what_its_switch_says_is_a_fault_of_its_own() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        caller = await world.caller(QMMGMT)
        good = asking(named(ORDERS), COUNT)
        public = asking(named(f"PUBLIC={GUID}"), COUNT)
        assert bytes([1, 0, 0, 0, 1]) in public
        machine = public.replace(bytes([1, 0, 0, 0, 1]), bytes([1, 0, 0, 0, 4]), 1)
        with pytest.raises(Fault) as bad:
            await caller.raw_call(QMMGMT, 0, machine)  # whose arm is a GUID, too
        assert bad.value.status == 0x6F7
        repeated = struct.pack("<H6xH", VarType.NULL, VarType.NULL)
        for right, wrong in (
            (bytes([2, 0, 2, 0]), bytes([2, 0, 1, 0])),  # MGMT_OBJECT
            (bytes([3, 0, 0, 0, 3]), bytes([3, 0, 0, 0, 2])),  # QUEUE_FORMAT
            (repeated, struct.pack("<H6xH", VarType.NULL, VarType.I2)),  # PROPVARIANT
            (repeated, struct.pack("<H6xH", VarType.I2, VarType.NULL)),
        ):
            assert right in good
            with pytest.raises(Fault) as bad:
                await caller.raw_call(QMMGMT, 0, good.replace(right, wrong, 1))
            assert bad.value.status == 0x6F7

    in_world(scenario)


@pytest.mark.spec("MQ-5-01", "MQ-5-03", "MR-2.2.3.2-38")
def test_a_union_repeats_what_chooses_its_arm() -> None:
    for kind, value in ((VarType.UI4, 7), (VarType.UI1, 7), (VarType.LPWSTR, "x")):
        raw = answering(Variant(kind, value))
        repeated = struct.pack("<H6xH", kind, kind)
        other = struct.pack("<H6xH", kind, VarType.I2)
        with pytest.raises(BadStub):
            QMMGMT.operations[0].gives.unmarshal(raw.replace(repeated, other, 1))
        assert raw[8:18] == repeated
    stub = asking(named(ORDERS), COUNT)
    repeated = bytes([3, 0, 0, 0, 3])
    assert repeated in stub
    with pytest.raises(BadStub):
        QMMGMT.operations[0].takes.unmarshal(stub.replace(repeated, bytes([3, 0, 0, 0, 2]), 1))
    # Arms of one layout are told apart by it too.
    stub, repeated = asking(named(f"PUBLIC={GUID}"), COUNT), bytes([1, 0, 0, 0, 1])
    assert repeated in stub
    with pytest.raises(BadStub):
        QMMGMT.operations[0].takes.unmarshal(stub.replace(repeated, bytes([1, 0, 0, 0, 4]), 1))
    # With no type there is nothing behind the tag.
    nothing = ManagementObject(2, Arm(2, WireFormat(0, 0, 0, Arm(0, None))))
    read = QMMGMT.operations[0].takes.unmarshal(asking(nothing, COUNT))[0]
    assert read.what.what.value == WireFormat(0, 0, 0, Arm(0, None))
    shorter = len(asking(named(f"PUBLIC={GUID}"), COUNT)) - len(asking(nothing, COUNT))
    assert shorter == 16, "the GUID"


@pytest.mark.spec("MQ-5-03")
def test_no_type_of_queue_is_seen_in_what_is_returned_alone() -> None:
    gives = QMCOMM.operations[12].gives
    for identifier in (Arm(0, None), Arm(1, bytes(range(16)))):
        wire = WireFormat(identifier.tag, 0, 0, identifier)
        raw = gives.marshal(PathOut(ObjectFormat(1, Arm(1, wire)), 0))
        head = struct.pack("<BBHB", identifier.tag, 0, 0, identifier.tag)
        assert raw[12:17] == head, "behind a kind, its arm and a pointer"
        arm = b"" if identifier.tag == 0 else bytes(3) + bytes(range(16))
        assert raw[17:] == (arm or bytes(3)) + struct.pack("<I", 0)
        assert gives.unmarshal(raw) == (PathOut(ObjectFormat(1, Arm(1, wire)), 0), len(raw))

    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        caller = await world.caller(QMMGMT)
        nothing = ManagementObject(2, Arm(2, WireFormat(0, 0, 0, Arm(0, None))))
        assert await info(caller, nothing, COUNT) == (0xC00E_0006, [None])

    in_world(scenario)


@pytest.mark.spec("MQ-1.1-01")
def test_each_kind_of_queue_is_active_while_it_is_open_or_holds_a_message() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)

        async def active() -> list[str]:
            (names,) = (await info(caller, MACHINE, ACTIVE))[1]
            return [name.partition("=")[0] for name in names]

        await create(client)
        await create(client, r".\public")
        for name, access, kind in (
            (ORDERS, data_pb2.RECEIVE_ACCESS, "PRIVATE"),
            (r"DIRECT=OS:QUORATE\public", data_pb2.PEEK_ACCESS, "PUBLIC"),
            (AWAY, data_pb2.SEND_ACCESS, "DIRECT"),
        ):
            assert await active() == []
            opened = await client.open(name, access)
            assert await active() == [kind], "open, and empty"
            close = data_pb2.CloseQueueRequest(request=client.next(), handle=opened.handle)
            await client.data.CloseQueue(close)
            assert await active() == []
            await client.send(name, b"one")
            assert await active() == [kind], "closed, with a message"
            if kind != "DIRECT":
                opened = await client.open(name)
                await client.receive(opened)
                close = data_pb2.CloseQueueRequest(request=client.next(), handle=opened.handle)
                await client.data.CloseQueue(close)

    in_world(scenario)


@pytest.mark.spec("MQ-2.2.6-02")
def test_not_every_interface_takes_every_type_of_name() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        caller = await world.caller(QMMGMT)
        reader = await world.reader()
        for name in ("MULTICAST=239.0.0.1:1801", f"CONNECTOR={GUID}", f"DL={GUID}"):
            with pytest.raises(Fault, match="C00E0006"):
                await reader.open(name)
        # Management knows outgoing queues of groups, and would find one.
        assert await info(caller, named("MULTICAST=239.0.0.1:1801"), COUNT) == (NOT_FOUND, [None])
        assert QueueFormatType(8).name == "SUBQUEUE"
        await client.open(ORDERS + ";later", access=data_pb2.MOVE_ACCESS)
        assert await reader.open(ORDERS + ";later")

    in_world(scenario)


@pytest.mark.spec("MQ-2.3.12.25-04")
def test_addresses_of_a_connection_are_of_their_grammar() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)

        async def history(name: str) -> Any:
            return (await info(caller, queue(name), HISTORY))[1][0]

        for name in (
            AWAY,
            SIX,
            r"DIRECT=TCP:127.0.0.1\private$\q",
            r"DIRECT=OS:localhost\private$\q",
        ):
            await client.send(name, b"out")
            told = partial(history, name)
            statuses, _, _, addresses = await eventually(
                told, lambda found: found and found[0].value
            )
            assert len(addresses.value) == len(statuses.value)
            for one in addresses.value:
                assert one.kind is VarType.VECTOR_LPWSTR
                assert all(ADDRESS.fullmatch(each) for each in one.value), one
        assert any(one.value for one in addresses.value)

    in_world(scenario)
