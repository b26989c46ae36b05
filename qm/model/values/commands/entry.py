"""What an entry of the log says once, and how a request of a client is numbered."""

import msgspec

from qm.model.values.commands.declaration import Command


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Once per entry, by the leader that built it. Apply never moves the clock back."""

    now_ms: int
    """Cluster time, UTC milliseconds (DESIGN section 4, Time)."""
    node: str
    version: int = 1
    """An apply version that its leader knew the state to have reached: a build that does not know
    it stops before it diverges."""
    entry_hash: bytes = b""
    """BLAKE3 of the entry's data with zeros in place of this, so that one node hashes and not each
    for itself (qm/archive/design.md, Chain); b"": it says none."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """Numbers a client's command, so that a retry returns the first result (DESIGN section 4)."""

    client_id: str
    number: int
    """Starts at 1; u64."""
    confirmed_upto: int
    """The client holds every result up to here; they may be forgotten."""
    control_id: bytes = b""
    """Of a control request, which has no client: 16 bytes that name it among the last ones; a
    repeat returns the first result. b"": it is done each time."""
    session_epoch: int = 0
    """As OpenClient returned it to the client that asks; 0: it does not say."""


class CommandBatch(msgspec.Struct, frozen=True, gc=False):
    """What one Raft entry carries."""

    index: int
    stamp: Stamp
    commands: tuple[Command, ...]
