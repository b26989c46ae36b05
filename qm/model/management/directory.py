"""The embedded directory ([MS-MQDMPR] 3.1.7.1.18 to .24, guide 9.1).

Enterprise, sites, links, networks and users are rows of their own; the queue manager and its public
queues are only read as objects here, so that there is one copy of their attributes. Without quorum
the whole queue manager is unavailable, so it is never "not connected".
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import msgspec

from qm.model.state.granting import is_granted_on_manager
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.attributes import (
    QUEUE_ATTRIBUTES,
    Attribute,
    decode_attributes,
    descriptor_of,
    encode_attribute,
)
from qm.model.values.commands import DirectoryWrite
from qm.model.values.effects import Outcome
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    QueueKind,
    QueueType,
)
from qm.model.values.limits import VERSION_OF_USER_FORMS
from qm.model.values.records import DirectoryObjectRow, Queue, QueueManager, decode
from qm.names.guid import guid_text
from qm.security.sid import parse_sid
from qm.wire.access_mask import (
    ConnectedNetworkAccess,
    EnterpriseAccess,
    MachineAccess,
    SiteAccess,
)
from qm.wire.codes import ErrorCode
from qm.wire.errors import ProtocolError
from qm.wire.structures.user_certificate import parse_user_certificates

MQ_OK: Final = 0
OBJECTS_MAX: Final = 100_000
_SCAN_ROWS: Final = 256
_ROWS_PER_PAGE_MAX: Final = 4_096
_DIGEST_BYTES: Final = 16
_GUIDS: Final = tuple[bytes, ...]


def _digests(value: Any) -> int:
    """CertificateDigestList: the MD5 of each certificate (3.1.1.15)."""
    is_sound = all(len(digest) == _DIGEST_BYTES for digest in value)
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE


def _is_user(values: dict[str, Any]) -> bool:
    """Whether a user's attributes have the forms of 3.1.1.15: a SID and an MQUSERSIGNCERTS."""
    try:
        for name, parse in _FORMS_OF_USER.items():
            value = values.get(name)
            if value is not None and parse(value) != len(value):
                return False
    except ProtocolError:
        return False
    return True


_FORMS_OF_USER: Final[Mapping[str, Callable[[bytes], int]]] = {
    "security_identifier": lambda value: parse_sid(value, 0, len(value), "SecurityIdentifier")[1],
    "certificates": lambda value: parse_user_certificates(value, 0, len(value))[1],
}
"""Each returns where the form ends."""


OBJECT_ATTRIBUTES: Final[Mapping[DirectoryObjectType, Mapping[str, Attribute]]] = {
    DirectoryObjectType.ENTERPRISE: {
        "name": Attribute(str),
        "weakened_security": Attribute(bool),
        "non_ldap_capable_queue_manager_notification": Attribute(bool),
        "default_time_to_live": Attribute(int),
        "old_directory": Attribute(bool),
        "security": Attribute(bytes, descriptor_of(EnterpriseAccess)),
    },
    DirectoryObjectType.SITE: {
        "name": Attribute(str),
        "primary_site_controller": Attribute(str),
        "intra_site_replication_interval": Attribute(int),
        "inter_site_replication_interval": Attribute(int),
        "full_path": Attribute(str),
        "foreign_site": Attribute(bool),
        "public_signing_key_list": Attribute(bytes),
        "migrated_from_msmq10": Attribute(bool),
        "security": Attribute(bytes, descriptor_of(SiteAccess)),
    },
    DirectoryObjectType.ROUTING_LINK: {
        "description": Attribute(str),
        "full_path": Attribute(str),
        "actual_cost": Attribute(int),
        "site1_identifier": Attribute(bytes),
        "site2_identifier": Attribute(bytes),
        "site_gate_identifier_list": Attribute(_GUIDS),
    },
    DirectoryObjectType.CONNECTED_NETWORK: {
        "name": Attribute(str),
        "security": Attribute(bytes, descriptor_of(ConnectedNetworkAccess)),
    },
    DirectoryObjectType.USER: {
        "security_identifier": Attribute(bytes),
        "certificate_digest_list": Attribute(_GUIDS, _digests),
        "certificates": Attribute(bytes),
    },
}
"""Writable attributes, by their names in the specification, per class of object."""
_UNIQUE: Final = {
    DirectoryObjectType.ENTERPRISE: "name",
    DirectoryObjectType.SITE: "name",
    DirectoryObjectType.CONNECTED_NETWORK: "name",
    DirectoryObjectType.USER: "security_identifier",
}
_COST_MAX: Final = 999_999
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
        if not is_granted_on_manager(manager, command.sender_sids, access):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        known = OBJECT_ATTRIBUTES.get(
            DirectoryObjectType(command.object_type)
            if command.object_type in tuple(DirectoryObjectType)
            else DirectoryObjectType.QUEUE
        )
        if known is None or len(command.identifier) != 16:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        existing = self._ledger.record(Table.DIRECTORY, command.identifier, DirectoryObjectRow)
        if command.attributes is None:
            return self._delete(command.identifier, existing)
        values, refusal = decode_attributes(known, command.attributes, is_change=False)
        if refusal:
            return Outcome(refusal)
        object_type = DirectoryObjectType(command.object_type)
        is_user = object_type is DirectoryObjectType.USER
        if is_user and self._ledger.behaviour >= VERSION_OF_USER_FORMS and not _is_user(values):
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        if not 1 <= values.get("actual_cost", 1) <= _COST_MAX:
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)
        if existing is not None and existing.object_type != object_type:
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_ALREADY_EXISTS)
        return self._put(command, object_type, existing, values)

    def _put(
        self,
        command: DirectoryWrite,
        object_type: DirectoryObjectType,
        existing: DirectoryObjectRow | None,
        values: dict[str, Any],
    ) -> Outcome:
        counters = self._ledger.counters
        if existing is None and counters.directory_object_count >= OBJECTS_MAX:
            return Outcome(ErrorCode.MQ_ERROR_DS_IS_FULL)
        unique = _UNIQUE.get(object_type)
        taken_by = self._named(object_type, values.get(unique)) if unique in values else None
        if taken_by not in (None, command.identifier):
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_ALREADY_EXISTS)
        old = existing.attributes if existing is not None else {}
        if existing is None:
            counters.directory_object_count += 1
        if unique is not None and unique in old and unique in values:
            self._ledger.state.delete(
                Table.DIRECTORY_INDEX, _index_key(object_type, _decoded(old[unique]))
            )
        if unique is not None and unique in values:
            key = _index_key(object_type, values[unique])
            self._ledger.state.put(Table.DIRECTORY_INDEX, key, command.identifier)
        counters.usn += 1
        attributes = old | {name: encode_attribute(value) for name, value in values.items()}
        row = DirectoryObjectRow(object_type, counters.usn, attributes)
        self._ledger.put_record(Table.DIRECTORY, command.identifier, row)
        return Outcome(MQ_OK, value=DirectoryOperationResult.SUCCESS)

    def _delete(self, identifier: bytes, existing: DirectoryObjectRow | None) -> Outcome:
        if existing is None:
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_NOT_FOUND)
        object_type = DirectoryObjectType(existing.object_type)
        unique = _UNIQUE.get(object_type)
        if unique is not None and unique in existing.attributes:
            key = _index_key(object_type, _decoded(existing.attributes[unique]))
            self._ledger.state.delete(Table.DIRECTORY_INDEX, key)
        self._ledger.state.delete(Table.DIRECTORY, identifier)
        self._ledger.counters.directory_object_count -= 1
        return Outcome(MQ_OK, value=DirectoryOperationResult.SUCCESS)

    def _named(self, object_type: DirectoryObjectType, value: Any) -> bytes | None:
        return self._ledger.state.get(Table.DIRECTORY_INDEX, _index_key(object_type, value))

    # Reading -----------------------------------------------------------------------------

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
        if object_type is DirectoryObjectType.QUEUE_MANAGER:
            found = self._matching(object_type, filters)
            return [_chosen(one, attributes) for one in found], None
        is_queue = object_type is DirectoryObjectType.QUEUE
        table, key_bytes = (Table.QUEUE, 4) if is_queue else (Table.DIRECTORY, 16)
        low = after + b"\0" if after else b""
        high = b"\xff" * (key_bytes + 1)
        rows = self._ledger.state.scan(table, low, high, _ROWS_PER_PAGE_MAX)
        objects: list[DirectoryObject] = []
        for key, row in rows:
            one = _published(row) if is_queue else _stored(object_type, key, row)
            if one is not None and _satisfies(one, filters):
                objects.append(_chosen(one, attributes))
                if len(objects) == objects_max:
                    return objects, key
        return objects, rows[-1][0] if len(rows) == _ROWS_PER_PAGE_MAX else None

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

    def _objects(self, object_type: DirectoryObjectType) -> Iterator[DirectoryObject]:
        if object_type is DirectoryObjectType.QUEUE_MANAGER:
            manager = self._ledger.manager
            if manager is not None:
                values = {name: getattr(manager, name) for name in _PUBLISHED_OF_MANAGER}
                values["identifier"] = manager.identifier
                yield DirectoryObject(manager.identifier, object_type, values)
            return
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
    values = {name: _decoded(value) for name, value in stored.attributes.items()}
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


def _decoded(value: bytes) -> Any:
    return msgspec.msgpack.decode(value)


def _index_key(object_type: DirectoryObjectType, value: Any) -> bytes:
    folded = value.lower() if isinstance(value, str) else value
    return bytes((object_type,)) + encode_attribute(folded)


def _sortable(value: Any) -> tuple[bool, Any]:
    """Sort objects without the attribute last."""
    return (value is None, value if value is not None else 0)
