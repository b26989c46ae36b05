"""What leaders do without being asked, and what nodes do for their own disks."""

import asyncio

import aiohttp
import pytest

from qm.cluster.cluster import Unavailable
from qm.model.queries import (
    find_by_format_name,
    get_client,
    purging_queue_ids,
    queue_statistics,
)
from qm.model.values.commands import (
    AuditMark,
    AuditResult,
    ClockTick,
    OpenClient,
    PurgeQueue,
    Send,
    TransferVerdict,
)
from qm.node.config.schema import API_PORT, HTTP_PORT, MSMQ_PORT
from qm.node.replica.quarantine import Quarantine
from qm.store.codec import encode_command
from qm.store.reserve import DiskLevel
from raft.replica import StartRefused
from tests.cluster.harness import HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.model.world import packet, request


def count(node: HarnessNode, queue_id: int) -> tuple[int, int]:
    """Return how many messages a queue shows, and how many are still to be purged."""
    statistics = queue_statistics(node.cluster.view, queue_id)
    assert statistics is not None
    return statistics.message_count, statistics.hidden_count


def test_leases_end_when_their_time_has_come() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            await propose(leader, OpenClient("short", "somebody", 500))
            await propose(leader, OpenClient("long", "somebody", 3_600_000))

            def open_clients() -> list[str]:
                found = (get_client(leader.cluster.view, name) for name in ("short", "long"))
                return [client.client_id for client in found if client and client.is_open]

            assert "short" in open_clients()
            await until(lambda: open_clients() == ["long"], open_clients)

    run(scenario())


def test_messages_expire_after_a_change_of_leader_too() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            queue = await create_queue(leader, "orders")
            sent_s = leader.cluster.now_ms() // 1000
            arrived = batch("orders", [1, 2, 3], sent_time=sent_s, time_to_be_received=2)
            await propose(leader, arrived)
            await propose(leader, batch("orders", [4], sent_time=sent_s))
            assert count(leader, queue) == (4, 0)
            await leader.kill()
            fresh = await nodes.leader()
            await until(lambda: count(fresh, queue) == (1, 0), lambda: count(fresh, queue))

    run(scenario())


def test_a_purge_is_settled_step_by_step() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            queue = await create_queue(leader, "orders")
            for first in range(0, 6_000, 1_000):
                await propose(leader, batch("orders", range(first, first + 1_000)))
            assert count(leader, queue) == (6_000, 0)
            await propose(leader, PurgeQueue(request(), queue, ()))
            assert count(leader, queue)[0] == 0
            await until(
                lambda: (
                    count(leader, queue) == (0, 0) and not purging_queue_ids(leader.cluster.view, 1)
                ),
                lambda: count(leader, queue),
            )

    run(scenario())


def test_cluster_time_reaches_the_state_while_nothing_happens() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            (follower, _) = await nodes.followers()
            before = follower.cluster.view.counters().clock_ms
            await until(
                lambda: follower.cluster.view.counters().clock_ms > before + 5_000,
                lambda: follower.cluster.view.counters().clock_ms - before,
            )

    run(scenario())


async def digests_of(node: HarnessNode, mark: int) -> dict[str, bytes]:
    """Return the members' reports on a mark, once all have reported."""
    members = node.service.members
    for _ in range(2_000):
        replies = await members.inspect_all()
        told = {name: reply.marks.get(mark, b"") for name, reply in replies.items()}
        if all(told.values()) and len(told) == len(members.members):
            return told
        await asyncio.sleep(0.005)
    raise AssertionError(f"not all members told of mark {mark}: {told}")


def test_every_member_proves_its_rows_at_a_mark() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            (follower, _) = await nodes.followers()
            await propose(follower, AuditMark(77))
            leader = await nodes.leader()
            told = await digests_of(leader, 77)
            assert len(set(told.values())) == 1, told
            assert leader.node is not None
            registry = leader.node.metrics.registry
            await until(
                lambda: registry.get_sample_value("quorate_audits_total", {"result": "agreed"}),
                lambda: told,
            )

    run(scenario())


def test_a_member_whose_rows_differ_from_the_majority_stops_itself() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = nodes["n1"]
            await propose(node, AuditMark(78))
            digests = {**await digests_of(node, 78), "n2": b"y" * 16, "n3": b"y" * 16}
            verdict = asyncio.create_task(node.cluster.propose(AuditResult(78, digests)))
            await until(lambda: nodes.deaths, lambda: nodes.deaths)
            verdict.cancel()
            (text,) = nodes.deaths
            assert "differs from the majority" in text
            nodes.deaths.clear()
            with pytest.raises(StartRefused, match="differs from the majority"):
                Quarantine(node.config.data).check()

    run(scenario())


def disks_are(level: DiskLevel, *nodes: HarnessNode) -> None:
    """Have the disks of nodes be so full, whenever they look."""
    for node in nodes:
        disk = node.service.disk
        disk._reserve.level = lambda: level  # type: ignore[method-assign]
        disk.level = level


def test_a_leader_without_room_yields_to_a_member_that_has_it() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            (full, heir) = await nodes.followers()
            await create_queue(leader, "orders")
            disks_are(DiskLevel.REFUSING, leader, full)
            await until(lambda: nodes.serving() is heir, nodes.serving)
            await propose(full, batch("orders", [1]))
            disks_are(DiskLevel.REFUSING, heir)
            disks_are(DiskLevel.ROOM, leader)
            await until(lambda: nodes.serving() is leader, nodes.serving)

    run(scenario())


@pytest.mark.spec("DM-3.1.1.1-19", "DM-3.1.7.2.5-01", "DM-3.1.7.2.6-01", "DM-3.1.7.1.9-01")
def test_nearly_full_disks_refuse_messages_and_nothing_else() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            queue = await create_queue(leader, "orders")
            await propose(leader, batch("orders", [1]))
            disks_are(DiskLevel.REFUSING, *nodes.up)
            send = Send.of(request(), [("DIRECT=OS:a\\b", packet(2))])
            (follower, _) = await nodes.followers()
            for node in (leader, follower):
                with pytest.raises(Unavailable, match="disk is nearly full"):
                    await node.cluster.propose(send)
                verdicts: list[int] = []
                stream = node.cluster.open_relay(_Verdicts(verdicts))
                stream.send(1, encode_command(batch("orders", [3, 4])))
                await until(lambda: len(verdicts) == 2, lambda: verdicts)  # noqa: B023
                assert verdicts == [TransferVerdict.CLOSE_SESSION] * 2
                stream.close()
            await propose(follower, ClockTick(1))
            await nodes.agree()
            for node in nodes.up:
                assert count(node, queue) == (1, 0), "nothing of what was refused"
                assert find_by_format_name(node.cluster.view, "DIRECT=OS:a\\b").queue_id <= 0
            await propose(follower, PurgeQueue(request(), queue, ()))
            await until(lambda: count(leader, queue) == (0, 0), lambda: count(leader, queue))
            disks_are(DiskLevel.ROOM, *nodes.up)
            await propose(follower, batch("orders", [3, 4]))
            await until(lambda: count(leader, queue) == (2, 0), lambda: count(leader, queue))

    run(scenario())


class _Verdicts:
    """An edge that notes verdicts."""

    def __init__(self, verdicts: list[int]) -> None:
        self._verdicts = verdicts

    def on_outcome(self, number: int, index: int, outcome: object) -> None:
        self._verdicts += outcome.verdicts or []  # type: ignore[attr-defined]

    def on_free(self) -> None:
        pass

    def on_late_packets(self, packets: object) -> None:
        raise AssertionError(packets)

    def on_end(self, reason: str) -> None:
        raise AssertionError(reason)


async def fetch(node: HarnessNode, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{node.host}:{node.config.http.port}{path}") as response,
    ):
        return response.status, await response.text()


async def listens(node: HarnessNode) -> list[bool]:
    """Whether MSMQ, the API and HTTP of a node take connections."""
    found = []
    for port in (MSMQ_PORT, API_PORT, HTTP_PORT):
        try:
            _, writer = await asyncio.open_connection(node.host, port)
        except OSError:
            found.append(False)
        else:
            found.append(True)
            writer.close()
    return found


@pytest.mark.spec("DM-3.1.4.1-01", "DM-3.1.4.2-01", "DM-3.1.1.1-21")
def test_a_queue_manager_is_stopped_then_initializes_then_is_ready() -> None:
    """QueueManagerState is what a node shows: no port when Stopped, `/livez` alone while it
    initializes or stops serving, `/readyz` when it is Ready.
    """

    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            queue = await create_queue(leader, "orders")
            await propose(leader, batch("orders", range(3)))
            await nodes.agree()
            for node in nodes.up:
                service = node.service
                assert service.not_ready_reason() is None
                stopping = asyncio.create_task(node.stop())
                await until(lambda: service.not_ready_reason() is not None, lambda: "ready")  # noqa: B023
                assert service.not_ready_reason() == "this node is stopping", "Stopping"
                await stopping
            for node in nodes.nodes.values():
                assert await listens(node) == [False] * 3, "Stopped: it does nothing"
            first, second, _ = nodes.nodes.values()
            await first.start()
            assert await fetch(first, "/livez") == (200, "alive\n")
            status, _ = await fetch(first, "/readyz")
            assert (status, (await listens(first))[0]) == (503, False), "Initializing"
            await second.start()
            for node in (first, second):
                await until(
                    lambda node=node: node.service.not_ready_reason() is None,  # type: ignore[misc]
                    lambda node=node: node.service.not_ready_reason(),  # type: ignore[misc]
                )
                assert await fetch(node, "/readyz") == (200, "ready\n")
                assert await listens(node) == [True] * 3, "Ready"
            # Nothing was done to the state by stopping, and it is initialized from what it was.
            leader = await nodes.leader()
            assert count(leader, queue) == (3, 0)
            await propose(leader, batch("orders", [4]))
            await until(lambda: count(leader, queue) == (4, 0), lambda: count(leader, queue))

    run(scenario())


def test_health_and_metrics_say_what_load_balancers_and_dashboards_ask() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            await create_queue(leader, "orders")
            await propose(leader, batch("orders", range(5)))
            (follower, _) = await nodes.followers()
            await nodes.agree()
            for node in (leader, follower):
                await until(
                    lambda node=node: node.service.not_ready_reason() is None,  # type: ignore[misc]
                    lambda node=node: node.service.not_ready_reason(),  # type: ignore[misc]
                )
                assert await fetch(node, "/livez") == (200, "alive\n")
                assert await fetch(node, "/readyz") == (200, "ready\n")
                status, text = await fetch(node, "/metrics")
                assert status == 200
                name = "quorate\\\\private$\\\\orders"
                assert f'quorate_queue_messages{{queue="{name}"}} 5.0' in text.replace(
                    "QUORATE", "quorate"
                )
                assert "windows_msmq_messages_in_queue{" in text
                assert f"quorate_is_leader {float(node is leader)}" in text
            assert await fetch(leader, "/leader") == (200, "this node leads\n")
            assert await fetch(follower, "/leader") == (503, f"{leader.name} leads\n")
            await leader.service.operations.drain(follower.name, is_draining=True)
            status, text = await fetch(follower, "/readyz")
            assert (status, "drains" in text) == (503, True)
            await leader.service.operations.drain(follower.name, is_draining=False)
            await until(
                lambda: follower.service.not_ready_reason() is None,
                follower.service.not_ready_reason,
            )

    run(scenario())


def test_a_draining_leader_hands_over_and_does_not_lead_again() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            health = await leader.service.operations.drain(leader.name, is_draining=True)
            assert (health.is_leader, leader.cluster.leadership.is_here) == (False, False)
            fresh = await nodes.leader()
            assert fresh is not leader
            await propose(leader, ClockTick(1))

    run(scenario())
