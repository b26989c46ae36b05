"""Relay streams at a leader whose disk is nearly full."""

import asyncio
import zlib
from array import array
from collections.abc import Callable

import pytest

from qm.cluster.relay import LatePackets, RelayEvents
from qm.model.values.commands import ClockTick, EdgeBatch, Facts, TransferVerdict
from qm.model.values.effects import Outcome
from qm.node.relay import leader_stream
from qm.node.relay.leader_stream import LeaderStreams, Pending
from qm.store.codec import Inspected, encode_command, inspect
from raft import proposals

CLOSED = [int(TransferVerdict.CLOSE_SESSION)]


def batch(*sessions: int) -> Inspected:
    return inspect(sent(*sessions))


def sent(*sessions: int) -> bytes:
    """Return a batch with a message of each session."""
    packets = [b"packet"] * len(sessions)
    return encode_command(
        EdgeBatch(
            "n2",
            1,
            memoryview(b"".join(packets)),
            0,
            array("I", range(0, 6 * len(sessions) + 1, 6)),
            array("I", map(zlib.crc32, packets)),
            bytes(range(len(sessions))),
            tuple(Facts(session, bytes(16), "192.0.2.1", ()) for session in sessions),
            0,
            0,
        )
    )


class Leader(RelayEvents):
    """Streams over nothing: what is submitted is applied at once."""

    def __init__(self) -> None:
        self.has_room = True
        self.submitted: list[bytes] = []
        self.outcomes: list[tuple[int, list[int]]] = []
        self.ends: list[str] = []
        self.streams = LeaderStreams(self._submit, lambda _: 1, lambda: self.has_room, lambda: True)

    def _submit(self, payload: bytes, weight: int) -> tuple[Pending, int]:
        self.submitted.append(payload)
        pending: Pending = proposals.Pending()
        pending.index = len(self.submitted)
        pending.resolve([Outcome(0, array("H", [0]))])
        return pending, 0

    async def answered(self, count: int) -> list[tuple[int, list[int]]]:
        """Return all outcomes once there are so many."""
        for _ in range(1_000):
            if len(self.outcomes) >= count or self.ends:
                break
            await asyncio.sleep(0)
        return self.outcomes

    # RelayEvents

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        assert outcome.verdicts is not None
        self.outcomes.append((number, outcome.verdicts.tolist()))

    def on_late_packets(self, packets: LatePackets) -> None:
        raise AssertionError

    def on_free(self) -> None:
        raise AssertionError

    def on_end(self, reason: str) -> None:
        self.ends.append(reason)


def run(scenario: Callable[[Leader], object]) -> None:
    async def whole() -> None:
        await scenario(Leader())  # type: ignore[misc]

    asyncio.run(whole())


def test_what_a_session_sent_behind_a_refused_message_is_refused_too() -> None:
    """It was on its way when there was room again: taken, it would come before the first."""

    async def scenario(leader: Leader) -> None:
        stream = leader.streams.open("n2", leader)
        leader.has_room = False
        stream.send(1, batch(7))
        leader.has_room = True
        stream.send(2, batch(7))
        stream.session_closed(7)
        stream.send(3, batch(7))
        assert await leader.answered(3) == [(1, CLOSED), (2, CLOSED), (3, CLOSED)]
        assert not leader.submitted
        stream.send(4, batch(8))
        tick = inspect(encode_command(ClockTick(1)))
        stream.send(5, tick)
        await leader.answered(5)
        assert leader.submitted == [sent(8), tick.payload], "others, and what is no message, go on"
        stream.send(6, batch(9, 7))
        stream.send(7, batch(9))
        assert (await leader.answered(7))[5:] == [(6, CLOSED * 2), (7, CLOSED)]
        again = leader.streams.open("n2", leader)
        again.send(8, batch(7))
        await leader.answered(8)
        assert leader.submitted[-1] == sent(7), "the edge forgot what closed sessions brought"
        again.close()

    run(scenario)


def test_a_stream_remembers_a_bounded_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_stream, "EDGE_REFUSED_SESSIONS_MAX", 3)

    async def scenario(leader: Leader) -> None:
        stream = leader.streams.open("n2", leader)
        leader.has_room = False
        for session in range(1, 5):
            stream.send(session, batch(session))
        await leader.answered(4)
        assert leader.ends == ["too many sessions were refused"]

    run(scenario)
