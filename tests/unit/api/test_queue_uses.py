"""What an answer says that somebody may do with a queue is what is admitted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Access, Client
from qm.client.errors import ClientError
from qm.client.message import Message
from qm.client.values import value_of
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.client.world import PLAIN, Clients, scenario

EVERY = ["write_message", "peek_message", "receive_message", "delete_queue", "set_queue_properties"]
USES = {"send", "peek", "receive", "purge", "delete", "set"}


def operator(made: Clients) -> Client:
    certificate, key = issue(made.tls.authority.parent, "oscar", Role.OPERATOR, [])
    tls = Tls(made.tls.authority, certificate, key)
    return Client(made.ordered(), tls=tls, client_id="oscar")


async def put_acl(made: Clients, name: str, denied: list[str], granted: list[str]) -> None:
    entries = [
        pb.Ace(type=kind, principal="oscar", rights=rights)
        for kind, rights in ((pb.DENY, denied), (pb.ALLOW, granted))
        if rights
    ]
    entries.append(pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"]))
    request = pb.SetAclRequest(queue=pb.QueueName(name=name), entries=entries)
    async with made.client() as admin:
        await admin.wire.call(lambda stubs: stubs.queues.SetAcl, request)


async def uses(client: Client, name: str) -> set[str]:
    wanted = pb.GetQueueRequest(queue=pb.QueueName(name=name))
    return set((await client.wire.call(lambda stubs: stubs.queues.GetQueue, wanted)).uses)


async def is_admitted(work: Awaitable[Any]) -> bool:
    try:
        await work
    except ClientError:
        return False
    return True


async def done(client: Client, name: str) -> set[str]:
    """Try everything, what removes the queue last."""
    queue = pb.QueueName(name=name)

    changes = {"label": value_of("new")}
    tries: dict[str, Callable[[], Awaitable[Any]]] = {
        "send": lambda: client.send(name, Message(body=b"x")),
        "peek": lambda: client.open_queue(name, Access.PEEK),
        "receive": lambda: client.open_queue(name, Access.RECEIVE),
        "purge": lambda: client.wire.call(
            lambda stubs: stubs.queues.PurgeQueue, pb.PurgeQueueRequest(queue=queue)
        ),
        "set": lambda: client.wire.call(
            lambda stubs: stubs.queues.SetQueue, pb.SetQueueRequest(queue=queue, changes=changes)
        ),
        "delete": lambda: client.wire.call(
            lambda stubs: stubs.queues.DeleteQueue, pb.DeleteQueueRequest(queue=queue)
        ),
    }
    return {use for use, work in tries.items() if await is_admitted(work())}


@pytest.mark.parametrize(
    ("denied", "granted"),
    [([], EVERY), ([], []), (EVERY, EVERY), ([], ["delete_queue"]), (["receive_message"], EVERY)]
    + [([], [right]) for right in EVERY],
)
def test_what_is_said_is_what_happens(denied: list[str], granted: list[str]) -> None:
    @scenario()
    async def work(made: Clients) -> None:
        await put_acl(made, PLAIN, denied, granted)
        async with operator(made) as client:
            said = await uses(client, PLAIN)
            assert said <= USES
            assert said == await done(client, PLAIN)

    work()


@scenario()
async def test_journals_and_dead_letters_follow_their_own_rights(made: Clients) -> None:
    async with made.client() as admin, operator(made) as client:
        listed = await admin.wire.call(
            lambda stubs: stubs.queues.ListQueues,
            pb.ListQueuesRequest(kinds=list(pb.QueueKind.values())),
        )
        by_kind = {queue.kind: queue for queue in listed.queues}
        for kind in (pb.DEAD_LETTER, pb.TRANSACTIONAL_DEAD_LETTER, pb.SYSTEM_JOURNAL):
            name = by_kind[kind].format_name
            assert await uses(admin, name) == {"peek", "receive", "purge"}
            is_opened = await is_admitted(client.open_queue(name, Access.RECEIVE))
            assert ("receive" in await uses(client, name)) == is_opened
        journal = by_kind[pb.JOURNAL]
        assert await uses(admin, journal.format_name) == {"peek", "receive", "purge"}
