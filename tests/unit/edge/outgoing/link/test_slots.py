"""Ten thousand silent hosts keep no good destination waiting."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from qm.edge.outgoing.limits import CONNECTING_MAX
from qm.edge.outgoing.link.destination_rules import EVERYWHERE, DestinationRules, rules_of
from qm.edge.outgoing.link.slots import FAILED_SHARE, PATIENCE_S, WAITING_MAX, Slots, Standing
from qm.node.config.loading import ConfigError, parse

DEAD_COUNT = 10_000
SILENCE_S = 20.0


class Network:
    """Hosts by number; those in `good` answer at once, the others never."""

    def __init__(self, good: set[int]) -> None:
        self.good = good
        self.reached: list[int] = []
        self.given_up: list[int] = []
        self.pushed: list[int] = []
        self.most = 0
        self.slots = Slots(CONNECTING_MAX, self.connect, self.given_up.append)

    async def connect(self, host: int) -> None:
        self.most = max(self.most, self.slots.running)
        if host in self.good:
            self.reached.append(host)
            return
        try:
            await asyncio.sleep(SILENCE_S)
        except asyncio.CancelledError:
            if not self.slots.was_pushed(host):
                raise
            self.pushed.append(host)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def within(network: Network, host: int, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while host not in network.reached:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("standing", [Standing.REACHED, Standing.FRESH])
@pytest.mark.parametrize("dead", [Standing.FRESH, Standing.FAILED])
def test_a_good_destination_is_reached_within_a_second(standing: Standing, dead: Standing) -> None:
    async def scenario() -> None:
        network = Network({DEAD_COUNT})
        for host in range(DEAD_COUNT):
            network.slots.ask(host, dead)
        network.slots.ask(DEAD_COUNT, standing)
        await within(network, DEAD_COUNT, 1.0)
        assert network.most >= CONNECTING_MAX * FAILED_SHARE
        network.slots.stop()

    run(scenario)


def test_nobody_is_pushed_while_nobody_waits() -> None:
    async def scenario() -> None:
        network = Network(set())
        for host in range(CONNECTING_MAX):
            network.slots.ask(host, Standing.FRESH)
        await asyncio.sleep(0.6)
        assert not network.pushed
        assert network.slots.running == CONNECTING_MAX
        network.slots.stop()

    run(scenario)


def test_an_attempt_has_its_time_while_others_wait() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        begun: list[float] = []

        async def connect(host: int) -> None:
            begun.append(loop.time())
            await asyncio.sleep(SILENCE_S)

        slots = Slots(1, connect, lambda host: None)
        for host in range(3):
            slots.ask(host, Standing.FRESH)
        async with asyncio.timeout(10):
            while len(begun) < 3:
                await asyncio.sleep(0.01)
        slots.stop()
        for one, other in pairwise(begun):
            assert other - one >= PATIENCE_S

    run(scenario)


def test_destinations_that_were_reached_before_go_first() -> None:
    async def scenario() -> None:
        begun: list[int] = []

        async def connect(host: int) -> None:
            begun.append(host)

        slots = Slots(1, connect, lambda host: None)
        for host in range(3):
            slots.ask(host, Standing.FRESH)
        for host in range(10, 13):
            slots.ask(host, Standing.REACHED)
        async with asyncio.timeout(10):
            while len(begun) < 6:
                await asyncio.sleep(0.01)
        assert begun[:4] == [0, 10, 11, 12]
        slots.stop()

    run(scenario)


def test_one_that_failed_before_has_its_turn_beside_new_ones() -> None:
    async def scenario() -> None:
        network = Network({-1})
        for host in range(1_000):
            network.slots.ask(host, Standing.FRESH)
        network.slots.ask(-1, Standing.FAILED)
        await within(network, -1, 1.0)
        network.slots.stop()

    run(scenario)


def test_what_waits_is_bounded_and_the_hopeless_go_first() -> None:
    async def scenario() -> None:
        network = Network(set())
        for host in range(CONNECTING_MAX + WAITING_MAX):
            network.slots.ask(host, Standing.FAILED if host == 100 else Standing.FRESH)
        assert not network.given_up
        network.slots.ask(-1, Standing.FRESH)
        assert network.given_up == [100]
        network.slots.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("address", "is_denied"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("224.0.0.1", True),
        ("255.255.255.255", True),
        ("0.0.0.0", True),
        ("10.9.0.1", True),
        ("10.9.1.1", False),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
    ],
)
def test_where_nobody_makes_this_cluster_connect(address: str, is_denied: bool) -> None:
    rules = rules_of(["10.9.1.0/24"], ["10.9.0.0/16"], ["192.0.2.9"])
    assert rules.denies(address) is is_denied
    assert not EVERYWHERE.denies(address)
    assert not DestinationRules().denies(address)


def test_a_node_on_loopback_sends_there() -> None:
    assert not rules_of([], [], ["127.0.0.11"]).denies("127.0.0.12")
    assert rules_of([], [], ["127.0.0.11"]).denies("169.254.1.1")


def test_a_network_that_is_none_is_refused(tmp_path: Any) -> None:
    text = """
name = "n1"
host = "10.0.0.1"
data = "data"
[tls]
authority = "a"
certificate = "c"
key = "k"
[outgoing]
allow = ["10.0.0.1/8"]
[[members]]
name = "n1"
host = "10.0.0.1"
"""
    with pytest.raises(ConfigError, match=r"outgoing\.allow"):
        parse(text, tmp_path)


def test_as_many_are_pushed_at_once_as_wait() -> None:
    async def scenario() -> None:
        pushed_before: list[int] = []
        pushed: list[int] = []

        async def connect(host: int) -> None:
            if host >= 2:
                pushed_before.append(len(pushed))
                return
            try:
                await asyncio.sleep(SILENCE_S)
            except asyncio.CancelledError:
                pushed.append(host)

        slots = Slots(2, connect, lambda host: None)
        for host in range(4):
            slots.ask(host, Standing.FRESH)
        async with asyncio.timeout(5):
            while len(pushed_before) < 2:
                await asyncio.sleep(0.005)
        assert pushed_before == [2, 2]
        slots.stop()

    run(scenario)
