"""Generations: whole states side by side in one folder, one of them current.

A received snapshot is unpacked into the next generation and becomes current by one rename; until
then the old one serves, and after a crash the one that `CURRENT` names is the state. Others are
leftovers and are removed.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from raft.log.files import FatalDiskError

STATE_FOLDER: Final = "state"
BLOB_FOLDER: Final = "blobs"
_CURRENT: Final = "CURRENT"
_PREFIX: Final = "g-"


def current_generation(path: Path) -> int:
    """Return the number of the current generation; makes the first one in an empty folder."""
    pointer = path / _CURRENT
    if not pointer.exists():
        path.mkdir(parents=True, exist_ok=True)
        folder(path, 1).mkdir(exist_ok=True)
        switch_to(path, 1)
    return int(pointer.read_text(encoding="ascii"))


def folder(path: Path, generation: int) -> Path:
    """Return the folder of a generation."""
    return path / f"{_PREFIX}{generation:08d}"


def switch_to(path: Path, generation: int) -> None:
    """Make a generation current; durable on return. Its files were synced before."""
    fresh = path / (_CURRENT + ".new")
    with fresh.open("w", encoding="ascii") as file:
        file.write(f"{generation}\n")
        file.flush()
        _sync(file.fileno(), fresh)
    fresh.replace(path / _CURRENT)
    sync_folder(path)


def remove_others(path: Path, generation: int) -> None:
    """Remove every generation but one."""
    keep = folder(path, generation).name
    for other in path.glob(_PREFIX + "*"):
        if other.name != keep:
            shutil.rmtree(other)


def sync_folder(path: Path) -> None:
    """Make changes of names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor, path)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Make every file below a folder, and the names, durable."""
    for root, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(Path(root) / name, os.O_RDONLY)
            try:
                _sync(descriptor, Path(root) / name)
            finally:
                os.close(descriptor)
        sync_folder(Path(root))


def _sync(descriptor: int, path: Path) -> None:
    """Raises FatalDiskError, never an error that may pass."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FatalDiskError(f"{path} cannot be synced: {error}") from error
