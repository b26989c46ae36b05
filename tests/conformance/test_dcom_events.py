"""Members of events, their connection points and their sinks by the slots and DISPIDs of their rows
[MC-MQAC 3.16.4].
"""

from __future__ import annotations

import pytest

from qm.client.mqac.constants import CONNECT_E_NOCONNECTION, E_NOTIMPL
from qm.rpc.dcom.automation.dispatch import InvokeFlag
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.identifiers import NULL
from qm.rpc.dcom.runtime.objref import write_objref
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.conformance.dcom_members import is_refused, is_told, ways
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    Late,
    Program,
    dcom_world,
    eventually,
    iid,
    play,
    pointed,
)
from tests.unit.rpc.dcom.test_events import REFERENCE, SINK_PORT, Sink, event_of, sink

ARRIVED, ARRIVED_ERROR = 0, 1
TIMED_OUT = ErrorCode.MQ_ERROR_IO_TIMEOUT - (1 << 32)


async def is_told_of(told: Sink, *wanted: tuple[int, list[int]]) -> None:
    """The sink was told so much and no more: DISPIDs, and what comes behind the queue."""

    async def is_there() -> bool:
        return len(told.told) >= len(wanted)

    await eventually(is_there)
    found = []
    for dispid, (queue, *numbers) in told.told:
        assert queue.vt == VarType.DISPATCH
        assert {one.vt for one in numbers} == {VarType.I4}
        found.append((dispid, [one.value for one in numbers]))
    assert found == list(wanted)
    told.told.clear()


@pytest.mark.spec(
    "AC-3.16.4.5.1-02",
    "AC-3.16.4.5.2-02",
    "AC-3.16.4.5.3-04",
    "AC-3.16.4.5.4-02",
    "AC-3.16.4.5.5-02",
)
def test_a_connection_point_has_its_slots() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink():
            program = await world.program()
            _, container, ref = await event_of(program)
            point = Late(program.server, ref)
            (interface,) = ways("AC-3.16.4.5.1-02", point)
            assert await interface() == iid("_DMSMQEventEvents")
            (back,) = ways("AC-3.16.4.5.2-02", point)
            same = pointed(await back())
            assert (same.iid, same.oid) == (iid("IConnectionPointContainer"), container.oid)
            (advise,), (unadvise,) = (
                ways(row_id, point) for row_id in ("AC-3.16.4.5.3-04", "AC-3.16.4.5.4-02")
            )
            cookies = [await advise(REFERENCE) for _ in range(2)]
            assert len({*cookies}) == 2
            assert 0 not in cookies
            for cookie in cookies:
                assert await unadvise(cookie) is None
                with pytest.raises(ComError) as gone:
                    await unadvise(cookie)
                assert gone.value.status == CONNECT_E_NOCONNECTION
            (connections,) = ways("AC-3.16.4.5.5-02", point)
            with pytest.raises(ComError) as refused:
                await connections()
            assert refused.value.status == E_NOTIMPL
            program.close()

    run(scenario())


@pytest.mark.spec("AC-3.16.4.6.1-02", "AC-3.16.4.6.2-02", "AC-3.16.4.1.1-02")
def test_a_container_has_its_slots_and_an_event_no_properties() -> None:
    async def scenario(program: Program) -> None:
        event, ref, point = await event_of(program)
        container = Late(program.server, ref)
        (listed,) = ways("AC-3.16.4.6.1-02", container)
        assert pointed(await listed()).iid == iid("IEnumConnectionPoints")
        (find,) = ways("AC-3.16.4.6.2-02", container)
        found = pointed(await find(iid("_DMSMQEventEvents")))
        assert (found.iid, found.oid) == (iid("IConnectionPoint"), point.oid)
        with pytest.raises(ComError) as missing:
            await find(iid("IMSMQEvent"))
        assert missing.value.status == CONNECT_E_NOCONNECTION
        await is_refused("AC-3.16.4.1.1-02", event)

    play(scenario)


@pytest.mark.spec(
    "AC-3.16.4.3.1-02", "AC-3.16.4.3.2-02", "AC-3.16.4.3.3-02", "AC-3.16.4.4.1-03", "AC-1-02"
)
def test_private_members_and_what_a_sink_is_told_have_their_numbers() -> None:
    async def scenario() -> None:
        async with dcom_world(sink_port=SINK_PORT) as world, sink() as told:
            program = await world.program()
            event, _, point = await event_of(program)
            for advise in ways("AC-3.16.4.5.3-04", Late(program.server, point)):
                await advise(REFERENCE)
            await is_told("AC-3.16.4.3.1-02", event, 0)
            await program.new_queue()
            queue = await program.opened(RECEIVE)
            pointer = write_objref(await queue.by(iid("IMSMQQueue")))
            for fire in ways("AC-3.16.4.3.2-02", event):
                assert await fire(pointer, 2) is None
                await is_told_of(told, (ARRIVED, [2]))
            for fire in ways("AC-3.16.4.3.3-02", event):
                assert await fire(pointer, TIMED_OUT, 1) is None
                await is_told_of(told, (ARRIVED_ERROR, [TIMED_OUT, 1]))
            # And of a message: the queue that has it, and the cursor that was named.
            await program.send("body")
            for cursor in (0, 1):
                await queue.call("EnableNotification", event, cursor, Variant(VarType.I4, 5000))
                await is_told_of(told, (ARRIVED, [cursor]))
            await queue.call("EnableNotification", event, OMITTED, Variant(VarType.I4, 5000))
            await is_told_of(told, (ARRIVED, [0]))
            assert told.uses == {(NULL, InvokeFlag.METHOD)}
            program.close()

    run(scenario())
