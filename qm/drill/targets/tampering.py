"""Faults of the disks and clocks of nodes that are processes of this machine.

Slow, stopped and torn disks use another file system implementation inside the node
(`qm.drill.targets.tampered_node`), errors a preloaded library (`qm.drill.targets.fault_layer`),
small disks are tmpfs, and wall clocks use libfaketime. A node must be started for it: `enable` it
while it is not running.
"""

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from qm.drill.targets import fault_layer
from qm.drill.targets.ability import Ability, Refused
from qm.drill.targets.fault_layer import Fault
from qm.drill.targets.tampered_node import FAULTS_FILE, WRITES_FILE, Faults
from qm.drill.targets.tearing import Torn, tear

CLOCK_FILE: Final = "clock"
CLOCK_LOOK_S: Final = 1
"""How soon a process notices that its clock was changed."""
SMALL_DISK_ROOM_BYTES: Final = 320 << 20
"""Initial free space of a small disk: twice the reserve of a drill's nodes, and some segments."""
ERRORS_FILE: Final = "errors"
_LIBRARY: Final = "libfault.so"
_COPY: Final = "copy"
_FILLER: Final = "filler"
_LIBRARIES: Final = "/usr/lib/*/faketime/libfaketimeMT.so.1"
_MOUNT_TIMEOUT_S: Final = 60
_BLOCK_BYTES: Final = 4_096


class Tampering:
    """Tampers with the nodes of one target. All calls block, but only shortly."""

    def __init__(self, folder: Path, data: Callable[[str], Path]) -> None:
        """`data` returns the data folder of a node."""
        self._folder = folder
        self._data = data
        self._enabled: set[str] = set()
        self._clocked: set[str] = set()
        self._disks: set[str] = set()

    @property
    def abilities(self) -> frozenset[Ability]:
        """What can be done here and now."""
        found = {Ability.SYNCS, Ability.FOLDERS}
        if fault_layer.compiler() is not None:
            found.add(Ability.DISK_ERRORS)
        if _faketime() is not None:
            found.add(Ability.CLOCKS)
        if os.geteuid() == 0 and shutil.which("mount") is not None:
            found.add(Ability.SMALL_DISKS)
        return frozenset(found)

    # Starting nodes

    def enable(self, node: str, *, with_clock: bool = False) -> None:
        """Make a node ready to be tampered with from its next start. It must not run.

        `with_clock`: its wall clock as well, which makes every reading of a clock more expensive.
        """
        folder = self._folder / node
        folder.mkdir(parents=True, exist_ok=True)
        fault_layer.build(self._folder / _LIBRARY)
        fault_layer.create(folder / ERRORS_FILE)
        self._enabled.add(node)
        if with_clock:
            self._clocked.add(node)
        self._set(node, Faults())
        self.set_clock(node, 0)

    def is_enabled(self, node: str, *, with_clock: bool = False) -> bool:
        """Return whether `enable` was called for a node."""
        return node in (self._clocked if with_clock else self._enabled)

    def arguments(self, node: str, config: Path) -> list[str]:
        """Return the arguments of the interpreter for a node."""
        if node not in self._enabled:
            return ["-m", "qm", "node", "run", "--config", str(config)]
        return ["-m", "qm.drill.targets.tampered_node", str(config), str(self._folder / node)]

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment of a node's process."""
        found = dict(os.environ)
        layer, library = self._folder / _LIBRARY, _faketime()
        if node in self._enabled and layer.exists():
            found["LD_PRELOAD"] = str(layer)
            found[fault_layer.FILE_VARIABLE] = str(self._folder / node / ERRORS_FILE)
        if node not in self._clocked or library is None:
            return found
        preloaded = found.get("LD_PRELOAD")
        return {
            **found,
            "LD_PRELOAD": f"{preloaded}:{library}" if preloaded else str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / node / CLOCK_FILE),
            "FAKETIME_CACHE_DURATION": str(CLOCK_LOOK_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Otherwise every timed wait for the interpreter lock ends at once, and threads spin:
            # passing work to one takes 25 ms instead of 0.05.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    # Faults

    def slow_syncs(self, node: str, delay_s: float) -> None:
        """Make every sync of the log take this much longer."""
        self._set(node, Faults(sync_delay_s=delay_s))

    def fail_syncs(self, node: str, part: str) -> None:
        """Have the next sync of a file fail whose path in the data folder holds `part`."""
        self._fail(node, Fault(suffix=part.encode(), sync=errno.EIO, once=1))

    def fail_writes(self, node: str, part: str) -> None:
        """Have every write to such files fail."""
        self._fail(node, Fault(suffix=part.encode(), write=errno.EIO))

    def errors(self, node: str) -> int:
        """Return how many calls failed since the last of these."""
        return fault_layer.hits(self._folder / node / ERRORS_FILE)

    def _fail(self, node: str, fault: Fault) -> None:
        fault.folder = str(self._data(node).resolve()).encode()
        fault_layer.write(self._folder / node / ERRORS_FILE, fault)

    def copy_folder(self, node: str) -> None:
        """Take a copy of the data folder. The node must not run."""
        target = self._folder / node / _COPY
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._data(node), target)

    def set_folder_back(self, node: str) -> None:
        """Put the copy in the place of what the data folder holds. The node must not run."""
        empty(self._data(node))
        shutil.copytree(self._folder / node / _COPY, self._data(node), dirs_exist_ok=True)

    def hold_syncs(self, *nodes: str) -> None:
        """Stop all syncs from completing."""
        for node in nodes:
            self._set(node, Faults(holds_syncs=True))

    def tear(self, node: str, chance: random.Random) -> Torn:
        """Lose what a power failure might lose. The node was killed and is not running."""
        return tear(self._folder / node / WRITES_FILE, chance)

    def set_clock(self, node: str, offset_s: int) -> None:
        """Make the wall clock of a node differ from the machine's, within CLOCK_LOOK_S."""
        path = self._folder / node / CLOCK_FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n", encoding="ascii")
        fresh.replace(path)

    def shrink_disk(self, node: str) -> None:
        """Move the data folder to a small disk. The node must not run. Raises Refused."""
        data, disk = self._data(node), self._folder / "disks" / node
        used = sum(path.stat().st_size for path in _files(data))
        disk.mkdir(parents=True, exist_ok=True)
        size = used + SMALL_DISK_ROOM_BYTES
        _mount("-t", "tmpfs", "-o", f"size={size}", f"drill-{node}", str(disk))
        self._disks.add(node)
        shutil.copytree(data, disk, dirs_exist_ok=True)
        _mount("--bind", str(disk), str(data))

    def has_small_disk(self, node: str) -> bool:
        """Return whether the data folder of a node is on a small disk."""
        return node in self._disks

    def fill_disk(self, node: str) -> None:
        """Fill the small disk of a node completely."""
        path = self._data(node) / _FILLER
        size, step = 0, shutil.disk_usage(path.parent).free
        with path.open("wb") as filler:
            while step >= _BLOCK_BYTES:
                try:
                    os.posix_fallocate(filler.fileno(), size, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2  # the node took some of it meanwhile
                else:
                    size += step

    def relieve(self) -> None:
        """End every fault that can end without a restart."""
        for node in self._enabled:
            self._set(node, Faults())
            self._fail(node, Fault())
            self.set_clock(node, 0)
        for node in self._disks:
            (self._data(node) / _FILLER).unlink(missing_ok=True)

    def end(self) -> None:
        """Undo everything and remove small disks with their contents. No node may run."""
        for node in self._disks:
            for folder in (self._data(node), self._folder / "disks" / node):
                subprocess.run(["umount", str(folder)], check=False, timeout=_MOUNT_TIMEOUT_S)
        self._disks.clear()
        self._enabled.clear()
        self._clocked.clear()

    def _set(self, node: str, faults: Faults) -> None:
        path = self._folder / node / FAULTS_FILE
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(faults))
        fresh.replace(path)


def _faketime() -> Path | None:
    """Return the library of Debian's package libfaketime."""
    return next(iter(sorted(Path("/").glob(_LIBRARIES.removeprefix("/")))), None)


def empty(folder: Path) -> None:
    """Remove what is in a folder, which may be the mount point of a small disk."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _mount(*words: str) -> None:
    done = subprocess.run(
        ["mount", *words], capture_output=True, text=True, check=False, timeout=_MOUNT_TIMEOUT_S
    )
    if done.returncode != 0:
        raise Refused(f"mount {' '.join(words)}: {done.stderr.strip()}")
