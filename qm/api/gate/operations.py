"""What the control plane needs of the node around it; `qm.node` implements `Operations`.

Everything replicated goes through `qm.cluster.cluster.Cluster`, members through
`qm.cluster.membership.Membership`; here is what belongs to a process: its drain, its disk, its log,
its links to peers. All calls are made in the node's event loop.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec

from qm.model.values.elements import OutgoingQueueState
from qm.store.backup import BackupHead


class Health(msgspec.Struct, frozen=True):
    """How this node is."""

    disk_free_bytes: int
    disk_total_bytes: int
    alarms: tuple[str, ...]
    """Stable names of what wants attention."""
    is_draining: bool
    session_count: int
    """Open MSMQ sessions."""


class Link(msgspec.Struct, frozen=True):
    """What the leader knows of one outgoing queue's connection."""

    state: OutgoingQueueState
    next_hops: tuple[str, ...] = ()
    connection_history: tuple[str, ...] = ()
    """Newest last, one line each."""
    resend_count: int = 0
    next_resend_ms: int = 0
    """Cluster time; 0 = none is due."""
    last_error: str = ""


class BackupPart(msgspec.Struct, frozen=True):
    """Some bytes of a backup, in order."""

    data: bytes
    total_bytes: int
    """Of the whole stream."""
    head: BackupHead


class Diagnostics(msgspec.Struct, frozen=True):
    """What a support case needs of a node; no secret and no message in it."""

    platform: Mapping[str, str]
    """Versions of Python, libraries and the system, by name."""
    configuration: str
    """JSON, redacted."""
    metrics: bytes
    """Prometheus text."""
    log_lines: Sequence[str]
    started_ms: int
    """UTC."""
    memory_bytes: int
    threads: int
    open_files: int


class NotOffered(Exception):
    """This node cannot do it as it was built or started; the text says why."""


class Operations(Protocol):
    """The process around the control plane. Raises `qm.cluster.cluster.Unavailable` where
    another node cannot be asked.
    """

    @property
    def version(self) -> str:
        """Of this build."""

    def health(self) -> Health:
        """Return how this node is now."""

    async def drain(self, node: str, *, is_draining: bool) -> Health:
        """Have a node take no new sessions and hand over leadership, or serve again.

        Raises KeyError for a node that is no member.
        """

    async def links(self, queue_ids: Sequence[int]) -> Mapping[int, Link]:
        """Return what the leader knows of outgoing queues' links; those never tried are missing."""

    async def resend(self, queue_id: int) -> None:
        """Have the leader send now what waits for an order acknowledgement."""

    def set_log_level(self, level: str, logger: str, expires_after_s: int) -> str:
        """Set the level of a logger ("" = all) and return the one before; 0 = for good."""

    async def diagnostics(self) -> Diagnostics:
        """Return what a support case needs of this node."""

    def backup(self) -> AsyncGenerator[BackupPart, None]:
        """Yield a consistent copy of this node's state. Raises NotOffered."""
