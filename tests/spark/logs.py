"""Archives of entries that a real store applied, for what replays them."""

from pathlib import Path

from qm.archive.checkpoints import Checkpoint, CheckpointExport
from qm.archive.destination import FolderDestination
from qm.archive.ranges import Identity
from qm.model.values import commands
from qm.model.values.commands import Command
from qm.store.digest import digest_bytes
from tests.spark.archives import Archive
from tests.spark.files import CLUSTER
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

MESSAGES = 60
KEPT = 10
"""Of the messages, those that are still there at the end."""


class Log:
    """A store, and an archive with what it applied."""

    def __init__(self, path: Path) -> None:
        self.node = Node(path)
        self.archive = Archive()
        self._marks = 0

    def put(self, *batch: Command, mark: int | None = None) -> None:
        """Apply an entry, and export it."""
        self.node.put(batch)
        index = self.node.log.last_index()
        (entry,) = self.node.log.entries(index, index + 1, 1 << 30)
        self.archive.entry(mark=mark, data=entry.data, state=self.digest)

    def audit_mark(self) -> None:
        """Have every node tell its state."""
        self._marks += 1
        self.put(commands.AuditMark(self._marks), mark=self._marks)

    @property
    def digest(self) -> bytes:
        """Of the state as it is now."""
        return digest_bytes(self.node.store.applied.digest)


def write_checkpoint(root: Path, log: Log, node: str) -> Checkpoint:
    """Have a node write the state as it is now into an archive."""
    pinned = log.node.store.pin()
    identity, destination = Identity(CLUSTER, node, 1), FolderDestination(root)
    export = CheckpointExport(pinned, identity, destination, 1 << 40, lambda: False)
    checkpoint = export.run()
    assert checkpoint is not None
    return checkpoint


def traffic(path: Path) -> Log:
    """Return a log of messages that came and mostly went, with an audit mark at its end."""
    log = Log(path)
    log.put(*setup_commands())
    for first in range(1, MESSAGES + 1, 10):
        log.put(arrivals(*(packet(n, body=bytes(1000)) for n in range(first, first + 10))))
    log.put(receive(2, MESSAGES - KEPT))
    log.put(commands.Confirm("c", MESSAGES - KEPT + 1))
    log.audit_mark()
    return log


def more_traffic(log: Log) -> None:
    """Append what follows: five messages go, one comes; another audit mark."""
    first = MESSAGES - KEPT + 2
    log.put(receive(first, 5))
    log.put(commands.Confirm("c", first + 4), arrivals(packet(1000, body=bytes(1000))))
    log.audit_mark()
