from __future__ import annotations

import asyncio
import contextlib

import pytest

from qm.client.blocking import BlockingClient
from qm.client.client import Access, Client
from qm.client.errors import InvalidArgument, MqError, Unavailable
from qm.client.message import Message
from qm.client.queue import after, exactly
from qm.client.sending import SendRefused
from qm.client.transaction import Outcome
from qm.pb import control_pb2, data_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.world import OTHER, PLAIN, TRANSACTIONAL, Clients, scenario, turns


def numbered(count: int, first: int = 0) -> list[Message]:
    return [Message(body=b"%d" % number) for number in range(first, first + count)]


def code_of(error: pytest.ExceptionInfo[MqError]) -> int:
    return error.value.code


# Sending and receiving -------------------------------------------------------------------------


@scenario()
async def test_what_is_sent_is_received_in_order_with_its_properties(made: Clients) -> None:
    async with made.client() as client:
        sent = await client.send(
            PLAIN,
            Message(body=b"one", label="first", application_tag=7, correlation_id=b"c" * 20),
            Message.of_text("zwei", priority=6),
        )
        queue = await client.open_queue(PLAIN)
        text = await queue.receive(5)
        assert text is not None
        assert (text.text, text.priority) == ("zwei", 6)
        one = await queue.receive(5)
        assert one is not None
        assert (one.body, one.label, one.application_tag) == (b"one", "first", 7)
        assert one.correlation_id == b"c" * 20
        assert one.message_id == sent[0].message_id
        assert (one.queue_id, one.lookup_identifier) == sent[0].places[0]
        assert await queue.receive(0) is None


@scenario()
async def test_a_receive_waits_for_the_message_and_no_longer(made: Clients) -> None:
    async with made.client() as client, made.client() as sender:
        queue = await client.open_queue(PLAIN)
        assert await queue.receive(0.05) is None
        waiting = asyncio.ensure_future(queue.receive(20))
        await made.until_read_waits()
        await sender.send(PLAIN, Message(body=b"awaited"))
        message = await waiting
        assert message is not None
        assert message.body == b"awaited"


@pytest.mark.spec("DM-3.1.1.12-19", "DM-3.1.1.12-20")
@scenario()
async def test_several_queues_get_copies_under_one_identifier(made: Clients) -> None:
    async with made.client() as client:
        (sent,) = await client.send([PLAIN, OTHER], Message(body=b"both"))
        assert len(sent.places) == 2
        (alone,) = await client.send(PLAIN, Message(body=b"one"))
        nested = ",".join(f"DIRECT=OS:.\\private$\\{name}" for name in "ab")
        for targets in ([nested], [PLAIN, nested], [nested, PLAIN]):
            with pytest.raises(InvalidArgument):
                await client.send(targets, Message(body=b"nested"))
        for place, name in enumerate((PLAIN, OTHER)):
            queue = await client.open_queue(name)
            message = await queue.receive(5)
            assert message is not None
            assert message.message_id == sent.message_id
            assert len(set(message.destination_queues)) == 2
            assert message.destination_queue == message.destination_queues[place]
            if name is PLAIN:
                message = await queue.receive(5)
                assert message is not None
                assert (message.message_id, message.destination_queues) == (alone.message_id, [])
            assert await queue.receive(0) is None, "nothing of what was refused"


@scenario()
async def test_a_cancelled_receive_loses_nothing(made: Clients) -> None:
    async with made.client() as client:
        queue = await client.open_queue(PLAIN)
        for number in range(8):
            waiting = asyncio.ensure_future(queue.receive(20))
            await turns(5 * number)
            sending = asyncio.ensure_future(client.send(PLAIN, Message(body=b"%d" % number)))
            await turns(3 * number)
            waiting.cancel()
            results = await asyncio.gather(waiting, sending, return_exceptions=True)
            found = results[0]
            if isinstance(found, BaseException):
                found = await queue.receive(5)
            assert found is not None
            assert getattr(found, "body", None) == b"%d" % number


@scenario()
async def test_peeking_takes_nothing(made: Clients) -> None:
    async with made.client() as client:
        sent = await client.send(PLAIN, *numbered(5))
        queue = await client.open_queue(PLAIN, Access.PEEK)
        first = await queue.peek()
        assert first is not None
        assert first.body == b"0"
        third = sent[2].places[0][1]
        found = await queue.peek(selection=exactly(third))
        assert found is not None
        assert found.body == b"2"
        assert [m.body for m in await queue.peek_many(9, selection=after(third))] == [b"3", b"4"]
        assert [m.body async for m in queue.browse(page=2)] == [m.body for m in numbered(5)]


@scenario()
async def test_a_message_is_taken_by_its_lookup_identifier(made: Clients) -> None:
    async with made.client() as client:
        sent = await client.send(PLAIN, *numbered(3))
        queue = await client.open_queue(PLAIN)
        second = sent[1].places[0][1]
        found = await queue.receive(0, selection=exactly(second))
        assert found is not None
        assert found.body == b"1"
        assert await queue.receive(0, selection=exactly(second)) is None


@scenario()
async def test_a_borrowed_message_is_returned_accepted_or_rejected(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, Message(body=b"x"), Message(body=b"y", dead_letter=True))
        queue = await client.open_queue(PLAIN)
        first = await queue.receive_two_phase(5)
        assert first is not None
        await queue.give_back(first)
        again = await queue.receive_two_phase(5)
        assert again is not None
        assert again.lookup_identifier == first.lookup_identifier
        await queue.accept(again)
        second = await queue.receive_two_phase(5)
        assert second is not None
        assert second.body == b"y"
        await queue.reject(second)
        assert await queue.receive(0) is None


@scenario()
async def test_a_poison_message_leaves_its_queue_for_every_kind_of_reader(made: Clients) -> None:
    await made.limit(TRANSACTIONAL, max_deliveries=3)
    async with made.client() as client:
        async with client.transaction() as sending:
            await sending.send(TRANSACTIONAL, Message(body=b"poison"), Message(body=b"good"))
        queue = await client.open_queue(TRANSACTIONAL)
        first = await queue.receive_two_phase(5)
        assert first is not None
        assert first.returns == 0
        await queue.give_back(first)
        async with client.transaction() as transaction:
            assert await transaction.receive(queue, 5) is not None
            await transaction.abort()
        peeked = await queue.peek()
        assert peeked is not None
        assert peeked.returns == 2
        async with queue.stream(1, is_two_phase=True) as stream:
            message = await anext(aiter(stream))
            await queue.give_back(message)
        good = await queue.receive(5)
        assert good is not None
        assert good.body == b"good"
        aside = await (await client.open_queue(TRANSACTIONAL + ";poison")).peek()
        assert aside is not None
        assert (aside.body, aside.returns) == (b"poison", 3)


@scenario()
async def test_a_message_moves_to_a_subqueue_and_back(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, Message(body=b"x"))
        queue = await client.open_queue(PLAIN)
        retry = await client.open_queue(PLAIN + ";retry", Access.MOVE)
        found = await queue.peek()
        assert found is not None
        await queue.move(found, retry)
        assert await queue.peek() is None
        reader = await client.open_queue(PLAIN + ";retry")
        moved = await reader.peek()
        assert moved is not None
        assert moved.body == b"x"
        back = await client.open_queue(PLAIN, Access.MOVE)
        await reader.move(moved, back)
        assert await queue.peek() is not None


# Transactions ----------------------------------------------------------------------------------


@scenario()
async def test_a_transaction_is_all_or_nothing(made: Clients) -> None:
    async with made.client() as client:
        queue = await client.open_queue(TRANSACTIONAL)
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, *numbered(3))
            assert await queue.peek() is None
        assert transaction.outcome is Outcome.COMMITTED
        with contextlib.suppress(ZeroDivisionError):
            async with client.transaction() as transaction:
                found = await transaction.receive(queue, 5)
                assert found is not None
                await transaction.send(TRANSACTIONAL, Message(body=b"never"))
                raise ZeroDivisionError
        assert transaction.outcome is Outcome.ABORTED
        assert [m.body async for m in queue.browse()] == [b"0", b"1", b"2"]
        async with client.transaction() as transaction:
            assert len(await transaction.receive_many(TRANSACTIONAL, 9, 5)) == 3
        assert await queue.peek() is None


@scenario()
async def test_a_transaction_reads_a_queue_that_is_open_exclusively(made: Clients) -> None:
    async with made.client() as client, made.client() as other:
        queue = await client.open_queue(TRANSACTIONAL, exclusive=True)
        with pytest.raises(MqError) as refused:
            await other.open_queue(TRANSACTIONAL)
        assert code_of(refused) == ErrorCode.MQ_ERROR_SHARING_VIOLATION
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, *numbered(2))
        async with client.transaction() as transaction:
            found = await transaction.receive(queue, 5)
            assert found is not None
            assert found.body == b"0"
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"late"))
            with pytest.raises(MqError) as late:
                await transaction.receive(queue, 5)
            assert code_of(late) == ErrorCode.MQ_ERROR_TRANSACTION_ENLIST
            await transaction.abort()
        assert [m.body async for m in queue.browse()] == [b"1"]


@scenario()
async def test_a_transaction_leaves_no_queue_open_behind_the_application(made: Clients) -> None:
    async with made.client() as client, made.client() as other:
        async with client.transaction() as transaction:
            assert await transaction.receive(TRANSACTIONAL, 0) is None
        exclusive = await other.open_queue(TRANSACTIONAL, exclusive=True)
        await other.close_queue(exclusive)
        queue = await client.open_queue(TRANSACTIONAL)
        async with client.transaction() as transaction:
            assert await transaction.receive(queue, 0) is None
        await client.close_queue(queue)
        exclusive = await other.open_queue(TRANSACTIONAL, exclusive=True)
        await other.close_queue(exclusive)
        # The application may close the queue before it commits.
        queue = await client.open_queue(TRANSACTIONAL)
        async with client.transaction() as transaction:
            assert await transaction.receive(queue, 0) is None
            await client.close_queue(queue)
        await other.open_queue(TRANSACTIONAL, exclusive=True)


@scenario()
async def test_an_ended_transaction_does_nothing_more(made: Clients) -> None:
    async with made.client() as client:
        transaction = client.transaction()
        await transaction.send(TRANSACTIONAL, Message())
        await transaction.commit()
        for call in (transaction.commit, transaction.abort):
            with pytest.raises(MqError) as ended:
                await call()
            assert code_of(ended) == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
        with pytest.raises(MqError):
            await transaction.send(TRANSACTIONAL, Message())


# Streams ---------------------------------------------------------------------------------------


@scenario()
async def test_a_stream_gives_every_message_once_and_leaves_the_rest(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(1000))
        queue = await client.open_queue(PLAIN)
        got = []
        async with queue.stream(64) as stream:
            async for message in stream:
                got.append(message.body)
                if len(got) == 700:
                    break
        while messages := await queue.receive_many(100, 0.0):
            got += [message.body for message in messages]
        assert got == [message.body for message in numbered(1000)]


@scenario()
async def test_a_stream_that_is_stopped_hands_over_what_was_under_way(made: Clients) -> None:
    async with made.client() as client, made.client() as other:
        await client.send(PLAIN, *numbered(300))
        queue = await client.open_queue(PLAIN)
        got = []
        async with queue.stream(64) as stream:
            async for message in stream:
                got.append(message.body)
                if len(got) == 100:
                    break
            got += [message.body for message in await stream.stop()]
        await client.close_queue(queue)
        rest = await other.open_queue(PLAIN)
        got += [message.body async for message in rest.browse()]
        assert got == [message.body for message in numbered(300)]
        dead = await other.open_queue("DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
        assert await dead.peek() is None


@scenario()
async def test_a_stream_waits_and_may_be_left_while_it_waits(made: Clients) -> None:
    async with made.client() as client:
        queue = await client.open_queue(PLAIN)
        async with queue.stream(8, commit_confirms=True) as stream:
            waiting = asyncio.ensure_future(stream.batch())
            await made.until_read_waits()
            await client.send(PLAIN, Message(body=b"a"))
            assert [m.body for m in await waiting] == [b"a"]
            waiting = asyncio.ensure_future(stream.batch())
            await turns(10)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await client.send(PLAIN, Message(body=b"b"))
        found = await queue.receive(5)
        assert found is not None
        assert found.body == b"b"


@scenario()
async def test_a_stream_may_have_every_confirmation_committed(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(100))
        queue = await client.open_queue(PLAIN)
        async with queue.stream(10, commit_confirms=True) as stream:
            got: list[bytes] = []
            while len(got) < 100:
                got += [message.body for message in await stream.batch()]
        assert got == [message.body for message in numbered(100)]


@scenario()
async def test_a_stream_lends_messages_in_two_phases(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(4))
        queue = await client.open_queue(PLAIN)
        async with queue.stream(4, is_two_phase=True) as stream:
            for number in range(4):
                message = await anext(aiter(stream))
                await (queue.accept if number % 2 else queue.give_back)(message)
        assert [m.body async for m in queue.browse()] == [b"0", b"2"]


async def _fail_without_a_cluster(made: Clients) -> None:
    async with made.client() as client:
        await client.open_queue(PLAIN)
        await made.harness.kill("n1")
        raise ZeroDivisionError


# Errors ----------------------------------------------------------------------------------------


@scenario()
async def test_refusals_have_the_specifications_code(made: Clients) -> None:
    async with made.client() as client:
        for call, code in (
            (client.open_queue("QUORATE\\private$\\none"), ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
            (client.send(TRANSACTIONAL, Message()), ErrorCode.MQ_ERROR_TRANSACTION_USAGE),
        ):
            with pytest.raises(MqError) as refused:
                await call
            assert code_of(refused) == code


@scenario()
async def test_a_run_that_is_refused_says_what_was_sent_before(made: Clients) -> None:
    async with made.client() as client:
        with pytest.raises(SendRefused) as refused:
            await client.send([PLAIN, TRANSACTIONAL], Message(body=b"x"))
        assert code_of(refused) == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        assert refused.value.sent == []


@scenario()
async def test_a_session_that_was_closed_is_opened_again_for_sends(made: Clients) -> None:
    async with made.client("me") as client, made.client() as operator:
        await client.send(PLAIN, Message(body=b"1"))
        await operator.wire.call(
            lambda stubs: stubs.clients.CloseClient, control_pb2.CloseClientRequest(client_id="me")
        )
        await client.send(PLAIN, Message(body=b"2"))
        queue = await client.open_queue(PLAIN)
        assert [m.body async for m in queue.browse()] == [b"1", b"2"]
        await operator.wire.call(
            lambda stubs: stubs.clients.CloseClient,
            control_pb2.CloseClientRequest(client_id=queue.session.client_id),
        )
        with pytest.raises(MqError):
            await queue.receive(0)


@scenario()
async def test_a_wrong_argument_is_named(made: Clients) -> None:
    async with made.client() as client:
        with pytest.raises(InvalidArgument) as wrong:
            await client.send(PLAIN, Message(label="x" * 250))
        assert wrong.value.field.endswith("label")


@scenario()
async def test_somebody_else_s_client_id_and_dead_endpoints(made: Clients) -> None:
    nobody = "127.0.0.1:1"
    async with Client([nobody, *made.endpoints], tls=made.tls) as client:
        assert client.computer_name == "QUORATE"
    with pytest.raises(ValueError, match="bytes"):
        Client(made.endpoints, client_id="x" * 101)


def test_a_cluster_that_nobody_finds_is_unavailable() -> None:
    async def main() -> None:
        client = Client(["127.0.0.1:1", "127.0.0.1:2"])
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await client.wire.call(
                lambda stubs: stubs.data.OpenSession,
                data_pb2.OpenSessionRequest(client_id="x"),
                deadline_s=0.05,
            )
        await client.wire.close()

    asyncio.run(main())


@scenario()
async def test_a_client_that_fails_does_not_wait_for_a_cluster_that_is_gone(made: Clients) -> None:
    with pytest.raises(ZeroDivisionError):
        await _fail_without_a_cluster(made)


# Without a loop --------------------------------------------------------------------------------


@scenario()
async def test_the_blocking_client_does_the_same(made: Clients) -> None:
    def program() -> list[bytes]:
        with BlockingClient(made.endpoints, tls=made.tls) as client:
            client.send(PLAIN, *numbered(3))
            queue = client.open_queue(PLAIN)
            first = queue.receive(5)
            assert first is not None
            second = queue.receive_two_phase(5)
            assert second is not None
            queue.give_back(second)
            with client.transaction() as transaction:
                transaction.send(TRANSACTIONAL, Message(body=b"tx"))
            with contextlib.suppress(ZeroDivisionError), client.transaction() as transaction:
                assert transaction.receive(TRANSACTIONAL, 5) is not None
                raise ZeroDivisionError
            rest = [m.body for m in queue.peek_many(9)]
            other = client.open_queue(TRANSACTIONAL)
            rest += [m.body for m in other.receive_many(9, 5)]
            queue.close()
            return rest

    assert await asyncio.to_thread(program) == [b"1", b"2", b"tx"]
