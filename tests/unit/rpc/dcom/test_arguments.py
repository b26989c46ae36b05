"""References that travel with arguments: a client counts them as its own no more.

Its COM library sends one of several, gets more where it has but one, and releases what is left
[MS-DCOM 3.2.4.3].
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from qm.rpc.dcom.automation.dispatch import IDISPATCH, Arguments, InvokeFlag
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import BYREF, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import Objref, write_objref
from qm.rpc.interface import Fault
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    eventually,
    play,
    slot,
)


class Counted:
    """A reference as a COM library keeps it."""

    def __init__(self, late: Late) -> None:
        self.late = late
        self.left = late.ref.public_refs

    def sent(self) -> bytes:
        """An argument."""
        self.left -= 1
        assert self.left, "it would have asked for more"
        return write_objref(replace(self.late.ref, public_refs=1))

    async def release(self) -> None:
        """Set ... = Nothing."""
        await self.late.server.release(replace(self.late.ref, public_refs=self.left))

    async def is_gone(self) -> bool:
        try:
            await self.late.server.call(self.late.ref.ipid, IDISPATCH, 3, [])
        except Fault as fault:
            return fault.status == Hresult.RPC_E_DISCONNECTED
        return False


@pytest.mark.spec("RP-DCOM-3.1.1.5.3-01")
def test_an_object_that_was_an_argument_ends_with_its_last_reference() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        message = await program.create("MSMQMessage")

        async def by_name(raw: bytes) -> None:
            await message.call("Send", Variant(VarType.DISPATCH, raw))

        async def by_slot(raw: bytes) -> None:
            await slot(message, "IMSMQMessage4", "Send", "method", raw, OMITTED)

        async def by_reference(raw: bytes) -> None:
            nested = Variant(BYREF | VarType.VARIANT, Variant(VarType.DISPATCH, raw))
            number = await message.number("Send")
            arguments = Arguments([Variant()], [], 0, 0)
            given = [number, NULL, 0x409, InvokeFlag.METHOD, arguments, 1, [0], [nested]]
            *_, echoed, status = await program.server.call(message.ref.ipid, IDISPATCH, 6, given)
            assert status == 0
            back = program.late(echoed[0].value)
            assert back.ref.oid == target.late.ref.oid
            target.left += back.ref.public_refs

        async def in_an_array(raw: bytes) -> None:
            given = array_of(VarType.VARIANT, [Variant(VarType.DISPATCH, raw)])
            with pytest.raises(ComError):  # not what it takes, and sent nevertheless
                await message.call("Send", given)

        for way in (by_name, by_slot, by_reference, in_an_array):
            target = Counted(await program.opened(SEND))
            for _ in range(3):
                await way(target.sent())
            assert await target.late.get("IsOpen2") is True
            assert not await target.is_gone()
            await target.release()
            assert await target.is_gone(), way.__name__

    play(scenario)


def test_a_transaction_that_a_program_drops_returns_what_it_read() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(transactional=True)
        await program.send("body", "", r".\private$\orders", 3)
        queue = await program.opened(RECEIVE)
        dispenser = await program.create("MSMQTransactionDispenser")
        begun = Counted(await dispenser.call("BeginTransaction"))
        raw = Variant(VarType.DISPATCH, begun.sent())
        assert await (await queue.call("Receive", raw, ReceiveTimeout=0)).get("Body") == "body"
        await begun.release()

        async def is_back() -> bool:
            try:
                await queue.call("Peek", ReceiveTimeout=0)
            except ComError:
                return False
            return True

        await eventually(is_back)

    play(scenario)


def test_who_sends_all_that_it_has_keeps_its_object() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        target = await program.opened(SEND)
        message = await program.create("MSMQMessage")
        other = await program.create("MSMQMessage")
        for _ in range(3):
            await message.call("Send", target)
        assert await target.get("IsOpen2") is True
        # A reference whose parts belong to different objects takes nothing of either.
        mixed: Any = replace(target.ref, ipid=other.ref.ipid, public_refs=5)
        assert isinstance(mixed, Objref)
        await message.call("Send", Variant(VarType.DISPATCH, write_objref(mixed)))
        await other.server.release(replace(other.ref, public_refs=4))
        assert await other.get("Label") == ""
        await target.release()
        assert await Counted(target).is_gone()

    play(scenario)
