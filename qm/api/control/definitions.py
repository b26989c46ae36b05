"""DefinitionControl: export, diff and import of definitions (`qm.api.convert.definitions`)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from typing_extensions import override

from qm.api.control.queues import QueueControl
from qm.api.convert.definitions import (
    MANAGER_SETTINGS,
    QUEUE_SETTINGS,
    Access,
    Document,
    Picture,
    Plain,
    QueueDefinition,
    local_path,
    present,
    read_document,
    take_picture,
    to_plain,
    wanted_descriptor,
    wanted_values,
    write_document,
)
from qm.api.convert.values import plain_value
from qm.api.gate.calls import Context
from qm.api.gate.errors import Conflict, InvalidArgument, MsmqError
from qm.cluster.cluster import Cluster
from qm.model.queries import find_by_path
from qm.model.values.attributes import QUEUE_ATTRIBUTES, QUEUE_MANAGER_ATTRIBUTES
from qm.model.values.records import Queue, QueueManager
from qm.names.errors import QueueNameError
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.codes import ErrorCode

_Kind = pb.DefinitionChange


class _Step(msgspec.Struct, frozen=True):
    """One change, and the function that makes it."""

    change: pb.DefinitionChange
    make: Callable[[Context], Awaitable[object]]


class DefinitionControl(control_pb2_grpc.DefinitionControlServicer):
    """Implements `quorate.control.v1.DefinitionControl`, by the calls of `QueueControl`."""

    def __init__(self, cluster: Cluster, queues: QueueControl) -> None:
        self._cluster = cluster
        self._queues = queues

    @override
    async def Export(self, request: pb.ExportRequest, context: Context) -> pb.Definitions:
        await self._cluster.read_barrier()
        picture = await take_picture(self._cluster, self._manager())
        text = await asyncio.to_thread(lambda: write_document(present(picture)))
        return pb.Definitions(document=text)

    @override
    async def Diff(self, request: pb.ImportRequest, context: Context) -> pb.ImportReply:
        return pb.ImportReply(changes=[step.change for step in await self._steps(request)])

    @override
    async def Import(self, request: pb.ImportRequest, context: Context) -> pb.ImportReply:
        steps = await self._steps(request)
        for step in steps:
            if step.change.kind == _Kind.CONFLICT:
                names = ", ".join(one.name for one in step.change.attributes)
                raise Conflict(
                    f"{step.change.path_name}: {names} cannot be changed; delete the queue first."
                    " Nothing was imported"
                )
        for step in steps:
            await step.make(context)
        return pb.ImportReply(changes=[step.change for step in steps])

    def _manager(self) -> QueueManager:
        manager = self._cluster.view.ledger.manager
        if manager is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return manager

    # Steps -------------------------------------------------------------------------------

    async def _steps(self, request: pb.ImportRequest) -> list[_Step]:
        # YAML takes long, and other calls must not wait for it.
        document = await asyncio.to_thread(read_document, request.document)
        await self._cluster.read_barrier()
        steps = [self._manager_step(document)]
        for queue in document.queues:
            steps.append(self._queue_step(queue))
            await asyncio.sleep(0)
        if request.prune:
            picture = await take_picture(self._cluster, self._manager())
            steps += self._deletions(document, picture)
        return [step for step in steps if step is not None]

    def _manager_step(self, document: Document) -> _Step | None:
        manager, wanted = self._manager(), document.queue_manager
        values = wanted_values(
            wanted.attributes, QUEUE_MANAGER_ATTRIBUTES, MANAGER_SETTINGS, "queue_manager"
        )
        changes, told = _differences(manager, values, QUEUE_MANAGER_ATTRIBUTES)
        security = _descriptor(wanted.access, manager.security, MachineAccess, "queue_manager")
        if security != manager.security:
            changes["security"] = pb.Value(data=security)
            told.append(pb.AttributeChange(name="access"))
        if not changes:
            return None
        call = pb.SetQueueManagerRequest(changes=changes)
        return _Step(
            _Kind(kind=_Kind.CHANGE, attributes=told),
            lambda context: self._queues.SetQueueManager(call, context),
        )

    def _queue_step(self, wanted: QueueDefinition) -> _Step | None:
        where = wanted.path_name
        values = wanted_values(wanted.attributes, QUEUE_ATTRIBUTES, QUEUE_SETTINGS, where)
        try:
            local_path(where)
        except QueueNameError as error:
            raise InvalidArgument("document", f"{where}: {error.reason}") from None
        found = find_by_path(self._cluster.view, where)
        queue = self._cluster.view.ledger.queue(found.queue_id) if found.queue_id else None
        if queue is None:
            return self._creation(wanted, values)
        record = queue.record
        changes, told = _differences(record, values, QUEUE_ATTRIBUTES)
        security = _descriptor(wanted.access, record.security, QueueAccess, where)
        if security != record.security:
            changes["security"] = pb.Value(data=security)
            told.append(pb.AttributeChange(name="access"))
        if not changes:
            return None
        fixed = [one for one in told if one.name in _FIXED]
        if fixed:
            conflict = _Kind(kind=_Kind.CONFLICT, path_name=where, attributes=fixed)
            return _Step(conflict, _nothing)
        call = pb.SetQueueRequest(queue=pb.QueueName(queue_id=record.queue_id), changes=changes)
        return _Step(
            _Kind(kind=_Kind.CHANGE, path_name=where, attributes=told),
            lambda context: self._queues.SetQueue(call, context),
        )

    def _creation(self, wanted: QueueDefinition, values: dict[str, pb.Value]) -> _Step:
        call = pb.CreateQueueRequest(
            path_name=wanted.path_name,
            attributes=values,
            security_descriptor=_descriptor(wanted.access, b"", QueueAccess, wanted.path_name),
            if_not_exists=True,
        )
        told = [
            pb.AttributeChange(name=name, to=_text(plain))
            for name, plain in wanted.attributes.items()
        ]
        return _Step(
            _Kind(kind=_Kind.CREATE, path_name=wanted.path_name, attributes=told),
            lambda context: self._queues.CreateQueue(call, context),
        )

    def _deletions(self, document: Document, picture: Picture) -> list[_Step | None]:
        kept = {local_path(queue.path_name).lower() for queue in document.queues}
        here = sorted(local_path(record.pathname) for record in picture.queues)
        return [self._deletion(name) for name in here if name.lower() not in kept]

    def _deletion(self, path_name: str) -> _Step:
        call = pb.DeleteQueueRequest(queue=pb.QueueName(name=path_name))
        return _Step(
            _Kind(kind=_Kind.DELETE, path_name=path_name),
            lambda context: self._queues.DeleteQueue(call, context),
        )


_FIXED = frozenset(name for name, one in QUEUE_ATTRIBUTES.items() if one.is_immutable)


async def _nothing(_context: Context) -> None:
    """Do nothing: a conflict cannot be resolved here."""


def _descriptor(
    access: Access | None,
    security: bytes,
    kind: type[QueueAccess] | type[MachineAccess],
    where: str,
) -> bytes:
    """Return the wanted descriptor; without `access` the existing one."""
    return security if access is None else wanted_descriptor(access, security, kind, where)


def _differences(
    record: Queue | QueueManager, wanted: Mapping[str, pb.Value], known: Mapping[str, Any]
) -> tuple[dict[str, pb.Value], list[pb.AttributeChange]]:
    """Return the values that differ from a record's, and how."""
    changes, told = {}, []
    for name, value in wanted.items():
        plain, here = plain_value(known, name, value, "document"), getattr(record, name)
        if plain != here:
            changes[name] = value
            told.append(
                pb.AttributeChange(
                    **{"name": name, "from": _text(to_plain(here)), "to": _text(to_plain(plain))}
                )
            )
    return changes, told


def _text(plain: Plain) -> str:
    return ", ".join(plain) if isinstance(plain, list) else str(plain)
