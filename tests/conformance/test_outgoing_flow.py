"""Where messages go, and the reference flow of transactional ones [MS-MQQB 3.1.1.7, 3.1.5.2]."""

from __future__ import annotations

import asyncio

import pytest

from qm.edge.outgoing.resolving import Destinations
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.session import NextHop
from qm.wire.guid import GUID_NULL
from qm.wire.message_class import MessageClass
from tests.unit.edge_outgoing.world import (
    PEER_GUID,
    Names,
    Peer,
    SendingCluster,
    free_port,
    run,
    until,
)

HOST = "127.0.0.49"


@pytest.mark.spec("QB-3.1.1.7.3-01")
def test_messages_with_positive_journaling_from_the_first_to_the_last_packet() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            peer.is_order_acking = False
            queue = cluster.send(
                peer.address, 2, is_transactional=True, has_positive_journaling=True
            )
            await until(lambda: len(peer.taken) == 2)
            # One order ack for both; it is a message, and the sender's SessionAck covers it.
            peer.send_order_ack()
            session = peer.connections[0].session
            await until(lambda: peer.connections[0].released == [0])
            assert cluster.waiting(queue) == 2
            # A final ack for each, when it is consumed.
            for message in peer.taken:
                peer.send_final_ack(message, MessageClass.ACK_RECEIVE)
            await until(lambda: peer.connections[0].released == [0, 0, 0])
            await until(lambda: not cluster.waiting(queue))
            assert cluster.journal() == [b"0", b"1"]
            assert session.in_flight == 0
            assert len(peer.raw) == 2
            # Idle, it is closed without a packet.
            cluster.advance(301)
            cluster.advance(301)
            await until(lambda: not peer.connections)
            assert cluster.metric("quorate_sessions_closed_total", reason="idle") == 1
            assert len(peer.raw) == 2

    run(scenario())


@pytest.mark.spec("QB-3.1.5.2.1-01", "QB-3.1.7.4-01")
@pytest.mark.parametrize("spelling", ["DIRECT=OS:Far.Example\\q", "direct=os:far.example\\Q"])
def test_the_destination_of_a_direct_name_is_the_host_that_it_says(spelling: str) -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.names.known = {"Far.Example": [HOST], "far.example": [HOST]}
            first = cluster.send("DIRECT=OS:Far.Example\\q")
            # One outgoing queue per destination, however it is spelt.
            assert cluster.send(spelling) == first
            await until(lambda: not cluster.waiting(first))
            assert len(peer.raw) == 2
            hops = await Destinations(cluster.names, {}).next_hops(parse_format_name(spelling))
            assert [(hop.address, hop.qm_guid) for hop in hops] == [(HOST, GUID_NULL)]

    run(scenario())


@pytest.mark.spec("QB-3.1.5.2.1-03", "QB-3.1.7.4-03")
def test_the_next_hops_of_a_queue_manager_are_all_of_its_addresses() -> None:
    names = Names()
    names.known["far.example"] = ["10.1.1.1", "fd00::1"]
    destinations = Destinations(names, {PEER_GUID: "far.example"})
    name = parse_format_name(f"PRIVATE={guid_text(PEER_GUID)}\\00000009")
    assert asyncio.run(destinations.next_hops(name)) == [
        NextHop("10.1.1.1", "far.example", PEER_GUID),
        NextHop("fd00::1", "far.example", PEER_GUID),
    ]
