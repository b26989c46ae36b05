"""Parameters that a node does not take: fault 6F7, and no method has run."""

import struct
from typing import Any

import pytest

from qm.rpc.interface import Fault
from qm.rpc.path_names import QMCOMM
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from tests.unit.api.world import Client
from tests.unit.rpc.reading import ACK, PEEK_CURRENT, RpcWorld, with_orders
from tests.unit.rpc.test_remote_read import in_world
from tests.unit.rpc.vectors import vector

BAD_STUB = 0x6F7
MACHINE = struct.Struct("<HHI")
"""MGMT_OBJECT of the machine: its type, the union's tag, which is the same, and the arm."""


async def fault_of(client: Any, interface: Any, opnum: int, stub: bytes) -> int:
    """The status of a call's fault; 0: it was answered."""
    try:
        await client.raw_call(interface, opnum, stub)
    except Fault as fault:
        return fault.status
    return 0


@pytest.mark.spec("RP-RPCE-3.1.1.5.3.1-01", "RP-C706-14.3.8-02")
def test_counts_and_tags_that_disagree_are_faults() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        caller = await world.caller(QMMGMT)

        def info(kind: int, tag: int, count: int, properties: int, values: int) -> bytes:
            what = MACHINE.pack(kind, tag, 0)
            return what + rest_of_info(what, count, properties, values)

        for given, is_right in (
            ((1, 1, 1, 1, 1), True),
            ((1, 1, 2, 2, 2), True),
            ((1, 1, 1, 2, 2), False),
            ((1, 1, 2, 1, 2), False),
            ((1, 1, 2, 2, 1), False),
            ((1, 1, 2, 1, 1), False),
            ((1, 3, 1, 1, 1), False),
            ((3, 1, 1, 1, 1), False),
            ((4, 4, 1, 1, 1), False),
            ((0, 0, 1, 1, 1), False),
        ):
            status = await fault_of(caller, QMMGMT, 0, info(*given))
            assert status == (0 if is_right else BAD_STUB), given
        # R_QMMgmtAction, too, and in remote read the format of a queue and a token.
        for kind, tag in ((1, 3), (3, 1), (4, 4)):
            action = struct.pack("<III", 1, 0, 1) + bytes(2)
            stub = MACHINE.pack(kind, tag, 0) + action
            assert await fault_of(caller, QMMGMT, 1, stub) == BAD_STUB
        reader = (await world.reader()).client
        enlist = vector("mqrr_enlist_request")
        opened = vector("mqrr_openqueue_request_direct")
        assert await fault_of(reader, REMOTE_READ, 12, enlist) == 0
        for size in (0, 7, 9):
            stub = enlist[:16] + struct.pack("<I", size) + enlist[20:]
            assert await fault_of(reader, REMOTE_READ, 12, stub) == BAD_STUB
        for kind, tag in ((1, 3), (3, 8), (9, 9)):
            stub = bytes((kind,)) + opened[1:4] + bytes((tag,)) + opened[5:]
            assert await fault_of(reader, REMOTE_READ, 2, stub) == BAD_STUB
        assert await fault_of(reader, REMOTE_READ, 2, opened) != BAD_STUB

    in_world(scenario)


def rest_of_info(what: bytes, count: int, properties: int, values: int, vt: int = 1) -> bytes:
    """What stands behind the object in R_QMMgmtGetInfo; `vt`: type and tag of each value."""
    head = struct.pack("<II", count, properties) + struct.pack("<I", 1) * properties
    head += struct.pack("<I", values)
    return head + bytes(-len(what + head) % 8) + struct.pack("<H6x", vt) * 2 * values


@pytest.mark.spec("RP-C706-14.3.8-02")
def test_a_tag_without_arm_is_a_fault_with_or_without_bytes_of_one() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        caller = await world.caller(QMMGMT)
        for arm in (b"", bytes(4)):
            for tag in (0, 4):
                what = struct.pack("<HH", tag, tag) + arm
                stub = what + rest_of_info(what, 1, 1, 1)
                assert await fault_of(caller, QMMGMT, 0, stub) == BAD_STUB, (tag, arm)
        what = MACHINE.pack(1, 1, 0)
        for vt in (0, 1, 0x0C, 0x0D, 0x24, 0x1000, 0x2000):
            status = await fault_of(caller, QMMGMT, 0, what + rest_of_info(what, 1, 1, 1, vt))
            assert status == (0 if vt in (0, 1) else BAD_STUB), hex(vt)
        reader = (await world.reader()).client
        rest = struct.pack("<II16xIBBHI", 1, 0, 1, 6, 1, 7601, 1)
        for tag in (0, 9):  # the first one has an arm, of no bytes
            stub = struct.pack("<BBHB3x", tag, 0, 0, tag) + rest
            assert (await fault_of(reader, REMOTE_READ, 2, stub) == BAD_STUB) is (tag == 9)
        paths = await world.caller(QMCOMM)
        path = "quorate\\private$\\orders\0".encode("utf-16-le")
        units = len(path) // 2
        text = struct.pack("<III", units, 0, units) + path
        for tag in (0, 1, 2):
            stub = text + bytes(-len(text) % 4) + struct.pack("<III", tag, tag, 0)
            status = await fault_of(paths, QMCOMM, 12, stub)
            assert status == (0 if tag == 1 else BAD_STUB), tag

    in_world(scenario)


@pytest.mark.spec("RP-RPCE-3.1.1.5.3.3-02", "RP-C706-14.3.11-01")
def test_a_text_without_its_end_is_a_fault() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = (await world.reader()).client
        text = r"OS:quorate\private$\orders".encode("utf-16-le")
        units = len(text) // 2

        def open_(room: int, actual: int, raw: bytes) -> bytes:
            # The QUEUE_FORMAT is a reference pointer: it stands there itself, and its text behind.
            head = struct.pack("<BBHII", 3, 0, 0, 3, 0x20000)
            counted = struct.pack("<III", room, 0, actual) + raw
            rest = struct.pack("<II", 1, 0) + bytes(16) + struct.pack("<IBBHI", 1, 6, 1, 7601, 1)
            return head + counted + bytes(-len(counted) % 4) + rest

        handle = await reader.raw_call(REMOTE_READ, 2, open_(units + 1, units + 1, text + bytes(2)))
        assert len(handle) == 20, "what a reference pointer of the results points to, and no more"
        for room, actual, raw in (
            (units, units, text),
            (units + 1, units, text),
            (units + 2, units + 2, text + b"\0\0x\0"),
            (units + 1, units + 1, text + b"x\0"),
            (0, 0, b""),
        ):
            stub = open_(room, actual, raw)
            assert await fault_of(reader, REMOTE_READ, 2, stub) == BAD_STUB, (room, actual)
        assert await reader.raw_call(REMOTE_READ, 3, handle) == bytes(24), "nil, and 0"

    in_world(scenario)


@pytest.mark.spec("RP-RPCE-2.2.4.14-01")
def test_no_method_runs_with_a_value_out_of_its_range() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        lent = await reader.start(handle, request=1)
        for opnum in (9, 15):
            for ack in (0, 3, 1 << 31):
                stub = handle_stub(handle) + struct.pack("<II", ack, 1)
                assert await fault_of(reader.client, REMOTE_READ, opnum, stub) == BAD_STUB
        hidden = (await reader.start(handle, PEEK_CURRENT)).status
        assert hidden == 0xC00E001B, "it is lent as before"
        assert await reader.end(handle, ACK, request=1) == 0
        assert lent.status == 0
        # cbPropagationToken: up to 128 KB; what is beyond is refused before it is looked for.
        enlist = vector("mqrr_enlist_request")
        stub = enlist[:16] + struct.pack("<I", 0x8000_0000) + enlist[20:]
        assert await fault_of(reader.client, REMOTE_READ, 12, stub) == BAD_STUB
        for size, is_within in ((131_072, True), (131_073, False)):
            token = struct.pack("<II", size, size) + bytes(size + -size % 4)
            stub = enlist[:16] + token + enlist[32:]
            status = await fault_of(reader.client, REMOTE_READ, 12, stub)
            assert status == (0 if is_within else BAD_STUB)
        caller = await world.caller(QMMGMT)
        for count in (0, 129):
            what = MACHINE.pack(1, 1, 0)
            stub = what + rest_of_info(what, count, count, count)
            assert await fault_of(caller, QMMGMT, 0, stub) == BAD_STUB, count

    in_world(scenario)


def handle_stub(handle: bytes) -> bytes:
    """A context handle as it is in a stub."""
    return bytes(4) + handle
