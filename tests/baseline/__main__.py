"""`python -m tests.baseline raftos|quorate`: run every scenario, print one JSON object.

`make baseline` runs both, each in its own environment, and writes the comparison.
"""

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.baseline.face import Cluster
from tests.baseline.scenarios import SCENARIOS


def factory(side: str, folder: Path) -> Callable[[int], Cluster]:
    """Return what makes a cluster of so many machines."""
    if side == "raftos":
        from tests.baseline.raftos_cluster import RaftosCluster, install_shim

        install_shim()
        return lambda machines: RaftosCluster(machines, folder)
    from tests.baseline.quorate_cluster import QuorateCluster

    return QuorateCluster


def run(side: str) -> dict[str, str]:
    """Return what each scenario violates on that side, "" for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        make = factory(side, Path(folder) / "machines")
        found = {}
        for scenario in SCENARIOS:
            cluster = make(scenario.machines)
            found[scenario.name] = scenario.run(cluster)
            cluster.close()
        return found


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.disable(logging.WARNING)
    print(json.dumps(run(sys.argv[1]), indent=1))
