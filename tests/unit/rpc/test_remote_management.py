"""Remote management: stubs by the vectors' bytes, and a node by its methods."""

from collections.abc import Awaitable, Callable
from struct import pack, unpack
from typing import Any

import pytest

from qm.names.format_name import parse_format_name
from qm.rpc.client import RpcClient
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Arm
from qm.rpc.path_names import QMCOMM, ObjectFormat, PathIn
from qm.rpc.queue_formats import format_of, text_of
from qm.rpc.remote_management.interface import (
    QMMGMT,
    ActionIn,
    InfoIn,
    InfoOut,
    ManagementObject,
)
from qm.rpc.remote_management.properties import NULL
from qm.rpc.variants import Variant
from qm.wire.enums import VarType
from tests.cluster.harness import run
from tests.unit.api.world import Client
from tests.unit.rpc.reading import ORDERS, RpcWorld, rpc_world, with_orders
from tests.unit.rpc.vectors import vector

MACHINE = ManagementObject(1, Arm(1, 0))
SESSION = ManagementObject(3, Arm(3, 0))


@pytest.mark.spec("MR-2.2.3.2-38", "MR-2.2.3.2-39", "MR-2.2.3.2-40", "MR-1.9-01", "MR-2.2.1.2-01")
@pytest.mark.parametrize(
    ("name", "opnum", "is_request"),
    [
        ("action_request_pause", 1, True),
        ("getinfo_request_machine", 0, True),
        ("getinfo_request_queue", 0, True),
        ("getinfo_response_failed", 0, False),
        ("getinfo_response_machine", 0, False),
        ("getinfo_response_mixed", 0, False),
    ],
)
def test_the_stubs_of_the_guide_are_read_and_written(
    name: str, opnum: int, is_request: bool
) -> None:
    operation = QMMGMT.operations[opnum]
    parameters = operation.takes if is_request else operation.gives
    raw = vector(f"mqmr_{name}")
    values, end = parameters.unmarshal(raw)
    assert end == len(raw)
    assert parameters.marshal(values) == raw


@pytest.mark.spec("MR-2.2.1.2-01")
def test_an_object_is_two_tags_and_its_arm_at_four() -> None:
    takes = QMMGMT.operations[1].takes
    action = takes.marshal(ActionIn(MACHINE, "TIDY"))[8:]
    for kind in (1, 3):
        raw = pack("<HHI", kind, kind, 0x01020304) + action
        given = ActionIn(ManagementObject(kind, Arm(kind, 0x01020304)), "TIDY")
        assert takes.unmarshal(raw) == (given, len(raw))
        assert takes.marshal(given) == raw
    raw = pack("<HHI", 2, 2, 0) + action
    given = ActionIn(ManagementObject(2, Arm(2, None)), "TIDY")
    assert takes.unmarshal(raw) == (given, len(raw))
    assert takes.marshal(given) == raw
    raw = takes.marshal(ActionIn(queue(ORDERS), "TIDY"))
    assert raw[:4] == pack("<HH", 2, 2)
    assert raw[4:8] != bytes(4), "a pointer"
    assert raw[8:12] == b"\x03\0\0\0", "to a QUEUE_FORMAT"


@pytest.mark.spec("MR-2.2.3.2-40")
@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        (VarType.VECTOR_LPWSTR, ["a", "bc"]),
        (VarType.VECTOR_CLSID, [bytes(16), bytes(range(16))]),
        (VarType.VECTOR_UI4, [1, 2]),
        (VarType.VECTOR_VARIANT, [NULL, NULL]),
        (VarType.VECTOR_UI1, b"ab"),
        (VarType.BLOB, b"ab"),
    ],
)
def test_an_array_is_as_long_as_its_vector_says(kind: VarType, elements: Any) -> None:
    gives = QMMGMT.operations[0].gives
    raw = gives.marshal(InfoOut([Variant(kind, elements)], 0))
    count, conformance = slice(20, 24), slice(28, 32)
    assert raw[count] == raw[conformance] == pack("<I", 2)
    for place in (count, conformance):
        for other in (0, 1, 3):
            with pytest.raises(BadStub):
                gives.unmarshal(raw[: place.start] + pack("<I", other) + raw[place.stop :])
    with pytest.raises(BadStub):
        gives.unmarshal(raw[:24] + bytes(4) + raw[-4:])
    if kind == VarType.VECTOR_CLSID:
        assert raw[32:-4] == b"".join(elements)
    if kind == VarType.VECTOR_LPWSTR:  # both pointers, then both strings
        first, second = unpack("<II", raw[32:40])
        assert 0 != first != second != 0
        texts = pack("<III2s", 2, 0, 2, b"a") + bytes(2) + pack("<III4s", 3, 0, 3, b"b\0c")
        assert raw[40:-4] == texts + bytes(4)


@pytest.mark.spec("MR-2.2.1.2-02", "MR-2.2.1.2-03", "MR-3.1.4.1-01", "MR-3.1.4.1-02", "MR-3.1.4-04")
def test_stubs_that_contradict_themselves_are_refused() -> None:
    raw = vector("mqmr_getinfo_request_machine")
    for bad in (
        raw[:2] + b"\2" + raw[3:],
        b"\4\0\4\0" + raw[4:],
        raw[:8] + b"\0" + raw[9:],
        raw[:8] + b"\x81" + raw[9:],
        raw[:12] + b"\2" + raw[13:],
        *(raw[:cut] for cut in range(len(raw))),
    ):
        with pytest.raises(BadStub):
            QMMGMT.operations[0].takes.unmarshal(bad)
    assert set(QMMGMT.operations) == {0, 1}
    mixed = vector("mqmr_getinfo_response_mixed")
    for at in range(len(mixed)):
        try:
            QMMGMT.operations[0].gives.unmarshal(mixed[:at] + b"\xff" + mixed[at + 1 :])
        except BadStub:
            continue


def queue(name: str) -> ManagementObject:
    parsed: Any = parse_format_name(name)
    return ManagementObject(2, Arm(2, format_of(parsed)))


async def info(client: RpcClient, what: ManagementObject, *numbers: int) -> tuple[int, list[Any]]:
    given = InfoIn(what, len(numbers), list(numbers), [NULL for _ in numbers])
    found = await client.call(QMMGMT, 0, given)
    return found.status, [one.value for one in found.values]


async def act(client: RpcClient, what: ManagementObject, action: str) -> int:
    return int((await client.call(QMMGMT, 1, ActionIn(what, action))).status)


def in_world(scenario: Callable[[RpcWorld, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with rpc_world() as made, made.client(await made.leader()) as client:
            await scenario(made, client)

    run(main())


@pytest.mark.spec("MR-2.2.3.1-02", "MR-2.2.3.1-04", "MR-2.2.3.2-02", "MR-2.2.3.2-10", "MR-7-01")
def test_properties_of_the_machine_and_of_queues_are_read() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        caller = await world.caller(QMMGMT)
        status, values = await info(caller, MACHINE, 2, 3, 4, 5, 6, 2)
        assert status == 0
        assert values[0] == [r"QUORATE\private$\orders"]
        assert values[1:3] == [None, "CONNECTED"]
        assert values[3]
        assert values[4] > 0
        assert values[5] == values[0]
        status, (active,) = await info(caller, MACHINE, 1)
        assert len(active) == 1
        for name in (ORDERS, active[0]):
            status, values = await info(caller, queue(name), 1, 3, 4, 5, 6, 7, 11, 12, 13)
            assert (status, values) == (
                0,
                [
                    r"QUORATE\private$\orders",
                    "PRIVATE",
                    "LOCAL",
                    "NO",
                    "NO",
                    2,
                    "LOCAL CONNECTION",
                    None,
                    None,
                ],
            )
        status, (count, names, senders) = await info(caller, queue(ORDERS), 26, 27, 24)
        assert (count, names) == (0, [])
        assert [one.value for one in senders] == [[], b"", [], [], [], []] or len(senders) == 6
        every = await info(caller, queue(ORDERS), *range(1, 28))
        assert every[0] == 0
        for what, number, wanted in (
            (MACHINE, 7, 0xC00E0039),
            (queue(ORDERS), 28, 0xC00E0039),
            (SESSION, 1, 0xC00E0006),
            (ManagementObject(2, Arm(2, None)), 1, 0xC00E0006),
            (queue(r"DIRECT=OS:QUORATE\private$\none"), 1, 0xC00E0003),
        ):
            status, values = await info(caller, what, number)
            assert (status, values) == (wanted, [None]), wanted
        bob = await world.caller(QMMGMT, "bob")
        assert (await info(bob, MACHINE, 4))[0] == 0xC00E0025
        assert (await info(bob, queue(ORDERS), 7)) == (0, [2])
        paths = await world.caller(QMCOMM)
        asked = PathIn(r"QUORATE\private$\orders", ObjectFormat(1, Arm(1, None)))
        found = await paths.call(QMCOMM, 12, asked)
        assert found.status == 0
        assert text_of(found.found.queue.value) == active[0]

    in_world(scenario)


@pytest.mark.spec(
    "MR-3.1.4.2-02", "MR-3.1.4.2-03", "MR-3.1.4.2-07", "MR-3.1.4.2-10", "MR-3.1.4.2-12"
)
def test_actions_change_the_machine_and_outgoing_queues() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        away = r"DIRECT=OS:elsewhere.example\private$\q"
        await with_orders(client)
        await client.send(away, b"out")
        caller = await world.caller(QMMGMT)
        assert await act(caller, MACHINE, "disconnect") == 0
        assert (await info(caller, MACHINE, 4))[1] == ["DISCONNECTED"]
        assert await act(caller, MACHINE, "Connect") == 0
        assert (await info(caller, MACHINE, 4))[1] == ["CONNECTED"]
        assert await act(caller, MACHINE, "TIDY") == 0
        for _ in range(2):
            assert await act(caller, queue(away), "Pause") == 0
        status, (state, where, count) = await info(caller, queue(away), 11, 4, 7)
        assert (status, state, where, count) == (0, "ONHOLD", "REMOTE", 1)
        assert await act(caller, queue(away), "resume") == 0
        assert (await info(caller, queue(away), 11))[1] != ["ONHOLD"]
        assert await act(caller, queue(away), "Eod_Resend") == 0
        for what, action, wanted in (
            (MACHINE, "PAUSE", 0xC00E0006),
            (MACHINE, "ERASE", 0xC00E0006),
            (SESSION, "TIDY", 0xC00E0006),
            (queue(ORDERS), "PAUSE", 0xC00E0006),
            (queue(ORDERS), "CONNECT", 0xC00E0006),
            (queue(r"DIRECT=OS:QUORATE\private$\none"), "PAUSE", 0xC00E0003),
        ):
            assert await act(caller, what, action) == wanted, action
        bob = await world.caller(QMMGMT, "bob")
        assert await act(bob, MACHINE, "DISCONNECT") == 0xC00E0025

    in_world(scenario)


@pytest.mark.spec("MR-2.2.3.2-38")
def test_elements_start_on_eight_and_arms_are_as_wide_as_their_types() -> None:
    values = [
        *(NULL, Variant(VarType.UI1, 200), Variant(VarType.I2, -2), Variant(VarType.I4, -4)),
        *(Variant(VarType.I8, -3), Variant(VarType.BOOL, True), NULL),
    ]
    raw = QMMGMT.operations[0].gives.marshal(InfoOut(values, 7))
    starts = {8: b"", 24: b"\xc8", 40: b"\xfe\xff", 56: b"\xfc" + b"\xff" * 3}
    starts |= {72: b"\xfd" + b"\xff" * 7, 96: b"\xff\xff", 112: b""}
    for (at, arm), value in zip(starts.items(), values, strict=True):
        assert raw[at : at + 10] == pack("<H6xH", value.kind, value.kind)
        start = at + 10 + -10 % max(len(arm), 1)
        assert raw[start : start + len(arm)] == arm
    # The status is behind the last one, which has no arm.
    assert raw[124:] == pack("<I", 7)
    padded = raw[:35] + b"\xaa" + raw[36:]
    assert QMMGMT.operations[0].gives.unmarshal(padded)[0] == InfoOut(values, 7)


def test_variants_of_every_type_come_back() -> None:
    values = [
        Variant(VarType.I2, -2),
        Variant(VarType.UI1, 200),
        Variant(VarType.UI8, 1 << 63),
        Variant(VarType.CLSID, bytes(range(16))),
        Variant(VarType.BLOB, b"abc"),
        Variant(VarType.VECTOR_UI1, b"abcd"),
        Variant(VarType.VECTOR_CLSID, [bytes(16), bytes(range(16))]),
        Variant(VarType.VECTOR_LPWSTR, ["a", "bc"]),
        Variant(VarType.VECTOR_VARIANT, [Variant(VarType.VECTOR_I4, [1, -1]), NULL]),
    ]
    parameters = QMMGMT.operations[0].gives

    raw = parameters.marshal(InfoOut(values, 7))
    assert parameters.unmarshal(raw)[0] == InfoOut(values, 7)
