"""The configuration of one node: a TOML file, validated whole before any port opens.

It says where this node is and how it serves; what the queue manager *is* (queues, quotas, names,
limits that apply reads) is replicated state and changed by command. Loading is
`qm.node.config.loading`'s.

Address plan: a node has one host; format names carry no port, so MSMQ's is 1801 everywhere, and
nodes on one machine use addresses of their own (127.0.0.11, .12, .13).
"""

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

MSMQ_PORT: Final = 1801
"""TCP [MS-MQQB 2.1]."""
PING_PORT: Final = 3527
"""UDP [MS-MQQB 2.1]."""
API_PORT: Final = 1811
"""gRPC, control and data plane."""
RAFT_PORT: Final = 1812
"""gRPC between nodes: consensus."""
RELAY_PORT: Final = 1813
"""gRPC between nodes: relay streams, forwarded commands."""
HTTP_PORT: Final = 1814
"""Health and metrics."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
ComputerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,15}$")]
RESERVE_MIN_MB: Final = 64
"""One more file of the log; without that much a full disk leaves nothing to go on with."""
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tables: an unknown key is an error."""


class MsmqSection(Section, frozen=True, kw_only=True):
    """`[msmq]`: the endpoint that MSMQ peers see."""

    listen: tuple[str, ...] = ()
    """Addresses, IPv4 or IPv6; empty = `bind`."""
    port: Port = MSMQ_PORT
    """TCP. Peers expect 1801: format names carry no port."""
    ping_port: Port = PING_PORT
    """UDP. Peers expect 3527."""
    answer_pings: bool = True
    """Whether the UDP port is opened at all."""
    source_address: str = ""
    """From which outgoing sessions leave, such as a virtual IP; empty = the system's choice."""
    sessions_max: Positive = 4000
    """Open at this node at a time; the next connection is closed."""
    sessions_per_address_max: Positive = 2500
    """Of these from one address, before and after the handshake."""
    sessions_per_queue_manager_max: Positive = 2500
    """Of these from one queue manager, by the GUID that it gives."""
    window_size: Annotated[int, msgspec.Meta(ge=1, le=0x4000)] = 64
    """Messages in flight that a peer is allowed."""
    aliases: tuple[str, ...] = ()
    """Host names and addresses under which peers may address this cluster, applied at its birth."""


class OutgoingSection(Section, frozen=True, kw_only=True):
    """`[outgoing]`: where this cluster connects to. Peers name destinations too, for
    acknowledgements and responses.
    """

    allow: tuple[str, ...] = ()
    """Networks that may be connected to although they are denied, such as `10.1.0.0/16`."""
    deny: tuple[str, ...] = ()
    """Networks that are not connected to, besides link-local, multicast and reserved ones, and
    loopback unless this node serves MSMQ there. What `[peers]` names is always connected to."""


class ApiSection(Section, frozen=True, kw_only=True):
    """`[api]`: gRPC control and data plane."""

    listen: str = ""
    """Address; empty = `bind`."""
    port: Port = API_PORT
    """TCP, mutual TLS."""
    insecure: bool = False
    """Without TLS; refused unless the address is a loopback one. Every caller is an admin."""


class RaftSection(Section, frozen=True, kw_only=True):
    """`[raft]`: consensus between nodes."""

    port: Port = RAFT_PORT
    """TCP, mutual TLS between nodes: consensus."""
    relay_port: Port = RELAY_PORT
    """TCP, mutual TLS between nodes: what edges and clients ask of the leader."""
    log_retain_mb: Positive = 1024
    """Log kept beyond what recovery needs, for followers that fall behind."""


class HttpSection(Section, frozen=True, kw_only=True):
    """`[http]`: health and metrics, without TLS."""

    listen: str = ""
    """Address; empty = `bind`."""
    port: Port = HTTP_PORT
    """TCP: /livez, /readyz, /leader, /metrics."""


class TlsSection(Section, frozen=True, kw_only=True):
    """`[tls]`: PEM files of this node, read again when they change."""

    authority: Path
    """Certificates that sign callers, and nodes as callers know them."""
    certificate: Path
    """Of this node: carries its name, where it is reached, and the role "node"."""
    key: Path
    """Of the certificate."""
    peer_authority: Path | None = None
    """Certificates that sign nodes towards each other and nobody else, so that no caller's
    certificate can pass for a node's; without it `authority` does both."""
    peer_certificate: Path | None = None
    """Of this node towards the others, with `peer_authority`."""
    peer_key: Path | None = None
    """Of that certificate."""
    revoked: Path | None = None
    """Lists of what the authorities in `authority` took back (`qm pki revoke`), one after the
    other; without it none is revoked. Calls and streams that run end, too."""
    peer_revoked: Path | None = None
    """Likewise for `peer_authority`."""


class StorageSection(Section, frozen=True, kw_only=True):
    """`[storage]`: what is kept in `data`, and who can open it."""

    cache_mb: Positive = 64
    """Memory for what is read of the state again and again."""
    reserve_mb: Annotated[int, msgspec.Meta(ge=RESERVE_MIN_MB)] = 256
    """Kept free for receiving, purging and elections when the disk is full (DESIGN section 6)."""
    sealing_key_file: Path | None = None
    """Seals private keys at rest; made at the cluster's birth if absent."""
    sealing_key_command: tuple[str, ...] = ()
    """Program and arguments that write that key to standard output, instead of a file."""


class BirthSection(Section, frozen=True, kw_only=True):
    """`[birth]`: whether a node with an empty data folder finds its cluster by itself."""

    automatic: bool = False
    """Found the cluster when every one of `members` says that it is empty, else join it; instead
    of `qm cluster init` and `qm node join`."""
    cluster: str = ""
    """Any text, made once per cluster and the same on its nodes: an empty node refuses to enter a
    cluster that was founded under another; empty = not compared."""
    computer_name: ComputerName = "QUORATE"
    """Of the queue manager that is born."""
    dns_name: str = ""
    """Its qualified name; empty = the computer name."""


class ArchiveSection(Section, frozen=True, kw_only=True):
    """`[archive]`: what committed entries did, exported for audit and compaction."""

    url: str = ""
    """Folder, or URL of what pyarrow or fsspec reach (`s3://bucket/path`, `gs://`, `abfs://`);
    empty = this node exports nothing. The same on all nodes: each has its own folder there. What
    was committed before the first leader that had it is in no archive."""
    bodies: Literal["none", "digest", "full"] = "full"
    """What of messages is exported: nothing, a SHA-256 of each, or all entries, which compaction
    and restoring need."""
    body_copies: Literal["one", "all"] = "one"
    """With `full`, whose ranges have the entries: those of one node, whoever it is at the time, or
    of every node, for three times the bytes and the work."""
    range_entries: Positive = 65_536
    """A range is written when it has so many log entries,"""
    range_mb: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 128
    """or so much data,"""
    range_s: Positive = 60
    """or when its first entry is so old;"""
    busy_wait_s: Annotated[int, msgspec.Meta(ge=0)] = 60
    """so much later at most while the node wants more than a fifth of a core to serve, whether it
    gets that or waits for it, and a quarter of `hold_mb` is not reached."""
    hold_mb: Positive = 4096
    """Log kept for what is not exported yet, such as while the archive cannot be reached; beyond it
    the oldest entries are given up, and other nodes' exports must do."""
    checkpoint_mb: Annotated[int, msgspec.Meta(ge=0)] = 256
    """With `full`, one of the nodes adds its whole state after so much log, and about twice as much
    log as state: compaction and audits replay from one such checkpoint to the next side by side;
    0 = never."""


class KubernetesSection(Section, frozen=True, kw_only=True):
    """`[kubernetes]`: for a node in a pod of its own name."""

    label_leader: bool = False
    """Keep the pod's label `quorate.io/role` at `leader` or `follower`."""
    stateful_set: str = ""
    """Whose pod this is: `qm node prestop`, or the leader if a pod was killed before that, takes a
    node out of the cluster when its StatefulSet is scaled down to pods below it, but not to none;
    empty = never."""
    api_server: str = "https://kubernetes.default.svc"
    """Who is asked."""
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Folder with `token`, `namespace` and `ca.crt`, read each time."""


class LogSection(Section, frozen=True, kw_only=True):
    """`[log]`: lines on stderr, JSON."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """From which on lines are written."""


class MemberSection(Section, frozen=True, kw_only=True):
    """`[[members]]`: where a founder or seed is."""

    name: Name
    """Of that node."""
    host: str
    """Address or DNS name under which it is reached."""
    raft_port: Port = RAFT_PORT
    """Its `raft.port`."""
    relay_port: Port = RELAY_PORT
    """Its `raft.relay_port`."""


class NodeConfig(Section, frozen=True, kw_only=True):
    """The whole file."""

    name: Name
    """Of this node, unique in the cluster; its certificate carries it."""
    host: str
    """Address or DNS name under which the other nodes reach it."""
    data: Path
    """Folder of its own."""
    tls: TlsSection
    members: tuple[MemberSection, ...]
    """Founders, or seeds for a node that joins; this node may be among them."""
    bind: str = ""
    """Address to listen on where a section names none; empty = `host`."""
    peers: dict[str, str] = {}
    """GUID of a queue manager -> address at which it is answered (DESIGN section 7)."""
    msmq: MsmqSection = MsmqSection()
    outgoing: OutgoingSection = OutgoingSection()
    api: ApiSection = ApiSection()
    raft: RaftSection = RaftSection()
    http: HttpSection = HttpSection()
    storage: StorageSection = StorageSection()
    archive: ArchiveSection = ArchiveSection()
    birth: BirthSection = BirthSection()
    kubernetes: KubernetesSection = KubernetesSection()
    log: LogSection = LogSection()
