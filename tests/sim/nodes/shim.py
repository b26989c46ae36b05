"""Errors within RocksDB's own files, by the library of `qm.drill.targets.fault_layer`.

It needs no rights and fails one machine's files alone, which a small tmpfs would not. Without a
compiler those faults are not drawn, and the report says so.
"""

import ctypes
import os
from pathlib import Path
from typing import Any, Final

from qm.drill.targets import fault_layer
from qm.drill.targets.fault_layer import SLOTS, Fault

LIBRARY: Final = Path("build/sim/libfault.so")


def build() -> Path | None:
    """Compile the library unless that was done; None without a compiler."""
    return fault_layer.build(LIBRARY.resolve())


class Shim:
    """The library within this process, a slot for each machine."""

    def __init__(self) -> None:
        self.is_loaded = LIBRARY.name in os.environ.get("LD_PRELOAD", "")
        self._slots: Any = ()
        if self.is_loaded:
            library = ctypes.CDLL(str(LIBRARY.resolve()))
            self._slots = (Fault * SLOTS).in_dll(library, "fault_slots")

    def fail(
        self,
        slot: int,
        folder: Path,
        *,
        write: int = 0,
        sync: int = 0,
        suffix: str = "",
        once: bool = False,
    ) -> None:
        """Have files below a folder whose path holds `suffix` fail with an errno; 0 ends it."""
        if not self.is_loaded:
            return
        fault = self._slots[slot]
        fault.folder = str(folder).encode()
        fault.suffix = suffix.encode()
        fault.once = int(once)
        fault.write = write
        fault.sync = sync

    def hits(self, slot: int) -> int:
        """Return how many calls failed so far."""
        return int(self._slots[slot].hits) if self.is_loaded else 0
