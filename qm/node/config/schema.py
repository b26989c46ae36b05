"""The configuration of one node: a TOML file, validated as a whole before any port opens.

It describes this node and how it serves. What belongs to the queue manager itself (queues, quotas,
names, limits that apply reads) is replicated state and changed by commands.
`qm.node.config.loading` loads the file.

Addresses: a node has one host. Format names carry no port, so MSMQ's is 1801 everywhere, and nodes
on one machine use different addresses (127.0.0.11, .12, .13).
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
"""gRPC between nodes: Raft."""
RELAY_PORT: Final = 1813
"""gRPC between nodes: relay streams, forwarded commands."""
HTTP_PORT: Final = 1814
"""Health and metrics."""
MAPPER_PORT: Final = 135
"""DCE/RPC endpoint mapper [MS-RPCE 2.1.1.1]."""
RPC_PORT: Final = 2103
"""Remote read and remote management [MS-MQRR 2.1]."""
CONSOLE_PORT: Final = 1815
"""The web console."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
ComputerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,15}$")]
RESERVE_MIN_MB: Final = 64
"""Room for one more file of the log; with less, a node could not go on once its disk is full."""
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tables: an unknown key is an error."""


ResendTimeout = Annotated[int, msgspec.Meta(ge=1, le=604_800)]


class MsmqSection(Section, frozen=True, kw_only=True):
    """`[msmq]`: the endpoint that MSMQ peers see."""

    listen: tuple[str, ...] = ()
    """IPv4 or IPv6 addresses to listen on; empty = `bind`."""
    port: Port = MSMQ_PORT
    """TCP port. Peers expect 1801: format names carry no port."""
    ping_port: Port = PING_PORT
    """UDP port for pings. Peers expect 3527."""
    answer_pings: bool = True
    """Whether to open the UDP port."""
    source_address: str = ""
    """Local address of outgoing sessions, such as a virtual IP; empty = the system's choice."""
    sessions_max: Positive = 4000
    """Sessions open at this node at a time; a further connection is closed. The last quarter is
    kept for addresses that have fewer than 16."""
    sessions_per_address_max: Positive = 2500
    """Sessions from one address, counted before and after the handshake."""
    sessions_per_queue_manager_max: Positive = 2500
    """Sessions from one queue manager, by the GUID that it gives."""
    binding: Literal["off", "bind", "strict"] = "bind"
    """Whether the GUID of a queue manager belongs to the address that its first message came from:
    with `bind` it follows to another one once the old one has been silent, with `strict` only after
    `qm peer forget`. What comes from elsewhere is refused. The same on all nodes."""
    binding_silence_s: Annotated[int, msgspec.Meta(ge=10, le=86_400)] = 300
    """Seconds of silence of a bound address after which its GUID may follow to another one."""
    binding_shared: tuple[str, ...] = ()
    """Networks whose addresses count as one for `binding`: where peers are seen at the addresses of
    proxies, of address translation or of a routing server, those."""
    trust_sender_id: bool = False
    """Whether the SID that an unsigned message names counts for access lists. Anyone can write any
    SID there. The same on all nodes, as are the next four."""
    signature_hashes: tuple[Literal["md5", "sha1", "sha256", "sha512"], ...] = ("sha256", "sha512")
    """Hashes of signatures that count. Senders older than Windows 7 use SHA-1 or MD5."""
    accept_unknown_certificates: bool = False
    """Whether a signature authenticates a message that names no SID even if nobody registered its
    certificate. Anyone can make such a certificate."""
    accept_expired_certificates: bool = False
    """Whether signatures count whose certificate is not valid yet, or not any more."""
    reject_reduced_rc2: bool = False
    """Whether bodies are refused that RC2 encrypted with 128-bit keys of which 40 are random."""
    window_size: Annotated[int, msgspec.Meta(ge=1, le=0x4000)] = 64
    """Messages that a peer may have in flight."""
    ack_wait_timeout_ms: Annotated[int, msgspec.Meta(ge=20_000, le=120_000)] = 20_000
    """Milliseconds without a packet after which a session is closed where messages wait to be
    acknowledged, twice as long at direct names: proposed to those that this cluster connects to.
    Who connects to it proposes its own. The same on all nodes, like the next one."""
    round_trip_delay_ms: Annotated[int, msgspec.Meta(ge=0, le=120_000)] = 0
    """Milliseconds that are added for slow lines: once to that time, which is 120000 at most, and
    to the 5 s until a lost connection is made again, twice to the 60 s for opening a session. The
    registry of Windows calls it RoundTripDelay."""
    order_acks: Literal["prompt", "timer"] = "prompt"
    """When a transactional message is confirmed to its sender, which keeps it until then: at once,
    at most once per sequence and 20 ms while more are in flight; or with `timer`, as [MS-MQQB]
    3.1.2.7 has it, half a second after the last message, after 10 s at the latest. The same on all
    nodes."""
    aliases: tuple[str, ...] = ()
    """Host names and addresses under which peers may address this cluster; used at its birth."""


class OutgoingSection(Section, frozen=True, kw_only=True):
    """`[outgoing]`: where this cluster may connect to. Destinations may also be named by peers, for
    acknowledgements and responses.
    """

    allow: tuple[str, ...] = ()
    """Networks that may be connected to although they are denied, such as `10.1.0.0/16`."""
    deny: tuple[str, ...] = ()
    """Networks that are never connected to, besides link-local, multicast and reserved ones, and
    loopback unless this node serves MSMQ there. Addresses in `[peers]` are always allowed."""
    encrypt_advanced: Literal["aes128", "aes192", "aes256"] = "aes256"
    """Cipher of bodies for which the level Advanced was asked, unless the message names one.
    The same on all nodes, like all that follow."""
    encrypt_enhanced: Literal["rc2", "rc4"] = "rc4"
    """The same for Enhanced."""
    encrypt_base: Literal["rc2", "rc4"] = "rc4"
    """The same for Base."""
    encrypt_reduced_rc2: bool = False
    """Whether RC2 keys of Enhanced have 40 random bits, as very old receivers want them."""
    resend_short_s: ResendTimeout = 30
    """Seconds without an order acknowledgement after which transactional messages are sent again,
    the first three times in a row."""
    resend_medium_s: ResendTimeout = 300
    """The fourth to sixth time."""
    resend_long_s: ResendTimeout = 1_800
    """The seventh to ninth time."""
    resend_final_s: ResendTimeout = 21_600
    """Each time after that."""


class ApiSection(Section, frozen=True, kw_only=True):
    """`[api]`: gRPC control and data plane."""

    listen: str = ""
    """Address to listen on; empty = `bind`."""
    port: Port = API_PORT
    """TCP port, mutual TLS."""
    insecure: bool = False
    """Serve without TLS, on a loopback address only. Every caller is then an admin."""


class RpcSection(Section, frozen=True, kw_only=True):
    """`[rpc]`: remote read and remote management for Windows programs (docs/windows.md)."""

    enabled: bool = False
    """Whether to open the ports below."""
    listen: tuple[str, ...] = ()
    """IPv4 or IPv6 addresses to listen on; empty = `bind`."""
    mapper_port: Port = MAPPER_PORT
    """TCP port of the endpoint mapper. Windows asks at 135, which needs root or the capability to
    bind low ports."""
    port_base: Port = RPC_PORT
    """TCP port of the interfaces, which the endpoint mapper tells."""
    port_by_ordinal: bool = False
    """Add to `port_base` 11 times the number at the end of this node's name, so that each of
    several nodes behind one address has a port of its own: readers must stay at one node."""
    level: Literal["privacy", "integrity"] = "privacy"
    """The least protection of remote reading; management needs integrity at least."""
    anonymous_receive: bool = False
    """Whether programs may read without logging on, as those of a workgroup do: from queues whose
    access list gives ANONYMOUS LOGON (S-1-5-7) the right."""
    return_after_minutes: Positive = 5
    """Minutes that a program may hold a message by remote read without saying that it has it; then
    the message goes back to its place."""
    trailing_headers: bool = True
    """Whether remote readers get the four headers behind a message (abort and move counts, the
    sender's address); false for programs on Windows Server 2003, which do not know them."""
    objects: bool = False
    """Whether to offer the MSMQ objects over DCOM: `CreateObject` with this host's name."""
    names: tuple[str, ...] = ()
    """Host names that programs dial to reach objects here, the preferred one first; the address
    that a program dialled is known without."""
    sink_port: Port = MAPPER_PORT
    """TCP port at which programs that wait for MSMQEvent are asked for their sinks; Windows has no
    other one than 135."""
    sink_user: str = ""
    """Account by which this node logs on at those programs' computers; empty = it does not."""
    sink_password_file: Path | None = None
    """Holds that account's password, and nothing else; readable by its owner alone."""
    users_file: Path | None = None
    """Accounts for NTLM at this node alone, behind those of the cluster (`qm user add`). Readable
    by its owner alone; read again when it changes."""
    keytab: Path | None = None
    """Kerberos keys of this node's services, HOST/name and RPCSS/name for every name that programs
    dial; needs the package `quorate[kerberos]`. Readable by its owner alone; may be replaced while
    the node runs."""
    require_mic: bool = True
    """Refuse NTLM clients that send no message integrity code; Windows always sends one."""


class RaftSection(Section, frozen=True, kw_only=True):
    """`[raft]`: ports and log of the cluster."""

    port: Port = RAFT_PORT
    """TCP port for Raft, mutual TLS between nodes."""
    relay_port: Port = RELAY_PORT
    """TCP port for requests to the leader and to other nodes, mutual TLS between nodes."""
    log_retain_mb: Positive = 1024
    """MiB of log kept beyond what recovery needs, for followers that fall behind; less while the
    disk is short of space."""


class HttpSection(Section, frozen=True, kw_only=True):
    """`[http]`: health and metrics, without TLS."""

    listen: str = ""
    """Address to listen on; empty = `bind`."""
    port: Port = HTTP_PORT
    """TCP port for /livez, /readyz, /leader, /metrics."""


class OidcSection(Section, frozen=True, kw_only=True):
    """`[console.oidc]`: an OpenID provider that signs people in to the console."""

    issuer: str
    """Its issuer identifier, `https://...`, exactly as it says itself; its description is fetched
    from `/.well-known/openid-configuration` below."""
    client_id: str
    """Name of this client at the provider."""
    client_secret_file: Path | None = None
    """File with this client's secret, read for each sign-in; without it the client is a public
    one, protected by PKCE alone."""
    ca_file: Path | None = None
    """PEM file with the authorities that sign the provider's certificate; without it the
    system's."""
    scopes: tuple[str, ...] = ("profile",)
    """What is asked for, beside `openid`: such as the scope that brings the claim with roles."""
    name_claim: str = "sub"
    """Claim whose value is the person's name here, with `oidc:` before it: one that people cannot
    change at the provider. `email` counts only if it is verified."""
    role_claim: str = "roles"
    """Claim of the ID token that gives roles, a string or a list of them; dots lead into objects
    (`realm_access.roles`)."""
    roles: dict[str, Literal["admin", "operator", "client"]]
    """Value of `role_claim` -> role; of several the most powerful counts, without one nobody signs
    in."""
    url: str = ""
    """`https://...` of this node's console as browsers know it; empty = `https://host:port`. The
    provider must know `/sign-in/provider/back` below it, of each node."""


class ConsoleSection(Section, frozen=True, kw_only=True):
    """`[console]`: the web console, with the certificate of `[tls]`; not where `api.insecure`."""

    listen: str = ""
    """Address to listen on; empty = `bind`."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = CONSOLE_PORT
    """TCP port; 0 = this node serves no console."""
    passwords: bool = True
    """Whether users who have a password and a role (`qm user add --role`) sign in with them."""
    reports: Path | None = None
    """Folder with reports of drills and audits that operators and admins may read (.html, .json,
    .md, .prom, .txt), at most three folders deep, beside those of audits in the archive."""
    oidc: OidcSection | None = None


class TlsSection(Section, frozen=True, kw_only=True):
    """`[tls]`: PEM files of this node, read again when they change."""

    authority: Path
    """Authorities that sign callers' certificates, and those that nodes show to callers."""
    certificate: Path
    """This node's certificate, with its name, its addresses and the role "node"."""
    key: Path
    """Private key of `certificate`."""
    peer_authority: Path | None = None
    """Authorities that sign only the certificates that nodes show each other, so that no caller's
    certificate can pass for a node's; without it `authority` signs both."""
    peer_certificate: Path | None = None
    """Certificate that this node shows to other nodes; needs `peer_authority`."""
    peer_key: Path | None = None
    """Private key of `peer_certificate`."""
    revoked: Path | None = None
    """Concatenated revocation lists of the authorities in `authority` (`qm pki revoke`); without it
    no certificate is revoked. Running calls and streams of a revoked certificate end."""
    peer_revoked: Path | None = None
    """Revocation lists of the authorities in `peer_authority`."""


class StorageSection(Section, frozen=True, kw_only=True):
    """`[storage]`: how `data` is stored and sealed."""

    cache_mb: Positive = 64
    """MiB of memory for state that is read often."""
    reserve_mb: Annotated[int, msgspec.Meta(ge=RESERVE_MIN_MB)] = 256
    """MiB kept free for receiving, purging and elections on a full disk (DESIGN section 6)."""
    scrub_days: Positive = 7
    """Days in which every live record of the log and every live body is read back once and compared
    with its checksum; what is damaged is restored from another node."""
    sealing_key_file: Path | None = None
    """Key that seals private keys at rest; created at the cluster's birth if absent."""
    sealing_key_command: tuple[str, ...] = ()
    """Program and arguments that write that key to standard output, instead of a file."""
    encrypt_bodies: Literal["none", "encrypted", "all"] = "none"
    """Bodies that are stored encrypted, with keys derived from that key: none, those of messages
    that arrive or leave encrypted, or all. The leader's counts for all nodes."""


class BirthSection(Section, frozen=True, kw_only=True):
    """`[birth]`: whether a node with an empty data folder finds its cluster by itself."""

    automatic: bool = False
    """Found the cluster when all of `members` report that they are empty, else join it; replaces
    `qm cluster init` and `qm node join`."""
    cluster: str = ""
    """Any text, chosen once per cluster and the same on its nodes: an empty node refuses to enter a
    cluster that was founded with another; empty = not compared."""
    computer_name: ComputerName = "QUORATE"
    """Computer name of the new queue manager."""
    dns_name: str = ""
    """Its fully qualified name; empty = the computer name."""


class ArchiveSection(Section, frozen=True, kw_only=True):
    """`[archive]`: the effects of committed entries, exported for audit and compaction."""

    url: str = ""
    """Folder, or URL that pyarrow or fsspec supports (`s3://bucket/path`, `gs://`, `abfs://`);
    empty = this node exports nothing. Use the same on all nodes: each has its own folder there.
    Entries committed before the first leader with an archive are in no archive."""
    bodies: Literal["none", "digest", "full"] = "full"
    """What is exported of messages: nothing, a SHA-256 of each, or all entries, which compaction
    and restoring need."""
    body_copies: Literal["one", "all"] = "one"
    """With `full`, which nodes' ranges contain the entries: those of one node at a time, or of all
    nodes, for three times the bytes and the work."""
    range_entries: Positive = 65_536
    """Number of log entries after which a range is written."""
    range_mb: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 128
    """MiB of data after which a range is written."""
    range_s: Positive = 60
    """Seconds after its first entry when a range is written."""
    busy_wait_s: Annotated[int, msgspec.Meta(ge=0)] = 60
    """Seconds by which a range may be delayed while serving needs more than a fifth of a core,
    whether it gets that or waits for it, and less than a quarter of `hold_mb` is used."""
    hold_mb: Positive = 4096
    """MiB of log kept for entries not exported yet, such as while the archive cannot be reached;
    beyond it this node skips the oldest entries, which then only other nodes' exports have."""
    checkpoint_mb: Annotated[int, msgspec.Meta(ge=0)] = 256
    """With `full`, MiB of log after which one of the nodes adds its whole state, and after about
    twice as much log as state: compaction and audits replay between checkpoints in parallel;
    0 = never."""


class KubernetesSection(Section, frozen=True, kw_only=True):
    """`[kubernetes]`: for a node in a pod of the same name."""

    label_leader: bool = False
    """Keep the pod's label `quorate.io/role` at `leader` or `follower`."""
    stateful_set: str = ""
    """StatefulSet of this pod: `qm node prestop`, or the leader if the pod was killed before,
    removes a node from the cluster when the StatefulSet is scaled to pods below it, but not to
    none; empty = never."""
    pod_uid: str = ""
    """Identity of this pod, for events that say why it does not serve; empty = none are made."""
    api_server: str = "https://kubernetes.default.svc"
    """URL of the API server."""
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Folder with `token`, `namespace` and `ca.crt`, read before each call."""


class LogSection(Section, frozen=True, kw_only=True):
    """`[log]`: JSON lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""


class MemberSection(Section, frozen=True, kw_only=True):
    """`[[members]]`: address of a founder or seed."""

    name: Name
    """Name of that node."""
    host: str
    """Address or DNS name under which it is reached."""
    raft_port: Port = RAFT_PORT
    """Its `raft.port`."""
    relay_port: Port = RELAY_PORT
    """Its `raft.relay_port`."""


class NodeConfig(Section, frozen=True, kw_only=True):
    """The whole file."""

    name: Name
    """Name of this node, unique in the cluster; its certificate contains it."""
    host: str
    """Address or DNS name under which the other nodes reach it."""
    data: Path
    """Data folder of this node alone."""
    tls: TlsSection
    members: tuple[MemberSection, ...]
    """Founders, or seeds for a node that joins; may include this node."""
    bind: str = ""
    """Address to listen on where a section gives none; empty = `host`."""
    peers: dict[str, str | tuple[str, ...]] = {}
    """GUID of a queue manager -> its address, host name or network, or a list of them: it may speak
    from these alone (`msmq.binding`), and is answered at the first, which must not be a network."""
    msmq: MsmqSection = MsmqSection()
    outgoing: OutgoingSection = OutgoingSection()
    api: ApiSection = ApiSection()
    rpc: RpcSection = RpcSection()
    raft: RaftSection = RaftSection()
    http: HttpSection = HttpSection()
    console: ConsoleSection = ConsoleSection()
    storage: StorageSection = StorageSection()
    archive: ArchiveSection = ArchiveSection()
    birth: BirthSection = BirthSection()
    kubernetes: KubernetesSection = KubernetesSection()
    log: LogSection = LogSection()
