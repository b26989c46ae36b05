"""A leader's knowledge of one follower, and its window (raft/design.md, Replication)."""

from collections import deque
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from raft.types import NodeId

NEVER = -(1 << 62)
"""A tick before all others."""


class ProgressState(IntEnum):
    """How a follower gets entries."""

    PROBE = 0
    """The place where the logs agree is unknown: one Append at a time, repeated by heartbeats."""
    REPLICATE = 1
    """That place is known: Appends are pipelined within the window."""
    SNAPSHOT = 2
    """It needs entries that the log no longer has: no Appends until a snapshot is installed."""


class Progress:
    """The progress of one follower. `match` is durable there; `next` is the next index to send."""

    __slots__ = (
        "applied",
        "commit_told",
        "fed_at",
        "has_told_applied",
        "heard_at",
        "inflight",
        "inflight_bytes",
        "is_paused",
        "is_sent",
        "match",
        "next",
        "owed",
        "refusals",
        "snapshot_index",
        "snapshot_wait",
        "stalled_from",
        "state",
    )

    def __init__(self, next_index: int, now: int) -> None:
        self.state = ProgressState.PROBE
        self.match = 0
        self.next = next_index
        self.inflight: deque[tuple[int, int]] = deque()
        """(last index, bytes of data) of each Append not yet acknowledged."""
        self.inflight_bytes = 0
        self.is_paused = False
        """PROBE: an Append is unanswered, or the connection is lost."""
        self.stalled_from = 0
        """REPLICATE: the tick since which what is in flight is not acknowledged."""
        self.heard_at = now
        """The tick of its last answer; a new leader gives each an election timeout."""
        self.applied = 0
        """What it has applied; a guess until `has_told_applied`."""
        self.has_told_applied = False
        self.commit_told = 0
        self.refusals = 0
        """How often in a row it refused what it had acknowledged."""
        self.owed = 0
        """It was rolled back and has to get entries up to here again."""
        self.fed_at = NEVER
        """REPLICATE: the tick when it was last sent all there is."""
        self.snapshot_index = 0
        """SNAPSHOT: index of the snapshot that is being sent; 0 while none is."""
        self.is_sent = False
        """SNAPSHOT: all of it has arrived, and the follower installs it."""
        self.snapshot_wait = 0
        """The tick before which no snapshot is requested, or at which one counts as lost."""

    def is_alive(self, now: int, election_ticks: int) -> bool:
        """Return whether it answered within an election timeout."""
        return now - self.heard_at < election_ticks

    def needs_nothing(self, last: int, since: int) -> bool:
        """Return whether it has applied all there is, up to `last`, and was heard since then."""
        is_told = self.applied == self.commit_told == self.match == last
        return is_told and self.heard_at >= since and self.state is ProgressState.REPLICATE

    def note_applied(self, index: int) -> None:
        """Note what an answer says. Answers may overtake each other, but a process that starts
        again has applied less than the one before it.
        """
        self.applied = max(self.applied, index) if self.has_told_applied else index
        self.has_told_applied = True

    def has_room(self, messages_max: int, bytes_max: int) -> bool:
        """Return whether another Append may be sent now."""
        if self.state is ProgressState.REPLICATE:
            return len(self.inflight) < messages_max and self.inflight_bytes < bytes_max
        return self.state is ProgressState.PROBE and not self.is_paused

    def sent(self, last_index: int, size: int, now: int) -> None:
        """Note that an Append that ends at `last_index`, with `size` bytes of data, was sent."""
        if self.state is ProgressState.PROBE:
            self.is_paused = True
            return
        if not self.inflight:
            self.stalled_from = now
        self.next = last_index + 1
        self.inflight.append((last_index, size))
        self.inflight_bytes += size

    def accepted(self, match: int, now: int) -> bool:
        """Note an acknowledgement; return whether it advances `match`."""
        inflight = self.inflight
        while inflight and inflight[0][0] <= match:
            self.inflight_bytes -= inflight.popleft()[1]
        self.refusals = 0
        if match <= self.match:
            return False
        self.match = match
        self.next = max(self.next, match + 1)
        self.stalled_from = now
        return True

    def probe(self, next_index: int) -> None:
        """Fall back to finding the place where the logs agree, from `next_index` - 1."""
        self.state = ProgressState.PROBE
        self.next = max(next_index, self.match + 1)
        self.is_paused = False
        self.fed_at = NEVER
        self._forget_inflight()

    def replicate(self) -> None:
        """Continue from `match`, up to which the logs agree."""
        self.state = ProgressState.REPLICATE
        self.next = self.match + 1
        self.snapshot_wait = 0
        self._forget_inflight()

    def snapshot(self) -> None:
        """Wait for a snapshot: the entries from `next` on have been dropped."""
        self.state = ProgressState.SNAPSHOT
        self.snapshot_index = 0
        self.is_sent = False
        self._forget_inflight()

    def _forget_inflight(self) -> None:
        self.inflight.clear()
        self.inflight_bytes = 0


class FollowerStatus(msgspec.Struct, frozen=True):
    """What the leader knows of a follower."""

    node: NodeId
    state: ProgressState
    match: int
    applied: int
    inflight_bytes: int
    is_alive: bool


def statuses(
    followers: Mapping[NodeId, Progress], now: int, election_ticks: int
) -> tuple[FollowerStatus, ...]:
    """Return what is known of all followers."""
    return tuple(
        FollowerStatus(
            node,
            progress.state,
            progress.match,
            progress.applied,
            progress.inflight_bytes,
            progress.is_alive(now, election_ticks),
        )
        for node, progress in followers.items()
    )
