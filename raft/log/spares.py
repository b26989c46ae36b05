"""Files kept ready to become segments, so that a full disk is noticed before it stops writes."""

from raft.log.files import Directory
from raft.log.segment import Segment, Spare, make_spare, segment_name, spare_name, spare_numbers

OVERSIZE_ROUNDING_BYTES = 4096


class SparePool:
    """The spares of one log's directory. Owner's thread only; `make_spare` may run elsewhere."""

    def __init__(self, directory: Directory, segment_bytes: int, recycled_max: int) -> None:
        """Take over the existing spares; those of another size are deleted."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._recycled_max = recycled_max
        self._spares: list[Spare] = []
        self._next_number = 1
        for number in spare_numbers(directory):
            self._next_number = number + 1
            file = directory.open(spare_name(number))
            self.put(Spare(spare_name(number), file, file.size()))

    def __len__(self) -> int:
        return len(self._spares)

    def new_name(self) -> str:
        """Return a name that no spare has had before."""
        name = spare_name(self._next_number)
        self._next_number += 1
        return name

    def take(self, bytes_needed: int) -> Spare:
        """Return a file of at least that size, allocated now if none is ready.

        Raises OSError (ENOSPC), FatalDiskError.
        """
        if bytes_needed <= self._segment_bytes:
            if self._spares:
                return self._spares.pop()
            return make_spare(self._directory, self.new_name(), self._segment_bytes)
        size = -(-bytes_needed // OVERSIZE_ROUNDING_BYTES) * OVERSIZE_ROUNDING_BYTES
        return make_spare(self._directory, self.new_name(), size)

    def put(self, spare: Spare) -> None:
        """Keep a spare, or delete it when its size differs or there are enough."""
        if spare.size_bytes == self._segment_bytes and len(self._spares) < self._recycled_max:
            self._spares.append(spare)
        else:
            spare.file.close()
            self._directory.unlink(spare.name)

    def recycle(self, segment: Segment) -> None:
        """Reuse the file of a segment that is no longer part of the log.

        Its new name need not be durable: the log itself says which segments are retired.
        """
        name = self.new_name()
        self._directory.rename(segment.name, name)
        self.put(Spare(name, segment.file, segment.header.size_bytes))

    def recycle_file(self, incarnation: int) -> None:
        """Reuse the file of a segment that recovery found not to be part of the log."""
        name = self.new_name()
        self._directory.rename(segment_name(incarnation), name)
        file = self._directory.open(name)
        self.put(Spare(name, file, file.size()))

    def close(self) -> None:
        """Close the files."""
        for spare in self._spares:
            spare.file.close()
        self._spares = []
