"""Checks that every body that the rows of a state refer to exists and matches its checksum.

It is for a state without a log, as a snapshot leaves it: all bodies are in blob files. Bytes that
were damaged in transfer, or are of another stream, are thus found when the snapshot is installed,
not when the message is received. And it is for the copy of a state of which a backup is made, with
the log that follows it: what had rotted on the disk is found while other nodes have it.
"""

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from qm.store.bodies.body_places import Bodies
from qm.store.bodies.body_scan import pages
from qm.store.rocks import RocksState
from raft.log.files import Directory
from raft.log_view import Compacted
from raft.machine import Hold, LogReader

_PAGE_ROWS: Final = 1_024


class _NoLog(LogReader):
    """A log that has dropped everything."""

    @override
    def read(self, index: int, offset: int, length: int) -> bytes:
        raise Compacted(f"entry {index}")

    @override
    def read_entry(self, index: int) -> bytes:
        raise Compacted(f"entry {index}")

    @override
    def hold(self, index: int) -> Hold:
        raise Compacted(f"entry {index}")

    @override
    def retirable(self, index: int) -> int:
        del index
        return 0  # there is nothing left to drop

    @override
    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        pass  # nothing will be dropped


def prove_bodies(state: RocksState, blobs: Directory, log: LogReader | None = None) -> int:
    """Read each body that a row refers to; return their number. Raises BodyDamaged.

    `log`: has the bodies that no blob file has; its owner holds them.
    """
    bodies = Bodies(state, log or _NoLog(), blobs, lambda: None)
    count = 0
    try:
        for page in pages(state, _PAGE_ROWS):
            for body in page:  # bodies of neighbouring keys are adjacent in the files
                bodies.read(body.place)
            count += len(page)
    finally:
        bodies.close()
    return count
