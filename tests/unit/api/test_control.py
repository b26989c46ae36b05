"""The control plane on one node."""

import asyncio
import secrets
from typing import Any

import grpc
import grpc.aio
import pytest

from qm.api.control import return_to_source
from qm.api.gate.identity import principal_sid
from qm.model.queries import binding_policy
from qm.model.values.limits import CLIENTS_MAX
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc, data_pb2
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_AUDIT,
    Ace,
    Acl,
    SecurityDescriptor,
    parse_descriptor,
    write_descriptor,
)
from qm.security.sid import ADMINISTRATORS, ANONYMOUS, EVERYONE
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.api.test_data import ORDERS, PATH, create
from tests.unit.api.world import Client, bodies, eventually, refused, world
from tests.unit.model.world import PEER, PEER_ADDRESS

INVALID = grpc.StatusCode.INVALID_ARGUMENT
ELSEWHERE = r"DIRECT=TCP:127.0.0.250\private$\far"


class Operator:
    """Stubs of every control service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.cluster: Any = control_pb2_grpc.ClusterControlStub(channel)
        self.queues: Any = control_pb2_grpc.QueueControlStub(channel)
        self.outgoing: Any = control_pb2_grpc.OutgoingControlStub(channel)
        self.peers: Any = control_pb2_grpc.PeerControlStub(channel)
        self.key: Any = control_pb2_grpc.KeyControlStub(channel)
        self.console: Any = control_pb2_grpc.ConsoleControlStub(channel)
        self.directory: Any = control_pb2_grpc.DirectoryControlStub(channel)
        self.certificate: Any = control_pb2_grpc.CertificateControlStub(channel)
        self.messages: Any = control_pb2_grpc.MessageControlStub(channel)
        self.clients: Any = control_pb2_grpc.ClientControlStub(channel)
        self.definitions: Any = control_pb2_grpc.DefinitionControlStub(channel)
        self.node: Any = control_pb2_grpc.NodeControlStub(channel)

    async def create(self, path: str, **values: pb.Value) -> pb.Queue:
        request = pb.CreateQueueRequest(path_name=path, attributes=values)
        queue: pb.Queue = await self.queues.CreateQueue(request)
        return queue


def number(value: int) -> pb.Value:
    return pb.Value(number=value)


def text(value: str) -> pb.Value:
    return pb.Value(text=value)


def flag(value: bool) -> pb.Value:
    return pb.Value(flag=value)


def test_queues_are_created_listed_changed_and_deleted() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            created = await operator.create(
                PATH, label=text("all orders"), journaling=flag(True), quota=number(100)
            )
            assert (created.path_name, created.label) == (r"QUORATE\private$\orders", "all orders")
            assert created.format_name.startswith("PRIVATE=")
            assert created.attributes["quota"].number == 100
            assert created.statistics.quota_bytes == 100 * 1024
            with refused(grpc.StatusCode.ALREADY_EXISTS, "MQ_ERROR_QUEUE_EXISTS"):
                await operator.create(PATH)
            again = pb.CreateQueueRequest(
                path_name=PATH, attributes={"quota": number(100)}, if_not_exists=True
            )
            assert (await operator.queues.CreateQueue(again)).queue_id == created.queue_id
            again.attributes["quota"].number = 7
            with refused(grpc.StatusCode.ALREADY_EXISTS, "MQ_ERROR_QUEUE_EXISTS"):
                await operator.queues.CreateQueue(again)

            name = pb.QueueName(name=PATH)
            change = pb.SetQueueRequest(queue=name, changes={"label": text("new")}, if_version=1)
            assert (await operator.queues.SetQueue(change)).version == 2
            with refused(grpc.StatusCode.ABORTED, "MQ_ERROR_PROPERTIES_CONFLICT"):
                await operator.queues.SetQueue(change)
            got = await operator.queues.GetQueue(pb.GetQueueRequest(queue=name))
            assert (got.label, got.version) == ("new", 2)

            deletion = pb.DeleteQueueRequest(queue=name)
            await operator.queues.DeleteQueue(deletion)
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_FOUND"):
                await operator.queues.DeleteQueue(deletion)

    run(scenario())


def test_lists_come_in_pages_of_what_matches() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            for k in range(7):
                await operator.create(rf".\private$\q{k}")
            await operator.create(r".\public", label=text("in the directory"))
            names: list[str] = []
            request = pb.ListQueuesRequest(page_size=3, pattern=r"*\Q?")
            while True:
                reply = await operator.queues.ListQueues(request)
                assert len(reply.queues) <= 3
                names += [queue.path_name for queue in reply.queues]
                if not reply.page_token:
                    break
                request.page_token = reply.page_token
            assert names == [rf"QUORATE\private$\q{k}" for k in range(7)]
            journals = await operator.queues.ListQueues(pb.ListQueuesRequest(kinds=[pb.JOURNAL]))
            assert len(journals.queues) == 8
            with refused(INVALID, field="page_token"):
                await operator.queues.ListQueues(pb.ListQueuesRequest(page_token="x"))
            with refused(INVALID, field="page_size"):
                await operator.queues.ListQueues(pb.ListQueuesRequest(page_size=5_000))

    run(scenario())


def test_wrong_queue_arguments_name_their_field() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            with refused(INVALID, field="path_name"):
                await operator.create("nonsense")
            with refused(INVALID, field="attributes[colour]"):
                await operator.create(PATH, colour=text("red"))
            with refused(INVALID, field="attributes[quota]"):
                await operator.create(PATH, quota=text("much"))
            with refused(INVALID, "MQ_ERROR_LABEL_TOO_LONG"):
                await operator.create(PATH, label=text("x" * 125))
            with refused(INVALID, field="queue"):
                await operator.queues.GetQueue(pb.GetQueueRequest())
            with refused(INVALID, field="queue.name"):
                await operator.queues.GetQueue(pb.GetQueueRequest(queue=pb.QueueName(name="?")))

    run(scenario())


def test_a_purge_says_how_many() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"a", b"b", b"c")
            purge = pb.PurgeQueueRequest(queue=pb.QueueName(name=PATH), dry_run=True)
            assert (await client.queues.PurgeQueue(purge)).message_count == 3
            purge.dry_run = False
            assert (await client.queues.PurgeQueue(purge)).message_count == 3
            assert (await client.queues.PurgeQueue(purge)).message_count == 0

    run(scenario())


def test_the_queue_manager_is_shown_without_its_secrets_and_changed() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            manager = await operator.queues.GetQueueManager(pb.GetQueueManagerRequest())
            assert manager.computer_name == "QUORATE"
            assert "sealed_private_keys" not in manager.attributes
            change = pb.SetQueueManagerRequest(changes={"queue_manager_quota": number(4_096)})
            await operator.queues.SetQueueManager(change)
            manager = await operator.queues.GetQueueManager(pb.GetQueueManagerRequest())
            assert manager.attributes["queue_manager_quota"].number == 4_096
            assert "queue_manager_quota" in manager.settable

    run(scenario())


def test_access_lists_are_words_and_keep_their_order() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            await operator.create(PATH)
            name = pb.QueueName(name=PATH)
            free = await operator.queues.GetAcl(pb.GetAclRequest(queue=name))
            assert [(ace.principal, "queue_generic_all" in ace.rights) for ace in free.entries] == [
                ("Everyone", True)
            ]
            wanted = [
                pb.Ace(type=pb.DENY, principal="Anonymous", rights=["write_message"]),
                pb.Ace(type=pb.ALLOW, principal="alice", rights=["receive_message"]),
                pb.Ace(type=pb.ALLOW, sid="S-1-1-0", mask=0x24),
            ]
            request = pb.SetAclRequest(queue=name, entries=wanted, owner="alice")
            await operator.queues.SetAcl(request)
            acl = await operator.queues.GetAcl(pb.GetAclRequest(queue=name))
            assert [(ace.type, ace.mask) for ace in acl.entries] == [
                (pb.DENY, 0x4),
                (pb.ALLOW, 0x3),
                (pb.ALLOW, 0x24),
            ]
            assert acl.owner_sid == acl.entries[1].sid
            assert acl.entries[2].principal == "Everyone"
            with refused(INVALID, field="entries"):
                await operator.queues.SetAcl(
                    pb.SetAclRequest(queue=name, entries=[wanted[1], wanted[0]])
                )
            bad = pb.Ace(type=pb.ALLOW, principal="bob", rights=["fly"])
            with refused(INVALID, field="entries[0].rights"):
                await operator.queues.SetAcl(pb.SetAclRequest(queue=name, entries=[bad]))

    run(scenario())


@pytest.mark.spec(
    "DM-3.1.7.1.33-01",
    "DM-3.1.7.1.3.1-02",
    "DM-3.1.7.1.3.1-03",
    "DM-3.1.7.1.3.1-05",
    "DM-3.1.7.1.3.1-09",
)
def test_a_new_queue_has_the_default_for_what_its_creator_does_not_say_of_access() -> None:
    async def scenario() -> None:
        async with (
            world(is_secure=True) as made,
            made.channel(await made.leader(), "alice") as channel,
        ):
            operator = Operator(channel)
            alice, bob = principal_sid("alice"), principal_sid("bob")

            def default_of(owner: bytes) -> Acl:
                return Acl(
                    (
                        Ace(ACE_ALLOWED, 0, 0x00020024, EVERYONE),
                        Ace(ACE_ALLOWED, 0, 0x4, ANONYMOUS),
                        Ace(ACE_ALLOWED, 0, 0x000F003F, owner),
                        Ace(ACE_ALLOWED, 0, 0x000F003F, ADMINISTRATORS),
                    )
                )

            default = default_of(alice)
            own = Acl((Ace(ACE_ALLOWED, 0, 0x000F003F, alice),))
            audit = Acl((Ace(ACE_AUDIT, 0, 0x1, bob),))
            for number, (given, expected) in enumerate(
                (
                    (None, SecurityDescriptor(owner=alice, dacl=default)),
                    (
                        SecurityDescriptor(sacl=audit),
                        SecurityDescriptor(owner=alice, dacl=default, sacl=audit),
                    ),
                    (SecurityDescriptor(dacl=own), SecurityDescriptor(owner=alice, dacl=own)),
                    (
                        SecurityDescriptor(owner=bob),
                        SecurityDescriptor(owner=bob, dacl=default_of(bob)),
                    ),
                    (
                        SecurityDescriptor(owner=bob, dacl=own, sacl=audit),
                        SecurityDescriptor(owner=bob, dacl=own, sacl=audit),
                    ),
                )
            ):
                path = rf".\private$\q{number}"
                security = b"" if given is None else write_descriptor(given)
                request = pb.CreateQueueRequest(path_name=path, security_descriptor=security)
                requests = [request]
                if given is not None:
                    attributes = {"security": pb.Value(data=security)}
                    again = pb.CreateQueueRequest(path_name=path + "a", attributes=attributes)
                    requests.append(again)
                for request in requests:
                    await operator.queues.CreateQueue(request)
                    asked = pb.GetAclRequest(queue=pb.QueueName(name=request.path_name))
                    kept = (await operator.queues.GetAcl(asked)).security_descriptor
                    assert parse_descriptor(kept) == expected
                    assert kept[3] & 0x80, "self-relative"
                    # Asked for again as it was, it is the same queue.
                    request.if_not_exists = True
                    await operator.queues.CreateQueue(request)

    run(scenario())


def test_definitions_go_round_and_say_what_they_would_do() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            await operator.create(PATH, journaling=flag(True))
            await operator.create(r".\private$\tx", transactional=flag(True))
            acl = [
                pb.Ace(type=pb.ALLOW, principal="Everyone", rights=["write_message"]),
                pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"]),
            ]
            await operator.queues.SetAcl(
                pb.SetAclRequest(queue=pb.QueueName(name=PATH), entries=acl)
            )
            document = (await operator.definitions.Export(pb.ExportRequest())).document
            same = await operator.definitions.Diff(pb.ImportRequest(document=document, prune=True))
            assert list(same.changes) == []

            edited = document.replace("journaling: true", "quota: 9") + (
                "- path_name: .\\private$\\fresh\n  attributes: {label: 'new'}\n"
            )
            request = pb.ImportRequest(document=edited, prune=True)
            kinds = pb.DefinitionChange
            diff = await operator.definitions.Diff(request)
            assert [(one.kind, one.path_name) for one in diff.changes] == [
                (kinds.CHANGE, r".\private$\orders"),
                (kinds.CREATE, r".\private$\fresh"),
            ]
            assert list((await operator.definitions.Import(request)).changes) == list(diff.changes)
            assert not (await operator.definitions.Import(request)).changes

            without = "version: 1\nqueues:\n- path_name: .\\private$\\orders\n"
            pruned = await operator.definitions.Import(
                pb.ImportRequest(document=without, prune=True)
            )
            assert {one.kind for one in pruned.changes} == {kinds.DELETE}
            await operator.create(r".\private$\tx")
            conflict = pb.ImportRequest(document=document)
            with refused(grpc.StatusCode.FAILED_PRECONDITION):
                await operator.definitions.Import(conflict)
            with refused(INVALID, field="document"):
                await operator.definitions.Import(pb.ImportRequest(document="version: 2"))
            with refused(INVALID, field="document"):
                await operator.definitions.Import(
                    pb.ImportRequest(document=without + "  attributes: {color: red}\n")
                )

    run(scenario())


def test_messages_are_browsed_with_their_reason_and_returned() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            await client.send(
                ORDERS, b"a", b"b", label="x", dead_letter=True, time_to_be_received_s=2
            )
            queue = await client.open(ORDERS)
            dead = pb.QueueName(name=r".\system$;DEADLETTER")
            letters = await client.open(dead.name, data_pb2.PEEK_ACCESS)
            waiting = data_pb2.Selector(
                kind=data_pb2.AFTER,
                lookup_identifier=(
                    await client.peek(letters, timeout_ms=20_000)
                ).messages.lookup_identifiers[0],
            )
            await client.peek(letters, selector=waiting, timeout_ms=20_000)
            view = data_pb2.PROPERTIES
            first = await operator.messages.Browse(
                pb.BrowseRequest(queue=dead, page_size=1, view=view)
            )
            (letter,) = first.messages
            assert letter.reason == "it was not received in time"
            assert letter.properties.body == b"a"
            second = await operator.messages.Browse(
                pb.BrowseRequest(
                    queue=dead,
                    page_token=first.page_token,
                    view=view,
                    reason_classes=[letter.reason_class],
                )
            )
            assert [one.properties.body for one in second.messages] == [b"b"]
            (other,) = second.messages
            assert other.entry_index >= letter.entry_index > 0
            chosen = pb.BrowseRequest(queue=dead, message_id=other.message_id)
            assert (await operator.messages.Browse(chosen)).messages == [
                await operator.messages.GetMessage(
                    pb.GetMessageRequest(queue=dead, lookup_identifier=other.lookup_identifier)
                )
            ]
            with refused(INVALID, field="message_id"):
                await operator.messages.Browse(pb.BrowseRequest(queue=dead, message_id=b"short"))
            with refused(INVALID, field="correlation_id"):
                await operator.messages.Browse(
                    pb.BrowseRequest(queue=dead, correlation_id=b"short")
                )
            chosen = pb.BrowseRequest(queue=dead, correlation_id=other.message_id)
            assert not (await operator.messages.Browse(chosen)).messages
            counts = await operator.messages.CountClasses(pb.CountClassesRequest(queue=dead))
            assert [(one.message_class, one.count) for one in counts.counts] == [(0xC002, 2)]

            back = pb.ReturnToSourceRequest(queue=dead, lookup_identifier=letter.lookup_identifier)
            reply = await operator.messages.ReturnToSource(back)
            assert reply.target == ORDERS
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_MESSAGE_NOT_FOUND"):
                await operator.messages.ReturnToSource(back)
            returned = await client.receive(queue)
            assert bodies(returned) == [b"a"]
            assert returned.messages.properties[0].label == "x"
            assert returned.messages.properties[0].message_id == reply.message_id
            get = pb.GetMessageRequest(
                queue=dead, lookup_identifier=second.messages[0].lookup_identifier
            )
            assert (await operator.messages.GetMessage(get)).packet
            get.lookup_identifier = letter.lookup_identifier
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_MESSAGE_NOT_FOUND"):
                await operator.messages.GetMessage(get)

    run(scenario())


def test_a_transactional_dead_letter_is_returned_in_one_step() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client, transactional=True)
            transaction = secrets.token_bytes(16)
            await client.data.BeginTransaction(
                data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
            )
            await client.send(
                ORDERS,
                b"tx",
                transaction=transaction,
                dead_letter=True,
                time_to_be_received_s=0,
            )
            await client.data.CommitTransaction(
                data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
            )
            dead = pb.QueueName(name=r".\system$;DEADXACT")
            (letter,) = (await operator.messages.Browse(pb.BrowseRequest(queue=dead))).messages
            await create(client, r".\private$\other", transactional=True)
            reply = await operator.messages.ReturnToSource(
                pb.ReturnToSourceRequest(
                    queue=dead,
                    lookup_identifier=letter.lookup_identifier,
                    target=r".\private$\other",
                )
            )
            assert reply.target.startswith("PRIVATE=")
            # Its time to be received is over still: it dies again, never twice at once.
            left = (await operator.messages.Browse(pb.BrowseRequest(queue=dead))).messages
            assert len(left) == 1
            assert left[0].message_id == reply.message_id

    run(scenario())


def test_a_message_of_an_application_moves_to_another_queue_once() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            await create(client, r".\private$\other")
            sent = (await client.send(ORDERS, b"a", b"b"))[0]
            request = pb.ReturnToSourceRequest(
                queue=pb.QueueName(name=ORDERS),
                lookup_identifier=sent.places[0].lookup_identifier,
            )
            with refused(grpc.StatusCode.INVALID_ARGUMENT):
                await operator.messages.ReturnToSource(request)
            request.target = r".\private$\other"
            reply = await operator.messages.ReturnToSource(request)
            assert reply.message_id != sent.message_id
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_MESSAGE_NOT_FOUND"):
                await operator.messages.ReturnToSource(request)
            assert bodies(await client.receive(await client.open(ORDERS))) == [b"b"]
            other = await client.open(r".\private$\other")
            assert bodies(await client.receive(other)) == [b"a"]

    run(scenario())


def test_a_message_in_a_subqueue_goes_back_as_it_is() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            sent = (await client.send(ORDERS, b"a"))[0]
            sub = await client.open(ORDERS + ";poison", data_pb2.MOVE_ACCESS)
            moved = await client.data.Move(
                data_pb2.MoveRequest(
                    request=client.next(),
                    source_queue_id=sent.places[0].queue_id,
                    lookup_identifier=sent.places[0].lookup_identifier,
                    target_queue_id=sub.queue_id,
                )
            )
            reply = await operator.messages.ReturnToSource(
                pb.ReturnToSourceRequest(
                    queue=pb.QueueName(queue_id=sub.queue_id),
                    lookup_identifier=moved.lookup_identifier,
                )
            )
            assert reply.message_id == sent.message_id
            queue = await client.open(ORDERS)
            assert bodies(await client.receive(queue)) == [b"a"]

    run(scenario())


def test_returned_messages_leave_room_for_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            await client.send(ORDERS, b"a", dead_letter=True, time_to_be_received_s=0)
            dead = pb.QueueName(name=r".\system$;DEADLETTER")
            (letter,) = (await operator.messages.Browse(pb.BrowseRequest(queue=dead))).messages
            back = pb.ReturnToSourceRequest(queue=dead, lookup_identifier=letter.lookup_identifier)
            monkeypatch.setattr(return_to_source, "CLIENTS_LEFT_MIN", CLIENTS_MAX - 1)
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
                await operator.messages.ReturnToSource(back)
            monkeypatch.undo()
            await operator.messages.ReturnToSource(back)

    run(scenario())


def test_a_copy_for_one_of_several_queues_is_returned_to_its_own() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            await create(client, r".\private$\other")
            names = [r".\private$\orders", r".\private$\other"]
            properties = data_pb2.Properties(body=b"x", dead_letter=True, time_to_be_received_s=0)
            message = data_pb2.OutgoingMessage(targets=names, properties=properties)
            await client.data.Send(data_pb2.SendRequest(request=client.next(), messages=[message]))
            dead = pb.QueueName(name=r".\system$;DEADLETTER")
            letters = (await operator.messages.Browse(pb.BrowseRequest(queue=dead))).messages
            assert len(letters) == 2
            for letter, name in zip(letters, names, strict=True):
                back = pb.ReturnToSourceRequest(
                    queue=dead, lookup_identifier=letter.lookup_identifier
                )
                returned = await operator.messages.ReturnToSource(back)
                assert returned.target == (await client.open(name)).format_name

    run(scenario())


def test_clients_and_their_transactions_are_seen_and_ended() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            await create(client)
            await client.open(ORDERS)
            transaction = secrets.token_bytes(16)
            await client.data.BeginTransaction(
                data_pb2.BeginTransactionRequest(
                    request=client.next(), transaction=transaction, is_two_phase=True
                )
            )
            end = data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
            resolve = pb.ResolveTransactionRequest(identifier=transaction, commit=True)
            with refused(grpc.StatusCode.FAILED_PRECONDITION):
                await operator.clients.ResolveTransaction(resolve)
            await create(client, r".\private$\tx", transactional=True)
            exact = ORDERS.replace("orders", "tx")
            await client.send(exact, b"one", transaction=transaction)
            asked = pb.ListOperationsRequest(identifier=transaction)
            (operation,) = (await operator.clients.ListOperations(asked)).operations
            assert (operation.number, operation.type) == (0, pb.ENQUEUE)
            assert operation.queue_id
            with refused(grpc.StatusCode.NOT_FOUND):
                await operator.clients.ListOperations(
                    pb.ListOperationsRequest(identifier=bytes(16))
                )
            await client.data.PrepareTransaction(end)
            listed = await operator.clients.ListTransactions(pb.ListTransactionsRequest())
            (found,) = listed.transactions
            assert (found.identifier, found.is_in_doubt) == (transaction, True)
            await operator.clients.ResolveTransaction(resolve)
            await operator.clients.ResolveTransaction(resolve)
            undecided = await operator.clients.ListTransactions(pb.ListTransactionsRequest())
            assert not undecided.transactions

            clients = (await operator.clients.ListClients(pb.ListClientsRequest())).clients
            (known,) = [one for one in clients if one.client_id == client.client_id]
            assert (known.is_open, known.principal) == (True, "loopback")
            opens = pb.ListOpensRequest(client_id=client.client_id)
            assert len((await operator.clients.ListOpens(opens)).opens) == 1
            closing = pb.CloseClientRequest(client_id=client.client_id)
            await operator.clients.CloseClient(closing)
            await operator.clients.CloseClient(closing)
            assert not (await operator.clients.ListOpens(opens)).opens

    run(scenario())


@pytest.mark.spec("DM-3.1.4.3-02")
@pytest.mark.parametrize(
    ("asked", "is_single_phase"), [({}, True), ({"is_two_phase": True}, False)]
)
def test_a_transaction_has_one_phase_if_nothing_is_said(
    asked: dict[str, Any], is_single_phase: bool
) -> None:
    """DM-A25: SinglePhase is stored when the transaction begins."""

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            transaction = secrets.token_bytes(16)
            begin = data_pb2.BeginTransactionRequest(
                request=client.next(), transaction=transaction, **asked
            )
            await client.data.BeginTransaction(begin)
            listed = await operator.clients.ListTransactions(pb.ListTransactionsRequest())
            (found,) = listed.transactions
            assert (found.identifier, found.is_single_phase) == (transaction, is_single_phase)
            prepare = data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
            if is_single_phase:
                wrong = grpc.StatusCode.FAILED_PRECONDITION
                with refused(wrong, "MQ_ERROR_TRANSACTION_SEQUENCE"):
                    await client.data.PrepareTransaction(prepare)
            else:
                await client.data.PrepareTransaction(prepare)

    run(scenario())


@pytest.mark.spec("DM-3.1.7.1.5-14", "DM-3.1.4.14-01", "DM-3.1.7.2.3-01")
def test_outgoing_queues_are_seen_paused_and_resumed() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            operator = Operator(client.channel)
            get = pb.GetOutgoingRequest(queue=pb.QueueName(name=ELSEWHERE))
            await client.open(ELSEWHERE, data_pb2.SEND_ACCESS)
            fresh = await operator.outgoing.GetOutgoing(get)
            assert (fresh.state, list(fresh.next_hops)) == (pb.INACTIVE, [])
            (sent,) = await client.send(ELSEWHERE, b"far away")
            assert sent.places[0].queue_id

            async def look() -> pb.OutgoingQueue:
                listed = await operator.outgoing.ListOutgoing(pb.ListOutgoingRequest())
                (one,) = listed.queues
                return one  # type: ignore[no-any-return]

            tried = await eventually(look, lambda one: one.connection_history)
            assert (tried.message_count, list(tried.next_hops)) == (1, ["IP=127.0.0.250"])
            assert (await operator.outgoing.Pause(get)).state == pb.ON_HOLD
            assert (await operator.outgoing.Resume(get)).state != pb.ON_HOLD
            await operator.outgoing.Resend(get)
            browsed = await operator.messages.Browse(pb.BrowseRequest(queue=get.queue))
            (message,) = browsed.messages
            with refused(grpc.StatusCode.INVALID_ARGUMENT):
                await operator.messages.ReturnToSource(
                    pb.ReturnToSourceRequest(
                        queue=get.queue,
                        lookup_identifier=message.lookup_identifier,
                        target=PATH,
                    )
                )
            await create(client)
            get.queue.name = PATH
            with refused(grpc.StatusCode.NOT_FOUND, "MQ_ERROR_QUEUE_NOT_FOUND"):
                await operator.outgoing.GetOutgoing(get)

    run(scenario())


def test_a_node_tells_its_state_events_and_takes_orders() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.channel(leader) as channel:
                operator = Operator(channel)
                status = await operator.cluster.GetStatus(pb.GetStatusRequest())
                assert (status.node, status.leader, len(status.members)) == ("n1", "n1", 1)
                assert status.computer_name == "QUORATE"
                stop = await operator.cluster.CanStop(pb.CanStopRequest())
                assert not stop.can_stop
                await operator.cluster.StartScrub(pb.ScrubRequest())
                (scrub,) = (await operator.cluster.GetScrub(pb.ScrubRequest(node="n1"))).nodes
                assert scrub.is_reachable
                assert scrub.live_bytes > 0
                assert (scrub.damage_found, scrub.damage_left) == (0, 0)
                await operator.cluster.Drain(pb.DrainRequest())
                assert (await operator.cluster.GetStatus(pb.GetStatusRequest())).is_draining
                await operator.cluster.Undrain(pb.DrainRequest(node="n1"))
                assert not (await operator.cluster.GetStatus(pb.GetStatusRequest())).is_draining
                with refused(INVALID, field="name"):
                    await operator.cluster.Drain(pb.DrainRequest(node="n9"))
                mark = await operator.cluster.MarkAudit(pb.MarkAuditRequest())
                assert mark.number
                level = pb.SetLogLevelRequest(level="debug", logger="qm.api")
                await operator.node.SetLogLevel(level)
                level.level = "info"
                assert (await operator.node.SetLogLevel(level)).previous_level == "debug"
                level.level = "loud"
                with refused(INVALID, field="level"):
                    await operator.node.SetLogLevel(level)
                backup = operator.node.CreateBackup(pb.CreateBackupRequest())
                chunks = [chunk async for chunk in backup]
                assert sum(len(chunk.data) for chunk in chunks) == chunks[0].total_bytes
                assert chunks[0].head.index

                events = [
                    event
                    async for event in operator.node.StreamEvents(
                        pb.StreamEventsRequest(kinds=["control"])
                    )
                ]
                told = [(one.name, one.principal, one.details["code"]) for one in events]
                assert ("Drain", "loopback", "OK") in told
                assert ("Drain", "loopback", "INVALID_ARGUMENT") in told
                assert told[-1] == ("CreateBackup", "loopback", "OK")
                following = operator.node.StreamEvents(
                    pb.StreamEventsRequest(after=events[-1].number, follow=True)
                )
                reading = asyncio.ensure_future(following.read())
                await operator.cluster.MarkAudit(pb.MarkAuditRequest())
                assert (await reading).name == "MarkAudit"
                following.cancel()

    run(scenario())


def test_quotas_refuse_with_their_code() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client, quota=1)
            (refusal,) = await client.send(ORDERS, bytes(5_000))
            assert refusal.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES

    run(scenario())


def test_before_there_is_a_queue_manager_calls_say_so() -> None:
    async def scenario() -> None:
        async with (
            world(is_provisioned=False) as made,
            made.channel(await made.leader()) as channel,
        ):
            operator = Operator(channel)
            early = (grpc.StatusCode.UNAVAILABLE, "MQ_ERROR_SERVICE_NOT_AVAILABLE")
            status = await operator.cluster.GetStatus(pb.GetStatusRequest())
            assert (status.leader, status.computer_name) == ("n1", "")
            with refused(*early):
                await operator.create(PATH)
            with refused(*early):
                await operator.queues.GetQueueManager(pb.GetQueueManagerRequest())
            with refused(*early):
                await operator.definitions.Export(pb.ExportRequest())
            client = Client(channel, "early")
            with refused(*early):
                await client.open_session()
            with refused(*early):
                await client.send(ORDERS, b"x")
            with refused(grpc.StatusCode.NOT_FOUND):
                await operator.messages.Browse(
                    pb.BrowseRequest(queue=pb.QueueName(name=r".\system$;DEADLETTER"))
                )

    run(scenario())


def test_the_queue_managers_list_cannot_lock_everybody_out() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            alone = pb.SetAclRequest(entries=[pb.Ace(principal="alice", rights=["create_queue"])])
            with refused(INVALID, field="entries"):
                await operator.queues.SetAcl(alone)
            every = pb.Ace(principal="Administrators", rights=["machine_generic_all"])
            alone.entries.append(every)
            first = await operator.queues.SetAcl(alone)
            again = await operator.queues.SetAcl(pb.SetAclRequest(entries=[every]))
            assert again.version > first.version

    run(scenario())


def test_the_sequences_of_a_peer_come_in_pages() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            node = (await made.leader()).node
            await create_queue(node, "exact", transactional=True)
            names = ["exact", "Exact", "eXact", "exAct", "EXACT"]
            for number, name in enumerate(names, 1):
                await propose(node, batch(name, [number], number, sequence=(number, 1, 0)))
            peers, token = Operator(channel).peers, ""
            pages: list[list[str]] = []
            while token or not pages:
                request = pb.GetPeerRequest(queue_manager=PEER, page_size=2, page_token=token)
                reply = await peers.GetPeer(request)
                assert reply.peer.streams == len(names)
                pages.append([one.format_name.rpartition("\\")[2] for one in reply.sequences])
                token = reply.page_token
            assert [len(page) for page in pages] == [2, 2, 1]
            assert [name for page in pages for name in page] == sorted(names)
            whole = await peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER))
            assert (len(whole.sequences), whole.page_token) == (5, "")
            for wrong in ({"page_token": "x"}, {"page_size": 1_001}):
                with refused(INVALID, field=next(iter(wrong))):
                    await peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER, **wrong))

    run(scenario())


def test_peers_are_listed_shown_and_forgotten() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            node = (await made.leader()).node
            await create_queue(node, "plain")

            async def policy() -> object:
                await node.cluster.read_barrier()
                return binding_policy(node.cluster.view)

            await eventually(policy, bool)
            await propose(node, batch("plain", [1, 2]))
            peers = Operator(channel).peers
            (found,) = (await peers.ListPeers(pb.ListPeersRequest(address=PEER_ADDRESS))).peers
            assert (found.queue_manager, found.address) == (PEER, PEER_ADDRESS)
            assert (found.streams, found.history_rows) == (1, 1)
            assert not (await peers.ListPeers(pb.ListPeersRequest(address="10.0.0.66"))).peers
            shown = await peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER))
            assert shown.peer == found
            assert (len(shown.sequences), shown.page_token) == (0, "")
            only_address = pb.ForgetPeerRequest(queue_manager=PEER, address_only=True)
            await peers.ForgetPeer(only_address)
            shown = await peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER))
            assert (shown.peer.address, shown.peer.history_rows) == ("", 1)
            await peers.ForgetPeer(pb.ForgetPeerRequest(queue_manager=PEER))
            with refused(grpc.StatusCode.NOT_FOUND):
                await peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER))
            with refused(INVALID, field="queue_manager"):
                await peers.ForgetPeer(pb.ForgetPeerRequest(queue_manager=b"short"))

    run(scenario())


def test_the_queue_manager_s_keys_are_shown_and_replaced() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            keys = Operator(channel).key

            async def published() -> pb.ManagerKeys:
                found: pb.ManagerKeys = await keys.GetKeys(pb.GetKeysRequest())
                return found

            def has_signing_keys(found: pb.ManagerKeys) -> bool:
                return any(one.is_for_signatures for one in found.keys)

            before = await eventually(published, has_signing_keys)
            assert (before.generation, len(before.keys), list(before.accepted)) == (1, 6, [])
            after = await keys.ReplaceKeys(pb.ReplaceKeysRequest(accepted_s=3_600))
            assert after.generation == 2
            assert [one.generation for one in after.accepted] == [1]
            assert not {one.blob for one in before.keys} & {one.blob for one in after.keys}
            assert await keys.GetKeys(pb.GetKeysRequest()) == after
            with refused(INVALID, field="accepted_s"):
                await keys.ReplaceKeys(pb.ReplaceKeysRequest(accepted_s=367 * 24 * 3_600))

    run(scenario())


@pytest.mark.spec("DM-3.1.7.1.18-04")
def test_objects_of_the_directory_are_written_listed_and_deleted() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            directory = operator.directory
            site = {"name": text("North"), "inter_site_replication_interval": number(30)}
            put = pb.PutObjectRequest(object_class="site", attributes=site)
            identifier = (await directory.PutObject(put)).identifier
            sites = await directory.ListObjects(pb.ListObjectsRequest(object_class="site"))
            assert [one.identifier for one in sites.objects] == [identifier]
            assert (len(identifier), identifier == bytes(16)) == (16, False)
            other = pb.PutObjectRequest(object_class="site", identifier=b"o" * 16)
            other.attributes["name"].text = "NORTH"
            with refused(grpc.StatusCode.FAILED_PRECONDITION):
                await directory.PutObject(other)
            # One that is told which GUID to have, has it, now and when it is written again.
            other.attributes["name"].text = "South"
            for interval in (7, 8):
                other.attributes["inter_site_replication_interval"].number = interval
                assert (await directory.PutObject(other)).identifier == b"o" * 16
            wrong = pb.PutObjectRequest(object_class="enterprise")
            wrong.attributes["security"].data = b"none"
            with refused(INVALID, "MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR"):
                await directory.PutObject(wrong)
            await directory.DeleteObject(
                pb.DeleteObjectRequest(object_class="site", identifier=b"o" * 16)
            )
            with refused(INVALID, field="object_class"):
                await directory.PutObject(pb.PutObjectRequest(object_class="queue"))
            with refused(INVALID, field="attributes[colour]"):
                red = {"colour": text("red")}
                await directory.PutObject(pb.PutObjectRequest(object_class="site", attributes=red))

            async def names(*filters: pb.DirectoryFilter) -> list[str]:
                asked = pb.ListObjectsRequest(object_class="site", filters=filters)
                found = (await directory.ListObjects(asked)).objects
                return [one.attributes["name"].text for one in found]

            def filter_of(operator: str, interval: int) -> pb.DirectoryFilter:
                name = "inter_site_replication_interval"
                return pb.DirectoryFilter(attribute=name, operator=operator, value=number(interval))

            assert await names() == await names(filter_of("", 30)) == ["North"]
            assert await names(filter_of(">", 30)) == await names(filter_of("!=", 30)) == []
            with refused(INVALID, field="filters"):
                await names(filter_of("~", 30))
            await operator.create(".\\orders")
            queues = await directory.ListObjects(pb.ListObjectsRequest(object_class="queue"))
            (queue,) = queues.objects
            assert queue.attributes["pathname"].text.endswith("\\orders")
            delete = pb.DeleteObjectRequest(object_class="site", identifier=identifier)
            await directory.DeleteObject(delete)
            assert await names() == []
            with refused(grpc.StatusCode.NOT_FOUND):
                await directory.DeleteObject(
                    pb.DeleteObjectRequest(object_class="site", identifier=b"?" * 16)
                )

    run(scenario())


def test_the_path_of_a_queue_is_found_by_its_format_name() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            directory = Operator(channel).directory
            asked = pb.GetQueuePathRequest(format_name="DIRECT=OS:far\\private$\\q")
            found = await directory.GetQueuePath(asked)
            assert (found.path_name, found.machine_name) == ("far\\PRIVATE$\\q", "far")
            with refused(INVALID):
                await directory.GetQueuePath(pb.GetQueuePathRequest(format_name="nonsense"))

    run(scenario())
