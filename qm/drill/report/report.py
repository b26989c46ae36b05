"""Output of drills: results, everything as JSON, and an HTML page in one file."""

import io
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from qm.drill.runner import Round, result_of

_LINES: Final = (
    ("sent", "#94a3b8", "-"),
    ("acknowledged", "#2563eb", "-"),
    ("received", "#16a34a", "-"),
)
_LATENCY: Final = "#7c3aed"
_FAULT: Final = ("#b91c1c", "--")
_MARKS: Final = {"healed": ("#15803d", ":"), "elected": ("#d97706", "-.")}


AFTER_S: Final = 3
"""Seconds that a time line shows after the last acknowledgement."""
NARROW: Final = 50
"""Range of latencies in which powers of ten would give too few labels on an axis."""


def merge_results(path: Path, found: Mapping[str, object]) -> None:
    """Put entries into a JSON file of results, next to those of other runs; they replace earlier
    entries of the same name.
    """
    results = json.loads(path.read_bytes()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**results, **found}, indent=1) + "\n", encoding="utf-8")


def report_json(done: Mapping[str, Sequence[Round]], about: Mapping[str, object]) -> bytes:
    """Return everything that the page shows, as JSON: `about`, then the rounds by scenario."""
    rounds = {name: [_entry(one) for one in several] for name, several in done.items()}
    return msgspec.json.format(msgspec.json.encode({**about, "rounds": rounds}), indent=1)


def _entry(one: Round) -> dict[str, object]:
    return {
        **msgspec.to_builtins(one),
        "holds": one.holds,
        "rto_ms": one.gap_ms,
        "rpo_messages": one.verdict.lost.count,
    }


def report_html(done: Mapping[str, Sequence[Round]], about: Mapping[str, object]) -> str:
    """Return the page for the rounds of scenarios; `about`: facts about the run, by name."""
    environment = jinja2.Environment(autoescape=True)
    text = resources.files("qm.drill").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        results={name: result_of(list(rounds)) for name, rounds in done.items()},
        rounds=done,
        charts={
            (name, one.seed): _time_line(one) for name, rounds in done.items() for one in rounds
        },
        about=about,
    )


def _time_line(one: Round) -> str:
    """Return an SVG: messages per second above latency, with all events marked in both."""
    figure = Figure(figsize=(10, 3.6))
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    seconds = one.verdict.seconds
    starts = [second.second for second in seconds]
    for name, colour, style in _LINES:
        values = [getattr(second, name) for second in seconds]
        above.step(starts, values, style, where="post", color=colour, label=name, linewidth=1.3)
    waits = [(s.second + 0.5, s.acknowledgement_p99_ms) for s in seconds]
    known = [(at, wait) for at, wait in waits if wait]
    if known:
        below.plot(*zip(*known, strict=True), ".-", color=_LATENCY)
        below.set_yscale("log")
        waited = [wait for _, wait in known]
        is_narrow = max(waited) < NARROW * min(waited)
        below.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_narrow else (1,)))
        below.yaxis.set_major_formatter(ScalarFormatter())
        below.yaxis.set_minor_formatter(NullFormatter())
    for axes in (above, below):
        _mark(axes, one)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e2e6ec", linewidth=0.6)
    above.set_ylabel("messages / s")
    above.set_ylim(bottom=0)
    below.set_ylabel("acknowledged\nwithin, p99 ms")
    # Reading the remaining messages may take long and says nothing about the fault.
    above.set_xlim(0, max((s.second for s in seconds if s.acknowledged), default=0) + AFTER_S)
    below.set_xlabel("seconds")
    above.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    written = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :]


def _mark(axes: Any, one: Round) -> None:
    """Draw a line for each fault, heal and election."""
    happened = [("fault", *_FAULT, fault.at_ms) for fault in one.verdict.faults]
    happened += [(mark.kind, *_MARKS[mark.kind], mark.at_ms) for mark in one.verdict.marks]
    named: set[str] = set()
    for kind, colour, style, at_ms in happened:
        label = kind if kind not in named else None
        named.add(kind)
        axes.axvline(at_ms / 1000, color=colour, linestyle=style, linewidth=1.2, label=label)
