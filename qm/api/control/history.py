"""The replicated history of events, as calls show it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Final

from qm.api.gate.errors import InvalidArgument
from qm.cluster.cluster import Cluster, Unavailable
from qm.model.queries import EventInfo, list_events
from qm.model.values.elements import EventKind
from qm.pb import control_pb2 as pb
from qm.wire.codes import ErrorCode

PAGE_EVENTS: Final = 100
LOOK_EVERY_S: Final = 0.5
"""How late a reader that follows learns of an event at most."""
_REFUSALS: Final = {f"{code:#010x}": code.name for code in ErrorCode}


class History:
    """Reads the history at this node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def page(self, request: pb.ListEventsRequest) -> pb.ListEventsReply:
        """Return some events; without a quorum those that this node knows."""
        kinds = _kinds(request.kinds)
        if self._cluster.leadership.node is not None:
            with suppress(Unavailable):
                await self._cluster.read_barrier()
        found, has_more = list_events(
            self._cluster.view,
            after=request.after,
            since_ms=request.since_ms,
            kinds=kinds,
            limit=request.limit or PAGE_EVENTS,
            is_latest=request.latest,
        )
        return pb.ListEventsReply(events=map(_shown, found), has_more=has_more)

    async def read(self, request: pb.StreamEventsRequest) -> AsyncIterator[pb.Event]:
        """Yield events as this node learns of them."""
        kinds, after = _kinds(request.kinds), request.after
        while True:
            found, has_more = list_events(
                self._cluster.view, after=after, kinds=kinds, limit=PAGE_EVENTS
            )
            for info in found:
                after = info.number
                yield _shown(info)
            if not has_more:
                if not request.follow:
                    return
                await asyncio.sleep(LOOK_EVERY_S)


def _kinds(names: Iterable[str]) -> list[EventKind]:
    try:
        return [EventKind[name.upper()] for name in names]
    except KeyError as error:
        known = ", ".join(kind.name.lower() for kind in EventKind)
        raise InvalidArgument("kinds", f"{str(error)[:64]} is none of {known}") from None


def _shown(info: EventInfo) -> pb.Event:
    event = info.event
    code = event.details.get("code", "")
    name = _REFUSALS.get(code, code)
    return pb.Event(
        number=info.number,
        time_ms=event.time_ms,
        node=event.node,
        kind=info.kind.name.lower(),
        name=event.name,
        principal=event.principal,
        text=event.text.removesuffix(code) + name if name != code else event.text,
        details=event.details | {"code": name} if name != code else event.details,
        index=event.index,
    )
