"""Generations: whole states side by side in one folder, one of which is current.

A received snapshot is unpacked into the next generation and becomes current by one rename. Until
then the old one serves; after a crash the state is the one that `CURRENT` names. Others are
leftovers and are removed. The current one never is: where `CURRENT` is damaged, or names none that
is there, a single one is the current one.
"""

import logging
import os
from pathlib import Path
from typing import Final

from raft.log.files import DirectoryTree, FatalDiskError
from raft.replica import StartRefused

logger = logging.getLogger(__name__)

STATE_FOLDER: Final = "state"
BLOB_FOLDER: Final = "blobs"
_CURRENT: Final = "CURRENT"
_PREFIX: Final = "g-"
_NUMBER_MAX_BYTES: Final = 32


def current_generation(directory: DirectoryTree) -> int:
    """Return the number of the current generation; creates the first one in an empty folder.

    Raises StartRefused if it cannot be told which one that is: nothing is removed then.
    """
    present = [name for name in directory.folders() if name.startswith(_PREFIX)]
    if not present:
        directory.subdirectory(folder_name(1))
        switch_to(directory, 1)
        return 1
    named = _named(directory)
    if named is not None and folder_name(named) in present:
        return named
    if len(present) > 1:
        raise StartRefused(
            f"the file {_CURRENT} of the state is damaged or gone, and it could be any of"
            f" {', '.join(present)}: empty this node's folder and join under the next incarnation"
        )
    logger.warning("the file %s was damaged or gone; the state is %s", _CURRENT, present[0])
    number = int(present[0].removeprefix(_PREFIX))
    switch_to(directory, number)
    return number


def _named(directory: DirectoryTree) -> int | None:
    """Return the number in `CURRENT`; None without one."""
    if _CURRENT not in directory.names():
        return None
    file = directory.open(_CURRENT)
    try:
        text = file.pread(_NUMBER_MAX_BYTES, 0)
    finally:
        file.close()
    return int(text) if text.strip().isdigit() else None


def folder_name(generation: int) -> str:
    """Return the name of a generation's folder."""
    return f"{_PREFIX}{generation:08d}"


def folder(path: Path, generation: int) -> Path:
    """Return the folder of a generation."""
    return path / folder_name(generation)


def switch_to(directory: DirectoryTree, generation: int) -> None:
    """Make a generation current; durable on return. Its files must be synced already."""
    fresh = _CURRENT + ".new"
    if fresh in directory.names():
        directory.unlink(fresh)
    file = directory.open(fresh, create=True)
    try:
        file.pwrite(f"{generation}\n".encode("ascii"), 0)
        file.fdatasync()
    finally:
        file.close()
    directory.rename(fresh, _CURRENT)
    directory.sync()


def remove_others(directory: DirectoryTree, generation: int) -> None:
    """Remove every generation but one."""
    keep = folder_name(generation)
    for name in directory.folders():
        if name.startswith(_PREFIX) and name != keep:
            directory.remove_tree(name)


def sync_folder(path: Path) -> None:
    """Make changes of names in a folder durable. Raises FatalDiskError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FatalDiskError(f"{path} cannot be synced: {error}") from error
    finally:
        os.close(descriptor)
