"""Transactions over DCOM: what names them, and what they attach [MC-MQAC 2.2.3, 3.9.4.2.1]."""

from __future__ import annotations

from typing import Any

import pytest

from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import BYREF, VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.objref import write_objref
from qm.rpc.dcom.runtime.orpc import orpc_interface, orpc_operation
from qm.rpc.ndr.types import GUID, U32
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    PRIVATE,
    DcomWorld,
    Late,
    Program,
    iid,
    play,
    play_in_world,
    pointed,
    slot,
)


async def inner_of(transaction: Late) -> Variant:
    found = await slot(transaction, "IMSMQTransaction3", "ITransaction")
    assert isinstance(found, Variant)
    return found


@pytest.mark.spec("AC-2.2.3.1-01", "AC-2.2.3.2-02")
def test_a_unit_of_work_is_the_identifier_of_the_queue_manager_s_transaction() -> None:
    async def scenario(program: Program, world: DcomWorld) -> None:
        await program.new_queue(transactional=True)
        dispenser = await program.create("MSMQTransactionDispenser")
        transaction = await dispenser.call("BeginTransaction")
        unknown = Late(program.server, pointed((await inner_of(transaction)).value))
        itransaction = await unknown.by(iid("ITransaction"))
        laid_out = orpc_interface(
            "ITransaction",
            iid("ITransaction"),
            {5: orpc_operation("info", [], (GUID, *[U32] * 6, U32))},
        )
        uow, *numbers = await program.server.call(itransaction.ipid, laid_out, 5, [])
        # isoLevel, isoFlags, grfTCSupported, the three reserved ones, and S_OK.
        assert numbers == [0, 0, 0, 0, 0, 0, 0]
        await program.send("body", "", PRIVATE, transaction)
        async with world.client(await world.leader()) as client:
            control = control_pb2_grpc.ClientControlStub(client.channel)
            listed = await control.ListTransactions(pb.ListTransactionsRequest())
        assert [each.identifier for each in listed.transactions] == [uow]
        await transaction.call("Abort")

    play_in_world(scenario)


@pytest.mark.spec("AC-3.9.4.2.1-02", "AC-3.9.4.2.1-03")
def test_what_stands_for_a_transaction_attaches_no_other() -> None:
    async def scenario(program: Program) -> None:
        dispenser = await program.create("MSMQTransactionDispenser")
        begun, other = [await dispenser.call("BeginTransaction") for _ in range(2)]
        attached = await program.create("MSMQTransaction")
        inner = await inner_of(begun)

        async def init_new(target: Late, given: Variant) -> int:
            with pytest.raises(ComError) as refused:
                await slot(target, "IMSMQTransaction2", "InitNew", "method", given)
            return refused.value.status

        no_transactions: list[Any] = [
            Variant(VarType.DISPATCH, write_objref(dispenser.ref)),
            Variant(VarType.UNKNOWN, write_objref(dispenser.ref)),
            Variant(BYREF | VarType.DISPATCH, write_objref(begun.ref)),
        ]
        for given in no_transactions:
            assert await init_new(attached, given) == 0x8007_0057
        await slot(attached, "IMSMQTransaction2", "InitNew", "method", inner)
        for given in (
            await inner_of(other),
            await inner_of(begun),
            *no_transactions,
            Variant(VarType.I4, 7),
            Variant(VarType.BSTR, "x"),
            Variant(VarType.UNKNOWN, None),
            array_of(VarType.UI1, b"x"),
            Variant(),
            OMITTED,
        ):
            for target in (attached, begun):
                assert await init_new(target, given) == 0xC00E_0050, given
                found = await inner_of(target)
                assert pointed(found.value).oid == pointed(inner.value).oid, "unchanged"
        for each in (begun, other):
            await each.call("Abort")

    play(scenario)
