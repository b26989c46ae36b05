"""The cluster as the local queue manager of COM applications: `manager` over the client's calls."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from typing_extensions import override

from qm.client.blocking import BlockingClient, BlockingQueue, BlockingTransaction
from qm.client.calls import Method, Stubs
from qm.client.client import TRANSACTION_TIMEOUT_S, Access
from qm.client.errors import ClientError, MqError, NotAllowed, Unavailable, if_there
from qm.client.message import Message, PacketSigner, ReceivedMessage, Sent
from qm.client.mqac.cluster.management import ClusterManagement
from qm.client.mqac.cluster.pages import pages
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.client.mqac.manager import (
    AccessEntry,
    AccessList,
    MachineRecord,
    Management,
    OpenedQueue,
    ProductVersion,
    QueueManager,
    QueueRecord,
    Seek,
    Selection,
    UnitOfWork,
)
from qm.client.reading import FOREVER_S
from qm.client.reading import Selection as WireSelection
from qm.client.signing import new_signer
from qm.client.values import kept_entry, python_value, value_of
from qm.names.guid import guid_from_text, guid_text
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import MQ_OK, ErrorCode

INFINITE_MS: Final = 0xFFFF_FFFF
PAGE_QUEUES: Final = 1_000
VERSION: Final = ProductVersion(4, 1, 6000)
"""The version of MSMQ whose protocols are spoken, as [MC-MQAC] notes 13 to 15 give it."""
_COMPUTER_NAME: Final = "computer_name"
_DIRECTORY_PATH: Final = "directory_path"
_EVERYONE: Final = "Everyone"
_APPLICATION: Final = (pb.PRIVATE, pb.PUBLIC)
_MS: Final = 1_000
_LOCKED: Final = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
"""What a peek at one message answers when a transaction has locked it (DM-A5)."""
_GONE: Final = (ErrorCode.MQ_ERROR_STALE_HANDLE, ErrorCode.MQ_ERROR_INVALID_HANDLE)
"""What a read answers whose session, or open queue, ended."""
_ACCESS: Final = {
    MQACCESS.MQ_RECEIVE_ACCESS: Access.RECEIVE,
    MQACCESS.MQ_SEND_ACCESS: Access.SEND,
    MQACCESS.MQ_PEEK_ACCESS: Access.PEEK,
    MQACCESS.MQ_RECEIVE_ACCESS | MQACCESS.MQ_ADMIN_ACCESS: Access.RECEIVE_ADMIN,
    MQACCESS.MQ_PEEK_ACCESS | MQACCESS.MQ_ADMIN_ACCESS: Access.PEEK_ADMIN,
}
_SEEKS: Final = {
    Seek.FIRST: data_pb2.FIRST,
    Seek.AFTER: data_pb2.AFTER,
    Seek.EXACT: data_pb2.EXACT,
    Seek.NEXT: data_pb2.SEEK_NEXT,
    Seek.PREVIOUS: data_pb2.SEEK_PREVIOUS,
    Seek.LAST: data_pb2.SEEK_LAST,
}

_Q = TypeVar("_Q")
_R = TypeVar("_R")
_T = TypeVar("_T")


_INTERNAL_NAME: Final = "internal"
_INTERNAL_BITS: Final = 2_048
_INTERNAL_DAYS: Final = 365


class ClusterManager(QueueManager):
    """Calls of a client, with their errors as HRESULTs."""

    def __init__(
        self,
        client: BlockingClient,
        signers: Sequence[PacketSigner] = (),
        transaction_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """`signers`: whose keys are here; the first one's certificate is the internal one.
        `transaction_s`: after this time the cluster aborts a transaction.
        """
        self.client: Final = client
        self._transaction_s = transaction_s
        self._signers = {one.certificate: one for one in signers}
        self._internal = signers[0] if signers else None
        self._opened: WeakValueDictionary[int, ClusterQueue] = WeakValueDictionary()

    @property
    @override
    def computer_name(self) -> str:
        return self.client.computer_name

    @property
    @override
    def identifier(self) -> bytes:
        return self._own_machine.identifier

    @property
    @override
    def version(self) -> ProductVersion:
        return VERSION

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)

    def call(self, method: Callable[[Stubs], Method[_Q, _R]], request: _Q) -> _R:
        """Make a call of any service."""
        return asked(lambda: self.client.call(method, request))

    @override
    def attributes(self) -> Mapping[str, Any]:
        found = self.call(lambda stubs: stubs.queues.GetQueueManager, pb.GetQueueManagerRequest())
        return {name: python_value(found.attributes[name]) for name in found.attributes}

    @override
    def management(self, computer_name: str) -> Management:
        if computer_name and not self._is_own(computer_name):
            # The management protocol of other queue managers ([MS-MQMR]) is not spoken.
            raise MqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return ClusterManagement(self.call)

    # The directory -------------------------------------------------------------------------

    @override
    def machine(self, computer_name: str) -> MachineRecord:
        if self._is_own(computer_name):
            return self._own_machine
        wanted = computer_name.casefold()
        return self._other_machine(lambda one: one.computer_name.casefold() == wanted)

    @override
    def machine_of(self, identifier: bytes) -> MachineRecord:
        own = self._own_machine
        if own.identifier == identifier:
            return own
        return self._other_machine(lambda one: one.identifier == identifier)

    def _other_machine(self, is_wanted: Callable[[MachineRecord], bool]) -> MachineRecord:
        """Return a queue manager of the directory, which the API lets operators read."""
        for page in pages(
            lambda token: self.call(
                lambda stubs: stubs.directory.ListObjects,
                pb.ListObjectsRequest(
                    object_class="queue_manager", attributes=[_COMPUTER_NAME], page_token=token
                ),
            )
        ):
            for one in page.objects:
                name = python_value(one.attributes[_COMPUTER_NAME]) or ""
                found = MachineRecord(one.identifier, name)
                if is_wanted(found):
                    return found
        raise MqError(ErrorCode.MQ_ERROR_MACHINE_NOT_FOUND)

    @override
    def format_name_of_directory_path(self, path: str) -> str:
        identifier = guid_from_text(path.rpartition("/")[2])
        if identifier is not None and not self.attributes().get("directory_offline"):
            name = f"PUBLIC={guid_text(identifier)}"
            found = self.queue(name).attributes.get(_DIRECTORY_PATH, "")
            if found.casefold() == path.casefold():
                return name
        raise MqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)

    @override
    def public_queues(self) -> Iterator[QueueRecord]:
        for page in pages(
            lambda token: self.call(
                lambda stubs: stubs.queues.ListQueues,
                pb.ListQueuesRequest(page_size=PAGE_QUEUES, page_token=token),
            )
        ):
            for queue in page.queues:
                if queue.type != pb.PUBLIC or queue.is_deleting:
                    continue
                found = if_there(partial(self._queue, pb.QueueName(queue_id=queue.queue_id)))
                if found is not None:
                    yield found

    # Queues --------------------------------------------------------------------------------

    @override
    def queue(self, name: str) -> QueueRecord:
        return self._queue(pb.QueueName(name=name))

    @override
    def create_queue(
        self, path_name: str, attributes: Mapping[str, Any], *, is_world_readable: bool
    ) -> QueueRecord:
        queue = self.call(
            lambda stubs: stubs.queues.CreateQueue,
            pb.CreateQueueRequest(path_name=path_name, attributes=_values(attributes)),
        )
        if is_world_readable:
            self._let_everyone_read(queue.queue_id)
        return _record(queue)

    @override
    def change_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        self.call(
            lambda stubs: stubs.queues.SetQueue,
            pb.SetQueueRequest(queue=pb.QueueName(name=name), changes=_values(changes)),
        )

    @override
    def delete_queue(self, name: str) -> None:
        self.call(
            lambda stubs: stubs.queues.DeleteQueue,
            pb.DeleteQueueRequest(queue=pb.QueueName(name=name)),
        )

    @override
    def access_list(self, name: str) -> AccessList:
        acl = self.call(
            lambda stubs: stubs.queues.GetAcl, pb.GetAclRequest(queue=pb.QueueName(name=name))
        )
        allowed = [
            AccessEntry(each.sid, each.mask) for each in acl.entries if each.type == pb.ALLOW
        ]
        return AccessList(acl.owner_sid, allowed)

    @override
    def open_queue(self, format_name: str, access: MQACCESS, share_mode: MQSHARE) -> OpenedQueue:
        mode = _ACCESS.get(access)
        if mode is None:
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        is_exclusive = share_mode == MQSHARE.MQ_DENY_RECEIVE_SHARE
        opened = asked(lambda: self.client.open_queue(format_name, mode, exclusive=is_exclusive))
        found = ClusterQueue(self, format_name, opened)
        self._opened[found.handle] = found
        return found

    @override
    def opened(self, handle: int) -> OpenedQueue | None:
        return self._opened.get(handle)

    def forget(self, handle: int) -> None:
        """Have no handle of a queue that was closed."""
        self._opened.pop(handle, None)

    # Messages ------------------------------------------------------------------------------

    @override
    def send(
        self, format_names: Sequence[str], message: Message, unit: UnitOfWork | None = None
    ) -> Sent:
        # AC-A54: a full queue or queue manager is MQ_ERROR_INSUFFICIENT_RESOURCES already.
        if unit is None:
            return asked(lambda: self.client.send(format_names, message))[0]
        work = _own(unit)
        return asked(lambda: work.send(format_names, message))[0]

    @override
    def send_single(self, format_names: Sequence[str], message: Message) -> Sent:
        def send() -> Sent:
            with self.client.transaction() as single:
                return single.send(format_names, message)[0]

        return asked(send)

    @override
    def signer(self, certificate: bytes) -> PacketSigner | None:
        return self._signers.get(certificate) if certificate else self._internal

    @override
    def register_certificate(self, certificate: bytes | None, *, only_if_none: bool) -> int:
        made = None
        if certificate is None:
            made = new_signer(_INTERNAL_NAME, _INTERNAL_BITS, _INTERNAL_DAYS)
            certificate = made.certificate
        reply = self.call(
            lambda stubs: stubs.certificates.Register,
            pb.RegisterCertificateRequest(
                certificate=certificate,
                is_internal=made is not None,
                if_not_exist=only_if_none,
            ),
        )
        if made is not None and reply.status == MQ_OK:
            self._signers[made.certificate] = self._internal = made
        return reply.status

    @override
    def begin_transaction(self) -> UnitOfWork:
        begin = partial(self.client.begin_transaction, self._transaction_s)
        return ClusterTransaction(asked(begin))

    @override
    def close(self) -> None:
        asked(self.client.close)

    # ---------------------------------------------------------------------------------------

    def _is_own(self, computer_name: str) -> bool:
        own = self.computer_name.upper()
        name = computer_name.upper()
        return name == own or name.partition(".")[0] == own

    @cached_property
    def _own_machine(self) -> MachineRecord:
        """The cluster's identity, which never changes."""
        found = self.call(lambda stubs: stubs.queues.GetQueueManager, pb.GetQueueManagerRequest())
        return MachineRecord(found.identifier, found.computer_name)

    def _queue(self, name: pb.QueueName) -> QueueRecord:
        found = self.call(lambda stubs: stubs.queues.GetQueue, pb.GetQueueRequest(queue=name))
        if found.kind == pb.OUTGOING:
            # Messages are on their way to it: the queue itself is out of reach.
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION)
        return _record(found)

    def _let_everyone_read(self, queue_id: int) -> None:
        """AC-A14: allow Everyone to receive and peek."""
        name = pb.QueueName(queue_id=queue_id)
        acl = self.call(lambda stubs: stubs.queues.GetAcl, pb.GetAclRequest(queue=name))
        added = pb.Ace(
            type=pb.ALLOW,
            principal=_EVERYONE,
            mask=QueueAccess.RECEIVE_MESSAGE | QueueAccess.PEEK_MESSAGE,
        )
        self.call(
            lambda stubs: stubs.queues.SetAcl,
            pb.SetAclRequest(
                queue=name, entries=[*map(kept_entry, acl.entries), added], if_version=acl.version
            ),
        )


class ClusterTransaction(UnitOfWork):
    """A transaction of the client; it begins at the cluster with its first use."""

    def __init__(self, transaction: BlockingTransaction) -> None:
        self.transaction: Final = transaction

    @property
    @override
    def identifier(self) -> bytes:
        return self.transaction.transaction.identifier

    @override
    def commit(self) -> None:
        asked(self.transaction.commit)

    @override
    def abort(self) -> None:
        asked(self.transaction.abort)


class ClusterQueue(OpenedQueue):
    """A queue, or several for sending, open in a session of its own."""

    def __init__(self, manager: ClusterManager, format_name: str, queue: BlockingQueue) -> None:
        self._manager = manager
        self._format_name = format_name
        self._queue = queue
        self._is_closed = False

    @property
    @override
    def format_name(self) -> str:
        return self._format_name

    @property
    @override
    def handle(self) -> int:
        return self._queue.queue.opened.handle

    @override
    def take(
        self,
        selection: Selection,
        timeout_ms: int,
        unit: UnitOfWork | None = None,
        *,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        queue, wire, timeout_s = self._queue, _wire(selection), _seconds(timeout_ms)
        if unit is None:
            return self._read(lambda: queue.receive(timeout_s, selection=wire))
        work = _own(unit)
        return asked(lambda: work.receive(queue, timeout_s, selection=wire, allow_peek=allow_peek))

    @override
    def look(self, selection: Selection, timeout_ms: int) -> ReceivedMessage | None:
        try:
            return self._peek(selection, timeout_ms)
        except MqError as error:
            if selection.seek is Seek.EXACT and error.code == _LOCKED:
                return None
            raise

    @override
    def holds(self, lookup_identifier: int) -> bool:
        try:
            return self._peek(Selection(Seek.EXACT, lookup_identifier), 0) is not None
        except MqError as error:
            if error.code == _LOCKED:
                return True
            raise

    def _peek(self, selection: Selection, timeout_ms: int) -> ReceivedMessage | None:
        wire, timeout_s = _wire(selection), _seconds(timeout_ms)
        return self._read(lambda: self._queue.peek(timeout_s, selection=wire))

    def _read(self, read: Callable[[], ReceivedMessage | None]) -> ReceivedMessage | None:
        """Read; say so if it ends because the queue is closed [MS-MQDMPR 3.1.7.1.6]."""
        try:
            return asked(read)
        except MqError as error:
            if self._is_closed and error.code in _GONE:
                raise MqError(ErrorCode.MQ_ERROR_OPERATION_CANCELLED) from error
            raise

    @override
    def purge(self) -> None:
        name = pb.QueueName(queue_id=self._queue.queue.queue_id)
        self._manager.call(lambda stubs: stubs.queues.PurgeQueue, pb.PurgeQueueRequest(queue=name))

    @override
    def close(self) -> None:
        self._forget()
        asked(self._queue.close)

    @override
    def abandon(self) -> None:
        self._forget()
        asked(lambda: self._queue.close(confirm=False))

    def _forget(self) -> None:
        self._is_closed = True
        self._manager.forget(self.handle)


def asked(call: Callable[[], _T]) -> _T:
    """Return what a call of the client returns. Raises MqError, whatever the client raised."""
    try:
        return call()
    except MqError:
        raise
    except Unavailable as error:
        raise MqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, str(error)) from error
    except NotAllowed as error:
        raise MqError(ErrorCode.MQ_ERROR_ACCESS_DENIED, str(error)) from error
    except ClientError as error:
        raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error)) from error


def _own(unit: UnitOfWork) -> BlockingTransaction:
    assert isinstance(unit, ClusterTransaction), "a transaction of another queue manager"
    return unit.transaction


def _wire(selection: Selection) -> WireSelection:
    return WireSelection(_SEEKS[selection.seek], selection.lookup_identifier)


def _seconds(timeout_ms: int) -> float:
    return FOREVER_S if timeout_ms == INFINITE_MS else timeout_ms / _MS


def _record(queue: pb.Queue) -> QueueRecord:
    return QueueRecord(
        queue.path_name,
        queue.format_name,
        queue.type in _APPLICATION,
        {name: python_value(queue.attributes[name]) for name in queue.attributes},
    )


def _values(attributes: Mapping[str, Any]) -> dict[str, pb.Value]:
    return {name: value_of(value) for name, value in attributes.items()}
