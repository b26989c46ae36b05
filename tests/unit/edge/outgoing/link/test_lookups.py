"""Name servers that never answer keep nobody else waiting."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from qm.edge.outgoing.link import lookups
from qm.edge.outgoing.link.lookups import Lookups
from qm.edge.outgoing.link.resolver import Destinations, Resolver, SystemResolver
from qm.names.format_name import parse_format_name

GOOD = "10.1.2.3"


class NameServers:
    """Answers for names that begin with "good", and holds all others until the end."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_over = threading.Event()

    def getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if not host.startswith("good"):
            assert self.is_over.wait(30)
            raise OSError("nobody answers")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (GOOD, 0))] * 2


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    made = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.is_over.set()


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def dead(resolver: Resolver | Lookups, count: int) -> "asyncio.Future[list[Any]]":
    names = [f"dead-{number}.example" for number in range(count)]
    return asyncio.gather(*map(resolver.addresses, names), return_exceptions=True)


def test_names_that_peers_gave_keep_no_application_waiting(servers: NameServers) -> None:
    async def scenario() -> None:
        named = SystemResolver(2)
        destinations = Destinations(SystemResolver(2), {}, named_resolver=named)
        hanging = [
            asyncio.create_task(
                destinations.next_hops(
                    parse_format_name(f"DIRECT=OS:dead-{number}.example\\q"), is_named_by_peer=True
                )
            )
            for number in range(1_000)
        ]
        (hop,) = await destinations.next_hops(parse_format_name("DIRECT=OS:good.example\\q"))
        assert hop.address == GOOD
        assert len(servers.asked) <= 3
        for task in hanging:
            task.cancel()

    play(scenario())


def test_who_is_given_up_occupies_a_thread_and_tells_who_asked(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "RESOLVE_TIMEOUT_S", 0.01)

    async def scenario() -> None:
        looking = Lookups(2)
        with pytest.raises(TimeoutError):
            await looking.addresses("dead.example")
        assert await looking.addresses("good.example") == [GOOD]
        with pytest.raises(TimeoutError):
            await looking.addresses("dead.example")
        waiting = asyncio.create_task(looking.addresses("good.example"))
        for _ in range(5):
            await asyncio.sleep(0.005)
        assert not waiting.done(), "both threads hang"
        servers.is_over.set()
        assert await waiting == [GOOD]

    play(scenario())


def test_those_who_ask_for_one_name_share_the_answer(servers: NameServers) -> None:
    async def scenario() -> None:
        looking = Lookups(2)
        both = [asyncio.create_task(looking.addresses("good.example")) for _ in range(2)]
        gone = asyncio.create_task(looking.addresses("good.example"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await asyncio.gather(*both) == [[GOOD]] * 2
        assert servers.asked == ["good.example"]

    play(scenario())


def test_the_newest_of_those_that_wait_has_every_second_turn(servers: NameServers) -> None:
    async def scenario() -> None:
        looking = Lookups(1)
        hanging = dead(looking, 100)
        good = asyncio.create_task(looking.addresses("good.example"))
        await asyncio.sleep(0)
        servers.is_over.set()
        assert await good == [GOOD]
        assert servers.asked.index("good.example") <= 2
        await hanging

    play(scenario())


def test_a_name_that_nobody_asks_for_any_more_is_not_looked_up(servers: NameServers) -> None:
    async def scenario() -> None:
        looking = Lookups(1)
        names = ("dead.example", "dead-too.example")
        first, second = [asyncio.create_task(looking.addresses(name)) for name in names]
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        servers.is_over.set()
        await asyncio.gather(first, return_exceptions=True)
        assert await looking.addresses("good.example") == [GOOD]
        assert servers.asked == ["dead.example", "good.example"]

    play(scenario())


def test_what_is_not_a_name_is_an_error() -> None:
    async def scenario() -> None:
        for name in ("x" * 300, "a..b", "\udc80"):
            with pytest.raises(OSError, match=r".+"):
                await Lookups(1).addresses(name)

    play(scenario())
