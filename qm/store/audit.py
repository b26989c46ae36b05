"""What a node tells the others at an audit mark: a digest of the rows as its disk has them.

The digest that is kept along the way would not notice a byte that flipped on the disk, so the rows
are read again, from a copy that is taken at the mark by hard links, in a thread, while apply goes
on.
"""

import shutil
from pathlib import Path
from typing import Final

import msgspec

from qm.store.digest import digest_bytes
from qm.store.rocks import RocksState, open_database

COPY_CACHE_BYTES: Final = 8 * 1024 * 1024
UNREADABLE: Final = b"unreadable state"
"""What a node tells whose rows cannot be read: no digest is ever equal to it."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """An audit mark that this node has applied."""

    number: int
    index: int
    kept: bytes
    """The digest that was kept along the way, 16 bytes."""
    copy: Path
    """The state at the mark; `prove` removes it."""


class Proof(msgspec.Struct, frozen=True, gc=False):
    """What `prove` found."""

    digest: bytes
    """To be told to all members."""
    is_sound: bool
    """Whether the rows gave the digest that was kept; if not, this node must stop."""
    reason: str = ""


def prove(mark: Mark) -> Proof:
    """Read every row of the state at a mark. Takes seconds; call it in a thread of its own."""
    try:
        state = RocksState(open_database(mark.copy, cache_bytes=COPY_CACHE_BYTES))
        try:
            digest = digest_bytes(state.computed_digest())
        finally:
            state.close()
    except Exception as error:  # rocksdict has no error type of its own
        return Proof(UNREADABLE, False, f"a row cannot be read: {error}")
    finally:
        shutil.rmtree(mark.copy, ignore_errors=True)
    if digest != mark.kept:
        return Proof(digest, False, "the rows do not give the digest that was kept")
    return Proof(digest, True)
