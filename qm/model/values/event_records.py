"""Records of control requests and of the history of events, which tells of them."""

import msgspec

from qm.model.values.records import Record


class Event(Record):
    """One event of the cluster's history; its kind and number are its key."""

    index: int
    """The entry that recorded it."""
    time_ms: int
    """Cluster time of that entry."""
    seen_ms: int
    """When a node saw it, by that node's clock; 0: the entry itself is what happened."""
    node: str
    """The node that saw it, or that it is about."""
    name: str
    principal: str
    text: str
    details: dict[str, str]


class EventsOfKind(Record):
    """Which events of one kind are kept."""

    kind: int
    """EventKind."""
    count: int
    first: int
    """No event of the kind has a lower number."""


class EventNumbers(Record):
    """Which events are kept; META `events`, once there is one."""

    last: int = 0
    """Number of the last event."""
    kinds: list[EventsOfKind] = msgspec.field(default_factory=list)
    """In the order in which they first happened."""


class EventReporter(Record):
    """A process of a node, and the last of its events that is known."""

    node: str
    incarnation: int
    sequence: int


class EventReporters(Record):
    """The processes that recorded events last, the least recent first; META `reporters`."""

    known: list[EventReporter] = msgspec.field(default_factory=list)


class ControlRequests(Record):
    """Which results of control requests are kept: places from `first` up to before `following`."""

    first: int = 0
    following: int = 0


class ControlResult(Record):
    """Result of a control request."""

    status: int
    value: bytes
    """Canonical msgpack; b"" if there is none."""
