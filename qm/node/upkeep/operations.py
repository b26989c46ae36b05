"""Implements `qm.api.gate.operations.Operations`: what the control plane needs from the process.

Requests about another node are sent to its relay endpoint.
"""

import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from typing_extensions import override

from qm.api.gate.operations import (
    BackupPart,
    Diagnostics,
    Health,
    Link,
    LinkEvent,
    NextKeys,
    Operations,
    ReportList,
    ScrubState,
)
from qm.cluster.cluster import Unavailable
from qm.cluster.peer_sessions import SessionsFound, SessionsWanted
from qm.edge.outgoing import LinkReport
from qm.model.values.elements import OutgoingQueueState
from qm.node.audits import Shelf
from qm.node.membership.manager_keys import NodeKeys
from qm.node.membership.status import VERSION
from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.node.relay.session_lists import sessions_found, sessions_request
from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep.backup import Backups
from qm.node.upkeep.consensus_health import consensus_alarms
from qm.node.upkeep.diagnosis import Diagnosis
from qm.node.upkeep.drain import Drain
from qm.node.upkeep.housekeeping import DiskWatch
from qm.node.upkeep.log_levels import LogLevels
from qm.node.upkeep.msmq_endpoint import MsmqEndpoint
from qm.node.upkeep.scrubber import Scrubber
from qm.pb import relay_pb2
from qm.session.link import ConnectionStatus as SessionStatus
from qm.wire.enums import ConnectionStatus
from raft.types import Role

ASK_TIMEOUT_S: Final = 5.0
DRAIN_TIMEOUT_S: Final = 30.0
LINKS_MAX: Final = 1_000
"""Queues in one request."""
_STATUS_NUMBERS: Final = dict(zip(SessionStatus, ConnectionStatus, strict=True))
"""Names of [MS-MQDMPR 3.1.1.3] as numbers of [MS-MQMQ 2.3.12.25], which lists them alike."""


class NodeOperations(Operations):
    """This node's part in operations, and calls to other nodes for theirs."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        channels: Channels,
        disk: DiskWatch,
        drain: Drain,
        msmq: MsmqEndpoint,
        backups: Backups,
        diagnosis: Diagnosis,
        scrubber: Scrubber,
        keys: NodeKeys,
        data: Path,
        shelf: Shelf,
    ) -> None:
        self._shelf = shelf
        self._keys = keys
        self._msmq = msmq
        self._backups = backups
        self._diagnosis = diagnosis
        self._scrubber = scrubber
        self.log_levels: Final = LogLevels()
        self._replicated = replicated
        self._channels = channels
        self._disk = disk
        self._drain = drain
        self._data = data

    # Operations

    @property
    @override
    def version(self) -> str:
        return VERSION

    @override
    def health(self) -> Health:
        total = shutil.disk_usage(self._data).total
        alarms = () if self._disk.admits_messages else (f"disk_{self._disk.level.name.lower()}",)
        status = self._replicated.driver.status()
        return Health(
            self._disk.free_bytes(),
            total,
            alarms + consensus_alarms(status),
            self._drain.is_draining,
            self._msmq.session_count(),
            status.role is Role.LEADER,
        )

    @override
    async def drain(self, node: str, *, is_draining: bool) -> Health:
        if node == self._replicated.node:
            await self.drain_here(is_draining)
            return self.health()
        request = relay_pb2.DrainRequest(is_draining=is_draining)
        reply = await self._ask_member(node, "Drain", request, DRAIN_TIMEOUT_S)
        return Health(
            reply.disk_free_bytes,
            reply.disk_total_bytes,
            tuple(reply.alarms),
            reply.is_draining,
            reply.session_count,
            reply.is_leader,
        )

    @override
    async def scrub(self, node: str, *, begins: bool) -> ScrubState:
        if node == self._replicated.node:
            return self.scrub_here(begins=begins)
        request = relay_pb2.ScrubRequest(begins=begins)
        reply = await self._ask_member(node, "Scrub", request, ASK_TIMEOUT_S)
        return ScrubState(
            reply.live_bytes,
            reply.done_bytes,
            reply.is_asked,
            reply.rounds,
            reply.ended_ms,
            reply.damage_found,
            reply.damage_left,
            tuple(reply.damaged),
        )

    @override
    async def sessions(self, node: str, wanted: SessionsWanted) -> SessionsFound:
        if node == self._replicated.node:
            return self.sessions_here(wanted)
        request = sessions_request(wanted)
        return sessions_found(await self._ask_member(node, "Sessions", request, ASK_TIMEOUT_S))

    @override
    async def links(self, queue_ids: Sequence[int]) -> Mapping[int, Link]:
        request = relay_pb2.LinksRequest(queue_ids=queue_ids[:LINKS_MAX])
        leadership = self._replicated.leadership
        if leadership.is_here or leadership.node is None:
            reply = self.links_here(request)
        else:
            reply = await self._ask(leadership.node, "Links", request, ASK_TIMEOUT_S)
        return {
            link.queue_id: Link(
                OutgoingQueueState(link.state),
                tuple(link.next_hops),
                tuple(map(_link_event, link.connection_events)),
                link.resend_count,
                link.next_resend_ms,
                link.last_error,
                link.last_ack_time_s,
                link.last_ack_count,
                link.resend_interval_s,
            )
            for link in reply.links
        }

    @override
    async def resend(self, queue_id: int) -> None:
        leadership = self._replicated.leadership
        if leadership.is_here:
            self.resend_here(queue_id)
        elif leadership.node is None:
            raise Unavailable("there is no leader")
        else:
            request = relay_pb2.ResendRequest(queue_id=queue_id)
            await self._ask(leadership.node, "Resend", request, ASK_TIMEOUT_S)

    async def _ask_member(self, node: str, method: str, request: Any, timeout_s: float) -> Any:
        """Call a node that somebody named. Raises KeyError for an unknown one, Unavailable."""
        if self._replicated.addresses.get(node) is None:
            raise KeyError(node)
        return await self._ask(node, method, request, timeout_s)

    async def _ask(self, node: str, method: str, request: Any, timeout_s: float) -> Any:
        """Call another node. Raises Unavailable, also while its address is not known here."""
        try:
            stub = await self._channels.stub(node)
            return await reply_to(getattr(stub, method), request, timeout_s=timeout_s)
        except (Unreachable, grpc.aio.AioRpcError) as error:
            raise Unavailable(f"{node} does not answer: {error}") from error

    @override
    def set_log_level(self, level: str, logger: str, expires_after_s: int) -> str:
        return self.log_levels.set(level, logger, expires_after_s)

    @override
    async def diagnostics(self) -> Diagnostics:
        return await self._diagnosis.make()

    @override
    async def reports(self) -> ReportList:
        return await self._shelf.listed()

    @override
    async def report(self, path: str) -> bytes:
        return await self._shelf.read(path)

    @override
    async def next_keys(self) -> NextKeys:
        return await self._keys.next_keys()

    @override
    async def sealed(self, secret: bytes, label: bytes) -> bytes:
        return await self._keys.sealed(secret, label)

    @override
    def backup(self) -> AsyncGenerator[BackupPart, None]:
        return self._backups.parts()

    # Asked by other nodes

    async def drain_here(self, is_draining: bool) -> None:
        """Drain this node, or let it serve again."""
        if is_draining:
            await self._drain.begin()
        else:
            await self._drain.end()

    def scrub_here(self, *, begins: bool) -> ScrubState:
        """Return how far this node has read back what it stores."""
        if begins:
            self._scrubber.ask()
        return self._scrubber.state()

    def sessions_here(self, wanted: SessionsWanted) -> SessionsFound:
        """Return this node's live sessions with other queue managers."""
        return self._msmq.sessions(wanted)

    def links_here(self, request: relay_pb2.LinksRequest) -> relay_pb2.LinksReply:
        """Return what this node knows of links; nothing unless it leads."""
        reply = relay_pb2.LinksReply()
        for queue_id in request.queue_ids:
            outgoing = self._msmq.outgoing
            report = None if outgoing is None else outgoing.report(queue_id)
            if report is not None:
                reply.links.append(_link(queue_id, report))
        return reply

    def resend_here(self, queue_id: int) -> bool:
        """Resend what waits for an order acknowledgement; return whether there is a link."""
        outgoing = self._msmq.outgoing
        return outgoing is not None and outgoing.resend(queue_id)


def _link_event(event: relay_pb2.LinkEvent) -> LinkEvent:
    status = ConnectionStatus(event.status)
    return LinkEvent(status, event.time_s, event.error, event.address)


def _link(queue_id: int, report: LinkReport) -> relay_pb2.Link:
    newest = report.connection_history[-1] if report.connection_history else None
    last_error = ""
    if newest is not None and newest.error:
        last_error = f"{newest.status.value} {newest.address_list}".rstrip()
    return relay_pb2.Link(
        queue_id=queue_id,
        state=OutgoingQueueState[report.state.name],
        next_hops=report.next_hops,
        connection_events=[
            relay_pb2.LinkEvent(
                status=_STATUS_NUMBERS[entry.status],
                time_s=entry.connection_history_time,
                error=entry.error,
                address=entry.address_list,
            )
            for entry in report.connection_history
        ],
        resend_count=report.eod_resend_count,
        next_resend_ms=report.eod_resend_time * 1000,
        last_error=last_error,
        last_ack_time_s=report.eod_last_ack_time,
        last_ack_count=report.eod_last_ack_count,
        resend_interval_s=report.eod_resend_interval_s,
    )
