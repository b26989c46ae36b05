"""Where messages go, and the reference flow of transactional ones [MS-MQQB 3.1.1.7, 3.1.5.2]."""

from __future__ import annotations

import asyncio
from array import array
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from qm.edge.outgoing.link.resolver import Destinations
from qm.model.values import commands
from qm.model.values.elements import OutgoingAdminState
from qm.model.values.limits import VERSION_OF_HOST_ADDRESSES
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.node.config.loading import parse
from qm.node.upkeep.msmq_endpoint import outgoing_settings
from qm.session import ConnectionStatus, NextHop, OutgoingLink, OutgoingState, SessionConfig
from qm.session.link import Connect, ConnectionHistoryEntry, Resolve
from qm.wire.codes import ErrorCode
from qm.wire.guid import GUID_NULL
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
)
from tests.conformance.test_model_directory import set_manager
from tests.unit.edge.outgoing.world import (
    PEER_GUID,
    Names,
    Peer,
    SendingCluster,
    free_port,
    run,
    settled,
    until,
)
from tests.unit.model.world import OWN, World, direct, packet, request
from tests.unit.node.config.test_loading import SOUND

HOST, OTHER = "127.0.0.49", "127.0.0.50"


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


@pytest.mark.spec("MQ-2.2.19.2-03", "MQ-2.2.19.2-04")
def test_the_destination_s_queue_manager_is_named_unless_the_name_is_direct() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        mapped = {PEER_GUID: HOST}
        async with Peer(HOST, port) as peer, SendingCluster(port, peers=mapped) as cluster:
            private = f"PRIVATE={guid_text(PEER_GUID)}\\0000000A"
            by_number = PrivateQueueFormatNameId(QueueHost.DESTINATION, 10)
            by_name = DirectQueueFormatName(f"TCP:{HOST}\\q")
            # Whatever the sender's own packet says: each copy leaves with its own destination.
            for name in (peer.address, private):
                for to, address in ((by_name, GUID_NULL), (by_number, PEER_GUID), (by_name, OWN)):
                    cluster.send(name, to=to, queue_manager_address=address)
            await until(lambda: len(peer.taken) == 6)
            seen = [
                (m.user_header.destination_queue, m.user_header.queue_manager_address)
                for m in peer.taken
            ]
            assert sorted(seen, key=str) == sorted(
                [(by_name, GUID_NULL)] * 3 + [(by_number, PEER_GUID)] * 3, key=str
            )

    run(scenario())


def is_empty(cluster: SendingCluster, queue: int) -> bool:
    return not cluster.waiting(queue)


@pytest.mark.spec("QB-3.1.3.2-11")
def test_every_node_presents_the_identifier_of_the_one_queue_manager() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            seen = []
            for node in ("n1", "n2", "n1"):
                cluster.lead(node)
                await until(partial(is_empty, cluster, cluster.send(peer.address)))
                seen.append([connection.session.remote_guid for connection in peer.connections])
                peer.cut()
                await until(lambda: not peer.connections)
            assert seen == [[OWN]] * 3

    run(scenario())


@pytest.mark.spec("QB-3.1.7.12-01")
def test_what_asks_for_no_connection() -> None:
    """Local queues, names of other protocols, and outgoing queues that are on hold."""

    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            cluster.world.create("orders")
            assert cluster.client.send("DIRECT=OS:vhost\\orders").status == 0
            refused = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
            for name in (
                f"DIRECT=HTTP://{HOST}/MSMQ\\q",
                f"DIRECT=HTTPS://{HOST}/MSMQ\\q",
                "MULTICAST=234.1.1.1:1801",
            ):
                assert cluster.client.send(name).status == refused
            cluster.lead(None)
            queue = cluster.send(peer.address)
            hold = OutgoingAdminState.ON_HOLD
            command = commands.SetOutgoingAdminState(request(), queue, hold, ())
            assert cluster.world.one(command).status == 0
            cluster.lead("n1")
            cluster.send(peer.address)
            await settled()
            cluster.advance(600)
            await settled()
            assert peer.connections == []
            assert cluster.waiting(queue) == 2
            normal = OutgoingAdminState.NORMAL
            cluster.world.one(commands.SetOutgoingAdminState(request(), queue, normal, ()))
            await until(lambda: not cluster.waiting(queue))

    run(scenario())


@pytest.mark.spec("QB-3.1.4.1-01", "QB-3.1.3.2-02")
def test_a_queue_manager_that_starts_connects_for_what_waits_and_closes_when_it_stops() -> None:
    async def scenario() -> None:
        port = free_port(HOST, OTHER)
        async with Peer(HOST, port) as peer, Peer(OTHER, port, b"OTHR" * 4) as idle:
            async with SendingCluster(port) as cluster:
                cluster.lead(None)
                full = cluster.send(peer.address, 2, is_recoverable=True)
                empty = cluster.send(idle.address)
                cluster.world.one(commands.PurgeQueue(request(), empty, ()))
                cluster.world.settle(empty)
                await settled()
                assert peer.connections == []
                cluster.lead("n1")
                await until(lambda: not cluster.waiting(full))
                assert len(peer.taken) == 2
                await settled()
                assert idle.connections == [], "its table is empty"
                # One that is not reached is tried again, as long as anything waits for it.
                assert len(peer.connections) == 1
            await until(lambda: not peer.connections)
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


@pytest.mark.spec("QB-3.1.5.2.3-02")
def test_a_request_for_a_session_is_reported_while_it_is_not_answered() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            peer.is_mute = True
            queue = cluster.send(peer.address)
            await until(lambda: peer.asked_for)
            report = cluster.manager.report(queue)
            assert report is not None
            assert report.state is OutgoingState.WAITING
            now_s = cluster.world.now_ms // 1000
            assert list(report.connection_history) == [
                ConnectionHistoryEntry(ConnectionStatus.IN_PROCESS, now_s, 0, HOST)
            ]

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-03", "MQ-2.2.19.2-04")
def test_acknowledgements_name_the_queue_manager_unless_their_name_is_direct() -> None:
    world = World()
    set_manager(world, send_insecure_nacks=True)
    admin = world.create("private$\\admin")
    number = world.record(admin).private_queue_number
    names = (PrivateQueueFormatName(OWN, number), direct("PRIVATE$\\admin"))
    for message_id, name in enumerate(names, start=1):
        asking = {"flags": int(AcknowledgeFlags.NA)}
        world.arrive(packet(message_id, to="absent", admin_queue=name, properties=asking))
    by_number, by_name = (message.user_header for message in world.messages(admin))
    assert by_number.destination_queue == PrivateQueueFormatNameId(QueueHost.DESTINATION, number)
    assert by_number.queue_manager_address == OWN
    assert by_name.destination_queue == names[1]
    assert by_name.queue_manager_address == bytes(16)


@pytest.mark.spec("MQ-2.2.19.2-03")
@pytest.mark.parametrize("version", [VERSION_OF_HOST_ADDRESSES - 1, VERSION_OF_HOST_ADDRESSES])
def test_so_do_acknowledgements_and_reports_to_a_public_queue(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", version)
    world = World()
    set_manager(world, send_insecure_nacks=True)
    told = world.create("told")
    world.create("orders")
    public = PublicQueueFormatName(world.record(told).identifier)
    asking = {"flags": int(AcknowledgeFlags.NA)}
    world.arrive(packet(1, to="absent", admin_queue=public, properties=asking))
    world.arrive(packet(2, report_to=public.public_queue_identifier))
    headers = [message.user_header for message in world.messages(told)]
    assert [header.destination_queue for header in headers] == [public, public]
    named = OWN if version >= VERSION_OF_HOST_ADDRESSES else bytes(16)
    assert [header.queue_manager_address for header in headers] == [named, named]


@pytest.mark.spec("QB-3.1.5.2.1-01", "QB-3.1.5.2.1-03", "QB-3.1.7.4-03")
def test_the_next_hops_of_a_queue_manager_are_all_of_its_addresses() -> None:
    names = Names()
    names.known["far.example"] = ["10.1.1.1", "fd00::1"]
    destinations = Destinations(names, {PEER_GUID: "far.example"})
    name = parse_format_name(f"PRIVATE={guid_text(PEER_GUID)}\\00000009")
    assert asyncio.run(destinations.next_hops(name)) == [
        NextHop("10.1.1.1", "far.example", PEER_GUID),
        NextHop("fd00::1", "far.example", PEER_GUID),
    ]
    # NextHops are those of the last resolution, all of them and no older one.
    link = OutgoingLink(SessionConfig())
    refused = partial(link.connect_failed, ConnectionStatus.SOCKET_CONNECT_FAILURE, 1)
    link.message_available()
    for at, address in enumerate(("10.1.1.2", "10.1.1.3")):
        assert isinstance(link.next_action(), Resolve)
        names.known["far.example"] = [address, "fd00::1"]
        hops = asyncio.run(destinations.next_hops(name))
        link.resolved(hops)
        assert link.next_hops == (f"IP={address}", "IPv6=fd00::1")
        for hop in hops:
            assert link.next_action() == Connect(hop, False)
            refused(100.0 * at, 1, has_backlog=True)
            link.handle_timer(100.0 * at + 10, has_backlog=True)


@pytest.mark.spec("QB-3.1.7.1.7-01", "QB-3.1.7.1.7-02")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_the_sending_of_a_traced_message_is_reported(is_transactional: bool) -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            reports = cluster.world.create("reports")
            wanted = cluster.world.record(reports).identifier
            sending = {"is_transactional": is_transactional}
            queue = cluster.send(peer.address, 1, report_to=wanted, **sending)
            cluster.send(peer.address, 1, **sending)
            # A queue that cannot be opened for sending gets none; the message leaves all the same.
            cluster.send(peer.address, 1, report_to=b"?" * 16, **sending)
            await until(lambda: not cluster.waiting(queue))
            await until(lambda: cluster.world.messages(reports))
            await settled()
            (report,) = cluster.world.messages(reports)
            traced = peer.taken[0].user_header
            assert len(peer.taken) == 3
            assert report.properties.message_class == MessageClass.REPORT
            assert not report.user_header.is_recoverable
            own = guid_text(OWN)
            label = f"{own[:4]}:{traced.message_id:08X}:00 received by {own} at "
            assert (report.properties.label or "").startswith(label)
            assert bytes(report.properties.message_body).decode("utf-16-le") == (
                f"<MESSAGE ID>{traced.message_id:08X}</MESSAGE ID>\r\n"
                f"<TARGET QUEUE>{peer.address}</TARGET QUEUE>\r\n"
                f"<NEXT HOP>{HOST}</NEXT HOP>\r\n"
                "<HOP COUNT>00 </HOP COUNT>\r\n"
            )

    run(scenario())


def test_a_report_of_a_sending_that_makes_no_sense_is_refused() -> None:
    async def scenario() -> None:
        port = free_port(HOST)
        async with Peer(HOST, port) as peer, SendingCluster(port) as cluster:
            world = cluster.world
            reports = world.create("reports")
            wanted = world.record(reports).identifier
            queue = cluster.send(peer.address, 1)
            good = commands.TransferTraced(queue, array("Q", [1]), wanted, HOST)
            bad = (
                (
                    commands.TransferTraced(reports, array("Q", [1]), wanted, HOST),
                    "QUEUE_NOT_FOUND",
                ),
                (replace(good, message_ordinals=array("Q")), "INVALID_PARAMETER"),
                (replace(good, message_ordinals=array("Q", [1, 2])), "INVALID_PARAMETER"),
                (replace(good, message_ordinals=array("Q", [1 << 32])), "INVALID_PARAMETER"),
                (replace(good, next_hop="1" * 65), "INVALID_PARAMETER"),
            )
            for command, name in bad:
                assert world.one(command).status == ErrorCode[f"MQ_ERROR_{name}"]
            assert not world.messages(reports)
            assert world.one(good).status == 0
            assert len(world.messages(reports)) == 1

    run(scenario())


@pytest.mark.spec("QB-3.1.1.3-12", "QB-3.1.1.3-13", "QB-6-03", "QB-3.1.1.3-04")
def test_every_leader_resends_in_the_times_of_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    text = f"{SOUND}[outgoing]\nresend_short_s = 5\nresend_medium_s = 6\nresend_final_s = 8\n"
    settings = outgoing_settings(parse(text, tmp_path), SessionConfig(), ())
    table = settings.resend_timer_table
    assert table == (5, 5, 5, 6, 6, 6, 1800, 1800, 1800, 8)
    defaults = (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21600)
    for name, places in (("short", range(3)), ("medium", range(3, 6)), ("long", range(6, 9)),
                         ("final", range(9, 10))):  # fmt: skip
        alone = f"{SOUND}[outgoing]\nresend_{name}_s = 7\n"
        configured = outgoing_settings(parse(alone, tmp_path), SessionConfig(), ())
        assert configured.resend_timer_table == tuple(
            7 if place in places else period for place, period in enumerate(defaults)
        )

    async def scenario() -> None:
        port = free_port(HOST)
        cluster = SendingCluster(port)
        cluster.settings = replace(cluster.settings, resend_timer_table=table)
        async with Peer(HOST, port) as peer, cluster:
            peer.is_order_acking = False
            queue = cluster.send(peer.address, 1, is_transactional=True)

            async def sent(times: int, next_after_s: int) -> None:
                await until(lambda: len(peer.raw) == times, lambda: len(peer.raw))
                report = cluster.manager.report(queue)
                assert report is not None
                assert report.eod_resend_interval_s == next_after_s

            for times, next_after_s in ((1, 5), (2, 5), (3, 5), (4, 6)):
                await sent(times, next_after_s)
                cluster.advance(5.5)
            cluster.lead("n2")
            await sent(5, 5)

    run(scenario())
