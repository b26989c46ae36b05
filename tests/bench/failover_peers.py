"""The same blows to other replicated queues, with one message outstanding after the other."""

import signal
from collections.abc import Callable

from tests.bench.peers.measure import Missing
from tests.bench.peers.nats import JetStream
from tests.bench.peers.rabbitmq import RabbitMq

BLOWS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}


def peer_gaps(rounds: int, say: Callable[[str], None]) -> dict[tuple[str, str], list[float]]:
    """Return the gaps in ms by peer and blow; a peer that is not installed is left out."""
    gaps: dict[tuple[str, str], list[float]] = {}
    for name, peer in (("rabbitmq", RabbitMq), ("jetstream", JetStream)):
        try:
            context = peer()
        except Missing as missing:
            say(str(missing))
            continue
        with context:
            for what, blow in BLOWS.items():
                gaps[name, what] = []
                for turn in range(rounds):
                    gap_ms = context.failover_gap_ms(blow)
                    gaps[name, what].append(gap_ms)
                    say(f"{name} {what} {turn + 1} of {rounds}: {gap_ms:.0f} ms")
    return gaps
