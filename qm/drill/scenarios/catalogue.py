"""Every scenario, by name; each kind has its own module."""

from typing import Final

from qm.drill.scenarios.clients import CLIENTS
from qm.drill.scenarios.fronts import FRONTS
from qm.drill.scenarios.membership import MEMBERSHIP
from qm.drill.scenarios.network import NETWORK
from qm.drill.scenarios.processes import PROCESSES
from qm.drill.scenarios.remote_readers import REMOTE_READERS
from qm.drill.scenarios.storage import STORAGE

SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        *(*PROCESSES, *CLIENTS, *REMOTE_READERS, *NETWORK),
        *(*FRONTS, *MEMBERSHIP, *STORAGE),
    )
}
"""Scenarios by name, in the order of `qm drill list`."""
