"""What a run's histories prove, as a value and as JSON."""

from pathlib import Path

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """A fault of the runner and what clients felt of it."""

    detail: str
    at_ms: int
    """After the first event of the run."""
    gap_ms: float
    """The longest gap of any sender (`Verdict.longest_gap_ms`) that the fault's instant is in, or
    that began within FAULT_WINDOW_MS of it."""


class Mark(msgspec.Struct, frozen=True):
    """What the runner did or saw besides faults."""

    kind: str
    """"healed" or "elected"."""
    detail: str
    at_ms: int
    """After the first event of the run."""


class Second(msgspec.Struct, frozen=True):
    """One second of the run, counted from its first event."""

    second: int
    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    acknowledgement_p99_ms: float | None = None
    """Of the messages acknowledged in it, from their first sending; None if there was none."""


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds over all messages that have both ends; zeros when none has."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0


class Findings(msgspec.Struct, frozen=True):
    """Messages or transactions that break one rule: how many, and the first few by name."""

    count: int = 0
    examples: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement; `holds` is what exit codes are made of."""

    holds: bool
    sent: int
    acknowledged: int
    received: int
    """By reads that were committed, accepted or without transaction."""
    remaining: int
    """Seen in a queue after the load."""
    lost: Findings
    """Acknowledged, but neither received nor remaining."""
    duplicated: Findings
    """Received more than once, or received and remaining."""
    out_of_order: Findings
    """Transactional messages behind a later one of their stream."""
    torn: Findings
    """Transactions of which a part took effect, or that took effect against their outcome."""
    invented: Findings
    """Received, and sent by nobody."""
    stale: Findings
    """Looks that did not show what was acknowledged, or seen by others, before they began."""
    looks: int
    """At queues from which nobody takes anything."""
    unknown: int
    """Transactions whose outcome nobody was told."""
    reconnects: int
    """MSMQ sessions that senders had to open anew."""
    longest_gap_ms: float
    """Longest time between two advances of AckSequenceNumber while a message was outstanding."""
    acknowledgement: Latency
    """From the first sending to the acknowledgement."""
    delivery: Latency
    """From the first sending to the read."""
    duration_s: float
    seconds: tuple[Second, ...]
    faults: tuple[Fault, ...]
    marks: tuple[Mark, ...] = ()


def write_verdict(verdict: Verdict, path: Path) -> None:
    """Write it as indented JSON; the folder is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n")
