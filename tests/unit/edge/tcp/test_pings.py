"""Pings on UDP [MS-MQQB 3.1.7.7]: answered to who asked, truthfully, and not too often."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast
from unittest import mock

import pytest

from qm.edge.limits import PINGS_MAX_COUNT, PINGS_PER_ADDRESS_MAX_COUNT
from qm.edge.tcp.pings import PingAnswerer
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from tests.unit.edge.world import ADDRESS, OTHER, OWN, PEER, World, lines_of, run, until, world


class Asker(asyncio.DatagramProtocol):
    """A socket that asks, and what it hears."""

    def __init__(self) -> None:
        self.answers: list[Ping] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.answers.append(parse_ping(data, 0, len(data))[0])

    def ask(self, cookie: int, queue_manager: bytes = PEER) -> None:
        self.transport.sendto(write_ping(Ping(cookie, queue_manager)))

    async def is_refused(self, queue_manager: bytes = PEER) -> bool:
        """Ask, and return what is answered."""
        count = len(self.answers)
        self.ask(count, queue_manager)
        await until(lambda: len(self.answers) > count)
        return self.answers[count].is_refused


async def asker(w: World) -> Asker:
    (endpoint,) = w.edge.ping_endpoints
    loop = asyncio.get_running_loop()
    _, made = await loop.create_datagram_endpoint(Asker, remote_addr=endpoint)
    w.at_end.append(made.transport.close)
    return made


@pytest.mark.spec("QB-2.2.7-07")
def test_a_ping_is_answered_to_the_port_that_asked() -> None:
    async def scenario() -> None:
        async with world() as w:
            first, second = await asker(w), await asker(w)
            first.ask(1)
            second.ask(2)
            await until(lambda: first.answers and second.answers)
            assert first.answers == [Ping(1, OWN)]
            assert second.answers == [Ping(2, OWN)]
            assert w.metric("quorate_pings_total", result="accepting") == 2

    run(scenario())


@pytest.mark.spec("QB-2.2.7-04", "QB-3.1.7.7-01")
def test_the_answer_says_whether_a_session_would_be_accepted() -> None:
    async def scenario() -> None:
        async with world(sessions_per_address_max=1, no_leader_max_s=0.05) as w:
            questions = await asker(w)
            peer = await w.peer()
            questions.ask(1)
            await until(lambda: len(questions.answers) == 1)
            peer.transport.close()
            await until(lambda: w.metric("quorate_connections") == 0)
            w.consensus.lose_leader()
            await until(lambda: not w.edge.is_ready)
            questions.ask(2)
            await until(lambda: len(questions.answers) == 2)
            w.consensus.elect("n2")
            await until(lambda: w.edge.is_ready)
            questions.ask(3)
            await until(lambda: len(questions.answers) == 3)
            assert [answer.is_refused for answer in questions.answers] == [True, True, False]

    run(scenario())


@pytest.mark.spec("QB-2.2.7-04")
def test_the_answer_is_for_the_queue_manager_that_asks() -> None:
    async def scenario() -> None:
        async with world(sessions_per_queue_manager_max=1) as w:
            questions = await asker(w)
            peer = await w.peer()
            assert [await questions.is_refused(one) for one in (PEER, OTHER)] == [True, False]
            peer.transport.close()
            await w.closed("disconnected")
            assert not await questions.is_refused()

    run(scenario())


@pytest.mark.spec("QB-2.2.7-04")
def test_who_is_offline_refuses() -> None:
    async def scenario() -> None:
        async with world() as w:
            questions = await asker(w)
            w.consensus.set_manager(connection_active=False)
            assert await questions.is_refused()
            w.consensus.set_manager(connection_active=True)
            await until(lambda: w.edge.is_ready)
            assert not await questions.is_refused()

    run(scenario())


def test_nonsense_is_not_answered_and_nobody_is_flooded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with world() as w:
            questions = await asker(w)
            for data in (b"x", b"x" * 24, write_ping(Ping(1, PEER)) + b"x", bytes(1400)):
                questions.transport.sendto(data)
            await until(lambda: w.metric("quorate_pings_total", result="malformed") == 4)
            for cookie in range(200):
                questions.ask(cookie)
            await until(lambda: w.metric("quorate_pings_total", result="limited") > 100)
            assert 0 < len(questions.answers) <= 2 * PINGS_PER_ADDRESS_MAX_COUNT
            for result in ("malformed", "limited"):
                (line,) = lines_of(caplog, f"ping:{result}")
                assert (line["reason"], line["peer"]) == (result, ADDRESS)
            await w.is_unharmed(w.consensus.create("orders"))

    run(scenario())


def test_pings_may_be_left_unanswered_and_before_birth_are() -> None:
    async def scenario() -> None:
        async with world(answer_pings=False) as w:
            assert w.edge.ping_endpoints == []
        async with world(is_provisioned=False) as w:
            questions = await asker(w)
            questions.ask(1)
            await until(lambda: w.metric("quorate_pings_total", result="unanswered") == 1)
            w.consensus.provision()
            questions.ask(2)
            await until(lambda: questions.answers)
            assert questions.answers[0].cookie == 2
            assert w.edge.ping_endpoints[0][0] == ADDRESS

    run(scenario())


def test_all_addresses_together_are_answered_so_often_in_a_second() -> None:
    now, results = 0.0, Counter[str]()
    metrics = mock.Mock()
    metrics.ping = lambda result, *_: results.update([result])
    answerer = PingAnswerer(lambda: OWN, lambda *_: True, metrics, lambda: now)
    answerer.connection_made(mock.Mock())
    question = write_ping(Ping(1, PEER))
    for second in range(2):
        now = float(second)
        for k in range(PINGS_MAX_COUNT + 10):
            answerer.datagram_received(question, (f"10.0.{k >> 8}.{k & 255}", 1))
    assert results == {"accepting": 2 * PINGS_MAX_COUNT, "limited": 20}
