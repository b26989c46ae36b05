"""Figures of many seeds, and how one is replayed."""

from collections.abc import Sequence
from typing import Any, Final

COUNTED: Final = (
    "events",
    "sent",
    "acknowledged",
    "received",
    "far_arrived",
    "ack_marks",
    "queues_deleted",
    "installs",
    "backups_made",
    "parts_bent",
    "foreign_errors",
    "lives",
)


def replay_command(seed: int, kinds: str = "", seconds: float | None = None) -> str:
    """Return what replays a seed. `kinds`, `seconds`: as they were chosen, if they were."""
    chosen = f" --faults {kinds}" if kinds else ""
    longer = f" --seconds {seconds:g}" if seconds is not None else ""
    return f"python -m tests.sim --machine node --seed {seed}{chosen}{longer} -v"


def figures(results: Sequence[dict[str, Any]], wall_s: float, rocks_shim: str) -> dict[str, Any]:
    """Return what `build/sim.json` says of seeds."""
    failed = [result for result in results if result["findings"]]
    cpu_s = sum(result.get("cpu_s", 0.0) for result in results)
    faults: dict[str, int] = {}
    for result in results:
        for kind, count in result.get("faults", {}).items():
            name = f"faults_injected_{kind}_count"
            faults[name] = faults.get(name, 0) + count
    return {
        "machine": "node",
        "seeds_run": len(results),
        "seeds_per_hour": round(len(results) / wall_s * 3600) if wall_s else 0,
        "failed": len(failed),
        "failed_seeds": sorted(result["seed"] for result in failed),
        "first_failure": failed[0]["findings"][0] if failed else "",
        "findings": {str(result["seed"]): result["findings"] for result in failed},
        **{f"{name}_total": sum(result.get(name, 0) for result in results) for name in COUNTED},
        **{name: faults[name] for name in sorted(faults)},
        "cpu_s_per_seed": round(cpu_s / len(results), 2) if results else 0,
        "virtual_s_total": round(sum(result.get("virtual_s", 0) for result in results), 1),
        "rocks_shim": rocks_shim,
        "wall_s": round(wall_s, 2),
    }
