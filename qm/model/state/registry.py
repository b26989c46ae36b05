"""Which queue a name means: path names, format names and destinations as packets carry them.

Names are local when their computer is an alias of the queue manager (qm.names.alias); then the
computer is dropped, since the cluster is one computer. QUEUE_NAME rows map the rest to a queue_id;
journals are found through their queue, system queues through the queue manager's record.
"""

from enum import IntEnum
from typing import Final

from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.elements import QueueKind
from qm.model.values.limits import SUBQUEUES_PER_QUEUE_MAX
from qm.model.values.records import GUID_NULL, Queue, QueueManager
from qm.model.values.rows import QUEUE_KEY
from qm.names.alias import LocalAliases
from qm.names.direct import AnyDirectName, DirectSystemName
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    ConnectorName,
    FormatName,
    MachineName,
    PrivateName,
    PublicName,
    format_name_key,
    parse_direct_format_name,
    parse_format_name,
)
from qm.names.grammar import SystemQueue
from qm.names.path_name import PathKind, PathName
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT, QUEUE_TYPE_PUBLIC, QueueHost

PRIVATE_QUEUE_NUMBER_FIRST: Final = 16
"""Numbers below this belong to system queues: order_queue$ is 4 ([MS-MQQB] 2.2.4)."""
_U32_MAX: Final = 0xFFFF_FFFF
ROUTES_IN_HAND_MAX: Final = 65_536
"""Wire destinations whose queue is cached; a peer can send any number of names."""


class Route(IntEnum):
    """Where a destination leads if it is not a local queue."""

    NOT_FOUND = 0
    """Local by its address, but there is no such queue."""
    ELSEWHERE = -1
    """A queue of another queue manager."""


class NameIndex(IntEnum):
    """First byte of a QUEUE_NAME key, and what follows it."""

    PUBLIC_NAME = 0
    """Folded queue name, utf-8."""
    PRIVATE_NAME = 1
    """Folded queue name, utf-8."""
    PRIVATE_NUMBER = 2
    """u32 big-endian."""
    PUBLIC_GUID = 3
    """16 bytes."""
    SUBQUEUE = 4
    """queue_id of the parent u32, folded subqueue name."""
    OUTGOING = 5
    """`format_name_key` of the destination: one outgoing queue per distinct format name."""
    CONNECTOR = 6
    """16 bytes, 0x01 for the transactional one."""


class Registry:
    """Looks names up in the state; routes of wire destinations are cached."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._routes: dict[bytes, int] = {}
        self._aliases = LocalAliases(())
        self._aliases_of: tuple[str, ...] | None = None

    def forget(self) -> None:
        """Drop cached routes, for example after names changed."""
        self._routes.clear()
        self._aliases_of = None

    # Index rows --------------------------------------------------------------------------

    def find(self, index: NameIndex, name: bytes) -> int:
        """Return the queue_id of an index row, or Route.NOT_FOUND."""
        row = self._ledger.state.get(Table.QUEUE_NAME, bytes((index,)) + name)
        return Route.NOT_FOUND if row is None else int(QUEUE_KEY.unpack(row)[0])

    def bind(self, index: NameIndex, name: bytes, queue_id: int) -> None:
        """Write an index row."""
        self._ledger.state.put(Table.QUEUE_NAME, bytes((index,)) + name, QUEUE_KEY.pack(queue_id))
        self._routes.clear()

    def unbind(self, index: NameIndex, name: bytes) -> None:
        """Remove an index row."""
        self._ledger.state.delete(Table.QUEUE_NAME, bytes((index,)) + name)
        self._routes.clear()

    def subqueues(self, queue_id: int) -> list[int]:
        """Return the queue_ids of a queue's subqueues (SubqueueCollection), by name."""
        low = bytes((NameIndex.SUBQUEUE,)) + QUEUE_KEY.pack(queue_id)
        high = bytes((NameIndex.SUBQUEUE,)) + QUEUE_KEY.pack(queue_id + 1)
        rows = self._ledger.state.scan(Table.QUEUE_NAME, low, high, SUBQUEUES_PER_QUEUE_MAX)
        return [int(QUEUE_KEY.unpack(row)[0]) for _, row in rows]

    def subqueue(self, queue_id: int, name: str) -> int:
        """Return the queue_id of a queue's subqueue, 0 if it has none of this name."""
        return self.find(NameIndex.SUBQUEUE, QUEUE_KEY.pack(queue_id) + folded(name))

    def next_private_number(self) -> int:
        """Return a number for a private queue about to be created; reused after a wrap."""
        counters = self._ledger.counters
        while True:
            # At most QUEUES_MAX are in use, and none before the first wrap.
            following = counters.private_queue_number + 1
            if following > _U32_MAX:
                following = PRIVATE_QUEUE_NUMBER_FIRST
            counters.private_queue_number = max(following, PRIVATE_QUEUE_NUMBER_FIRST)
            key = QUEUE_KEY.pack(counters.private_queue_number)
            if self.find(NameIndex.PRIVATE_NUMBER, key) == Route.NOT_FOUND:
                return counters.private_queue_number

    # Names -------------------------------------------------------------------------------

    def aliases(self, manager: QueueManager) -> LocalAliases:
        """Return the names under which the queue manager is local."""
        names = (manager.computer_name, manager.qualified_computer_name, *manager.aliases)
        if self._aliases_of != names:
            self._aliases = LocalAliases(name for name in names if name)
            self._aliases_of = names
            self._routes.clear()
        return self._aliases

    def path(self, name: PathName) -> int:
        """Return the queue_id of a path name, or a Route."""
        manager = self._ledger.manager
        if manager is None or not self.aliases(manager).is_local_path(name):
            return Route.ELSEWHERE
        system = name.system_queue
        if name.kind is PathKind.SYSTEM:
            return Route.NOT_FOUND if system is None else _system_queue(manager, system)
        return self._named(name.queue, name.kind is PathKind.PRIVATE, name.subqueue, name.journal)

    def format_name(self, name: FormatName) -> int:
        """Return the queue_id of a single-element format name, or a Route."""
        manager = self._ledger.manager
        if manager is None:
            return Route.ELSEWHERE
        if isinstance(name, AnyDirectName):
            return self._direct(manager, name)
        if isinstance(name, PrivateName):
            if name.guid not in (manager.identifier, GUID_NULL):
                return Route.ELSEWHERE
            number = QUEUE_KEY.pack(name.number)
            return self._journal_of(self.find(NameIndex.PRIVATE_NUMBER, number), name.journal)
        if isinstance(name, PublicName):
            found = self.find(NameIndex.PUBLIC_GUID, name.guid)
            return self._journal_of(found, name.journal) if found > 0 else Route.ELSEWHERE
        if isinstance(name, MachineName):
            if name.guid != manager.identifier:
                return Route.ELSEWHERE
            return _system_queue(manager, name.system_queue)
        if isinstance(name, ConnectorName):
            key = name.guid + bytes((name.transactional,))
            return self.find(NameIndex.CONNECTOR, key) or Route.ELSEWHERE
        return Route.ELSEWHERE

    def text(self, format_name: str) -> int:
        """Return the queue_id of a format name's text, or a Route; "" leads nowhere."""
        try:
            return self.format_name(parse_format_name(format_name))
        except QueueNameError:
            return Route.NOT_FOUND

    def outgoing(self, name: FormatName) -> int:
        """Return the queue_id of the outgoing queue of a destination, or Route.NOT_FOUND."""
        return self.find(NameIndex.OUTGOING, outgoing_key(name))

    def wire(self, destination: bytes, queue_manager_address: bytes) -> int:
        """Return where a packet's destination leads, by its `peek_destination` key.

        A zero QueueManagerAddress means this queue manager everywhere (QB-A29).
        """
        key = queue_manager_address + destination
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= ROUTES_IN_HAND_MAX:
                self._routes.clear()
            route = self._routes[key] = self._wire(destination, queue_manager_address)
        return route

    def _wire(self, destination: bytes, queue_manager_address: bytes) -> int:
        manager = self._ledger.manager
        if manager is None or queue_manager_address not in (manager.identifier, GUID_NULL):
            return Route.ELSEWHERE
        queue_type, name = destination[0], destination[1:]
        if queue_type == QUEUE_TYPE_DIRECT:
            try:
                direct = parse_direct_format_name(name.decode("utf-16-le"))
            except (QueueNameError, UnicodeDecodeError):
                return Route.NOT_FOUND
            return self._direct(manager, direct)
        if queue_type == QUEUE_TYPE_PUBLIC:
            return self.find(NameIndex.PUBLIC_GUID, name)
        if queue_type == QueueHost.DESTINATION:
            number = int.from_bytes(name[16:], "little")
            return self.find(NameIndex.PRIVATE_NUMBER, QUEUE_KEY.pack(number))
        return Route.NOT_FOUND

    def _direct(self, manager: QueueManager, name: AnyDirectName) -> int:
        if not self.aliases(manager).is_local_direct(name):
            return Route.ELSEWHERE
        if isinstance(name, DirectSystemName):
            return _system_queue(manager, name.system_queue)
        return self._named(name.queue, name.private, name.subqueue, name.journal)

    def _named(self, queue: str, is_private: bool, subqueue: str | None, journal: bool) -> int:
        index = NameIndex.PRIVATE_NAME if is_private else NameIndex.PUBLIC_NAME
        found = self.find(index, folded(queue))
        if subqueue is not None and found > 0:
            return self.subqueue(found, subqueue)
        return self._journal_of(found, journal)

    def _journal_of(self, queue_id: int, is_wanted: bool) -> int:
        if not is_wanted or queue_id <= 0:
            return queue_id
        queue = self._ledger.queue(queue_id)
        return queue.record.journal_queue if queue is not None else Route.NOT_FOUND

    # Binding whole queues ----------------------------------------------------------------

    def names_of(self, record: Queue) -> list[tuple[NameIndex, bytes]]:
        """Return the index rows that lead to a queue; journals and system queues have none."""
        if record.kind is QueueKind.OUTGOING:
            return [(NameIndex.OUTGOING, record.outgoing_key)]
        if record.kind is QueueKind.CONNECTOR:
            key = record.identifier + bytes((record.transactional,))
            return [(NameIndex.CONNECTOR, key)]
        name = record.pathname.rpartition("\\")[2]
        if record.kind is QueueKind.SUBQUEUE:
            sub = name.partition(";")[2]
            return [(NameIndex.SUBQUEUE, QUEUE_KEY.pack(record.parent_queue) + folded(sub))]
        if record.kind not in (QueueKind.APPLICATION, QueueKind.ORDER, QueueKind.NOTIFICATION):
            return []
        if record.private_queue_number:
            return [
                (NameIndex.PRIVATE_NAME, folded(name)),
                (NameIndex.PRIVATE_NUMBER, QUEUE_KEY.pack(record.private_queue_number)),
            ]
        return [
            (NameIndex.PUBLIC_NAME, folded(name)),
            (NameIndex.PUBLIC_GUID, record.identifier),
        ]

    def bind_queue(self, record: Queue) -> None:
        """Make a queue's names lead to it."""
        for index, name in self.names_of(record):
            self.bind(index, name, record.queue_id)

    def unbind_queue(self, record: Queue) -> None:
        """Release a queue's names."""
        for index, name in self.names_of(record):
            self.unbind(index, name)

    def journal(self, queue: QueueInHand) -> QueueInHand | None:
        """Return the target journal of a queue (JournalQueueReference)."""
        found = queue.record.journal_queue
        return self._ledger.queue(found) if found else None


def folded(name: str) -> bytes:
    """Return a name as stored in index rows: ASCII, compared without case ([MS-MQMQ] 2.1)."""
    return name.lower().encode()


def outgoing_key(name: FormatName) -> bytes:
    """Return the key that distinguishes destinations: one outgoing queue per format name."""
    return format_name_key(name).encode()


def _system_queue(manager: QueueManager, which: SystemQueue) -> int:
    return {
        SystemQueue.JOURNAL: manager.system_journal_queue,
        SystemQueue.DEADLETTER: manager.system_deadletter_queue,
        SystemQueue.DEADXACT: manager.system_transactional_deadletter_queue,
    }[which]
