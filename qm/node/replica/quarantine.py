"""A node whose state was found wrong stays down until somebody has replaced its data.

Restarting it would bring the same state back to service, and what found it wrong is in the past.
"""

import os
from pathlib import Path
from typing import Final

from raft.replica import StartRefused

_FILE: Final = "quarantine"
TEXT_MAX_BYTES: Final = 4_096


class Quarantine:
    """A file in the data folder that says why."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FILE

    def check(self) -> None:
        """Raise StartRefused if the data was found wrong."""
        if self._path.exists():
            text = self._path.read_bytes()[:TEXT_MAX_BYTES].decode(errors="replace").strip()
            raise StartRefused(
                f"this node's data was found wrong: {text} (move the data folder away, start the"
                " node and run `qm node join`)"
            )

    def enter(self, text: str) -> None:
        """Keep this node down from its next start on. Raises OSError."""
        with self._path.open("wb") as file:
            file.write(text.encode()[:TEXT_MAX_BYTES] + b"\n")
            file.flush()
            os.fsync(file.fileno())
