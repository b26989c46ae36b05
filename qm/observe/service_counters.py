"""What a node's metrics say of its service, as Windows' object MSMQ Service does, with rates.

A rate needs two readings. Whoever looks keeps the earlier one, so that nodes remember nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

SERVICE: Final[Mapping[str, str]] = {
    "quorate_sessions": "Sessions",
    "quorate_connections": "IP connections accepted",
    "quorate_messages_arrived_total": "Incoming messages",
    "quorate_outgoing_messages_total": "Outgoing messages",
    "quorate_bytes_arrived_total": "Incoming bytes",
    "quorate_bytes_sent_total": "Outgoing bytes",
    "quorate_pings_total": "UDP pings",
    "quorate_client_sessions": "Sessions of API clients",
    "quorate_waiting_readers": "Reads that wait",
}
"""Metrics that answer to the counters of the object MSMQ Service."""
SAMPLES_MAX: Final = 1_000
APART_MIN_S: Final = 0.5
"""Between two readings of a rate."""
_PREFIX: Final = b"quorate_"
_OF_QUEUES: Final = b"quorate_queue_"
"""They are on the pages of the queues."""
_CREATED: Final = b"_created"
"""Ends what libraries add: when a counter began."""
_FAMILY: Final = b"\n# HELP "
"""Begins a metric. No value of a label contains it: line feeds are escaped in them."""
_SHOWN_TYPES: Final = (b"counter", b"gauge")


class Counter(msgspec.Struct, frozen=True):
    """One value now."""

    name: str
    labels: str
    value: float


class ServiceCounter(msgspec.Struct, frozen=True):
    """One of the service, in all."""

    title: str
    value: float
    parts: Sequence[Counter]
    """By label, if it has any."""
    per_s: float | None
    """None: it is no total, or there is no earlier reading."""


class Reading(msgspec.Struct, frozen=True):
    """Totals of the service at one time."""

    started_ms: int
    """Of the node, UTC: it counts from the beginning when it has restarted."""
    at_s: float
    """Monotonic, as the node has it."""
    totals: dict[str, float]


def counters_of(exposition: bytes) -> list[Counter]:
    """Return gauges and totals of Prometheus' text, without parts of histograms, what is made by
    the process's libraries, and those of queues.
    """
    found: list[Counter] = []
    # What is not shown is not parsed: that costs some 25 us a line.
    text = "".join(_shown_families(exposition))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ", ".join(f"{name} {value}" for name, value in sorted(sample.labels.items()))
            found.append(Counter(sample.name, labels, sample.value))
    return found


def _shown_families(exposition: bytes) -> Iterator[str]:
    """Yield the lines of families that are shown, SAMPLES_MAX of them in all."""
    left = SAMPLES_MAX
    for part in (b"\n" + exposition).split(_FAMILY)[1:]:
        if not _is_shown(part.partition(b" ")[0]):
            continue
        lines = part.split(b"\n", left + 2)[: left + 2]
        if len(lines) < 2 or lines[1].rpartition(b" ")[2] not in _SHOWN_TYPES:
            continue
        samples = [line for line in lines[2:] if line]
        left -= len(samples)
        yield b"\n".join([_FAMILY[1:] + lines[0], lines[1], *samples, b""]).decode(
            "utf-8", "replace"
        )


def _is_shown(name: bytes) -> bool:
    is_own = name.startswith(_PREFIX) and not name.endswith(_CREATED)
    return is_own and not name.startswith(_OF_QUEUES)


def totals_of(counters: Sequence[Counter]) -> dict[str, float]:
    """Return what of the service is counted up, in all."""
    return {
        name: sum(one.value for one in counters if one.name == name)
        for name in SERVICE
        if name.endswith("_total")
    }


def service_of(
    counters: Sequence[Counter], now: Reading, before: Reading | None
) -> list[ServiceCounter]:
    """Return the counters of the service; those that count up with their rates, if there is an
    earlier reading of this process.
    """
    found: list[ServiceCounter] = []
    for name, title in SERVICE.items():
        own = [one for one in counters if one.name == name]
        parts = [one for one in own if one.labels]
        value = sum(one.value for one in own)
        found.append(ServiceCounter(title, value, parts, _rate(name, now, before)))
    return found


def _rate(name: str, now: Reading, before: Reading | None) -> float | None:
    if before is None or before.started_ms != now.started_ms:
        return None
    if name not in now.totals or name not in before.totals:
        return None
    more, apart_s = now.totals[name] - before.totals[name], now.at_s - before.at_s
    return more / apart_s if more >= 0 and apart_s >= APART_MIN_S else None
