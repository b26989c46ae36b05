"""NodeControl: this node's events, log level, diagnostics and backups."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from typing_extensions import override

from qm.api.control.history import History
from qm.api.gate.calls import Context
from qm.api.gate.errors import InvalidArgument, NotFound, Unsupported
from qm.api.gate.events import EventLog
from qm.api.gate.operations import NotOffered, Operations, ReportFile
from qm.cluster.cluster import Cluster
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.store.backup import BackupHead

LEVELS: Final = ("debug", "info", "warning", "error")
EXPIRY_MAX_S: Final = 7 * 24 * 3600


class NodeControl(control_pb2_grpc.NodeControlServicer):
    """Implements `quorate.control.v1.NodeControl`."""

    def __init__(self, cluster: Cluster, operations: Operations, events: EventLog) -> None:
        self._cluster = cluster
        self._operations = operations
        self._events = events
        self._history = History(cluster)

    @override
    async def StreamEvents(
        self, request: pb.StreamEventsRequest, context: Context
    ) -> AsyncIterator[pb.Event]:
        if request.cluster:
            async for kept in self._history.read(request):
                yield kept
            return
        kinds = frozenset(request.kinds)
        async for event in self._events.read(request.after, follow=request.follow):
            if not kinds or event.kind in kinds:
                yield pb.Event(
                    number=event.number,
                    time_ms=event.time_ms,
                    node=self._cluster.node,
                    kind=event.kind,
                    name=event.name,
                    principal=event.principal,
                    text=event.text,
                    details=event.details,
                )

    @override
    async def SetLogLevel(
        self, request: pb.SetLogLevelRequest, context: Context
    ) -> pb.SetLogLevelReply:
        if request.level not in LEVELS:
            raise InvalidArgument("level", f"{request.level[:32]!r}; one of {', '.join(LEVELS)}")
        if request.expires_after_s > EXPIRY_MAX_S:
            raise InvalidArgument("expires_after_s", f"at most {EXPIRY_MAX_S}, or 0")
        previous = self._operations.set_log_level(
            request.level, request.logger, request.expires_after_s
        )
        return pb.SetLogLevelReply(previous_level=previous)

    @override
    async def GetDiagnostics(
        self, request: pb.GetDiagnosticsRequest, context: Context
    ) -> pb.Diagnostics:
        found = await self._operations.diagnostics()
        return pb.Diagnostics(
            node=self._cluster.node,
            version=self._operations.version,
            platform=found.platform,
            configuration=found.configuration,
            metrics=found.metrics,
            log_lines=found.log_lines,
            started_ms=found.started_ms,
            memory_bytes=found.memory_bytes,
            threads=found.threads,
            open_files=found.open_files,
        )

    @override
    async def ListReports(
        self, request: pb.ListReportsRequest, context: Context
    ) -> pb.ListReportsReply:
        try:
            found = await self._operations.reports()
        except NotOffered as error:
            raise Unsupported(str(error)) from None
        return pb.ListReportsReply(reports=map(_report, found.files), missing=found.missing)

    @override
    async def GetReport(self, request: pb.GetReportRequest, context: Context) -> pb.Report:
        try:
            content = await self._operations.report(request.path)
        except NotOffered as error:
            raise Unsupported(str(error)) from None
        except KeyError:
            raise NotFound(f"there is no report {request.path[:200]!r}") from None
        except ValueError as error:
            raise InvalidArgument("path", str(error)) from None
        return pb.Report(path=request.path, content=content)

    @override
    async def CreateBackup(
        self, request: pb.CreateBackupRequest, context: Context
    ) -> AsyncIterator[pb.BackupChunk]:
        is_first = True
        try:
            async with aclosing(self._operations.backup()) as parts:
                async for part in parts:
                    chunk = pb.BackupChunk(
                        data=part.data, manifest=part.manifest, signature=part.signature
                    )
                    if is_first:
                        chunk.total_bytes = part.total_bytes
                        chunk.head.CopyFrom(_head(part.head))
                        is_first = False
                    yield chunk
        except NotOffered as error:
            raise Unsupported(str(error)) from None


def _report(file: ReportFile) -> pb.ReportFile:
    return pb.ReportFile(path=file.path, size_bytes=file.size_bytes, written_ms=file.written_ms)


def _head(head: BackupHead) -> pb.BackupHead:
    return pb.BackupHead(
        cluster=bytes.fromhex(head.cluster),
        index=head.index,
        term=head.term,
        digest=bytes.fromhex(head.digest),
        state_version=head.state_version,
        created_ms=head.created_ms,
        source=head.source,
        build=head.build,
    )
