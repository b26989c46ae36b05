"""What entries did, kept for the archive until it has it: one EFFECTS row per entry.

Effects cannot be had again without replaying, so their rows lie in the same WriteBatch as the state
that they belong to: recovery replays what the state lacks, and that makes the missing rows again
(qm/archive/design.md, Effects survive a crash). They are local, and written only while somebody
archives. Columns are packed as they are; nothing is done per message.

EXPORTED says up to where the rows are needed no more. What a snapshot brings is its sender's, and
is dropped before the state is used: a node exports what it applied itself.
"""

from struct import Struct
from typing import Any, Final

import msgspec

from qm.model import commands
from qm.model.commands import Command, CommandBatch
from qm.model.effects import Applied, PositionEffects
from qm.model.records import Queue, decode
from qm.model.rows import QUEUE_KEY
from qm.model.state import Table
from qm.store.chain import CHAIN_START, Link
from qm.store.codec import array_bytes, array_of
from qm.store.rocks import RocksState
from raft.types import Entry

INDEX_KEY: Final = Struct(">Q")
INDEX_END: Final = b"\xff" * (INDEX_KEY.size + 1)
QUEUE_NAMES_MAX: Final = 65_536
"""Names in hand; beyond it all are dropped, and read again."""
_VERSION: Final = 1
_HEAD: Final = Struct("<BBBHHQQQ32s32sIIIQ")
"""version u8, _NEEDS_COMMANDS | _IS_BLAKE3 u8, bytes of the name of the node that stamped it u8,
names of queues u16, which columns have one value for all effects u16 (a bit each), term u64,
cluster time ms u64, index of the DATA entry before u64, chain value before it, hash of the entry's
data, their bytes u32, commands u32, effects u32, bytes of all entries that were kept up to it u64.
"""
_NEEDS_COMMANDS: Final = 1
"""The entry's commands are needed to understand it."""
_IS_BLAKE3: Final = 2
_NAME: Final = Struct("<IH")
"""queue_id u32, bytes of its name u16."""
_EXPORTED: Final = Struct(f"<QQ{len(CHAIN_START)}s")
_TRANSACTIONAL: Final = (
    commands.TxCommit,
    commands.TxAbort,
    commands.TxPrepare,
    commands.AuditMark,
)


class Exported(msgspec.Struct, frozen=True, gc=False):
    """How far the archive is on this node; local row EXPORTED."""

    upto: int = 0
    """Nothing at or below it is needed any more."""
    chain: bytes = CHAIN_START
    """Chain value at the end of the last range that was exported."""
    restored_at: int = 0
    """Index of a snapshot that this node installed since then, 0 for none."""

    def pack(self) -> bytes:
        """Return the row."""
        return _EXPORTED.pack(self.upto, self.restored_at, self.chain)

    @classmethod
    def unpack(cls, row: bytes | None) -> "Exported":
        """Return what a row says; without one nothing was exported."""
        if row is None:
            return cls()
        upto, restored_at, chain = _EXPORTED.unpack(row)
        return cls(upto, chain, restored_at)


class KeptEntry(msgspec.Struct, frozen=True, gc=False):
    """One row. Columns are little-endian as `qm.model.effects.PositionEffects` has them."""

    index: int
    needs_commands: bool
    """Transactions, senders' sequences or an audit mark: the entry's own bytes say more."""
    term: int
    time_ms: int
    """Cluster time."""
    leader: str
    """Node that stamped it."""
    previous_index: int
    chain_before: bytes
    data_hash: bytes
    is_blake3: bool
    """Otherwise it is SHA-256."""
    data_bytes: int
    commands: int
    count: int
    """Effects."""
    total_bytes: int
    """Of all entries kept since archiving began, this one included."""
    names: dict[int, str]
    """Of the queues in `queue_ids`, by id."""
    command_ends: memoryview
    kinds: memoryview
    queue_ids: memoryview
    lookup_identifiers: memoryview
    reasons: memoryview
    message_ordinals: memoryview
    source_queue_managers: memoryview
    """16 bytes each."""
    sizes_bytes: memoryview
    body_indexes: memoryview
    body_ordinals: memoryview


_WIDTHS: Final = (1, 4, 8, 2, 4, 16, 4, 8, 2)
"""Bytes per effect of the columns from `kinds` on, in the order of the row."""
_QUEUE_IDS: Final = 1
"""Of the columns, `queue_ids`."""


def _head_of(index: int, row: bytes) -> tuple[Any, ...]:
    """Return a row's _HEAD. Raises ValueError for another version's."""
    head = _HEAD.unpack_from(row)
    if head[0] != _VERSION:
        raise ValueError(f"effects of entry {index} in version {head[0]}: upgrade this node")
    return head


def place_of(index: int, row: bytes) -> tuple[int, int]:
    """Return `previous_index` and `data_bytes` of a row. Raises as `unpack_kept`."""
    *_, previous_index, _, _, data_bytes, _, _, _ = _head_of(index, row)
    return previous_index, data_bytes


def unpack_kept(index: int, row: bytes) -> KeptEntry:
    """Return a row's contents. Raises ValueError for another version's."""
    _, flags, leader_bytes, name_count, uniform, *numbers = _head_of(index, row)
    term, time_ms, previous, chain_before, hash_of_data, size, command_count, count, total = numbers
    at = _HEAD.size + leader_bytes
    leader = row[_HEAD.size : at].decode()
    names = {}
    for _ in range(name_count):
        queue_id, length = _NAME.unpack_from(row, at)
        at += _NAME.size + length
        names[queue_id] = row[at - length : at].decode()
    view, columns = memoryview(row), []
    ends = view[at : at + 4 * command_count]
    at += 4 * command_count
    for k, width in enumerate(_WIDTHS):
        if uniform >> k & 1:
            columns.append(memoryview(row[at : at + width] * count))
            at += width
        else:
            columns.append(view[at : at + width * count])
            at += width * count
    kinds, queue_ids, keys, reasons, ordinals, sources, sizes, *bodies = columns
    return KeptEntry(
        index=index,
        needs_commands=bool(flags & _NEEDS_COMMANDS),
        term=term,
        time_ms=time_ms,
        leader=leader,
        previous_index=previous,
        chain_before=chain_before,
        data_hash=hash_of_data,
        is_blake3=bool(flags & _IS_BLAKE3),
        data_bytes=size,
        commands=command_count,
        count=count,
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
    )


def total_bytes_of(row: bytes) -> int:
    """Return `KeptEntry.total_bytes` of a row."""
    total: int = _HEAD.unpack_from(row)[-1]
    return total


class EffectsKeeper:
    """Writes EFFECTS rows. Made anew when the state becomes another one."""

    def __init__(self, state: RocksState) -> None:
        # Only who archives loads numpy, which pyarrow loads as well.
        from qm.store.cutting import columns_of_runs

        self._columns_of_runs = columns_of_runs
        self._state = state
        self._names: dict[int, bytes] = {}
        newest = state.scan(Table.EFFECTS, b"", INDEX_END, 1, backward=True)
        self.total_bytes = total_bytes_of(newest[0][1]) if newest else 0
        """See KeptEntry.total_bytes; of the newest row."""
        self.exported = Exported.unpack(state.get(Table.EXPORTED, b""))
        self.newest_index = state.applied.index
        """Of the last entry that was applied."""
        self.marks: list[int] = []
        """Indexes of audit marks that were applied; whoever archives takes them."""

    def begin_run(self) -> None:
        """A run of entries begins."""
        if len(self._names) > QUEUE_NAMES_MAX:
            self._names.clear()

    def keep(self, entry: Entry, batch: CommandBatch, applied: Applied, link: Link) -> None:
        """Write the row of an entry that was applied just now, unless the archive has it: an older
        state than that came back after a power loss.
        """
        if entry.index <= self.exported.upto:
            return
        leader = batch.stamp.node.encode()
        self.total_bytes += len(entry.data)
        needs_commands = bool(applied.incoming_sequences) or any(
            map(_is_transactional, batch.commands)
        )
        command_ends = applied.columns.command_ends
        columns, uniform, count = self._packed_columns(applied)
        ids = array_of("I", columns[_QUEUE_IDS])
        names = [self._name(one) for one in sorted({*ids})]
        head = _HEAD.pack(
            _VERSION,
            _NEEDS_COMMANDS * needs_commands | _IS_BLAKE3 * link.is_blake3,
            len(leader),
            len(names),
            uniform,
            entry.term,
            applied.now_ms,
            link.previous_index,
            link.before,
            link.data_hash,
            len(entry.data),
            len(command_ends),
            count,
            self.total_bytes,
        )
        row = b"".join((head, leader, *names, array_bytes(command_ends), *columns))
        self._state.put(Table.EFFECTS, INDEX_KEY.pack(entry.index), row)
        self.newest_index = entry.index

    def _packed_columns(self, applied: Applied) -> tuple[list[bytes], int, int]:
        """Return the columns of a row, those with one value for all effects as that value; which
        they are; and how many effects there were.

        Mostly an entry is a run of arrivals, or of receives, of one queue.
        """
        packed = _columns_of(applied.columns) if applied.columns.kinds or not applied.runs else []
        if applied.runs:
            cut = self._columns_of_runs(applied.runs)
            packed = (
                [b"".join(column) for column in zip(packed, cut, strict=True)] if packed else cut
            )
        count, uniform = len(packed[0]), 0
        if count > 1:
            for k, width in enumerate(_WIDTHS):
                first = packed[k][:width]
                if packed[k] == first * count:
                    packed[k] = first
                    uniform |= 1 << k
        return packed, uniform, count

    def _name(self, queue_id: int) -> bytes:
        """Return id and name of a queue, as a row has them.

        A queue that went with this very entry is in the state of the last commit; one that came
        and went within a run of entries had an effect, and so a name, while it was there.
        """
        name = self._names.get(queue_id)
        if name is None:
            row = self._state.get_before_or_now(Table.QUEUE, QUEUE_KEY.pack(queue_id))
            text = b"" if row is None else decode(Queue, row).pathname.encode()
            name = self._names[queue_id] = _NAME.pack(queue_id, len(text)) + text
        return name

    def move(self, exported: Exported, indexes: list[int]) -> None:
        """Set how far the archive is, and drop rows that it needs no more, ascending; both with
        the next commit.
        """
        self.exported = exported
        self._state.put(Table.EXPORTED, b"", exported.pack())
        self._state.delete_rows(Table.EFFECTS, [INDEX_KEY.pack(index) for index in indexes])


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
    ]


def _is_transactional(command: Command) -> bool:
    return isinstance(command, _TRANSACTIONAL) or getattr(command, "transaction", None) is not None
