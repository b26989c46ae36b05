"""What a power failure leaves of writes that no sync covered (`raft.log.files` has the rules).

Works on the ledger and the files of a node that was killed (`qm.drill.targets.tampered_node`). A
sector is written whole or not at all; which of the unsynced ones reached the disk is random. The
others read as zeros, like the log's preallocated space.
"""

import random
from collections import defaultdict
from pathlib import Path
from typing import Final

import msgspec

SECTOR_BYTES: Final = 512


class Torn(msgspec.Struct, frozen=True):
    """How much was unsynced, and how much of it was lost."""

    unsynced_bytes: int = 0
    lost_bytes: int = 0


Range = tuple[int, int]
"""Offset and length."""


def unsynced(ledger: Path) -> dict[Path, list[Range]]:
    """Return the writes that no sync covered, by file, in the order of writing."""
    writes: dict[str, list[tuple[int, Range]]] = defaultdict(list)
    # The last line may be cut, since the process was killed.
    for line in ledger.read_text(encoding="utf-8").split("\n")[:-1]:
        kind, _, rest = line.partition(" ")
        if kind == "W":
            number, offset, length, path = rest.split(" ", 3)
            writes[path].append((int(number), (int(offset), int(length))))
        elif kind == "S":
            upto, path = rest.split(" ", 1)
            writes[path] = [write for write in writes[path] if write[0] > int(upto)]
        elif kind == "R":
            old, new = rest.split(" ", 1)
            writes[new] = writes.pop(old, [])
    return {Path(path): [span for _, span in found] for path, found in writes.items() if found}


def tear(ledger: Path, chance: random.Random) -> Torn:
    """Remove from the files what a power failure might lose. The node must not run."""
    at_stake = lost = 0
    for path, spans in sorted(unsynced(ledger).items()):
        if not path.exists():
            continue
        with path.open("r+b") as file:
            for offset, length in spans:
                at_stake += length
                for start, end in _lost_sectors(offset, length, chance):
                    file.seek(start)
                    file.write(bytes(end - start))
                    lost += end - start
    return Torn(at_stake, lost)


def _lost_sectors(offset: int, length: int, chance: random.Random) -> list[tuple[int, int]]:
    """Return the lost parts of a write: none, its end, all of it, or any sectors."""
    end = offset + length
    first, last = offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
    sectors = range(first, last + 1)
    how = chance.choice(("kept", "cut", "lost", "scattered"))
    if how == "kept":
        gone = []
    elif how == "cut":
        gone = list(sectors[chance.randrange(len(sectors)) :])
    elif how == "lost":
        gone = list(sectors)
    else:
        gone = [sector for sector in sectors if chance.random() < 0.5]
    return [
        (max(offset, sector * SECTOR_BYTES), min(end, (sector + 1) * SECTOR_BYTES))
        for sector in gone
    ]
