"""The data plane on one node: every call and its refusals."""

import asyncio
import secrets
from typing import Any

import grpc
import pytest
from msgspec import structs

from qm.api.data import handles, waits
from qm.api.gate.identity import Role
from qm.model.clients import clients
from qm.model.management import administration
from qm.model.values.limits import APPLY_VERSION
from qm.pb import control_pb2, data_pb2
from qm.wire.codes import ErrorCode
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import ProviderInfo, SecurityHeader, write_provider_info
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.peek import peek_head, properties_offset, security_header_offset
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import run, until
from tests.unit.api.world import Client, bodies, refused, world

ORDERS = r"DIRECT=OS:QUORATE\private$\orders"
PATH = r".\private$\orders"
INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def create(client: Client, path: str = PATH, **attributes: object) -> control_pb2.Queue:
    values = {
        name: control_pb2.Value(flag=value)
        if isinstance(value, bool)
        else control_pb2.Value(number=value)  # type: ignore[arg-type]
        for name, value in attributes.items()
    }
    queue: control_pb2.Queue = await client.queues.CreateQueue(
        control_pb2.CreateQueueRequest(path_name=path, attributes=values)
    )
    return queue


def test_a_message_goes_in_and_out_once() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            results = await client.send(ORDERS, b"one", b"two", label="hello")
            assert [result.status for result in results] == [0, 0]
            queue = await client.open(ORDERS)
            number = client.next()
            first = await client.receive(queue, request=number)
            assert bodies(first) == [b"one"]
            properties = first.messages.properties[0]
            assert properties.label == "hello"
            assert properties.message_id == results[0].message_id
            assert properties.lookup_identifier == results[0].places[0].lookup_identifier
            assert properties.destination_queue == ORDERS
            assert await client.receive(queue, request=number) == first
            assert bodies(await client.receive(queue)) == [b"two"]
            empty = await client.receive(queue)
            assert (len(empty.messages.numbers), empty.status) == (
                0,
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
            )

    run(scenario())


def test_a_repeated_send_has_its_first_result_and_a_confirmed_number_none() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            message = data_pb2.OutgoingMessage(
                targets=[ORDERS], properties=data_pb2.Properties(body=b"x")
            )
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            first = await client.data.Send(request)
            assert await client.data.Send(request) == first
            queue = await client.open(ORDERS)
            assert len((await client.receive(queue, 5)).messages.numbers) == 1
            await client.data.Confirm(
                data_pb2.ConfirmRequest(client_id=client.client_id, confirmed_upto=2)
            )
            (late,) = (await client.data.Send(request)).results
            assert late.status == ErrorCode.MQ_ERROR_STALE_HANDLE

    run(scenario())


def test_several_come_at_once_and_large_answers_in_parts() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            large = [bytes([k]) * (300 << 10) for k in range(8)]
            for body in large:
                await client.send(ORDERS, body)
            queue = await client.open(ORDERS)
            number = client.next(10)
            taken: list[bytes] = []
            first, parts = number.number, 0
            while first:
                count = number.number + 10 - first
                reply = await client.receive(
                    queue, count, request=client.numbered(first), view=data_pb2.PROPERTIES
                )
                taken += bodies(reply)
                first, parts = reply.ask_again_from, parts + 1
            assert taken == large
            assert parts > 1
            assert reply.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND

    run(scenario())


def test_a_receive_waits_for_an_arrival_or_its_timeout() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            late = await client.receive(queue, timeout_ms=50)
            assert late.status == ErrorCode.MQ_ERROR_IO_TIMEOUT
            waiting = asyncio.ensure_future(client.receive(queue, timeout_ms=20_000))
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            await client.send(ORDERS, b"now")
            assert bodies(await waiting) == [b"now"]
            assert leader.waiting_readers == 0

    run(scenario())


def test_waiting_readers_are_served_in_the_order_in_which_they_came() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            leader = await made.leader()
            readers = []
            for _ in range(5):
                call = client.receive(queue, timeout_ms=0xFFFF_FFFF)
                readers.append(asyncio.ensure_future(call))
                await until(lambda: leader.waiting_readers == len(readers))
            for body in (b"1", b"2", b"3", b"4", b"5"):
                await client.send(ORDERS, body)
            replies = await asyncio.gather(*readers)
            assert [bodies(reply) for reply in replies] == [[b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]

    run(scenario())


def test_cancel_is_a_result_and_leaves_what_was_found() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            number = client.next()
            waiting = asyncio.ensure_future(
                client.receive(queue, request=number, timeout_ms=0xFFFF_FFFF)
            )
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            cancel = data_pb2.CancelRequest(
                client_id=client.client_id, first_number=number.number, count=1
            )
            assert list((await client.data.Cancel(cancel)).received_numbers) == []
            assert (await waiting).status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
            await client.send(ORDERS, b"kept")
            again = await client.receive(queue, request=number)
            assert again.status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
            taken = client.next()
            assert bodies(await client.receive(queue, request=taken)) == [b"kept"]
            cancel.first_number = taken.number
            assert list((await client.data.Cancel(cancel)).received_numbers) == [taken.number]

    run(scenario())


def test_closing_a_handle_ends_its_waits() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            waiting = asyncio.ensure_future(client.receive(queue, timeout_ms=0xFFFF_FFFF))
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            await client.data.CloseQueue(
                data_pb2.CloseQueueRequest(request=client.next(), handle=queue.handle)
            )
            assert (await waiting).status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_INVALID_HANDLE"):
                await client.receive(queue)

    run(scenario())


def test_deleting_a_queue_ends_the_waits_in_it() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            made_queue = await create(client)
            queue = await client.open(ORDERS)
            waiting = asyncio.ensure_future(client.receive(queue, timeout_ms=0xFFFF_FFFF))
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            await client.queues.DeleteQueue(
                control_pb2.DeleteQueueRequest(
                    queue=control_pb2.QueueName(queue_id=made_queue.queue_id)
                )
            )
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_AVAILABLE"):
                await waiting

    run(scenario())


@pytest.mark.spec("DM-3.1.1.17-02")
def test_reads_by_lookup_identifier_never_wait() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            sent = await client.send(ORDERS, b"a", b"b", b"c")
            keys = [result.places[0].lookup_identifier for result in sent]
            queue = await client.open(ORDERS)

            def selector(kind: Any, key: int = 0) -> data_pb2.Selector:
                return data_pb2.Selector(kind=kind, lookup_identifier=key)

            peeked = await client.peek(queue, selector=selector(data_pb2.SEEK_NEXT, keys[0]))
            assert bodies(peeked) == [b"b"]
            peeked = await client.peek(queue, selector=selector(data_pb2.SEEK_PREVIOUS, keys[2]))
            assert bodies(peeked) == [b"b"]
            peeked = await client.peek(queue, selector=selector(data_pb2.SEEK_LAST))
            assert bodies(peeked) == [b"c"]
            exact = selector(data_pb2.EXACT, keys[1])
            assert bodies(await client.receive(queue, selector=exact)) == [b"b"]
            again = await client.receive(queue, selector=exact, timeout_ms=10_000)
            assert again.status == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
            peeked = await client.peek(queue, selector=selector(data_pb2.EXACT, keys[2]))
            assert bodies(peeked) == [b"c"]
            peeked = await client.peek(queue, selector=selector(data_pb2.FIRST))
            assert bodies(peeked) == [b"a"]
            after = await client.receive(queue, selector=selector(data_pb2.AFTER, keys[0]))
            assert bodies(after) == [b"c"]
            sent = await client.send(ORDERS, b"d", b"e", b"f")
            *_, last = [result.places[0].lookup_identifier for result in sent]
            for kind, key, body in (
                (data_pb2.SEEK_NEXT, keys[0], b"d"),
                (data_pb2.SEEK_PREVIOUS, last, b"e"),
                (data_pb2.SEEK_LAST, 0, b"f"),
                (data_pb2.FIRST, 0, b"a"),
            ):
                taken = await client.receive(queue, selector=selector(kind, key))
                assert bodies(taken) == [body]

    run(scenario())


def test_peeks_take_nothing_and_may_wait() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS, data_pb2.PEEK_ACCESS)
            nothing = await client.peek(queue)
            assert nothing.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            assert (await client.peek(queue, timeout_ms=30)).status == ErrorCode.MQ_ERROR_IO_TIMEOUT
            waiting = asyncio.ensure_future(client.peek(queue, timeout_ms=20_000))
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            await client.send(ORDERS, b"a", b"b")
            assert bodies(await waiting) == [b"a"]
            both = await client.peek(queue, count=10)
            assert bodies(both) == [b"a", b"b"]
            assert len(both.messages.packets) == 0
            with refused(grpc.StatusCode.PERMISSION_DENIED, "MQ_ERROR_ACCESS_DENIED"):
                await client.receive(queue)

    run(scenario())


@pytest.mark.spec("MQ-2.4-07", "MQ-1.1-04")
def test_a_cursor_walks_waits_and_notices_what_others_took() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            cursor = (
                await client.data.CreateCursor(
                    data_pb2.CreateCursorRequest(client_id=client.client_id, handle=queue.handle)
                )
            ).cursor
            ahead = data_pb2.PEEK_NEXT
            early = await client.peek(queue, cursor=cursor, action=ahead)
            assert early.status == ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION
            await client.send(ORDERS, b"a", b"b")
            assert bodies(await client.peek(queue, cursor=cursor)) == [b"a"]
            assert bodies(await client.peek(queue, cursor=cursor)) == [b"a"]
            assert bodies(await client.peek(queue, cursor=cursor, action=ahead)) == [b"b"]
            other = await client.data.CreateCursor(
                data_pb2.CreateCursorRequest(client_id=client.client_id, handle=queue.handle)
            )
            assert bodies(await client.peek(queue, cursor=other.cursor)) == [b"a"], "its own place"
            waiting = asyncio.ensure_future(
                client.peek(queue, cursor=cursor, action=ahead, timeout_ms=20_000)
            )
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            await client.send(ORDERS, b"c")
            assert bodies(await waiting) == [b"c"]
            assert bodies(await client.receive(queue, cursor=cursor)) == [b"c"]
            assert bodies(await client.receive(queue, 2)) == [b"a", b"b"]
            await client.send(ORDERS, b"d")
            assert bodies(await client.peek(queue, cursor=cursor)) == [b"d"]
            assert bodies(await client.receive(queue)) == [b"d"]
            gone = await client.peek(queue, cursor=cursor)
            assert gone.status == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
            gone_too = await client.receive(queue, cursor=cursor)
            assert gone_too.status == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
            request = data_pb2.CloseCursorRequest(client_id=client.client_id, cursor=cursor)
            await client.data.CloseCursor(request)
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_INVALID_HANDLE"):
                await client.data.CloseCursor(request)

    run(scenario())


def test_a_two_phase_receive_is_accepted_returned_or_rejected() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"a", b"b", dead_letter=True)
            queue = await client.open(ORDERS)

            async def complete(
                key: int, decision: data_pb2.CompleteRequest.Decision.ValueType
            ) -> None:
                await client.data.Complete(
                    data_pb2.CompleteRequest(
                        request=client.next(),
                        queue_id=queue.queue_id,
                        lookup_identifier=key,
                        decision=decision,
                    )
                )

            lent = await client.receive(queue, is_two_phase=True)
            assert bodies(lent) == [b"a"]
            key = lent.messages.lookup_identifiers[0]
            assert bodies(await client.peek(queue)) == [b"b"]
            await complete(key, data_pb2.CompleteRequest.RETURN)
            lent = await client.receive(queue, is_two_phase=True)
            assert bodies(lent) == [b"a"]
            await complete(key, data_pb2.CompleteRequest.REJECT)
            lent = await client.receive(queue, is_two_phase=True)
            assert bodies(lent) == [b"b"]
            await complete(lent.messages.lookup_identifiers[0], data_pb2.CompleteRequest.ACCEPT)
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_TRANSACTION_SEQUENCE"):
                await complete(key, data_pb2.CompleteRequest.ACCEPT)

    run(scenario())


def test_transactions_hide_until_commit_and_undo_on_abort() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client, transactional=True)
            queue = await client.open(PATH)
            assert queue.is_transactional

            async def begin(**more: Any) -> bytes:
                transaction = secrets.token_bytes(16)
                await client.data.BeginTransaction(
                    data_pb2.BeginTransactionRequest(
                        request=client.next(), transaction=transaction, **more
                    )
                )
                return transaction

            def ending(transaction: bytes) -> data_pb2.EndTransactionRequest:
                return data_pb2.EndTransactionRequest(
                    request=client.next(), transaction=transaction
                )

            first = await begin()
            results = await client.send(ORDERS, b"a", b"b", transaction=first)
            assert [result.status for result in results] == [0, 0]
            assert (await client.peek(queue)).status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            await client.data.CommitTransaction(ending(first))
            seen = await client.peek(queue, count=2)
            ends = [
                (one.is_first_in_transaction, one.is_last_in_transaction)
                for one in seen.messages.properties
            ]
            assert ends == [(True, False), (False, True)]
            second = await begin()
            assert bodies(await client.receive(queue, transaction=second)) == [b"a"]
            await client.data.AbortTransaction(ending(second))
            third = await begin(is_two_phase=True, coordinator="somebody")
            assert bodies(await client.receive(queue, transaction=third)) == [b"a"]
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_TRANSACTION_SEQUENCE"):
                await client.data.CommitTransaction(ending(third))
            await client.data.PrepareTransaction(ending(third))
            await client.data.CommitTransaction(ending(third))
            assert bodies(await client.receive(queue)) == [b"b"]
            (refusal,) = await client.send(ORDERS, b"alone")
            assert refusal.status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE

    run(scenario())


def test_nobody_else_ends_a_transaction() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.client(leader) as one, made.client(leader) as other:
                transaction = secrets.token_bytes(16)
                await one.data.BeginTransaction(
                    data_pb2.BeginTransactionRequest(request=one.next(), transaction=transaction)
                )
                with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_TRANSACTION_SEQUENCE"):
                    await other.data.AbortTransaction(
                        data_pb2.EndTransactionRequest(
                            request=other.next(), transaction=transaction
                        )
                    )

    run(scenario())


def test_a_message_moves_to_a_subqueue_and_back() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            sent = (await client.send(ORDERS, b"a"))[0].places[0]
            sub = await client.open(ORDERS + ";retry", data_pb2.MOVE_ACCESS)
            move = data_pb2.MoveRequest(
                request=client.next(),
                source_queue_id=sent.queue_id,
                lookup_identifier=sent.lookup_identifier,
                target_queue_id=sub.queue_id,
            )
            moved = await client.data.Move(move)
            assert await client.data.Move(move) == moved
            queue = await client.open(ORDERS)
            assert (await client.receive(queue)).status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            back = await client.data.Move(
                data_pb2.MoveRequest(
                    request=client.next(),
                    source_queue_id=sub.queue_id,
                    lookup_identifier=moved.lookup_identifier,
                    target_queue_id=sent.queue_id,
                )
            )
            assert back.lookup_identifier
            assert bodies(await client.receive(queue)) == [b"a"]

    run(scenario())


def test_share_modes_exclude() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.client(leader) as one, made.client(leader) as other:
                await create(one)
                alone = await one.open(ORDERS, share_mode=data_pb2.DENY_RECEIVE)
                with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_SHARING_VIOLATION"):
                    await other.open(ORDERS)
                await other.open(ORDERS, data_pb2.PEEK_ACCESS)
                await one.data.CloseQueue(
                    data_pb2.CloseQueueRequest(request=one.next(), handle=alone.handle)
                )
                await other.open(ORDERS)

    run(scenario())


def test_sessions_resume_and_their_end_dead_letters_what_was_not_confirmed() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            leader = await made.leader()
            await create(client)
            await client.send(ORDERS, b"a", b"b")
            queue = await client.open(ORDERS)
            assert bodies(await client.receive(queue)) == [b"a"]
            resumed = await client.open_session()
            assert resumed.highest_number == client.number
            client.confirmed_upto = client.number
            assert bodies(await client.receive(queue)) == [b"b"]
            ending = data_pb2.CloseSessionRequest(client_id=client.client_id)
            await client.data.CloseSession(ending)
            await client.data.CloseSession(ending)
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_STALE_HANDLE"):
                await client.receive(queue)
            await client.open_session()
            dead = await client.open(r".\system$;DEADLETTER")
            assert bodies(await client.receive(dead)) == [b"b"]
            await leader.node.service.gauges.refresh()
            assert leader.metrics.gauge("quorate_client_sessions")._value.get() == 1
            renew = data_pb2.RenewSessionRequest(client_id=client.client_id, lease_ms=5_000)
            await client.data.RenewSession(renew)

    run(scenario())


def test_properties_travel_and_packets_are_taken_as_they_are() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            given = data_pb2.Properties(
                body="text".encode("utf-16-le"),
                body_type=8,
                label="a label",
                priority=6,
                delivery=data_pb2.RECOVERABLE,
                time_to_reach_queue_s=60,
                time_to_be_received_s=3_600,
                correlation_id=bytes(range(20)),
                application_tag=77,
                response_queue=ORDERS,
                administration_queue=PATH,
                acknowledgements=8,
                dead_letter=True,
                extension=b"ext",
            )
            message = data_pb2.OutgoingMessage(targets=[PATH], properties=given)
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            sent = (await client.data.Send(request)).results[0]
            queue = await client.open(ORDERS)
            reply = await client.receive(queue)
            got = reply.messages.properties[0]
            for name in (
                "body",
                "body_type",
                "label",
                "priority",
                "delivery",
                "time_to_reach_queue_s",
                "time_to_be_received_s",
                "correlation_id",
                "application_tag",
                "response_queue",
                "acknowledgements",
                "dead_letter",
                "extension",
            ):
                assert getattr(got, name) == getattr(given, name), name
            assert got.administration_queue.startswith("PRIVATE=")
            offsets = reply.messages.offsets
            packet = reply.messages.packets[offsets[0] : offsets[1]]
            copy = data_pb2.OutgoingMessage(targets=[ORDERS], packet=packet)
            request = data_pb2.SendRequest(request=client.next(), messages=[copy])
            again = (await client.data.Send(request)).results[0]
            assert again.message_id != sent.message_id
            got_again = (await client.receive(queue)).messages.properties[0]
            assert got_again.message_id == again.message_id
            assert got_again.label == "a label"

    run(scenario())


@pytest.mark.spec("DM-3.1.1.6-03")
def test_the_enterprise_says_how_long_a_message_may_take_that_does_not_say_it() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)

            async def sent_with(seconds: int | None = None) -> int:
                properties = data_pb2.Properties(body=b"a", time_to_reach_queue_s=seconds)
                message = data_pb2.OutgoingMessage(targets=[ORDERS], properties=properties)
                request = data_pb2.SendRequest(request=client.next(), messages=[message])
                await client.data.Send(request)
                got = (await client.receive(queue)).messages.properties[0]
                return int(got.time_to_reach_queue_s)

            assert await sent_with() == 0x54600
            enterprise = control_pb2.PutObjectRequest(object_class="enterprise")
            enterprise.attributes["name"].text = "Corp"
            for seconds in (90, 3_600):
                enterprise.attributes["default_time_to_live"].number = seconds
                put = await client.directory.PutObject(enterprise)
                enterprise.identifier = put.identifier
                assert await sent_with() == seconds
                for own in (60, seconds + 1, 0xFFFF_FFFF):
                    assert await sent_with(own) == own

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-44")
def test_what_the_server_assigns_is_not_taken_from_a_client() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            names = ("transaction_status_queue", "soap_header", "soap_body")
            given: dict[str, Any] = dict.fromkeys(names, "DIRECT=OS:h\\q")
            await client.send(ORDERS, b"a", **given)
            got = (await client.receive(queue)).messages.properties[0]
            assert got.body == b"a"
            for name in given:
                assert getattr(got, name) == ""

    run(scenario())


@pytest.mark.spec("DM-3.1.7.1.27-02")
@pytest.mark.parametrize("is_packet", [False, True])
def test_each_of_several_queues_gets_a_copy_that_names_it_and_lists_them_all(
    is_packet: bool,
) -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            names = [rf".\private$\{name}" for name in ("orders", "other", "third")]
            queues = []
            for name in names:
                await create(client, name)
                queues.append(await client.open(name))
            listed = [queue.format_name for queue in queues]
            message = data_pb2.OutgoingMessage(
                targets=names, properties=data_pb2.Properties(body=b"to all", label="one")
            )
            if is_packet:
                await client.send(names[2], b"to all", label="one", destinations=names)
                packets = (await client.receive(queues[2])).messages.packets
                message = data_pb2.OutgoingMessage(targets=names, packet=packets)
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            (sent,) = (await client.data.Send(request)).results
            assert (sent.status, len(sent.places)) == (0, 3)
            for queue in queues:
                got = (await client.receive(queue)).messages.properties[0]
                assert got.destination_queue == queue.format_name
                assert list(got.destinations) == listed
                assert (got.body, got.label, got.message_id) == (b"to all", "one", sent.message_id)

    run(scenario())


def test_the_copies_of_a_message_have_a_limit_together() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            message = data_pb2.OutgoingMessage(
                targets=[ORDERS] * 4, properties=data_pb2.Properties(body=bytes(7 << 19))
            )
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            with refused(INVALID, field="messages[0].targets"):
                await client.data.Send(request)
            del message.targets[3:]
            request = data_pb2.SendRequest(request=request.request, messages=[message])
            (sent,) = (await client.data.Send(request)).results
            assert (sent.status, len(sent.places)) == (0, 3)

    run(scenario())


def marked(packet: bytes) -> bytes:
    """Return a packet with every flag set that no sender sets and every receiver ignores."""
    raw, head = bytearray(packet), peek_head(packet, 0)
    security = security_header_offset(packet, 0, head)
    properties = properties_offset(packet, 0, head)
    for at, size, flags in (
        (2, 2, 0xFEC0),
        (60, 4, 0xEF00_0080),
        (security, 2, 0xFF10),
        (properties, 1, 0xF0),
    ):
        found = int.from_bytes(raw[at : at + size], "little")
        assert not found & flags
        raw[at : at + size] = (found | flags).to_bytes(size, "little")
    return bytes(raw)


def brought() -> UserMessage:
    """Return a message of which a caller has the packet."""
    provider = write_provider_info(ProviderInfo(1, "A provider"))
    properties = MessagePropertiesHeader(b"body", "label", flags=0x0C)
    header = UserHeader(b"s" * 16, DirectQueueFormatName("OS:h\\q"), is_recoverable=True)
    return UserMessage(header, properties, security=SecurityHeader(provider_info=provider))


@pytest.mark.spec(
    "MQ-2.2.20.6-04", "MQ-2.2.20.6-05", "MQ-2.2.20.6-09", "MQ-2.2.19.2-34", "MQ-2.2.19.3-07"
)
@pytest.mark.parametrize("count", [1, 2])
def test_flags_that_no_sender_sets_are_not_sent_for_a_caller_who_brings_them(count: int) -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            packet = marked(write_user_message(brought()))
            message = data_pb2.OutgoingMessage(targets=[ORDERS] * count, packet=packet)
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            await client.data.Send(request)
            for _ in range(count):
                sent = (await client.receive(queue)).messages.packets
                head = peek_head(sent, 0)
                assert head.user_flags & ~0x1C00 == 0x0028_0020, "MP, SH, DM, beside DQ"
                at = security_header_offset(sent, 0, head)
                assert sent[at : at + 2] == b"\0\0"
                assert sent[properties_offset(sent, 0, head)] == 0x0C
                kept, _ = parse_user_message(sent, 0, len(sent))
                assert (kept.properties, kept.security) == (
                    brought().properties,
                    brought().security,
                )

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.1-13")
def test_neither_unused_flags_nor_a_session_header_are_sent_for_a_caller() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            ridden = structs.replace(brought(), session=SessionHeader(1), priority=5)
            message = data_pb2.OutgoingMessage(
                targets=[ORDERS], packet=marked(write_user_message(ridden))
            )
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            await client.data.Send(request)
            sent = (await client.receive(queue)).messages.packets
            assert sent[2:4] == b"\5\0", "the priority alone"
            assert int.from_bytes(sent[8:12], "little") == len(sent)

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.3-11", "MQ-2.2.18.1.6-09", "MQ-2.2.18.1.6-04", "DM-3.1.1.12-06")
def test_connectors_choose_defined_classes_and_those_of_the_custom_mask() -> None:
    defined = [0x0001, 0x0002, 0x00FF, 0x4000, *range(0x8000, 0x8008), *range(0x8009, 0x800C)]
    defined += [0xC000, 0xC001, 0xC002, 0xC004]

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            for number in (*defined, 0x0100, 0x01FF, 0x2000, 0xE1FF):
                await client.send(ORDERS, b"", message_class=number, connector_type=b"c" * 16)
                got = (await client.receive(queue)).messages.properties[0]
                assert got.message_class == number
            # An application makes no acknowledgement itself.
            for number in defined:
                with refused(INVALID, field="messages[0].properties.connector_type"):
                    await client.send(ORDERS, b"", message_class=number)
            for number in (0x0200, 0x0400, 0x0800, 0x1000, 0x1E00, 0xFFFF):
                with refused(INVALID, field="messages[0].properties.message_class"):
                    await client.send(ORDERS, b"", message_class=number, connector_type=b"c" * 16)

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-22")
def test_an_administration_queue_is_named_exactly_when_acknowledgements_are_asked_for() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            field = "messages[0].properties.administration_queue"
            for flags in range(16):
                await client.send(ORDERS, b"", acknowledgements=flags, administration_queue=PATH)
                reply = await client.receive(queue)
                begin, end = reply.messages.offsets[:2]
                sent = parse_user_message(reply.messages.packets[begin:end], 0, end - begin)[0]
                assert sent.properties.flags == flags
                assert (sent.user_header.admin_queue is not None) is bool(flags)
                if flags:
                    with refused(INVALID, field=field):
                        await client.send(ORDERS, b"", acknowledgements=flags)
                # Acknowledgements go to the same queue: what is left of them is taken.
                for _ in range(bool(flags & 1) + bool(flags & 2)):
                    await client.receive(queue)

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-03", "MQ-2.2.19.2-04")
@pytest.mark.parametrize(("path", "kind"), [(r".\orders", "PUBLIC="), (PATH, "PRIVATE=")])
def test_what_stays_here_names_this_queue_manager_unless_its_name_is_direct(
    path: str, kind: str
) -> None:
    """However it is sent: as attributes, or as a packet for several."""

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            by_guid = (await create(client, path)).format_name
            assert by_guid.startswith(kind)
            direct = f"DIRECT=OS:QUORATE{path[1:]}"
            queue = await client.open(direct)

            async def taken() -> bytes:
                reply = await client.receive(queue)
                begin, end = reply.messages.offsets[:2]
                packet = reply.messages.packets[begin:end]
                header = parse_user_message(packet, 0, len(packet))[0].user_header
                own = header.source_queue_manager
                assert header.queue_manager_address in (own, bytes(16))
                is_direct = isinstance(header.destination_queue, DirectQueueFormatName)
                assert (header.queue_manager_address == own) is not is_direct
                return packet

            for name in (by_guid, direct):
                await client.send(name, b"")
                packet = await taken()
            await create(client, r".\private$\other")
            targets = [by_guid, r"DIRECT=OS:QUORATE\private$\other"]
            copies = data_pb2.OutgoingMessage(targets=targets, packet=packet)
            await client.data.Send(data_pb2.SendRequest(request=client.next(), messages=[copies]))
            await taken()

    run(scenario())


def test_wrong_arguments_name_their_field() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            wrong: dict[str, tuple[Any, str]] = {
                "label": ("x" * 250, "messages[0].properties.label"),
                "priority": (8, "messages[0].properties.priority"),
                "correlation_id": (b"x", "messages[0].properties.correlation_id"),
                "acknowledgements": (0x10, "messages[0].properties.acknowledgements"),
                "tracing_queue": (b"x", "messages[0].properties.tracing_queue"),
                "message_class": (3, "messages[0].properties.connector_type"),
                "administration_queue": ("nonsense", "messages[0].properties.administration_queue"),
                "response_queue": ("nonsense", "messages[0].properties.response_queue"),
            }
            for name, (value, field) in wrong.items():
                with refused(INVALID, field=field):
                    await client.send(ORDERS, b"", **{name: value})
            with refused(INVALID, field="messages[0].properties.body"):
                await client.send(ORDERS, bytes((4 << 20) - 100))
            with refused(INVALID, field="messages[0].targets[0]"):
                await client.send("DIRECT=NONSENSE:x", b"")
            with refused(INVALID, field="messages"):
                await client.send(ORDERS)
            with refused(INVALID, field="transaction"):
                await client.send(ORDERS, b"", transaction=b"short")
            with refused(INVALID, field="messages[0].properties.privacy_level"):
                await client.send(ORDERS, b"", privacy_level=2)
            with refused(INVALID, field="messages[0].properties.authentication_level"):
                await client.send(ORDERS, b"", authentication_level=4)
            with refused(INVALID, field="queue"):
                await client.open("nonsense")
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_FOUND"):
                await client.open(r".\private$\missing")
            with refused(INVALID, field="client_id"):
                await client.data.OpenSession(data_pb2.OpenSessionRequest(client_id=""))
            with refused(INVALID, field="lease_ms"):
                await client.open_session(lease_ms=1)
            queue = await client.open(ORDERS)
            used = client.numbered(client.number)
            with refused(INVALID, field="request.number"):
                await client.receive(queue, request=client.numbered(0))
            with refused(INVALID, field="count"):
                await client.receive(queue, 5_000)
            client.confirmed_upto = 10_000
            with refused(INVALID, field="request.confirmed_upto"):
                await client.receive(queue)
            client.confirmed_upto = 0
            with refused(INVALID, field="request.number"):
                await client.receive(queue, request=used)
            stranger = Client.__new__(Client)
            stranger.__dict__ |= client.__dict__ | {"client_id": "never-opened"}
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "MQ_ERROR_STALE_HANDLE"):
                await stranger.receive(queue)

    run(scenario())


def test_cursors_and_waiting_reads_of_a_client_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handles, "CURSORS_PER_CLIENT_MAX", 2)
    monkeypatch.setattr(waits, "WAITING_READERS_PER_CLIENT_MAX", 1)

    async def scenario() -> None:
        async with (
            world() as made,
            made.client(await made.leader()) as client,
            made.client(await made.leader()) as other,
        ):
            await create(client)
            queue, others = await client.open(ORDERS), await other.open(ORDERS)

            def cursor(of: Client, opened: data_pb2.OpenQueueReply) -> Any:
                return of.data.CreateCursor(
                    data_pb2.CreateCursorRequest(client_id=of.client_id, handle=opened.handle)
                )

            first = await cursor(client, queue)
            await cursor(client, queue)
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
                await cursor(client, queue)
            await cursor(other, others)
            await client.data.CloseCursor(
                data_pb2.CloseCursorRequest(client_id=client.client_id, cursor=first.cursor)
            )
            await cursor(client, queue)
            waiting = asyncio.create_task(client.receive(queue, timeout_ms=60_000))
            leader = await made.leader()
            await until(lambda: leader.waiting_readers == 1)
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
                await client.receive(queue, timeout_ms=60_000)
            behind = asyncio.create_task(other.receive(others, timeout_ms=60_000))
            await until(lambda: leader.waiting_readers == 2)
            await other.send(ORDERS, b"a", b"b")
            assert [bodies(await each) for each in (waiting, behind)] == [[b"a"], [b"b"]]

    run(scenario())


def test_a_lease_lives_as_long_as_its_client_waits() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.open_session(lease_ms=3_000)
            queue = await client.open(ORDERS)
            waiting = asyncio.ensure_future(client.receive(queue, timeout_ms=7_000))
            reply = await waiting
            assert reply.status == ErrorCode.MQ_ERROR_IO_TIMEOUT
            await client.send(ORDERS, b"still there")
            assert bodies(await client.receive(queue)) == [b"still there"]

    run(scenario())


def test_one_principal_cannot_take_what_others_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "WAITING_READERS_PER_PRINCIPAL_MAX", 1)
    monkeypatch.setattr(administration, "QUEUES_PER_PRINCIPAL_MAX", 1)
    monkeypatch.setattr(clients, "CLIENTS_FEW_COUNT", 2)
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED

    async def scenario() -> None:
        async with world(is_secure=True) as made:
            leader = await made.leader()
            view = leader.node.cluster.view
            await until(lambda: view.counters().apply_version == APPLY_VERSION)
            async with (
                made.client(leader, "a1", name="alice", role=Role.CLIENT) as first,
                made.client(leader, "a2", name="alice", role=Role.CLIENT) as second,
                made.client(leader, "b1", name="bob", role=Role.CLIENT) as bob,
            ):
                await create(first)
                with refused(exhausted):
                    await create(second, PATH + "2")
                await create(bob, PATH + "3")
                mine, more = await first.open(ORDERS), await second.open(ORDERS)
                bobs = await bob.open(ORDERS.replace("orders", "orders3"))
                waiting = [asyncio.create_task(first.receive(mine, timeout_ms=60_000))]
                await until(lambda: leader.waiting_readers == 1)
                with refused(exhausted):
                    await second.receive(more, timeout_ms=60_000)
                waiting.append(asyncio.create_task(bob.receive(bobs, timeout_ms=60_000)))
                await until(lambda: leader.waiting_readers == 2)
                monkeypatch.setattr(clients, "CLIENTS_SHARED_MAX", 3)
                with refused(exhausted):
                    await Client(first.channel, "a3").open_session()
                await Client(bob.channel, "b2").open_session()
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
                counter = leader.metrics.counter("quorate_quota_refused_total")
                for quota in ("sessions", "queues", "waits"):
                    assert counter.labels(quota)._value.get() == 1, quota

    run(scenario())
