"""What a node answers in place of a result: faults, failures, and a NULL at an end."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from typing_extensions import override

from qm.rpc.dcom.automation.type_interfaces import (
    ITYPECOMP,
    ITYPEINFO,
    ITYPEINFO2,
    ITYPELIB,
    ITYPELIB2,
)
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.activation import ICLASSFACTORY
from qm.rpc.dcom.runtime.orpc import orpc_interface, orpc_operation
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN, IREMUNKNOWN2
from qm.rpc.interface import Fault
from qm.rpc.ndr.streams import Writer
from qm.rpc.ndr.types import U32, Type
from tests.cluster.harness import make_queue_manager, run
from tests.unit.rpc.dcom.scripts import Program, clsid, dcom_world, iid, opnum, play, slot
from tests.unit.rpc.dcom.test_automation import written

MESSAGE = "IMSMQMessage4"


class Bytes(Type[bytes]):
    """Whatever a client writes."""

    @override
    def write(self, writer: Writer, value: bytes) -> None:
        writer.put(value)


def changed(variant: Variant, vt: int, tag: int) -> bytes:
    """A variant behind a pointer, with another type and another tag."""
    raw = bytearray(written(variant))
    struct.pack_into("<H", raw, 8, vt)
    struct.pack_into("<I", raw, 16, tag)
    return struct.pack("<II", 0x0002_0000, 0) + bytes(raw)


@pytest.mark.spec("RP-OAUT-2.2.29.1-02", "RP-C706-14.3.8-02")
def test_a_variant_of_no_type_or_another_tag_is_a_fault() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        ref = await message.by(iid(MESSAGE))
        put = opnum(MESSAGE, "Body", "put")
        raw = orpc_interface(MESSAGE, ref.iid, {put: orpc_operation("put", (Bytes(),), (U32,))})
        number, array = Variant(VarType.I4, 7), array_of(VarType.UI1, b"abc")
        assert await program.server.call(ref.ipid, raw, put, [changed(number, 3, 3)]) == [0]
        for variant, vt, tag in (
            (number, 3, 2),
            (number, 2, 3),
            (number, 3, 0x4003),
            (number, 0x24, 0x24),
            (number, 15, 15),
            (number, 0x4000, 0x4000),
            (array, 0x2011, 0x2011),
            (array, 0x2011, 0x4000),
            (array, 0x2000, 0x2000),
            (array, 0x2024, 0x2000),
        ):
            with pytest.raises(Fault) as fault:
                await program.server.call(ref.ipid, raw, put, [changed(variant, vt, tag)])
            assert fault.value.status == 0x6F7, (hex(vt), hex(tag))
        assert await message.get("Body") == 7
        given = changed(array, 0x2011, 0x2000)
        assert await program.server.call(ref.ipid, raw, put, [given]) == [0]
        assert await message.get("Body") == b"abc"

    play(scenario)


@pytest.mark.spec("RP-DCOM-3.1.1.5.4-06")
def test_no_interface_has_the_slots_of_iunknown() -> None:
    async def scenario(program: Program) -> None:
        (info,) = await program.server.create(clsid("MSMQQueueInfo"), iid("IMSMQQueueInfo4"))
        described = (ITYPEINFO, ITYPEINFO2, ITYPELIB, ITYPELIB2, ITYPECOMP)
        own = (ICLASSFACTORY, IREMUNKNOWN, IREMUNKNOWN2)
        for one in (*object_interfaces().values(), *described, *own):
            slots = {number: orpc_operation("slot", (), (U32,)) for number in range(3)}
            called = orpc_interface(one.name, one.syntax.uuid, slots)
            for number in slots:
                with pytest.raises(Fault) as fault:
                    await program.server.call(info.ipid, called, number, [])
                assert fault.value.status == 0x1C010002, (one.name, number)

    play(scenario)


@pytest.mark.spec("AC-3.1.3-01")
def test_there_are_no_objects_before_there_is_a_queue_manager() -> None:
    async def scenario() -> None:
        async with dcom_world(is_provisioned=False) as world:
            program = await world.program()
            with pytest.raises((ComError, TimeoutError)):
                async with asyncio.timeout(1):
                    await program.create("MSMQApplication")
            program.close()
            await make_queue_manager(world.harness)
            program = await world.program()
            application = await program.create("MSMQApplication")
            assert await application.get("Machine") == "QUORATE"
            program.close()

    run(scenario())


@pytest.mark.spec("AC-3.14.4.1.2-03", "AC-3.14.4.1.1-02", "AC-3.14.4.1.2-02")
def test_results_end_with_a_null_pointer_and_an_application_s_own_never_begin() -> None:
    async def scenario(program: Program) -> None:
        info = await program.queue_info(r"QUORATE\found")
        await info.call("Create")
        query = await program.create("MSMQQuery")
        infos = await query.call("LookupQueue")
        names = ("IMSMQQueueInfos", "IMSMQQueueInfos2", "IMSMQQueueInfos3", "IMSMQQueueInfos4")
        for name in names:
            ref = await infos.by(iid(name))
            served = object_interfaces()[ref.iid]
            await infos.call("Reset")
            following = opnum(name, "Next")
            first, status = await program.server.call(ref.ipid, served, following, [])
            assert (first is not None, status) == (True, 0)
            for _ in range(2):
                assert await program.server.call(ref.ipid, served, following, []) == [None, 0]
        own: Any = await program.create("MSMQQueueInfos")
        for name in names:
            for call in ("Reset", "Next"):
                with pytest.raises(ComError) as refused:
                    await slot(own, name, call, "method")
                assert refused.value.status & 0x8000_0000

    play(scenario)
