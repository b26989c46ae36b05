"""Bits that flip on one node's disk are found, and restored from the other nodes."""

import asyncio

import grpc
import grpc.aio
import pytest

from qm.api.gate.identity import Role
from qm.names.guid import guid_text
from qm.pb import relay_pb2
from qm.store.bodies.body_places import BodyDamaged
from qm.store.bodies.body_scan import START, KnownBody, page
from raft.log.segment import Segment
from tests.cluster.harness import HarnessNode, cluster, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.cluster.test_relay_endpoint import caller, files_of
from tests.unit.model.world import PEER

COUNT = 40
PER_ENTRY = 10


async def fill(node: HarnessNode) -> None:
    await create_queue(node, "orders")
    for first in range(1, COUNT, PER_ENTRY):
        await propose(node, batch("orders", range(first, first + PER_ENTRY), body=bytes(500)))


def bodies(node: HarnessNode) -> list[KnownBody]:
    _, found = page(node.cluster.machine.store.state, START, 1_000)
    return found


def record(node: HarnessNode, index: int) -> tuple[Segment, int]:
    """Segment and offset of an entry's record."""
    segment = node.cluster.driver.scrub._contents.segment_of(index)
    return segment, segment.table.place(index)[0]


def flip(node: HarnessNode, index: int, at: int) -> None:
    """Flip a bit of an entry's record, at an offset in it."""
    segment, offset = record(node, index)
    byte = segment.file.pread(1, offset + at)[0]
    segment.file.pwrite(bytes([byte ^ 1]), offset + at)


def sample(node: HarnessNode, name: str, **labels: str) -> float:
    assert node.node is not None
    return node.node.metrics.registry.get_sample_value(name, labels) or 0.0


def alarms(node: HarnessNode) -> list[str]:
    return [event.name for event in node.service._events.after(0) if event.kind == "alarm"]


async def scrub(node: HarnessNode) -> None:
    """Have a node read everything back."""
    scrubber = node.service.scrubber
    before = scrubber.rounds
    scrubber.ask()
    while scrubber.rounds == before:
        await scrubber.step()


def test_a_round_finds_damaged_records_and_restores_them() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            await fill(await nodes.leader())
            await nodes.agree()
            (follower, _) = await nodes.followers()
            indexes = sorted({known.place.index for known in bodies(follower)})
            before = {i: follower.cluster.machine.store.read_entry(i) for i in indexes}
            flip(follower, indexes[0], 70)
            flip(follower, indexes[2], 3)  # in the header: its checksum of the data is lost
            await scrub(follower)
            store = follower.cluster.machine.store
            assert {i: store.read_entry(i) for i in indexes} == before
            assert follower.service.scrubber.healer.is_whole
            assert sample(follower, "quorate_damage_found_total", kind="record") == 2
            assert sample(follower, "quorate_damage_healed_total", kind="record") == 2
            assert sample(follower, "quorate_scrubbed_bytes_total") > COUNT * 500
            assert "damaged" in alarms(follower)
            assert "damaged_everywhere" not in alarms(follower)
            await follower.kill()
            await follower.start()
            await nodes.agree()
            assert len(bodies(follower)) == COUNT

    run(scenario())


def test_a_reader_is_served_from_another_node_and_the_body_is_restored() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            await fill(await nodes.leader())
            await nodes.agree()
            (follower, _) = await nodes.followers()
            victim = bodies(follower)[COUNT // 2].place
            whole = follower.cluster.read_body(victim)
            flip(follower, victim.index, 64 + victim.offset + 10)
            with pytest.raises(BodyDamaged):
                follower.cluster.read_body(victim)
            assert await follower.cluster.restore_body(victim)
            assert follower.cluster.read_body(victim) == whole
            assert follower.service.scrubber.healer.is_whole

    run(scenario())


def test_what_no_node_has_is_named_once_all_have_been_asked() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            await fill(await nodes.leader())
            await nodes.agree()
            (follower, other) = await nodes.followers()
            first, *_, last = bodies(follower)
            await nodes.kill(other.name)
            for node in nodes.up:
                flip(node, first.place.index, 64 + first.place.offset + 10)
            await scrub(follower)
            assert alarms(follower) == ["damaged"], "one node could not be asked"
            await nodes.restart(other.name)
            await nodes.agree()
            await until(lambda: follower.service.scrubber.healer.is_whole)
            for node in nodes.up:
                flip(node, last.place.index, 64 + last.place.offset + 10)
            await scrub(follower)
            lost = [e for e in follower.service._events.after(0) if e.name == "damaged_everywhere"]
            assert [event.text for event in lost] == [
                f"no member has a whole copy of {guid_text(PEER)}\\{last.message_ordinal}"
            ]

    run(scenario())


def test_a_node_whose_log_is_damaged_asks_the_others_when_it_starts() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            await fill(await nodes.leader())
            await nodes.agree()
            (follower, _) = await nodes.followers()
            victim = bodies(follower)[0].place
            for _ in range(2):
                at = 64 + victim.offset + 10
                flip(follower, victim.index, at)
                flip(follower, victim.index, at + 40)
                flip(follower, victim.index + 1, at)
                await nodes.kill(follower.name)
                await nodes.restart(follower.name)
                await nodes.agree()
                assert len(bodies(follower)) == COUNT
                follower.cluster.read_body(victim)

    run(scenario())


def test_nodes_whose_logs_are_all_damaged_repair_each_other() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            await fill(await nodes.leader())
            await nodes.agree()
            members = list(nodes.nodes.values())
            places = [one.place for one in bodies(members[0])]
            for node, place in zip(members, places[::PER_ENTRY], strict=False):
                at = 64 + place.offset + 10
                flip(node, place.index, at)
                flip(node, place.index, at + 40)
            for node in members:
                await nodes.kill(node.name)
            # None opens its log without the others, which wait as well.
            await asyncio.gather(*(nodes.restart(node.name) for node in members))
            await nodes.agree()
            for node in members:
                for place in places:
                    node.cluster.read_body(place)

    run(scenario())


def test_copies_are_given_to_members_alone() -> None:
    async def scenario() -> None:
        async with cluster(3, has_edges=False) as nodes:
            leader = await nodes.leader()
            await fill(leader)
            place = bodies(leader)[0].place
            wanted = relay_pb2.ReadBodiesRequest(
                places=[
                    relay_pb2.BodyPlace(
                        index=place.index,
                        offset=place.offset,
                        length=place.length,
                        ordinal=place.ordinal,
                        crc32=place.crc32,
                    ),
                    relay_pb2.BodyPlace(index=place.index, offset=1 << 40, length=1 << 31),
                    relay_pb2.BodyPlace(index=1 << 60),
                ]
            )
            (member, _) = await nodes.followers()
            async with caller(leader, files_of(member)) as stub:
                reply = await stub.ReadBodies(wanted)
                assert list(reply.packets) == [leader.cluster.read_body(place), b"", b""]
                term = leader.cluster.driver.scrub.term(place.index) or 0
                entry = await stub.ReadEntry(
                    relay_pb2.ReadEntryRequest(index=place.index, term=term)
                )
                assert entry.data == leader.cluster.machine.store.read_entry(place.index)
                none = await stub.ReadEntry(relay_pb2.ReadEntryRequest(index=1 << 60, term=1))
                assert not none.is_whole
            async with caller(leader, nodes.certificate("client", Role.CLIENT)) as stub:
                for call in (
                    stub.ReadBodies(wanted),
                    stub.ReadEntry(relay_pb2.ReadEntryRequest(index=1)),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call
                    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    run(scenario())
