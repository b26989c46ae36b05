"""Scripts against a node: created, named and invoked as a scripting language does."""

from __future__ import annotations

import pytest

from qm.rpc.dcom.automation.dispatch import (
    DISPID_PROPERTYPUT,
    Arguments,
    InvokeFlag,
    arguments_of,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import FaultStatus
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import RECEIVE, dcom_world


@pytest.mark.spec("RP-OAUT-3.1.4.4-01", "AC-3.17.4.1.25-02")
def test_a_script_creates_a_queue_sends_and_receives() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.queue_info()
            await info.put("Label", "incoming orders")
            await info.call("Create")
            await info.call("Refresh")
            assert await info.get("Label") == "incoming orders"
            sent = await program.send("hello", "greeting")
            result, *_, status = await sent.invoke("Id", InvokeFlag.PROPERTYGET, arguments_of([]))
            assert (status, result.vt) == (0, 0x2011), "VT_ARRAY | VT_UI1"
            assert len(result.value.items) == 20
            assert await sent.get("Id") == result.value.items
            queue = await program.opened(RECEIVE)
            message = await queue.call("Receive", ReceiveTimeout=1000)
            assert await message.get("Body") == "hello"
            assert await message.get("Label") == "greeting"
            assert await message.get("Id") == await sent.get("Id")
            with pytest.raises(ComError) as nothing:
                await queue.call("Receive", ReceiveTimeout=0)
            assert nothing.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            await queue.call("Close")
            program.close()

    run(scenario())


@pytest.mark.spec("RP-OAUT-3.1.4.3-01", "RP-OAUT-3.1.4.4-03")
def test_members_that_are_not_there_and_arguments_that_do_not_fit() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.create("MSMQQueueInfo")
            with pytest.raises(ComError) as unknown:
                await info.get("Colour")
            assert unknown.value.status == Hresult.DISP_E_UNKNOWNNAME
            with pytest.raises(ComError) as missing:
                await info.get(4711)
            assert missing.value.status == Hresult.DISP_E_MEMBERNOTFOUND
            with pytest.raises(ComError) as few:
                await info.call("Open", 1)
            assert few.value.status == Hresult.DISP_E_BADPARAMCOUNT
            with pytest.raises(ComError) as many:
                await info.call("Delete", 1)
            assert many.value.status == Hresult.DISP_E_BADPARAMCOUNT
            with pytest.raises(ComError) as misfit:
                await info.call("Open", "one", 0)
            assert misfit.value.status == Hresult.DISP_E_TYPEMISMATCH
            program.close()

    run(scenario())


@pytest.mark.spec("RP-OAUT-3.1.4.4-01")
def test_a_put_says_by_its_name_which_argument_is_the_new_value() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program()
            info = await program.queue_info()
            await info.put("Label", "before")
            one = Variant(VarType.BSTR, "after")
            put, put_ref = InvokeFlag.PROPERTYPUT, InvokeFlag.PROPERTYPUTREF
            for flags, names, values, wanted in (
                (put, [], [one], Hresult.DISP_E_PARAMNOTFOUND),
                (put, [0], [one], Hresult.DISP_E_PARAMNOTFOUND),
                (put, [], [], Hresult.DISP_E_PARAMNOTFOUND),
                (put_ref, [], [one], Hresult.DISP_E_PARAMNOTFOUND),
                (put, [DISPID_PROPERTYPUT, 0], [one, one], Hresult.DISP_E_PARAMNOTFOUND),
                (put, [DISPID_PROPERTYPUT], [one, one], Hresult.DISP_E_BADPARAMCOUNT),
            ):
                given = Arguments(values, names, 0, 0)
                _, told, place, _, status = await info.invoke("Label", flags, given)
                assert (status, told.scode, place) == (wanted, 0, 0)
                assert await info.get("Label") == "before"
            named = Arguments([one], [DISPID_PROPERTYPUT], 0, 0)
            assert (await info.invoke("Label", put, named))[-1] == Hresult.S_OK
            assert await info.get("Label") == "after"
            program.close()

    run(scenario())


@pytest.mark.spec("RP-DCOM-3.1.2.5.2.3-02")
def test_nobody_creates_objects_without_logging_on() -> None:
    async def scenario() -> None:
        async with dcom_world() as world:
            program = await world.program(user="")
            with pytest.raises(Fault) as refused:
                await program.create("MSMQQueueInfo")
            assert refused.value.status == FaultStatus.ACCESS_DENIED
            program.close()

    run(scenario())
