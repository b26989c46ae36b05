"""Reads that wait, with and without cursors, as callers of the data plane see them.

[MS-MQDMPR] 3.1.7.1.10, .14, .15 and the timer of waiting reads, 3.1.2.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import pytest

from qm.client.mqac import MSMQQueue, MSMQService
from qm.pb import control_pb2, data_pb2
from tests.cluster.harness import run, until
from tests.conformance import mqac_reads
from tests.conformance.mqac_world import ask, fails, made, opened, serving
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import Client, bodies, refused, world

NEXT = data_pb2.PEEK_NEXT
FOREVER = 0xFFFF_FFFF
LONG_MS, SHORT_MS = 60_000, 40
TIMEOUT, ILLEGAL, RECEIVED = 0xC00E_001B, 0xC00E_001C, 0xC00E_001D
CANCELLED, NOT_AVAILABLE, NOT_FOUND = 0xC00E_0008, 0xC00E_004B, 0xC00E_0088
ELSEWHERE = r"DIRECT=TCP:127.255.255.254\private$\far"


class Reader:
    """A client with one open queue, and cursors on it."""

    def __init__(self, client: Client, queue: Any, waiting: Callable[[], float]) -> None:
        self.client = client
        self.queue = queue
        self._waiting = waiting

    async def cursor(self) -> int:
        request = data_pb2.CreateCursorRequest(
            client_id=self.client.client_id, handle=self.queue.handle
        )
        handle: int = (await self.client.data.CreateCursor(request)).cursor
        return handle

    def peek(self, **how: Any) -> Awaitable[Any]:
        return self.client.peek(self.queue, **how)

    def receive(self, **how: Any) -> Awaitable[Any]:
        return self.client.receive(self.queue, **how)

    async def waits(self, read: Awaitable[Any], count: int = 1) -> asyncio.Future[Any]:
        """Begin a read, and return once it waits."""
        begun = asyncio.ensure_future(read)
        await until(lambda: self._waiting() == count, self._waiting)
        return begun

    async def send(self, *sent: bytes) -> None:
        await self.client.send(ORDERS, *sent)

    async def lent(self, selector: data_pb2.Selector | None = None) -> int:
        """Have a message lent, the first one, and return where it is."""
        found = await self.receive(request=self.client.next(), is_two_phase=True, selector=selector)
        (key,) = found.messages.lookup_identifiers
        return int(key)

    async def give_back(self, key: int) -> None:
        """Return what was lent to its place."""
        await self.client.data.Complete(
            data_pb2.CompleteRequest(
                request=self.client.next(),
                queue_id=self.queue.queue_id,
                lookup_identifier=key,
                decision=data_pb2.CompleteRequest.RETURN,
            )
        )

    async def close(self) -> None:
        """Close the queue's handle."""
        number = self.client.next()
        closing = data_pb2.CloseQueueRequest(request=number, handle=self.queue.handle)
        await self.client.data.CloseQueue(closing)

    async def close_cursor(self, cursor: int) -> None:
        """Close a cursor."""
        client_id = self.client.client_id
        await self.client.data.CloseCursor(
            data_pb2.CloseCursorRequest(client_id=client_id, cursor=cursor)
        )

    async def nobody_waits(self) -> None:
        """Return once no read waits any more."""
        await until(lambda: self._waiting() == 0, self._waiting)

    async def cancel(self, number: int) -> None:
        """Cancel a request that waits."""
        client_id = self.client.client_id
        await self.client.data.Cancel(
            data_pb2.CancelRequest(client_id=client_id, first_number=number, count=1)
        )


def message_count(service: MSMQService, queue: MSMQQueue) -> int:
    """How many messages a queue holds, also those that are locked."""
    info = queue.QueueInfo
    assert info is not None
    asked = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=info.FormatName or ""))
    return ask(service, lambda stubs: stubs.queues.GetQueue, asked).message_count


def reading(scenario: Callable[[Reader], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            leader = await made.leader()
            queue = await client.open(ORDERS)
            await scenario(Reader(client, queue, lambda: leader.waiting_readers))

    run(whole())


@pytest.mark.spec(
    "DM-3.1.7.1.10-04",
    "DM-3.1.7.1.10-05",
    "DM-3.1.7.1.10-06",
    "DM-3.1.7.1.10-07",
    "DM-3.1.7.1.10-08",
)
def test_receiving_through_a_cursor() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        assert (await reader.receive(cursor=cursor, timeout_ms=0)).status == NOT_FOUND
        assert (await reader.receive(cursor=cursor, timeout_ms=SHORT_MS)).status == TIMEOUT
        waiting = await reader.waits(reader.receive(cursor=cursor, timeout_ms=LONG_MS))
        await reader.send(b"a", b"b", b"c")
        assert bodies(await waiting) == [b"a"]
        assert bodies(await reader.peek(cursor=cursor)) == [b"b"], "the cursor went on"
        assert bodies(await reader.receive()) == [b"b"]
        assert (await reader.receive(cursor=cursor, timeout_ms=LONG_MS)).status == RECEIVED
        # What ended by its timeout left the cursor where it can go on.
        assert bodies(await reader.receive()) == [b"c"]
        other = await reader.cursor()
        assert (await reader.receive(cursor=other, timeout_ms=SHORT_MS)).status == TIMEOUT
        await reader.send(b"d")
        assert bodies(await reader.receive(cursor=other)) == [b"d"]
        # It is behind all that was there then, as DM-A17 has the end of the queue.
        for is_cancelled in (False, True):
            await reader.send(b"lent")
            key, cursor = await reader.lent(), await reader.cursor()
            if is_cancelled:
                tagged = reader.client.next()
                wait = await reader.waits(
                    reader.receive(request=tagged, cursor=cursor, timeout_ms=LONG_MS)
                )
                await reader.cancel(tagged.number)
                assert (await wait).status == CANCELLED
            else:
                late = await reader.receive(cursor=cursor, timeout_ms=SHORT_MS)
                assert late.status == TIMEOUT
            await reader.give_back(key)
            assert (await reader.receive(cursor=cursor, timeout_ms=0)).status == NOT_FOUND
            await reader.send(b"e")
            assert bodies(await reader.receive(cursor=cursor)) == [b"e"]
            assert bodies(await reader.receive()) == [b"lent"]

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.7.1.14-02",
    "DM-3.1.7.1.14-03",
    "DM-3.1.7.1.14-04",
    "DM-3.1.7.1.14-05",
    "DM-3.2.7.3-02",
)
def test_peeking_at_the_next_message() -> None:
    async def scenario(reader: Reader) -> None:
        first, second = await reader.cursor(), await reader.cursor()
        assert first != second
        assert (await reader.peek(cursor=first, action=NEXT)).status == ILLEGAL
        await reader.send(b"a", b"b")
        assert bodies(await reader.peek(cursor=first)) == [b"a"]
        assert bodies(await reader.peek(cursor=first, action=NEXT)) == [b"b"]
        late = await reader.peek(cursor=first, action=NEXT, timeout_ms=SHORT_MS)
        assert late.status == TIMEOUT
        await stays_where_its_peek_waited_in_vain(reader)
        # Both wait for the same message, and a receive behind them: all are served by it.
        assert bodies(await reader.peek(cursor=second)) == [b"a"]
        assert bodies(await reader.peek(cursor=second, action=NEXT)) == [b"b"]
        peeks = [
            await reader.waits(reader.peek(cursor=cursor, action=NEXT, timeout_ms=LONG_MS), count)
            for count, cursor in enumerate((first, second), start=1)
        ]
        assert bodies(await reader.receive()) == [b"a"]
        assert bodies(await reader.receive()) == [b"b"]
        taking = await reader.waits(reader.receive(timeout_ms=LONG_MS), 3)
        await reader.send(b"c")
        assert [bodies(one) for one in await asyncio.gather(*peeks, taking)] == [[b"c"]] * 3
        # The cursors are at that message now.
        await reader.send(b"d")
        for cursor in (first, second):
            assert (await reader.peek(cursor=cursor)).status == RECEIVED
            assert bodies(await reader.peek(cursor=cursor, action=NEXT)) == [b"d"]
        # Each waits with its own cursor, and ends with it.
        peeks = [
            await reader.waits(reader.peek(cursor=cursor, action=NEXT, timeout_ms=LONG_MS), count)
            for count, cursor in enumerate((first, second), start=1)
        ]
        closing = data_pb2.CloseCursorRequest(client_id=reader.client.client_id, cursor=first)
        await reader.client.data.CloseCursor(closing)
        assert (await peeks[0]).status == CANCELLED
        assert not peeks[1].done()
        await reader.send(b"e")
        assert bodies(await peeks[1]) == [b"e"]

    reading(scenario)


async def stays_where_its_peek_waited_in_vain(reader: Reader) -> None:
    """What was locked behind a cursor meanwhile is still the next one (DM-A18)."""
    await reader.send(b"last")
    found = await reader.peek(count=3)
    assert bodies(found) == [b"a", b"b", b"last"]
    selector = data_pb2.Selector(
        kind=data_pb2.EXACT, lookup_identifier=found.messages.lookup_identifiers[2]
    )
    cursor = await reader.cursor()
    for action, body in ((0, b"a"), (NEXT, b"b")):
        assert bodies(await reader.peek(cursor=cursor, action=action)) == [body]
    for timeout_ms, status in ((0, NOT_FOUND), (SHORT_MS, TIMEOUT)):
        key = await reader.lent(selector)
        late = await reader.peek(cursor=cursor, action=NEXT, timeout_ms=timeout_ms)
        assert (late.status, bodies(late)) == (status, [])
        await reader.give_back(key)
        assert bodies(await reader.peek(cursor=cursor)) == [b"b"]
    assert bodies(await reader.peek(cursor=cursor, action=NEXT)) == [b"last"]
    assert bodies(await reader.receive(selector=selector)) == [b"last"]


@pytest.mark.spec("DM-3.2.7.2-03", "DM-3.2.7.4-03", "DM-3.1.7.1.15-02")
def test_a_cursor_does_not_read_what_another_holds_locked() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        await reader.send(b"a", b"b")
        assert bodies(await reader.peek(cursor=cursor)) == [b"a"]
        key = await reader.lent()
        for read in (reader.peek, reader.receive):
            assert (await read(cursor=cursor, timeout_ms=SHORT_MS)).status == RECEIVED
        await reader.give_back(key)
        assert bodies(await reader.peek(cursor=cursor)) == [b"a"]
        assert bodies(await reader.receive(cursor=cursor)) == [b"a"]

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.15-02", "DM-3.1.7.1.15-03", "DM-3.1.7.1.15-05")
def test_peeking_at_the_current_message() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        assert (await reader.peek(cursor=cursor, timeout_ms=SHORT_MS)).status == TIMEOUT
        assert (await reader.peek(timeout_ms=SHORT_MS)).status == TIMEOUT
        with_cursor = await reader.waits(reader.peek(cursor=cursor, timeout_ms=LONG_MS), 1)
        without = await reader.waits(reader.peek(timeout_ms=LONG_MS), 2)
        await reader.send(b"a")
        assert [bodies(one) for one in await asyncio.gather(with_cursor, without)] == [[b"a"]] * 2
        assert bodies(await reader.peek(cursor=cursor)) == [b"a"]
        assert bodies(await reader.receive()) == [b"a"]
        assert (await reader.peek(cursor=cursor)).status == RECEIVED
        ending = await reader.waits(reader.peek(timeout_ms=LONG_MS), 1)
        await reader.close()
        assert (await ending).status == CANCELLED

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.2.3-01", "DM-3.1.2.3-02", "DM-3.1.2.3-03", "DM-3.1.6.3-01", "DM-3.1.7.3.4-01"
)
def test_each_wait_has_its_own_time() -> None:
    async def scenario(reader: Reader) -> None:
        clock = asyncio.get_running_loop().time

        async def lasts(timeout_ms: int, read: Callable[..., Any] = reader.receive) -> float:
            begun = clock()
            assert (await read(timeout_ms=timeout_ms)).status == TIMEOUT
            return (clock() - begun) * 1000

        at, past = await reader.cursor(), await reader.cursor()
        looks = [
            await reader.waits(reader.peek(timeout_ms=FOREVER), 1),
            await reader.waits(reader.peek(cursor=at, timeout_ms=FOREVER), 2),
        ]
        forever = await reader.waits(reader.receive(timeout_ms=FOREVER), 3)
        long = await reader.waits(reader.receive(timeout_ms=LONG_MS), 4)
        cursor = await reader.waits(reader.receive(cursor=past, timeout_ms=FOREVER), 5)
        longer = asyncio.ensure_future(lasts(20 * SHORT_MS))
        for _ in range(3):
            # Not before its time, and not with the next one.
            assert SHORT_MS <= await lasts(SHORT_MS)
            assert not longer.done()
        assert 20 * SHORT_MS <= await longer < LONG_MS
        assert not forever.done()
        assert not any(one.done() for one in (*looks, long, cursor))
        await reader.send(b"a", b"b", b"c")
        assert [bodies(await look) for look in looks] == [[b"a"]] * 2
        assert bodies(await forever) == [b"a"]
        assert bodies(await long) == [b"b"]
        assert bodies(await cursor) == [b"c"]
        # Not later either: a node that is busy may be late once, but not each time.
        for read in (reader.receive, reader.peek):
            soonest = min([await lasts(10 * SHORT_MS, read) for _ in range(3)])
            assert 10 * SHORT_MS <= soonest < 18 * SHORT_MS

    reading(scenario)


@pytest.mark.spec("DM-3.1.2.3-02")
def test_a_wait_without_end_outlasts_the_requests_that_make_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qm.client.reading.WAIT_SLICE_S", SHORT_MS / 2_000)
    with serving() as service:
        info = made(service)
        for name in ("Receive", "Peek", "ReceiveCurrent", "PeekCurrent"):
            queue = opened(info)
            late = partial(mqac_reads.send, service, info, name)
            assert mqac_reads.what_comes(getattr(queue, name), late) == [name]
            opened(info).Purge()


@pytest.mark.spec("DM-3.1.7.3.1-02")
def test_without_time_nothing_waits() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        for read, status in (
            (reader.receive(timeout_ms=0), NOT_FOUND),
            (reader.peek(timeout_ms=0), NOT_FOUND),
            (reader.receive(cursor=cursor, timeout_ms=0), NOT_FOUND),
            (reader.peek(cursor=cursor, timeout_ms=0), NOT_FOUND),
        ):
            async with asyncio.timeout(LONG_MS / 1000):
                found = await read
            assert (found.status, bodies(found)) == (status, [])
        # None of them takes or holds up what comes later.
        await reader.send(b"a")
        assert bodies(await reader.receive()) == [b"a"]

    reading(scenario)


# Lines of readers ---------------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.1.16-06",
    "DM-3.1.7.2.2-03",
    "DM-3.1.7.3.1-03",
    "DM-3.1.7.3.6-01",
    "DM-3.1.7.2.2-04",
)
def test_readers_are_served_first_come_first_served() -> None:
    async def scenario(reader: Reader) -> None:
        line = [await reader.waits(reader.receive(timeout_ms=LONG_MS), n) for n in range(1, 4)]
        await reader.send(b"a")
        assert bodies(await line[0]) == [b"a"]
        assert not line[1].done()
        assert not line[2].done()
        await reader.send(b"b", b"c")
        assert [bodies(one) for one in await asyncio.gather(*line[1:])] == [[b"b"], [b"c"]]
        # What comes back is for the first in line, too; it may take several or go by a cursor.
        await reader.send(b"d", b"e", b"f")
        keys = [await reader.lent() for _ in range(3)]
        line = [
            await reader.waits(read, count)
            for count, read in enumerate(
                (
                    reader.receive(count=2, timeout_ms=LONG_MS),
                    reader.receive(cursor=await reader.cursor(), timeout_ms=LONG_MS),
                    reader.receive(timeout_ms=LONG_MS),
                ),
                start=1,
            )
        ]
        for place, (key, body) in enumerate(zip(reversed(keys), (b"f", b"e", b"d"), strict=True)):
            assert not any(one.done() for one in line[place:])
            await reader.give_back(key)
            assert bodies(await line[place]) == [body]

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.2.2-05", "DM-3.1.7.3.7-01")
def test_a_peek_lets_the_next_reader_go_and_a_receive_does_not() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        await create(client, r".\private$\other")
        other = Reader(client, await client.open(r".\private$\other"), reader._waiting)
        elsewhere = [
            await other.waits(read(timeout_ms=LONG_MS), number)
            for number, read in enumerate((other.peek, other.receive), start=1)
        ]
        peeks = [await reader.waits(reader.peek(timeout_ms=LONG_MS), 3 + n) for n in range(3)]
        first = await reader.waits(reader.receive(timeout_ms=LONG_MS), 6)
        second = await reader.waits(reader.receive(timeout_ms=LONG_MS), 7)
        await reader.send(b"a")
        assert [bodies(one) for one in await asyncio.gather(*peeks, first)] == [[b"a"]] * 4
        assert not second.done()
        await reader.send(b"b")
        assert bodies(await second) == [b"b"]
        # The same with what comes back.
        await reader.send(b"c")
        key = await reader.lent()
        peeks = [await reader.waits(reader.peek(timeout_ms=LONG_MS), 3 + n) for n in range(2)]
        first = await reader.waits(reader.receive(timeout_ms=LONG_MS), 5)
        await reader.give_back(key)
        assert [bodies(one) for one in await asyncio.gather(*peeks, first)] == [[b"c"]] * 3
        assert not any(one.done() for one in elsewhere), "those are of another queue"
        await client.send(r".\private$\other", b"other")
        assert [bodies(one) for one in await asyncio.gather(*elsewhere)] == [[b"other"]] * 2

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.7.1.17-01",
    "DM-3.1.7.3.1-04",
    "DM-3.1.7.3.1-05",
    "DM-3.1.7.3.5-01",
    "DM-3.1.7.1.6-03",
)
def test_a_wait_ends_once_by_its_message_a_cancel_or_the_end_of_its_handle() -> None:
    """A request number is the tag of a wait."""

    async def scenario(reader: Reader) -> None:
        client = reader.client
        tagged = client.next()
        first = await reader.waits(reader.receive(request=tagged, timeout_ms=FOREVER), 1)
        second = await reader.waits(reader.receive(timeout_ms=FOREVER), 2)
        await client.data.Cancel(
            data_pb2.CancelRequest(client_id=client.client_id, first_number=tagged.number, count=1)
        )
        assert (await first).status == CANCELLED
        assert not second.done()
        await reader.send(b"a")
        assert bodies(await second) == [b"a"], "the cancelled one took nothing"
        third = await reader.waits(reader.receive(timeout_ms=FOREVER), 1)
        closing = data_pb2.CloseQueueRequest(request=client.next(), handle=reader.queue.handle)
        await client.data.CloseQueue(closing)
        assert (await third).status == CANCELLED
        await reader.send(b"b")
        reader.queue = await client.open(ORDERS)
        assert bodies(await reader.receive()) == [b"b"]
        # Its time ends it with another status; so it is with one that only looks.
        for read in (reader.receive, reader.peek):
            assert (await read(timeout_ms=SHORT_MS)).status == TIMEOUT
        looking = await reader.waits(reader.peek(timeout_ms=FOREVER), 1)
        closing = data_pb2.CloseQueueRequest(request=client.next(), handle=reader.queue.handle)
        await client.data.CloseQueue(closing)
        assert (await looking).status == CANCELLED
        await reader.nobody_waits()
        # One whose caller is gone has left, too.
        reader.queue = await client.open(ORDERS)
        for read in (reader.receive, reader.peek):
            (await reader.waits(read(timeout_ms=FOREVER), 1)).cancel()
            await reader.nobody_waits()

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.6-03", "DM-3.1.7.3.1-05")
def test_the_end_of_a_handle_ends_each_of_its_waits_and_no_other() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        other = Reader(client, await client.open(ORDERS), reader._waiting)
        cursors = [await reader.cursor() for _ in range(2)]
        reads: tuple[Awaitable[Any], ...] = (
            other.receive(timeout_ms=FOREVER),
            reader.receive(timeout_ms=FOREVER),
            reader.receive(cursor=cursors[0], timeout_ms=FOREVER),
            reader.peek(timeout_ms=FOREVER),
            reader.peek(cursor=cursors[1], timeout_ms=FOREVER),
            reader.receive(timeout_ms=FOREVER),
            other.peek(timeout_ms=FOREVER),
        )
        waits = [await reader.waits(read, count) for count, read in enumerate(reads, start=1)]
        await reader.close()
        for ended in waits[1:-1]:
            found = await ended
            assert (found.status, bodies(found)) == (CANCELLED, [])
        assert not waits[0].done()
        assert not waits[-1].done()
        assert reader._waiting() == 2
        await reader.send(b"a", b"b")
        assert [bodies(await one) for one in (waits[0], waits[-1])] == [[b"a"]] * 2
        assert bodies(await other.receive()) == [b"b"], "those that ended took nothing"
        await reader.nobody_waits()

    reading(scenario)


@pytest.mark.spec("DM-3.1.1.10-01", "DM-3.1.7.1.2-01", "DM-3.1.7.1.10-07")
def test_a_wait_takes_or_not_and_has_a_tag_or_not_and_a_cursor_or_not() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        cursors = [await reader.cursor() for _ in range(4)]
        reads: tuple[Callable[[], Awaitable[Any]], ...] = (
            lambda: reader.peek(cursor=cursors[0], timeout_ms=FOREVER),
            lambda: reader.peek(cursor=cursors[1], timeout_ms=FOREVER),
            lambda: reader.peek(timeout_ms=FOREVER),
            lambda: reader.receive(cursor=cursors[2], timeout_ms=FOREVER),
            lambda: reader.receive(cursor=cursors[3], timeout_ms=FOREVER),
            lambda: reader.receive(cursor=cursors[2], timeout_ms=FOREVER),
        )
        waits = [await reader.waits(read(), count) for count, read in enumerate(reads, start=1)]
        # The end of a cursor ends what waits at it, whether it takes or not.
        for closed in (cursors[0], cursors[2]):
            closing = data_pb2.CloseCursorRequest(client_id=client.client_id, cursor=closed)
            await client.data.CloseCursor(closing)
        for ended in (waits[0], waits[3], waits[5]):
            assert (await ended).status == CANCELLED
        assert not any(wait.done() for wait in (waits[1], waits[2], waits[4]))
        await reader.send(b"a")
        found = await asyncio.gather(waits[1], waits[2], waits[4])
        assert [bodies(one) for one in found] == [[b"a"]] * 3
        await reader.send(b"b")
        assert bodies(await reader.receive()) == [b"b"], "the cancelled one took nothing"
        # A tag ends the wait that has it, and a peek behind who takes still sees the message.
        tagged = client.next()
        named = await reader.waits(reader.receive(request=tagged, timeout_ms=FOREVER), 1)
        taking = await reader.waits(reader.receive(timeout_ms=FOREVER), 2)
        looking = await reader.waits(reader.peek(timeout_ms=FOREVER), 3)
        await client.data.Cancel(
            data_pb2.CancelRequest(client_id=client.client_id, first_number=tagged.number, count=1)
        )
        await until(named.done)
        assert (await named).status == CANCELLED
        assert not taking.done()
        assert not looking.done()
        await reader.send(b"c")
        await until(looking.done)
        assert bodies(await looking) == bodies(await taking) == [b"c"]

    reading(scenario)


@pytest.mark.spec("DM-3.1.1.16-02")
@pytest.mark.parametrize(
    ("name", "access", "may_peek", "may_receive"),
    [
        (ORDERS, data_pb2.RECEIVE_ACCESS, True, True),
        (ORDERS, data_pb2.SEND_ACCESS, False, False),
        (ORDERS, data_pb2.PEEK_ACCESS, True, False),
        (f"{ORDERS};later", data_pb2.MOVE_ACCESS, False, False),
        (ELSEWHERE, data_pb2.RECEIVE_ADMIN_ACCESS, True, True),
        (ELSEWHERE, data_pb2.PEEK_ADMIN_ACCESS, True, False),
    ],
)
def test_a_handle_has_one_of_six_accesses_and_one_of_two_share_modes(
    name: str, access: Any, may_peek: bool, may_receive: bool
) -> None:
    unsupported = "MQ_ERROR_UNSUPPORTED_ACCESS_MODE"

    async def scenario(reader: Reader) -> None:
        client = reader.client
        await client.send(ELSEWHERE, b"a")
        await client.send(ORDERS, b"a")
        await reader.close()
        opened = await client.open(name, access, data_pb2.DENY_NONE)
        for read, is_permitted in ((client.peek, may_peek), (client.receive, may_receive)):
            if is_permitted:
                assert bodies(await read(opened)) == [b"a"]
            else:
                with refused(grpc.StatusCode.PERMISSION_DENIED, "MQ_ERROR_ACCESS_DENIED"):
                    await read(opened)
        for none in (6, 7, 0x20, 0x80, 2**31 - 1):
            with refused(grpc.StatusCode.INVALID_ARGUMENT, unsupported):
                await client.open(name, none)
        for none in (2, 3, 7, 2**31 - 1):
            with refused(grpc.StatusCode.INVALID_ARGUMENT, unsupported):
                await client.open(name, access, none)
        # Who denies others to receive keeps them out, and is kept out by them.
        reader.queue = opened
        await reader.close()
        if access == data_pb2.SEND_ACCESS:
            with refused(grpc.StatusCode.INVALID_ARGUMENT, unsupported):
                await client.open(name, access, data_pb2.DENY_RECEIVE)
            return
        taking = data_pb2.RECEIVE_ADMIN_ACCESS if name == ELSEWHERE else data_pb2.RECEIVE_ACCESS
        violation = "MQ_ERROR_SHARING_VIOLATION"
        reader.queue = await client.open(name, access, data_pb2.DENY_RECEIVE)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, violation):
            await client.open(name, taking)
        await reader.close()
        reader.queue = await client.open(name, taking, data_pb2.DENY_NONE)
        await client.open(name, access, data_pb2.DENY_NONE)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, violation):
            await client.open(name, taking, data_pb2.DENY_RECEIVE)

    reading(scenario)


@pytest.mark.spec("DM-3.2.1.2-01", "DM-3.2.7.1-02", "DM-3.1.1.16-06")
def test_each_cursor_has_a_handle_of_its_own_and_reads_the_queue_of_its_descriptor() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        other_name = r".\private$\other"
        await create(client, other_name)
        again = Reader(client, await client.open(ORDERS), lambda: 0)
        other = Reader(client, await client.open(other_name), lambda: 0)
        elsewhere = Client(client.channel, "another")
        await elsewhere.open_session()
        stranger = Reader(elsewhere, await elsewhere.open(ORDERS), lambda: 0)
        readers = (reader, again, other, stranger)
        cursors = [(one, await one.cursor()) for one in readers for _ in range(3)]
        assert len({cursor for _, cursor in cursors}) == len(cursors)
        await reader.send(b"a")
        await client.send(other_name, b"other")
        for one, cursor in cursors:
            found = bodies(await one.peek(cursor=cursor))
            assert found == [b"other" if one is other else b"a"]
        # It is before the first message, whatever there is when it is made, and at none.
        await reader.send(b"b", b"c")
        late = await reader.cursor()
        assert (await reader.peek(cursor=late, action=NEXT)).status == ILLEGAL
        assert bodies(await reader.peek(cursor=late)) == [b"a"]
        assert bodies(await reader.receive(cursor=await reader.cursor())) == [b"a"]
        # Its descriptor is part of what it is: another one's handle does not open it.
        with refused(grpc.StatusCode.INVALID_ARGUMENT, field="cursor"):
            await other.peek(cursor=cursors[0][1])
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_INVALID_HANDLE"):
            await stranger.peek(cursor=cursors[0][1])

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.1-02", "DM-3.1.7.1.2-02", "DM-3.1.7.1.6-04", "DM-3.1.1.16-06")
def test_cursors_live_as_long_as_their_handle() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        first, second, third = [await reader.cursor() for _ in range(3)]
        again = Reader(client, await client.open(ORDERS), lambda: 0)
        other = await again.cursor()
        await reader.send(b"a")
        closing = data_pb2.CloseCursorRequest(client_id=client.client_id, cursor=first)
        await client.data.CloseCursor(closing)
        invalid = grpc.StatusCode.FAILED_PRECONDITION
        with refused(invalid, "MQ_ERROR_INVALID_HANDLE"):
            await reader.peek(cursor=first)
        assert bodies(await reader.peek(cursor=second)) == [b"a"]
        await client.data.CloseQueue(
            data_pb2.CloseQueueRequest(request=client.next(), handle=reader.queue.handle)
        )
        for ended in (second, third):
            with refused(invalid, "MQ_ERROR_INVALID_HANDLE"):
                await client.data.CloseCursor(
                    data_pb2.CloseCursorRequest(client_id=client.client_id, cursor=ended)
                )
        # Another handle of this client has cursors of its own, which begin at the first message.
        assert bodies(await again.peek(cursor=other)) == [b"a"]
        assert bodies(await again.peek(cursor=await again.cursor())) == [b"a"]

    reading(scenario)


@pytest.mark.spec("DM-3.2.7.4-01", "DM-3.2.7.4-02")
def test_a_cursor_that_need_not_wait_stays_where_it_finds_nothing() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        await reader.send(b"a", b"b")
        assert bodies(await reader.receive(cursor=cursor)) == [b"a"]
        # Nothing can be received behind it while this is lent, and then it can.
        key = await reader.lent()
        for _ in range(2):
            assert (await reader.receive(cursor=cursor, timeout_ms=0)).status == NOT_FOUND
        await reader.give_back(key)
        assert bodies(await reader.receive(cursor=cursor)) == [b"b"]
        # One that waited in vain is behind all that was there (DM-A17).
        await reader.send(b"c")
        key = await reader.lent()
        assert (await reader.receive(cursor=cursor, timeout_ms=SHORT_MS)).status == TIMEOUT
        await reader.give_back(key)
        assert (await reader.receive(cursor=cursor, timeout_ms=0)).status == NOT_FOUND
        assert bodies(await reader.receive()) == [b"c"]

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.14-01", "DM-3.1.7.1.15-01")
def test_without_a_timeout_a_peek_waits_for_ever() -> None:
    with serving() as service:
        for name in ("Peek", "PeekCurrent", "PeekNext"):
            mqac_reads.has_defaults(service, name)
            mqac_reads.waits(service, name)
        info = made(service)
        queue = opened(info)
        mqac_reads.send(service, info, "a")
        queue.PeekCurrent(ReceiveTimeout=0)
        info.Delete()
        for peek in (queue.Peek, queue.PeekNext, queue.PeekCurrent):
            with fails(NOT_AVAILABLE):
                peek()
            for timeout_ms in (0, LONG_MS):
                with fails(NOT_AVAILABLE):
                    peek(ReceiveTimeout=timeout_ms)

    async def scenario(reader: Reader) -> None:
        waiting = await reader.waits(reader.peek(timeout_ms=FOREVER), 1)
        assert not waiting.done()
        await reader.send(b"a")
        assert bodies(await waiting) == [b"a"]
        name = control_pb2.QueueName(queue_id=reader.queue.queue_id)
        await reader.client.queues.DeleteQueue(control_pb2.DeleteQueueRequest(queue=name))
        assert (await reader.peek(timeout_ms=FOREVER)).status == NOT_AVAILABLE

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.7.1.1-01", "DM-3.2.7.1-01", "DM-3.1.7.1.6-02", "DM-3.1.7.3.1-01", "DM-3.1.7.1.14-01"
)
def test_nothing_waits_in_a_queue_that_is_gone() -> None:
    async def scenario(reader: Reader) -> None:
        client = reader.client
        await reader.send(b"a")
        cursor, unread = await reader.cursor(), await reader.cursor()
        assert bodies(await reader.peek(cursor=cursor)) == [b"a"]
        name = control_pb2.QueueName(queue_id=reader.queue.queue_id)
        await client.queues.DeleteQueue(control_pb2.DeleteQueueRequest(queue=name))
        gone = "MQ_ERROR_QUEUE_NOT_AVAILABLE"
        with refused(grpc.StatusCode.NOT_FOUND, gone):
            await reader.receive(timeout_ms=FOREVER)
        assert (await reader.peek(timeout_ms=FOREVER)).status == NOT_AVAILABLE
        with refused(grpc.StatusCode.NOT_FOUND, gone):
            await reader.peek(cursor=cursor, action=NEXT, timeout_ms=FOREVER)
        for one in (cursor, unread):
            with refused(grpc.StatusCode.NOT_FOUND, gone):
                await reader.peek(cursor=one, timeout_ms=FOREVER)
        with refused(grpc.StatusCode.NOT_FOUND, gone):
            await reader.receive(cursor=unread, timeout_ms=FOREVER)
        with refused(grpc.StatusCode.NOT_FOUND, gone):
            await reader.cursor()
        closing = data_pb2.CloseQueueRequest(request=client.next(), handle=reader.queue.handle)
        await client.data.CloseQueue(closing)

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.13-01")
def test_a_peek_is_never_part_of_a_transaction() -> None:
    assert "transaction" not in data_pb2.PeekRequest.DESCRIPTOR.fields_by_name
    assert "is_two_phase" not in data_pb2.PeekRequest.DESCRIPTOR.fields_by_name

    async def scenario(reader: Reader) -> None:
        await reader.send(b"a")
        (key,) = (await reader.peek()).messages.lookup_identifiers
        exact = data_pb2.Selector(kind=data_pb2.EXACT, lookup_identifier=key)
        assert bodies(await reader.peek(selector=exact)) == [b"a"]
        # Not said to be of two phases, a read takes at once: nothing is left to end.
        assert bodies(await reader.receive(selector=exact)) == [b"a"]
        assert (await reader.receive(selector=exact)).status == RECEIVED

    reading(scenario)
    with serving() as service:
        queue = opened(mqac_reads.filled(service, *"abcdef"))
        ids = [found.LookupId for found in mqac_reads.walk(queue)]
        taken = [
            queue.ReceiveByLookupId(ids[1]),
            queue.ReceiveNextByLookupId(ids[2]),
            queue.ReceivePreviousByLookupId(ids[2]),
            queue.ReceiveFirstByLookupId(),
            queue.ReceiveLastByLookupId(),
        ]
        assert [mqac_reads.body(found) for found in taken] == ["b", "d", "a", "c", "f"]
        assert message_count(service, queue) == 1


@pytest.mark.spec("DM-3.1.7.1.10-10")
def test_a_receive_that_finds_nothing_available_ends_with_the_status_of_its_wait() -> None:
    async def scenario(reader: Reader) -> None:
        assert (await reader.receive(timeout_ms=SHORT_MS)).status == TIMEOUT
        waiting = await reader.waits(reader.receive(timeout_ms=LONG_MS))
        await reader.send(b"a")
        taken = await waiting
        assert (taken.status, bodies(taken)) == (0, [b"a"])
        assert (await reader.peek(timeout_ms=0)).status == NOT_FOUND, "it was taken"
        # What is locked is not available, until it is returned.
        await reader.send(b"b")
        key = await reader.lent()
        assert (await reader.receive(timeout_ms=SHORT_MS)).status == TIMEOUT
        waiting = await reader.waits(reader.receive(timeout_ms=LONG_MS))
        await reader.give_back(key)
        assert bodies(await waiting) == [b"b"]
        tagged = reader.client.next()
        waiting = await reader.waits(reader.receive(request=tagged, timeout_ms=LONG_MS))
        await reader.cancel(tagged.number)
        assert (await waiting).status == CANCELLED
        waiting = await reader.waits(reader.receive(timeout_ms=LONG_MS))
        await reader.close()
        assert (await waiting).status == CANCELLED

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.13-07", "DM-3.1.7.3.3-03")
def test_a_lookup_returns_its_message_and_one_that_only_looks_leaves_it() -> None:
    async def scenario(reader: Reader) -> None:
        sent = [b"%d" % number for number in range(6)]
        await reader.send(*sent)
        keys = list((await reader.peek(count=6)).messages.lookup_identifiers)
        lookups = [
            (data_pb2.Selector(kind=kind, lookup_identifier=key), body)
            for kind, key, body in (
                (data_pb2.SEEK_NEXT, keys[2], b"3"),
                (data_pb2.SEEK_PREVIOUS, keys[2], b"1"),
                (data_pb2.SEEK_LAST, 0, b"5"),
                (data_pb2.EXACT, keys[2], b"2"),
            )
        ]
        for _ in range(2):
            for selector, body in lookups:
                found = await reader.peek(selector=selector)
                assert (found.status, bodies(found)) == (0, [body])
            assert bodies(await reader.peek(count=6)) == sent
        for selector, body in lookups:
            found = await reader.receive(selector=selector)
            assert (found.status, bodies(found)) == (0, [body])
        assert bodies(await reader.peek(count=6)) == [b"0", b"4"]

    reading(scenario)
