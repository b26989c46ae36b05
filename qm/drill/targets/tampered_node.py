"""A node whose disk can be tampered with: `python -m qm.drill.targets.tampered_node CONFIG FOLDER`.

It is `qm node run` with another implementation behind `raft.log.files`, the seam at which the log,
the blob files and the reserve meet the disk; the node itself has no switch for it. FOLDER holds
`faults.json`, which lists the current faults and is read before every sync, and `writes`, a ledger
of writes and syncs: a power failure may tear what no sync covered (`qm.drill.targets.tearing`).
RocksDB writes its files itself: they are neither slowed nor torn.
"""

import os
import sys
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import override

from qm.node.file_system import Buffer, DiskDirectory, DiskFile, replace_file_system

FAULTS_FILE: Final = "faults.json"
WRITES_FILE: Final = "writes"
HELD_LOOK_S: Final = 0.01
"""How often a held sync checks whether it may continue."""


class Faults(msgspec.Struct, frozen=True):
    """Current faults of a node's disk."""

    sync_delay_s: float = 0.0
    """Extra time of every sync."""
    holds_syncs: bool = False
    """No sync begins, as with a disk that has stopped responding."""


class Ledger:
    """Writes and syncs in the order in which they happened, one line each.

    `W number offset length path`: a write; `S number path`: a completed sync of the file that
    covers its writes up to that number; `R old new`: a rename. Passed to the operating system line
    by line, so that the ledger of a killed node is complete.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._numbers = count(1)
        self.last = 0
        """Number of the last write."""

    def wrote(self, path: Path, offset: int, length: int) -> None:
        """Record a completed write."""
        self.last = next(self._numbers)
        self._append(f"W {self.last} {offset} {length} {path}")

    def synced(self, path: Path, upto: int) -> None:
        """Record a completed sync that began after write `upto`."""
        self._append(f"S {upto} {path}")

    def renamed(self, old: Path, new: Path) -> None:
        """Record that a file was renamed."""
        self._append(f"R {old} {new}")

    def _append(self, line: str) -> None:
        os.write(self._file, line.encode() + b"\n")


class Tamperer:
    """Applies the current faults to the files of this process."""

    def __init__(self, folder: Path) -> None:
        self.ledger: Final = Ledger(folder / WRITES_FILE)
        self._path = folder / FAULTS_FILE
        self._seen_ns = 0
        self._faults = Faults()
        self._never = threading.Event()

    def before_sync(self) -> None:
        """Make the calling thread wait as long as the disk would."""
        if self._now().sync_delay_s:
            self._never.wait(self._now().sync_delay_s)
        while self._now().holds_syncs:
            self._never.wait(HELD_LOOK_S)

    def _now(self) -> Faults:
        changed_ns = self._path.stat().st_mtime_ns
        if changed_ns != self._seen_ns:
            self._faults = msgspec.json.decode(self._path.read_bytes(), type=Faults)
            self._seen_ns = changed_ns
        return self._faults


def tampered(tamperer: Tamperer) -> type[DiskDirectory]:
    """Return the file system that applies a tamperer's faults."""
    ledger = tamperer.ledger

    class TamperedFile(DiskFile):
        @override
        def pwrite(self, data: Buffer, offset: int) -> None:
            super().pwrite(data, offset)
            ledger.wrote(self._path, offset, len(data))

        @override
        def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
            super().pwritev(buffers, offset)
            ledger.wrote(self._path, offset, sum(map(len, buffers)))

        @override
        def fdatasync(self) -> None:
            tamperer.before_sync()
            upto = ledger.last
            super().fdatasync()
            ledger.synced(self._path, upto)

    class TamperedDirectory(DiskDirectory):
        @override
        def open(self, name: str, *, create: bool = False) -> TamperedFile:
            return TamperedFile(self._path / name, os.O_RDWR | (os.O_CREAT if create else 0))

        @override
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            ledger.renamed(self._path / old, self._path / new)

        @override
        def subdirectory(self, name: str) -> "TamperedDirectory":
            return TamperedDirectory(self._path / name)

    return TamperedDirectory


def main(config: Path, folder: Path) -> int:
    """Run the node; return its exit status."""
    replace_file_system(tampered(Tamperer(folder)))
    # Not earlier: see `replace_file_system`.
    from qm.node.process import run

    return run(config)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
