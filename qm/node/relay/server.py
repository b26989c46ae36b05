"""The relay endpoint: what other nodes ask of this one (relay.proto)."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import DecodeError
from typing_extensions import override

from qm.api.gate.operations import Health, ScrubState
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.cluster.membership import ChangeRefused
from qm.cluster.peer_sessions import SessionsFound, SessionsWanted
from qm.cluster.relay import LatePackets, RelayEvents, SessionFacts
from qm.model.values.effects import Outcome
from qm.node.relay.channels import SERVER_OPTIONS
from qm.node.relay.copies import Copies, entry_reply
from qm.node.relay.edge_stream import BROKEN
from qm.node.relay.exporters import question_of
from qm.node.relay.forwarding import NotTaken
from qm.node.relay.frame_writer import FrameWriter
from qm.node.relay.leader_stream import LeaderStream, LeaderStreams, StreamOver
from qm.node.relay.outcome_codec import encode_outcome
from qm.node.relay.peer_gate import PeerGate
from qm.node.relay.roster import Roster
from qm.node.relay.session_lists import sessions_reply, sessions_wanted
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.pb.relay_pb2_grpc import RelayServicer, add_RelayServicer_to_server
from qm.rpc.dcom.runtime.relayed import Question, Unanswered
from qm.rpc.ndr.streams import BadStub
from qm.store.codec import Inspected, UnknownCommand, inspect_foreign
from raft.cancellation import raise_if_cancelled
from raft.transport.refusal import refuse
from raft.transport.tls import TlsIdentity, peer_certificate
from raft.types import Entry

logger = logging.getLogger(__name__)

CALLS_MAX: Final = 512
"""Streams open at a time; all are authenticated."""
LATE_QUEUED_MAX: Final = 65_536
"""Frames that wait for an edge which does not read; beyond that its stream ends."""
LAST_WRITE_MAX_S: Final = 5.0
"""For an edge to receive the last frames before its stream ends."""
_EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]


class Leader(Protocol):
    """What only the leader does."""

    @property
    def leader_streams(self) -> LeaderStreams:
        """The streams of all edges."""

    async def comes_to_lead(self, term: int) -> bool:
        """Return whether this node leads in a term, waiting while it prepares to serve."""

    async def propose_here(self, commands: Sequence[Inspected]) -> Sequence[Outcome]:
        """Propose in order. Raises NotTaken, Unavailable, OutcomeUnknown, ValueError."""


class Operator(Protocol):
    """What a node does for operators at other nodes (`qm.node.upkeep.operations`)."""

    def health(self) -> Health:
        """Return the health of this node."""

    async def drain_here(self, is_draining: bool) -> None:
        """Drain this node, or let it serve again."""

    def scrub_here(self, *, begins: bool) -> ScrubState:
        """Return how far this node has read back what it stores."""

    def links_here(self, request: relay_pb2.LinksRequest) -> relay_pb2.LinksReply:
        """Return what this node knows of links."""

    def sessions_here(self, wanted: SessionsWanted) -> SessionsFound:
        """Return this node's live sessions with other queue managers."""

    def resend_here(self, queue_id: int) -> bool:
        """Send again the messages that wait for an order acknowledgement."""


class Member(msgspec.Struct, frozen=True):
    """Parts that a node has only while it belongs to a cluster."""

    leader: Leader
    lead: Callable[[relay_pb2.LeadRequest], Awaitable[None]]
    """`qm.node.membership.members.Members.ask_leader`."""
    operator: Operator
    copies: Copies
    ask_exporter: Callable[[Question], Awaitable[bytes]]
    """Raises Unanswered, BadStub."""


class RelayServer:
    """One node's relay endpoint. Without a cluster it answers only Inspect and Adopt."""

    def __init__(
        self,
        own: str,
        listen: str,
        identity: TlsIdentity,
        roster: Roster,
        metrics: Metrics,
        inspect: Callable[[], relay_pb2.InspectReply],
        adopt: Callable[[relay_pb2.AdoptRequest], Awaitable[None]],
    ) -> None:
        """`own`: this node's name; `adopt` raises ChangeRefused when it belongs to a cluster."""
        self.member: Member | None = None
        """Set when this node belongs to a cluster."""
        self.refused_log: Callable[[int, int], Awaitable[Entry | None]] | None = None
        """Reads an entry by index and term from a log that is refused, while it is repaired: the
        others may need it to repair theirs."""
        self._listen = listen
        self._server: grpc.aio.Server | None = None
        self.identity: Final = identity
        self._roster = roster
        self.watch: Final = RelayWatch(metrics)
        self._gate = PeerGate(own, identity, roster, self.watch.refused, self._takes)
        self.inspect: Final = inspect
        self.adopt: Final = adopt

    def _takes(self, method: str) -> bool:
        """Whether members' calls of a method can be served now."""
        if self.member is not None:
            return True
        return method == "ReadEntry" and self.refused_log is not None

    async def start(self) -> None:
        """Listen. Raises OSError."""
        server = grpc.aio.server(
            interceptors=(self._gate,), options=SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX
        )
        add_RelayServicer_to_server(_Service(self), server)
        try:
            server.add_secure_port(self._listen, self.identity.server_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen}: {error}") from error
        await server.start()
        self._server = server

    def is_edge(self, name: str, names: Sequence[str]) -> bool:
        """Return whether a caller whose certificate has `names` may speak as the edge `name`."""
        return name in names and self._roster.is_member(name)

    async def stop(self) -> None:
        """End every call."""
        if self._server is not None:
            await self._server.stop(grace=None)


class RelayWatch:
    """Counts and logs refusals, with the caller."""

    def __init__(self, metrics: Metrics) -> None:
        self._refused = metrics.counter("quorate_relay_refused_total")
        self._log = LimitedLog(logger, time.monotonic)

    def refused(self, reason: str, text: str, context: Any) -> None:
        """A call was refused, or a stream ended."""
        self._refused.labels(reason=reason).inc()
        self._log.warning(reason, text, peer=context.peer())


class _Service(RelayServicer):
    """Serves the calls that the gate lets in."""

    def __init__(self, owner: RelayServer) -> None:
        self._owner = owner

    @property
    def _member(self) -> Member:
        """Return what serves members; the gate refuses such calls to a node without a cluster."""
        assert self._owner.member is not None
        return self._owner.member

    @override
    async def Propose(
        self, request: relay_pb2.ProposeRequest, context: Any
    ) -> relay_pb2.ProposeReply:
        leader = self._member.leader
        try:
            commands = [inspect_foreign(payload) for payload in request.payloads]
        except UnknownCommand as error:
            self._owner.watch.refused("command", str(error), context)
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            outcomes = await leader.propose_here(commands)
        except tuple(_CODES) as error:
            await refuse(context, _CODES[type(error)], str(error))
        return relay_pb2.ProposeReply(outcomes=map(encode_outcome, outcomes))

    @override
    async def Lead(self, request: relay_pb2.LeadRequest, context: Any) -> relay_pb2.LeadReply:
        member = self._member
        try:
            await member.lead(request)
        except ChangeRefused as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except tuple(_CODES) as error:
            await refuse(context, _CODES[type(error)], str(error))
        return relay_pb2.LeadReply()

    @override
    async def Inspect(
        self, request: relay_pb2.InspectRequest, context: Any
    ) -> relay_pb2.InspectReply:
        return self._owner.inspect()

    @override
    async def Adopt(self, request: relay_pb2.AdoptRequest, context: Any) -> relay_pb2.AdoptReply:
        try:
            await self._owner.adopt(request)
        except ChangeRefused as error:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return relay_pb2.AdoptReply()

    @override
    async def Drain(self, request: relay_pb2.DrainRequest, context: Any) -> relay_pb2.HealthReply:
        operator = self._member.operator
        try:
            await operator.drain_here(request.is_draining)
        except OSError as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        health = operator.health()
        return relay_pb2.HealthReply(
            disk_free_bytes=health.disk_free_bytes,
            disk_total_bytes=health.disk_total_bytes,
            alarms=health.alarms,
            is_draining=health.is_draining,
            session_count=health.session_count,
            is_leader=health.is_leader,
        )

    @override
    async def Scrub(self, request: relay_pb2.ScrubRequest, context: Any) -> relay_pb2.ScrubReply:
        state = self._member.operator.scrub_here(begins=request.begins)
        return relay_pb2.ScrubReply(**msgspec.structs.asdict(state))

    @override
    async def Links(self, request: relay_pb2.LinksRequest, context: Any) -> relay_pb2.LinksReply:
        return self._member.operator.links_here(request)

    @override
    async def Sessions(
        self, request: relay_pb2.SessionsRequest, context: Any
    ) -> relay_pb2.SessionsReply:
        return sessions_reply(self._member.operator.sessions_here(sessions_wanted(request)))

    @override
    async def Resend(self, request: relay_pb2.ResendRequest, context: Any) -> relay_pb2.ResendReply:
        operator = self._member.operator
        return relay_pb2.ResendReply(is_sending=operator.resend_here(request.queue_id))

    @override
    async def ReadEntry(
        self, request: relay_pb2.ReadEntryRequest, context: Any
    ) -> relay_pb2.ReadEntryReply:
        if self._owner.member is None and self._owner.refused_log is not None:
            return entry_reply(await self._owner.refused_log(request.index, request.term))
        return self._member.copies.entry(request)

    @override
    async def ReadBodies(
        self, request: relay_pb2.ReadBodiesRequest, context: Any
    ) -> relay_pb2.ReadBodiesReply:
        return self._member.copies.bodies(request)

    @override
    async def AskExporter(
        self, request: relay_pb2.AskExporterRequest, context: Any
    ) -> relay_pb2.AskExporterReply:
        try:
            stub = await self._member.ask_exporter(question_of(request))
        except Unanswered as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        except BadStub as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return relay_pb2.AskExporterReply(stub=stub)

    @override
    async def Exchange(self, _: Any, context: Any) -> None:  # type: ignore[override]
        leader = self._member.leader
        certificate = peer_certificate(context.auth_context())
        names = certificate.dns_names
        try:
            frames = _edge_frames(await context.read())
        except DecodeError as error:
            self._owner.watch.refused("malformed", str(error), context)
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        hello = None if frames is None or not frames.frames else frames.frames[0].hello
        if frames is None or hello is None or not self._owner.is_edge(hello.edge, names):
            text = f"{'' if hello is None else hello.edge!r} is not a member with the names {names}"
            self._owner.watch.refused("name", text, context)
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, text)
        if not await leader.comes_to_lead(hello.term):
            await refuse(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this node does not lead in term {hello.term}",
            )
        stream = GrpcLeaderStream(
            context, leader.leader_streams, hello.edge, hello.term, self._owner.watch
        )
        forget = self._owner.identity.watch(
            certificate.pem, lambda: stream.on_end("the certificate was revoked")
        )
        try:
            reason = await stream.run(frames)
        finally:
            forget()
        await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, reason)


_CODES: Final[dict[type[Exception], grpc.StatusCode]] = {
    NotTaken: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ValueError: grpc.StatusCode.INVALID_ARGUMENT,
    OutcomeUnknown: grpc.StatusCode.UNKNOWN,
}


class GrpcLeaderStream(RelayEvents):
    """The gRPC side of one edge's `LeaderStream`: translates frames in both directions."""

    def __init__(
        self, context: Any, streams: LeaderStreams, edge: str, term: int, watch: "RelayWatch"
    ) -> None:
        self._context = context
        self._watch = watch
        self._writer: FrameWriter[relay_pb2.LeaderFrame] = FrameWriter(
            lambda frames: context.write(relay_pb2.LeaderFrames(frames=frames)),
            _payload_bytes,
            lambda error: self.on_end(repr(error)),
        )
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._write(relay_pb2.LeaderFrame(welcome=relay_pb2.Welcome(term=term)))
        self._stream = streams.open(edge, self)

    async def run(self, first: relay_pb2.EdgeFrames) -> str:
        """Carry frames until either side ends; return why."""
        reader = asyncio.create_task(self._read_frames(first), name="relay stream, reading")
        try:
            await asyncio.wait((reader, self._over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            self._stream.close()
            # gRPC cannot end a call while a write is in progress, cancelled or not.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._writer.at_rest(), LAST_WRITE_MAX_S)
            self._writer.stop()
        return self._over.result() if self._over.done() else "the stream is broken"

    async def _read_frames(self, frames: Any) -> None:
        try:
            for frame in list(frames.frames)[1:]:
                _take(self._stream, frame)
            while (frames := _edge_frames(await self._context.read())) is not None:
                for frame in frames.frames:
                    _take(self._stream, frame)
        except (StreamOver, DecodeError) as error:
            self._watch.refused("rule", str(error), self._context)
            self.on_end(str(error))
        except (*BROKEN, asyncio.CancelledError) as error:
            raise_if_cancelled()
            self.on_end(repr(error))

    def _write(self, frame: relay_pb2.LeaderFrame) -> None:
        if len(self._writer) >= LATE_QUEUED_MAX:
            text = "the edge does not read: LATE_QUEUED_MAX is reached"
            self._watch.refused("slow", text, self._context)
            self.on_end(text)
            return
        self._writer.add(frame)

    # RelayEvents

    @override
    def on_free(self) -> None:
        """Does nothing: an edge on another node is too far away to be asked."""

    @override
    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        told = relay_pb2.BatchOutcome(number=number, index=index, outcome=encode_outcome(outcome))
        self._write(relay_pb2.LeaderFrame(outcome=told))

    @override
    def on_late_packets(self, packets: LatePackets) -> None:
        late = relay_pb2.Late(
            session=packets.session, tokens=packets.tokens, packets=packets.packets
        )
        self._write(relay_pb2.LeaderFrame(late=late))

    @override
    def on_end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)


def _edge_frames(data: Any) -> relay_pb2.EdgeFrames | None:
    """Return the frames that were read; None at the end. Raises DecodeError."""
    return None if data is _EOF else relay_pb2.EdgeFrames.FromString(data)


def _payload_bytes(frame: relay_pb2.LeaderFrame) -> int:
    return sum(map(len, frame.late.packets))


def _take(stream: LeaderStream, frame: relay_pb2.EdgeFrame) -> None:
    """Handle a frame of an edge. Raises StreamOver."""
    kind = frame.WhichOneof("kind")
    if kind == "batch":
        try:
            command = inspect_foreign(frame.batch.payload)
        except UnknownCommand as error:
            raise StreamOver(str(error)) from error
        stream.send(frame.batch.number, command)
    elif kind == "session_opened":
        opened = frame.session_opened
        stream.session_opened(
            SessionFacts(opened.number, opened.queue_manager, opened.address, opened.opened_ms)
        )
    elif kind == "session_closed":
        stream.session_closed(frame.session_closed.number)
    elif kind == "late_result":
        result = frame.late_result
        stream.late_result(result.session, result.tokens, is_delivered=result.is_delivered)
    else:
        raise StreamOver(f"an unexpected frame: {kind}")
