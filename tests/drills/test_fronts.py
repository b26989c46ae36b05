"""Real nodes behind keepalived and HAProxy of deploy/: peers that know one address. Needs root."""

import asyncio
import socket
from pathlib import Path

import pytest

from qm.drill.targets.ability import Ability
from qm.node.config.schema import PING_PORT
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from tests.drills.hosts import drilled, hosts, run

pytestmark = pytest.mark.timeout(900)
"""A drill waits as long as a busy machine makes it."""


def pinged(address: str) -> tuple[str, Ping]:
    """Return who answers a ping of MSMQ, as a peer sees it, and what it says."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.sendto(write_ping(Ping(7, bytes(16))), (address, PING_PORT))
        answer, (host, _) = asking.recvfrom(64)
    return host, parse_ping(answer, 0, len(answer))[0]


def test_a_peer_at_the_virtual_address_goes_on_when_its_node_or_machine_dies(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with hosts(tmp_path) as target:
            address = await target.front(Ability.VIRTUAL_ADDRESS)
            before = await target.holder()
            who, answer = await asyncio.to_thread(pinged, address)
            assert (who, answer.cookie, answer.is_refused) == (address, 7, False)
            moved = await drilled(target, "vip-move")
            assert moved.holds, moved
            assert await target.holder() != before
            lost = await drilled(target, "vip-machine-lost")
            assert lost.holds, lost

    run(scenario)


def test_a_peer_behind_the_proxy_goes_on_when_any_node_dies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosts(tmp_path) as target:
            drilled_once = await drilled(target, "proxy")
            assert drilled_once.holds, drilled_once
            assert len(drilled_once.verdict.faults) == 3

    run(scenario)
