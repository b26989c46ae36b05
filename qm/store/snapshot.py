"""Snapshots of a store: a checkpoint of its database, its blob files, and the bodies that are
still in the log, as one stream with random access.

Stream: magic, manifest length u32, manifest (msgpack), the files in its order, the bodies in its
order. What the stream needs is pinned while it is served: hard links keep the files, a hold keeps
the log. A received stream is accepted when its rows give the digest in its manifest, at the index
that consensus expects, and every body matches the checksum in its row. Two streams of one state
need not have the same bytes, so each has an identity, and only the same stream is resumed.
"""

import os
import shutil
import struct
import traceback
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

import msgspec
from typing_extensions import override

from qm.model.state.tables import Table
from qm.store.bodies.blobs import FILE_KEY, FILE_NAME, FileUse, blob_files, moved_entry, pack_entry
from qm.store.bodies.body_places import BodyDamaged
from qm.store.bodies.body_proof import prove_bodies
from qm.store.codec import packet_spans
from qm.store.database import DatabaseError
from qm.store.digest import digest_bytes
from qm.store.effects.effects_log import Exported
from qm.store.generation import BLOB_FOLDER, STATE_FOLDER
from qm.store.liveness import ENTRY_KEY
from qm.store.rocks import BLOCK_CACHE_BYTES, RocksState, open_database
from raft.log.disk import DiskDirectory
from raft.log.files import DirectoryTree
from raft.log.recovery import LogDamaged
from raft.log_view import LogViewError
from raft.machine import Hold, LogReader, SnapshotSource

MAGIC: Final = b"QSNAP\x00\x00\x01"
MANIFEST_MAX_BYTES: Final = 1 << 30
IDENTITY_BYTES: Final = 16
COPY_CACHE_BYTES: Final = 8 * 1024 * 1024
_LENGTH: Final = Struct("<I")
_COPY_BYTES: Final = 1 << 20


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a stream."""

    index: int
    term: int
    digest: bytes
    files: tuple[tuple[str, int], ...]
    """(path below the generation, length)."""
    bodies: tuple[tuple[int, int, int, int], ...]
    """(index, ordinal, offset in the entry's data, length) of packets that the log still has."""


class SourceUnreadable(Exception):
    """A part of the log that a snapshot needs cannot be read."""


class Pinned:
    """A state as it is now, kept by hard links, and the log that follows it.

    Making it takes little time for any state; `source` takes longer.
    """

    def __init__(self, state: RocksState, blobs: Path, log: LogReader, folder: Path) -> None:
        """`folder` must not exist yet, and is on the same file system. Raises OSError (ENOSPC);
        then nothing is kept.
        """
        self.folder = folder
        self.log = log
        self.applied = state.applied
        self.identity = os.urandom(IDENTITY_BYTES)
        self.hold: Hold | None = log.hold(log.retirable(0) + 1)
        try:
            folder.mkdir(parents=True)
            state.checkpoint(folder / STATE_FOLDER)
            (folder / BLOB_FOLDER).mkdir()
            # Files that no row names may be removed at this moment by another thread.
            for name in blob_files(state):
                os.link(blobs / name, folder / BLOB_FOLDER / name)
        except OSError:
            self.close()
            raise

    def source(self, *, proves_bodies: bool = False) -> "StoreSnapshot":
        """Return the stream, made from the copy. Call it once, in a thread of its own.

        `proves_bodies`: read them all before, for who keeps the stream without installing it.
        Raises BodyDamaged then.
        """
        database = open_database(
            self.folder / STATE_FOLDER, cache_bytes=COPY_CACHE_BYTES, is_read_only=True
        )
        state = RocksState(database)
        try:
            in_log = _entries_in_log(state, self.applied.index)
            if proves_bodies:
                blobs = DiskDirectory(self.folder).subdirectory(BLOB_FOLDER)
                prove_bodies(state, blobs, self.log)
        except BodyDamaged as error:
            _forget_frames(error)
            raise
        finally:
            state.close()
        return StoreSnapshot(self, in_log)

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        if self.hold is not None:
            self.hold.release()
            self.hold = None
        shutil.rmtree(self.folder, ignore_errors=True)


class StoreSnapshot(SnapshotSource):
    """A stream to serve; implements `raft.machine.SnapshotSource`."""

    def __init__(self, pinned: Pinned, in_log: list[tuple[int, list[int]]]) -> None:
        """`in_log`: (index, ordinals) of bodies that only the log has. `close` closes `pinned`."""
        self._pinned = pinned
        self._log = pinned.log
        # Keep the log that follows the state as well: the receiver of the stream needs it next.
        narrow = self._log.hold(in_log[0][0] if in_log else pinned.applied.index + 1)
        if pinned.hold is not None:
            pinned.hold.release()
        pinned.hold = narrow
        folder, applied = pinned.folder, pinned.applied
        bodies = tuple(_bodies(self._log, in_log))
        files = tuple(
            (str(path.relative_to(folder)), path.stat().st_size)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        )
        manifest = Manifest(
            applied.index, applied.term, digest_bytes(applied.digest), files, bodies
        )
        encoded = msgspec.msgpack.encode(manifest)
        self._head = MAGIC + _LENGTH.pack(len(encoded)) + encoded
        self._files = files
        self._bodies = bodies
        lengths = [len(self._head), *(size for _, size in files), *(b[3] for b in bodies)]
        self._ends = list(accumulate(lengths))

    @classmethod
    def at_once(
        cls, state: RocksState, blobs: Path, log: LogReader, folder: Path
    ) -> "StoreSnapshot":
        """Return the stream of a state, made in this thread."""
        pinned = Pinned(state, blobs, log, folder)
        return cls(pinned, _entries_in_log(state, pinned.applied.index))

    @override
    def size_bytes(self) -> int:
        return self._ends[-1]

    @override
    def identity(self) -> bytes:
        return self._pinned.identity

    @override
    def read(self, offset: int, length: int) -> bytes:
        parts = []
        part = bisect_right(self._ends, offset)
        while length > 0 and part < len(self._ends):
            begin = self._ends[part - 1] if part else 0
            take = min(length, self._ends[part] - offset)
            if take:
                parts.append(self._part(part, offset - begin, take))
            offset += take
            length -= take
            part += 1
        return b"".join(parts)

    def _part(self, part: int, offset: int, length: int) -> bytes:
        if part == 0:
            return self._head[offset : offset + length]
        if part <= len(self._files):
            with (self._pinned.folder / self._files[part - 1][0]).open("rb") as file:
                return os.pread(file.fileno(), length, offset)
        index, _, place, _ = self._bodies[part - 1 - len(self._files)]
        try:
            return self._log.read(index, place + offset, length)
        except (LogViewError, LogDamaged) as error:
            raise SourceUnreadable(f"a body of entry {index}: {error}") from error

    @override
    def close(self) -> None:
        self._pinned.close()


def _entries_in_log(state: RocksState, last: int) -> list[tuple[int, list[int]]]:
    """Return (index, ordinals) of live bodies that no blob file has."""
    return [
        (index, ordinals)
        for index, ordinals in state.liveness.live(0, last)
        if state.get(Table.BLOB, ENTRY_KEY.pack(index)) is None
    ]


def _bodies(
    log: LogReader, entries: list[tuple[int, list[int]]]
) -> Iterator[tuple[int, int, int, int]]:
    for index, ordinals in entries:
        try:
            spans = packet_spans(index, bytes(log.read_entry(index)))
        except (LogViewError, LogDamaged) as error:
            raise SourceUnreadable(f"entry {index}: {error}") from error
        for ordinal in ordinals:
            offset, length = spans[ordinal]
            yield index, ordinal, offset, length


class SnapshotDamaged(ValueError):
    """The stream fails its verification."""


def unpack(stream: BinaryIO, directory: DirectoryTree, target: Path, index: int, term: int) -> None:
    """Make a generation from a whole stream; durable on return.

    `target`: its folder, a name in `directory` that need not exist. Raises SnapshotDamaged unless
    the rows give the manifest's digest at (index, term).
    """
    manifest = _read_manifest(stream)
    if (manifest.index, manifest.term) != (index, term):
        raise SnapshotDamaged(
            f"the stream holds entry {manifest.index} of term {manifest.term},"
            f" not {index} of {term}"
        )
    if target.exists():
        directory.remove_tree(target.name)
    target.mkdir(parents=True)
    for name, size in manifest.files:
        path = (target / name).resolve()
        if target.resolve() not in path.parents:
            raise SnapshotDamaged(f"a file outside of the snapshot: {name!r}")
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            _copy(stream, file, size)
    (target / BLOB_FOLDER).mkdir(exist_ok=True)
    try:
        _prove(stream, target, manifest)
    except SnapshotDamaged:
        raise
    except (DatabaseError, ValueError, struct.error) as error:
        raise SnapshotDamaged(f"the database is damaged: {error}") from error
    directory.sync_tree(target.name)


def _prove(stream: BinaryIO, target: Path, manifest: Manifest) -> None:
    """Open what was unpacked, take over the bodies and verify the digest."""
    database = open_database(target / STATE_FOLDER, cache_bytes=BLOCK_CACHE_BYTES)
    try:
        state = RocksState(database)
        _take_bodies(state, stream, target / BLOB_FOLDER, manifest)
        is_proven = (
            state.applied.index == manifest.index
            and digest_bytes(state.computed_digest()) == manifest.digest
        )
        if not is_proven:
            raise SnapshotDamaged("the rows do not give the digest in the manifest")
        try:
            prove_bodies(state, DiskDirectory(target).subdirectory(BLOB_FOLDER))
        except BodyDamaged as error:
            raise SnapshotDamaged(str(error)) from error
        _forget_kept(state, manifest.index)
        state.commit(manifest.index, manifest.term)
        state.flush()
    except BaseException as error:
        _forget_frames(error)
        raise
    finally:
        database.close()


def _forget_frames(error: BaseException) -> None:
    """Drop the iterators that the frames of an error hold: one of them keeps a closed database
    open, and the folder locked against every later snapshot, for as long as somebody has the error.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def _forget_kept(state: RocksState, index: int) -> None:
    """Drop the rows of the sender's archive; this node's own continues after the snapshot."""
    state.drop_table(Table.EFFECTS)
    state.put(Table.EXPORTED, b"", Exported(index, restored_at=index).pack())


def _read_manifest(stream: BinaryIO) -> Manifest:
    if stream.read(len(MAGIC)) != MAGIC:
        raise SnapshotDamaged("not a snapshot of this version")
    head = stream.read(_LENGTH.size)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    if not 0 < length <= MANIFEST_MAX_BYTES:
        raise SnapshotDamaged(f"a manifest of {length} bytes")
    try:
        return msgspec.msgpack.decode(stream.read(length), type=Manifest)
    except msgspec.DecodeError as error:
        raise SnapshotDamaged(f"the manifest: {error}") from error


def _copy(stream: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        chunk = stream.read(min(size, _COPY_BYTES))
        if not chunk:
            raise SnapshotDamaged("the stream ends too early")
        target.write(chunk)
        size -= len(chunk)


def _take_bodies(state: RocksState, stream: BinaryIO, blobs: Path, manifest: Manifest) -> None:
    """Write the bodies that were in the sender's log to a blob file of this node."""
    if not manifest.bodies:
        return
    numbers = [int(path.name.removeprefix("blob-")) for path in blobs.glob("blob-*")]
    number = max(numbers, default=0) + 1
    use = FileUse()
    with (blobs / FILE_NAME.format(number)).open("wb") as file:
        for index, bodies in groupby(manifest.bodies, key=itemgetter(0)):
            lengths: list[int] = []
            for _, ordinal, _, length in bodies:
                _copy(stream, file, length)
                lengths += [0] * (ordinal - len(lengths)) + [length]
            row = pack_entry(moved_entry(number, use.written, lengths))
            state.put(Table.BLOB, ENTRY_KEY.pack(index), row)
            use.add(index, sum(lengths))
    state.put(Table.BLOB_FILE, FILE_KEY.pack(number), use.pack())
