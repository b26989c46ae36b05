"""The workload whose state machine is the queue manager."""

from tests.sim.machine_clients import QueueClients
from tests.sim.machine_model import QueueModel
from tests.sim.machine_rows import QueueMachine
from tests.sim.world import Workload

QUEUES = Workload(QueueMachine, QueueModel, QueueClients)
"""Real entries, real apply, real digests."""
