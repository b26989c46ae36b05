"""Bits that flip on a disk, and what is still damaged: never one entry on two disks of a seed.

What no sync has covered is left alone, and so are the last records of a log: damage of theirs
cannot be told from a torn write (docs/log.md).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, cast

from qm.node.replica.replicated_store import RAFT_FOLDER
from qm.node.upkeep.scrubber import Scrubber
from qm.store.bodies.body_scan import START, Cursor, KnownBody, page
from qm.store.store import Store
from raft.founding import LOG_DIRECTORY
from raft.log.record import RECORD_HEADER_BYTES, parse_header
from raft.log.scrub import LogScrub
from raft.log.segment import Segment

if TYPE_CHECKING:
    from tests.sim.nodes.cluster import SimCluster
    from tests.sim.nodes.disk import SimDirectory
    from tests.sim.nodes.machines import Machine

GIVEN_RETAIN_BYTES: Final = 4 << 20
"""Members that retain as much of the log can still give an entry to one that was away."""
HEALED_S: Final = 30.0
_ROWS: Final = 1 << 16


class Rot:
    """Of one world."""

    def __init__(self, chance: Random, log_retain_bytes: int) -> None:
        self._chance = chance
        self._has_entries = log_retain_bytes >= GIVEN_RETAIN_BYTES
        self._where: dict[int, str] = {}
        """By entry: the machine on which it was damaged."""

    def flip(self, machine: "Machine") -> str:
        """Damage a body, or a record of the log; return what, "" if there was nothing to damage."""
        node = machine.node
        replicated = None if node is None else node.replicated
        if replicated is None or replicated.machine.is_installing:
            return ""
        store, scrub = replicated.machine.store, replicated.driver.scrub
        if self._chance.random() < 0.5:
            return self._flip_body(machine, store) or self._flip_record(machine, scrub)
        return self._flip_record(machine, scrub) or self._flip_body(machine, store)

    def _is_free(self, machine: "Machine", index: int) -> bool:
        return self._where.setdefault(index, machine.name) == machine.name

    def _flip_body(self, machine: "Machine", store: Store) -> str:
        moved = [body.place for body in all_bodies(store) if store.bodies.copy_place(body.place)]
        if not moved:
            return ""
        place = self._chance.choice(moved)
        found = store.bodies.copy_place(place)
        if found is None or not self._is_free(machine, place.index):
            return ""
        name, offset = found
        path = cast("SimDirectory", store.bodies.blob_directory).path / name
        self._spoil(path, offset, place.length, self._chance.choice((1, 1, 600)))
        return f"body {place.ordinal} of entry {place.index}"

    def _flip_record(self, machine: "Machine", scrub: LogScrub) -> str:
        contents = scrub._contents
        last = _proven(contents.segments, contents.first_index, machine.disk.log_durable)
        if last < contents.first_index:
            return ""
        index = self._chance.randint(contents.first_index, last)
        if not self._is_free(machine, index):
            return ""
        segment = contents.segment_of(index)
        offset, length = segment.table.place(index)
        path = machine.disk.data / RAFT_FOLDER / LOG_DIRECTORY / segment.name
        if length and self._has_entries:
            at, size = offset + RECORD_HEADER_BYTES, self._chance.choice((1, 300))
            self._spoil(path, at, length, size)
            return f"the data of entry {index}"
        self._spoil(path, offset, RECORD_HEADER_BYTES, 1)
        return f"the header of entry {index}"

    def _spoil(self, path: Path, begin: int, length: int, size: int) -> None:
        """Flip one bit, or invert more bytes."""
        at = begin + self._chance.randrange(length)
        size = min(size, begin + length - at)
        mask = 1 << self._chance.randrange(8) if size == 1 else 0xFF
        descriptor = os.open(path, os.O_RDWR)
        try:
            data = os.pread(descriptor, size, at)
            os.pwrite(descriptor, bytes(byte ^ mask for byte in data), at)
        finally:
            os.close(descriptor)


def begin_scrub(machine: "Machine") -> bool:
    """Have a node read everything back now; return whether it can."""
    node = machine.node
    if node is None or node.service is None:
        return False
    machine.call(node.service.scrubber.ask)
    return True


async def scrub_all(cluster: "SimCluster") -> None:
    """Have every node read everything back, and find what is not whole then.

    Two rounds: what one node gives another is damaged there as long as it has not healed.
    """
    for _ in range(2):
        scrubbers = [_scrubber(machine) for machine in cluster.machines.values()]
        before = [each.rounds for each in scrubbers]
        for machine in cluster.machines.values():
            begin_scrub(machine)

        def is_over(scrubbers: Sequence[Scrubber] = scrubbers, before: list[int] = before) -> bool:
            pairs = zip(scrubbers, before, strict=True)
            return all(each.rounds > count and each.healer.is_whole for each, count in pairs)

        try:
            await cluster.until(is_over, "a whole disk everywhere", HEALED_S)
        except TimeoutError as error:
            left = {m.name: str(_scrubber(m).healer.known) for m in cluster.machines.values()}
            cluster.find(f"scrub: {error}: {left}")


def _scrubber(machine: "Machine") -> Scrubber:
    assert machine.node is not None
    assert machine.node.service is not None
    return machine.node.service.scrubber


def all_bodies(store: Store) -> list[KnownBody]:
    """Return the bodies that a state refers to."""
    found: list[KnownBody] = []
    cursor: Cursor | None = START
    while cursor is not None:
        cursor, some = page(store.state, cursor, _ROWS)
        found += some
    return found


def _proven(segments: list[Segment], first: int, durable: int) -> int:
    """Return the last entry of which a durable record says that it was synced."""
    for segment in reversed(segments):
        table = segment.table
        index = min(durable, table.last_index)
        if index >= max(first, table.first_index) and len(table):
            offset, _ = table.place(index)
            header = parse_header(segment.file.pread(RECORD_HEADER_BYTES, offset), 0, segment.keys)
            return 0 if header is None else min(header.synced_index, durable)
    return 0
