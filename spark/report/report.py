"""The summary as one self-contained page."""

import io
from datetime import UTC
from importlib import resources
from typing import Any, Final

import jinja2
from matplotlib.figure import Figure

from spark.archive.summary import Summary

_DAY_MS: Final = 86_400_000
_FLOW_COLUMNS: Final = (
    "arrived", "received", "moved_in", "moved_out", "expired", "purged", "dead_lettered",
    "delivered",
)  # fmt: skip


def report_html(summary: Summary) -> str:
    """Return the page."""
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string(
        resources.files("spark.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    ).render(
        s=summary,
        columns=_FLOW_COLUMNS,
        ages={row["queue"]: row for row in summary.ages},
        time_line=_time_line(summary.time_line),
    )


def _time_line(rows: list[dict[str, Any]]) -> str:
    """Return an SVG with a line for each operation over minutes of cluster time."""
    figure = Figure(figsize=(10, 3))
    axes = figure.add_subplot()
    for operation in sorted({row["operation"] for row in rows}):
        points = sorted(
            (row["minute_ms"], row["messages"]) for row in rows if row["operation"] == operation
        )
        days = [ms / _DAY_MS for ms, _ in points]  # since 1970, as matplotlib counts
        axes.plot(days, [count for _, count in points], marker=".", label=operation)
    axes.xaxis_date(tz=UTC)
    if rows:
        axes.legend(frameon=False)
    axes.set_ylabel("messages")
    figure.autofmt_xdate()
    written = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None})
    return written.getvalue().partition("<svg")[1] + written.getvalue().partition("<svg")[2]
