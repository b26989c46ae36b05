"""A client of RPC calls computers of strangers, too: those whose programs have event sinks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from struct import pack

import pytest

from qm.rpc.client import ANSWER_MAX_BYTES, FRAGMENT_LEAST_BYTES, RpcClient, RpcFailed
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER, SIMPLE_PING
from qm.rpc.limits import FRAGMENT_MAX_BYTES
from qm.rpc.pdu.bind import NDR20
from qm.rpc.pdu.codes import PduFlag, PduType
from qm.rpc.pdu.header import HEADER_SIZE_BYTES, fragment_length, parse_pdu, write_header
from tests.cluster.harness import run

WHOLE = PduFlag.FIRST | PduFlag.LAST
PART_BYTES = 65_000


def bind_ack(number: int, fragment_max: int = FRAGMENT_MAX_BYTES, results: int = 1) -> bytes:
    body = pack("<HHIH2x", fragment_max, fragment_max, 7, 0) + pack("<B3x", results)
    body += pack("<HH16sI", 0, 0, NDR20.uuid, 2)
    return write_header(PduType.BIND_ACK, WHOLE, number, HEADER_SIZE_BYTES + len(body)) + body


def response(number: int, stub: bytes, flags: int = WHOLE) -> bytes:
    body = pack("<IHBx", len(stub), 0, 0) + stub
    return write_header(PduType.RESPONSE, flags, number, HEADER_SIZE_BYTES + len(body)) + body


Answer = Callable[[int, asyncio.StreamWriter], None]
"""Write what answers the call of this number."""


@contextlib.asynccontextmanager
async def server(answer: Answer, ack: Callable[[int], bytes] = bind_ack) -> AsyncIterator[int]:
    """A server that accepts any bind; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(HEADER_SIZE_BYTES)
                rest = await reader.readexactly(fragment_length(head) - len(head))
                pdu = parse_pdu(head + rest)
                if pdu.kind is PduType.BIND:
                    writer.write(ack(pdu.call_id))
                else:
                    answer(pdu.call_id, writer)
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def bound(port: int) -> AsyncIterator[RpcClient]:
    client = await RpcClient().connect("127.0.0.1", port)
    try:
        await client.bind(IOBJECTEXPORTER)
        yield client
    finally:
        client.close()


async def pinged(client: RpcClient, timeout_s: float = 20.0) -> object:
    return (await client.call(IOBJECTEXPORTER, SIMPLE_PING, [5], timeout_s))[0]


def test_an_answer_has_a_largest_size() -> None:
    def endless(number: int, writer: asyncio.StreamWriter) -> None:
        for _ in range(ANSWER_MAX_BYTES // PART_BYTES + 2):
            writer.write(response(number, bytes(PART_BYTES), flags=0))

    async def scenario() -> None:
        async with server(endless) as port, bound(port) as client:
            with pytest.raises(RpcFailed, match=str(ANSWER_MAX_BYTES)):
                await pinged(client)

    run(scenario())


def test_what_nobody_asked_is_not_kept() -> None:
    def much(number: int, writer: asyncio.StreamWriter) -> None:
        for k in range(2 * ANSWER_MAX_BYTES // PART_BYTES):
            writer.write(response(number + 1 + k % 3, bytes(PART_BYTES), flags=0))
        writer.write(response(number, pack("<I", 3)))

    async def scenario() -> None:
        async with server(much) as port, bound(port) as client:
            # More than a call may have altogether, and the call is answered; so is the next one,
            # whose number the strange fragments had.
            assert await pinged(client) == 3
            assert await pinged(client) == 3

    run(scenario())


def test_what_comes_after_the_time_of_a_call_is_not_the_answer_of_another_one() -> None:
    late: list[int] = []

    def slow(number: int, writer: asyncio.StreamWriter) -> None:
        late.append(number)
        if len(late) == 1:
            writer.write(response(number, bytes(2), PduFlag.FIRST))
        else:
            writer.write(response(late[0], pack("<I", 9), PduFlag.LAST))
            writer.write(response(number, pack("<I", 4)))

    async def scenario() -> None:
        async with server(slow) as port, bound(port) as client:
            with pytest.raises(RpcFailed, match="no answer within"):
                await pinged(client, 0.2)
            assert await pinged(client) == 4

    run(scenario())


def test_what_cannot_be_read_is_a_failure_of_the_call() -> None:
    async def scenario() -> None:
        def short(number: int, writer: asyncio.StreamWriter) -> None:
            writer.write(response(number, bytes(2)))

        async with server(short) as port, bound(port) as client:
            with pytest.raises(RpcFailed, match="simple_ping cannot be read"):
                await pinged(client)

    run(scenario())


@pytest.mark.parametrize(
    "ack",
    [
        lambda number: bind_ack(number, 0),
        lambda number: bind_ack(number, FRAGMENT_LEAST_BYTES - 1),
        lambda number: bind_ack(number, results=2),
    ],
)
def test_a_bind_that_is_answered_wrongly_has_failed(ack: Callable[[int], bytes]) -> None:
    async def scenario() -> None:
        async with server(lambda number, writer: None, ack) as port:
            with pytest.raises(RpcFailed):
                async with bound(port):
                    pass

    run(scenario())
