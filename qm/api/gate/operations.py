"""What the control plane needs of the node around it; `qm.node` implements `Operations`.

Everything replicated goes through `qm.cluster.cluster.Cluster`, members through
`qm.cluster.membership.Membership`. Here is what belongs to a process: its drain, its disk, its log,
its links to peers. All calls are made in the node's event loop.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec
from typing_extensions import override

from qm.api.gate.identity import Principal
from qm.cluster.peer_sessions import SessionsFound, SessionsWanted
from qm.model.values.elements import OutgoingQueueState
from qm.store.backup import BackupHead
from qm.wire.enums import ConnectionStatus


class Health(msgspec.Struct, frozen=True):
    """State of this node."""

    disk_free_bytes: int
    disk_total_bytes: int
    alarms: tuple[str, ...]
    """Stable names of conditions that need attention."""
    is_draining: bool
    session_count: int
    """Number of open MSMQ sessions."""
    is_leader: bool
    """Whether this node leads, also while it prepares to serve."""


class LinkEvent(msgspec.Struct, frozen=True):
    """One row of an outgoing queue's ConnectionHistory [MS-MQDMPR 3.1.1.3]."""

    status: ConnectionStatus
    time_s: int
    """Seconds since 1970, UTC."""
    error: int
    """HRESULT, 0 = none."""
    address: str


class Link(msgspec.Struct, frozen=True):
    """What the leader knows of one outgoing queue's connection."""

    state: OutgoingQueueState
    next_hops: tuple[str, ...] = ()
    connection_history: tuple[LinkEvent, ...] = ()
    """The newest last."""
    resend_count: int = 0
    next_resend_ms: int = 0
    """Cluster time of the next attempt; 0 = none is due."""
    last_error: str = ""
    last_ack_time_s: int = 0
    """UTC seconds of the last order acknowledgement that this leader received; 0 = none."""
    last_ack_count: int = 0
    """Order acknowledgements that this leader received."""
    resend_interval_s: int = 0
    """How long it waits until it sends again what is not acknowledged."""


class ScrubState(msgspec.Struct, frozen=True):
    """How far a node has read back and checked what it stores."""

    live_bytes: int
    """All records of the log and all bodies beside it."""
    done_bytes: int
    """Read in this round."""
    is_asked: bool
    """Whether this round was asked for and has no rests."""
    rounds: int
    """Ended since the node started."""
    ended_ms: int
    """When the last round ended, UTC; 0: none did."""
    damage_found: int
    """Damaged records and bodies, since the node started."""
    damage_left: int
    """Those of them that are not restored."""
    damaged: tuple[str, ...]
    """Some of the latter, in words."""


class BackupPart(msgspec.Struct, frozen=True):
    """Some bytes of a backup, in order; the last part has none but the description."""

    data: bytes
    total_bytes: int
    """Length of the whole stream."""
    head: BackupHead
    manifest: bytes = b""
    """Contents of `backup.json`, in the last part."""
    signature: bytes = b""
    """Of it; empty if this node has no key to sign with."""


class Diagnostics(msgspec.Struct, frozen=True):
    """What a support case needs from a node; contains no secret and no message."""

    platform: Mapping[str, str]
    """Versions of Python, libraries and the system, by name."""
    configuration: str
    """Configuration as JSON, redacted."""
    metrics: bytes
    """Metrics as Prometheus text."""
    log_lines: Sequence[str]
    started_ms: int
    """UTC."""
    memory_bytes: int
    threads: int
    open_files: int


class ReportFile(msgspec.Struct, frozen=True):
    """A report of a drill or an audit in a folder of this node, or of an audit in its archive."""

    path: str
    """Below the folder, with slashes; of one in the archive `archive:AUDIT/NAME`."""
    size_bytes: int
    written_ms: int
    """UTC, by the file system."""


class ReportList(msgspec.Struct, frozen=True):
    """The reports that this node shows."""

    files: Sequence[ReportFile]
    """The newest first."""
    missing: str
    """Why those of the archive are not among them; "" if they are, or if there is no archive."""


class NextKeys(msgspec.Struct, frozen=True):
    """Fresh key pairs of the queue manager, as SetManagerKeys takes them."""

    generation: int
    sealed_private_keys: bytes
    exchange_keys: bytes
    signing_keys: bytes


class NotOffered(Exception):
    """This node, as built or started, cannot do it; the text says why."""


class Console(Protocol):
    """The console of this node."""

    def sign_in(self, who: Principal, certificate: bytes) -> str:
        """Return an address that signs somebody in once. Raises NotOffered.

        `certificate`: PEM of the one that proved who it is; its revocation ends what follows.
        """


class NoConsole(Console):
    """Of a node that serves none."""

    @override
    def sign_in(self, who: Principal, certificate: bytes) -> str:
        raise NotOffered("this node serves no console: set `console.port`, and certificates")


class Operations(Protocol):
    """The process around the control plane. Raises `qm.cluster.cluster.Unavailable` if another node
    cannot be reached.
    """

    @property
    def version(self) -> str:
        """Version of this build."""

    def health(self) -> Health:
        """Return the present state of this node."""

    async def drain(self, node: str, *, is_draining: bool) -> Health:
        """Have a node accept no new sessions and hand over leadership, or serve again. Returns when
        another node leads, or no other takes over.

        Raises KeyError for a node that is not a member.
        """

    async def scrub(self, node: str, *, begins: bool) -> ScrubState:
        """Return how far a node has read back what it stores; `begins`: it begins anew now.

        Raises KeyError for a node that is not a member.
        """

    async def sessions(self, node: str, wanted: SessionsWanted) -> SessionsFound:
        """Return a node's live sessions with other queue managers.

        Raises KeyError for a node that is not a member.
        """

    async def links(self, queue_ids: Sequence[int]) -> Mapping[int, Link]:
        """Return what the leader knows of outgoing queues' links; links never tried are missing."""

    async def resend(self, queue_id: int) -> None:
        """Have the leader send again now what waits for an order acknowledgement."""

    def set_log_level(self, level: str, logger: str, expires_after_s: int) -> str:
        """Set a logger's level ("" = all) for a time (0 = for good); return the previous one."""

    async def diagnostics(self) -> Diagnostics:
        """Return what a support case needs from this node."""

    async def reports(self) -> ReportList:
        """Return the reports of drills and audits at this node, and of audits in its archive.

        Raises NotOffered.
        """

    async def report(self, path: str) -> bytes:
        """Return a report's content. Raises KeyError for one that does not exist, ValueError for
        one that is too large, NotOffered.
        """

    async def next_keys(self) -> NextKeys:
        """Return fresh key pairs of the queue manager. Raises NotOffered."""

    async def sealed(self, secret: bytes, label: bytes) -> bytes:
        """Return a secret as the replicated state may hold it; `label` binds it to its use.

        Raises NotOffered.
        """

    def backup(self) -> AsyncGenerator[BackupPart, None]:
        """Yield a consistent copy of this node's state. Raises NotOffered."""
