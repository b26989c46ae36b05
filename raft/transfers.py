"""Snapshots that a replica sends: the transfers under way, and the picture that they share."""

from collections.abc import Sequence
from typing import Any

from raft.core.core import Core
from raft.log.log import Log
from raft.log.segment import may_pass
from raft.machine import StateMachine
from raft.picture import Picture, SnapshotSend
from raft.step import ReplicaConfig
from raft.types import NodeId, SnapshotMeta


class Transfers:
    """The transfers of one replica. A transfer outlives the leadership that began it."""

    def __init__(
        self, config: ReplicaConfig, core: Core, log: Log, machine: StateMachine[Any]
    ) -> None:
        self._config = config
        self._core = core
        self._log = log
        self._machine = machine
        self._picture: Picture | None = None
        self._running: dict[NodeId, list[tuple[SnapshotMeta, int]]] = {}
        """By receiver, oldest first: the snapshot, and the tick at which its transfer began."""

    def tick(self, count: int) -> None:
        """Note that `count` ticks passed; drop a picture that has long been unused."""
        if self._picture is not None:
            self._picture.tick(count)
            if self._picture.idle_ticks >= self._config.picture_idle_ticks:
                self.drop_picture()

    def begin(self, wanted: Sequence[NodeId], now: int) -> tuple[SnapshotSend, ...]:
        """Begin transfers. One that still runs from an earlier leadership is kept instead."""
        sends: list[SnapshotSend] = []
        for to in wanted:
            running = self._running.get(to, [])
            if not running or not self._is_running_well(*running[-1], now):
                picture = self._fresh_picture()
                if picture is None:
                    self._core.snapshot_done(to, False)  # the core asks again after a pause
                    continue
                sends.append(SnapshotSend(to, picture.meta, picture.open()))
                running.append((picture.meta, now))
                self._running[to] = running
            self._core.offer_snapshot(to, running[-1][0])
        return tuple(sends)

    def ended(self, to: NodeId, is_whole: bool) -> None:
        """Note that a transfer ended; of several to one follower, the oldest."""
        running = self._running.get(to, [])
        if running:
            running.pop(0)
        if not running:
            # Otherwise a newer one still runs, whose end is reported later.
            self._running.pop(to, None)
            self._core.snapshot_done(to, is_whole)

    def drop_picture(self) -> None:
        """Let no further transfer begin with the current picture."""
        if self._picture is not None:
            self._picture.drop()
            self._picture = None

    def _is_running_well(self, meta: SnapshotMeta, since: int, now: int) -> bool:
        """Return whether a transfer is still useful, and not so old that it may hang."""
        is_old = now - since >= self._config.core.snapshot_wait_ticks
        return self._is_continued(meta) and not is_old

    def _is_continued(self, meta: SnapshotMeta) -> bool:
        """Return whether the log has everything that follows a snapshot."""
        return meta.index >= self._log.first_index() - 1

    def _fresh_picture(self) -> Picture | None:
        """Return the last picture if the log still continues it, else a new one; None if the state
        machine needs more time.
        """
        if self._picture is not None and self._is_continued(self._picture.meta):
            return self._picture
        self.drop_picture()
        try:
            made = self._machine.snapshot(self._machine.applied_index())
        except OSError as error:
            if not may_pass(error):
                raise
            made = None
        if made is None:
            return None
        index, source = made
        if index < self._log.first_index() - 1:
            source.close()  # the log was reset meanwhile
            return None
        meta = SnapshotMeta(
            index,
            self._core.term_at(index),
            self._core.configuration_at(index),
            source.size_bytes(),
            source.identity(),
        )
        self._picture = Picture(meta, source, self._log.hold(index + 1))
        return self._picture
