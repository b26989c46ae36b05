"""Lists of queues: as they were made, or in another order."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from typing import Any, Final, TypeAlias

import msgspec

from qm.api.control.queue_ages import QueueAges, parts_of
from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import InvalidArgument
from qm.api.gate.pages import number_after, page_size, token_of
from qm.api.gate.turns import Turns
from qm.cluster.cluster import Cluster
from qm.model.queries import (
    QueueInfo,
    QueueStatistics,
    View,
    format_name_of_queue,
    list_queues,
    queue_info,
    queue_statistics,
)
from qm.model.values.elements import QueueKind
from qm.pb import control_pb2 as pb

PATTERN_MAX_CHARS: Final = 256
SORTED_QUEUES_MAX: Final = 100_000
"""Queues that are sorted for one page; a pattern leaves others out."""
SORTS_PER_PRINCIPAL_MAX: Final = 1
"""At the same time: each reads every queue, 10 us or more of them."""
_STEP_QUEUES: Final = 200
"""Read at once, then others have their turn."""

MaySee: TypeAlias = Callable[[int], bool]
_Keys: TypeAlias = Callable[[View, Sequence[QueueInfo]], Sequence[Any]]
_Parts: TypeAlias = Callable[[Sequence[QueueInfo]], Iterable[Sequence[QueueInfo]]]


class _Order(msgspec.Struct, frozen=True):
    """What queues are sorted by."""

    keys: _Keys
    """Of some queues, by ascending queue_id."""
    parts: _Parts = lambda queues: (queues,)
    """Of queues that were read at once: between them others have their turn."""


class QueueLists:
    """Answers ListQueues."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sorts = Turns(SORTS_PER_PRINCIPAL_MAX)
        self._by_age = _Order(QueueAges().of, parts_of)

    async def page(
        self, request: pb.ListQueuesRequest, context: Context, may_see: MaySee
    ) -> pb.ListQueuesReply:
        """Return a page; `may_see` tells whether the caller sees a queue. Raises ApiError."""
        if len(request.pattern) > PATTERN_MAX_CHARS:
            raise InvalidArgument("pattern", f"at most {PATTERN_MAX_CHARS} characters")
        size, after, kinds = (
            page_size(request.page_size),
            number_after(request.page_token),
            _kinds(request),
        )
        order = self._by_age if request.order == pb.BY_AGE else _ORDERS.get(request.order)
        if order is None and request.order != pb.BY_ID:
            raise InvalidArgument("order", f"{request.order} is no order of queues")
        await self._cluster.read_barrier()
        if order is not None:
            await self._sorts.take(caller().name, context)
            return await self._sorted(request, order, kinds, after or 0, size, may_see)
        page = list_queues(self._cluster.view, after=after or 0, limit=size, kinds=kinds)
        is_meant = _choice(request)
        chosen = [one for one in page.items if is_meant(one) and may_see(one.queue_id)]
        return self._reply(request, chosen, page.next)

    async def _sorted(
        self,
        request: pb.ListQueuesRequest,
        order: _Order,
        kinds: frozenset[QueueKind],
        first: int,
        size: int,
        may_see: MaySee,
    ) -> pb.ListQueuesReply:
        """Sort all that match, and show `size` of them after `first`."""
        found: list[tuple[Any, int]] = []
        is_meant = _choice(request)
        async for listed in self._steps(kinds):
            chosen = [one for one in listed if is_meant(one) and may_see(one.queue_id)]
            if len(found) + len(chosen) > SORTED_QUEUES_MAX:
                raise InvalidArgument(
                    "order",
                    f"more than {SORTED_QUEUES_MAX} queues match: narrow the pattern, or list them"
                    " without an order",
                )
            found += await self._keyed(order, chosen)
        found.sort(key=lambda one: one[0], reverse=request.is_descending)
        view, end = self._cluster.view, first + size
        shown = [queue_info(view, queue_id) for _, queue_id in found[first:end]]
        following = end if end < len(found) else None
        reply = self._reply(request, [one for one in shown if one is not None], following)
        reply.total_count = len(found)
        return reply

    async def _keyed(self, order: _Order, listed: list[QueueInfo]) -> list[tuple[Any, int]]:
        """Return (key, queue_id) of queues that were listed just now."""
        found: list[tuple[Any, int]] = []
        for number, part in enumerate(order.parts(listed)):
            now = part
            if number:
                await asyncio.sleep(0)
                # Others had their turn, and a key belongs to the counts beside it.
                now = [queue_info(self._cluster.view, one.queue_id) or one for one in part]
            keys = order.keys(self._cluster.view, now)
            found += zip(keys, [one.queue_id for one in part], strict=True)
        return found

    async def _steps(self, kinds: frozenset[QueueKind]) -> AsyncIterator[list[QueueInfo]]:
        """Yield all queues, some at a time."""
        after: int | None = 0
        while after is not None:
            page = list_queues(self._cluster.view, after=after, limit=_STEP_QUEUES, kinds=kinds)
            yield [one for one in page.items if not one.is_deleting]
            after = page.next
            await asyncio.sleep(0)

    def _reply(
        self, request: pb.ListQueuesRequest, chosen: list[QueueInfo], following: int | None
    ) -> pb.ListQueuesReply:
        view = self._cluster.view
        reply = pb.ListQueuesReply(page_token=token_of(following), now_ms=self._cluster.now_ms())
        for info in chosen:
            queue = reply.queues.add()
            queue.CopyFrom(_listed(info, format_name_of_queue(view, info.queue_id)))
            if request.with_statistics:
                counted = queue_statistics(view, info.queue_id)
                if counted is not None:
                    queue.statistics.CopyFrom(shown_statistics(counted))
        return reply


def shown_statistics(found: QueueStatistics) -> pb.QueueStatistics:
    """Return the counts of a queue, without how often it is open."""
    return pb.QueueStatistics(
        locked_count=found.locked_count,
        hidden_count=found.hidden_count,
        count_by_priority=found.count_by_priority,
        subqueue_bytes=found.subqueue_bytes,
        quota_used_bytes=found.quota_used_bytes,
        quota_bytes=found.quota_bytes,
        arrival_count=found.arrival_count,
        removal_count=found.removal_count,
        oldest_arrival_time_s=found.oldest_arrival_time,
    )


KINDS: Final = dict(zip(QueueKind, pb.QueueKind.values(), strict=True))
TYPES: Final = pb.QueueType.values()


def _kinds(request: pb.ListQueuesRequest) -> frozenset[QueueKind]:
    try:
        wanted = frozenset(QueueKind(int(kind)) for kind in request.kinds)
    except ValueError as error:
        raise InvalidArgument("kinds", str(error)) from None
    return wanted or frozenset({QueueKind.APPLICATION})


def _choice(request: pb.ListQueuesRequest) -> Callable[[QueueInfo], bool]:
    """Return what tells whether a queue is meant. Patterns are compiled here, since `fnmatch` keeps
    tens of thousands of those that callers think up, and some kilobytes for each.
    """
    if not request.pattern:
        return lambda _: True
    is_match = re.compile(translate(request.pattern.lower())).match
    return lambda info: is_match(info.pathname.lower()) is not None


def _listed(info: QueueInfo, format_name: str) -> pb.Queue:
    return pb.Queue(
        queue_id=info.queue_id,
        identifier=info.identifier,
        kind=KINDS[info.kind],
        type=TYPES[info.queue_type],
        path_name=info.pathname,
        format_name=format_name,
        label=info.label,
        is_transactional=info.transactional,
        is_journaling=info.journaling,
        is_deleting=info.is_deleting,
        parent_queue_id=info.parent_queue,
        message_count=info.message_count,
        total_bytes=info.total_bytes,
    )


def _quota_use(info: QueueInfo) -> float:
    return info.with_subqueues_bytes / info.quota_bytes if info.quota_bytes else -1.0


def _each(key: Callable[[QueueInfo], Any]) -> _Order:
    return _Order(lambda _, queues: [key(info) for info in queues])


_ORDERS: Final[Mapping[int, _Order]] = {
    pb.BY_NAME: _each(lambda info: info.pathname.lower()),
    pb.BY_MESSAGES: _each(lambda info: info.message_count),
    pb.BY_BYTES: _each(lambda info: info.total_bytes),
    pb.BY_QUOTA: _each(_quota_use),
}
