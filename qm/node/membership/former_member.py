"""A pod whose member was removed and that is wanted again: it returns as a new member.

A StatefulSet that is scaled down and up again gives the pod its old volume, whose identity may
never vote again. The node notes that, ends, and at its next start sets the old data aside, so that
it joins as an empty one does. The old data are deleted once the new member votes; at once when the
disk cannot hold both.
"""

import logging
import shutil
from pathlib import Path
from typing import Final

from qm.node.replica.replicated_store import RAFT_FOLDER, STORE_FOLDER
from qm.store.generation import sync_folder
from raft.types import NodeId

logger = logging.getLogger(__name__)

NOTE_FILE: Final = "removed"
"""Its text is the id that was removed."""
FORMER_FOLDER: Final = "former"
_PARTS: Final = (STORE_FOLDER, RAFT_FOLDER)


class FormerMember:
    """What is left of an earlier member in a data folder. Blocks for the disk; raises OSError."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._note = data / NOTE_FILE
        self._former = data / FORMER_FOLDER

    def note(self, removed: NodeId) -> None:
        """Have the next start set the data aside."""
        self._note.write_text(f"{removed}\n", encoding="ascii")
        sync_folder(self._data)

    def set_aside(self) -> None:
        """Make the folder empty if its member was removed. May be broken off anywhere."""
        if not self._note.exists():
            return
        if not self._former.exists() or any((self._data / part).exists() for part in _PARTS):
            self._move()
        removed = self._note.read_text(encoding="ascii").strip()
        logger.warning("%s was removed: its data are in %s", removed or "a member", self._former)
        self._note.unlink()
        sync_folder(self._data)

    def _move(self) -> None:
        self._former.mkdir(mode=0o700, exist_ok=True)
        for part in _PARTS:
            old = self._data / part
            if old.exists():
                shutil.rmtree(self._former / part, ignore_errors=True)
                old.rename(self._former / part)
        sync_folder(self._former)
        sync_folder(self._data)
        if _bytes_of(self._former) > shutil.disk_usage(self._data).free:
            logger.warning("the disk has no room for the data of a former member: they are deleted")
            self._delete()

    def forget(self) -> None:
        """Delete what was set aside."""
        if self._former.exists() and not self._note.exists():
            self._delete()

    def _delete(self) -> None:
        shutil.rmtree(self._former)


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
