"""The embedded directory ([MS-MQDMPR] 3.1.7.1.18 to .24, guide 9.1).

Enterprise, sites, links, networks, users and other queue managers are rows of their own; the queue
manager and its public queues are only read as objects here, so that there is one copy of their
attributes. Without quorum the whole queue manager is unavailable, so it is never "not connected".
"""

from collections.abc import Callable, Iterator
from enum import Enum
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import msgspec

from qm.model.state.directory_rows import (
    attribute,
    decoded,
    identifier_of,
    is_taken,
    put_object,
)
from qm.model.state.granting import is_granted_on_manager
from qm.model.state.ledger import Ledger
from qm.model.state.people import with_groups
from qm.model.state.tables import Table
from qm.model.values.attributes import (
    QUEUE_ATTRIBUTES,
    U32_MAX,
    decode_attributes,
    encode_attribute,
)
from qm.model.values.commands import DirectoryWrite
from qm.model.values.directory_objects import INDEXED, SEALED_PASSWORD, refusal_of, writable
from qm.model.values.effects import Outcome
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    QueueKind,
    QueueType,
)
from qm.model.values.limits import TIME_TO_LIVE_DEFAULT_S, VERSION_OF_PEOPLE
from qm.model.values.records import DirectoryObjectRow, Queue, QueueManager, decode
from qm.names.guid import guid_text
from qm.wire.access_mask import MachineAccess
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
OBJECTS_MAX: Final = 100_000
_SCAN_ROWS: Final = 256
_ROWS_PER_PAGE_MAX: Final = 4_096
_GUID_BYTES: Final = 16
_PUBLISHED_OF_MANAGER: Final = (
    "computer_name",
    "qualified_computer_name",
    "queue_manager_version",
    "operating_system_version",
    "operating_system_type",
    "create_time",
    "modify_time",
    "queue_manager_quota",
    "journal_quota",
    "foreign_system",
    "remote_access_server",
    "supporting_server",
    "directory_server",
    "directory_server_type",
    "routing_server",
    "full_path",
    "site_identifier_list",
    "out_routing_server_identifier_list",
    "in_routing_server_identifier_list",
    "connected_network_identifier_list",
    "public_encryption_key_list",
    "public_signing_key_list",
    "security",
    "clustered",
)
"""Only the directory attributes of 3.1.1.1: sealed values stay here."""
_ALSO_PUBLISHED_OF_QUEUE: Final = (
    "create_time",
    "modify_time",
    "pathname",
    "qualified_pathname",
    "private_queue_number",
    "full_path",
    "directory_path",
)
"""Directory attributes that cannot be set by name (3.1.1.2)."""


class Operator(Enum):
    """Filter operators of 3.1.7.1.20."""

    EQUALS = (eq,)
    NOT_EQUALS = (ne,)
    LESS_THAN = (lt,)
    GREATER_THAN = (gt,)
    LESS_THAN_OR_EQUAL = (le,)
    GREATER_THAN_OR_EQUAL = (ge,)

    def holds(self, found: Any, wanted: Any) -> bool:
        """Whether an attribute's value satisfies the expression; other types never do."""
        compare: Callable[[Any, Any], bool] = self.value[0]
        try:
            return bool(compare(found, wanted))
        except TypeError:
            return False


class Filter(msgspec.Struct, frozen=True):
    """One expression; all expressions of a list must hold."""

    attribute: str
    operator: Operator
    value: Any


class DirectoryObject(msgspec.Struct, frozen=True):
    """An object as a read returns it."""

    identifier: bytes
    object_type: DirectoryObjectType
    attributes: dict[str, Any]


class SortKey(msgspec.Struct, frozen=True):
    """One element of iAttributeSortOrder."""

    attribute: str
    priority: int
    """Higher sorts first; 0 is no sort key."""
    is_ascending: bool = True


def manager_full_path(manager: QueueManager) -> str:
    """Return FullPath of the queue manager's object (guide 9.1)."""
    realm = guid_text(manager.machine_domain_id)
    return f"CN=msmq,CN={manager.computer_name},DC={realm}"


def queue_paths(manager: QueueManager, record: Queue) -> tuple[str, str]:
    """Return FullPath and DirectoryPath of a public queue's object (guide 9.1)."""
    name = record.pathname.rpartition("\\")[2]
    realm = guid_text(manager.machine_domain_id)
    full_path = f"CN={name},{manager_full_path(manager)}"
    return full_path, f"raft://{realm}/{guid_text(record.identifier)}"


class Directory:
    """Applies DirectoryWrite and answers reads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # Writing -----------------------------------------------------------------------------

    def apply_directory_write(self, command: DirectoryWrite) -> Outcome:
        """Create, change or delete an object; the value is a DirectoryOperationResult."""
        manager = self._ledger.manager
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        access = MachineAccess.SET_MACHINE_PROPERTIES
        sids = with_groups(self._ledger, command.sender_sids)
        if not is_granted_on_manager(manager, sids, access):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        known = writable(command.object_type, self._ledger.behaviour)
        if known is None or len(command.identifier) != _GUID_BYTES:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        existing = self._ledger.record(Table.DIRECTORY, command.identifier, DirectoryObjectRow)
        if command.attributes is None:
            return self._delete(command.identifier, existing)
        values, refusal = decode_attributes(
            known, command.attributes, self._ledger.behaviour, is_change=False
        )
        object_type = DirectoryObjectType(command.object_type)
        refusal = refusal or refusal_of(object_type, values, self._ledger.behaviour)
        if refusal:
            return Outcome(refusal)
        if existing is not None and existing.object_type != object_type:
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_ALREADY_EXISTS)
        old = existing.attributes if existing is not None else {}
        attributes = old | {name: encode_attribute(value) for name, value in values.items()}
        return self.put(command.identifier, object_type, attributes)

    def put(
        self, identifier: bytes, object_type: DirectoryObjectType, attributes: dict[str, bytes]
    ) -> Outcome:
        """Write an object with these attributes, already checked."""
        ledger = self._ledger
        counters = ledger.counters
        is_new = ledger.state.get(Table.DIRECTORY, identifier) is None
        if is_new and counters.directory_object_count >= OBJECTS_MAX:
            return Outcome(ErrorCode.MQ_ERROR_DS_IS_FULL)
        row = DirectoryObjectRow(object_type, counters.usn + 1, attributes)
        if self._is_own(identifier, row) or is_taken(ledger.state, identifier, row):
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_ALREADY_EXISTS)
        counters.usn += 1
        put_object(ledger, identifier, row)
        return Outcome(MQ_OK, value=DirectoryOperationResult.SUCCESS)

    def _is_own(self, identifier: bytes, row: DirectoryObjectRow) -> bool:
        """Whether an object would be a second one of this queue manager."""
        manager = self._ledger.manager
        if manager is None or row.object_type != DirectoryObjectType.QUEUE_MANAGER:
            return False
        own = manager.computer_name.lower(), manager.qualified_computer_name.lower()
        names = (
            attribute(row.attributes, name, "").lower()
            for name in INDEXED[DirectoryObjectType.QUEUE_MANAGER]
        )
        return identifier == manager.identifier or any(name and name in own for name in names)

    def _delete(self, identifier: bytes, existing: DirectoryObjectRow | None) -> Outcome:
        if existing is None:
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_NOT_FOUND)
        if self._ledger.behaviour >= VERSION_OF_PEOPLE:
            self._ledger.counters.usn += 1
        put_object(self._ledger, identifier, None)
        return Outcome(MQ_OK, value=DirectoryOperationResult.SUCCESS)

    # Reading -----------------------------------------------------------------------------

    def default_time_to_live_s(self) -> int:
        """Return Enterprise.DefaultTimeToLive (3.1.1.6) of the first enterprise that has a name."""
        low, high = (bytes((DirectoryObjectType.ENTERPRISE + k,)) for k in (0, 1))
        rows = self._ledger.state.scan(Table.DIRECTORY_INDEX, low, high, 1)
        if not rows:
            return TIME_TO_LIVE_DEFAULT_S
        found = self._ledger.record(Table.DIRECTORY, rows[0][1], DirectoryObjectRow)
        given = found.attributes.get("default_time_to_live") if found is not None else None
        seconds = TIME_TO_LIVE_DEFAULT_S if given is None else int(decoded(given))
        return seconds if 1 <= seconds <= U32_MAX else TIME_TO_LIVE_DEFAULT_S

    def read(
        self,
        object_type: DirectoryObjectType,
        filters: list[Filter],
        attributes: list[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.7.1.20 Read Directory: the first object that satisfies every filter."""
        for found in self._matching(object_type, filters):
            return DirectoryOperationResult.SUCCESS, _chosen(found, attributes)
        return DirectoryOperationResult.OBJECT_NOT_FOUND, None

    def page(
        self,
        object_type: DirectoryObjectType,
        filters: list[Filter],
        attributes: list[str] | None,
        after: bytes,
        objects_max: int,
    ) -> tuple[list[DirectoryObject], bytes | None]:
        """Read Directory in bounded steps: objects whose rows follow `after`, and where the next
        step begins; None at the end. A step reads at most _ROWS_PER_PAGE_MAX rows.
        """
        named = self._named(object_type, filters)
        if named is not None:
            found = [one for one in named if _satisfies(one, filters)]
            return [_chosen(one, attributes) for one in found], None
        is_queue = object_type is DirectoryObjectType.QUEUE
        table, key_bytes = (Table.QUEUE, 4) if is_queue else (Table.DIRECTORY, 16)
        low = after + b"\0" if after else b""
        high = b"\xff" * (key_bytes + 1)
        rows = self._ledger.state.scan(table, low, high, _ROWS_PER_PAGE_MAX)
        objects = [] if after else list(self._own(object_type))
        objects = [_chosen(one, attributes) for one in objects if _satisfies(one, filters)]
        for key, row in rows:
            one = _published(row) if is_queue else _stored(object_type, key, row)
            if one is not None and _satisfies(one, filters):
                objects.append(_chosen(one, attributes))
                if len(objects) >= objects_max:
                    return objects, key
        return objects, rows[-1][0] if len(rows) == _ROWS_PER_PAGE_MAX else None

    def _named(
        self, object_type: DirectoryObjectType, filters: list[Filter]
    ) -> list[DirectoryObject] | None:
        """Return the only objects that can satisfy the filters, if the index tells them."""
        indexed = INDEXED.get(object_type, ())
        for one in filters:
            if one.attribute in indexed and one.operator is Operator.EQUALS and one.value != "":
                identifier = identifier_of(self._ledger.state, object_type, one.value)
                row = None if identifier is None else self._row(identifier)
                found = None if row is None else _stored(object_type, identifier or b"", row)
                return [*self._own(object_type), *([] if found is None else [found])]
        return None

    def _row(self, identifier: bytes) -> bytes | None:
        return self._ledger.state.get(Table.DIRECTORY, identifier)

    def query(
        self,
        object_type: DirectoryObjectType,
        filters: list[Filter],
        attributes: list[str] | None = None,
        sort: list[SortKey] | None = None,
    ) -> "Query":
        """3.1.7.1.21 Read Directory Begin: a frozen result, to be read one by one."""
        objects = list(self._matching(object_type, filters))
        keys = sorted((key for key in sort or [] if key.priority), key=lambda key: key.priority)
        for key in keys:
            objects.sort(
                key=lambda found, name=key.attribute: _sortable(found.attributes.get(name)),  # type: ignore[misc]
                reverse=not key.is_ascending,
            )
        return Query([_chosen(found, attributes) for found in objects])

    def _matching(
        self, object_type: DirectoryObjectType, filters: list[Filter]
    ) -> Iterator[DirectoryObject]:
        for found in self._objects(object_type):
            if _satisfies(found, filters):
                yield found

    def _own(self, object_type: DirectoryObjectType) -> Iterator[DirectoryObject]:
        """Yield this queue manager, if objects of its class are wanted."""
        manager = self._ledger.manager
        if object_type is DirectoryObjectType.QUEUE_MANAGER and manager is not None:
            values = {name: getattr(manager, name) for name in _PUBLISHED_OF_MANAGER}
            values["identifier"] = manager.identifier
            yield DirectoryObject(manager.identifier, object_type, values)

    def _objects(self, object_type: DirectoryObjectType) -> Iterator[DirectoryObject]:
        yield from self._own(object_type)
        if object_type is DirectoryObjectType.QUEUE:
            yield from self._queues()
            return
        for identifier, row in self._rows(Table.DIRECTORY, 16):
            stored = _stored(object_type, identifier, row)
            if stored is not None:
                yield stored

    def _queues(self) -> Iterator[DirectoryObject]:
        for _, row in self._rows(Table.QUEUE, 4):
            published = _published(row)
            if published is not None:
                yield published

    def _rows(self, table: Table, key_bytes: int) -> Iterator[tuple[bytes, bytes]]:
        low = b""
        while True:
            rows = self._ledger.state.scan(table, low, b"\xff" * (key_bytes + 1), _SCAN_ROWS)
            yield from rows
            if len(rows) < _SCAN_ROWS:
                return
            low = rows[-1][0] + b"\0"


class Query:
    """3.1.7.1.22 and .23: results of Read Directory Begin, returned in order."""

    def __init__(self, objects: list[DirectoryObject]) -> None:
        self._objects = objects
        self._next = 0

    def next(self) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """Return the next object; END_OF_DATA after the last one."""
        if self._next >= len(self._objects):
            return DirectoryOperationResult.END_OF_DATA, None
        self._next += 1
        return DirectoryOperationResult.SUCCESS, self._objects[self._next - 1]

    def end(self) -> None:
        """Release the result."""
        self._objects = []


def _satisfies(found: DirectoryObject, filters: list[Filter]) -> bool:
    return all(
        one.attribute in found.attributes
        and one.operator.holds(found.attributes[one.attribute], one.value)
        for one in filters
    )


def _stored(
    object_type: DirectoryObjectType, identifier: bytes, row: bytes
) -> DirectoryObject | None:
    """Return the object of a row if it is of this class."""
    stored = decode(DirectoryObjectRow, row)
    if stored.object_type != object_type:
        return None
    values = {
        name: decoded(value) for name, value in stored.attributes.items() if name != SEALED_PASSWORD
    }
    return DirectoryObject(identifier, object_type, values | {"identifier": identifier})


def _published(row: bytes) -> DirectoryObject | None:
    """Return a queue's object: only public queues are published (3.1.1.2 QueueType), without their
    subqueues.
    """
    queue = decode(Queue, row)
    is_public = queue.kind is QueueKind.APPLICATION and queue.queue_type is QueueType.PUBLIC
    if not is_public or queue.is_deleting:
        return None
    names = (*QUEUE_ATTRIBUTES, *_ALSO_PUBLISHED_OF_QUEUE)
    values = {name: getattr(queue, name) for name in names} | {"identifier": queue.identifier}
    return DirectoryObject(queue.identifier, DirectoryObjectType.QUEUE, values)


def _chosen(found: DirectoryObject, attributes: list[str] | None) -> DirectoryObject:
    if attributes is None:
        return found
    values = {name: found.attributes[name] for name in attributes if name in found.attributes}
    return msgspec.structs.replace(found, attributes=values)


def _sortable(value: Any) -> tuple[bool, Any]:
    """Sort objects without the attribute last."""
    return (value is None, value if value is not None else 0)
