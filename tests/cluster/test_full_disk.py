"""Whole nodes whose disks have no space, and get some: nobody ends, nothing is lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from qm.model.queries import queue_statistics
from qm.node.upkeep.housekeeping import DiskWatch
from qm.store.reserve import DiskLevel
from raft.log.disk import DiskDirectory
from tests.cluster.harness import HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.store.full_rocks import fill


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
