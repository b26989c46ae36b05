"""Reads an EFFECTS row as columns, for the exporter (`qm.store.effects.effects_log` writes rows).

A separate module because numpy takes a while to load, and only a node that archives needs it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from qm.model.values.rows import POSITION_KEY, POSITION_ROW
from qm.store.effects.effects_log import (
    ALIKE,
    COUNTING,
    HEAD,
    IS_BLAKE3,
    NAME,
    NEEDS_COMMANDS,
    RUN,
    VERSION_OF_FLAGS,
    WIDTHS,
    head_of,
)

_KEY: Final = np.dtype(
    {
        "names": ["queue_id", "lookup_identifier"],
        "formats": [">u4", ">u8"],
        "offsets": [0, 4],
        "itemsize": POSITION_KEY.size,
    }
)
_ROW: Final = np.dtype(
    {
        "names": [
            "flags", "body_index", "body_ordinal", "stored_size", "source_queue_manager",
            "message_ordinal",
        ],
        "formats": ["<u2", "<u8", "<u2", "<u4", "V16", "<u4"],
        "offsets": [2, 4, 20, 26, 38, 54],
        "itemsize": POSITION_ROW.size,
    }
)  # fmt: skip


class EffectsRow(msgspec.Struct, frozen=True, gc=False):
    """One row. Columns are little-endian as `qm.model.values.effects.PositionEffects` has them."""

    index: int
    needs_commands: bool
    """Has transactions, senders' sequences or an audit mark: read the entry's own bytes, too."""
    term: int
    time_ms: int
    """Cluster time in milliseconds."""
    leader: str
    """The node that stamped the entry."""
    previous_index: int
    chain_before: bytes
    data_hash: bytes
    is_blake3: bool
    """Whether `data_hash` is BLAKE3; else it is SHA-256."""
    data_bytes: int
    commands: int
    count: int
    """Number of effects."""
    total_bytes: int
    """Bytes of all entries kept since archiving began, including this one."""
    names: dict[int, str]
    """Names of at least the queues in `queue_ids`, by id."""
    command_ends: memoryview
    kinds: memoryview
    queue_ids: memoryview
    lookup_identifiers: memoryview
    reasons: memoryview
    message_ordinals: memoryview
    source_queue_managers: memoryview
    """16 bytes for each effect."""
    sizes_bytes: memoryview
    body_indexes: memoryview
    body_ordinals: memoryview
    flags: memoryview
    """0 for effects without runs in rows before version 4."""


class _Run(NamedTuple):
    """A `qm.model.values.effects.PositionRun` as written in the row."""

    kind: int
    reason: int
    positions: int
    keys: memoryview
    rows: memoryview


def unpack_kept(index: int, row: bytes) -> EffectsRow:
    """Return a row's contents. Raises ValueError for another version's."""
    version, head_flags, leader_bytes, name_count, uniform, *numbers = head_of(index, row)
    term, time_ms, previous, chain_before, hash_of_data, size, command_count, count, total = numbers
    at = HEAD.size + leader_bytes
    leader = row[HEAD.size : at].decode()
    names = {}
    for _ in range(name_count):
        queue_id, length = NAME.unpack_from(row, at)
        at += NAME.size + length
        names[queue_id] = row[at - length : at].decode()
    view = memoryview(row)
    ends = view[at : at + 4 * command_count]
    widths = WIDTHS if version >= VERSION_OF_FLAGS else WIDTHS[:-1]
    columns, at = _columns(view, at + 4 * command_count, count, uniform, widths)
    if at < len(row):
        cut = _columns_of_runs(_runs(view, at))
        pairs = zip(columns, cut, strict=True)
        columns = [memoryview(b"".join(pair)) for pair in pairs] if count else cut
    kinds, queue_ids, keys, reasons, ordinals, sources, sizes, *bodies, flags = columns
    return EffectsRow(
        index=index,
        needs_commands=bool(head_flags & NEEDS_COMMANDS),
        term=term,
        time_ms=time_ms,
        leader=leader,
        previous_index=previous,
        chain_before=chain_before,
        data_hash=hash_of_data,
        is_blake3=bool(head_flags & IS_BLAKE3),
        data_bytes=size,
        commands=command_count,
        count=len(kinds),
        total_bytes=total,
        names=names,
        command_ends=ends,
        kinds=kinds,
        queue_ids=queue_ids,
        lookup_identifiers=keys,
        reasons=reasons,
        message_ordinals=ordinals,
        source_queue_managers=sources,
        sizes_bytes=sizes,
        body_indexes=bodies[0],
        body_ordinals=bodies[1],
        flags=flags,
    )


def _columns(
    view: memoryview, at: int, count: int, uniform: int, widths: Sequence[int]
) -> tuple[list[memoryview], int]:
    """Return the columns of a row that begin at `at`, and where they end."""
    columns = []
    for k, width in enumerate(widths):
        if count and uniform >> k & 1:
            columns.append(memoryview(bytes(view[at : at + width]) * count))
            at += width
        else:
            columns.append(view[at : at + width * count])
            at += width * count
    columns += [memoryview(bytes(width * count)) for width in WIDTHS[len(widths) :]]
    return columns, at


def _runs(view: memoryview, at: int) -> list[_Run]:
    runs = []
    while at < len(view):
        kind, reason, count = RUN.unpack_from(view, at)
        keys_at = at + RUN.size
        rows_at = keys_at + POSITION_KEY.size * (1 if kind & (ALIKE | COUNTING) else count)
        at = rows_at + POSITION_ROW.size * (1 if kind & ALIKE else count)
        keys, rows = view[keys_at:rows_at], view[rows_at:at]
        if kind & (ALIKE | COUNTING):
            keys = _counted(keys, count)
        if kind & ALIKE:
            numbers = np.frombuffer(view, "<u4", 2 * count + 1, at)
            rows = _unfolded(rows, numbers)
            at += numbers.nbytes
        kind &= ~(ALIKE | COUNTING)
        runs.append(_Run(kind, reason, count, keys, rows))
    return runs


def _counted(key: memoryview, count: int) -> memoryview:
    """Return `count` keys that count up from the given one."""
    keys = np.frombuffer(bytes(key) * count, _KEY).copy()
    keys["lookup_identifier"] += np.arange(count).astype("u8")
    return memoryview(keys.tobytes())


def _unfolded(row: memoryview, numbers: "npt.NDArray[np.uint32]") -> memoryview:
    """Return rows of a `qm.model.values.effects.Alike`; only fields that columns need are right."""
    count = len(numbers) // 2
    rows = np.frombuffer(bytes(row) * count, _ROW).copy()
    rows["body_ordinal"] += np.arange(count).astype("u2")
    rows["stored_size"] = np.diff(numbers[: count + 1])
    rows["message_ordinal"] = numbers[count + 1 :]
    return memoryview(rows.tobytes())


def _columns_of_runs(runs: Sequence[_Run]) -> list[memoryview]:
    """Return the columns of keys and rows, without a loop over positions."""
    keys = np.frombuffer(b"".join([run.keys for run in runs]), _KEY)
    rows = np.frombuffer(b"".join([run.rows for run in runs]), _ROW)
    columns = [
        b"".join([bytes((run.kind,)) * run.positions for run in runs]),
        _little_endian(keys["queue_id"]),
        _little_endian(keys["lookup_identifier"]),
        b"".join([run.reason.to_bytes(2, "little") * run.positions for run in runs]),
        rows["message_ordinal"].tobytes(),
        rows["source_queue_manager"].tobytes(),
        rows["stored_size"].tobytes(),
        rows["body_index"].tobytes(),
        rows["body_ordinal"].tobytes(),
        rows["flags"].tobytes(),
    ]
    return [memoryview(column) for column in columns]


def _little_endian(column: "npt.NDArray[np.unsignedinteger]") -> bytes:
    return column.astype(column.dtype.newbyteorder("<")).tobytes()
