"""The disk reserve: space that arrivals never get (DESIGN section 6).

A file of the configured size is kept allocated. When space is short, new messages are refused;
receiving, purging, acknowledgements, elections and moving bodies continue, and when the disk is
full the reserve is given up so that they can.
"""

from enum import IntEnum
from typing import Final

from raft.log.files import Directory
from raft.log.segment import may_pass

RESERVE_DEFAULT_BYTES: Final = 256 * 1024 * 1024
MARGIN_SHARE: Final = 1.0
"""New messages are refused when less than this share of the reserve is free besides it."""
_NAME: Final = "reserve"


class DiskLevel(IntEnum):
    """What the disk has space for."""

    ROOM = 0
    REFUSING = 1
    """New messages are refused; everything that frees space continues."""
    EXHAUSTED = 2
    """The reserve has been given up: a leader hands over."""


class DiskReserve:
    """Keeps a file that occupies the reserve, and tells what the disk has space for."""

    def __init__(self, directory: Directory, reserve_bytes: int = RESERVE_DEFAULT_BYTES) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._is_held = _NAME in directory.names()
        if not self._is_held:
            self.hold()

    def level(self) -> DiskLevel:
        """Return the current level."""
        if not self._is_held:
            return DiskLevel.EXHAUSTED
        margin = int(self._reserve_bytes * MARGIN_SHARE)
        is_low = self._directory.free_bytes() < margin
        return DiskLevel.REFUSING if is_low else DiskLevel.ROOM

    def hold(self) -> bool:
        """Allocate the reserve if twice its size fits; return whether it is held."""
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
                # The space was taken meanwhile: free the part that was allocated.
                if _NAME in self._directory.names():
                    self._directory.unlink(_NAME)
            else:
                self._directory.sync()
                self._is_held = True
        return self._is_held

    def give_up(self) -> None:
        """Free the reserve: the disk is full and consensus needs space."""
        if self._is_held:
            self._directory.unlink(_NAME)
            self._directory.sync()
            self._is_held = False
