"""Plots of the figures of `tests.bench.cluster`: PNG and SVG."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.bench.mixtures import OUTSTANDING, RATES_PER_S

FULL: Final = 512
SYSTEMS: Final = {"": "Quorate", "rabbitmq_": "RabbitMQ, quorum queue", "jetstream_": "JetStream"}
KINDS: Final = ("png", "svg")


def draw(report: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw rate and latency by what is outstanding, and cost by rate; return the files."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    rates, waits, costs = figure.subplots(1, 3)
    for prefix, name in SYSTEMS.items():
        windows = [one for one in OUTSTANDING if f"{prefix}outstanding_{one}_p50_ms" in report]
        if not windows:
            continue
        key = prefix + "outstanding_{}_msgs_per_s"
        by_window = {one: report[key.format(one)] for one in windows}
        by_window[FULL] = report[f"{prefix}publish_msgs_per_s"]
        rates.plot(list(by_window), list(by_window.values()), marker="o", label=name)
        key = prefix + "outstanding_{}_p50_ms"
        waits.plot(windows, [report[key.format(one)] for one in windows], marker="o", label=name)
    many = [report[f"many_{rate}_per_s_cpu_us_per_msg"] for rate in RATES_PER_S]
    costs.plot(RATES_PER_S, many, marker="o", label="500 sessions, 100 queues")
    for axes, title, across, up in (
        (rates, "Rate", "messages outstanding", "messages/s"),
        (waits, "Acknowledgement, median", "messages outstanding", "ms"),
        (costs, "Processor time of three nodes", "messages/s", "us per message"),
    ):
        axes.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    files = [folder / f"bench.{kind}" for kind in KINDS]
    for file in files:
        figure.savefig(file)
    return files
