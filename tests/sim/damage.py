"""Where on a disk a bit may flip: only in bytes of the log that a record on the platter says
were synced before it was written (tests.sim.faults says why).
"""

import random

from raft.log.record import parse_header, record_bytes, segment_keys
from raft.log.segment import SEGMENT_HEADER_BYTES, parse_segment_header, segment_name
from tests.sim.disk import Inode, SimDisk


def byte_to_flip(disk: SimDisk, chance: random.Random) -> tuple[str, Inode, int] | None:
    """Return (file, its contents, offset) of a byte whose loss must be noticed, if there is one."""
    proven = 0
    segments: list[tuple[str, Inode, int]] = []
    for name, inode in disk.files(".segment"):
        platter = bytes(inode.synced)
        header = parse_segment_header(platter[:SEGMENT_HEADER_BYTES])
        if header is None or segment_name(header.incarnation) != name:
            continue
        segments.append((name, inode, header.base_position))
        keys = segment_keys(header.group, header.salt, header.incarnation)
        offset = SEGMENT_HEADER_BYTES
        while (record := parse_header(platter, offset, keys)) is not None:
            proven = max(proven, record.synced_position)
            offset += record_bytes(record.length)
    known = [(name, inode, proven - base) for name, inode, base in segments if base < proven]
    if not known:
        return None
    name, inode, length = chance.choice(known)
    return name, inode, chance.randrange(min(length, len(inode.synced)))
