"""A drill's page: one file, nothing loaded from elsewhere."""

import io
import json
from collections.abc import Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Final

import jinja2
from matplotlib.figure import Figure

from qm.drill.runner import Round, result_of

_RED: Final = "#b91c1c"
_LINES: Final = (("sent", "#64748b"), ("acknowledged", "#2563eb"), ("received", "#16a34a"))


def merge_results(path: Path, found: Mapping[str, object]) -> None:
    """Put entries into a JSON file of results, beside those of other runs; they replace their own
    kind's.
    """
    results = json.loads(path.read_bytes()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**results, **found}, indent=1) + "\n", encoding="utf-8")


def report_html(done: dict[str, list[Round]]) -> str:
    """Return the page for the rounds of scenarios."""
    environment = jinja2.Environment(autoescape=True)
    text = resources.files("qm.drill").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(
        results={name: result_of(rounds) for name, rounds in done.items()},
        rounds=done,
        charts={
            (name, one.seed): _time_line(one) for name, rounds in done.items() for one in rounds
        },
        version=metadata.version("quorate"),
    )


def _time_line(one: Round) -> str:
    """Return an SVG: messages per second, with the faults marked."""
    figure = Figure(figsize=(9, 2.4))
    axes = figure.add_subplot()
    seconds = one.verdict.seconds
    for name, colour in _LINES:
        axes.plot(
            [second.second for second in seconds],
            [getattr(second, name) for second in seconds],
            color=colour,
            label=name,
        )
    for fault in one.verdict.faults:
        axes.axvline(fault.at_ms / 1000, color=_RED, linestyle="--", linewidth=1)
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages per second")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper right")
    written = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :]
