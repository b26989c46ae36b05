"""Decider: control commands are named by caller, call and request."""

import asyncio

from qm.api.gate.calls import CALL_ID_KEY, CALL_ID_MAX_CHARS, begin_call, call_id
from qm.api.gate.identity import Principal, Role
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.api.propose.proposer import Proposer
from qm.model.clients.control_requests import CONTROL_ID_BYTES
from qm.model.values.commands import SetQueue
from qm.pb import control_pb2 as pb
from tests.unit.api.propose.world import scripted


def begin(who: str, call: str) -> None:
    """Serve a call of that name in this task."""
    begin_call(Principal(who, Role.ADMIN, ()), "/q/SetQueue", lambda: ((CALL_ID_KEY, call),))


def test_a_control_command_is_named_by_caller_call_and_request() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        decider = Decider(face, Proposer(face))

        async def name_of(who: str, call: str, label: bytes) -> bytes:
            begin(who, call)
            asked = pb.SetQueueRequest(changes={"label": pb.Value(data=label)})
            await decider.once(asked, lambda: SetQueue(UNNUMBERED, 7, {}, ()))
            command = cluster.last
            assert isinstance(command, SetQueue)
            return command.request.control_id

        first = await name_of("ann", "1", b"x")
        assert len(first) == CONTROL_ID_BYTES
        assert await name_of("ann", "1", b"x") == first
        others = [
            await name_of("bob", "1", b"x"),
            await name_of("ann", "2", b"x"),
            await name_of("ann", "1", b"y"),
        ]
        assert len({first, *others}) == 4

    asyncio.run(scenario())


def test_a_call_without_a_usable_name_gets_one_of_its_own() -> None:
    async def scenario() -> None:
        names = []
        for given in ("", "x" * (CALL_ID_MAX_CHARS + 1), "mine"):
            begin("ann", given)
            names.append(call_id())
            assert call_id() == names[-1]
        assert names[2] == "/q/SetQueue mine"
        assert names[0] != names[1]
        assert "/q/SetQueue " not in names

    asyncio.run(scenario())
