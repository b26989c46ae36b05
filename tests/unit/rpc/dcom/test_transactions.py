"""Which VARIANTs a Transaction may be, of every method that takes one [MC-MQAC 3.11.4, 3.17.4]."""

from __future__ import annotations

from typing import Any

import pytest

from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import BYREF, VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac import callers
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.runtime.objref import write_objref
from qm.wire.codes import ErrorCode
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    eventually,
    play,
    pointed,
    slot,
)

LABELS = ["first", "second", "third"]
# In the order of MQTRANSACTION: none, MTS, XA, single message.
OTHER_TYPES = [
    Variant(VarType.BSTR, "0"),
    Variant(VarType.BSTR, "3"),
    Variant(VarType.R4, 0.0),
    Variant(VarType.R8, 0.0),
    Variant(VarType.R8, 1.7),
    Variant(VarType.CY, 0),
    Variant(VarType.DATE, 0.0),
    Variant(VarType.BOOL, 0),
    Variant(VarType.BOOL, 0xFFFF),
    Variant(VarType.I8, 0),
    Variant(VarType.UI8, 3),
    Variant(VarType.ERROR, 0),
    array_of(VarType.UI1, b"\0\0\0\0"),
    Variant(VarType.UNKNOWN, None),
    Variant(BYREF | VarType.BSTR, "0"),
    Variant(BYREF | VarType.VARIANT, Variant(VarType.R8, 0.0)),
]
NUMBERS = [
    Variant(VarType.I4, 0),
    Variant(VarType.I4, 3),
    Variant(VarType.I2, 0),
    Variant(VarType.I2, 1),
    Variant(VarType.UI1, 2),
    Variant(VarType.INT, 0),
    Variant(BYREF | VarType.I4, 0),
    Variant(BYREF | VarType.VARIANT, Variant(VarType.I2, 0)),
]
READS = {
    "Receive_v1": "AC-3.11.4.1.7-05",
    "ReceiveCurrent_v1": "AC-3.11.4.1.11-05",
    "Receive": "AC-3.11.4.1.14-05",
    "ReceiveCurrent": "AC-3.11.4.1.16-05",
    "ReceiveByLookupIdAllowPeek": "AC-3.11.4.1.33-06",
}
READS_BY_LOOKUP_ID = {
    "ReceiveByLookupId": "AC-3.11.4.1.21-06",
    "ReceiveNextByLookupId": "AC-3.11.4.1.22-06",
    "ReceivePreviousByLookupId": "AC-3.11.4.1.23-06",
    "ReceiveFirstByLookupId": "AC-3.11.4.1.24-05",
    "ReceiveLastByLookupId": "AC-3.11.4.1.25-05",
}


class Desk:
    """A transactional queue of three messages, called through slots and by name."""

    def __init__(self, program: Program, queue: Late) -> None:
        self.program = program
        self.queue = queue
        self.lookup_ids: dict[str, int] = {}

    async def begin(self) -> Late:
        dispenser = await self.program.create("MSMQTransactionDispenser")
        found = await dispenser.call("BeginTransaction")
        assert isinstance(found, Late)
        return found

    async def labels(self) -> list[str]:
        """What is in the queue; the cursor goes back to the beginning."""
        await self.queue.call("Reset")
        self.lookup_ids = {}
        name = "PeekCurrent"
        while True:
            try:
                found = await self.queue.call(name, ReceiveTimeout=0)
            except ComError:
                await self.queue.call("Reset")
                return list(self.lookup_ids)
            self.lookup_ids[await found.get("Label")] = int(await found.get("LookupId"))
            name = "PeekNext"

    def arguments(self, name: str, transaction: Variant) -> dict[str, Variant]:
        """The [in] arguments with which a method reads a message, in their order."""
        start = {"ReceiveNextByLookupId": "first", "ReceivePreviousByLookupId": "third"}
        lookup_id = self.lookup_ids[start.get(name, "second")]
        known = {
            "LookupId": Variant(VarType.UI8, lookup_id),
            "Transaction": transaction,
            "ReceiveTimeout": Variant(VarType.I4, 0),
        }
        method = next(one for one in definitions().methods("IMSMQQueue4") if one.name == name)
        return {
            one.name: known.get(one.name, OMITTED) for one in method.parameters if not one.is_out
        }

    async def by_slot(self, name: str, given: dict[str, Variant]) -> Late:
        """Call the queue's vtable."""
        raw = await slot(self.queue, "IMSMQQueue4", name, "method", *given.values())
        return await Late(self.program.server, pointed(raw)).as_dispatch()

    async def by_name(self, name: str, given: dict[str, Variant]) -> Late:
        """Invoke it, as a script does."""
        found = await self.queue.call(name, **given)
        assert isinstance(found, Late)
        return found


async def desk(program: Program) -> Desk:
    await program.new_queue(transactional=True)
    made = Desk(program, await program.opened(RECEIVE))
    for label in LABELS:
        await program.send("body", label, r".\private$\orders", Variant(VarType.I4, 3))
    return made


def rows(reads: dict[str, str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.spec(row)) for name, row in reads.items()]


async def reads_nothing(made: Desk, name: str) -> None:
    """Assert that each other type is an error, and that every message is still there."""
    assert await made.labels() == LABELS
    for wrong in [*OTHER_TYPES, Variant(VarType.DISPATCH, write_objref(made.queue.ref))]:
        given = made.arguments(name, wrong)
        with pytest.raises(ComError) as refused:
            await made.by_slot(name, given)
        assert refused.value.status == Hresult.E_INVALIDARG, wrong
        with pytest.raises(ComError) as refused:
            await made.by_name(name, given)
        # A queue is of the right type, and refused by what it is.
        is_type = wrong.vt == VarType.DISPATCH
        expected = Hresult.E_INVALIDARG if is_type else Hresult.DISP_E_TYPEMISMATCH
        assert refused.value.status == expected, wrong
        assert await made.labels() == LABELS, wrong


async def reads_in_transactions(made: Desk, name: str) -> None:
    """Assert that the same calls read, with what is a transaction."""
    for call, vartype in (
        (made.by_slot, VarType.DISPATCH),
        (made.by_name, BYREF | VarType.DISPATCH),
    ):
        transaction = await made.begin()
        given = Variant(vartype, write_objref(transaction.ref))
        found = await call(name, made.arguments(name, given))
        assert await found.get("Label") in LABELS
        await transaction.call("Abort")
        assert await made.labels() == LABELS  # it was that transaction's


@pytest.mark.parametrize("name", rows(READS))
def test_a_transaction_of_another_type_reads_nothing(name: str) -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        await reads_nothing(made, name)
        await reads_in_transactions(made, name)

    play(scenario)


@pytest.mark.parametrize("name", rows(READS_BY_LOOKUP_ID))
def test_nor_does_it_by_lookup_identifier(name: str) -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        await reads_nothing(made, name)
        await reads_in_transactions(made, name)

    play(scenario)


@pytest.mark.spec("AC-3.11.4-04")
@pytest.mark.parametrize("name", ["Receive", "ReceiveCurrent", "ReceiveByLookupId"])
def test_a_transaction_is_an_object_or_a_number(name: str) -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        await reads_nothing(made, name)
        await reads_in_transactions(made, name)

    play(scenario)


@pytest.mark.spec("AC-3.11.4-04", "AC-2.2.2.1-03")
def test_numbers_of_transactions_may_be_as_narrow_as_a_script_s_literals() -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        for call in (made.by_slot, made.by_name):
            for number in NUMBERS:
                before = await made.labels()
                found = await call("Receive", made.arguments("Receive", number))
                assert await found.get("Label") == before[0], number
                assert await made.labels() == before[1:], number
                await made.program.send(
                    "body", before[0], r".\private$\orders", Variant(VarType.I4, 3)
                )
        before = await made.labels()
        for unknown in (Variant(VarType.I4, 4), Variant(VarType.I2, -1)):
            for call in (made.by_slot, made.by_name):
                with pytest.raises(ComError) as refused:
                    await call("Receive", made.arguments("Receive", unknown))
                assert refused.value.status == Hresult.E_INVALIDARG
        assert await made.labels() == before

    play(scenario)


@pytest.mark.spec("AC-2.2.2.1-03")
def test_each_receive_takes_the_four_numbers_as_vt_i4() -> None:
    names = [*READS, *READS_BY_LOOKUP_ID]
    sent = [f"{place}" for place in range(2 * len(names))]

    async def scenario(program: Program) -> None:
        made = await desk(program)
        for label in sent:
            await program.send("body", label, r".\private$\orders", Variant(VarType.I4, 3))
        assert await made.labels() == [*LABELS, *sent]
        # A next one is looked for from one that is there, which the one before did not take.
        places = iter(made.lookup_ids[sent[place]] for place in (10, 11, 12, 13, 14, 16, 18, 19))
        taken = []
        for place, name in enumerate(names):
            for call in (made.by_slot, made.by_name):
                given = made.arguments(name, Variant(VarType.I4, place % 4))
                if "LookupId" in given:
                    given["LookupId"] = Variant(VarType.UI8, next(places))
                taken.append(await (await call(name, given)).get("Label"))
        left = await made.labels()
        assert sorted([*taken, *left]) == sorted([*LABELS, *sent])
        assert len(taken) == len(sent)

    play(scenario)


@pytest.mark.spec("AC-3.11.4-09")
def test_an_object_that_is_no_transaction_is_none() -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        assert await made.labels() == LABELS
        for wrong in (await program.create("MSMQTransactionDispenser"), made.queue):
            given = made.arguments("Receive", made.queue.variant(wrong))
            for call in (made.by_slot, made.by_name):
                with pytest.raises(ComError) as refused:
                    await call("Receive", given)
                assert refused.value.status == Hresult.E_INVALIDARG
            sender = await made.program.opened(SEND)
            message = await made.program.create("MSMQMessage")
            sent = (write_objref(sender.ref), made.queue.variant(wrong))
            with pytest.raises(ComError) as refused:
                await slot(message, "IMSMQMessage4", "Send", "method", *sent)
            assert refused.value.status == Hresult.E_INVALIDARG
            with pytest.raises(ComError) as refused:
                await message.call("Send", sender, wrong)
            assert refused.value.status == Hresult.E_INVALIDARG
        assert await made.labels() == LABELS

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.48-09")
def test_a_transaction_of_another_type_sends_nothing() -> None:
    async def scenario(program: Program) -> None:
        made = await desk(program)
        sender = await made.program.opened(SEND)
        message = await made.program.create("MSMQMessage")
        await message.put("Label", "another")
        pointer = write_objref(sender.ref)
        for wrong in OTHER_TYPES:
            with pytest.raises(ComError) as refused:
                await slot(message, "IMSMQMessage4", "Send", "method", pointer, wrong)
            assert refused.value.status == Hresult.E_INVALIDARG, wrong
            with pytest.raises(ComError) as refused:
                await message.call("Send", sender, wrong)
            assert refused.value.status == Hresult.DISP_E_TYPEMISMATCH, wrong
            assert await made.labels() == LABELS, wrong
        await slot(message, "IMSMQMessage4", "Send", "method", pointer, Variant(VarType.I2, 3))
        assert await made.labels() == [*LABELS, "another"]

    play(scenario)


def test_a_transaction_may_take_so_long_and_then_its_messages_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit_s = 2.0
    monkeypatch.setattr(callers, "TRANSACTION_MAX_S", limit_s)

    async def scenario(program: Program) -> None:
        made = await desk(program)
        transaction = await made.begin()
        await made.queue.call("Receive", transaction, ReceiveTimeout=0)
        assert len(await made.labels()) == len(LABELS) - 1

        async def is_back() -> bool:
            return await made.labels() == LABELS

        await eventually(is_back)
        with pytest.raises(ComError) as late:
            await transaction.call("Commit")
        assert late.value.status == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE

    play(scenario)
