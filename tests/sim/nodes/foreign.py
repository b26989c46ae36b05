"""Files that the product opens itself, beside the disk that it was given: their errors.

Pinned copies (hard links), the note of a quarantine, the archive. `os` of the modules that write
them is replaced by one that asks the disk of the process that runs whether this class of files has
space now, and whether its next sync is to fail. What a power loss does to them is not simulated.
"""

import errno
import os
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import qm.archive.destination
import qm.node.replica.quarantine
import qm.node.upkeep.archive_source
import qm.store.snapshot

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster
    from tests.sim.nodes.disk import Disk

CLASSES: Final[dict[str, Any]] = {
    "pinned": qm.store.snapshot,
    "quarantine": qm.node.replica.quarantine,
    "archive": qm.archive.destination,
}
"""Names as faults have them, and the modules that write such files."""


class Guarded(ModuleType):
    """`os`, with a disk that may be full or may fail."""

    def __init__(self, kind: str) -> None:
        super().__init__("os")
        self._kind = kind
        self.cluster: SimCluster | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _disk(self) -> "Disk | None":
        cluster = self.cluster
        current = None if cluster is None else cluster.world.current
        machine = None if cluster is None or current is None else cluster.machines.get(current.name)
        return None if machine is None else machine.disk

    def _refuse(self) -> None:
        disk = self._disk()
        if disk is not None and (disk.free_bytes == 0 or self._kind in disk.refusing):
            disk.refused[self._kind] = disk.refused.get(self._kind, 0) + 1
            raise OSError(errno.ENOSPC, f"No space left on device for {self._kind} (simulated)")

    def link(self, source: Any, target: Any) -> None:
        self._refuse()
        os.link(source, target)

    def write(self, descriptor: int, data: Any) -> int:
        self._refuse()
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        disk = self._disk()
        if self._kind == "archive":
            self._refuse()
        if disk is not None and self._kind in disk.failing:
            disk.failing.remove(self._kind)
            disk.refused[self._kind] = disk.refused.get(self._kind, 0) + 1
            raise OSError(errno.EIO, f"{self._kind} cannot be synced (simulated)")


_guards: Final[list[Guarded]] = []


def _inside(url: str) -> str:
    cluster = _guards[0].cluster
    return url if cluster is None else url.removeprefix(str(cluster.folder))


def install(cluster: "SimCluster") -> None:
    """Have them ask this world's disks; the first call sets them up."""
    if not _guards:
        for kind, module in CLASSES.items():
            guard = Guarded(kind)
            module.os = guard
            _guards.append(guard)
        source: Any = qm.node.upkeep.archive_source
        place = source._place
        # Nodes tell each other a hash of their archive's URL, and this folder has a random name.
        source._place = lambda url: place(_inside(url))
    for guard in _guards:
        guard.cluster = cluster
