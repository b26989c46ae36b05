"""EOD_SOURCE_INFO where more streams lead into the cluster than are read at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from qm.rpc.remote_management import senders
from qm.rpc.remote_management.interface import QMMGMT
from tests.cluster.harness import HarnessNode
from tests.cluster.messages import batch, create_queue
from tests.unit.api.world import Client
from tests.unit.rpc.reading import RpcWorld
from tests.unit.rpc.test_management_rules import EXACT
from tests.unit.rpc.test_management_values import SOURCE_INFO, values
from tests.unit.rpc.test_remote_management import in_world, queue

MANY = r"DIRECT=OS:QUORATE\private$\manysenders"
STREAMS = 1_005
"""More than a page of streams."""


def spelled(name: str, count: int) -> list[str]:
    """Return so many ways to write a name, each of which begins a stream of its own."""
    return [
        "".join(
            letter.upper() if number >> place & 1 else letter for place, letter in enumerate(name)
        )
        for number in range(count)
    ]


async def arrive(node: HarnessNode, names: Sequence[str]) -> None:
    """Have a transactional message arrive under each of these names."""
    batches = [
        batch(name, [number], number, sequence=(number, 1, 0))
        for number, name in enumerate(names, 1)
    ]
    outcomes = await node.cluster.propose(*batches)
    assert [one.status for one in outcomes] == [0] * len(names)


async def columns(caller: Any, name: str) -> list[list[Any]]:
    (found,) = await values(caller, queue(name), SOURCE_INFO)
    return [list(one.value) for one in found.value]


@pytest.mark.spec("MR-2.2.3.2-30")
def test_streams_into_a_queue_are_told_however_many_lead_elsewhere() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        node = await world.harness.leader()
        for name in ("exact", "manysenders"):
            await create_queue(node, name, transactional=True)
        await arrive(node, [*spelled("manysenders", STREAMS), "exact"])
        caller = await world.caller(QMMGMT)
        formats, *others = await columns(caller, EXACT)
        assert [one.casefold() for one in formats] == [EXACT.casefold()]
        assert [len(one) for one in others] == [1] * 5
        formats, _, sequences, *_ = await columns(caller, MANY)
        assert {one.casefold() for one in formats} == {MANY.casefold()}
        assert sorted(sequences) == [*range(1, STREAMS + 1)]

    in_world(scenario)


@pytest.mark.parametrize("limit", ["STREAMS_LISTED_MAX", "STREAMS_SCANNED_MAX"])
def test_a_list_of_senders_that_is_cut_is_counted_and_logged(
    limit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(senders, limit, 3)
    monkeypatch.setattr(senders, "STREAMS_AT_A_TIME", 2)

    async def scenario(world: RpcWorld, client: Client) -> None:
        node = await world.harness.leader()
        await create_queue(node, "manysenders", transactional=True)
        caller = await world.caller(QMMGMT)
        registry = (await world.leader()).metrics.registry

        async def told(count: int) -> tuple[int, float | None]:
            await arrive(node, spelled("manysenders", count))
            formats, *_ = await columns(caller, MANY)
            return len(formats), registry.get_sample_value("quorate_remote_senders_cut_total")

        assert await told(3) == (3, 0)
        shown, cut = await told(6)
        assert (shown < 6, cut) == (True, 1)
        (line,) = [one for one in caplog.records if one.name == senders.__name__]
        assert line.levelno == logging.WARNING
        assert line.__dict__["fields"]["senders"] == shown

    in_world(scenario)
