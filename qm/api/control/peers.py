"""PeerControl: other queue managers, as far as their messages are remembered."""

import asyncio
from heapq import nsmallest
from typing import Final

from msgspec.structs import asdict
from typing_extensions import override

from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import Conflict, InvalidArgument, NotFound, check
from qm.api.gate.operations import Operations
from qm.api.gate.pages import PAGE_SIZE_DEFAULT, bytes_after, page_size, token_of
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.cluster.cluster import Cluster, Unavailable
from qm.cluster.membership import Membership
from qm.cluster.peer_sessions import (
    SESSIONS_LISTED_MAX,
    PeerSession,
    SessionsFound,
    SessionsWanted,
    busiest_first,
)
from qm.model.queries import (
    PAGE_ITEMS_MAX,
    IncomingSequence,
    PeerInfo,
    get_peer,
    list_peers,
    peer_sequences,
)
from qm.model.values.commands import Command, ForgetPeer
from qm.model.values.limits import VERSION_OF_BINDINGS
from qm.names.guid import GUID_SIZE_BYTES, guid_text
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc

ROWS_PER_STEP: Final = 1_024
"""Rows that one command forgets; there are as many commands as are needed."""


class PeerControl(control_pb2_grpc.PeerControlServicer):
    """Implements `quorate.control.v1.PeerControl`."""

    def __init__(
        self, cluster: Cluster, membership: Membership, operations: Operations, decider: Decider
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._operations = operations
        self._decider = decider

    @override
    async def ListPeers(self, request: pb.ListPeersRequest, context: Context) -> pb.ListPeersReply:
        size, after = page_size(request.page_size), bytes_after(request.page_token)
        await self._cluster.read_barrier()
        page = list_peers(self._cluster.view, after=after, limit=size, address=request.address)
        return pb.ListPeersReply(peers=map(_shown, page.items), page_token=token_of(page.next))

    @override
    async def GetPeer(self, request: pb.GetPeerRequest, context: Context) -> pb.GetPeerReply:
        guid, after = _guid(request.queue_manager), bytes_after(request.page_token)
        size = page_size(request.page_size or PAGE_ITEMS_MAX)
        await self._cluster.read_barrier()
        page = peer_sequences(self._cluster.view, guid, after=after, limit=size)
        return pb.GetPeerReply(
            peer=_shown(self._known(guid)),
            sequences=map(_shown_sequence, page.items),
            page_token=token_of(page.next),
        )

    @override
    async def ForgetPeer(
        self, request: pb.ForgetPeerRequest, context: Context
    ) -> pb.ForgetPeerReply:
        guid = _guid(request.queue_manager)
        step = ForgetPeer(UNNUMBERED, guid, ROWS_PER_STEP, request.address_only, caller().sids)

        def first() -> Command:
            if self._cluster.view.counters().apply_version < VERSION_OF_BINDINGS:
                raise Conflict("first upgrade the members that do not run this release yet")
            self._known(guid)
            return step

        # A repeated call gets the outcome of its first step: a peer that has come back meanwhile
        # stays, unless there was more to forget.
        outcome = await self._decider.once(request, first)
        check(outcome.status)
        while outcome.value:
            outcome = await self._decider.decide(step)
            check(outcome.status)
        return pb.ForgetPeerReply()

    @override
    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsReply:
        if request.limit > SESSIONS_LISTED_MAX:
            raise InvalidArgument("limit", f"{request.limit}; at most {SESSIONS_LISTED_MAX}")
        limit = request.limit or PAGE_SIZE_DEFAULT
        guid = _guid(request.queue_manager) if request.queue_manager else b""
        wanted = SessionsWanted(limit, request.address, guid)
        nodes = [member.name for member in self._membership.members]
        answers = await asyncio.gather(
            *[self._operations.sessions(node, wanted) for node in nodes], return_exceptions=True
        )
        reply = pb.ListSessionsReply()
        listed: list[tuple[str, PeerSession]] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, SessionsFound):
                listed += [(node, one) for one in answer.sessions]
                reply.left_out += answer.left_out
            elif isinstance(answer, Unavailable | KeyError):
                reply.silent_nodes.append(node)
            else:
                raise answer
        busiest = nsmallest(limit, listed, lambda one: (*busiest_first(one[1]), one[0]))
        reply.sessions.extend(pb.PeerSession(node=node, **asdict(one)) for node, one in busiest)
        reply.left_out += len(listed) - len(busiest)
        return reply

    def _known(self, guid: bytes) -> PeerInfo:
        found = get_peer(self._cluster.view, guid)
        if found is None:
            raise NotFound(f"nothing is remembered of a queue manager {guid_text(guid)}")
        return found


def _guid(given: bytes) -> bytes:
    if len(given) != GUID_SIZE_BYTES:
        raise InvalidArgument("queue_manager", f"a GUID of {GUID_SIZE_BYTES} bytes")
    return given


def _shown(info: PeerInfo) -> pb.Peer:
    return pb.Peer(
        queue_manager=info.queue_manager,
        address=info.address,
        bound_since_ms=info.since_ms,
        heard_ms=info.heard_ms,
        pins=info.pins,
        counted_at=info.counted_at,
        streams=info.stream_count,
        history_rows=info.history_row_count,
    )


def _shown_sequence(one: IncomingSequence) -> pb.PeerSequence:
    return pb.PeerSequence(
        queue_id=one.queue_id,
        last=pb.SequencePlace(
            sequence_identifier=one.sequence_identifier, sequence_number=one.sequence_number
        ),
        reject_count=one.reject_count,
        last_access_ms=one.last_access_ms,
        format_name=one.format_name,
    )
