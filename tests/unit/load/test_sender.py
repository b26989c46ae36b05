from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice

from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent
from qm.load.outgoing import PrebuiltStream
from qm.load.packets import message_packet, numbered_copies
from qm.load.sender import Link, RecordingSender
from qm.load.workload import Delivery, Planned, Target, Workload, message_name, plan
from qm.session import CloseReason, SessionConfig
from qm.wire.message_class import MessageClass
from tests.unit.load.peer import Peer

US = bytes(range(100, 116))
PLAIN = Target("DIRECT=OS:cluster\\private$\\plain")
TRANSACTIONAL = Target("DIRECT=OS:cluster\\private$\\tx", is_transactional=True)
WORKLOAD = Workload(targets=(PLAIN, TRANSACTIONAL), seed=5, priorities=(0, 3, 7))
BOUND_S = 20.0


async def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    """Poll until it holds; say the last value when it never does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + BOUND_S
    while not condition():
        assert loop.time() < end, f"still {what()!r} after {BOUND_S} s"
        await asyncio.sleep(0.005)


class Sent:
    """A sender, its peer and its history."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.history: list[HistoryEvent] = []
        self.sender = RecordingSender(
            "s",
            US,
            [("127.0.0.1", peer.port)],
            WORKLOAD.targets,
            self.history.append,
            reconnect_s=0.01,
            wants_final_acks=True,
        )

    def kinds(self, kind: EventKind) -> list[HistoryEvent]:
        return [event for event in self.history if event.kind is kind]

    def names(self) -> list[str]:
        return [message_name(m.properties.message_body) for m in self.peer.messages]

    async def settled(self) -> None:
        await until(lambda: not self.sender.unacknowledged, lambda: self.sender.unacknowledged)


@asynccontextmanager
async def sending() -> AsyncIterator[Sent]:
    peer = Peer()
    await peer.start()
    sent = Sent(peer)
    sent.sender.link.start()
    try:
        yield sent
    finally:
        await sent.sender.link.stop()
        await peer.stop()


def some(count: int) -> list[Planned]:
    return list(islice(plan(WORKLOAD, "s"), count))


def test_every_kind_arrives_and_is_acknowledged_once() -> None:
    async def run() -> None:
        async with sending() as sent:
            planned = some(400)
            sent.sender.add(planned)
            await sent.settled()
            assert sorted(sent.names()) == sorted(m.name for m in planned)
            assert sent.peer.duplicates == sent.peer.out_of_order == 0
            assert {e.message for e in sent.kinds(EventKind.ACKNOWLEDGED)} == set(sent.names())
            assert len(sent.kinds(EventKind.SENT)) == 400
            assert {m.user_header.source_queue_manager for m in sent.peer.messages} == {US}

    asyncio.run(run())


def test_a_reconnect_sends_again_with_the_same_numbers() -> None:
    async def run() -> None:
        async with sending() as sent:
            planned = some(300)
            sent.sender.add(planned[:100])
            await sent.settled()
            sent.peer.is_answering = False
            sent.sender.add(planned[100:])
            await until(lambda: sent.sender.sent > 100, lambda: sent.sender.sent)
            sent.peer.drop()
            sent.peer.is_answering = True
            await sent.settled()
            assert sorted(sent.names()) == sorted(m.name for m in planned)
            assert sent.peer.out_of_order == 0
            (moved,) = sent.kinds(EventKind.RECONNECTED)
            assert moved.address == "127.0.0.1"
            verdict = judge(sent.history)
            assert (verdict.sent, verdict.acknowledged) == (300, 300)

    asyncio.run(run())


def test_a_message_that_was_taken_before_the_reset_is_a_duplicate_and_not_another() -> None:
    async def run() -> None:
        async with sending() as sent:
            sent.peer.sends_order_acks = False
            planned = [m for m in some(400) if m.delivery is Delivery.TRANSACTIONAL][:20]
            sent.sender.add(planned)
            await until(lambda: len(sent.peer.messages) == 20, lambda: len(sent.peer.messages))
            assert not sent.kinds(EventKind.ACKNOWLEDGED)  # SessionAck alone is not enough
            sent.peer.sends_order_acks = True
            sent.peer.drop()
            await sent.settled()
            assert sent.peer.duplicates == 20
            assert sent.names() == [m.name for m in planned]

    asyncio.run(run())


def test_a_final_ack_is_recorded_with_its_class() -> None:
    async def run() -> None:
        async with sending() as sent:
            planned = [m for m in some(100) if m.delivery is Delivery.TRANSACTIONAL][:1]
            sent.sender.add(planned)
            await sent.settled()
            message = sent.peer.messages[0]
            assert message.transaction is not None
            assert message.transaction.is_final_ack_wanted
            sent.peer.connections[0].final_ack(message, MessageClass.ACK_RECEIVE)
            await until(lambda: bool(sent.kinds(EventKind.FINAL)), lambda: len(sent.history))
            (final,) = sent.kinds(EventKind.FINAL)
            assert (final.message, final.detail) == (planned[0].name, "4000")

    asyncio.run(run())


def test_advances_say_what_is_outstanding() -> None:
    async def run() -> None:
        async with sending() as sent:
            sent.sender.add(some(50))
            await sent.settled()
            assert sent.kinds(EventKind.ADVANCED)[-1].number == 0

    asyncio.run(run())


def test_prebuilt_packets_survive_the_wrap_of_the_counters_and_a_reset() -> None:
    async def run() -> None:
        peer = Peer(window=4096)
        await peer.start()
        planned = next(plan(Workload(targets=(PLAIN,), express_share=0), "b"))
        packets = numbered_copies(message_packet(US, PLAIN, planned), 1, 60_000)
        stream = PrebuiltStream(packets)
        link = Link(
            US,
            [("127.0.0.1", peer.port)],
            [stream],
            config=SessionConfig(window_size=4096),
            reconnect_s=0.01,
        )
        link.start()
        await until(lambda: stream.acknowledged > 1_000, lambda: stream.acknowledged)
        peer.drop()
        await until(lambda: not stream.unacknowledged, lambda: stream.unacknowledged)
        await link.stop()
        await peer.stop()
        assert len(peer.messages) == 60_000
        assert link.sessions >= 3  # the first, after the reset, after the recycling
        assert CloseReason.COUNT_MISMATCH not in peer.closed

    asyncio.run(run())


def test_the_next_address_is_tried_when_one_refuses() -> None:
    async def run() -> None:
        peer = Peer()
        await peer.start()
        gone = Peer()
        await gone.start()
        port = gone.port
        await gone.stop()
        stream = PrebuiltStream([])
        link = Link(US, [("127.0.0.1", port), ("127.0.0.1", peer.port)], [stream], reconnect_s=0.01)
        link.start()
        await until(lambda: link.is_open, lambda: link.sessions)
        await link.stop()
        await peer.stop()

    asyncio.run(run())


def test_the_same_seed_plans_the_same_messages() -> None:
    assert some(50) == some(50)
    assert [m.name for m in islice(plan(WORKLOAD, "other"), 5)] != [m.name for m in some(5)]


def test_transactions_go_to_transactional_queues_and_nothing_else_does() -> None:
    for message in some(500):
        is_transactional = WORKLOAD.targets[message.target].is_transactional
        assert (message.delivery is Delivery.TRANSACTIONAL) == is_transactional
        assert bool(message.transaction) == is_transactional
