"""The disk reserve: space that arrivals never get (DESIGN section 6).

A file of named size is kept allocated. Above the mark new messages are refused; receiving, purging,
acknowledgements, elections and moving bodies go on, and when the disk is really full the reserve is
given up so that they can.
"""

from enum import IntEnum
from typing import Final

from raft.log.files import Directory
from raft.log.segment import may_pass

RESERVE_DEFAULT_BYTES: Final = 256 * 1024 * 1024
MARGIN_SHARE: Final = 1.0
"""New messages stop when less than this share of the reserve is free besides it."""
_NAME: Final = "reserve"


class DiskLevel(IntEnum):
    """What the disk admits."""

    ROOM = 0
    REFUSING = 1
    """No new messages; everything that frees space goes on."""
    EXHAUSTED = 2
    """The reserve is given up: a leader hands over."""


class DiskReserve:
    """Keeps a file that occupies the reserve, and says what the disk admits."""

    def __init__(self, directory: Directory, reserve_bytes: int = RESERVE_DEFAULT_BYTES) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._is_held = _NAME in directory.names()
        if not self._is_held:
            self.hold()

    def level(self) -> DiskLevel:
        """Return what the disk admits now."""
        if not self._is_held:
            return DiskLevel.EXHAUSTED
        margin = int(self._reserve_bytes * MARGIN_SHARE)
        is_low = self._directory.free_bytes() < margin
        return DiskLevel.REFUSING if is_low else DiskLevel.ROOM

    def hold(self) -> bool:
        """Occupy the reserve if it and as much again fits; return whether it is held."""
        if not self._is_held and self._directory.free_bytes() >= 2 * self._reserve_bytes:
            try:
                file = self._directory.open(_NAME, create=True)
                try:
                    file.allocate(self._reserve_bytes)
                finally:
                    file.close()
            except OSError as error:
                if not may_pass(error):
                    raise
                # Somebody was quicker: what was allocated of it must not keep space from others.
                if _NAME in self._directory.names():
                    self._directory.unlink(_NAME)
            else:
                self._directory.sync()
                self._is_held = True
        return self._is_held

    def give_up(self) -> None:
        """Free the reserve: the disk is full and consensus needs room."""
        if self._is_held:
            self._directory.unlink(_NAME)
            self._directory.sync()
            self._is_held = False
