"""What a run sends: a seeded, endless sequence of messages, the same for the same seed.

A message's body begins with its name in the run, so that a receiver can identify it on its own
(`message_name`).
"""

import math
import random
from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec

NAME_END: Final = b"\x00"
_FILLER_BYTES: Final = 1 << 16


class Delivery(Enum):
    """How a message travels; the values are those of `HistoryEvent.delivery`."""

    EXPRESS = "express"
    RECOVERABLE = "recoverable"
    TRANSACTIONAL = "transactional"


class Target(msgspec.Struct, frozen=True):
    """A queue to send to."""

    format_name: str
    r"""Direct format name with its prefix: `DIRECT=OS:host\private$\q`."""
    is_transactional: bool = False
    """Such a queue accepts only transactional messages, others none [MS-MQDMPR 3.1.5.8]."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The mix of messages. Shares are in percent."""

    targets: tuple[Target, ...]
    seed: int = 0
    express_share: int = 30
    """Share of the messages to non-transactional queues; the rest is recoverable."""
    transactional_share: int = 30
    """Share of all messages, if the targets include both kinds of queues."""
    body_bytes: tuple[int, int] = (100, 2048)
    """Smallest and largest body; sizes in between are drawn evenly on a logarithmic scale."""
    priorities: tuple[int, ...] = (3,)
    """Priorities of non-transactional messages, drawn evenly."""
    transaction_messages: tuple[int, int] = (1, 4)
    """Fewest and most consecutive messages of one transaction to one queue."""


class Planned(msgspec.Struct, frozen=True, gc=False):
    """One message to send."""

    name: str
    """Unique in the run: client, queue, number."""
    target: int
    """Index into `Workload.targets`."""
    delivery: Delivery
    priority: int
    number: int
    """Counts this client's messages to the target from 1."""
    body: bytes
    transaction: int = 0
    """Groups the messages of one transaction, from 1; 0 outside of transactions."""
    is_first: bool = False
    is_last: bool = False


def plan(workload: Workload, client: str) -> Iterator[Planned]:
    """Yield the messages of one client, without end."""
    chance = random.Random(f"{workload.seed}/{client}")
    filler = chance.randbytes(_FILLER_BYTES)
    plain = [i for i, target in enumerate(workload.targets) if not target.is_transactional]
    transactional = [i for i, target in enumerate(workload.targets) if target.is_transactional]
    numbers = [0] * len(workload.targets)
    transaction = 0

    def message(target: int, delivery: Delivery, priority: int, **group: int) -> Planned:
        numbers[target] += 1
        name = f"{client}/{target}/{numbers[target]}"
        body = _body(name, _size(chance, *workload.body_bytes), filler)
        return Planned(
            name,
            target,
            delivery,
            priority,
            numbers[target],
            body,
            group.get("transaction", 0),
            bool(group.get("is_first", 0)),
            bool(group.get("is_last", 0)),
        )

    while True:
        if not plain or (transactional and chance.randrange(100) < workload.transactional_share):
            target = chance.choice(transactional)
            transaction += 1
            last = chance.randint(*workload.transaction_messages)
            for at in range(1, last + 1):
                yield message(
                    target,
                    Delivery.TRANSACTIONAL,
                    0,
                    transaction=transaction,
                    is_first=at == 1,
                    is_last=at == last,
                )
        else:
            is_express = chance.randrange(100) < workload.express_share
            delivery = Delivery.EXPRESS if is_express else Delivery.RECOVERABLE
            yield message(chance.choice(plain), delivery, chance.choice(workload.priorities))


def message_name(body: bytes | memoryview) -> str:
    """Return the name that a body carries, "" if it belongs to no workload."""
    name, end, _ = bytes(body[:256]).partition(NAME_END)
    return name.decode("ascii", errors="replace") if end else ""


def _size(chance: random.Random, smallest: int, largest: int) -> int:
    return round(smallest * math.pow(largest / smallest, chance.random()))


def _body(name: str, size: int, filler: bytes) -> bytes:
    head = name.encode("ascii") + NAME_END
    return head + filler[: max(0, size - len(head))]
