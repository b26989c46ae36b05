"""Lists of queues in an order: sorted over all pages, with the counts that they are sorted by."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest

from qm.api.control import queue_ages
from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.errors import ClientError
from qm.client.message import Message
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.client.world import Clients, scenario

PREFIX = "QUORATE\\private$\\list-"


async def page(client: Client, **wanted: Any) -> pb.ListQueuesReply:
    request = pb.ListQueuesRequest(pattern="*\\list-*", **wanted)
    reply = await client.wire.call(lambda stubs: stubs.queues.ListQueues, request)
    assert isinstance(reply, pb.ListQueuesReply)
    return reply


async def names(client: Client, **wanted: Any) -> str:
    """Return the last letters of the queues of all pages, two to a page."""
    found, token = "", ""
    while True:
        reply = await page(client, page_size=2, page_token=token, **wanted)
        found += "".join(queue.path_name[-1] for queue in reply.queues)
        token = reply.page_token
        if not token:
            return found


async def filled(made: Clients) -> None:
    """Four queues: `b` is the oldest, `d` the longest, `a` has the most bytes, `c` is empty."""
    for letter in "bcad":
        await made.create(f"{PREFIX}{letter}")
    await made.limit(f"{PREFIX}a", quota=1_000)
    await made.limit(f"{PREFIX}d", quota=2)
    async with made.client() as client:
        for letter, count, size in (("b", 1, 10), ("d", 3, 100), ("a", 2, 9_000)):
            await client.send(f"{PREFIX}{letter}", *[Message(body=bytes(size))] * count)


@scenario()
async def test_queues_are_sorted_over_all_pages(made: Clients) -> None:
    await filled(made)
    async with made.client() as client:
        assert await names(client) == "bcad"
        for order, least_first in (
            (pb.BY_NAME, "abcd"),
            (pb.BY_MESSAGES, "cbad"),
            (pb.BY_BYTES, "cbda"),
            (pb.BY_QUOTA, "bcad"),
        ):
            assert await names(client, order=order) == least_first, order
            greatest_first = await names(client, order=order, is_descending=True)
            assert greatest_first[:2] == least_first[::-1][:2], order
        assert (await names(client, order=pb.BY_AGE))[0] == "c"
        reply = await page(client, order=pb.BY_AGE, page_size=1, with_statistics=True)
        assert (reply.total_count, len(reply.queues)) == (4, 1)
        assert not reply.queues[0].statistics.HasField("oldest_arrival_time_s")
        reply = await page(client, order=pb.BY_QUOTA, is_descending=True, with_statistics=True)
        first = reply.queues[0].statistics
        assert first.quota_bytes == 2 * 1024
        assert 300 < first.quota_used_bytes == reply.queues[0].total_bytes
        assert abs(reply.now_ms / 1000 - first.oldest_arrival_time_s) < 60
        assert not reply.queues[3].statistics.HasField("quota_bytes")
        with pytest.raises(ClientError, match="no order"):
            await page(client, order=99)


@scenario()
async def test_queues_are_sorted_by_age_where_others_have_their_turn(made: Clients) -> None:
    """Much was removed from them, so that each is looked at after a pause."""
    await filled(made)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(queue_ages, "SCANNED_REMOVALS_MAX", 1)
        async with made.client() as client:
            await by_age(client)


async def by_age(client: Client) -> None:
    """Take messages, and have the queues sorted by what is left."""
    for letter in "ad":
        queue = await client.open_queue(f"{PREFIX}{letter}")
        assert await queue.receive(0) is not None
    found = await names(client, order=pb.BY_AGE)
    assert (found[0], sorted(found)) == ("c", ["a", "b", "c", "d"])
    reply = await page(client, order=pb.BY_AGE, is_descending=True, with_statistics=True)
    times = [queue.statistics.oldest_arrival_time_s for queue in reply.queues[:3]]
    assert times == sorted(times)


@scenario()
async def test_a_sorted_list_has_what_its_caller_may_see_and_counts_nothing_else(
    made: Clients,
) -> None:
    await filled(made)
    hidden = pb.SetAclRequest(
        queue=pb.QueueName(name=f"{PREFIX}d"),
        entries=[pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"])],
    )
    certificate, key = issue(made.tls.authority.parent, "carol", Role.CLIENT, [])
    tls = Tls(made.tls.authority, certificate, key)
    async with made.client() as admin, Client(made.ordered(), tls=tls, client_id="carol") as carol:
        await admin.wire.call(lambda stubs: stubs.queues.SetAcl, hidden)
        assert await names(carol, order=pb.BY_MESSAGES, is_descending=True) == "abc"
        assert (await page(carol, order=pb.BY_NAME)).total_count == 3


@scenario()
async def test_patterns_of_callers_are_not_kept(made: Clients) -> None:
    """Each takes some kilobytes, and there are as many as callers think up."""
    known = fnmatch._compile_pattern.cache_info().currsize  # type: ignore[attr-defined]
    async with made.client() as client:
        for number in range(20):
            for order in (pb.BY_ID, pb.BY_NAME):
                wanted = pb.ListQueuesRequest(pattern=f"*\\PL{number}*", order=order)
                reply = await client.wire.call(lambda stubs: stubs.queues.ListQueues, wanted)
                assert not reply.queues
        wanted = pb.ListQueuesRequest(pattern="*\\PL[a-b]?N")
        reply = await client.wire.call(lambda stubs: stubs.queues.ListQueues, wanted)
        assert [queue.path_name for queue in reply.queues] == ["QUORATE\\private$\\plain"]
    assert fnmatch._compile_pattern.cache_info().currsize == known  # type: ignore[attr-defined]
