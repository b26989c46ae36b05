"""The same blows to other replicated queues, with one message outstanding after the other."""

import signal
from collections.abc import Callable, Generator, Sequence

from tests.bench.peers.measure import Missing
from tests.bench.peers.nats import JetStream
from tests.bench.peers.rabbitmq import RabbitMq

BLOWS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}
PEERS: dict[str, Callable[[], RabbitMq | JetStream]] = {
    "rabbitmq": RabbitMq,
    "jetstream": JetStream,
}


def peer_gaps(peer: str, what: str, turns: Sequence[int]) -> Generator[tuple[int, float]]:
    """Give the gap in ms of each turn as soon as it is known. Raises Missing."""
    with PEERS[peer]() as context:
        for turn in turns:
            yield turn, context.failover_gap_ms(BLOWS[what])


__all__ = ["BLOWS", "PEERS", "Missing", "peer_gaps"]
