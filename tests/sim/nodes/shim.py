"""Errors within RocksDB's own files: a preloaded library (fault.c), compiled where a C compiler is.

It needs no rights and fails one machine's files alone, which a small tmpfs would not. Without a
compiler those faults are not drawn, and the report says so.
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

SOURCE: Final = Path(__file__).with_name("fault.c")
LIBRARY: Final = Path("build/sim/libfault.so")
SLOTS: Final = 8
_PATH_BYTES: Final = 512
_SUFFIX_BYTES: Final = 64


def build() -> Path | None:
    """Compile the library unless that was done; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    library = LIBRARY.resolve()
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    if compiler is None:
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(fresh), str(SOURCE), "-ldl"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        return None
    fresh.replace(library)
    return library


class Shim:
    """The library within this process, a slot for each machine."""

    def __init__(self) -> None:
        self.is_loaded = LIBRARY.name in os.environ.get("LD_PRELOAD", "")
        library = ctypes.CDLL(str(LIBRARY.resolve())) if self.is_loaded else None
        self._arrays: dict[str, Any] = {}
        if library is not None:
            for name in ("write", "sync", "once"):
                self._arrays[name] = (ctypes.c_int * SLOTS).in_dll(library, f"fault_{name}")
            self._arrays["hits"] = (ctypes.c_long * SLOTS).in_dll(library, "fault_hits")
            folders = (ctypes.c_char * _PATH_BYTES) * SLOTS
            suffixes = (ctypes.c_char * _SUFFIX_BYTES) * SLOTS
            self._arrays["folder"] = folders.in_dll(library, "fault_folder")
            self._arrays["suffix"] = suffixes.in_dll(library, "fault_suffix")

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
        self._arrays["folder"][slot].value = str(folder).encode()
        self._arrays["suffix"][slot].value = suffix.encode()
        self._arrays["once"][slot] = int(once)
        self._arrays["write"][slot] = write
        self._arrays["sync"][slot] = sync

    def hits(self, slot: int) -> int:
        """Return how many calls failed so far."""
        return int(self._arrays["hits"][slot]) if self.is_loaded else 0
