"""Remote management of outgoing queues: what a link's values become, and what actions do to it."""

import asyncio
import secrets
from typing import Any

import grpc.aio
import msgspec
import pytest

from qm.api.gate.operations import Link, LinkEvent
from qm.edge.outgoing.manager import OutgoingManager
from qm.model.queries import (
    OutgoingQueueInfo,
    SequencePlace,
    View,
    binding_policy,
    find_by_format_name,
    outgoing_queue,
)
from qm.model.values.elements import OutgoingQueueState
from qm.node.config.addresses import AddressBook
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2, control_pb2_grpc
from qm.rpc.client import RpcClient
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_management.interface import QMMGMT, InfoOut
from qm.rpc.remote_management.properties import NULL, outgoing_property, queue_property
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.variants import Variant
from qm.session import OutgoingState
from qm.wire.enums import ConnectionStatus, VarType
from tests.cluster.harness import free_network, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.api.test_outgoing_links import known as a_link_to
from tests.unit.api.world import Client, eventually
from tests.unit.edge.outgoing.world import Peer
from tests.unit.model.world import PEER, World
from tests.unit.rpc.reading import RPC_PORT, RpcWorld, rpc_world
from tests.unit.rpc.test_management_calls import UNAVAILABLE, caller_at
from tests.unit.rpc.test_management_values import (
    AWAY,
    BYTES,
    CONNECTED,
    COUNT,
    HISTORY,
    LAST_ACK_COUNT,
    LAST_ACK_TIME,
    NEXTHOPS,
    NO_ACK,
    NO_READ,
    RECOVERY_S,
    RESEND_COUNT,
    RESEND_INTERVAL,
    RESEND_TIME,
    SOURCE_INFO,
    STATE,
    send_in_transaction,
    value,
    values,
)
from tests.unit.rpc.test_remote_management import MACHINE, act, in_world, info, queue

EXACT = r"DIRECT=OS:QUORATE\private$\exact"
HOPS = ("IP=192.0.2.7", "IPv6=2001:db8::7")
_STILL_S = 0.5
"""In which a queue that is connected and not paused would have sent."""


# Values ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known() -> OutgoingQueueInfo:
    """An outgoing queue to which nothing transactional was sent."""
    found = []

    async def scenario(world: RpcWorld, client: Client) -> None:
        await client.send(AWAY, b"out")
        view = (await world.harness.leader()).cluster.view
        found.append(outgoing_queue(view, find_by_format_name(view, AWAY).queue_id))

    in_world(scenario)
    (one,) = found
    assert one is not None
    return one


@pytest.mark.spec("MR-2.2.3.2-18", "MR-2.2.3.2-19")
def test_the_next_hops_of_what_is_connected_or_waits(known: OutgoingQueueInfo) -> None:
    for state in OutgoingQueueState:
        told = outgoing_property(known, Link(state, next_hops=HOPS), NEXTHOPS)
        if state in (OutgoingQueueState.CONNECTED, OutgoingQueueState.WAITING):
            assert told == Variant(VarType.VECTOR_LPWSTR, [*HOPS])
        else:
            assert told == NULL, state
    for nowhere in (None, Link(OutgoingQueueState.CONNECTED)):
        assert outgoing_property(known, nowhere, NEXTHOPS) == NULL


@pytest.mark.spec("MR-2.2.3.2-10", "MR-2.2.3.2-11")
def test_more_than_fits_is_told_as_the_most(known: OutgoingQueueInfo) -> None:
    for size, told in (
        (0, 0),
        (0xFFFF_FFFF, 0xFFFF_FFFF),
        (1 << 32, 0xFFFF_FFFF),
        (5 << 40, 0xFFFF_FFFF),
    ):
        large = msgspec.structs.replace(known, message_count=size, total_bytes=size)
        values = [outgoing_property(large, None, number) for number in (COUNT, BYTES)]
        assert values == [Variant(VarType.UI4, told)] * 2
        stub = QMMGMT.operations[0].gives.marshal(InfoOut(values, 0))
        assert QMMGMT.operations[0].gives.unmarshal(stub)[0] == InfoOut(values, 0)


@pytest.mark.spec("MR-2.2.3.2-10", "MR-2.2.3.2-11")
def test_so_is_what_a_queue_here_holds() -> None:
    world = World()
    queue_id = world.create("orders")
    for size in (0, 0xFFFF_FFFE, 0xFFFF_FFFF, 1 << 32, (1 << 32) + 5, 5 << 40):
        view = View.of(world.state)
        found = view.ledger.queue(queue_id)
        assert found is not None
        # Nobody sends as much in a test.
        found.total_bytes = found.counts[0] = size
        told = [queue_property(view, found, number) for number in (COUNT, BYTES)]
        assert told == [Variant(VarType.UI4, min(size, 0xFFFF_FFFF))] * 2


@pytest.mark.spec(
    "MQ-2.3.12.12-01", "MR-2.2.3.2-22", "MR-2.2.3.2-23", "MR-2.2.3.2-28", "MR-2.2.3.2-29"
)
def test_each_node_tells_what_the_leader_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with rpc_world(3) as world, world.client(await world.leader()) as client:
            await client.send(AWAY, b"out")
            # No peer brings a link to all of this at will.
            report = a_link_to(OutgoingState.CONNECTED)
            monkeypatch.setattr(OutgoingManager, "report", lambda *_: report)
            harness = world.harness
            for node in (await harness.leader(), (await harness.followers())[0]):
                caller = await RpcClient().connect(node.host, RPC_PORT)
                ntlm = NtlmClient("alice", "pw", "", secrets.token_bytes)
                await caller.bind(
                    QMMGMT, provider=ntlm, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
                )
                numbers = (NEXTHOPS, LAST_ACK_TIME, LAST_ACK_COUNT, RESEND_TIME, RESEND_COUNT)
                assert await values(caller, queue(AWAY), *numbers) == [
                    Variant(VarType.VECTOR_LPWSTR, ["IP=10.0.0.1", "IPv6=fd00::2"]),
                    Variant(VarType.I4, 1_700_000_003),
                    Variant(VarType.UI4, 4),
                    Variant(VarType.I4, 1_700_000_007),
                    Variant(VarType.UI4, 6),
                ]

    run(main())


@pytest.mark.spec("MR-2.2.3.2-22", "MR-2.2.3.2-23", "MR-2.2.3.2-28", "MR-2.2.3.2-29")
@pytest.mark.spec("MR-2.2.3.2-37")
def test_each_value_of_a_link_has_its_number(known: OutgoingQueueInfo) -> None:
    link = Link(
        OutgoingQueueState.CONNECTED,
        resend_count=3,
        next_resend_ms=1_700_000_300_999,
        last_ack_time_s=1_700_000_000,
        last_ack_count=5,
        resend_interval_s=300,
    )
    wanted = {
        LAST_ACK_TIME: Variant(VarType.I4, 1_700_000_000),
        LAST_ACK_COUNT: Variant(VarType.UI4, 5),
        RESEND_TIME: Variant(VarType.I4, 1_700_000_300),
        RESEND_INTERVAL: Variant(VarType.UI4, 300),
        RESEND_COUNT: Variant(VarType.UI4, 3),
    }
    numbered = msgspec.structs.replace(known, eod_next_seq=SequencePlace(7, 1, 0))
    assert {number: outgoing_property(numbered, link, number) for number in wanted} == wanted
    idle = Link(OutgoingQueueState.CONNECTED, resend_interval_s=300)
    for number in wanted:
        assert outgoing_property(known, idle, number).value == 0, "nothing transactional"


@pytest.mark.spec("MR-2.2.3.2-33")
def test_each_event_of_a_link_is_a_row_of_its_history(known: OutgoingQueueInfo) -> None:
    events = (
        LinkEvent(ConnectionStatus.ESTABLISHING, 1_700_000_000, 0, "192.0.2.7"),
        LinkEvent(ConnectionStatus.DNS_FAILURE, 1_700_000_005, 0xC00E0013, ""),
        LinkEvent(ConnectionStatus.READY, 1_700_000_009, 0, "2001:db8::7"),
    )
    link = Link(OutgoingQueueState.CONNECTED, connection_history=events)
    # An IPv6 address has no form there [MS-MQMQ 2.3.12.25].
    addresses = [Variant(VarType.VECTOR_LPWSTR, one) for one in (["192.0.2.7"], [], [])]
    wanted = [
        Variant(VarType.VECTOR_UI4, [0, 0x8000_0008, 2]),
        Variant(VarType.VECTOR_I4, [1_700_000_000, 1_700_000_005, 1_700_000_009]),
        Variant(VarType.VECTOR_I4, [0, 0xC00E0013 - (1 << 32), 0]),
        Variant(VarType.VECTOR_VARIANT, addresses),
    ]
    told = outgoing_property(known, link, HISTORY)
    assert told == Variant(VarType.VECTOR_VARIANT, wanted)
    stub = QMMGMT.operations[0].gives.marshal(InfoOut([told], 0))
    assert QMMGMT.operations[0].gives.unmarshal(stub)[0] == InfoOut([told], 0)


@pytest.mark.spec("DM-3.1.1.4-02")
def test_what_was_acknowledged_and_read_is_counted_apart(known: OutgoingQueueInfo) -> None:
    info = msgspec.structs.replace(
        known, eod_next_seq=SequencePlace(7, 9, 8), eod_no_ack_count=1, eod_no_read_count=2
    )
    link = Link(OutgoingQueueState.CONNECTED, last_ack_count=3, resend_count=4, last_ack_time_s=5)
    figures = (NO_ACK, NO_READ, LAST_ACK_COUNT, RESEND_COUNT, LAST_ACK_TIME)
    assert [outgoing_property(info, link, one).value for one in figures] == [1, 2, 3, 4, 5]


# Actions -----------------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4.2-06", "MR-3.1.4.2-07", "MR-3.1.4.2-10", "MR-3.1.4.2-11")
def test_what_is_held_is_sent_in_order_when_it_may_be() -> None:
    async def scenario(world: RpcWorld, client: Client, peer: Peer) -> None:
        caller = await world.caller(QMMGMT)
        away = queue(peer.address)

        async def told(number: int) -> Any:
            return await value(caller, away, number)

        async def sends(*bodies: bytes) -> None:
            for body in bodies:
                await client.send(peer.address, body)

        await sends(b"1")
        await until(lambda: peer.bodies == [1])
        # Paused, while its session may go on: what is sent meanwhile stays here.
        assert await act(caller, away, "PAUSE") == 0
        await sends(b"2", b"3")
        await asyncio.sleep(_STILL_S)
        assert peer.bodies == [1]
        assert await told(COUNT) == 2
        assert await act(caller, away, "RESUME") == 0
        await until(lambda: peer.bodies == [1, 2, 3])
        # Offline: the sessions end, and none is made for what is sent.
        assert peer.connections
        assert await act(caller, MACHINE, "DISCONNECT") == 0
        await until(lambda: not peer.connections)
        established = peer.established
        await sends(b"4", b"5")
        await asyncio.sleep(_STILL_S)
        assert (peer.bodies, peer.established) == ([1, 2, 3], established)
        assert await told(COUNT) == 2
        assert await told(STATE) != "CONNECTED"
        assert await value(caller, MACHINE, CONNECTED) == "DISCONNECTED"
        assert await act(caller, MACHINE, "CONNECT") == 0
        await eventually(lambda: told(COUNT), lambda count: count == 0, RECOVERY_S)
        assert peer.bodies == [1, 2, 3, 4, 5]

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world() as made,
            made.client(await made.leader()) as client,
        ):
            await scenario(made, client, peer)

    run(main())


@pytest.mark.spec("DM-3.1.1.4-02")
def test_both_interfaces_count_what_waits_for_which_acknowledgement() -> None:
    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world() as made,
            made.client(await made.leader()) as client,
        ):
            caller = await made.caller(QMMGMT)
            shown = control_pb2.GetOutgoingRequest(queue=control_pb2.QueueName(name=peer.address))

            async def counts() -> list[tuple[int, int]]:
                api = await control_pb2_grpc.OutgoingControlStub(client.channel).GetOutgoing(shown)
                told = [await value(caller, queue(peer.address), one) for one in (NO_ACK, NO_READ)]
                return [(api.unacked_count, api.unread_count), (told[0], told[1])]

            await send_in_transaction(client, peer.address, b"1", b"2", dead_letter=True)
            await eventually(counts, lambda found: found == [(0, 2), (0, 2)])
            peer.is_order_acking = False
            await send_in_transaction(client, peer.address, b"3")
            await eventually(counts, lambda found: found == [(1, 2), (1, 2)])

    run(main())


def test_a_leader_at_an_unknown_address_is_a_leader_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that has just become a member leads, and this one has not read its address yet."""

    async def main() -> None:
        async with rpc_world(3) as world:
            async with world.client(await world.leader()) as client:
                await client.send(AWAY, b"out")
            follower = (await world.followers())[0]
            node = follower.node
            caller = await caller_at(node)
            async with world.client(follower) as there:
                known, barrier = AddressBook.get, node.cluster.read_barrier

                async def then_another_leads() -> None:
                    monkeypatch.setattr(AddressBook, "get", known)
                    await barrier()
                    monkeypatch.setattr(AddressBook, "get", lambda *_: None)

                monkeypatch.setattr(node.cluster, "read_barrier", then_another_leads)
                assert await info(caller, queue(AWAY), STATE) == (UNAVAILABLE, [None])
                assert await act(caller, queue(AWAY), "EOD_RESEND") == UNAVAILABLE
                control = control_pb2_grpc.OutgoingControlStub(there.channel)
                asked = control_pb2.GetOutgoingRequest(queue=control_pb2.QueueName(name=AWAY))
                for method in (control.GetOutgoing, control.Resend):
                    with pytest.raises(grpc.aio.AioRpcError) as failure:
                        await method(asked)
                    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
                monkeypatch.setattr(AddressBook, "get", known)
                monkeypatch.setattr(node.cluster, "read_barrier", barrier)
                assert (await info(caller, queue(AWAY), STATE))[0] == 0
                assert await act(caller, queue(AWAY), "EOD_RESEND") == 0

    run(main())


# Streams into a queue ------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.5-02")
def test_both_interfaces_tell_what_came_last_and_what_was_rejected_since() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        node = await world.harness.leader()
        queue_id = await create_queue(node, "exact", transactional=True)
        caller = await world.caller(QMMGMT)
        peers = control_pb2_grpc.PeerControlStub(client.channel)

        async def policy() -> object:
            await node.cluster.read_barrier()
            return binding_policy(node.cluster.view)

        async def told() -> tuple[int, ...]:
            shown = await peers.GetPeer(control_pb2.GetPeerRequest(queue_manager=PEER))
            (one,) = shown.sequences
            assert (one.queue_id, one.last.sequence_identifier) == (queue_id, 9)
            (columns,) = await values(caller, queue(EXACT), SOURCE_INFO)
            _, _, sequences, numbers, times, rejects = (each.value for each in columns.value)
            assert (sequences, numbers) == ([9], [one.last.sequence_number])
            assert times == [one.last_access_ms // 1000]
            assert rejects == [one.reject_count]
            return one.last.sequence_number, one.reject_count, one.last_access_ms

        await eventually(policy, bool)
        for number, (sequence, wanted) in enumerate(
            (
                ((9, 1, 0), (1, 0)),
                ((9, 1, 0), (1, 1)),
                ((9, 7, 6), (1, 2)),
                ((9, 2, 1), (2, 0)),
            ),
            start=1,
        ):
            begun = node.cluster.now_ms()
            await propose(node, batch("exact", [number], number, sequence=sequence))
            *found, last_access_ms = await told()
            assert tuple(found) == wanted
            assert begun <= last_access_ms <= node.cluster.now_ms()

    in_world(scenario)
