"""Columns of the archive's tables, version 4 (design.md, Schema).

Columns are only ever appended, nullable, under a new version; readers accept older ones.
"""

from enum import Enum
from typing import Final

import pyarrow as pa

SCHEMA_VERSION: Final = 4
METADATA_SCHEMA: Final = b"quorate.schema"
METADATA_CLUSTER: Final = b"quorate.cluster"
METADATA_NODE: Final = b"quorate.node"
METADATA_GROUP: Final = b"quorate.group"


class Part(Enum):
    """The tables of a range; the values begin the names of their files."""

    ENTRIES = "entries"
    OPERATIONS = "operations"
    QUEUES = "queues"
    ACKS = "acks"


def _fields(**columns: tuple[pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable) for name, (kind, nullable) in columns.items()])


def _required(kind: pa.DataType) -> tuple[pa.DataType, bool]:
    return kind, False


def _optional(kind: pa.DataType) -> tuple[pa.DataType, bool]:
    return kind, True


_I32, _I64, _TEXT, _BYTES, _BOOL = pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.bool_()
_HASH, _GUID = pa.binary(32), pa.binary(16)

SCHEMAS: Final[dict[Part, pa.Schema]] = {
    Part.ENTRIES: _fields(
        group=_required(_I32),
        index=_required(_I64),
        previous_index=_required(_I64),
        term=_required(_I64),
        time_ms=_required(_I64),
        leader=_required(_TEXT),
        data_bytes=_required(_I64),
        data=_optional(_BYTES),
        data_sha256=_optional(_HASH),
        chain_before=_required(_HASH),
        chain=_required(_HASH),
        operations=_required(_I32),
        commands=_required(_I32),
        audit_mark=_optional(_I64),
        digest=_optional(_GUID),
        data_blake3=_optional(_HASH),
    ),
    Part.OPERATIONS: _fields(
        group=_required(_I32),
        index=_required(_I64),
        term=_required(_I64),
        time_ms=_required(_I64),
        ordinal=_required(_I32),
        operation=_required(_TEXT),
        queue_id=_required(_I64),
        queue=_required(_TEXT),
        lookup_identifier=_required(_I64),
        source_queue_manager=_required(_GUID),
        message_ordinal=_required(_I64),
        sender_sequence_id=_optional(_I64),
        sender_sequence=_optional(_I64),
        sender_previous=_optional(_I64),
        destination=_optional(_TEXT),
        transaction=_optional(_GUID),
        reason=_required(_I32),
        size_bytes=_required(_I64),
        body_index=_required(_I64),
        body_ordinal=_required(_I32),
        body_sha256=_optional(_HASH),
        is_authenticated=_optional(_BOOL),
        was_encrypted=_optional(_BOOL),
    ),
    Part.QUEUES: _fields(
        group=_required(_I32),
        index=_required(_I64),
        audit_mark=_required(_I64),
        queue_id=_required(_I64),
        queue=_required(_TEXT),
        messages=_required(_I64),
        bytes=_required(_I64),
        quota_kb=_required(_I64),
    ),
    Part.ACKS: _fields(
        group=_required(_I32),
        edge=_required(_TEXT),
        session=_required(_I64),
        position=_required(_I64),
        depends_on_index=_required(_I64),
        commit_index_known=_required(_I64),
    ),
}

_DICTIONARIES: Final = {"operation": pa.uint8(), "queue": pa.int32()}
"""Dictionary columns of operations, with index types: Arrow need not look at the texts."""
TABLES: Final[dict[Part, pa.Schema]] = {
    **SCHEMAS,
    Part.OPERATIONS: pa.schema(
        [
            field.with_type(pa.dictionary(_DICTIONARIES[field.name], field.type))
            if field.name in _DICTIONARIES
            else field
            for field in SCHEMAS[Part.OPERATIONS]
        ]
    ),
}
"""Schemas of the tables passed to Arrow. The files are the same as with SCHEMAS."""

ADDED: Final[dict[Part, dict[str, int]]] = {
    Part.OPERATIONS: {"body_ordinal": 2, "is_authenticated": 4, "was_encrypted": 4},
    Part.ENTRIES: {"data_blake3": 3},
}
"""Columns by the version that added them; a reader of older files finds null there."""


def columns_of(part: Part, version: int) -> list[str]:
    """Return the columns that files of a version have."""
    added = ADDED.get(part, {})
    return [name for name in SCHEMAS[part].names if added.get(name, 1) <= version]
