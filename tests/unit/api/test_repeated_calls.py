"""A control call that is repeated under its name, at another node, is done once: all of them.

Between a call and its repeat another caller undoes it, where possible: it stays undone.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

import pytest
from google.protobuf.message import Message

from qm.api.gate.calls import CALL_ID_KEY
from qm.api.gate.roles import RULES
from qm.client.signing import new_signer
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from tests.cluster.harness import Harness, run
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.api.test_control import ELSEWHERE, Operator, text
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import Client, bodies, eventually, world
from tests.unit.model.world import PEER

DEAD = pb.QueueName(name=r".\system$;DEADLETTER")
DEAD_TRANSACTIONAL = pb.QueueName(name=r".\system$;DEADXACT")
ALL_FOR_ADMINISTRATORS = pb.Ace(principal="Administrators", rights=["machine_generic_all"])
SUBQUEUE = ORDERS + ";poison"


class Both:
    """One operator who is answered by two nodes in turn."""

    def __init__(self, harness: Harness, client: Client, there: Operator) -> None:
        self.harness = harness
        self.client = client
        self.here = Operator(client.channel)
        self.there = there
        self.asked: set[str] = set()

    async def twice(
        self,
        method: str,
        request: Message,
        meanwhile: Callable[[], Awaitable[Any]] | None = None,
    ) -> tuple[Any, Any]:
        """Make a call here, something else, and the same call there; return both replies."""
        service, name = method.split("/")
        self.asked.add(method)
        named = ((CALL_ID_KEY, uuid4().hex),)
        first = await getattr(getattr(self.here, service), name)(request, metadata=named)
        if meanwhile is not None:
            await meanwhile()
        again = await getattr(getattr(self.there, service), name)(request, metadata=named)
        return first, again

    async def label(self, queue: pb.QueueName) -> str:
        found = await self.here.queues.GetQueue(pb.GetQueueRequest(queue=queue))
        return str(found.label)

    async def content(self) -> list[bytes]:
        """Take what is in ORDERS."""
        queue = await self.client.open(ORDERS)
        return bodies(await self.client.receive(queue, 10))


Case = Callable[[Both], Awaitable[None]]


def labelled(name: pb.QueueName, label: str) -> pb.SetQueueRequest:
    return pb.SetQueueRequest(queue=name, changes={"label": text(label)})


async def creating(both: Both) -> None:
    request = pb.CreateQueueRequest(path_name=r".\private$\made")
    first, again = await both.twice("queues/CreateQueue", request)
    assert first == again
    assert first.identifier


async def deleting(both: Both) -> None:
    path = r".\private$\made"
    request = pb.DeleteQueueRequest(queue=pb.QueueName(name=path))
    await both.twice("queues/DeleteQueue", request)
    await both.here.create(path)
    await both.twice("queues/DeleteQueue", request, lambda: both.there.create(path))
    assert (await both.here.queues.GetQueue(pb.GetQueueRequest(queue=request.queue))).queue_id


async def setting(both: Both) -> None:
    name = pb.QueueName(name=ORDERS)
    first, again = await both.twice(
        "queues/SetQueue",
        labelled(name, "mine"),
        lambda: both.there.queues.SetQueue(labelled(name, "theirs")),
    )
    assert first.version == again.version
    assert await both.label(name) == "theirs"


async def setting_of_a_queue_that_is_gone(both: Both) -> None:
    path = r".\private$\brief"
    await both.here.create(path)
    name = pb.QueueName(name=path)
    request = labelled(name, "mine")
    request.if_version = 1
    first, again = await both.twice(
        "queues/SetQueue",
        request,
        lambda: both.there.queues.DeleteQueue(pb.DeleteQueueRequest(queue=name)),
    )
    assert first.version == again.version == 2


async def setting_the_manager(both: Both) -> None:
    def wanted(retention_ms: int) -> pb.SetQueueManagerRequest:
        value = pb.Value(number=retention_ms)
        return pb.SetQueueManagerRequest(changes={"result_retention_ms": value})

    await both.twice(
        "queues/SetQueueManager",
        wanted(60_000),
        lambda: both.there.queues.SetQueueManager(wanted(70_000)),
    )
    found = await both.here.queues.GetQueueManager(pb.GetQueueManagerRequest())
    assert found.attributes["result_retention_ms"].number == 70_000


async def setting_an_access_list(both: Both) -> None:
    await both.here.create(r".\private$\listed")
    for queue in (pb.QueueName(name=r".\private$\listed"), None):
        rights = "write_message" if queue is not None else "get_machine_properties"

        def wanted(queue: pb.QueueName | None, rights: str, *names: str) -> pb.SetAclRequest:
            entries = [pb.Ace(principal=name, rights=[rights]) for name in names]
            if queue is None:
                entries.append(ALL_FOR_ADMINISTRATORS)
            return pb.SetAclRequest(queue=queue, entries=entries)

        theirs = wanted(queue, rights, "bob", "carol")
        first, again = await both.twice(
            "queues/SetAcl",
            wanted(queue, rights, "alice"),
            lambda theirs=theirs: both.there.queues.SetAcl(theirs),  # type: ignore[misc]
        )
        assert first.version == again.version
        found = await both.here.queues.GetAcl(pb.GetAclRequest(queue=queue))
        assert len(found.entries) == len(theirs.entries)


async def purging(both: Both) -> None:
    await both.client.send(ORDERS, b"a", b"b")
    request = pb.PurgeQueueRequest(queue=pb.QueueName(name=ORDERS))
    first, again = await both.twice(
        "queues/PurgeQueue", request, lambda: both.client.send(ORDERS, b"c")
    )
    assert first.message_count == again.message_count == 2
    assert await both.content() == [b"c"]


async def holding_an_outgoing_queue(both: Both) -> None:
    await both.client.send(ELSEWHERE, b"far away")
    request = pb.GetOutgoingRequest(queue=pb.QueueName(name=ELSEWHERE))
    pause, resume = both.there.outgoing.Pause, both.there.outgoing.Resume
    await both.twice("outgoing/Pause", request, lambda: resume(request))
    assert (await both.here.outgoing.GetOutgoing(request)).state != pb.ON_HOLD
    await both.twice("outgoing/Resume", request, lambda: pause(request))
    assert (await both.here.outgoing.GetOutgoing(request)).state == pb.ON_HOLD
    await both.twice("outgoing/Resend", request)  # every message keeps its number


async def letter(both: Both, queue: pb.QueueName) -> pb.ReturnToSourceRequest:
    async def look() -> pb.BrowseReply:
        reply: pb.BrowseReply = await both.here.messages.Browse(pb.BrowseRequest(queue=queue))
        return reply

    found = await eventually(look, lambda reply: reply.messages)
    return pb.ReturnToSourceRequest(
        queue=queue, lookup_identifier=found.messages[0].lookup_identifier, target=ORDERS
    )


async def returning(both: Both) -> None:
    await both.client.send(ORDERS, b"late", dead_letter=True, time_to_be_received_s=0)
    request = await letter(both, DEAD)
    first, again = await both.twice("messages/ReturnToSource", request)
    assert first.message_id == again.message_id
    # Its time is over still: it is a dead letter again, once.
    left = await both.here.messages.Browse(pb.BrowseRequest(queue=DEAD))
    assert [one.message_id for one in left.messages] == [first.message_id]


async def returning_a_transactional_message(both: Both) -> None:
    path = r".\private$\orderly"
    await create(both.client, path, transactional=True)
    transaction = secrets.token_bytes(16)
    begin = data_pb2.BeginTransactionRequest(request=both.client.next(), transaction=transaction)
    await both.client.data.BeginTransaction(begin)
    more = {"dead_letter": True, "time_to_be_received_s": 0}
    await both.client.send(path, b"late", transaction=transaction, **more)
    end = data_pb2.EndTransactionRequest(request=both.client.next(), transaction=transaction)
    await both.client.data.CommitTransaction(end)
    request = await letter(both, DEAD_TRANSACTIONAL)
    request.target = path
    first, again = await both.twice("messages/ReturnToSource", request)
    assert first.message_id == again.message_id
    left = await both.here.messages.Browse(pb.BrowseRequest(queue=DEAD_TRANSACTIONAL))
    assert [one.message_id for one in left.messages] == [first.message_id]


async def returning_from_a_subqueue(both: Both) -> None:
    (sent,) = await both.client.send(ORDERS, b"poison")
    sub = await both.client.open(SUBQUEUE, data_pb2.MOVE_ACCESS)
    moved = await both.client.data.Move(
        data_pb2.MoveRequest(
            request=both.client.next(),
            source_queue_id=sent.places[0].queue_id,
            lookup_identifier=sent.places[0].lookup_identifier,
            target_queue_id=sub.queue_id,
        )
    )
    request = pb.ReturnToSourceRequest(
        queue=pb.QueueName(queue_id=sub.queue_id), lookup_identifier=moved.lookup_identifier
    )
    first, again = await both.twice("messages/ReturnToSource", request)
    assert first == again
    assert first.message_id == sent.message_id
    assert await both.content() == [b"poison"]


async def resolving(both: Both) -> None:
    transaction = secrets.token_bytes(16)
    begin = data_pb2.BeginTransactionRequest(
        request=both.client.next(), transaction=transaction, is_two_phase=True
    )
    await both.client.data.BeginTransaction(begin)
    end = data_pb2.EndTransactionRequest(request=both.client.next(), transaction=transaction)
    await both.client.data.PrepareTransaction(end)
    request = pb.ResolveTransactionRequest(identifier=transaction, commit=True)
    await both.twice("clients/ResolveTransaction", request)


async def closing_a_client(both: Both) -> None:
    guest = Client(both.client.channel, "guest")
    await guest.open_session()
    await both.twice("clients/CloseClient", pb.CloseClientRequest(client_id="guest"))


async def importing(both: Both) -> None:
    """What is left to do is done, but nothing that another caller has changed meanwhile."""
    exported = await both.here.definitions.Export(pb.ExportRequest())
    name = pb.QueueName(name=ORDERS)
    await both.here.queues.SetQueue(labelled(name, "another"))
    wanted = exported.document.replace("label: theirs", "label: imported")
    assert "imported" in wanted
    first, _ = await both.twice(
        "definitions/Import",
        pb.ImportRequest(document=wanted),
        lambda: both.there.queues.SetQueue(labelled(name, "theirs")),
    )
    assert len(first.changes) == 1
    assert await both.label(name) == "theirs"


async def members(both: Both) -> None:
    place = pb.MemberPlace(host="127.0.0.99")
    add = pb.AddMemberRequest(name="n9", place=place)
    first, again = await both.twice("cluster/AddMember", add)
    assert ids(first) == ids(again) == {"n1.1", "n2.1", "n3.1", "n9.1"}
    replace = pb.ReplaceMemberRequest(name="n9", lost_incarnation=1)
    first, again = await both.twice("cluster/ReplaceMember", replace)
    assert ids(first) == ids(again) == {"n1.1", "n2.1", "n3.1", "n9.2"}
    first, again = await both.twice("cluster/RemoveMember", pb.RemoveMemberRequest(name="n9"))
    assert ids(first) == ids(again) == {"n1.1", "n2.1", "n3.1"}
    # Who comes again has an identity that was never used.
    assert "n9.3" in ids(await both.here.cluster.AddMember(add))
    await both.here.cluster.RemoveMember(pb.RemoveMemberRequest(name="n9"))
    await both.twice("cluster/PromoteMember", pb.PromoteMemberRequest(name="n2"))


async def forgetting_a_peer(both: Both) -> None:
    """One that sends again after it was forgotten is remembered."""
    node = await both.harness.leader()
    await create_queue(node, "plain")
    await propose(node, batch("plain", [1]))
    request = pb.ForgetPeerRequest(queue_manager=PEER)
    await both.twice(
        "peers/ForgetPeer", request, lambda: propose(node, batch("plain", [2], number=2))
    )
    shown = await both.here.peers.GetPeer(pb.GetPeerRequest(queue_manager=PEER))
    assert shown.peer.history_rows == 1


def ids(reply: pb.MemberReply) -> set[str]:
    return {member.raft_id for member in reply.members}


async def leadership(both: Both) -> None:
    leader = (await both.harness.leader()).name
    request = pb.TransferLeadershipRequest(leader=leader)
    first, again = await both.twice("cluster/TransferLeadership", request)
    assert first.leader == again.leader != leader
    request = pb.TransferLeadershipRequest(to=leader)
    first, again = await both.twice("cluster/TransferLeadership", request)
    assert first == again


async def keeping_an_object_of_the_directory(both: Both) -> None:
    put = pb.PutObjectRequest(object_class="site", attributes={"name": text("North")})
    first, again = await both.twice("directory/PutObject", put)
    assert first == again, "its identifier was made for the first call"
    delete = pb.DeleteObjectRequest(object_class="site", identifier=first.identifier)
    restore = pb.PutObjectRequest(
        object_class="site", identifier=first.identifier, attributes=put.attributes
    )

    async def restored() -> None:
        await both.there.directory.PutObject(restore)

    await both.twice("directory/DeleteObject", delete, restored)
    listed = await both.here.directory.ListObjects(pb.ListObjectsRequest(object_class="site"))
    assert [one.identifier for one in listed.objects] == [first.identifier]


async def registering_a_certificate(both: Both) -> None:
    person = pb.Person(principal="alice")
    register = pb.RegisterCertificateRequest(
        certificate=new_signer("alice", 1024, 30).certificate, person=person
    )
    first, again = await both.twice("certificate/Register", register)
    assert first == again

    async def registered() -> None:
        await both.there.certificate.Register(register)

    remove = pb.RemoveCertificateRequest(digest=first.digest, person=person)
    await both.twice("certificate/Remove", remove, registered)
    listed = await both.here.certificate.List(pb.ListCertificatesRequest(person=person))
    assert [one.digest for one in listed.certificates] == [first.digest]


async def replacing_keys(both: Both) -> None:
    first, again = await both.twice("key/ReplaceKeys", pb.ReplaceKeysRequest(accepted_s=60))
    assert first == again
    assert first.generation == 2


async def repeatable(both: Both) -> None:
    """These may be done twice: a state that is wanted, or one more of what does no harm."""
    await both.twice("cluster/Drain", pb.DrainRequest(node="n3"))
    await both.twice("cluster/Undrain", pb.DrainRequest(node="n3"))
    await both.twice("cluster/MarkAudit", pb.MarkAuditRequest())
    await both.twice("cluster/StartScrub", pb.ScrubRequest(node="n3"))
    level = pb.SetLogLevelRequest(level="info", logger="qm.nothing")
    await both.twice("node/SetLogLevel", level)  # each node's own


CASES: Final[tuple[Case, ...]] = (
    *(creating, deleting, setting, setting_of_a_queue_that_is_gone, setting_the_manager),
    *(purging, holding_an_outgoing_queue, returning),
    *(returning_a_transactional_message, returning_from_a_subqueue, resolving, closing_a_client),
    *(importing, members, leadership, repeatable, forgetting_a_peer, setting_an_access_list),
    *(keeping_an_object_of_the_directory, registering_a_certificate, replacing_keys),
)
STREAMS: Final = {"node/CreateBackup"}
"""A caller that repeats one begins again; nothing was changed."""
CODES: Final = {"console/SignIn"}
"""Each makes another code, in the memory of the node that answers; this world has no console."""


@pytest.mark.timeout(120)
def test_every_control_call_is_done_once() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            one, other = await made.followers()
            async with made.client(one) as client, made.channel(other) as channel:
                both = Both(made.harness, client, Operator(channel))
                await create(client)
                for case in CASES:
                    await case(both)
                assert both.asked | STREAMS | CODES == {
                    _short(method) for method, rule in RULES.items() if rule.is_change
                }
                assert both.asked <= await told(both.here) & await told(both.there)

    run(scenario())


async def told(operator: Operator) -> set[str]:
    """Return the control calls that a node's events tell of."""
    events = operator.node.StreamEvents(pb.StreamEventsRequest(kinds=["control"]))
    names = {event.name async for event in events if event.principal == "loopback"}
    return {_short(method) for method in RULES if method.rpartition("/")[2] in names}


def _short(method: str) -> str:
    service, _, name = method.rpartition("/")
    kind = service.rpartition(".")[2].removesuffix("Control").lower()
    plural = {"queue": "queues", "message": "messages", "client": "clients", "peer": "peers"}
    return f"{plural.get(kind, 'definitions' if kind == 'definition' else kind)}/{name}"
