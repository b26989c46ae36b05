"""Where the protocol is spoken [MS-MQQB 2.1.1, 2.1.2]."""

from __future__ import annotations

import asyncio
import json
import random
from functools import partial
from typing import cast

import pytest

from qm.edge import EdgeSettings
from qm.edge.outgoing import OutgoingSettings
from qm.edge.tcp.connection import Connection
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from tests.conformance.catalogue import REPOSITORY
from tests.unit.edge.outgoing.world import Peer as Receiver
from tests.unit.edge.outgoing.world import SendingCluster
from tests.unit.edge.world import ADDRESS, OWN, PEER, Peer, World, run, until, world

SOURCE_PORTS = (1025, 1800, 31_999, 65_535)
"""Below the protocol's own, from 1024 on without privilege, and where systems draw theirs."""
PING_VECTOR = REPOSITORY / "tests" / "data" / "vectors" / "mqqb_frame1_ping_request.json"


async def connect_from(w: World, source: tuple[str, int], to: tuple[str, int]) -> Peer:
    """Connect from an address and a port, and shake hands."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(Peer, *to, local_addr=source)
    w.at_end.append(peer.transport.abort)
    await until(lambda: peer.is_open, lambda: peer.closed)
    return peer


@pytest.mark.spec("QB-2.1.1-02", "QB-2.1.1-03")
def test_acceptors_listen_on_tcp_1801_and_take_any_source_port() -> None:
    host = f"127.77.{random.randrange(250)}.{random.randrange(1, 250)}"
    assert EdgeSettings(addresses=(host,)).port == 1801 == 0x0709

    async def scenario() -> None:
        async with world(addresses=(host,), port=1801) as w:
            for port in SOURCE_PORTS:
                peer = await connect_from(w, (host, port), (host, 1801))
                assert peer.transport.get_extra_info("sockname") == (host, port)

    run(scenario())


class FromPort:
    """A transport whose peer has another port: the lowest ones need a privilege, and its own is
    taken.
    """

    def __init__(self, transport: asyncio.BaseTransport, port: int) -> None:
        self._transport, self._port = transport, port

    def get_extra_info(self, name: str, default: object = None) -> object:
        found = self._transport.get_extra_info(name, default)
        return (found[0], self._port) if name == "peername" else found

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


@pytest.mark.spec("QB-2.1.1-03")
@pytest.mark.parametrize("port", [1, 1023, 1024, 1801])
def test_acceptors_take_source_ports_that_need_a_privilege_and_their_own(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    made = Connection.connection_made
    seen: list[object] = []

    def from_port(self: Connection, transport: asyncio.BaseTransport) -> None:
        given = cast("asyncio.BaseTransport", FromPort(transport, port))
        seen.append(given.get_extra_info("peername"))
        made(self, given)

    monkeypatch.setattr(Connection, "connection_made", from_port)

    async def scenario() -> None:
        async with world() as w:
            await w.peer()
            assert seen == [(ADDRESS, port)]

    run(scenario())


@pytest.mark.spec("QB-2.1.1-02")
def test_initiators_connect_to_tcp_1801_and_negotiate_no_version() -> None:
    host = f"127.78.{random.randrange(250)}.{random.randrange(1, 250)}"
    settings = OutgoingSettings()
    assert settings.port == 1801

    async def scenario() -> None:
        async with Receiver(host, 1801) as receiver, SendingCluster(settings.port) as cluster:
            queue = cluster.send(f"DIRECT=TCP:{host}\\q", 2)
            await until(lambda: not cluster.waiting(queue))
            (connection,) = receiver.connections
            assert connection.transport is not None
            assert connection.transport.get_extra_info("sockname") == (host, 1801)
            # The handshake names no version but the one of every packet.
            assert {raw[0] for raw in receiver.raw} == {0x10}

    run(scenario())


class Asker(asyncio.DatagramProtocol):
    """Two sockets of one host may ask; each hears what was meant for it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Ping, tuple[str, int]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.append((parse_ping(data, 0, len(data))[0], addr))


@pytest.mark.spec("QB-2.1.2-01", "QB-2.1.2-03")
def test_pings_from_any_port_are_answered_on_udp_3527_where_they_are_enabled() -> None:
    host = f"127.79.{random.randrange(250)}.{random.randrange(1, 250)}"
    assert EdgeSettings(addresses=(host,)).ping_port == 3527
    request = bytes.fromhex(json.loads(PING_VECTOR.read_text())["hex"])
    asked = parse_ping(request, 0, len(request))[0]

    async def scenario() -> None:
        async with world(addresses=(host,), ping_port=3527) as w:
            loop = asyncio.get_running_loop()
            for port in SOURCE_PORTS:
                _, asker = await loop.create_datagram_endpoint(Asker, local_addr=(host, port))
                w.at_end.append(asker.transport.close)
                asker.transport.sendto(request, (host, 3527))
                await until(partial(getattr, asker, "heard"))
                ((answer, source),) = asker.heard
                assert source == (host, 3527)
                assert answer == Ping(asked.cookie, OWN, is_client_class=asked.is_client_class)
        async with world(addresses=(host,), ping_port=3527, answer_pings=False) as w:
            assert not w.edge.ping_endpoints

    run(scenario())


@pytest.mark.spec("QB-2.1.2-02")
def test_a_ping_response_goes_to_exactly_the_address_and_port_that_asked() -> None:
    async def scenario() -> None:
        async with world() as w:
            (endpoint,) = w.edge.ping_endpoints
            loop = asyncio.get_running_loop()
            askers = []
            for source in (ADDRESS, ADDRESS, "127.0.0.2"):
                _, asker = await loop.create_datagram_endpoint(Asker, local_addr=(source, 0))
                w.at_end.append(asker.transport.close)
                askers.append(asker)
            for cookie, asker in enumerate(askers, start=1):
                asker.transport.sendto(write_ping(Ping(cookie, PEER)), endpoint)
            await until(lambda: all(asker.heard for asker in askers))
            for cookie, asker in enumerate(askers, start=1):
                ((answer, source_of_answer),) = asker.heard
                assert answer.cookie == cookie
                assert tuple(source_of_answer) == tuple(endpoint)

    run(scenario())
