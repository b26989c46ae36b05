"""A node whose state was found wrong does not start again until its data has been replaced.

A restart would serve the same state again, and the check that found it wrong would not be repeated.
The note of it must fit on a full disk, too: its file is made beforehand, with all its bytes, and
renamed when there is something to note.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from qm.store.generation import sync_folder
from raft.log.segment import is_disk_full
from raft.replica import StartRefused

logger = logging.getLogger(__name__)

_FILE: Final = "quarantine"
_READY: Final = "quarantine.ready"
TEXT_MAX_BYTES: Final = 4_096


class Quarantine:
    """A file in the data folder that says what was found wrong."""

    def __init__(self, data: Path, give_up_reserve: Callable[[], None] = lambda: None) -> None:
        """`give_up_reserve`: makes room for the note when there is none."""
        self._data = data
        self._path = data / _FILE
        self._ready = data / _READY
        self._give_up_reserve = give_up_reserve

    def check(self) -> None:
        """Raise StartRefused if the data was found wrong."""
        if self._path.exists():
            text = self._path.read_bytes()[:TEXT_MAX_BYTES].rstrip(b"\0").decode(errors="replace")
            raise StartRefused(
                f"this node's data was found wrong: {text.strip()} (move the data folder away,"
                " start the node and run `qm node join`)"
            )

    def prepare(self) -> None:
        """Reserve the space for a note. Without it `enter` tries to find some."""
        try:
            if not self._ready.exists() or self._ready.stat().st_size < TEXT_MAX_BYTES:
                self._write(self._ready, b"")
        except OSError as error:
            logger.warning("no space is kept for a note that this node's data is wrong: %s", error)

    def enter(self, text: str) -> None:
        """Keep this node from starting again. Never raises: the process is about to end."""
        note = text.encode()[: TEXT_MAX_BYTES - 1] + b"\n"
        is_full = False
        for _ in range(2):
            try:
                if is_full:
                    self._give_up_reserve()
                self._write(self._ready, note)
                self._ready.rename(self._path)
                sync_folder(self._data)
            except OSError as error:
                is_full = is_disk_full(error)
                logger.critical(
                    "%s cannot be written (%s): move %s away before this node starts again: %s",
                    self._path,
                    error,
                    self._data,
                    text,
                )
            else:
                return

    def _write(self, path: Path, note: bytes) -> None:
        """Overwrite a file in place, so that an existing one needs no more space."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(note.ljust(TEXT_MAX_BYTES, b"\0"))
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
