"""What an edge may rely on: a relay stream that it has left says nothing more."""

import asyncio
from array import array
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import grpc.aio
import pytest

from qm.cluster.relay import LatePackets, RelayStream, SessionFacts
from qm.model.values.commands import ClockTick
from qm.model.values.effects import Outcome
from qm.node.relay.edge_stream import LocalStream, RemoteStream
from qm.node.relay.leader_stream import LeaderStreams, Pending
from qm.node.relay.outcome_codec import encode_outcome
from qm.pb import relay_pb2
from qm.store.codec import encode_command
from raft import proposals
from raft.driver import Stopping

TICK = encode_command(ClockTick(1))
LATE = LatePackets(7, (1,), (b"packet",))
DONE = Outcome(0, array("H", [0]))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20.0))


async def rounds(count: int = 5) -> None:
    """Let the loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)


class Edge:
    """Hears what a leader says, and may leave its stream at the first outcome."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.leaves: RelayStream | None = None

    def on_free(self) -> None:
        self.heard.append("free")

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        assert outcome == DONE
        self.heard.append(number)
        if self.leaves is not None:
            self.leaves.close()

    def on_late_packets(self, packets: LatePackets) -> None:
        self.heard.append(packets)

    def on_end(self, reason: str) -> None:
        self.heard.append(reason)


class Leader:
    """Takes batches into one entry and applies it when a test says so."""

    def __init__(self) -> None:
        self.entry: Pending = proposals.Pending()
        self.count = 0
        self.is_stopping = False
        self.streams = LeaderStreams(self._submit, lambda _: 1, lambda: True, lambda: True)

    def _submit(self, _: bytes, weight: int) -> tuple[Pending, int]:
        assert weight == 1
        if self.is_stopping:
            raise Stopping
        self.count += 1
        return self.entry, self.count - 1

    def apply(self) -> None:
        self.entry.resolve([DONE] * self.count)


def test_a_local_edge_hears_outcomes_in_order_and_the_end_from_the_loop() -> None:
    async def scenario() -> None:
        leader, edge = Leader(), Edge()
        stream = LocalStream(leader.streams, "n1", edge)
        for number in (1, 2):
            stream.send(number, TICK)
        stream.session_opened(SessionFacts(7, bytes(16), "192.0.2.1", 0))
        leader.apply()
        await rounds()
        leader.streams.send_late("n1", LATE)
        assert edge.heard == [1, 2]
        await rounds()
        leader.is_stopping = True
        stream.send(3, TICK)
        assert edge.heard == [1, 2, LATE]
        await rounds()
        assert edge.heard[3:] == ["this node stops"]
        leader.streams.gather()
        assert len(edge.heard) == 4

    run(scenario())


@pytest.mark.parametrize("count", [1, 2])
def test_a_local_edge_that_leaves_within_an_outcome_hears_no_more(count: int) -> None:
    async def scenario() -> None:
        leader, edge = Leader(), Edge()
        stream = edge.leaves = LocalStream(leader.streams, "n1", edge)
        for number in range(1, count + 1):
            stream.send(number, TICK)
        leader.apply()
        await rounds()
        assert edge.heard == [1]

    run(scenario())


def test_a_local_edge_that_has_left_hears_nothing_that_was_on_its_way() -> None:
    async def scenario() -> None:
        leader, edge = Leader(), Edge()
        stream = LocalStream(leader.streams, "n1", edge)
        stream.send(1, TICK)
        leader.streams.send_late("n1", LATE)
        leader.streams.end_all("another term began")
        stream.close()
        leader.apply()
        leader.streams.gather()
        await rounds()
        assert edge.heard == []

    run(scenario())


class Call:
    """The edge's end of a gRPC stream on which everything has arrived already."""

    def __init__(self, *messages: relay_pb2.LeaderFrames) -> None:
        self._messages: list[object] = [*messages, grpc.aio.EOF]  # type: ignore[attr-defined]
        self.written: list[relay_pb2.EdgeFrames] = []

    def Exchange(self, _: object) -> "Call":
        return self

    async def read(self) -> object:
        return self._messages.pop(0)

    async def write(self, message: relay_pb2.EdgeFrames) -> None:
        self.written.append(message)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return "done"

    def cancel(self) -> None:
        pass


def outcome(number: int) -> relay_pb2.LeaderFrame:
    told = relay_pb2.BatchOutcome(number=number, index=number, outcome=encode_outcome(DONE))
    return relay_pb2.LeaderFrame(outcome=told)


def remote(edge: Edge, frames: Sequence[relay_pb2.LeaderFrame]) -> RemoteStream:
    call = Call(relay_pb2.LeaderFrames(frames=frames))

    async def stub() -> Any:
        return call

    over: Callable[[RemoteStream], None] = lambda _: None  # noqa: E731
    stream = RemoteStream("n2", 3, stub, edge, over)
    for number in (1, 2):
        stream.send(number, TICK)
    return stream


def test_a_remote_edge_hears_outcomes_in_order_and_one_end() -> None:
    async def scenario() -> None:
        edge = Edge()
        stream = remote(edge, [outcome(1), outcome(2)])
        await rounds(20)
        assert edge.heard == [1, 2, "OK: done"]
        stream.end("another term")
        assert len(edge.heard) == 3

    run(scenario())


def test_a_remote_edge_that_leaves_hears_no_more() -> None:
    async def scenario() -> None:
        edge = Edge()
        edge.leaves = remote(edge, [outcome(1), outcome(2)])
        await rounds(20)
        assert edge.heard == [1]
        unheard = Edge()
        remote(unheard, [outcome(1)]).close()
        await rounds(20)
        assert unheard.heard == []

    run(scenario())
