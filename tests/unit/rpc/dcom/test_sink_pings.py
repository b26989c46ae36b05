"""A client's computer lets go of a sink that nobody pings: so this node pings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from prometheus_client import CollectorRegistry

from qm.observe.metrics import Metrics
from qm.rpc.dcom.mqac.events import DcomEvent, SinkPlace, Sinks
from qm.rpc.dcom.mqac.threads import LoopRunner, Threads
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.identifiers import IID_IUNKNOWN
from qm.rpc.dcom.runtime.objref import NO_PING, Bindings, Objref
from qm.rpc.dcom.service import NOBODY
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import eventually
from tests.unit.rpc.dcom.test_events import HERE, OID, OXID, SINK, SINK_PORT, Sink, sink

PERIOD_S = 0.05
"""In place of two minutes."""
GIVEN = b"u" * 16
MADE = [0, 1, 1, 0, [OID], None]
"""The ping that makes a set with the sink's object."""


@contextlib.asynccontextmanager
async def sinks(registry: CollectorRegistry) -> AsyncIterator[Sinks]:
    """What calls the sinks of a node's clients."""
    runner, metrics = LoopRunner(), Metrics(registry)
    made = Sinks(
        Threads(), runner, NOBODY, SINK_PORT, refer, lambda *_: lambda: None, metrics, PERIOD_S
    )
    try:
        yield made
    finally:
        made.close()


def refer(target: Any, place: SinkPlace) -> bytes:
    raise AssertionError("nothing is referred to")


async def advised(made: Sinks, flags: int = 0) -> tuple[DcomEvent, int]:
    """An event with a sink, and its cookie."""
    event = DcomEvent(made, SinkPlace(Owner("tester", HERE), Bindings(())))
    reference = Objref(IID_IUNKNOWN, OXID, OID, GIVEN, 5, flags)
    return event, await asyncio.to_thread(event.Advise, reference)


async def pinged(told: Sink, *wanted: list[Any]) -> None:
    """Wait until these pings have come, and no others before them."""

    async def have_come() -> bool:
        return len(told.pings) >= len(wanted)

    await eventually(have_come)
    assert told.pings[: len(wanted)] == [*wanted]


def test_a_sink_is_pinged_in_each_period_while_it_is_connected() -> None:
    async def scenario() -> None:
        registry = CollectorRegistry()
        async with sink() as told, sinks(registry) as made:
            event, cookie = await advised(made)
            await pinged(told, MADE, [40], [40], [40])
            # A computer that was started anew knows the set no more.
            told.is_forgetful = True
            told.pings.clear()
            await pinged(told, [40], MADE, [41], [41])
            event.Unadvise(cookie)

            async def is_left() -> bool:
                return [41, 2, 0, 1, None, [OID]] in told.pings

            await eventually(is_left)
            assert told.released == [[(SINK, 1), (GIVEN, 5)]], "all that it was lent"
            count = len(told.pings)
            await asyncio.sleep(4 * PERIOD_S)
            assert len(told.pings) == count

    run(scenario())


def test_a_sink_that_wants_no_pings_gets_none() -> None:
    async def scenario() -> None:
        async with sink() as told, sinks(CollectorRegistry()) as made:
            event, cookie = await advised(made, NO_PING)
            await asyncio.sleep(4 * PERIOD_S)
            assert told.pings == []
            event.Unadvise(cookie)

            async def is_left() -> bool:
                return told.released == [[(SINK, 1), (GIVEN, 5)]]

            await eventually(is_left)
            assert told.pings == []

    run(scenario())


def test_a_sink_whose_computer_was_away_is_pinged_and_told_again() -> None:
    async def scenario() -> None:
        registry = CollectorRegistry()
        async with sinks(registry) as made:
            async with sink() as told:
                event, _ = await advised(made)
                await pinged(told, MADE)

            async def is_missed() -> bool:
                labels = {"result": "unpinged"}
                return bool(registry.get_sample_value("quorate_dcom_events_total", labels))

            await eventually(is_missed)
            async with sink() as again:
                event.FireArrivedEvent(None, 0)  # type: ignore[arg-type]

                async def is_told() -> bool:
                    return len(again.told) == 1

                await eventually(is_told)
                await eventually_pinged(again)

    run(scenario())


async def eventually_pinged(told: Sink) -> None:
    async def is_pinged() -> bool:
        return len(told.pings) >= 2

    await eventually(is_pinged)
