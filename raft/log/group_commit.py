"""Group commit: one fdatasync for everything that waits."""

from collections.abc import Callable, Sequence

from raft.log.files import Directory, File
from raft.log.segment import Spare, may_pass


class Sync:
    """One group commit: everything appended before `begin_sync`."""

    def __init__(
        self,
        index: int,
        position: int,
        files: Sequence[File],
        directory: Directory | None,
        prepare: Callable[[], Spare] | None,
        mark: Callable[[], None] | None,
    ) -> None:
        self.index = index
        """Last index that is durable when `run` has returned, unless it is truncated meanwhile."""
        self.position = position
        self.spare: Spare | None = None
        self.is_marked = False
        self.is_spare_missing = False
        """Whether there was no space, or no descriptor, for the next segment."""
        self.has_run = False
        self.has_failed = False
        self._files = files
        self._directory = directory
        self._prepare = prepare
        self._mark = mark

    def run(self) -> None:
        """Make everything durable: one fdatasync, plus a mark for a new segment and the preparation
        of the next one.

        Blocks; call it from any one thread, once. Raises FatalDiskError: stop the process.
        """
        try:
            self._run()
        except BaseException:
            self.has_failed = True
            raise
        self.has_run = True

    def _run(self) -> None:
        for file in self._files:
            file.fdatasync()
        if self._directory is not None:
            self._directory.sync()
        try:
            if self._mark is not None:
                self._mark()
                self.is_marked = True
            if self._prepare is not None:
                self.spare = self._prepare()
        except OSError as error:
            if not may_pass(error):
                raise
            self.is_spare_missing = self._prepare is not None
