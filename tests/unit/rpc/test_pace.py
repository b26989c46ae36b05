"""RPC clients leave the event loop to others, whatever they send."""

import asyncio
import time

import uvloop

from qm.rpc.mgmt import MGMT
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, write_bind
from qm.rpc.pdu.call import request_head
from qm.rpc.pdu.codes import PduType
from qm.rpc.pdu.header import write_pdu
from qm.rpc.server.pace import WINDOW_S, WORK_MAX_S, Pace, Paced
from tests.unit.rpc.dialogue import WHOLE
from tests.unit.rpc.test_server import World, in_world

FLOODS = 8
CALLS = 20_000


class Worker(Paced):
    """A connection with so many slices that take a millisecond each."""

    def __init__(self, name: str, slices: int, done: list[str]) -> None:
        self._name, self._slices, self._done = name, slices, done

    def take_slice(self) -> bool:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        self._slices -= 1
        self._done.append(self._name)
        return self._slices > 0


def test_connections_work_in_turns_and_leave_time_to_others() -> None:
    async def scenario() -> None:
        pace, done = Pace(), list[str]()
        began = time.perf_counter()
        for name in "abc":
            pace.offer(Worker(name, 20, done))
        assert len(done) <= 3, "only what fits before the first wait"
        while len(done) < 60:
            await asyncio.sleep(WINDOW_S / 4)
        assert time.perf_counter() - began > 0.7 * 0.06 * WINDOW_S / WORK_MAX_S
        assert {done.count(name) for name in "abc"} == {20}
        assert all(set(done[k : k + 3]) == set("abc") for k in range(6, 54, 3))
        pace.offer(Worker("d", 1, done))
        await asyncio.sleep(0.1)
        assert done[-1] == "d"

    uvloop.run(scenario())


def test_a_flood_of_calls_does_not_hold_up_the_loop() -> None:
    """Thousands of small requests arrive with one read."""

    async def test(world: World) -> None:
        bind = Bind(5840, 5840, 0, (Proposal(0, MGMT.syntax, (NDR20,)),))
        call = write_pdu(PduType.REQUEST, WHOLE, 7, request_head(0, 0, 0))
        flood = write_bind(PduType.BIND, 1, bind, None, WHOLE) + call * CALLS
        opened = [await asyncio.open_connection("127.0.0.1", world.port(0)) for _ in range(FLOODS)]
        readers = [asyncio.create_task(reader.read(1 << 24)) for reader, _ in opened]
        for _, writer in opened:
            writer.write(flood)
        latest = 0.0
        for _ in range(50):
            due = time.perf_counter() + 0.01
            await asyncio.sleep(0.01)
            latest = max(latest, time.perf_counter() - due)
        assert latest < 0.25, "this process writes the floods, too"
        assert any(reader.done() for reader in readers)
        client = await asyncio.wait_for(world.bound(), 10)
        assert client is not None
        for _, writer in opened:
            writer.transport.abort()
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    in_world(test)
