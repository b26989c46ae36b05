"""Time, leadership, audit, members and what follows a restore."""

from qm.model.values.commands.declaration import Command, Fixed, ValueOf, declared


@declared(weight=Fixed(1), since=1)
class LeaderActivated(Command, frozen=True, gc=False):
    """First entry of a term: leases get a full term, the epoch rises."""

    term: int
    node: str
    is_archived: bool = False
    """The leader's node exports to an archive: from here on entries are chained."""


@declared(weight=ValueOf("count"), since=1)
class ClockTick(Command, frozen=True, gc=False):
    """Moves cluster time when nothing else does; expires at most `count` deadlines and leases."""

    count: int


@declared(weight=Fixed(1), since=1)
class AuditMark(Command, frozen=True, gc=False):
    """Every node computes its own digest at this index and tells all members."""

    number: int


@declared(weight=Fixed(1), since=1)
class AuditResult(Command, frozen=True, gc=False):
    """What the members reported for a mark: node -> digest (u128 as 16 bytes)."""

    number: int
    digests: dict[str, bytes]


@declared(weight=Fixed(1), since=1)
class SetMember(Command, frozen=True, gc=False):
    """Where a node is reached, by name; an empty host forgets it."""

    node: str
    host: str
    raft_port: int
    relay_port: int
    api_port: int


@declared(weight=Fixed(1), since=1)
class RaiseApplyVersion(Command, frozen=True, gc=False):
    """Every member supports it: entries above behave in the new way."""

    apply_version: int


@declared(weight=Fixed(1), since=1)
class StateRestored(Command, frozen=True, gc=False):
    """This state is an older one of a queue manager that went on without it: a backup that was
    restored, or the log of a node that outlived its quorum.

    Whatever was given after it must not be given again: identifiers jump, sequences begin anew.
    """

    tx_time_stamp: int
    """Of TxSequenceIDs from now on, epoch seconds; at least one above the state's is taken."""
    aliases: tuple[str, ...]
    """Names and addresses of the new nodes, to be local beside those that are."""
    is_outgoing_held: bool
    """Outgoing queues wait for an administrator, who knows what has left already."""


@declared(weight=ValueOf("count"), since=1)
class RenumberStep(Command, frozen=True, gc=False):
    """Take the numbers of sequences from before a StateRestored away from at most `count`
    positions: they get others, of new sequences.
    """

    count: int
