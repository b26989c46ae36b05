"""Enumerations of the abstract data model, with the names of [MS-MQDMPR] 3.1.1."""

from enum import IntEnum


class EventKind(IntEnum):
    """What an event of the cluster's history is about."""

    CONTROL = 1
    """Somebody had something changed."""
    LEADERSHIP = 2
    MEMBER = 3
    """A node: it came, went, drains, was repaired."""
    ALARM = 4
    SESSION = 5
    """A session: an application's that another process took over; of the console, or refused."""


class OperatingSystemType(IntEnum):
    """QueueManager.OperatingSystemType (3.1.1.1)."""

    FOREIGN = 0
    WIN95 = 1
    WIN_CLIENT = 2
    WIN_SERVER = 3
    WIN_ENT = 4
    OTHER = 5


class DirectoryServerType(IntEnum):
    """QueueManager.DirectoryServerType (3.1.1.1)."""

    STANDALONE = 0
    BACKUP_SITE_CONTROLLER = 1
    PRIMARY_SITE_CONTROLLER = 2
    PRIMARY_ENTERPRISE_CONTROLLER = 3


class QueueManagerState(IntEnum):
    """QueueManager.QueueManagerState (3.1.1.1); one per node."""

    STOPPED = 0
    INITIALIZING = 1
    READY = 2
    STOPPING = 3


class QueueType(IntEnum):
    """Queue.QueueType (3.1.1.2)."""

    PRIVATE = 0
    PUBLIC = 1
    SYSTEM = 2
    CONNECTOR = 3


class QueueKind(IntEnum):
    """Purpose of a queue; finer than QueueType and not from the specification."""

    APPLICATION = 0
    SUBQUEUE = 1
    JOURNAL = 2
    SYSTEM_JOURNAL = 3
    DEADLETTER = 4
    TRANSACTIONAL_DEADLETTER = 5
    ORDER = 6
    NOTIFICATION = 7
    OUTGOING = 8
    CONNECTOR = 9

    @property
    def is_move_target(self) -> bool:
        """Whether messages can be moved into it."""
        return self in (QueueKind.APPLICATION, QueueKind.SUBQUEUE) or self.is_system_store

    @property
    def is_system_store(self) -> bool:
        """Whether only the queue manager adds to it: journals and dead-letter queues."""
        return QueueKind.JOURNAL <= self <= QueueKind.TRANSACTIONAL_DEADLETTER


class QueueScope(IntEnum):
    """Queue.Scope (3.1.1.2)."""

    SITE = 0
    ENTERPRISE = 1


class QueuePrivacyLevel(IntEnum):
    """Queue.PrivacyLevel (3.1.1.2)."""

    NONE = 0
    OPTIONAL = 1
    BODY = 2


class OutgoingQueueState(IntEnum):
    """OutgoingQueue.State (3.1.1.3)."""

    INACTIVE = 0
    LOCKED = 1
    NEED_VALIDATION = 2
    WAITING = 3
    CONNECTED = 4
    DISCONNECTING = 5
    DISCONNECTED = 6
    ON_HOLD = 7


class OutgoingAdminState(IntEnum):
    """The replicated half of OutgoingQueue.State; the leader alone holds the link's half.

    LOCKED is never stored: it follows from HardenedSecurity
    (`qm.model.state.outgoing_queues.admin_state_of`).
    """

    NORMAL = 0
    ON_HOLD = 1
    LOCKED = 2


class AcknowledgementsRequested(IntEnum):
    """Bits of Message.AcknowledgementsRequested, as MessagePropertiesHeader.Flags carries them."""

    POSITIVE_ARRIVAL = 0x01
    POSITIVE_RECEIVE = 0x02
    NEGATIVE_ARRIVAL = 0x04
    NEGATIVE_RECEIVE = 0x08


class DirectoryOperationResult(IntEnum):
    """3.1.1.17.1."""

    SUCCESS = 0
    GENERIC_ERROR = 1
    DIRECTORY_NOT_CONNECTED = 2
    OBJECT_NOT_FOUND = 3
    ATTRIBUTE_NOT_FOUND = 4
    END_OF_DATA = 5
    OBJECT_ALREADY_EXISTS = 6


class QueueAccessType(IntEnum):
    """3.1.1.17.3."""

    RECEIVE_ACCESS = 0
    SEND_ACCESS = 1
    PEEK_ACCESS = 2
    MOVE_ACCESS = 3
    RECEIVE_ADMIN_ACCESS = 4
    PEEK_ADMIN_ACCESS = 5


class QueueShareMode(IntEnum):
    """3.1.1.17.4."""

    DENY_NONE = 0
    DENY_RECEIVE = 1


class LockKind(IntEnum):
    """Why a position is Locked (guide 3.1)."""

    ENQ_PENDING = 0
    TX_DEQUEUE = 1
    TX_MOVE = 2
    REMOTE_READ = 3
    FINAL_ACK = 4
    """In an outgoing queue: it has arrived, and its end is not yet known (QB-A19)."""
    DELAYED = 5
    """It was returned by a reader and waits before it is given to another."""


class PoisonAction(IntEnum):
    """What becomes of a message that was returned as often as its queue allows."""

    MOVE = 0
    """Into the subqueue `poison`."""
    DEAD_LETTER = 1
    """Into its dead-letter queue, and its sender hears that it was rejected if it asked for it."""
    REJECT = 2
    """Its sender hears that it was rejected if it asked for it; no copy is kept here."""


class SealedBodies(IntEnum):
    """Bodies that are sealed for the disk by the node that takes them."""

    NONE = 0
    ENCRYPTED = 1
    """Those that arrived encrypted, or that are to leave encrypted."""
    ALL = 2


class TransactionState(IntEnum):
    """States of a transaction (guide 6.2)."""

    ACTIVE = 0
    PREPARED = 1
    COMMITTED = 2
    ABORTED = 3


class OperationType(IntEnum):
    """TransactionalOperation.OperationType (3.1.1.13)."""

    ENQUEUE = 0
    DEQUEUE = 1
    MOVE = 2


class DirectoryObjectType(IntEnum):
    """Classes of directory objects (3.1.1)."""

    ENTERPRISE = 0
    SITE = 1
    QUEUE_MANAGER = 2
    QUEUE = 3
    ROUTING_LINK = 4
    CONNECTED_NETWORK = 5
    USER = 6


class OutboxKind(IntEnum):
    """What an outbox row sends to a peer."""

    FINAL_ACK = 1
    NOTIFICATION = 2


class BindingMode(IntEnum):
    """Whether a queue manager's GUID is bound to the address from which it speaks."""

    OFF = 0
    BIND = 1
    """It moves to another address once the old one has been silent."""
    STRICT = 2
    """It moves only when an administrator forgets it or pins it."""
