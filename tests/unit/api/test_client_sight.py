"""What a caller of the role client sees follows access lists: properties and messages."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Access, Client
from qm.client.errors import AccessDenied, MqError, NotAllowed
from qm.client.message import Message
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario

SIGHTS = {"peek_message": {"messages"}, "get_queue_properties": {"properties"}}
DEAD_LETTER_KIND = [pb.DEAD_LETTER]


def client_of(made: Clients, name: str, role: Role) -> Client:
    certificate, key = issue(made.tls.authority.parent, name, role, [])
    tls = Tls(made.tls.authority, certificate, key)
    return Client(made.ordered(), tls=tls, client_id=name)


async def put_acl(made: Clients, queue: pb.QueueName, rights: list[str]) -> None:
    entries = [pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"])]
    if rights:
        entries.append(pb.Ace(type=pb.ALLOW, principal="carol", rights=rights))
    async with made.client() as admin:
        request = pb.SetAclRequest(queue=queue, entries=entries)
        await admin.wire.call(lambda stubs: stubs.queues.SetAcl, request)


async def is_shown(work: Awaitable[Any]) -> bool:
    try:
        await work
    except AccessDenied:
        return False
    return True


async def sight(client: Client, queue: pb.QueueName) -> set[str]:
    """Ask for everything; what belongs together is refused or answered together."""
    call = client.wire.call
    browsed = {
        await is_shown(call(lambda s: s.messages.Browse, pb.BrowseRequest(queue=queue))),
        await is_shown(
            call(lambda s: s.messages.CountClasses, pb.CountClassesRequest(queue=queue))
        ),
    }
    get = pb.GetMessageRequest(queue=queue, lookup_identifier=1)
    try:
        browsed.add(await is_shown(call(lambda s: s.messages.GetMessage, get)))
    except MqError as error:
        assert "LOOKUP" in str(error).upper() or "MESSAGE_NOT_FOUND" in str(error)
        browsed.add(True)
    described = {await is_shown(call(lambda s: s.queues.GetQueue, pb.GetQueueRequest(queue=queue)))}
    listed = await call(lambda s: s.queues.ListQueues, pb.ListQueuesRequest())
    described.add(any(one.path_name == queue.name for one in listed.queues))
    assert len(browsed) == len(described) == 1
    found = {"messages": browsed.pop(), "properties": described.pop()}
    return {name for name, is_seen in found.items() if is_seen}


@scenario()
async def test_a_client_sees_what_the_access_list_of_the_queue_shows(made: Clients) -> None:
    queue = pb.QueueName(name=PLAIN)
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        await admin.send(PLAIN, Message(body=b"x", label="order 1"))
        for rights in (
            [],
            ["peek_message"],
            ["get_queue_properties"],
            [*SIGHTS],
            ["write_message"],
        ):
            await put_acl(made, queue, rights)
            expected = set.union(set(), *[SIGHTS.get(right, set()) for right in rights])
            assert await sight(carol, queue) == expected, rights
            assert await sight(admin, queue) == {"messages", "properties"}


@scenario()
async def test_rights_of_a_group_count_as_for_everything_else(made: Clients) -> None:
    """Its SIDs come with a certificate's role: authenticated users are one."""
    queue = pb.QueueName(name=PLAIN)
    entries = [pb.Ace(type=pb.ALLOW, principal="Everyone", rights=["peek_message"])]
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        request = pb.SetAclRequest(queue=queue, entries=entries)
        await admin.wire.call(lambda stubs: stubs.queues.SetAcl, request)
        assert await sight(carol, queue) == {"messages"}


@scenario()
async def test_a_client_sees_no_readers_no_purged_messages_and_no_dead_letters(
    made: Clients,
) -> None:
    queue = pb.QueueName(name=TRANSACTIONAL)
    await put_acl(made, queue, ["peek_message"])
    oscar, carol = client_of(made, "oscar", Role.OPERATOR), client_of(made, "carol", Role.CLIENT)
    async with made.client() as admin, oscar, carol:
        async with admin.transaction() as sending:
            await sending.send(TRANSACTIONAL, Message(body=b"x", label="order 1"))
        async with admin.transaction() as transaction:
            opened = await admin.open_queue(TRANSACTIONAL)
            assert await transaction.receive(opened, 0) is not None
            owners, browse = [], pb.BrowseRequest(queue=queue, view=data_pb2.PROPERTIES)
            for client in (oscar, carol):
                reply = await client.wire.call(lambda s: s.messages.Browse, browse)
                (found,) = reply.messages
                assert found.properties.label == "order 1"
                owners.append(found.lock_owner)
            assert owners[0].startswith("transaction")
            assert not owners[1]
        with_hidden = pb.BrowseRequest(queue=queue, with_hidden=True)
        await oscar.wire.call(lambda s: s.messages.Browse, with_hidden)
        listed = await oscar.wire.call(
            lambda s: s.queues.ListQueues, pb.ListQueuesRequest(kinds=DEAD_LETTER_KIND)
        )
        dead = pb.BrowseRequest(queue=pb.QueueName(queue_id=listed.queues[0].queue_id))
        await oscar.wire.call(lambda s: s.messages.Browse, dead)
        for request, refusal in ((with_hidden, NotAllowed), (dead, AccessDenied)):
            try:
                await carol.wire.call(lambda s: s.messages.Browse, request)
            except refusal:
                continue
            raise AssertionError(request)


async def refused(work: Awaitable[Any]) -> bool:
    """Whether something is refused for want of a right."""
    return not await is_shown(work)


@scenario()
async def test_no_other_call_tells_what_the_access_list_hides(made: Clients) -> None:
    queue = pb.QueueName(name=PLAIN)
    count = pb.PurgeQueueRequest(queue=queue, dry_run=True)
    create = pb.CreateQueueRequest(path_name=PLAIN, if_not_exists=True)
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        call = carol.wire.call
        await admin.send(PLAIN, Message(body=b"x"))
        for rights, sees, counts in (
            ([], False, False),
            (["peek_message"], False, False),
            (["receive_message"], False, True),
            (["get_queue_properties"], True, True),
        ):
            await put_acl(made, queue, rights)
            assert await refused(call(lambda s: s.queues.PurgeQueue, count)) != counts, rights
            assert await refused(call(lambda s: s.queues.CreateQueue, create)) != sees, rights
            for client in (admin, carol):
                if client is admin or counts:
                    reply = await client.wire.call(lambda s: s.queues.PurgeQueue, count)
                    assert reply.message_count == 1


@scenario()
async def test_the_access_list_itself_is_shown_to_who_may_read_it(made: Clients) -> None:
    queue = pb.QueueName(name=PLAIN)
    get = pb.GetQueueRequest(queue=queue)
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        for rights in (["get_queue_properties"], ["get_queue_properties", "get_queue_permissions"]):
            await put_acl(made, queue, rights)
            for client in (admin, carol):
                shown = await client.wire.call(lambda s: s.queues.GetQueue, get)
                is_shown_to = client is admin or len(rights) == 2
                assert ("security" in shown.attributes) == is_shown_to
                assert "label" in shown.attributes
        await put_manager_acl(admin, [])
        for client in (admin, carol):
            manager = await client.wire.call(
                lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
            )
            assert ("security" in manager.attributes) == (client is admin)


async def put_manager_acl(admin: Client, rights: list[str]) -> None:
    entries = [pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["machine_generic_all"])]
    if rights:
        entries.append(pb.Ace(type=pb.ALLOW, principal="Everyone", rights=rights))
    await admin.wire.call(lambda s: s.queues.SetAcl, pb.SetAclRequest(entries=entries))


@scenario()
async def test_queues_without_a_list_of_their_own_follow_that_of_the_queue_manager(
    made: Clients,
) -> None:
    """Names of outgoing queues tell with whom others exchange messages."""
    kinds = [pb.OUTGOING, pb.DEAD_LETTER, pb.SYSTEM_JOURNAL, pb.ORDER, pb.NOTIFICATION]
    wanted = pb.ListQueuesRequest(kinds=kinds, order=pb.BY_NAME)
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        await admin.send("DIRECT=TCP:127.9.9.9\\private$\\elsewhere", Message(body=b"x"))
        for rights, sees in (([], False), (["get_machine_properties"], True)):
            await put_manager_acl(admin, rights)
            every = await admin.wire.call(lambda s: s.queues.ListQueues, wanted)
            assert {one.kind for one in every.queues} == set(kinds)
            found = await carol.wire.call(lambda s: s.queues.ListQueues, wanted)
            assert found.total_count == len(found.queues) == (len(every.queues) if sees else 0)
            for one in every.queues:
                get = pb.GetQueueRequest(queue=pb.QueueName(queue_id=one.queue_id))
                assert await refused(carol.wire.call(lambda s: s.queues.GetQueue, get)) != sees


@scenario()
async def test_a_subqueue_is_purged_by_who_may_receive_from_its_queue(made: Clients) -> None:
    """It has no access list of its own."""
    async with made.client() as admin, client_of(made, "carol", Role.CLIENT) as carol:
        await admin.send(PLAIN, Message(body=b"x"))
        source = await admin.open_queue(PLAIN)
        message = await source.peek()
        assert message is not None
        await source.move(message, await admin.open_queue(f"{PLAIN};sub", Access.MOVE))
        listed = await admin.wire.call(
            lambda s: s.queues.ListQueues, pb.ListQueuesRequest(kinds=[pb.SUBQUEUE])
        )
        sub = pb.QueueName(queue_id=listed.queues[0].queue_id)
        call = carol.wire.call
        for rights, may in (
            ([], False),
            (["get_queue_properties", "delete_queue"], False),
            (["receive_message"], True),
        ):
            await put_acl(made, pb.QueueName(name=PLAIN), rights)
            purge = pb.PurgeQueueRequest(queue=sub)
            count = pb.PurgeQueueRequest(queue=sub, dry_run=True)
            assert await refused(call(lambda s: s.queues.PurgeQueue, count)) == (not rights)
            assert await refused(call(lambda s: s.queues.PurgeQueue, purge)) != may, rights
            left = await admin.wire.call(lambda s: s.queues.PurgeQueue, count)
            assert left.message_count == (0 if may else 1)
