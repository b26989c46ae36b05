"""What every transport must do, over memory and over gRPC alike."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from raft.transport.send_queue import SEND_QUEUE_MAX_BYTES
from raft.types import (
    SNAPSHOT_REFUSED,
    Append,
    Body,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    Heartbeat,
    NodeId,
    PeerState,
    SnapshotMeta,
)
from tests.unit.raft.transport.worlds import (
    CLUSTER,
    DirectWorld,
    GrpcWorld,
    MemoryWorld,
    Source,
    World,
    are_connected,
    run,
    until,
)

A, B, C = "a.1", "b.1", "c.1"
CONNECTED, LOST, REFUSED = PeerState.CONNECTED, PeerState.LOST, PeerState.REFUSED


def envelope(sender: NodeId, to: NodeId, body: Body, term: int = 7) -> Envelope:
    return Envelope(1, sender, to, term, body)


def heartbeat(sender: NodeId, to: NodeId, number: int) -> Envelope:
    return envelope(sender, to, Heartbeat(number, 0))


def append(sender: NodeId, to: NodeId, index: int, data: bytes) -> Envelope:
    entry = Entry(index, 7, EntryKind.DATA, data)
    return envelope(sender, to, Append(index - 1, 7, 0, (entry,)))


def meta(size_bytes: int) -> SnapshotMeta:
    return SnapshotMeta(900, 7, Configuration((A, B), (C,), ("a.0",)), size_bytes, b"stream 1")


@pytest.fixture(params=[MemoryWorld, GrpcWorld, DirectWorld])
def in_world(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Run a scenario in a fresh world, closed afterwards."""

    async def scenario(body: Callable[[World], Awaitable[None]]) -> None:
        world = request.param(tmp_path)
        try:
            await body(world)
        finally:
            await world.close()

    return lambda body: run(scenario(body))


InWorld = Callable[[Callable[[World], Awaitable[None]]], None]


class TestTransport:
    def test_envelopes_arrive_in_order_both_ways(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B, knows=[A])
            await until(lambda: (B, CONNECTED) in a.states and (A, CONNECTED) in b.states)
            there = [heartbeat(A, B, n) for n in range(2000)]
            back = [heartbeat(B, A, n) for n in range(2000)]
            for one, other in zip(there, back, strict=True):
                world.nodes[A].send([one])
                world.nodes[B].send([other])
            await until(lambda: len(b.envelopes) == 2000 and len(a.envelopes) == 2000)
            assert b.envelopes == there
            assert a.envelopes == back
            metrics = world.nodes[A].metrics.peer(B)
            # What was sent is counted when its write has ended.
            await until(lambda: metrics.envelopes_sent_total == 2000)
            assert metrics.envelopes_received_total == 2000
            assert metrics.frames_sent_total < 2000, "frames carry whatever waits"

        in_world(scenario)

    def test_an_entry_above_four_mebibytes_passes(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            big = append(A, B, 5, bytes(range(256)) * (5 << 12))
            world.nodes[A].send([big, heartbeat(A, B, 1)])
            await until(lambda: len(b.envelopes) == 2)
            assert b.envelopes[0] == big

        in_world(scenario)

    def test_an_append_stands_for_heartbeats_that_wait_before_it(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            first, last = append(A, B, 5, b"x"), append(A, B, 6, b"y")
            other_group = Envelope(2, A, B, 7, Heartbeat(1, 0))
            world.nodes[A].send([heartbeat(A, B, 1), heartbeat(A, B, 2), first])
            world.nodes[A].send([heartbeat(A, B, 3), other_group, last, heartbeat(A, B, 4)])
            await until(lambda: heartbeat(A, B, 4) in b.envelopes)
            assert b.envelopes == [
                first,
                heartbeat(A, B, 3),
                other_group,
                last,
                heartbeat(A, B, 4),
            ]
            metrics = world.nodes[A].metrics.peer(B)
            await until(lambda: metrics.envelopes_sent_total == 5)
            assert (metrics.queued_bytes, metrics.envelopes_dropped_total) == (0, 0)

        in_world(scenario)

    def test_an_append_holds_no_news_of_a_read_up(self, in_world: InWorld) -> None:
        """Its answer waits for a disk, a heartbeat's does not."""

        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            first, last = append(A, B, 5, b"x"), append(A, B, 6, b"y")
            news, old_news = (envelope(A, B, Heartbeat(number, 77)) for number in (1, 2))
            world.nodes[A].send([heartbeat(A, B, 0), news, first])
            await until(lambda: first in b.envelopes)
            world.nodes[A].send([old_news, last])
            await until(lambda: last in b.envelopes)
            assert b.envelopes == [heartbeat(A, B, 0), news, first, last]

        in_world(scenario)

    def test_a_node_answers_a_peer_that_it_does_not_know(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (A, CONNECTED) in b.states)
            world.nodes[B].send([heartbeat(B, A, 3)])
            await until(lambda: a.envelopes)
            assert a.envelopes == [heartbeat(B, A, 3)]
            world.nodes[B].send([heartbeat(B, C, 3)])
            assert world.nodes[B].metrics.unknown_peer_total == 1

        in_world(scenario)

    def test_death_of_a_peer_is_seen_as_loss_then_refusal(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, _ = await world.add(A, knows=[B]), await world.add(B, knows=[A])
            await until(partial(are_connected, world, A, B))
            await world.stop(B)
            await until(lambda: len(a.states) == 3, lambda: a.states)
            assert a.states == [(B, CONNECTED), (B, LOST), (B, REFUSED)]
            assert world.nodes[A].metrics.peer(B).refusals_seen_total == 1
            world.nodes[A].send([heartbeat(A, B, 1)])
            assert world.nodes[A].metrics.peer(B).envelopes_dropped_total == 1

        in_world(scenario)

    def test_a_restarted_peer_is_connected_again(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, _ = await world.add(A, knows=[B]), await world.add(B, knows=[A])
            await until(lambda: (B, CONNECTED) in a.states)
            await world.stop(B)
            await until(lambda: (B, REFUSED) in a.states, lambda: a.states)
            b = await world.add(B, knows=[A])
            await until(lambda: a.states[-1] == (B, CONNECTED), lambda: a.states)
            world.nodes[A].send([heartbeat(A, B, 2)])
            await until(lambda: b.envelopes)
            assert b.envelopes == [heartbeat(A, B, 2)]

        in_world(scenario)

    def test_a_reset_of_a_living_peer_is_no_evidence(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, _ = await world.add(A, knows=[B]), await world.add(B, knows=[A])
            await until(partial(are_connected, world, A, B))
            for round_ in range(1, 4):
                world.reset(A, B)
                await until(partial(a.has_seen, (B, LOST), round_), lambda: a.states)
                await until(partial(are_connected, world, A, B), lambda: a.states)
            assert (B, REFUSED) not in a.states

        in_world(scenario)

    def test_another_incarnation_is_not_served(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            b = await world.add("b.2")
            a = await world.add(A, knows=[])
            world.nodes[A].set_peers({"b.1": world.address("b.2")})
            await until(lambda: world.nodes["b.2"].metrics.misdirected_total > 0)
            assert not a.states
            assert not b.states

        in_world(scenario)

    def test_what_a_node_was_before_it_lost_its_log_is_not_dialed(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            await world.add("b.2", knows=[])
            a = await world.add(A, knows=["b.2"])
            world.nodes["b.2"].set_peers({"b.1": world.address("b.2"), A: world.address(A)})
            await until(lambda: ("b.2", CONNECTED) in a.states)
            assert "b.1" not in world.nodes["b.2"].metrics.peers
            assert world.nodes["b.2"].metrics.misdirected_total == 0

        in_world(scenario)

    def test_another_cluster_is_not_served(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            b = await world.add(B, cluster=CLUSTER[::-1])
            a = await world.add(A, knows=[B])
            await until(lambda: world.nodes[B].metrics.foreign_cluster_total > 0)
            assert not a.states
            assert not b.states

        in_world(scenario)

    def test_what_does_not_fit_the_queue_is_dropped_and_counted(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            data = bytes(1 << 20)
            sent = [append(A, B, index, data) for index in range(1, 41)]
            world.nodes[A].send(sent)
            metrics = world.nodes[A].metrics.peer(B)
            dropped = metrics.envelopes_dropped_total
            assert dropped > 0
            assert metrics.queued_bytes <= SEND_QUEUE_MAX_BYTES
            await until(lambda: len(b.envelopes) == 40 - dropped)
            assert b.envelopes == sent[: 40 - dropped]
            assert metrics.queued_bytes == 0

        in_world(scenario)

    def test_a_peer_that_left_the_set_is_not_dialed_again(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            world.nodes[A].set_peers({})
            await until(lambda: (B, LOST) in a.states and (A, LOST) in b.states)
            await world.add(C, knows=[A, B])
            await until(lambda: (C, CONNECTED) in a.states and (C, CONNECTED) in b.states)
            assert a.states.count((B, CONNECTED)) == 1

        in_world(scenario)


class TestSnapshots:
    DATA = b"".join(number.to_bytes(8, "big") for number in range(400_000))

    def test_a_snapshot_arrives_whole(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            source, ends = Source(self.DATA), list[bool]()
            world.nodes[A].send_snapshot(1, B, meta(len(self.DATA)), source, ends.append)
            await until(lambda: ends)
            assert ends == [True]
            assert b.snapshot == self.DATA
            assert set(b.senders) == {A}
            assert source.is_closed
            assert world.nodes[A].metrics.peer(B).snapshots_sent_total == 1
            assert world.nodes[B].metrics.peer(A).snapshot_bytes_received_total == len(self.DATA)

        in_world(scenario)

    def test_a_broken_transfer_resumes_where_the_receiver_stands(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)

            def break_once(held: int) -> None:
                if held > len(self.DATA) // 2 and b.offers == 1:
                    world.reset(A, B)

            b.on_chunk = break_once
            source, ends = Source(self.DATA), list[bool]()
            world.nodes[A].send_snapshot(1, B, meta(len(self.DATA)), source, ends.append)
            await until(lambda: ends)
            assert ends == [True]
            assert b.snapshot == self.DATA
            assert b.offers >= 2
            assert source.offsets.count(0) == 1, "the second stream did not begin again"

        in_world(scenario)

    def test_a_refused_snapshot_ends(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            b.on_chunk = lambda held: SNAPSHOT_REFUSED
            source, ends = Source(self.DATA), list[bool]()
            world.nodes[A].send_snapshot(1, B, meta(len(self.DATA)), source, ends.append)
            await until(lambda: ends)
            assert ends == [False]
            assert source.is_closed

        in_world(scenario)

    def test_a_source_that_ends_early_ends_the_transfer(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, _ = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            source, ends = Source(self.DATA), list[bool]()
            world.nodes[A].send_snapshot(1, B, meta(len(self.DATA) + 1), source, ends.append)
            await until(lambda: ends)
            assert ends == [False]

        in_world(scenario)

    def test_closing_ends_a_transfer_and_its_source(self, in_world: InWorld) -> None:
        async def scenario(world: World) -> None:
            a, b = await world.add(A, knows=[B]), await world.add(B)
            await until(lambda: (B, CONNECTED) in a.states)
            source, ends = Source(self.DATA), list[bool]()
            b.on_chunk = lambda held: 0  # wants the same again and again
            world.nodes[A].send_snapshot(1, B, meta(len(self.DATA)), source, ends.append)
            await until(lambda: source.offsets)
            await world.stop(A)
            assert ends == [False]
            assert source.is_closed

        in_world(scenario)


def test_peers_are_dialed_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    """Whatever the seed of this process's hashes: who is connected first may decide who leads."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.unit.raft.transport.worlds import MemoryWorld, run\n"
        "async def scenario():\n"
        "    world = MemoryWorld(pathlib.Path(sys.argv[1]))\n"
        "    await world.add('m.1', knows=[f'{name}.1' for name in 'qdzbxfhc'])\n"
        "    print(*world.nodes['m.1'].metrics.peers)\n"
        "    await world.close()\n"
        "run(scenario())\n"
    )
    said = set()
    for seed in ("1", "2", "3"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True, text=True, check=True, env=environment, timeout=60,
        )  # fmt: skip
        said.add(done.stdout.strip())
    assert said == {"q.1 d.1 z.1 b.1 x.1 f.1 h.1 c.1"}
