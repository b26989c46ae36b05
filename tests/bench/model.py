"""What apply costs through the real store: `python -m tests.bench.model` (`make bench-model`).

Entries are encoded before the clock starts and then applied as consensus would: decoded, applied,
committed to RocksDB; at least half of their bytes are moved out of the log once. The state is not
empty: a quarter of the messages is queued before. Rates are per second of this process's CPU, all
of its threads together, since RocksDB compacts in its own threads.

Keys without a prefix are the bar's case: 100 queues, 8 priorities, packets from 100 bytes to 64 KiB
of 1 KiB on average, batches of 64. `even_` has packets of 1 KiB, `single_` one queue, one priority
and batches of 256, `large_` as many packets of 100 bytes as of 64 KiB and of each size between,
15 KB on average, so that its rate is one of bytes.

With `--deep` (a process of its own, in a memory cgroup of 2 GiB where that may be made): memory,
opening and rates with that many messages queued. With `--purge`: the longest step of a purge of
that many messages with acknowledgements owed, in a queue with a journal.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from qm.model.management.purge import STEP_POSITIONS_MAX
from qm.model.values import commands
from qm.model.values.results import RequestResult
from qm.store.bodies.body_places import BodyPlace
from qm.store.rocks import RocksState
from qm.store.store import Store
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.structures.queue_name import DirectQueueFormatName
from raft.log.disk import DiskDirectory
from raft.log.log import Log, LogConfig
from raft.process import prepare
from tests.bench.memory_group import memory_group
from tests.bench.model_node import (
    CONTROL,
    HOST,
    Load,
    Node,
    edge_batch,
    packet,
    provision,
    queue_id,
)

DEEP_MEMORY_BYTES: Final = 2 << 30
BACKGROUND_MAX_S: Final = 120.0
_BACKGROUND: Final = (
    "rocksdb.num-running-compactions",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-flushes",
)
KIB: Final = 1024
_MIXTURE: Final = [65536] + [16384] * 2 + [4096] * 8 + [1024] * 64 + [512] * 100 + [100] * 81
"""256 sizes, 1 KiB on average."""
_SIZES: Final = (100, 512, 1024, 4096, 16384, 65536)


def mixed(n: int) -> int:
    return _MIXTURE[n * 97 % len(_MIXTURE)]


def even(_: int) -> int:
    return KIB


def large(n: int) -> int:
    return _SIZES[n // 64 % len(_SIZES)]


class Plan(NamedTuple):
    """One case of the rates."""

    queues: int
    priorities: int
    batch: int
    sizes: Callable[[int], int]
    share: int
    """One message of so many."""


PLANS: Final = {
    "": Plan(100, 8, 64, mixed, 1),
    "even_": Plan(100, 8, 64, even, 1),
    "single_": Plan(1, 1, 256, even, 1),
    "large_": Plan(100, 8, 64, large, 10),
}


# Rates -------------------------------------------------------------------------------------


def rates(path: Path, plan: Plan, messages: int) -> dict[str, float]:
    """Return enqueue and dequeue rates per CPU second."""
    node = Node(path)
    provision(node, plan.queues)
    load = Load(node, plan.queues, plan.priorities, plan.batch, plan.sizes)
    load.enqueue(messages // 4)
    node.sync()
    gc.collect()
    node.reset_clock()
    load.enqueue(messages)
    node.sync()
    moved_share = _move_half(node)
    enqueue_cpu, enqueue_wall = node.cpu_s, node.wall_s
    node.reset_clock()
    received = load.dequeue(messages)
    dequeue_cpu, dequeue_wall = node.cpu_s, node.wall_s
    assert received == messages, f"{received} of {messages} came back"
    entry_bytes = node.entry_bytes / load.ordinal
    node.close()
    shutil.rmtree(path)
    return {
        "enqueue_msgs_per_s": messages / enqueue_cpu,
        "enqueue_wall_msgs_per_s": messages / enqueue_wall,
        "enqueue_cpu_us_per_msg": enqueue_cpu / messages * 1e6,
        "enqueue_mib_per_s": messages * entry_bytes / enqueue_cpu / KIB / KIB,
        "dequeue_msgs_per_s": received / dequeue_cpu,
        "dequeue_wall_msgs_per_s": received / dequeue_wall,
        "dequeue_cpu_us_per_msg": dequeue_cpu / received * 1e6,
        "moved_share": moved_share,
    }


def _move_half(node: Node) -> float:
    """Retire segments until half of the bytes are in blob files; return the share that is."""
    for tenths in range(5, 11):
        node.compact(node.index * tenths // 10)
        share = node.moved_bytes() / node.entry_bytes
        if share >= 0.5:
            break
    return share


def digest_share(path: Path, messages: int) -> float:
    """Return the digest's part of apply, enqueue and dequeue together."""
    spent = 0.0
    original = RocksState._digest_change

    def timed(*arguments: Any) -> int:
        nonlocal spent
        begin = time.thread_time()
        change = original(*arguments)
        spent += time.thread_time() - begin
        return change

    node = Node(path)
    provision(node, 100)
    load = Load(node, 100, 8, 64, even)
    load.enqueue(messages // 4)
    node.reset_clock()
    try:
        RocksState._digest_change = timed  # type: ignore[method-assign, assignment]
        load.enqueue(messages)
        load.dequeue(messages)
    finally:
        RocksState._digest_change = original  # type: ignore[method-assign]
    share = spent / node.cpu_s
    node.close()
    shutil.rmtree(path)
    return share


# A deep queue ------------------------------------------------------------------------------


def deep(path: Path, messages: int) -> dict[str, float]:
    """Return memory, opening time and rates with that many 1 KiB messages queued."""
    path.mkdir()
    node, load = _node_for_deep(path / "full")
    rss_before = _rss_bytes()
    while load.ordinal < messages:
        load.enqueue(min(200_000, messages - load.ordinal))
        node.sync()
        node.compact(node.index)
        print(f"  {load.ordinal:,} queued, {_rss_bytes() >> 20} MiB", file=sys.stderr)
    rss_after = _rss_bytes()
    ratios = _ratios(load, _node_for_deep(path / "empty")[1])
    checked = _read_bodies(node, load)
    node.close()
    gc.collect()
    begin = time.perf_counter()
    log = Log.open(DiskDirectory(path / "full" / "log"), LogConfig(1, 7))
    opening = time.perf_counter()
    store = Store(path / "full" / "store", log)
    opened_s = time.perf_counter() - opening
    store.close()
    log.close()
    shutil.rmtree(path)
    return {
        "resident_bytes_per_message": max(rss_after - rss_before, 0) / load.ordinal,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB,
        "open_10m_messages_s": opened_s,
        "open_log_s": opening - begin,
        "deep_messages": load.ordinal,
        "bodies_read_back": checked,
        **ratios,
    }


def _node_for_deep(path: Path) -> tuple[Node, Load]:
    node = Node(path)
    provision(node, 10)
    load = Load(node, 10, 8, 256, even)
    load.enqueue(20_000)
    node.store.flush()
    return node, load


def _ratios(full: Load, empty: Load, rounds: int = 7, messages: int = 100_000) -> dict[str, float]:
    """Return the rate of one node over the other's, of messages in and out per CPU second of all
    threads, flushed as a node does. They take turns, so that other load affects both.

    Merging all that is queued is seldom and takes seconds: the median round has none of it, and
    `mean` has whatever fell into these rounds.
    """
    costs: dict[Load, list[float]] = {full: [], empty: []}
    for _ in range(rounds):
        for load, found in costs.items():
            load.node.reset_clock()
            load.enqueue(messages)
            load.dequeue(messages)
            begin = time.process_time()
            load.node.store.flush()
            _await_background(load.node)
            found.append((load.node.cpu_s + time.process_time() - begin) / messages / 2 * 1e6)
    empty.node.close()
    print("  us per message, full and empty:", *costs.values(), file=sys.stderr)
    return {
        "ratio_full_vs_empty": statistics.median(costs[empty]) / statistics.median(costs[full]),
        "ratio_full_vs_empty_mean": sum(costs[empty]) / sum(costs[full]),
    }


def _await_background(node: Node) -> None:
    """Let the database finish what it has to merge, so that it is on this node's clock."""
    database = node.store._state._database
    deadline = time.monotonic() + BACKGROUND_MAX_S
    while any(database.number(name) for name in _BACKGROUND):
        assert time.monotonic() < deadline, "the database goes on merging"
        time.sleep(0.01)


def _read_bodies(node: Node, load: Load, count: int = 1_000) -> int:
    """Read bodies from all over the queues and count those that are whole."""
    whole = 0
    for queue in range(load.queues):
        (applied,) = node.apply(node.append([load.receive(queue, count // load.queues)]))
        for result in applied.outcomes[0].value.unpack():
            whole += len(_body(node, result)) == result.body_length
    return whole


def _body(node: Node, result: RequestResult) -> bytes:
    return node.store.bodies.read(
        BodyPlace(
            result.body_index,
            result.body_offset,
            result.body_length,
            result.body_ordinal,
            result.body_crc32,
        )
    )


def _rss_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def deep_apart(path: Path, messages: int) -> dict[str, float]:
    """Run `deep` in a separate process, in a memory cgroup where permitted."""
    with memory_group(DEEP_MEMORY_BYTES) as group:
        output = path.with_suffix(".json")
        command = [sys.executable, "-m", "tests.bench.model", "--only-deep", str(path), str(output)]
        command += ["--deep", str(messages), *(["--group", str(group)] if group else [])]
        subprocess.run(command, check=True)
    figures: dict[str, float] = json.loads(output.read_text(encoding="utf-8"))
    return figures | {"deep_memory_limit_mib": DEEP_MEMORY_BYTES >> 20 if group else 0}


# A purge -----------------------------------------------------------------------------------


def purge(path: Path, messages: int) -> dict[str, float]:
    """Purge a journaled queue whose messages owe negative acknowledgements, step by step."""
    node = Node(path)
    provision(node, 2, journaling=True)
    owing = {
        "acknowledgements": int(AcknowledgeFlags.NR),
        "admin_queue": DirectQueueFormatName(f"OS:{HOST}\\q1"),
        "has_negative_journaling": True,
        "has_positive_journaling": True,
    }
    for first in range(1, messages + 1, 512):
        raw = [
            packet(n, KIB, 0, n % 8, **owing) for n in range(first, min(first + 512, messages + 1))
        ]
        node.apply(node.append([edge_batch(raw)]))
    steps: list[float] = []
    cpu: list[float] = []

    def step(command: commands.Command) -> Any:
        entries = node.append([command])
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        (applied,) = node.store.apply(entries)
        node.store.settle()
        steps.append(time.perf_counter() - begin)
        cpu.append(time.thread_time() - begin_cpu)
        return applied.outcomes[0].value

    assert step(commands.PurgeQueue(CONTROL, queue_id(0), ())) == messages
    settled, is_left = 0, True
    while is_left:
        count, is_left = step(commands.PurgeStep(queue_id(0), STEP_POSITIONS_MAX))
        settled += count
    assert settled == messages, f"{settled} of {messages} were settled"
    node.close()
    shutil.rmtree(path)
    return {
        "purge_1m_longest_step_ms": max(steps) * 1e3,
        "purge_1m_longest_step_cpu_ms": max(cpu) * 1e3,
        "purge_1m_hide_ms": steps[0] * 1e3,
        "purge_msgs_per_s": messages / sum(steps),
        "purge_messages": messages,
    }


def main() -> None:
    """Measure, print JSON, write build/bench-model.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="per rate")
    parser.add_argument("--deep", type=int, default=10_000_000, help="queued messages; 0 = skip")
    parser.add_argument("--purge", type=int, default=1_000_000, help="purged messages; 0 = skip")
    parser.add_argument("--only-deep", nargs=2, type=Path, metavar=("FOLDER", "OUTPUT"))
    parser.add_argument("--group", type=Path, help="cgroup.procs to enter")
    arguments = parser.parse_args()
    prepare()
    if arguments.only_deep:
        if arguments.group:
            arguments.group.write_text(f"{os.getpid()}\n", encoding="ascii")
        folder, output = arguments.only_deep
        output.write_text(json.dumps(deep(folder, arguments.deep)), encoding="utf-8")
        return
    build = Path("build")
    build.mkdir(exist_ok=True)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-model-", dir=build) as name:
        base = Path(name)
        for prefix, plan in PLANS.items():
            found = rates(base / f"r{prefix}", plan, arguments.messages // plan.share)
            figures |= {prefix + key: value for key, value in found.items()}
        figures["digest_share"] = digest_share(base / "digest", arguments.messages // 2)
        if arguments.purge:
            figures |= purge(base / "purge", arguments.purge)
        if arguments.deep:
            figures |= deep_apart(base / "deep", arguments.deep)
    text = json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=2)
    print(text)
    (build / "bench-model.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
