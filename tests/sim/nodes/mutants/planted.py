"""The bugs. Each is a patch of product source; the product has no switches for them."""

from dataclasses import dataclass
from typing import Final

from tests.sim.planted import Mutant, Patch


@dataclass(frozen=True)
class Planted:
    """A bug, and the faults that bring it out."""

    mutant: Mutant
    faults: str
    """As `--faults` takes them."""


def planted(name: str, rule: str, faults: str, file: str, old: str, new: str) -> Planted:
    """Return a bug of one patch."""
    return Planted(Mutant(name, rule, ((file, old, new),)), faults)


def planted_in_all(name: str, rule: str, faults: str, *patches: Patch) -> Planted:
    """Return a bug in each place where the product keeps the rule."""
    return Planted(Mutant(name, rule, patches), faults)


PLANTED: Final = (
    planted(
        "blobs_not_synced",
        "Before a log segment is dropped its bodies are synced",
        "power,blackout,kill",
        "qm/store/bodies/blobs.py",
        "            file.fdatasync()\n        if self.files:",
        "            file.write_out()\n        if self.files:",
    ),
    planted(
        "blob_names_not_synced",
        "And the names of their files",
        "power,blackout,kill",
        "qm/store/bodies/blobs.py",
        "            file.fdatasync()\n        if self.files:\n            self._directory.sync()",
        "            file.fdatasync()",
    ),
    planted(
        "durable_index_without_flush",
        "The log reaches back to the durable applied index",
        "kill,power",
        "qm/store/store.py",
        "        self._state.flush()\n        self._durable_index = index",
        "        self._durable_index = index",
    ),
    planted_in_all(
        "no_settle_before_moves_are_written",
        "What moves commit does not split what was applied",
        "install",
        (
            "qm/store/bodies/body_places.py",
            "        self._settle()\n        copied = 0",
            "        copied = 0",
        ),
        (
            "qm/store/bodies/body_places.py",
            "        self._settle()\n        blobs, marks = self._blobs",
            "        blobs, marks = self._blobs",
        ),
    ),
    planted(
        "retire_copies_nothing",
        "What is alive in a segment moves before it is dropped",
        "install",
        "qm/store/bodies/body_places.py",
        "            copied += self._move(index, ordinals)\n        is_secured",
        "            copied += 0\n        is_secured",
    ),
    planted(
        "snapshot_without_bodies_of_the_log",
        "Snapshots carry the live bodies",
        "install",
        "qm/store/snapshot.py",
        "        for index, ordinals in state.liveness.live(0, last)",
        "        for index, ordinals in state.liveness.live(0, 0)",
    ),
    planted(
        "damaged_snapshot_is_waited_for",
        "Who cannot install a snapshot says so",
        "bent",
        "raft/core/core.py",
        "            if state.leader is not None and begun is not None:",
        "            if state.leader is None and begun is not None:",
    ),
    planted(
        "applied_before_durable",
        "A node applies up to its own fsynced index",
        "power,slow_disk,armed",
        "raft/replica.py",
        "return min(self._core.commit, self._core.durable_index)",
        "return self._core.commit",
    ),
    planted(
        "log_sync_does_nothing",
        "A sync makes durable",
        "power,blackout",
        "raft/log/group_commit.py",
        "file.fdatasync()",
        "file.write_out()",
    ),
    planted(
        "stored_nothing_and_acknowledged",
        "What cannot be stored is not acknowledged",
        "full_all",
        "qm/edge/relay/batch_outcome.py",
        "for k, verdict in enumerate(mine) if verdict in _REASONS)",
        "for k, verdict in enumerate(mine) if verdict < 0)",
    ),
    planted(
        "lost_stream_counts_as_acknowledged",
        "An acknowledgement waits for the outcome",
        "kill,cut,reset",
        "qm/edge/relay/relay.py",
        "        again = self._pipeline.start_again()\n",
        "        from qm.edge.relay.batch_outcome import _settle_all\n"
        "        for batch in self._pipeline._unanswered:\n"
        "            _settle_all(batch.items, self.commit_index)\n"
        "        self._pipeline._unanswered.clear()\n"
        "        again = self._pipeline.start_again()\n",
    ),
    planted_in_all(
        "relay_stream_outlives_its_term",
        "A stream belongs to one leader and term",
        "kill,cut,pause,one_way",
        (
            "qm/node/replica/replicated_store.py",
            "            stream.end(reason)\n\n    async def _activate",
            "            del stream\n\n    async def _activate",
        ),
        (
            "qm/edge/relay/relay.py",
            "(self._stream is not None and leadership.term == self._term)",
            "self._stream is not None",
        ),
    ),
    planted(
        "express_history_forgotten",
        "None is delivered twice: express",
        "kill,cut,reset",
        "qm/model/arrivals/fast_arrivals.py",
        "                if history.bitmap & _BITS[ordinal & ORDINAL_MASK]:",
        "                if False:",
    ),
    planted(
        "sequence_admits_what_it_has",
        "None is delivered twice: transactional",
        "kill,cut,reset",
        "qm/model/arrivals/arrivals.py",
        "        if not self.duplicates.admits(stream, sequence, number, previous):",
        "        if number == 0:",
    ),
    planted(
        "request_repeated_is_done_again",
        "A retried request returns its first result",
        "kill,cut,slow_net",
        "qm/model/clients/clients.py",
        "        if known is not None:\n            return Outcome(known.status",
        "        if known and False:\n            return Outcome(known.status",
    ),
    planted(
        "wall_clock_stamps",
        "A step of a wall clock expires nothing",
        "clock",
        "qm/node/service.py",
        "ClusterClock(time.monotonic_ns)",
        "ClusterClock(time.time_ns)",
    ),
    planted(
        "reserve_never_taken_back",
        "Space that comes back is used",
        "full",
        "qm/node/upkeep/housekeeping.py",
        "        if self.level is DiskLevel.EXHAUSTED:\n            self._reserve.hold()\n",
        "",
    ),
    planted(
        "cache_survives_a_delete",
        "State is what the rows are",
        "kill",
        "qm/store/rocks.py",
        "            if changed is None or not is_hot:\n",
        "            if changed is None:\n                continue\n            if not is_hot:\n",
    ),
    planted(
        "order_ack_settles_nothing",
        "What a peer has in order is done",
        "transfer",
        "qm/model/delivery.py",
        "            room -= self._order_acked(identifier, number, room)",
        "            room -= self._order_acked(identifier, 0, room)",
    ),
    planted(
        "new_leader_looks_for_no_messages",
        "Outgoing queues are the leader's, whoever leads",
        "far_away,kill,transfer",
        "qm/edge/outgoing/leadership.py",
        "        for queue_id in page:\n            self._wake(queue_id)",
        "        for queue_id in page[:0]:\n            self._wake(queue_id)",
    ),
    planted(
        "link_is_not_retried",
        "A link that broke is tried again",
        "far_away,cut",
        "qm/session/link.py",
        "            self._retry_at = now + self._retry_period",
        "            self._retry_at = None",
    ),
    planted(
        "what_is_given_back_is_taken",
        "A read lends and the acknowledgement takes",
        "kill",
        "qm/model/clients/reads.py",
        "        else:\n            self._returns.give_back(queue, key, position)\n"
        "        return Outcome(MQ_OK)",
        "        else:\n            self._endings.end(queue, key, position, command.reason)\n"
        "        return Outcome(MQ_OK)",
    ),
    planted(
        "batches_of_a_lost_stream_forgotten",
        "An edge opens another stream from its oldest unanswered batch",
        "kill,cut,reset",
        "qm/edge/relay/pipeline.py",
        "        self._again.extendleft(reversed(self._unanswered))\n",
        "",
    ),
    planted(
        "blob_file_goes_before_the_flush",
        "A file goes once a durable state no longer names it",
        "install,slow_disk,slow_disk,slow_disk,blackout,blackout,blackout",
        "qm/store/bodies/blobs.py",
        "        while self._emptied and self._emptied[0][0] <= self._durable:",
        "        while self._emptied:",
    ),
    planted(
        "chain_is_written_now_and_then",
        "State is a function of the sequence of entries",
        "kill,power",
        "qm/store/effects/chain.py",
        "        if self._is_kept:\n            self._state.put(",
        "        if self._is_kept and self._index % 2:\n            self._state.put(",
    ),
    planted(
        "clock_begins_where_it_stopped",
        "Each term begins at the median of a majority's wall clocks",
        "long_outage",
        "qm/node/leader/timekeeping.py",
        "        gap_ms = self._clock.jump(walls)",
        "        late_ms = 60_000 * self._clock.has_begun\n"
        "        gap_ms = self._clock.jump([wall - late_ms for wall in walls])",
    ),
)
