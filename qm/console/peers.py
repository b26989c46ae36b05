"""Other queue managers: sessions, and messages in from each and out to each address."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from qm.console.page_group import Cell, PageGroup, cells_of, instant_ms
from qm.console.peer_sessions import sessions_shown
from qm.names.guid import guid_text
from qm.pb import control_pb2 as pb

PEERS_SHOWN_MAX: Final = 50
"""Of a page; each costs a call."""
SEQUENCES_SHOWN_MAX: Final = 1_000
"""Of a page, and as many are added up in the list."""
OUTGOING_COUNTED_MAX: Final = 500
"""Outgoing queues that are counted by address."""
_NOWHERE: Final = "not known yet"
_INCOMING: Final = (
    "Queue manager",
    "Address",
    "Bound since (UTC)",
    "Heard (UTC)",
    "Destinations",
    "Messages in order",
    "Rejected",
    "Pinned to",
)
_OUTGOING: Final = (
    "Address",
    "State",
    "Queues",
    "Messages taken",
    "Messages gone",
    "Waiting",
    "Bytes waiting",
    "Not acknowledged",
)


class Outgoing(msgspec.Struct):
    """What goes out to one address."""

    states: set[str] = msgspec.field(default_factory=set)
    queue_count: int = 0
    arrival_count: int = 0
    removal_count: int = 0
    message_count: int = 0
    total_bytes: int = 0
    unacked_count: int = 0


class PeerPages(PageGroup):
    """Handlers of other queue managers."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/peers", self._peers),
            web.get("/peers/sessions", self._sessions_now),
            web.get("/peers/{peer:[0-9a-f]{32}}", self._peer),
        ]

    async def _peers(self, request: web.Request) -> web.Response:
        wanted = pb.ListPeersRequest(
            page_size=PEERS_SHOWN_MAX, page_token=request.query.get("after", "")
        )
        reply = await self.call(request, lambda s: s.peers.ListPeers, wanted)
        incoming = [await self._incoming(request, peer) for peer in reply.peers]
        outgoing, is_whole = await self._outgoing(request)
        return self.render(
            request,
            "peers.html.j2",
            incoming_columns=_INCOMING,
            incoming=cells_of(incoming),
            after=reply.page_token,
            outgoing_columns=_OUTGOING,
            outgoing=cells_of([_row(address, one) for address, one in sorted(outgoing.items())]),
            is_whole=is_whole,
            counted_max=OUTGOING_COUNTED_MAX,
            **await sessions_shown(self, request),
        )

    async def _sessions_now(self, request: web.Request) -> web.Response:
        """The part of the page that is renewed."""
        return self.render(request, "sessions.html.j2", **await sessions_shown(self, request))

    async def _incoming(self, request: web.Request, peer: Any) -> tuple[Cell | str | int, ...]:
        reply = await self._sequences(request, peer.queue_manager)
        more = "+" if reply.page_token else ""
        sums = (
            sum(one.last.sequence_number for one in reply.sequences),
            sum(one.reject_count for one in reply.sequences),
        )
        return (
            Cell(guid_text(peer.queue_manager), f"/peers/{peer.queue_manager.hex()}"),
            peer.address,
            instant_ms(peer.bound_since_ms),
            instant_ms(peer.heard_ms),
            peer.streams,
            *(f"{each}{more}" for each in sums),
            ", ".join(peer.pins),
        )

    async def _sequences(
        self, request: web.Request, queue_manager: bytes, after: str = ""
    ) -> pb.GetPeerReply:
        wanted = pb.GetPeerRequest(
            queue_manager=queue_manager, page_size=SEQUENCES_SHOWN_MAX, page_token=after
        )
        reply: pb.GetPeerReply = await self.call(request, lambda s: s.peers.GetPeer, wanted)
        return reply

    async def _outgoing(self, request: web.Request) -> tuple[Mapping[str, Outgoing], bool]:
        """Return what goes out by address, and whether all outgoing queues were counted."""
        links = await self.call(
            request,
            lambda s: s.outgoing.ListOutgoing,
            pb.ListOutgoingRequest(page_size=OUTGOING_COUNTED_MAX),
        )
        listed = await self.call(
            request,
            lambda s: s.queues.ListQueues,
            pb.ListQueuesRequest(
                page_size=OUTGOING_COUNTED_MAX, kinds=[pb.OUTGOING], with_statistics=True
            ),
        )
        counts = {queue.queue_id: queue.statistics for queue in listed.queues}
        found: dict[str, Outgoing] = {}
        for link in links.queues:
            to = found.setdefault(_address_of(link), Outgoing())
            statistics = counts.get(link.queue_id, pb.QueueStatistics())
            to.states.add(pb.OutgoingState.Name(link.state).lower())
            to.queue_count += 1
            to.arrival_count += statistics.arrival_count
            to.removal_count += statistics.removal_count
            to.message_count += link.message_count
            to.total_bytes += link.total_bytes
            to.unacked_count += link.unacked_count
        return found, not links.page_token

    async def _peer(self, request: web.Request) -> web.Response:
        """The sequences of one queue manager."""
        queue_manager = bytes.fromhex(request.match_info["peer"])
        after = request.query.get("after", "")
        reply = await self._sequences(request, queue_manager, after)
        rows = [
            (
                Cell(one.format_name, f"/queues/{one.queue_id}" if one.queue_id else ""),
                one.last.sequence_number,
                f"{one.last.sequence_identifier:x}",
                one.reject_count,
                instant_ms(one.last_access_ms),
            )
            for one in reply.sequences
        ]
        return self.render(
            request,
            "table.html.j2",
            title=f"Queue manager {guid_text(queue_manager)}",
            columns=("Destination", "Messages in order", "Sequence", "Rejected", "Last (UTC)"),
            rows=cells_of(rows),
            more=f"{request.path}?after={reply.page_token}" if reply.page_token else "",
            note="Transactional messages of its present sequences, by the queue that it names.",
        )


def _address_of(link: Any) -> str:
    """Return where an outgoing queue's messages go next, such as IP=10.0.0.1."""
    return ", ".join(link.next_hops) or _NOWHERE


def _row(address: str, to: Outgoing) -> tuple[str | int, ...]:
    return (
        address,
        ", ".join(sorted(to.states)),
        to.queue_count,
        to.arrival_count,
        to.removal_count,
        to.message_count,
        to.total_bytes,
        to.unacked_count,
    )
