"""Membership changes, one at a time (raft/design.md, Membership): pure functions on values.

A node id is `name.incarnation`. One name has at most one id in a configuration, incarnations of
a name only grow, and a retired id never returns: `retired` keeps the highest one of each name.
"""

from typing import TypeAlias

import msgspec

from raft.types import Configuration, NodeId

MEMBERS_MAX = 32
"""Voters and learners of one group."""
CONFIGURATION_MAX_BYTES = 64 * 1024
"""Size of an encoded configuration, including retired ids."""


class BadChange(Exception):
    """The change is not allowed; the text says why, and what to do."""


class AddLearner(msgspec.Struct, frozen=True, tag=True):
    """A new id starts to replicate. It must never have been a member."""

    node: NodeId


class PromoteLearner(msgspec.Struct, frozen=True, tag=True):
    """A learner that has caught up becomes a voter."""

    node: NodeId


class RemoveMember(msgspec.Struct, frozen=True, tag=True):
    """A voter or learner leaves for good: its id is retired."""

    node: NodeId


class ReplaceMember(msgspec.Struct, frozen=True, tag=True):
    """In one change, `lost` leaves and `fresh`, its next incarnation, enters as a learner."""

    lost: NodeId
    fresh: NodeId


MemberChange: TypeAlias = AddLearner | PromoteLearner | RemoveMember | ReplaceMember


def name_and_incarnation(node: NodeId) -> tuple[str, int]:
    """Split an id. Raises ValueError for anything but `name.incarnation`."""
    name, _, incarnation = node.rpartition(".")
    if not name or not incarnation.isascii() or not incarnation.isdecimal():
        raise ValueError(f"{node!r} is not a node id: write name.incarnation, such as n1.1")
    return name, int(incarnation)


def is_member(configuration: Configuration, node: NodeId) -> bool:
    """Return whether `node` is a voter or a learner."""
    return node in configuration.voters or node in configuration.learners


def is_retired(configuration: Configuration, node: NodeId) -> bool:
    """Return whether `node`, or a later incarnation of its name, has left for good."""
    if node in configuration.retired:
        return True
    try:
        name, incarnation = name_and_incarnation(node)
        others = [name_and_incarnation(other) for other in configuration.retired]
    except ValueError:
        return False
    return any(other == name and incarnation <= gone for other, gone in others)


def changed(configuration: Configuration, change: MemberChange) -> Configuration:
    """Return the configuration after `change`: it has at most one voter more or less.

    Raises BadChange.
    """
    match change:
        case AddLearner(node):
            after = _with_learner(configuration, node)
        case PromoteLearner(node):
            after = _promoted(configuration, node)
        case RemoveMember(node):
            after = _without(configuration, node)
        case ReplaceMember(lost, fresh):
            if name_and_incarnation_of(lost)[0] != name_and_incarnation_of(fresh)[0]:
                raise BadChange(f"{fresh} has another name than {lost}: add it, then remove {lost}")
            after = _with_learner(_without(configuration, lost), fresh)
    if not after.voters:
        raise BadChange("the last voter cannot leave: promote another member first")
    return after


def name_and_incarnation_of(node: NodeId) -> tuple[str, int]:
    """As `name_and_incarnation`, for an id in a change. Raises BadChange."""
    try:
        return name_and_incarnation(node)
    except ValueError as error:
        raise BadChange(str(error)) from None


def _with_learner(configuration: Configuration, node: NodeId) -> Configuration:
    name, _ = name_and_incarnation_of(node)
    members = configuration.voters + configuration.learners
    if node in members:
        raise BadChange(f"{node} is a member already")
    if is_retired(configuration, node):
        raise BadChange(f"{node} has left for good: join with a higher incarnation")
    for member in members:
        if name_and_incarnation_of(member)[0] == name:
            raise BadChange(f"{member} is a member: replace it by {node} in one change")
    if len(members) >= MEMBERS_MAX:
        raise BadChange(f"a group has at most {MEMBERS_MAX} members")
    return Configuration(
        configuration.voters, _sorted(configuration.learners, node), configuration.retired
    )


def _promoted(configuration: Configuration, node: NodeId) -> Configuration:
    if node not in configuration.learners:
        raise BadChange(f"{node} is not a learner: add it as one first")
    learners = tuple(learner for learner in configuration.learners if learner != node)
    return Configuration(_sorted(configuration.voters, node), learners, configuration.retired)


def _without(configuration: Configuration, node: NodeId) -> Configuration:
    if not is_member(configuration, node):
        raise BadChange(f"{node} is not a member")
    name, _ = name_and_incarnation_of(node)
    # `is_retired` covers lower incarnations of the same name by comparison.
    retired = tuple(gone for gone in configuration.retired if name_and_incarnation(gone)[0] != name)
    return Configuration(
        tuple(voter for voter in configuration.voters if voter != node),
        tuple(learner for learner in configuration.learners if learner != node),
        _sorted(retired, node),
    )


def _sorted(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(sorted((*nodes, node)))


def encode_configuration(configuration: Configuration) -> bytes:
    """Return the data of a CONFIG entry: JSON, so that a dump of the log is readable."""
    return msgspec.json.encode(configuration)


def decode_configuration(data: bytes) -> Configuration:
    """Read the data of a CONFIG entry. Raises ValueError for anything else."""
    if len(data) > CONFIGURATION_MAX_BYTES:
        raise ValueError("configuration too long")
    configuration = msgspec.json.decode(data, type=Configuration)  # its errors are ValueErrors
    check_configuration(configuration)
    return configuration


def check_configuration(configuration: Configuration) -> None:
    """Check what the types do not express. Raises ValueError."""
    for nodes in (configuration.voters, configuration.learners, configuration.retired):
        if list(nodes) != sorted(set(nodes)):
            raise ValueError("node ids are not sorted, or repeated")
        for node in nodes:
            name_and_incarnation(node)
    members = configuration.voters + configuration.learners
    if len(members) > MEMBERS_MAX:
        raise ValueError("too many members")
    names = {name_and_incarnation(node)[0] for node in members}
    if len(names) != len(members):
        raise ValueError("a name has two ids")
    if any(is_retired(configuration, node) for node in members):
        raise ValueError("a retired id is a member")


class Members:
    """The configurations in the log; the last one is in force as soon as it is appended."""

    __slots__ = ("_history", "current")

    def __init__(
        self, configuration: Configuration, later: tuple[tuple[int, Configuration], ...]
    ) -> None:
        """`configuration` is in force at the log's start; `later` has (index, configuration)."""
        self._history: list[tuple[int, Configuration]] = [(0, configuration), *later]
        self.current = self._history[-1][1]

    @property
    def index(self) -> int:
        """Index of the entry that made `current`; 0 when it is older than the log."""
        return self._history[-1][0]

    def at(self, index: int) -> Configuration:
        """Return the configuration in force at `index`."""
        for made, configuration in reversed(self._history):
            if made <= index:
                return configuration
        return self._history[0][1]

    def append(self, index: int, configuration: Configuration) -> None:
        """Note that a CONFIG entry was appended at `index`."""
        self._history.append((index, configuration))
        self.current = configuration

    def truncate(self, first: int) -> None:
        """Drop the configurations of entries at or above `first`, which were truncated."""
        while len(self._history) > 1 and self._history[-1][0] >= first:
            self._history.pop()
        self.current = self._history[-1][1]

    def forget(self, upto: int) -> None:
        """Forget configurations older than the one that is in force at `upto`."""
        while len(self._history) > 1 and self._history[1][0] <= upto:
            self._history.pop(0)

    def reset(self, index: int, configuration: Configuration) -> None:
        """Restart behind a snapshot."""
        self._history[:] = [(index, configuration)]
        self.current = configuration
