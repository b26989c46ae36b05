"""What programs do besides sending at full speed: a few messages outstanding, transactions, senders
with SIDs, many queues at a rate, readers that wait; idle nodes, and one that is started again.
"""

import os
import signal
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from qm.node.dev import pids
from qm.node.dev.layout import DevNode
from tests.bench.cluster_load import Sending
from tests.bench.cluster_nodes import Nodes
from tests.bench.entry_load import EntrySeen, Kind, Outstanding
from tests.bench.load import Load, load
from tests.bench.peers.nats import JetStream
from tests.bench.peers.rabbitmq import RabbitMq
from tests.bench.waiting_load import Waiting, WaitingSeen

Figures = dict[str, float]

OUTSTANDING: Final = {1: 600, 8: 3_000, 64: 12_000}
"""Messages of a run, by how many of them are outstanding on one session."""
FULL: Final = 32_000
"""Messages of a run with 512 outstanding on eight sessions."""
RATES_PER_S: Final = (1_000, 5_000, 20_000)
RATE_S: Final = 4.0
MANY_SESSIONS: Final = 500
MANY_QUEUES: Final = 100
ORDER_ACK_RATES: Final = {1: 4, 10: 20, 1_000: 2_000}
"""Messages, by how many are sent in a second."""
WAITED_FOR: Final = 200
IDLE_S: Final = 10.0
SETTLE_WAIT_S: Final = 60.0
QUIET_CPU_S: Final = 0.2
"""Of three nodes within a second: little more than they take when idle."""
QUEUED: Final = 1_000_000
FILLS: Final = 8
QUEUED_BODY_BYTES: Final = 64
RESTARTS: Final = 3
RESTART_WAIT_S: Final = 120.0
POLL_S: Final = 0.02
BODY_BYTES: Final = 1024
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Mixtures:
    """The figures of our side; the queues are purged behind each round."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._plain = tuple(nodes.create_queues(["few"]))
        self._ordered = tuple(nodes.create_queues(["few.tx"], is_transactional=True))
        self._many = tuple(nodes.create_queues([f"many{k}" for k in range(MANY_QUEUES)]))
        self._waited = tuple(nodes.create_queues(["waited"]))
        self._readers = 0

    def idle(self) -> Figures:
        """Measure nodes to which nobody speaks."""
        before = self._nodes.cpu_s()
        time.sleep(IDLE_S)
        return {"idle_cpu_percent": (self._nodes.cpu_s() - before) / IDLE_S * 100}

    def round(self) -> Figures:
        """Measure all that is measured in turn with the peers."""
        found: Figures = {}
        for window, messages in OUTSTANDING.items():
            seen, cpu_us = self._send(sessions=1, window=window, messages=messages)
            found |= _few(window, seen.messages / seen.seconds, cpu_us, seen.p50_ms, seen.p99_ms)
        full = {kind: self._full(kind) for kind in (Kind.RECOVERABLE, Kind.SENDER_SID)}
        ordered = self._full(Kind.TRANSACTIONAL)
        found["transactional_msgs_per_s"] = ordered
        found["ratio_transactional_vs_recoverable"] = ordered / full[Kind.RECOVERABLE]
        found["ratio_sender_sid_vs_anonymous"] = full[Kind.SENDER_SID] / full[Kind.RECOVERABLE]
        for rate, messages in ORDER_ACK_RATES.items():
            seen, _ = self._send(
                Kind.TRANSACTIONAL, sessions=1, window=64, messages=messages, rate_per_s=rate
            )
            found[f"order_ack_{rate}_per_s_p50_ms"] = seen.order_ack_p50_ms
        for rate in RATES_PER_S:
            found |= self._at_rate(rate)
        found |= self._wait()
        self._nodes.purge([*self._plain, *self._ordered, *self._many])
        self._settle()
        return found

    def _settle(self) -> None:
        """Wait until the nodes have done what a purge leaves for later."""
        end = time.monotonic() + SETTLE_WAIT_S
        while time.monotonic() < end:
            before = self._nodes.cpu_s()
            time.sleep(1)
            if self._nodes.cpu_s() - before < QUIET_CPU_S:
                return

    def _full(self, kind: Kind) -> float:
        seen, _ = self._send(kind, sessions=8, window=64, messages=FULL)
        return seen.messages / seen.seconds

    def _at_rate(self, rate: int) -> Figures:
        messages = int(rate * RATE_S) // MANY_SESSIONS * MANY_SESSIONS
        seen, cpu_us = self._send(
            sessions=MANY_SESSIONS, window=64, messages=messages, rate_per_s=rate, queues=self._many
        )
        name = f"many_{rate}_per_s"
        return {
            f"{name}_cpu_us_per_msg": cpu_us,
            f"{name}_ack_p50_ms": seen.p50_ms,
            f"{name}_ack_p99_ms": seen.p99_ms,
        }

    def _send(
        self,
        kind: Kind = Kind.RECOVERABLE,
        *,
        sessions: int,
        window: int,
        messages: int,
        rate_per_s: float = 0.0,
        queues: tuple[str, ...] = (),
    ) -> tuple[EntrySeen, float]:
        ordered = kind is Kind.TRANSACTIONAL
        work = Outstanding(
            host=self._nodes.leader().host,
            targets=queues or (self._ordered if ordered else self._plain),
            kind=kind,
            sessions=sessions,
            window=window,
            messages=messages,
            rate_per_s=rate_per_s,
            body_bytes=BODY_BYTES,
            is_spread=bool(queues),
        )
        process = Load(work, "tests.bench.entry_load", EntrySeen)
        cpu_s = self._nodes.cpu_s()
        seen = process.run()
        return seen, (self._nodes.cpu_s() - cpu_s) / seen.messages * 1e6

    def _wait(self) -> Figures:
        tls, leader = self._nodes.tls, self._nodes.leader()
        self._readers += 1
        work = Waiting(
            host=leader.host,
            endpoint=leader.api,
            authority=str(tls.authority),
            certificate=str(tls.certificate),
            key=str(tls.key),
            client_id=f"bench-waiting-{self._readers}",
            target=self._waited[0],
            messages=WAITED_FOR,
        )
        seen = Load(work, "tests.bench.waiting_load", WaitingSeen).run()
        return {
            "waiting_reader_p50_ms": seen.p50_ms,
            "waiting_reader_p99_ms": seen.p99_ms,
            "waiting_reader_after_ack_p50_ms": seen.after_ack_p50_ms,
        }

    def restart(self) -> Figures:
        """Fill a queue, and kill a node again and again; what is queued stays."""
        (target,) = self._nodes.create_queues(["million"])
        work = Sending(
            host=self._nodes.leader().host,
            target=target,
            sessions=8,
            messages=QUEUED // FILLS,
            body_bytes=QUEUED_BODY_BYTES,
        )
        for _ in range(FILLS):
            load(work).run()
        took_s = [self._killed(self._nodes.follower()) for _ in range(RESTARTS)]
        return {"restart_1m_ready_s": statistics.median(took_s)}

    def _killed(self, node: DevNode) -> float:
        """Return how long a new process takes until its node is ready, seconds."""
        before = self._nodes.pid(node)
        assert pids.send(self._nodes.layout.pid(node.name), signal.SIGKILL)
        end = time.monotonic() + RESTART_WAIT_S
        while time.monotonic() < end:
            time.sleep(POLL_S)
            pid = pids.running(self._nodes.layout.pid(node.name))
            if pid is None or pid == before or not _is_ready(node):
                continue
            return time.clock_gettime(time.CLOCK_BOOTTIME) - _started_at_s(pid)
        raise RuntimeError(f"{node.name} is not ready again")


def _is_ready(node: DevNode) -> bool:
    try:
        urllib.request.urlopen(f"{node.http}/readyz", timeout=2).close()
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
    return True


def _started_at_s(pid: int) -> float:
    """Return when a process was started, in seconds since the machine was."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[19]) / _TICKS_PER_S


def _few(window: int, rate: float, cpu_us: float, p50_ms: float, p99_ms: float) -> Figures:
    """Return the figures of a run with few messages outstanding."""
    return {
        f"outstanding_{window}_msgs_per_s": rate,
        f"outstanding_{window}_cpu_us_per_msg": cpu_us,
        f"outstanding_{window}_p50_ms": p50_ms,
        f"outstanding_{window}_p99_ms": p99_ms,
    }


def beside(name: str, peer: RabbitMq | JetStream, ours: Mapping[str, float]) -> Figures:
    """Measure a peer with few messages outstanding; return its figures, and ours by its."""
    found: Figures = {}
    for window, messages in OUTSTANDING.items():
        seen = peer.publish(messages, BODY_BYTES, window)
        theirs = _few(window, seen.msgs_per_s, seen.cpu_us_per_msg, seen.p50_ms, seen.p99_ms)
        found |= {f"{name}_{key}": value for key, value in theirs.items()}
        for ratio, key in (
            (f"latency_{window}", "p50_ms"),
            (f"cpu_{window}", "cpu_us_per_msg"),
            (f"publish_{window}", "msgs_per_s"),
        ):
            key = f"outstanding_{window}_{key}"
            found[f"ratio_{name}_{ratio}"] = ours[key] / theirs[key]
    return found
