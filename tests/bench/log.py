"""The log alone against its disk: `python -m tests.bench.log`, JSON to build/bench-log.json.

Two loops take turns, step by step, on one folder, so that other load on the machine affects both:

- the log appends one entry of the batch size and syncs, in segments that are recycled;
- the bare loop writes the same bytes with one pwrite and one fdatasync, into as
  many files as long, whose blocks have all been written before: the best that the file system does.

`ratio_log_vs_fdatasync` is the bare loop's time over the log's, the median over the rounds, and of
these the least one of batches of 64 KiB and up. `fresh` is the log in segments that are allocated
but never were written, which costs the file system more. The cost of appending is CPU of
`Log.append` alone, with the copy into the page cache. Recovery reads from the page cache.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from raft.log.disk import DiskDirectory
from raft.log.log import Log, LogConfig
from raft.types import Configuration, Entry, EntryKind, SnapshotMeta

KIB, MIB = 1024, 1024 * 1024
SEGMENT_BYTES = 64 * MIB
SEGMENTS = 4
BATCH_BYTES = (1 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB)
RATIO_FROM_BYTES = 64 * KIB
STEPS_PER_ROUND = 20
MEMBERS = Configuration(("n1.1",))


class LogLoop:
    """Appends, syncs and compacts, so that segments are recycled or not."""

    def __init__(self, path: Path, *, is_recycling: bool) -> None:
        recycled = SEGMENTS - 1 if is_recycling else 0
        config = LogConfig(
            1,
            os.getpid(),
            segment_bytes=SEGMENT_BYTES,
            spare_segments=min(1, recycled),
            recycled_segments_max=recycled,
        )
        self.log = Log.open(DiskDirectory(path), config)
        self.append_cpu_s = 0.0
        if is_recycling:
            while len(list(path.glob("*.spare"))) < recycled:
                self.step(bytes(MIB))

    def step(self, data: bytes) -> None:
        log = self.log
        index = log.last_index() + 1
        entry = Entry(index, 1, EntryKind.DATA, data)
        started = time.thread_time()
        log.append(None, (entry,))
        self.append_cpu_s += time.thread_time() - started
        sync = log.begin_sync()
        sync.run()
        log.end_sync(sync)
        if index % 64 == 0:
            log.compact(SnapshotMeta(index, 1, MEMBERS, 0))


class BareLoop:
    """What any log must do: one write and one fdatasync. As many files take turns as in the log,
    or this one would be faster by the processor's cache alone.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.files = []
        for number in range(SEGMENTS):
            fd = os.open(path / str(number), os.O_RDWR | os.O_CREAT, 0o600)
            os.posix_fallocate(fd, 0, SEGMENT_BYTES)
            for offset in range(0, SEGMENT_BYTES, MIB):
                os.pwrite(fd, bytes(MIB), offset)
            os.fsync(fd)
            self.files.append(fd)
        self.offset = 0

    def step(self, data: bytes) -> None:
        if self.offset + len(data) > SEGMENT_BYTES:
            self.offset = 0
            self.files.append(self.files.pop(0))
        os.pwrite(self.files[0], data, self.offset)
        os.fdatasync(self.files[0])
        self.offset += len(data)


def race(log: LogLoop, bare: BareLoop, data: bytes, rounds: int) -> dict[str, float]:
    """Let the loops take turns; return their rates and the ratio."""
    rates: dict[str, list[float]] = {"log": [], "bare": []}
    loops: tuple[tuple[str, LogLoop | BareLoop], ...] = (("log", log), ("bare", bare))
    for _ in range(rounds):
        spent = {"log": 0.0, "bare": 0.0}
        for _ in range(STEPS_PER_ROUND):
            for name, loop in loops:
                started = time.perf_counter()
                loop.step(data)
                spent[name] += time.perf_counter() - started
        for name, seconds in spent.items():
            rates[name].append(STEPS_PER_ROUND / seconds)
    ratios = [log / bare for log, bare in zip(rates["log"], rates["bare"], strict=True)]
    return {
        "log_syncs_per_s": round(statistics.median(rates["log"])),
        "bare_syncs_per_s": round(statistics.median(rates["bare"])),
        "ratio": round(statistics.median(ratios), 3),
    }


def compare(path: Path, rounds: int) -> tuple[dict[str, dict[str, float]], float]:
    """Race recycled and fresh segments at each batch size; return the ratio that counts."""
    table: dict[str, dict[str, float]] = {}
    ratios = []
    bare = BareLoop(path / "bare")
    recycled = LogLoop(path / "recycled", is_recycling=True)
    for size in BATCH_BYTES:
        table[f"{size // KIB}_kib"] = row = race(recycled, bare, os.urandom(size), rounds)
        if size >= RATIO_FROM_BYTES:
            ratios.append(row["ratio"])
    recycled.log.close()
    fresh = LogLoop(path / "fresh", is_recycling=False)
    size = RATIO_FROM_BYTES
    table[f"{size // KIB}_kib_fresh"] = race(fresh, bare, os.urandom(size), rounds)
    fresh.log.close()
    return table, min(ratios)


def append_cost(path: Path) -> dict[str, float]:
    """CPU of Log.append in microseconds: for one entry a call, and per entry of large calls."""
    loop = LogLoop(path / "append", is_recycling=True)
    costs: dict[str, float] = {}
    for size in BATCH_BYTES:
        loop.append_cpu_s = 0.0
        data = os.urandom(size)
        for _ in range(300):
            loop.step(data)
        costs[f"append_call_of_{size // KIB}_kib_us"] = round(loop.append_cpu_s / 300 * 1e6, 1)
    first = loop.log.last_index() + 1
    entries = [Entry(first + n, 1, EntryKind.DATA, bytes(100)) for n in range(20_000)]
    started = time.thread_time()
    loop.log.append(None, entries)
    elapsed = time.thread_time() - started
    costs["append_entry_of_100_bytes_us"] = round(elapsed / 20_000 * 1e6, 2)
    loop.log.close()
    return costs


def recovery(path: Path) -> dict[str, float]:
    """How fast a log of 512 MiB is read back, and how much memory its table takes."""
    directory = DiskDirectory(path / "recovery")
    log = Log.open(directory, LogConfig(1, 1, segment_bytes=SEGMENT_BYTES))
    result: dict[str, float] = {}
    for size in (64 * KIB, 1 * KIB):
        log.reset(SnapshotMeta(log.last_index() + 1, 1, MEMBERS, 0))
        data = os.urandom(size)
        count = 512 * MIB // size
        for first in range(log.last_index() + 1, log.last_index() + 1 + count, 64):
            log.append(None, [Entry(first + n, 1, EntryKind.DATA, data) for n in range(64)])
        log.close()
        started = time.perf_counter()
        log = Log.open(directory, LogConfig(1, 1, segment_bytes=SEGMENT_BYTES))
        elapsed = time.perf_counter() - started
        rate = count * size / elapsed / 1e6
        result[f"recovery_of_{size // KIB}_kib_entries_mb_per_s"] = round(rate)
    log.close()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=45, help="of 20 steps for each size")
    parser.add_argument("--out", type=Path, default=Path("build/bench-log.json"))
    parser.add_argument("--dir", type=Path, default=Path("build"), help="on the disk to measure")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-log-", dir=options.dir))
    try:
        table, ratio = compare(path, options.rounds)
        result = {
            "ratio_log_vs_fdatasync": ratio,
            **{
                f"batch_{size}_{key}": figure
                for size, row in table.items()
                for key, figure in row.items()
            },
            **append_cost(path),
            **recovery(path),
        }
    finally:
        shutil.rmtree(path)
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
