"""The state machine of the consensus bench: counts payloads, carries ballast for snapshots."""

import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

from raft.batch import PREFIX_BYTES, header_bytes
from raft.machine import SnapshotSink, SnapshotSource
from raft.types import Entry, SnapshotMeta

PERSIST_EVERY_BYTES = 64 << 20
_STATE = struct.Struct("<QQ")


class CountingMachine:
    """Gives each payload its number. Its durable state is one small file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._index, self.count = self._recover()
        self._durable_index = self._index
        self._unpersisted_bytes = 0
        self._persisting: threading.Thread | None = None

    def applied_index(self) -> int:
        return self._index

    def durable_index(self) -> int:
        return self._durable_index

    def settle(self) -> None:
        """Nothing was put off."""

    def apply(self, entries: Sequence[Entry]) -> Sequence[Sequence[int]]:
        results = []
        for entry in entries:
            first = self.count
            self.count += (header_bytes(entry.data[:PREFIX_BYTES]) - PREFIX_BYTES) // 4
            self._unpersisted_bytes += len(entry.data)
            results.append(range(first, self.count))
        if entries:
            self._index = entries[-1].index
        is_idle = self._persisting is None or not self._persisting.is_alive()
        if self._unpersisted_bytes >= PERSIST_EVERY_BYTES and is_idle:
            self._unpersisted_bytes = 0
            self._persisting = threading.Thread(
                target=self._persist, args=(self._index, self.count)
            )
            self._persisting.start()
        return results

    def persist(self) -> None:
        if self._persisting is not None:
            self._persisting.join()
        self._persist(self._index, self.count)

    def _persist(self, index: int, count: int) -> None:
        write_durably(self._folder / "state", _STATE.pack(index, count))
        self._durable_index = max(index, self._durable_index)

    def _recover(self) -> tuple[int, int]:
        state = self._folder / "state"
        if not state.exists():
            return 0, 0
        index, count = _STATE.unpack(state.read_bytes())
        return index, count

    # Snapshots: the state, then the ballast

    @property
    def ballast(self) -> Path:
        return self._folder / "ballast"

    def snapshot(self, meta_index: int) -> tuple[int, SnapshotSource]:
        return meta_index, _Source(_STATE.pack(meta_index, self.count), self.ballast)

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotSink:
        return _Sink(self, meta)

    def restore(self, index: int, count: int) -> None:
        self._index, self.count = index, count
        self.persist()


class _Source:
    def __init__(self, head: bytes, ballast: Path) -> None:
        self._head = head
        ballast.touch()
        self._fd = os.open(ballast, os.O_RDONLY)

    def size_bytes(self) -> int:
        return len(self._head) + os.fstat(self._fd).st_size

    def identity(self) -> bytes:
        return self._head[:64]

    def read(self, offset: int, length: int) -> bytes:
        if offset < len(self._head):
            return self._head[offset : offset + length]
        return os.pread(self._fd, length, offset - len(self._head))

    def close(self) -> None:
        os.close(self._fd)


class _Sink:
    def __init__(self, machine: CountingMachine, meta: SnapshotMeta) -> None:
        self._machine = machine
        self._meta = meta
        self._path = machine.ballast.with_name(f"incoming-{meta.term}-{meta.index}")
        self._file = self._path.open("ab")

    def offset(self) -> int:
        return self._file.tell()

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._path.stat().st_size != self._meta.size_bytes:
            raise ValueError("the snapshot is not as long as it should be")
        with self._path.open("rb") as file:
            index, count = _STATE.unpack(file.read(_STATE.size))
        self._path.replace(self._machine.ballast)  # with its head: only its length matters
        self._machine.restore(index, count)

    def abandon(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def write_durably(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
