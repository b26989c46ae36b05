"""What a run's histories prove, as a value and as JSON."""

from pathlib import Path
from statistics import median
from typing import Final

import msgspec

_MS_PER_S: Final = 1_000


class Fault(msgspec.Struct, frozen=True):
    """A fault of the runner and its effect on clients."""

    detail: str
    at_ms: int
    """Time since the first event of the run."""
    gap_ms: float
    """The longest gap of any sender (`Verdict.longest_gap_ms`) that includes the moment of the
    fault, or that began within FAULT_WINDOW_MS of it."""


class Mark(msgspec.Struct, frozen=True):
    """An action or observation of the runner other than a fault."""

    kind: str
    """"healed" or "elected"."""
    detail: str
    at_ms: int
    """Time since the first event of the run."""


class Second(msgspec.Struct, frozen=True):
    """One second of the run, counted from its first event."""

    second: int
    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    acknowledgement_p99_ms: float | None = None
    """Latency of the messages acknowledged in it, from their first send; None if none was."""


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds over all messages that have both ends; zeros when none has."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    histogram: tuple[tuple[float, int], ...] = ()
    """How many took longer than the limit before and at most this one, milliseconds, up to the
    longest."""


class Findings(msgspec.Struct, frozen=True):
    """Messages or transactions that break one rule: how many, and the first few by name."""

    count: int = 0
    examples: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict; exit codes follow `holds`."""

    holds: bool
    sent: int
    acknowledged: int
    received: int
    """Received by reads that were committed, accepted or without transaction."""
    remaining: int
    """Seen in a queue after the load."""
    lost: Findings
    """Acknowledged, but neither received nor remaining."""
    duplicated: Findings
    """Received more than once, or received and remaining."""
    out_of_order: Findings
    """Transactional messages after a later one of their stream."""
    torn: Findings
    """Transactions of which a part took effect, or that took effect against their outcome."""
    invented: Findings
    """Received, but never sent."""
    stale: Findings
    """Looks that did not show messages acknowledged, or seen by others, before they began."""
    looks: int
    """Looks at queues that have no readers."""
    unknown: int
    """Transactions whose outcome no client learned."""
    reconnects: int
    """MSMQ sessions that senders had to reopen."""
    longest_gap_ms: float
    """Longest time between two advances of AckSequenceNumber while a message was outstanding."""
    acknowledgement: Latency
    """Latency from the first send to the acknowledgement."""
    delivery: Latency
    """Latency from the first send to the read."""
    duration_s: float
    seconds: tuple[Second, ...]
    faults: tuple[Fault, ...]
    marks: tuple[Mark, ...] = ()


def explain_p99(verdict: Verdict) -> str:
    """Say when acknowledgements were slowest, what had happened then, and how it was otherwise."""
    timed = {
        one.second: one.acknowledgement_p99_ms
        for one in verdict.seconds
        if one.acknowledgement_p99_ms is not None
    }
    if not timed:
        return "nothing was acknowledged"
    struck: dict[int, str] = {}
    for fault in verdict.faults:
        end_ms = fault.at_ms + int(fault.gap_ms)
        for second in range(fault.at_ms // _MS_PER_S, end_ms // _MS_PER_S + 2):
            struck.setdefault(second, fault.detail)
    slowest = max(timed, key=lambda second: timed[second])
    cause = struck.get(slowest, "no fault: the machine or its disk was busy")
    text = f"slowest in second {slowest}, {timed[slowest]:.1f} ms: {cause}"
    calm = [value for second, value in timed.items() if second not in struck]
    if calm:
        text += f"; {median(calm):.1f} ms in the median second away from faults"
    return text


def write_verdict(verdict: Verdict, path: Path) -> None:
    """Write the verdict as indented JSON; the folder is created if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n")
