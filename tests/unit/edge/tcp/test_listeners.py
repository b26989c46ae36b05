"""Addresses: several, of both families, taken when the edge starts and given back."""

from __future__ import annotations

import asyncio
import socket

import pytest
from prometheus_client import CollectorRegistry

from qm.edge.tcp.listeners import bind
from tests.unit.edge.world import PEER, Consensus, make_edge, packet, run, until, world


def test_several_addresses_lead_to_one_queue_manager() -> None:
    async def scenario() -> None:
        async with world(addresses=("127.0.0.1", "127.0.0.2")) as w:
            queue = w.consensus.create("orders")
            endpoints = w.edge.endpoints
            assert [host for host, _ in endpoints] == ["127.0.0.1", "127.0.0.2"]
            assert [host for host, _ in w.edge.ping_endpoints] == ["127.0.0.1", "127.0.0.2"]
            for number, endpoint in enumerate(endpoints, start=1):
                peer = await w.peer(endpoint=endpoint)
                peer.send(packet(number))
                await peer.acknowledged(number)
            assert w.consensus.ids(queue) == [1, 2]

    run(scenario())


def test_an_ipv6_address_is_served_or_named_in_the_error() -> None:
    async def scenario() -> None:
        try:
            bind("::1", 0, socket.SOCK_STREAM).close()
        except OSError:  # this machine has no IPv6
            with pytest.raises(OSError, match="cannot listen on ::1 port 0"):
                async with world(addresses=("::1",)):
                    pass
            return
        async with world(addresses=("::1", "127.0.0.1")) as w:
            w.consensus.create("orders")
            peer = await w.peer()
            peer.send(packet(1))
            await peer.acknowledged(1)
            (stream,) = w.consensus.streams
            (session,) = stream.sessions.values()
            assert (session.address, session.queue_manager) == ("::1", PEER)

    run(scenario())


def test_an_address_in_use_is_an_error_at_the_start() -> None:
    async def scenario() -> None:
        async with world() as w:
            host, port = w.edge.endpoints[0]
            second = make_edge(Consensus(), CollectorRegistry(), port=port)
            with pytest.raises(OSError, match=f"cannot listen on {host} port {port}: "):
                await second.start()
            ping = w.edge.ping_endpoints[0][1]
            third = make_edge(Consensus(), CollectorRegistry(), ping_port=ping)
            with pytest.raises(OSError, match=f"cannot listen on {host} port {ping}: "):
                await third.start()
            for host, _ in third.endpoints:  # what it had taken is free again
                bind(host, third.endpoints[0][1], socket.SOCK_STREAM).close()

    run(scenario())


def test_an_address_taken_meanwhile_is_tried_again() -> None:
    async def scenario() -> None:
        async with world(no_leader_max_s=0.05) as w:
            host, port = w.edge.endpoints[0]
            w.consensus.lose_leader()
            taken = await listening(host, port)
            w.consensus.elect("n2")
            await until(lambda: "not open" in str(w.edge.not_ready_reason()))
            taken.close()
            await until(lambda: w.edge.is_ready, w.edge.not_ready_reason)
            assert (await w.peer()).is_open

    run(scenario())


async def listening(host: str, port: int) -> asyncio.Server:
    """Listen on an address as soon as it is free."""
    found: list[asyncio.Server] = []

    async def attempt() -> None:
        while not found:
            try:
                found.append(await asyncio.start_server(lambda r, w: None, host, port))
            except OSError:
                await asyncio.sleep(0.005)

    await asyncio.wait_for(attempt(), 20.0)
    return found[0]


def test_an_edge_that_has_stopped_leaves_no_task() -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        async with world() as w:
            await w.peer()
        await until(lambda: asyncio.all_tasks() == before, asyncio.all_tasks)

    run(scenario())
