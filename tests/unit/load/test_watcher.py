"""Watchers: looks that go on whatever becomes of others."""

import asyncio
from types import SimpleNamespace
from typing import cast

from qm.client.client import Client
from qm.load.history import EventKind, HistoryEvent
from qm.load.watcher import RecordingWatcher

PEEKS = 3
WAIT_S = 30.0


def test_a_count_that_is_not_answered_keeps_nobody_from_peeking() -> None:
    async def scenario() -> None:
        answered, seen = asyncio.Event(), asyncio.Event()
        kinds: list[EventKind] = []

        async def call(*_: object) -> object:
            await answered.wait()
            return SimpleNamespace(message_count=0)

        async def peek(**_: object) -> None:
            return None

        async def open_queue(_: str) -> object:
            return SimpleNamespace(
                peek=peek, session=SimpleNamespace(wire=SimpleNamespace(call=call))
            )

        async def close_queue(_: object) -> None:
            return None

        def record(event: HistoryEvent) -> None:
            kinds.append(event.kind)
            if kinds.count(EventKind.PEEKED) == PEEKS:
                seen.set()

        client = SimpleNamespace(open_queue=open_queue, close_queue=close_queue)
        watcher = RecordingWatcher("watcher", cast("Client", client), "queue", record)
        running = asyncio.create_task(watcher.run())
        await asyncio.wait_for(seen.wait(), WAIT_S)
        assert EventKind.COUNTED not in kinds
        answered.set()
        watcher.stop()
        await asyncio.wait_for(running, WAIT_S)
        assert EventKind.COUNTED in kinds

    asyncio.run(scenario())
