"""What an entry of the log holds once, and how a client's requests are numbered."""

import msgspec

from qm.model.values.commands.declaration import Command


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Set once per entry by the leader that built it. Apply never moves the clock back."""

    now_ms: int
    """Cluster time, UTC milliseconds (DESIGN section 4, Time)."""
    node: str
    version: int = 1
    """An apply version that the leader knew the state to have reached: a build that does not know
    it stops before it diverges."""
    entry_hash: bytes = b""
    """BLAKE3 of the entry's data with zeros in place of this field, so that one node computes it
    for all (qm/archive/design.md, Chain); b"": not stated."""


class ControlCall(msgspec.Struct, frozen=True, gc=False):
    """Who asked for what, for the history of events."""

    node: str
    """Where the call arrived."""
    principal: str
    method: str
    details: dict[str, str]
    """The short fields of the request."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """Number of a client's command, so that a retry returns the first result (DESIGN section 4)."""

    client_id: str
    number: int
    """Starts at 1; u64."""
    confirmed_upto: int
    """The client holds every result up to this number; they may be forgotten."""
    control_id: bytes = b""
    """For a control request, which has no client: 16 bytes that identify it among the last ones; a
    repeat returns the first result. b"": each call is executed."""
    session_epoch: int = 0
    """Epoch that OpenClient returned to the calling client; 0: not stated."""
    call: ControlCall | None = None
    """For a control request, since VERSION_OF_EVENTS."""


class CommandBatch(msgspec.Struct, frozen=True, gc=False):
    """Contents of one Raft entry."""

    index: int
    stamp: Stamp
    commands: tuple[Command, ...]
