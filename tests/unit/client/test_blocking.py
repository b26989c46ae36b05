"""The client for programs without an event loop: the same surface, each call waiting."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from qm.client import blocking, client, handling, queue, stream, transaction
from qm.client.blocking import BlockingClient
from qm.client.message import Message, ReceivedMessage
from tests.unit.client.world import PLAIN, Clients, scenario

TWINS = [
    (
        client.Client,
        blocking.BlockingClient,
        {"closed_queues", "discard", "end", "give_back", "is_open", "lend", "main", "open"},
    ),
    (queue.Queue, blocking.BlockingQueue, {"is_exclusive", "is_transactional", "queue_id"}),
    (stream.Stream, blocking.BlockingStream, {"close"}),
    (handling.Messages, blocking.BlockingMessages, set()),
    (handling.Runner, blocking.BlockingRunner, set()),
    (transaction.Transaction, blocking.BlockingTransaction, {"session"}),
]
"""Client, its twin, and what only the first has: of its own inside, or asked of the first."""


def surface(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "twin", "own"), TWINS, ids=lambda one: getattr(one, "__name__", "")
)
def test_the_twin_has_the_same_calls_with_the_same_arguments(
    kind: type, twin: type, own: set[str]
) -> None:
    has, mirrored = surface(kind), surface(twin)
    through = {"close_queue"}  # BlockingQueue.close
    assert has.keys() - mirrored.keys() - own - through == set()
    for name in has.keys() & mirrored.keys():
        if inspect.isfunction(has[name]) and inspect.isfunction(mirrored[name]):
            wanted = inspect.signature(inspect.unwrap(has[name])).parameters
            assert [*inspect.signature(mirrored[name]).parameters] == [*wanted], name


def fail_at(opened: blocking.BlockingQueue, body: bytes) -> None:
    with opened.messages() as messages:
        for message in messages:
            if message.body == body:
                raise ZeroDivisionError


def in_thread(work: Any) -> Any:
    """The nodes run in this thread's loop, so the blocking client needs another."""
    return asyncio.to_thread(work)


@scenario()
async def test_messages_are_lent_to_a_block(made: Clients) -> None:
    def work() -> list[bytes]:
        with BlockingClient(made.endpoints, tls=made.tls) as one:
            one.send(PLAIN, *[Message(body=b"%d" % number) for number in range(6)])
            opened = one.open_queue(PLAIN)
            with pytest.raises(ZeroDivisionError):
                fail_at(opened, b"2")
            with opened.messages() as messages:
                messages.reject(next(messages))
                messages.give_back(next(messages))
            assert [message.body for message in opened.browse(2)] == [b"3", b"4", b"5"]
            with opened.stream(credit=2) as credited:
                assert next(credited).body == b"3"
                left = [message.body for message in credited.stop()]
            opened.confirm()
            return left + [message.body for message in opened.receive_many(9, 0)]

    assert await in_thread(work) == [b"4", b"5"]


@scenario()
async def test_a_runner_calls_plain_functions_in_threads(made: Clients) -> None:
    def work() -> tuple[int, int, set[str]]:
        with BlockingClient(made.endpoints, tls=made.tls) as one:
            one.send(PLAIN, *[Message(body=b"%d" % number) for number in range(12)])
            names: set[str] = set()
            done: set[bytes] = set()
            together = threading.Barrier(3, timeout=30)

            def handle(message: ReceivedMessage) -> None:
                names.add(threading.current_thread().name)
                if message.returns == 0:
                    together.wait()
                    if message.body == b"5":
                        raise ZeroDivisionError
                done.add(message.body)
                if len(done) == 12:
                    runner.stop()

            runner = one.open_queue(PLAIN).runner(handle, concurrency=3)
            runner.run()
            return runner.handled, runner.returned, names

    handled, returned, names = await in_thread(work)
    assert (handled, returned) == (12, 1)
    assert len(names) == 3
