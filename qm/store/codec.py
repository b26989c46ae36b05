"""Commands as written in a Raft entry: protobuf header, then raw packets (command.proto).

An entry's data is a `raft.batch` whose first payload is the Stamp. Decoding leaves the packets in
place: commands hold views into the entry and the offset of their bytes, which is the place that
positions store. An op, version or enum value that this build does not know raises
`UnknownCommand`: the node stops before it diverges (DESIGN 1.3).
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from struct import Struct
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST
from qm.model.values import commands as model
from qm.model.values.columns import U32, IntArray, typecode_of
from qm.model.values.commands import DECLARATIONS, Declaration
from qm.model.values.limits import APPLY_VERSION
from qm.pb import command_pb2
from raft import batch

HASH_BYTES: Final = 32
"""Length of the hash of an entry's data."""
_HEADER_LENGTH: Final = Struct("<I")
_UNREADABLE: Final = (batch.BatchError, DecodeError, ValueError, IndexError)
FACTS_KNOWN_MAX: Final = 4_096
"""Facts kept decoded; beyond this all are dropped and decoded again."""
_PLAIN: Final = (int, bool, str, bytes)
_FROM_PLACE: Final = frozenset({"body_index", "body_offset", "first_ordinal", "packets"})
"""Fields that come from the blob and its place, not from the header."""


_CARRIERS: Final = frozenset({"edge_batch", "send"})
"""Ops with packets after the header."""


class UnknownCommand(Exception):
    """This build cannot read the entry: a newer one wrote it, or it is damaged."""


def encode_stamp(stamp: model.Stamp) -> bytes:
    """Return the first payload of an entry."""
    message = command_pb2.Stamp(
        now_ms=stamp.now_ms,
        node=stamp.node,
        version=stamp.version,
        entry_hash=stamp.entry_hash,
    )
    return message.SerializeToString(deterministic=True)


def encode_command(
    command: model.Command, packets: Sequence[bytes | memoryview] | None = None
) -> bytes:
    """Return one payload: the header and, for commands that carry packets, the blob.

    `packets`: the blob of an EdgeBatch in pieces, instead of `command.packets`, so that it is
    copied only once.
    """
    return encode_inspected(command, packets).payload


class Inspected(msgspec.Struct, frozen=True, gc=False):
    """An encoded command with its decoded header, for all checks before it is proposed."""

    payload: bytes
    op: str
    message: Any
    """The message of the op, in command.proto."""
    blob_at: int
    """Offset of the blob, after the header."""

    @property
    def declaration(self) -> Declaration:
        """The declaration of the command."""
        return _BY_OP[self.op].declaration


def encode_inspected(
    command: model.Command, packets: Sequence[bytes | memoryview] | None = None
) -> Inspected:
    """As `encode_command` and `inspect` in turn, without decoding what was just encoded."""
    codec = _BY_TYPE[type(command)]
    header = command_pb2.Command()
    op = codec.declaration.op
    target = getattr(header, op)
    target.SetInParent()
    codec.fill(command, target)
    encoded = header.SerializeToString(deterministic=True)
    parts: list[bytes | memoryview] = [_HEADER_LENGTH.pack(len(encoded)), encoded]
    if isinstance(command, model.EdgeBatch):
        parts += packets or (command.packets,)
    elif isinstance(command, model.Send):
        parts.append(command.packets)
    return Inspected(b"".join(parts), op, target, _HEADER_LENGTH.size + len(encoded))


def inspect(payload: bytes) -> Inspected:
    """Decode the header of a command that this node encoded. Raises UnknownCommand."""
    try:
        return Inspected(payload, *_header(memoryview(payload)))
    except _UNREADABLE as error:
        raise UnknownCommand(str(error)) from error


def inspect_foreign(payload: bytes) -> Inspected:
    """Decode as `inspect` a command that another node sent. Raises UnknownCommand unless this build
    can apply it.

    A leader checks before it proposes: an entry in the log that cannot be read stops every node.
    """
    inspected = inspect(payload)
    try:
        blob_bytes = len(payload) - inspected.blob_at
        _read(inspected.op, inspected.message, blob_bytes, 0)
    except _UNREADABLE as error:
        raise UnknownCommand(str(error)) from error
    return inspected


def decode_entry(index: int, data: bytes) -> model.CommandBatch:
    """Return the commands of the entry at `index`. Raises UnknownCommand."""
    try:
        (_, first), *rest = _payloads(data)
        stamp = _decode_stamp(first)
        ordinal = 0
        commands: list[model.Command] = []
        for offset, payload in rest:
            command, ordinal = _decode_command(index, payload, offset, ordinal)
            commands.append(command)
    except _UNREADABLE as error:
        raise UnknownCommand(f"entry {index}: {error}") from error
    return model.CommandBatch(index, stamp, tuple(commands))


def packet_spans(index: int, data: bytes) -> list[tuple[int, int]]:
    """Return (offset, length) of each body of an entry that was applied, by ordinal.

    Raises UnknownCommand.
    """
    spans: list[tuple[int, int]] = []
    try:
        for offset, payload in _payloads(data)[1:]:
            op, message, blob_at = _header(payload)
            begin = offset + blob_at
            if op == "edge_batch":
                ends = array_of(U32, message.offsets)
                spans += [(begin + low, high - low) for low, high in pairwise(ends)]
            elif op == "send":
                sizes = [target.packet_bytes for target in message.targets]
                spans += zip(accumulate(sizes, initial=begin), sizes, strict=False)
    except _UNREADABLE as error:
        raise UnknownCommand(f"entry {index}: {error}") from error
    return spans


def _payloads(data: bytes) -> list[tuple[int, memoryview]]:
    """Return the payloads of an entry, each with its offset."""
    payloads = batch.split(data)
    begin = len(data) - sum(map(len, payloads))
    offsets = accumulate(map(len, payloads), initial=begin)
    return list(zip(offsets, payloads, strict=False))


def _header(payload: memoryview) -> tuple[str, Any, int]:
    """Return a command's op, its message in the header, and the offset of its blob."""
    if len(payload) < _HEADER_LENGTH.size:
        raise ValueError("a command has no header")
    (length,) = _HEADER_LENGTH.unpack_from(payload)
    blob_at = _HEADER_LENGTH.size + length
    if blob_at > len(payload):
        raise ValueError(f"a header of {length} bytes in a command of {len(payload)}")
    header = command_pb2.Command.FromString(bytes(payload[_HEADER_LENGTH.size : blob_at]))
    op = header.WhichOneof("op")
    if op is None:
        raise ValueError("this build does not know the op: upgrade this node")
    return op, getattr(header, op), blob_at


def _decode_stamp(payload: memoryview) -> model.Stamp:
    message = command_pb2.Stamp.FromString(bytes(payload))
    _check_version(message.version)
    entry_hash = message.entry_hash
    if len(entry_hash) not in (0, HASH_BYTES):
        raise ValueError(f"a hash of {len(entry_hash)} bytes")
    return model.Stamp(message.now_ms, message.node, message.version, entry_hash)


def _check_version(version: int) -> None:
    if not 1 <= version <= APPLY_VERSION:
        raise ValueError(
            f"apply version {version}; this build knows up to {APPLY_VERSION}: upgrade this node"
        )


def _decode_command(
    index: int, payload: memoryview, offset: int, ordinal: int
) -> tuple[model.Command, int]:
    op, message, blob_at = _header(payload)
    fields, used = _read(op, message, len(payload) - blob_at, ordinal)
    if op in _CARRIERS:
        fields |= {
            "packets": payload[blob_at:],
            "body_index": index,
            "body_offset": offset + blob_at,
            "first_ordinal": ordinal,
        }
    return _BY_OP[op].kind(**fields), ordinal + used


def _read(op: str, message: Any, blob_bytes: int, ordinal: int) -> tuple[dict[str, Any], int]:
    """Return the fields in the header, and the number of bodies that the command carries.

    Raises ValueError for fields that do not fit together, and what a field's codec raises.
    """
    fields = _BY_OP[op].read(message)
    if op == "raise_apply_version":
        # This build may not know how to apply the entries that follow, so it must stop here.
        _check_version(fields["apply_version"])
    used = 0
    if op == "edge_batch":
        used = len(fields["offsets"]) - 1
        _check_columns(fields, blob_bytes)
    elif op == "send":
        used = len(fields["targets"])
        if sum(target.packet_bytes for target in fields["targets"]) != blob_bytes:
            raise ValueError("the packets of the targets do not cover the blob")
        if len(fields["facts"]) not in (0, used):
            raise ValueError("a target has no facts")
    elif blob_bytes:
        raise ValueError(f"{op} must not carry a blob")
    if ordinal + used > BODY_ORDINAL_SYNTHETIC_FIRST:
        raise ValueError(f"more than {BODY_ORDINAL_SYNTHETIC_FIRST} bodies in one entry")
    return fields, used


def _check_columns(fields: dict[str, Any], blob_bytes: int) -> None:
    offsets = fields["offsets"].tolist()
    count = len(offsets) - 1
    facts_of = fields["facts_of"]
    if count < 1 or len(fields["checksums"]) != count or len(facts_of) != count:
        raise ValueError("the columns differ in length")
    if offsets[0] != 0 or offsets[-1] != blob_bytes or sorted(offsets) != offsets:
        raise ValueError("the offsets do not cover the packets")
    if max(facts_of) >= len(fields["facts"]):
        raise ValueError("a message has no facts")


def array_bytes(values: IntArray) -> bytes:
    """Return the values of a column, little-endian."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def array_of(typecode: str, data: bytes) -> IntArray:
    """Return the column of little-endian bytes. Raises ValueError for an incomplete value."""
    values = array(typecode)
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


Reader = Callable[[Any], Any]
Filler = Callable[[Any, Any], None]


class _Codec:
    """Converts between one value type and its message, field by field as declared.

    Fields that need no conversion are read together, since entries are decoded on every node.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        fields = [f for f in msgspec.structs.fields(kind) if f.name not in _FROM_PLACE]
        plain = [f.name for f in fields if f.type in _PLAIN]
        self._plain_names = tuple(plain)
        self._plain = _getter(self._plain_names)
        self._fields: list[tuple[str, Reader, Filler]] = [
            (field.name, *_field_codec(field.name, field.type)) for field in fields
        ]
        self._converted = [
            (name, read) for name, read, _ in self._fields if name not in self._plain_names
        ]

    def read(self, message: Any) -> dict[str, Any]:
        """Return the constructor's arguments from the message."""
        values = dict(zip(self._plain_names, self._plain(message), strict=True))
        for name, read in self._converted:
            values[name] = read(message)
        return values

    def value(self, message: Any) -> Any:
        """Return the value of a message that is not a command."""
        return self.kind(**self.read(message))

    def fill(self, value: Any, message: Any) -> None:
        """Set the message's fields from the value."""
        for name, _, fill in self._fields:
            fill(getattr(value, name), message)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads these attributes, always as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


def _field_codec(name: str, kind: Any) -> tuple[Reader, Filler]:
    typecode = typecode_of(kind)
    if typecode is not None:
        return (
            lambda message: array_of(typecode, getattr(message, name)),
            lambda value, message: setattr(message, name, array_bytes(value)),
        )
    if kind in _NESTED_SEQUENCES:
        return _sequence_codec(name, _Codec(_NESTED_SEQUENCES[kind]))
    if kind in (model.Request, model.Selector):
        nested = _Codec(kind)
        return (
            lambda message: nested.value(getattr(message, name)),
            lambda value, message: nested.fill(value, getattr(message, name)),
        )
    if kind in (tuple[bytes, ...], tuple[str, ...], tuple[int, ...]):
        return (
            lambda message: tuple(getattr(message, name)),
            lambda value, message: getattr(message, name).extend(value),
        )
    if kind in (bytes | None, int | None):
        return (
            lambda message: getattr(message, name) if message.HasField(name) else None,
            lambda value, message: None if value is None else setattr(message, name, value),
        )
    if kind == model.ControlCall | None:
        call = _Codec(model.ControlCall)
        return (
            lambda message: call.value(getattr(message, name)) if message.HasField(name) else None,
            lambda value, message: (
                None if value is None else call.fill(value, getattr(message, name))
            ),
        )
    if kind in (dict[str, bytes], dict[str, str]):
        return (
            lambda message: dict(sorted(getattr(message, name).items())),
            lambda value, message: getattr(message, name).update(value),
        )
    if kind == dict[str, bytes] | None:
        return (
            lambda message: (
                dict(sorted(getattr(message, name).values.items()))
                if message.HasField(name)
                else None
            ),
            lambda value, message: _fill_optional_map(name, value, message),
        )
    # plain ones, and enums, whose constructor refuses values it does not know
    return (
        lambda message: kind(getattr(message, name)),
        lambda value, message: setattr(message, name, value),
    )


def _sequence_codec(name: str, nested: _Codec) -> tuple[Reader, Filler]:
    value_of = _Interned(nested).value if nested.kind is model.Facts else nested.value

    def read(message: Any) -> Any:
        return tuple([value_of(part) for part in getattr(message, name)])

    def fill(value: Sequence[Any], message: Any) -> None:
        parts = getattr(message, name)
        for part in value:
            nested.fill(part, parts.add())

    return read, fill


class _Interned:
    """Caches repeated values: the facts of a session are the same in all its batches."""

    def __init__(self, nested: _Codec) -> None:
        self._nested = nested
        self._known: dict[bytes, Any] = {}

    def value(self, message: Any) -> Any:
        """Return the value of a message, the same object for equal messages."""
        encoded = message.SerializeToString(deterministic=True)
        value = self._known.get(encoded)
        if value is None:
            value = self._nested.value(message)
            if len(self._known) >= FACTS_KNOWN_MAX:
                self._known.clear()
            self._known[encoded] = value
        return value


def _fill_optional_map(name: str, value: dict[str, bytes] | None, message: Any) -> None:
    if value is not None:
        target = getattr(message, name)
        target.SetInParent()
        target.values.update(value)


_NESTED_SEQUENCES: Final[dict[Any, type[Any]]] = {
    tuple[model.Facts, ...]: model.Facts,
    tuple[model.SeenEvent, ...]: model.SeenEvent,
    tuple[model.Target, ...]: model.Target,
}


class _CommandCodec(_Codec):
    """The codec of one kind of command."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration.kind)
        self.declaration = declaration


_CODECS: Final = [_CommandCodec(declaration) for declaration in DECLARATIONS.values()]
_BY_TYPE: Final = {codec.kind: codec for codec in _CODECS}
_BY_OP: Final = {codec.declaration.op: codec for codec in _CODECS}
