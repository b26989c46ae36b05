"""What a queue's objects say of their state, as the types of their interfaces [MC-MQAC 3.10, 3.11].

The numbers are the specification's.
"""

from __future__ import annotations

import pytest

from qm.rpc.dcom.automation.dispatch import InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError
from tests.unit.rpc.dcom.scripts import RECEIVE, Late, Program, play, slot

E_NOTIMPL = 0x8000_4001
OLE_E_BLANK = 0x8004_0007
INVALID_HANDLE = 0xC00E_0007
QUEUE, INFO = "IMSMQQueue4", "IMSMQQueueInfo4"
GET = InvokeFlag.PROPERTYGET | InvokeFlag.METHOD


async def invoked(late: Late, name: str) -> Variant:
    """What Invoke answers, with its type."""
    result, *_, status = await late.invoke(name, GET, arguments_of([]))
    assert status == 0, hex(status)
    assert isinstance(result, Variant)
    return result


async def gets(late: Late, interface: str, name: str, in_slot: int, by_name: Variant) -> None:
    assert await slot(late, interface, name) == in_slot
    assert await invoked(late, name) == by_name


@pytest.mark.spec("AC-3.11.4.1.5-01", "AC-3.11.4.1.32-01", "AC-3.11.4.1.20-01", "AC-3.11.1.1-01")
def test_a_queue_is_open_or_closed_or_blank() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue, blank = await program.opened(RECEIVE), await program.create("MSMQQueue")
        await gets(queue, QUEUE, "IsOpen", 1, Variant(VarType.I2, 1))
        await gets(queue, QUEUE, "IsOpen2", -1, Variant(VarType.BOOL, 0xFFFF))
        await queue.call("Close")
        await gets(queue, QUEUE, "IsOpen", 0, Variant(VarType.I2, 0))
        await gets(queue, QUEUE, "IsOpen2", 0, Variant(VarType.BOOL, 0))
        for name in ("IsOpen", "IsOpen2", "Handle2"):
            for get in (slot(blank, QUEUE, name), blank.get(name)):
                with pytest.raises(ComError) as refused:
                    await get
                assert refused.value.status == OLE_E_BLANK
        for name in ("Access", "ShareMode", "Handle", "Handle2"):
            for get in (slot(queue, QUEUE, name), queue.get(name)):
                with pytest.raises(ComError) as refused:
                    await get
                assert refused.value.status == INVALID_HANDLE, name
        for name in (
            "Close", "Reset", "Purge", "Receive", "Peek", "ReceiveCurrent", "PeekCurrent",
            "PeekNext", "ReceiveFirstByLookupId", "PeekLastByLookupId",
        ):  # fmt: skip
            with pytest.raises(ComError) as refused:
                await queue.call(name)
            assert refused.value.status == INVALID_HANDLE, name

    play(scenario)


@pytest.mark.spec("AC-3.10.4.1.10-02", "AC-3.10.4.1.35-01")
def test_a_queue_is_transactional_or_not() -> None:
    async def scenario(program: Program) -> None:
        for path, is_so in ((r".\private$\plain", False), (r".\private$\exact", True)):
            info = await program.new_queue(path, transactional=is_so)
            await gets(info, INFO, "IsTransactional", int(is_so), Variant(VarType.I2, int(is_so)))
            true = Variant(VarType.BOOL, 0xFFFF)
            by_name = true if is_so else Variant(VarType.BOOL, 0)
            await gets(info, INFO, "IsTransactional2", -int(is_so), by_name)

    play(scenario)


@pytest.mark.spec("AC-3.10.4.1.32-01", "AC-3.10.4.1.33-01", "AC-3.10.4.1.34-01")
def test_nobody_has_properties_or_security_of_a_queue() -> None:
    async def scenario(program: Program) -> None:
        security = Variant(VarType.BSTR, "")
        for info in (await program.new_queue(), await program.create("MSMQQueueInfo")):
            for call in (
                slot(info, INFO, "Properties"),
                info.get("Properties"),
                slot(info, INFO, "Security"),
                info.get("Security"),
                slot(info, INFO, "Security", "put", security),
                info.put("Security", security),
            ):
                with pytest.raises(ComError) as refused:
                    await call
                assert refused.value.status == E_NOTIMPL

    play(scenario)
