"""A call that begins at once continues in the loop and reports its end there, once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raft.transport.eager import EagerCall
from tests.unit.raft.transport.worlds import run, until

Scenario = Callable[[list[str]], Coroutine[Any, Any, None]]


async def short(said: list[str]) -> None:
    said.append("begun")


async def long(said: list[str]) -> None:
    said.append("begun")
    await asyncio.sleep(0)
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "went on")
    said.append(await future)


@pytest.mark.parametrize(("work", "expected"), [(short, ["begun"]), (long, ["begun", "went on"])])
def test_it_begins_at_once_and_ends_in_the_loop(work: Scenario, expected: list[str]) -> None:
    async def scenario() -> None:
        said: list[str] = []
        ends: list[BaseException | None] = []
        EagerCall(work(said), ends.append)
        assert (said, ends) == (["begun"], [])
        await until(lambda: ends, lambda: said)
        assert (said, ends) == (expected, [None])

    run(scenario())


async def fails_at_once() -> None:
    raise ConnectionResetError("at once")


async def fails_later() -> None:
    await asyncio.sleep(0)
    raise ConnectionResetError("later")


async def is_cancelled() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (fails_at_once, ConnectionResetError),
        (fails_later, ConnectionResetError),
        (is_cancelled, asyncio.CancelledError),
    ],
)
def test_an_error_is_told_like_the_end(
    work: Callable[[], Coroutine[Any, Any, None]], expected: type[BaseException]
) -> None:
    async def scenario() -> None:
        ends: list[BaseException | None] = []
        EagerCall(work(), ends.append)
        assert ends == []
        await until(lambda: ends)
        assert [type(end) for end in ends] == [expected]

    run(scenario())
