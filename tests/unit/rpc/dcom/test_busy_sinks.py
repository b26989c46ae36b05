"""A sink's answer comes when its program has handled the event, which may take a while."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from qm.rpc.dcom.limits import SINKS_PER_CALLER_MAX
from qm.rpc.dcom.mqac import events
from qm.rpc.dcom.mqac.events import DcomEvent
from qm.rpc.server.call import Call
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import eventually
from tests.unit.rpc.dcom.test_events import Sink, sink
from tests.unit.rpc.dcom.test_sink_pings import advised, sinks


class BusySink(Sink):
    """Handles each event until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.has_handled = asyncio.Event()
        self.begun = itertools.count(1)
        self.begun_count = 0
        self.associations: list[int] = []

    async def invoke(self, call: Call, given: list[Any]) -> list[Any]:  # type: ignore[override]
        self.begun_count = next(self.begun)
        self.associations.append(call.association.number)
        await self.has_handled.wait()
        return super().invoke(call, given)


def fire(event: DcomEvent) -> None:
    event.FireArrivedEvent(None, 0)  # type: ignore[arg-type]


def counted(registry: CollectorRegistry, result: str) -> float:
    return registry.get_sample_value("quorate_dcom_events_total", {"result": result}) or 0.0


def plays(scenario: Callable[[BusySink, DcomEvent, CollectorRegistry], Awaitable[None]]) -> None:
    async def whole() -> None:
        registry = CollectorRegistry()
        async with sink(BusySink) as told, sinks(registry) as made:
            assert isinstance(told, BusySink)
            event, _ = await advised(made)
            try:
                await scenario(told, event, registry)
            finally:
                told.has_handled.set()

    run(whole())


async def has_begun(told: BusySink, count: int) -> None:
    async def is_so() -> bool:
        return told.begun_count >= count

    await eventually(is_so)


def test_a_program_that_handles_an_event_for_long_is_told_of_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "CONNECT_S", 0.3)

    async def scenario(told: BusySink, event: DcomEvent, registry: CollectorRegistry) -> None:
        fire(event)
        await has_begun(told, 1)
        await asyncio.sleep(1.5)
        assert told.begun_count == 1
        # The next one does not wait for it.
        fire(event)
        await has_begun(told, 2)
        assert counted(registry, "delivered") == 0
        told.has_handled.set()

        async def are_delivered() -> bool:
            return counted(registry, "delivered") == 2

        await eventually(are_delivered)
        assert len(told.told) == told.begun_count == 2
        assert counted(registry, "failed") == 0

    plays(scenario)


def test_a_program_that_never_answers_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SINK_BUSY_MAX_S", 0.3)

    async def scenario(told: BusySink, event: DcomEvent, registry: CollectorRegistry) -> None:
        fire(event)

        async def is_given_up() -> bool:
            return counted(registry, "failed") == 1

        await eventually(is_given_up)
        await asyncio.sleep(2 * events.PAUSE_FIRST_S)
        assert told.begun_count == 1

    plays(scenario)


def test_a_sink_is_told_over_a_connection_that_has_not_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(told: BusySink, event: DcomEvent, registry: CollectorRegistry) -> None:
        told.has_handled.set()

        async def tell(count: int) -> None:
            fire(event)

            async def is_told() -> bool:
                return counted(registry, "delivered") == count

            await eventually(is_told)

        await tell(1)
        await tell(2)
        monkeypatch.setattr(events, "CONNECTION_IDLE_MAX_S", 0.0)
        await tell(3)
        first, second, third = told.associations
        assert first == second
        assert second != third

    plays(scenario)


def test_so_many_events_of_a_caller_are_told_at_once() -> None:
    async def scenario(told: BusySink, event: DcomEvent, registry: CollectorRegistry) -> None:
        for _ in range(SINKS_PER_CALLER_MAX + 5):
            fire(event)

        async def are_refused() -> bool:
            return counted(registry, "failed") >= 5

        await eventually(are_refused)
        await has_begun(told, SINKS_PER_CALLER_MAX)
        assert counted(registry, "failed") == 5

    plays(scenario)
