"""Whole nodes whose disks have no space, and get some: nobody ends, nothing is lost."""

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from qm.cluster.cluster import Unavailable
from qm.model.queries import queue_statistics
from qm.model.values.commands import OpenClient, Send
from qm.node.node import Node
from qm.node.upkeep.housekeeping import DiskWatch, refuse_small_disk
from qm.store import store as store_module
from qm.store.database import Database, DatabaseFull
from qm.store.reserve import DiskLevel
from qm.store.rocks import open_database
from raft.log.disk import DiskDirectory, DiskFile
from raft.replica import StartRefused
from tests.cluster.harness import HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.cluster.test_scrub import flip
from tests.unit.model.world import packet, request
from tests.unit.store.full_rocks import NO_SPACE, NO_SYNC, fill


def count(node: HarnessNode, queue_id: int) -> int:
    """Return how many messages a queue shows on a node; -1 while it cannot tell."""
    if node.service.replicated.machine.is_installing:
        return -1
    statistics = queue_statistics(node.cluster.view, queue_id)
    return -1 if statistics is None else statistics.message_count


def store_is_full(node: HarnessNode) -> None:
    """Have the node's database find no space for its next flush, and flush it."""
    machine = node.service.replicated.machine
    fill(machine.store)
    machine.applied_bytes = 1 << 40


@contextmanager
def no_space() -> Iterator[None]:
    """Let every disk say that nothing is free."""
    with (
        patch.object(DiskWatch, "free_bytes", lambda _: 0),
        patch.object(DiskDirectory, "free_bytes", lambda _: 0),
    ):
        yield


def test_a_single_node_whose_state_found_no_space_goes_on_by_itself() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            node = await nodes.leader()
            queue = await create_queue(node, "orders")
            await propose(node, batch("orders", range(1, 11)))
            machine, disk = node.service.replicated.machine, node.service.disk
            before = machine.store.state
            given_up: list[bool] = []

            def full() -> None:
                given_up.append(True)
                DiskWatch.full(disk)

            node.service._rounds._on_full = full
            store_is_full(node)
            await until(lambda: machine.store.needs_reopening, lambda: None)
            await until(lambda: machine.store.state is not before, lambda: None)
            await until(lambda: count(node, queue) == 10, lambda: count(node, queue))
            assert given_up
            node = await nodes.leader()
            await until(lambda: disk.level is DiskLevel.ROOM, lambda: disk.level)
            await propose(node, batch("orders", range(11, 21)))
            assert count(node, queue) == 20
            assert machine.store.verify()

    run(scenario())


def test_a_cluster_whose_disks_are_all_full_goes_on_when_they_are_not() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            queue = await create_queue(leader, "orders")
            await propose(leader, batch("orders", range(1, 11)))
            machines = [node.service.replicated.machine for node in nodes.up]
            with no_space():
                for node in nodes.up:
                    store_is_full(node)
                await until(
                    lambda: all(machine.store.needs_reopening for machine in machines), lambda: None
                )
                for node in nodes.up:
                    disk = node.service.disk
                    await until(lambda: disk.level is not DiskLevel.ROOM, lambda: None)  # noqa: B023
                    assert count(node, queue) == 10, "what is in memory is read"
            await until(
                lambda: not any(machine.store.needs_reopening for machine in machines),
                lambda: None,
            )
            await until(
                lambda: all(node.service.disk.level is DiskLevel.ROOM for node in nodes.up),
                lambda: None,
            )
            leader = await nodes.leader()
            await propose(leader, batch("orders", range(11, 21)))
            for node in nodes.up:
                await until(lambda: count(node, queue) == 20, lambda: count(node, queue))  # noqa: B023
            digests = {machine.store.applied.digest for machine in machines}
            await until(
                lambda: len({machine.store.applied.digest for machine in machines}) == 1,
                lambda: digests,
            )

    run(scenario())


def test_a_state_that_cannot_be_synced_ends_the_process() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            node = await nodes.leader()
            await create_queue(node, "orders")
            failing = fill(node.service.replicated.machine.store, NO_SYNC)
            node.service.replicated.machine.applied_bytes = 1 << 40
            await until(lambda: nodes.deaths, lambda: None)
            assert "the state cannot" in nodes.deaths[0] or "disk failed" in nodes.deaths[0]
            failing.heal()
            await node.kill()
            nodes.deaths.clear()  # whoever else met the error has said so by now

    run(scenario())


def test_a_node_starts_on_a_full_disk_from_its_reserve() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            node = await nodes.leader()
            queue = await create_queue(node, "orders")
            await propose(node, batch("orders", range(1, 11)))
            await node.kill()
            reserve = node.config.data / "reserve"
            assert reserve.exists()
            opened: list[bool] = []

            def needs_room(*arguments: Any, **options: Any) -> Database:
                opened.append(not reserve.exists())
                if reserve.exists():
                    raise DatabaseFull(NO_SPACE)
                return open_database(*arguments, **options)

            with no_space(), patch.object(store_module, "open_database", needs_room):
                await node.start()
                assert opened == [False, True]
                assert node.service.disk.level is DiskLevel.EXHAUSTED
                node = await nodes.leader()
                await until(lambda: count(node, queue) == 10, lambda: count(node, queue))
                with pytest.raises(Unavailable, match="disk is nearly full"):
                    await node.cluster.propose(Send.of(request(), [("DIRECT=OS:a\\b", packet(2))]))
                await propose(node, OpenClient("c", "somebody", 60_000))
            await until(lambda: node.service.disk.level is DiskLevel.ROOM, lambda: None)
            await propose(node, batch("orders", range(11, 21)))

    run(scenario())


def test_a_node_whose_reserve_is_gone_waits_for_space_and_says_so() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            harness = await nodes.leader()
            await create_queue(harness, "orders")
            await harness.kill()
            is_full, tries = True, 0

            def needs_room(*arguments: Any, **options: Any) -> Database:
                nonlocal tries
                tries += 1
                if is_full:
                    raise DatabaseFull(NO_SPACE)
                return open_database(*arguments, **options)

            with patch.object(store_module, "open_database", needs_room):
                node = Node(harness.config, nodes.deaths.append)
                starting = asyncio.create_task(node.start())
                await until(
                    lambda: "waits for space" in (node.not_ready_reason() or ""),
                    node.not_ready_reason,
                )
                files = len(os.listdir("/proc/self/fd"))
                again = tries + 2
                await until(lambda: tries >= again, lambda: tries)
                assert len(os.listdir("/proc/self/fd")) <= files
                assert not starting.done()
                is_full = False
                await starting
            assert node.service is not None
            await node.abort()

    run(scenario())


def test_a_log_whose_repair_finds_no_space_is_repaired_when_there_is_some() -> None:
    async def scenario() -> None:
        async with cluster(1, has_edges=False) as nodes:
            harness = await nodes.leader()
            queue = await create_queue(harness, "orders")
            await propose(harness, batch("orders", range(1, 11)))
            index = harness.cluster.driver.status().commit
            await propose(harness, batch("orders", range(11, 21)))
            flip(harness, index, 3)
            await harness.kill()
            refusals = 0

            def refused(*_: Any) -> None:
                nonlocal refusals
                refusals += 1
                raise OSError(errno.EDQUOT, "a file system that writes elsewhere is full")

            node = Node(harness.config, nodes.deaths.append)
            with patch.object(DiskFile, "pwrite", refused), no_space():
                starting = asyncio.create_task(node.start())
                await until(lambda: refusals > 1 or starting.done(), lambda: refusals)
                assert not starting.done()
            await starting
            await node.abort()
            await harness.start()
            node_again = await nodes.leader()
            await until(lambda: count(node_again, queue) == 20, lambda: count(node_again, queue))

    run(scenario())


def test_a_disk_that_can_never_hold_the_reserve_is_refused_with_the_numbers(
    tmp_path: Path,
) -> None:
    with patch.object(shutil, "disk_usage", lambda _: disk_of(200)):
        refuse_small_disk(tmp_path / "later", 36 << 20)
        with pytest.raises(StartRefused, match=r"200 MiB.*64 MiB.*128 MiB.*256 MiB.*at most 36"):
            refuse_small_disk(tmp_path / "later", 64 << 20)


def disk_of(total_mib: int) -> Any:
    """Return what `shutil.disk_usage` says of an empty disk."""
    return shutil._ntuple_diskusage(total_mib << 20, 0, total_mib << 20)
