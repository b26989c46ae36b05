"""What the objects of [MC-MQAC] need of the queue manager that they stand for.

The objects know no other way to it: `cluster_manager` implements these interfaces over the client,
and a server that offers the objects to others implements them over its own state. Every method
raises MqError, whose `code` is an HRESULT, and nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

import msgspec

from qm.client.message import Message, PacketSigner, ReceivedMessage, Sent
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.wire.property_id import MachineManagementProperty, QueueManagementProperty


class Seek(Enum):
    """Where a read looks."""

    FIRST = "first"
    """At the head; waits for a message."""
    AFTER = "after"
    """After a LookupIdentifier that need not exist; waits for a message."""
    EXACT = "exact"
    """At a LookupIdentifier; this and the following ones never wait."""
    NEXT = "next"
    """Behind a message that must be there, locked or not (AC-A50); PREVIOUS likewise."""
    PREVIOUS = "previous"
    LAST = "last"


class Selection(msgspec.Struct, frozen=True):
    """Which message to read."""

    seek: Seek = Seek.FIRST
    lookup_identifier: int = 0


FIRST = Selection()


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue of the queue manager or of its directory."""

    path_name: str
    format_name: str
    is_application: bool
    """Whether it is a public or private queue, none of the queue manager's own."""
    attributes: Mapping[str, Any]
    """[MS-MQDMPR] 3.1.1.2, by name in snake case."""


class AccessEntry(msgspec.Struct, frozen=True):
    """An entry that allows something."""

    sid: str
    mask: int
    """[MS-MQMQ] 2.2.25."""


class AccessList(msgspec.Struct, frozen=True):
    """Who may do what with a queue."""

    owner_sid: str
    allowed: Sequence[AccessEntry]


class MachineRecord(msgspec.Struct, frozen=True):
    """A queue manager of the directory."""

    identifier: bytes
    """GUID, 16 raw bytes."""
    computer_name: str


class ProductVersion(msgspec.Struct, frozen=True):
    """Version that the queue manager reports."""

    major: int
    minor: int
    build: int


class UnitOfWork(Protocol):
    """A transaction of the queue manager."""

    @property
    def identifier(self) -> bytes:
        """GUID, 16 raw bytes."""

    def commit(self) -> None:
        """Commit it."""

    def abort(self) -> None:
        """Abort it."""


class OpenedQueue(Protocol):
    """A queue that is open: OpenQueueDescriptor."""

    @property
    def format_name(self) -> str:
        """Format name under which it was opened."""

    @property
    def handle(self) -> int:
        """64 bits; unique among the queue manager's."""

    def take(
        self,
        selection: Selection,
        timeout_ms: int,
        unit: UnitOfWork | None = None,
        *,
        allow_peek: bool = False,
    ) -> ReceivedMessage | None:
        """Receive a message, in a transaction or not; None if there is none within the time.

        Locked messages count as none. `allow_peek`: it stays visible to peeks until the transaction
        ends.
        """

    def look(self, selection: Selection, timeout_ms: int) -> ReceivedMessage | None:
        """Peek at a message; None if there is none within the time."""

    def holds(self, lookup_identifier: int) -> bool:
        """Whether a message is in the queue, locked or not."""

    def purge(self) -> None:
        """Delete every message that is not locked."""

    def close(self) -> None:
        """Close it, and everything that it opened."""

    def abandon(self) -> None:
        """Close it for a reader that is lost: what it took last, and is not known to have got, is
        dead-lettered.
        """


class Management(Protocol):
    """A queue manager as [MS-MQMR] shows it: one property, or one action, at a time.

    Values have the Python type of the property's VARIANT type: str, int, and lists of them; GUIDs
    and SEQUENCE_INFO are bytes.
    """

    def machine_info(self, property_id: MachineManagementProperty) -> Any:
        """R_QMMgmtGetInfo of MGMT_MACHINE."""

    def queue_info(self, format_name: str, property_id: QueueManagementProperty) -> Any:
        """R_QMMgmtGetInfo of MGMT_QUEUE."""

    def act_on_machine(self, action: str) -> None:
        """R_QMMgmtAction of MGMT_MACHINE: CONNECT, DISCONNECT, TIDY in any case."""

    def act_on_queue(self, format_name: str, action: str) -> None:
        """R_QMMgmtAction of MGMT_QUEUE: PAUSE, RESUME, EOD_RESEND in any case."""


class QueueManager(Protocol):
    """The queue manager that the objects stand for."""

    @property
    def computer_name(self) -> str:
        """NetBIOS name that "." means in path names."""

    @property
    def identifier(self) -> bytes:
        """Its GUID, 16 raw bytes."""

    @property
    def version(self) -> ProductVersion:
        """Version that MSMQApplication reports."""

    def now(self) -> datetime:
        """Return the time, UTC."""

    def attributes(self) -> Mapping[str, Any]:
        """Return the queue manager's attributes ([MS-MQDMPR] 3.1.1.1), by name in snake case."""

    def management(self, computer_name: str) -> Management:
        """Return the management of a queue manager; "" means this one."""

    # The directory -------------------------------------------------------------------------

    def machine(self, computer_name: str) -> MachineRecord:
        """Return the queue manager of a computer."""

    def machine_of(self, identifier: bytes) -> MachineRecord:
        """Return the queue manager with this GUID."""

    def format_name_of_directory_path(self, path: str) -> str:
        """Return the format name of a directory's queue. Raises MQ_ERROR_QUEUE_NOT_FOUND."""

    def public_queues(self) -> Iterator[QueueRecord]:
        """Return every public queue, with its attributes."""

    # Queues --------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRecord:
        """Return the queue with this path name or format name, with its attributes.

        Raises MQ_ERROR_UNSUPPORTED_OPERATION for one of another computer.
        """

    def create_queue(
        self, path_name: str, attributes: Mapping[str, Any], *, is_world_readable: bool
    ) -> QueueRecord:
        """Create a queue; `is_world_readable`: everybody may receive from it and peek."""

    def change_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """Set attributes of a queue."""

    def delete_queue(self, name: str) -> None:
        """Delete a queue and its messages."""

    def access_list(self, name: str) -> AccessList:
        """Return who may do what with a queue."""

    def open_queue(self, format_name: str, access: MQACCESS, share_mode: MQSHARE) -> OpenedQueue:
        """Open the queue, or every queue, that a format name means; all or none."""

    def opened(self, handle: int) -> OpenedQueue | None:
        """Return what `open_queue` returned with this handle, None if it is not open."""

    # Messages ------------------------------------------------------------------------------

    def send(
        self, format_names: Sequence[str], message: Message, unit: UnitOfWork | None = None
    ) -> Sent:
        """Send a message to one queue or several, in a transaction or not."""

    def send_single(self, format_names: Sequence[str], message: Message) -> Sent:
        """Send a message in a transaction of its own."""

    def signer(self, certificate: bytes) -> PacketSigner | None:
        """Return who signs with a certificate, None if its key is not here; b"" means the internal
        certificate of the caller.
        """

    def register_certificate(self, certificate: bytes | None, *, only_if_none: bool) -> int:
        """Register a certificate of the caller; None: a new internal one, but with `only_if_none`
        not beside another. Return MQ_OK or MQ_INFORMATION_INTERNAL_USER_CERT_EXIST.
        """

    def begin_transaction(self) -> UnitOfWork:
        """Begin a transaction; if it is not ended, the queue manager aborts it after a time."""

    def close(self) -> None:
        """End the connection to the queue manager."""
