"""The whole cluster under load, beside its peers: `python -m tests.bench.cluster`.

Three node processes on loopback as `qm dev up` runs them: mutual TLS, fsync on a quorum before any
acknowledgement. Load comes from separate processes. Every round measures us and each peer in
turn; ratios are taken within a round, and every figure is the median of the rounds. Mixtures come
first, while nothing is stored that nodes would still move out of their logs, and the many queues
last, since what they hold stays.
Prints JSON and writes it to build/bench.json. docs/performance.md says what the keys mean and where
the time goes.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import msgspec

from qm.node.dev.layout import DevNode
from tests.bench.cluster_load import Idling, Mixing, Seen, Sending, Work
from tests.bench.cluster_nodes import Nodes, resident_mib
from tests.bench.cluster_receive import Receiving
from tests.bench.load import load
from tests.bench.mixtures import Mixtures, beside
from tests.bench.peers.measure import WARM_UP, Missing
from tests.bench.peers.nats import JetStream
from tests.bench.peers.rabbitmq import RabbitMq
from tests.bench.plots import draw

MESSAGES = 120_000
SESSIONS = 8
BODY_BYTES = 1024
MIXED_QUEUES = 100
MIXED_BODY_BYTES = (100, 64 << 10)
MIXED_MESSAGES = 8_000
LATENCY_S = 8.0
IDLE_SESSIONS = 2_000
ROUNDS = 5
PLAIN = "bench"
OUTPUT = Path("build") / "bench.json"

Figures = dict[str, float]


class Cluster:
    """The figures of our side."""

    def __init__(self, nodes: Nodes, messages: int) -> None:
        self._nodes = nodes
        self._messages = messages
        (self._target,) = nodes.create_queues([PLAIN])
        plain = [f"mixed{k}" for k in range(MIXED_QUEUES - SESSIONS)]
        self._mixed = tuple(nodes.create_queues(plain))
        transactional = [f"mixed.tx{k}" for k in range(SESSIONS)]
        self._transactional = tuple(nodes.create_queues(transactional, is_transactional=True))
        self._receivers = 0

    def warm_up(self) -> None:
        self.publish(self._nodes.leader(), WARM_UP)
        self.publish(self._nodes.follower(), WARM_UP)
        self.receive(2 * WARM_UP)

    def round(self) -> Figures:
        """Measure the one-queue case; queues are as empty at the end as before."""
        leader, follower = self._nodes.leader(), self._nodes.follower()
        found: Figures = {}
        found |= _named("publish", self.publish(leader, self._messages))
        found |= _named("receive", self.receive(self._messages))
        found |= _named("follower_publish", self.publish(follower, self._messages))
        found |= _named("receive_committed", self.receive(self._messages, commits=True))
        rate = found["publish_msgs_per_s"] / 2
        paced = self.publish(leader, int(rate * LATENCY_S), rate_per_s=rate)
        self.receive(int(paced.seen.messages))
        found |= {
            "ack_p50_ms": paced.seen.p50_ms,
            "ack_p99_ms": paced.seen.p99_ms,
            "ack_at_msgs_per_s": paced.seen.messages / paced.seen.seconds,
        }
        found["ratio_follower_vs_leader"] = (
            found["follower_publish_msgs_per_s"] / found["publish_msgs_per_s"]
        )
        return found

    def publish(self, node: DevNode, messages: int, *, rate_per_s: float = 0.0) -> "Measured":
        return self._measured(self.sending(node, messages, rate_per_s=rate_per_s))

    def receive(self, messages: int, *, commits: bool = False) -> "Measured":
        return self._measured(self.receiving(messages, commits=commits))

    def sending(self, node: DevNode, messages: int, *, rate_per_s: float = 0.0) -> Sending:
        return Sending(
            host=node.host,
            target=self._target,
            sessions=SESSIONS,
            messages=messages,
            body_bytes=BODY_BYTES,
            rate_per_s=rate_per_s,
        )

    def receiving(self, messages: int, *, commits: bool = False) -> Receiving:
        tls = self._nodes.tls
        self._receivers += 1
        return Receiving(
            endpoint=self._nodes.leader().api,
            authority=str(tls.authority),
            certificate=str(tls.certificate),
            key=str(tls.key),
            client_id=f"bench-{self._receivers}",
            target=self._target,
            messages=messages,
            commits_confirms=commits,
        )

    def mix(self) -> Figures:
        """Measure the many queues; what it sends stays there, so it comes after every round."""
        work = Mixing(
            host=self._nodes.leader().host,
            targets=self._mixed,
            transactional=self._transactional,
            messages=MIXED_MESSAGES,
            body_bytes=MIXED_BODY_BYTES,
        )
        return _named("mixed", self._measured(work))

    def idle(self) -> float:
        """Return what idle sessions cost the node that has them and the others, MiB."""
        node = self._nodes.follower()
        pids = [self._nodes.pid(each) for each in self._nodes.nodes]
        before = sum(map(resident_mib, pids))
        idling = load(Idling(host=node.host, sessions=IDLE_SESSIONS))
        after = sum(map(resident_mib, pids))
        idling.run()
        return after - before

    def _measured(self, work: Work) -> "Measured":
        process = load(work)
        cpu_s = self._nodes.cpu_s()
        seen = process.run()
        return Measured(seen, (self._nodes.cpu_s() - cpu_s) / seen.messages * 1e6)


class Measured(msgspec.Struct, frozen=True):
    """What a load saw and what the nodes spent."""

    seen: Seen
    cpu_us_per_msg: float
    """User and system time of all three nodes."""


def _named(name: str, measured: Measured) -> Figures:
    seen = measured.seen
    return {
        f"{name}_msgs_per_s": seen.messages / seen.seconds,
        f"{name}_cpu_us_per_msg": measured.cpu_us_per_msg,
        f"{name}_load_cpu_us_per_msg": seen.cpu_s / seen.messages * 1e6,
    }


def rabbitmq_round(peer: RabbitMq, messages: int, ours: Figures) -> Figures:
    published, consumed = peer.publish(messages, BODY_BYTES), peer.consume(messages)
    return {
        "rabbitmq_publish_msgs_per_s": published.msgs_per_s,
        "rabbitmq_publish_cpu_us_per_msg": published.cpu_us_per_msg,
        "rabbitmq_publish_p99_ms": published.p99_ms,
        "rabbitmq_receive_msgs_per_s": consumed.msgs_per_s,
        "rabbitmq_receive_cpu_us_per_msg": consumed.cpu_us_per_msg,
        "ratio_rabbitmq_publish": ours["publish_msgs_per_s"] / published.msgs_per_s,
        "ratio_rabbitmq_receive": ours["receive_msgs_per_s"] / consumed.msgs_per_s,
    }


def jetstream_round(peer: JetStream, messages: int, ours: Figures) -> Figures:
    published = peer.publish(messages, BODY_BYTES)
    return {
        "jetstream_publish_msgs_per_s": published.msgs_per_s,
        "jetstream_publish_cpu_us_per_msg": published.cpu_us_per_msg,
        "jetstream_publish_p99_ms": published.p99_ms,
        "ratio_jetstream_publish": ours["publish_msgs_per_s"] / published.msgs_per_s,
        "ratio_jetstream_cpu": ours["publish_cpu_us_per_msg"] / published.cpu_us_per_msg,
    }


def measure(options: argparse.Namespace) -> Figures:
    """Measure in rounds; return medians."""
    rounds: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        rabbitmq = jetstream = None
        if options.peers:
            try:
                rabbitmq = stack.enter_context(RabbitMq())
            except Missing as missing:
                _say(str(missing))
            try:
                jetstream = stack.enter_context(JetStream())
            except Missing as missing:
                _say(str(missing))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-bench-"))
        nodes = stack.enter_context(Nodes(Path(folder), options.network))
        mixtures = Mixtures(nodes)
        once = mixtures.idle()
        cluster = Cluster(nodes, options.messages)
        cluster.warm_up()
        once[f"idle_{IDLE_SESSIONS}_sessions_mib"] = cluster.idle()
        for number in range(options.rounds):
            found = mixtures.round()
            for name, peer in (("rabbitmq", rabbitmq), ("jetstream", jetstream)):
                if peer is not None:
                    found |= beside(name, peer, found)
            for name, value in found.items():
                rounds[name].append(value)
            _say(f"mixtures {number + 1}: {json.dumps(_rounded(found))}")
        for number in range(options.rounds):
            os.sync()  # What a peer left unsynced is not to be written while we are measured.
            found = cluster.round()
            if rabbitmq is not None:
                found |= rabbitmq_round(rabbitmq, options.messages, found)
            if jetstream is not None:
                found |= jetstream_round(jetstream, options.messages, found)
            for name, value in found.items():
                rounds[name].append(value)
            _say(f"round {number + 1}: {json.dumps(_rounded(found))}")
        for _ in range(options.rounds):
            for name, value in cluster.mix().items():
                rounds[name].append(value)
        once |= mixtures.restart()
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    return _rounded(medians | once)


def _rounded(figures: Figures) -> Figures:
    return {name: round(value, 2 if value < 1000 else None) for name, value in figures.items()}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="the whole cluster under load, beside its peers")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--network", default="127.0.0", help="of the nodes' addresses")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    options = parser.parse_args()
    began, load = time.time(), os.getloadavg()[0]
    report: dict[str, object] = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average_before": round(load, 1),
        "messages": options.messages,
        "rounds": options.rounds,
    }
    report |= measure(options)
    report["seconds"] = round(time.time() - began)
    text = json.dumps(report, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text + "\n", encoding="utf-8")
    draw(report, OUTPUT.parent)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
