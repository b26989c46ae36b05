"""The effects of entries, kept until the archive has them: one EFFECTS row per entry.

Only a replay can produce effects again, so their rows are in the same WriteBatch as the state that
they belong to: recovery replays what the state lacks, which makes the missing rows again
(qm/archive/design.md, Effects survive a crash). They are local, and written only while this node
archives. There is no work per message: effects are written as apply has them, columns as columns,
and runs as the keys and rows of their positions. The exporter cuts those into columns
(`qm.store.effects.effects_row`), which costs more than all else here and can wait for an idle core.

EXPORTED says up to which entry the rows are no longer needed. Rows in a snapshot are its sender's,
and are dropped before the state is used: a node exports what it applied itself.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from struct import Struct
from typing import Any, Final

import msgspec

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import DECLARATIONS, Command, CommandBatch
from qm.model.values.effects import Applied, PositionEffects, PositionRun
from qm.model.values.records import Queue, decode
from qm.model.values.rows import QUEUE_KEY
from qm.store.codec import array_bytes
from qm.store.effects.chain import CHAIN_START, Link
from qm.store.rocks import RocksState
from raft.types import Entry

INDEX_KEY: Final = Struct(">Q")
INDEX_END: Final = b"\xff" * (INDEX_KEY.size + 1)
QUEUE_NAMES_MAX: Final = 65_536
"""Cached names; beyond this all are dropped, and read again."""
_VERSION: Final = 4
_VERSION_FIRST: Final = 1
"""In version 1 runs were columns, too; in version 2 none was ALIKE or COUNTING; before version 4
columns had no flags.
"""
VERSION_OF_FLAGS: Final = 4
HEAD: Final = Struct("<BBBHHQQQ32s32sIIIQ")
"""version u8, NEEDS_COMMANDS | IS_BLAKE3 u8, length of the name of the node that stamped it u8,
number of queue names u16, which columns have one value for all effects u16 (a bit each), term u64,
cluster time ms u64, index of the previous DATA entry u64, chain value before it, hash of the
entry's data, its length u32, commands u32, effects that have columns u32, bytes of all entries that
were kept up to it u64. Then follow that name, NAMEs, ends of commands u32, columns, and runs.
"""
NEEDS_COMMANDS: Final = 1
"""The entry's commands are needed to understand it."""
IS_BLAKE3: Final = 2
NAME: Final = Struct("<IH")
"""queue_id u32, length of its name u16."""
RUN: Final = Struct("<BHI")
"""kind u8, reason u16, positions u32; their keys and their rows follow. With COUNTING in the kind
only the first key follows, since they count up. With ALIKE (see `qm.model.values.effects.Alike`)
the first key and row follow, positions + 1 offsets u32, and their message ordinals u32.
"""
ALIKE: Final = 0x80
COUNTING: Final = 0x40
_EXPORTED: Final = Struct(f"<QQ{len(CHAIN_START)}s")
_TRANSACTIONAL: Final = frozenset(
    {commands.TxCommit, commands.TxAbort, commands.TxPrepare, commands.AuditMark}
)
_MAY_BE_TRANSACTIONAL: Final = frozenset(
    command for command in DECLARATIONS if "transaction" in command.__struct_fields__
)


class Exported(msgspec.Struct, frozen=True, gc=False):
    """How far this node's archive has come; local row EXPORTED."""

    upto: int = 0
    """Nothing at or below this index is needed any longer."""
    chain: bytes = CHAIN_START
    """Chain value at the end of the last range that was exported."""
    restored_at: int = 0
    """Index of a snapshot that this node installed since then, 0 for none."""

    def pack(self) -> bytes:
        """Return the row."""
        return _EXPORTED.pack(self.upto, self.restored_at, self.chain)

    @classmethod
    def unpack(cls, row: bytes | None) -> "Exported":
        """Return the value of a row; without a row nothing was exported."""
        if row is None:
            return cls()
        upto, restored_at, chain = _EXPORTED.unpack(row)
        return cls(upto, chain, restored_at)


WIDTHS: Final = (1, 4, 8, 2, 4, 16, 4, 8, 2, 2)
"""Bytes per effect of the columns, in the order of `_columns_of`; the last one is flags."""


def head_of(index: int, row: bytes) -> tuple[Any, ...]:
    """Return the fields of a row's HEAD. Raises ValueError for another version's."""
    head = HEAD.unpack_from(row)
    if not _VERSION_FIRST <= head[0] <= _VERSION:
        raise ValueError(f"effects of entry {index} in version {head[0]}: upgrade this node")
    return head


def place_of(index: int, row: bytes) -> tuple[int, int]:
    """Return `previous_index` and `data_bytes` of a row. Raises ValueError as `head_of`."""
    *_, previous_index, _, _, data_bytes, _, _, _ = head_of(index, row)
    return previous_index, data_bytes


def chain_before(index: int, row: bytes) -> bytes:
    """Return the chain value before a row's entry. Raises ValueError as `head_of`."""
    *_, before, _, _, _, _, _ = head_of(index, row)
    return bytes(before)


def total_bytes_of(row: bytes) -> int:
    """Return `EffectsRow.total_bytes` of a row."""
    total: int = HEAD.unpack_from(row)[-1]
    return total


class EffectsLog:
    """Writes EFFECTS rows. Made again when the state is replaced."""

    def __init__(self, state: RocksState) -> None:
        self._state = state
        self._names: dict[int, bytes] = {}
        newest = state.scan(Table.EFFECTS, b"", INDEX_END, 1, backward=True)
        self.total_bytes = total_bytes_of(newest[0][1]) if newest else 0
        """Bytes of all entries that were kept, up to the newest row."""
        self.exported = Exported.unpack(state.get(Table.EXPORTED, b""))
        self.newest_index = state.applied.index
        """Index of the last entry that was applied."""
        self.written_bytes = 0
        """Bytes of rows written since this object was made."""
        self.marks: list[int] = []
        """Indexes of audit marks that were applied, until the exporter takes them."""

    def begin_run(self, removed_queue_names: Iterable[Mapping[int, str]]) -> None:
        """Begin a run of entries in which these queues are removed: the state after it no longer
        has their rows, and the state before it has none of a queue that was made in the run.
        """
        if len(self._names) > QUEUE_NAMES_MAX:
            self._names.clear()
        for names in removed_queue_names:
            for queue_id, name in names.items():
                self._names[queue_id] = _packed_name(queue_id, name)

    def keep(
        self, entry: Entry, batch: CommandBatch, kinds: Set[type], applied: Applied, link: Link
    ) -> None:
        """Write the row of an entry that was just applied, unless the archive has it already, since
        a power loss brought back an older state. `kinds`: types of the entry's commands.
        """
        if entry.index <= self.exported.upto:
            return
        leader = batch.stamp.node.encode()
        self.total_bytes += len(entry.data)
        needs_commands = (
            bool(applied.incoming_sequences)
            or not kinds.isdisjoint(_TRANSACTIONAL)
            or (not kinds.isdisjoint(_MAY_BE_TRANSACTIONAL) and _has_transaction(batch.commands))
        )
        effects = applied.columns
        count = len(effects.kinds)
        columns, uniform = _packed(_columns_of(effects), count) if count else ([], 0)
        queue_ids = set(effects.queue_ids)
        positions: list[bytes] = []
        for run in applied.runs:
            queue_ids.update(run.queue_ids)
            if run.alike:
                positions += _packed_alike(run)
            elif run.ends is not None and _counts_up(run.ends, len(run.keys)):
                head = RUN.pack(run.kind | COUNTING, run.reason, len(run.keys))
                positions += (head, run.ends[0], *run.rows)
            else:
                positions.append(RUN.pack(run.kind, run.reason, len(run.keys)))
                positions += run.keys
                positions += run.rows
        head = HEAD.pack(
            _VERSION,
            NEEDS_COMMANDS * needs_commands | IS_BLAKE3 * link.is_blake3,
            len(leader),
            len(queue_ids),
            uniform,
            entry.term,
            applied.now_ms,
            link.previous_index,
            link.before,
            link.data_hash,
            len(entry.data),
            len(effects.command_ends),
            count,
            self.total_bytes,
        )
        names = [self._name(queue_id) for queue_id in sorted(queue_ids)]
        ends = array_bytes(effects.command_ends)
        row = b"".join([head, leader, *names, ends, *columns, *positions])
        self._state.put(Table.EFFECTS, INDEX_KEY.pack(entry.index), row)
        self.written_bytes += len(row)
        self.newest_index = entry.index

    def _name(self, queue_id: int) -> bytes:
        """Return id and name of a queue as in a row; the name of a queue never changes."""
        name = self._names.get(queue_id)
        if name is None:
            row = self._state.get(Table.QUEUE, QUEUE_KEY.pack(queue_id))
            text = "" if row is None else decode(Queue, row).pathname
            name = self._names[queue_id] = _packed_name(queue_id, text)
        return name

    def move(self, exported: Exported, indexes: list[int]) -> None:
        """Set how far the archive has come, and drop the rows of these indexes (ascending), which
        it no longer needs; both take effect with the next commit.
        """
        self.exported = exported
        self._state.put(Table.EXPORTED, b"", exported.pack())
        self._state.delete_rows(Table.EFFECTS, [INDEX_KEY.pack(index) for index in indexes])


def _packed_name(queue_id: int, name: str) -> bytes:
    text = name.encode()
    return NAME.pack(queue_id, len(text)) + text


def _packed(columns: list[bytes], count: int) -> tuple[list[bytes], int]:
    """Return the columns, with one value for those whose values are equal, and which these are."""
    uniform = 0
    for k, width in enumerate(WIDTHS if count > 1 else ()):
        first = columns[k][:width]
        if columns[k] == first * count:
            columns[k] = first
            uniform |= 1 << k
    return columns, uniform


def _counts_up(ends: tuple[bytes, bytes], count: int) -> bool:
    first, last = ends
    return int.from_bytes(last, "big") - int.from_bytes(first, "big") == count - 1


def _packed_alike(run: PositionRun) -> list[bytes]:
    """Return a run as runs with ALIKE where many positions are alike, and without it elsewhere."""
    parts: list[bytes] = []
    keys, rows, done, passed = iter(run.keys), iter(run.rows), 0, 0
    for at, key, row, offsets, ordinals in run.alike:
        if at > done:
            parts.append(RUN.pack(run.kind, run.reason, at - done))
            parts += islice(keys, passed, passed + at - done)
            parts += islice(rows, passed, passed + at - done)
            passed = 0
        count = len(ordinals)
        parts += (RUN.pack(run.kind | ALIKE, run.reason, count), key, row)
        parts += (array_bytes(offsets), array_bytes(ordinals))
        done = at + count
        passed += count
    if len(run.keys) > done:
        parts.append(RUN.pack(run.kind, run.reason, len(run.keys) - done))
        parts += islice(keys, passed, None)
        parts += islice(rows, passed, None)
    return parts


def _columns_of(effects: PositionEffects) -> list[bytes]:
    count, sources = len(effects.kinds), effects.source_queue_managers
    return [
        bytes(effects.kinds),
        array_bytes(effects.queue_ids),
        array_bytes(effects.lookup_identifiers),
        array_bytes(effects.reasons),
        array_bytes(effects.message_ordinals),
        sources[0] * count if count and sources.count(sources[0]) == count else b"".join(sources),
        array_bytes(effects.sizes_bytes),
        array_bytes(effects.body_indexes),
        array_bytes(effects.body_ordinals),
        array_bytes(effects.flags),
    ]


def _has_transaction(batch: Sequence[Command]) -> bool:
    found = [getattr(command, "transaction", None) for command in batch]
    return found.count(None) < len(found)
