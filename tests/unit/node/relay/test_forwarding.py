"""Commands that share a call to the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
import pytest

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.effects import Outcome
from qm.node.relay.forwarding import Forwarder, NotTaken
from qm.node.relay.outcome_codec import encode_outcome
from qm.pb import relay_pb2
from tests.cluster.harness import run

CODES = {
    b"full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    b"odd": grpc.StatusCode.INVALID_ARGUMENT,
    b"elsewhere": grpc.StatusCode.ABORTED,
    b"lost": grpc.StatusCode.UNAVAILABLE,
}


class Leader:
    """Answers as a leader's relay does: one bad command has the whole call refused."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []

    async def Propose(
        self, request: relay_pb2.ProposeRequest, timeout: float | None
    ) -> relay_pb2.ProposeReply:
        payloads = list(request.payloads)
        self.calls.append(payloads)
        for payload in payloads:
            if payload in CODES:
                none = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(CODES[payload], none, none, "refused", None)
        outcomes = [Outcome(0, value=len(payload)) for payload in payloads]
        return relay_pb2.ProposeReply(outcomes=map(encode_outcome, outcomes))


async def proposed(*commands: Sequence[bytes]) -> tuple[Leader, list[Any]]:
    """Propose all at once; return what the leader was asked, and results or errors."""
    leader = Leader()

    async def stub() -> Any:
        return leader

    forwarder = Forwarder(stub)
    calls = [forwarder.propose(one) for one in commands]
    return leader, await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize(("payload", "error"), [(b"full", Unavailable), (b"odd", ValueError)])
def test_what_one_command_is_refused_for_is_not_the_others(
    payload: bytes, error: type[Exception]
) -> None:
    async def scenario() -> None:
        leader, found = await proposed([b"a", b"bb"], [b"c", payload], [b"ddd"])
        assert leader.calls[0] == [b"a", b"bb", b"c", payload, b"ddd"]
        # Each alone, in their order, and nothing of a refused one is tried again.
        assert leader.calls[1:] == [[b"a", b"bb"], [b"c", payload], [b"ddd"]]
        assert [one.value for one in found[0]] == [1, 2]
        assert isinstance(found[1], error)
        assert [one.value for one in found[2]] == [3]

    run(scenario())


@pytest.mark.parametrize(
    ("payload", "error"), [(b"elsewhere", NotTaken), (b"lost", OutcomeUnknown)]
)
def test_what_is_not_for_a_command_is_everybody_s(payload: bytes, error: type[Exception]) -> None:
    async def scenario() -> None:
        leader, found = await proposed([b"a"], [payload])
        assert leader.calls == [[b"a", payload]]
        assert [type(one) for one in found] == [error, error]

    run(scenario())
