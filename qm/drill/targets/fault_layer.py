"""Errors of the file system below a process, made by a preloaded library (`fault.c`).

It is compiled where it is needed, and reaches the files that RocksDB opens itself.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("fault.c")
SLOTS: Final = 8
FILE_VARIABLE: Final = "FAULT_FILE"
"""Of the environment: the file by which another process sets the slots."""
_COMPILE_MAX_S: Final = 60


class Fault(ctypes.Structure):
    """A slot of the library: files below `folder` whose path holds `suffix` fail.

    `write`, `sync`: numbers of errno, 0 for none; `once`: the first error is the last one.
    """

    _fields_ = (
        ("folder", ctypes.c_char * 512),
        ("suffix", ctypes.c_char * 64),
        ("write", ctypes.c_int),
        ("sync", ctypes.c_int),
        ("once", ctypes.c_int),
        ("hits", ctypes.c_int),
    )


def compiler() -> str | None:
    """Return the C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc")


def build(library: Path) -> Path | None:
    """Compile the library unless that was done; None where it cannot be compiled."""
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    program = compiler()
    if program is None:
        return None
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")
    command = [program, "-shared", "-fPIC", "-O1", "-o", str(fresh), str(SOURCE), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, timeout=_COMPILE_MAX_S)
    if done.returncode:
        return None
    fresh.replace(library)
    return library


def create(path: Path) -> None:
    """Make the file of a process without faults."""
    path.write_bytes(bytes(ctypes.sizeof(Fault) * SLOTS))


def write(path: Path, fault: Fault) -> None:
    """Have a running process, whose file this is, fail so from now on."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
        # The errors, which arm the slot, come last.
        head = Fault.write.offset
        image = bytes(fault)
        shared[head : len(image)] = bytes(len(image) - head)
        shared[:head] = image[:head]
        shared[head : len(image)] = image[head:]


def hits(path: Path) -> int:
    """Return how many calls failed since `write`."""
    return int(Fault.from_buffer_copy(path.read_bytes()).hits)
