"""Time, leadership, audit, members and the recovery after a restore."""

import msgspec

from qm.model.values.commands.declaration import Command, Fixed, RowsOf, ValueOf, declared
from qm.model.values.commands.entry import Request


@declared(weight=Fixed(1), since=1)
class LeaderActivated(Command, frozen=True, gc=False):
    """First entry of a term: leases get their full time, the epoch rises."""

    term: int
    node: str
    is_archived: bool = False
    """The leader's node exports to an archive: entries are chained from here on."""


@declared(weight=ValueOf("count"), since=1)
class ClockTick(Command, frozen=True, gc=False):
    """Advances cluster time if nothing else does; expires at most `count` deadlines and leases."""

    count: int


@declared(weight=Fixed(1), since=1)
class AuditMark(Command, frozen=True, gc=False):
    """Every node computes its own digest at this index and sends it to all members."""

    number: int


@declared(weight=Fixed(1), since=1)
class AuditResult(Command, frozen=True, gc=False):
    """What the members reported for a mark: node -> digest (u128 as 16 bytes)."""

    number: int
    digests: dict[str, bytes]


@declared(weight=Fixed(1), since=1)
class SetMember(Command, frozen=True, gc=False):
    """Where a node can be reached, by name; an empty host removes it."""

    node: str
    host: str
    raft_port: int
    relay_port: int
    api_port: int


class SeenEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that a node saw."""

    seen_ms: int
    """By the node's clock, UTC."""
    kind: int
    """EventKind."""
    name: str
    """Stable, such as `drain`."""
    principal: str
    """Who asked for it; "": nobody."""
    text: str
    """One sentence."""
    details: dict[str, str]


@declared(weight=RowsOf("events"), since=8)
class RecordEvents(Command, frozen=True, gc=False):
    """Keep events that a node saw; those that it reported before, in a command that it repeats
    because it learned no outcome, are not kept again.
    """

    node: str
    incarnation: int
    """Of the node's process: a number of its own."""
    sequence: int
    """Number of the first event among all that this process reports, from 1 on."""
    events: tuple[SeenEvent, ...]


@declared(weight=Fixed(1), since=5)
class SetBindings(Command, frozen=True, gc=False):
    """How GUIDs of queue managers are bound to addresses, as the leader's configuration says."""

    mode: int
    """BindingMode."""
    silence_ms: int
    """See `records.BindingPolicy`, also for the rest."""
    shared: tuple[str, ...]
    pins: tuple[str, ...]


@declared(weight=Fixed(1), since=6)
class SetSecurityPolicy(Command, frozen=True, gc=False):
    """What signed, encrypted and unsigned messages are worth, as the leader's configuration says.

    See `records.SecurityPolicy` for its attributes.
    """

    trusts_sender_id: bool
    hash_algorithms: tuple[int, ...]
    accepts_strangers: bool
    refuses_reduced_keys: bool
    accepts_expired: bool
    sealed_bodies: int = 0


@declared(weight=ValueOf("count"), since=5)
class ForgetPeer(Command, frozen=True, gc=False):
    """Forget at most `count` rows of what is remembered of another queue manager, in steps; the
    value says whether there is more.
    """

    request: Request
    queue_manager: bytes
    count: int
    is_address_only: bool
    """Only where its GUID is bound to; duplicates and sequences are still recognized."""
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class RaiseApplyVersion(Command, frozen=True, gc=False):
    """Every member supports the version: entries after this one use the new behaviour."""

    apply_version: int


@declared(weight=Fixed(1), since=1)
class StateRestored(Command, frozen=True, gc=False):
    """This state is an older one of a queue manager that continued without it: a restored backup,
    or the log of a node that survived without its quorum.

    Nothing that was assigned since may be assigned again: identifiers jump, sequences start anew.
    """

    tx_time_stamp: int
    """TimeStamp of new TxSequenceIDs, epoch seconds; at least one above the state's is taken."""
    aliases: tuple[str, ...]
    """Names and addresses of the new nodes, added to those that are already local."""
    is_outgoing_held: bool
    """Outgoing queues wait for an administrator, who knows what has been sent already."""


@declared(weight=ValueOf("count"), since=1)
class RenumberStep(Command, frozen=True, gc=False):
    """Remove the numbers of sequences older than a StateRestored from at most `count` positions,
    which then get numbers in new sequences.
    """

    count: int
