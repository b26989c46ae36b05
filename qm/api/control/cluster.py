"""ClusterControl: members, leadership, drain, audit marks."""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from msgspec.structs import asdict
from typing_extensions import override

from qm.api.control.history import History
from qm.api.control.leader_gaps import LeaderGaps
from qm.api.gate.calls import Context
from qm.api.gate.errors import Conflict, InvalidArgument, MsmqError, OutOfTime
from qm.api.gate.operations import Operations
from qm.api.propose.control_once import Decider
from qm.cluster.cluster import Cluster, Unavailable
from qm.cluster.membership import Change, ChangeKind, ChangeRefused, Member, Membership, NodeStatus
from qm.model.queries import member_addresses, queue_manager
from qm.model.values.commands import AuditMark
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.wire.codes import ErrorCode

TRANSFER_WAIT_S: Final = 10.0
POLL_S: Final = 0.02
BEHIND_MAX: Final = 10_000
"""Entries by which a follower may lag and still count as able to take over."""
PORT_MAX: Final = 65_535
RAFT_PORT: Final = 1812
RELAY_PORT: Final = 1813
API_PORT: Final = 1811
"""Ports of the address plan (`qm.node.config.schema`), for places that give none."""


class ClusterControl(control_pb2_grpc.ClusterControlServicer):
    """Implements `quorate.control.v1.ClusterControl`."""

    def __init__(
        self, cluster: Cluster, membership: Membership, operations: Operations, decider: Decider
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._operations = operations
        self._decider = decider
        self._history = History(cluster)
        self._gaps = LeaderGaps(cluster)

    # Status ------------------------------------------------------------------------------

    @override
    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.ClusterStatus:
        statuses = await self._statuses()
        here = statuses.get(self._cluster.node)
        health = self._operations.health()
        leadership = self._cluster.leadership
        status = pb.ClusterStatus(
            node=self._cluster.node,
            leader=leadership.node or "",
            term=leadership.term,
            commit_index=here.commit if here is not None else 0,
            applied_index=here.applied if here is not None else 0,
            now_ms=self._cluster.now_ms(),
            members=self._shown(statuses),
            disk_free_bytes=health.disk_free_bytes,
            disk_total_bytes=health.disk_total_bytes,
            alarms=health.alarms,
            is_draining=health.is_draining,
            leader_gaps=self._gaps.count,
            leaderless_ms=self._gaps.total_ms,
        )
        found = queue_manager(self._cluster.view)
        if found is not None:
            status.queue_manager = found.attributes.identifier
            status.computer_name = found.attributes.computer_name
            status.epoch = found.counters.epoch
            status.apply_version = found.counters.apply_version
            status.message_bytes = found.counters.total_bytes
            status.journal_bytes = found.counters.journal_bytes
        return status

    @override
    async def ListMembers(
        self, request: pb.ListMembersRequest, context: Context
    ) -> pb.ListMembersReply:
        return pb.ListMembersReply(members=self._shown(await self._statuses()))

    async def _statuses(self) -> dict[str, NodeStatus]:
        """Ask every member; return the answers received."""
        names = [member.name for member in self._membership.members]
        answers = await asyncio.gather(
            *map(self._membership.inspect, names), return_exceptions=True
        )
        found = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, NodeStatus):
                found[name] = answer
            elif not isinstance(answer, Unavailable | KeyError):
                raise answer
        return found

    def _shown(self, statuses: Mapping[str, NodeStatus]) -> list[pb.Member]:
        return [
            self._member(member, statuses.get(member.name)) for member in self._membership.members
        ]

    def _member(self, member: Member, status: NodeStatus | None) -> pb.Member:
        shown = pb.Member(
            name=member.name,
            raft_id=f"{member.name}.{member.incarnation}",
            role=pb.VOTER if member.is_voter else pb.LEARNER,
            is_leader=member.name == self._cluster.leadership.node,
            is_reachable=status is not None,
            host=member.host,
            api_port=member.api_port,
        )
        if status is not None:
            shown.applied_index = status.applied
            shown.version = status.version
            shown.command_version = status.command_version
            shown.clock_offset_ms = status.wall_clock_ms - self._cluster.now_ms()
        return shown

    @override
    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsReply:
        return await self._history.page(request)

    # Members -----------------------------------------------------------------------------

    @override
    async def AddMember(self, request: pb.AddMemberRequest, context: Context) -> pb.MemberReply:
        if not request.place.host:
            raise InvalidArgument("place.host", "give the node's host")
        name = _name(request.name)
        await self._cluster.read_barrier()
        member = self._member_of(name)
        unused = self._membership.left.get(name, 0) + 1 if member is None else member.incarnation
        incarnation = request.incarnation or unused
        change = _placed(Change(ChangeKind.ADD, name, incarnation), request.place)

        def is_done() -> bool:
            member, place = self._member_of(name), member_addresses(self._cluster.view).get(name)
            if member is None or place is None:
                return False
            return (member.incarnation, place.host) == (incarnation, request.place.host)

        return await self._change(change, is_done)

    @override
    async def RemoveMember(
        self, request: pb.RemoveMemberRequest, context: Context
    ) -> pb.MemberReply:
        name = request.name
        await self._cluster.read_barrier()
        if name not in self._membership.left:
            self._known(name)
        change = Change(ChangeKind.REMOVE, name)
        return await self._change(change, lambda: self._member_of(name) is None)

    @override
    async def PromoteMember(
        self, request: pb.PromoteMemberRequest, context: Context
    ) -> pb.MemberReply:
        await self._cluster.read_barrier()
        name = self._known(request.name).name
        change = Change(ChangeKind.PROMOTE, name)
        return await self._change(change, lambda: self._known(name).is_voter)

    @override
    async def ReplaceMember(
        self, request: pb.ReplaceMemberRequest, context: Context
    ) -> pb.MemberReply:
        await self._cluster.read_barrier()
        now = self._known(request.name)
        lost = request.lost_incarnation or now.incarnation
        if lost > now.incarnation:
            raise InvalidArgument("lost_incarnation", f"{now.name} is at {now.incarnation}")
        change = Change(ChangeKind.REPLACE, now.name, lost + 1)
        was = member_addresses(self._cluster.view).get(now.name)
        if was is not None:
            ports = (was.raft_port, was.relay_port, was.api_port)
            change = Change(ChangeKind.REPLACE, now.name, lost + 1, was.host, *ports)
        return await self._change(
            _placed(change, request.place), lambda: self._known(now.name).incarnation > lost
        )

    async def _change(self, change: Change, is_done: Callable[[], bool]) -> pb.MemberReply:
        """Make a change unless it is made already; check that behind a barrier."""
        if not is_done():
            refused: ChangeRefused | None = None
            try:
                await self._membership.change_members(change)
            except ChangeRefused as error:
                refused = error
            # This node may not know yet what the leader has done, for this call or for its repeat
            # at another node. A node that removes itself will never know.
            if refused or (not is_done() and change.node != self._cluster.node):
                await self._cluster.read_barrier()
            if refused and not is_done():
                raise Conflict(str(refused)) from None
        return pb.MemberReply(members=self._shown(await self._statuses()))

    def _member_of(self, name: str) -> Member | None:
        return next((one for one in self._membership.members if one.name == name), None)

    def _known(self, name: str) -> Member:
        member = self._member_of(name)
        if member is not None:
            return member
        names = ", ".join(member.name for member in self._membership.members)
        raise InvalidArgument("name", f"{name[:64]!r} is not a member; the members are {names}")

    # Leadership and drain ----------------------------------------------------------------

    @override
    async def TransferLeadership(
        self, request: pb.TransferLeadershipRequest, context: Context
    ) -> pb.TransferLeadershipReply:
        leader = self._cluster.leadership.node
        if leader is not None and (request.to == leader or request.leader not in ("", leader)):
            return pb.TransferLeadershipReply(leader=leader, term=self._cluster.leadership.term)
        target = request.to or await self._nearest()
        self._known(target)
        try:
            await self._membership.transfer(target)
        except ChangeRefused as error:
            raise Conflict(str(error)) from None
        end = monotonic() + TRANSFER_WAIT_S
        while self._cluster.leadership.node != target:
            if monotonic() >= end:
                raise OutOfTime(
                    f"{target} does not lead after {TRANSFER_WAIT_S:.0f} s;"
                    f" {self._cluster.leadership.node or 'no node'} does"
                )
            await asyncio.sleep(POLL_S)
        leadership = self._cluster.leadership
        return pb.TransferLeadershipReply(leader=target, term=leadership.term)

    async def _nearest(self) -> str:
        """Return the voter, other than the leader, that has applied most."""
        statuses = await self._statuses()
        leader = self._cluster.leadership.node
        candidates = [
            (statuses[member.name].applied, member.name)
            for member in self._membership.members
            if member.is_voter and member.name != leader and member.name in statuses
        ]
        if not candidates:
            raise Conflict("no other voter answers: leadership stays where it is")
        return max(candidates)[1]

    @override
    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:
        return await self._drain(request.node, is_draining=True)

    @override
    async def Undrain(self, request: pb.DrainRequest, context: Context) -> pb.DrainReply:
        return await self._drain(request.node, is_draining=False)

    async def _drain(self, node: str, *, is_draining: bool) -> pb.DrainReply:
        node = self._known(node or self._cluster.node).name
        health = await self._operations.drain(node, is_draining=is_draining)
        return pb.DrainReply(sessions=health.session_count, is_leader=health.is_leader)

    @override
    async def GetScrub(self, request: pb.ScrubRequest, context: Context) -> pb.ScrubReply:
        return await self._scrub(request.node, begins=False)

    @override
    async def StartScrub(self, request: pb.ScrubRequest, context: Context) -> pb.ScrubReply:
        return await self._scrub(request.node, begins=True)

    async def _scrub(self, node: str, *, begins: bool) -> pb.ScrubReply:
        members = [self._known(node)] if node else self._membership.members
        reply = pb.ScrubReply()
        for member in members:
            try:
                state = await self._operations.scrub(member.name, begins=begins)
            except (Unavailable, KeyError):
                reply.nodes.append(pb.NodeScrub(node=member.name))
                continue
            found = pb.NodeScrub(node=member.name, is_reachable=True, **asdict(state))
            reply.nodes.append(found)
        return reply

    @override
    async def CanStop(self, request: pb.CanStopRequest, context: Context) -> pb.CanStopReply:
        node = self._known(request.node or self._cluster.node)
        if not node.is_voter:
            return pb.CanStopReply(can_stop=True, reason=f"{node.name} does not vote")
        statuses = await self._statuses()
        voters = [member.name for member in self._membership.members if member.is_voter]
        newest = max((status.commit for status in statuses.values()), default=0)
        left = [
            name
            for name in voters
            if name != node.name
            and name in statuses
            and statuses[name].applied + BEHIND_MAX >= newest
        ]
        needed = len(voters) // 2 + 1
        names = ", ".join(left) or "none"
        return pb.CanStopReply(
            can_stop=len(left) >= needed,
            reason=(
                f"{len(left)} of {len(voters)} voters would be left and up to date ({names});"
                f" {needed} are needed"
            ),
        )

    @override
    async def MarkAudit(self, request: pb.MarkAuditRequest, context: Context) -> pb.MarkAuditReply:
        if self._cluster.view.ledger.manager is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        number = self._cluster.now_ms()
        await self._decider.decide(AuditMark(number))
        return pb.MarkAuditReply(number=number)


def _name(name: str) -> str:
    if not name:
        raise InvalidArgument("name", "give the node's name")
    return name


def _placed(change: Change, place: pb.MemberPlace) -> Change:
    ports = (place.raft_port, place.relay_port, place.api_port)
    if any(port > PORT_MAX for port in ports):
        raise InvalidArgument("place", f"a port is at most {PORT_MAX}")
    return Change(
        change.kind,
        change.node,
        change.incarnation,
        place.host or change.host,
        place.raft_port or change.raft_port or RAFT_PORT,
        place.relay_port or change.relay_port or RELAY_PORT,
        place.api_port or change.api_port or API_PORT,
    )
