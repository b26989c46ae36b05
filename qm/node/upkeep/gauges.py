"""Gauges that are read from Raft and the state when metrics are requested.

Series per queue are capped: the oldest QUEUES_MAX application queues have their own, all others
are summed under "other", so that ten thousand queues cost no more than a hundred.
"""

import asyncio
from typing import Final

import msgspec
from typing_extensions import override

from qm.cluster.cluster import ClusterListener, Leadership, Unavailable
from qm.model.queries import QueueInfo, View, list_queues, queue_statistics
from qm.model.values.elements import QueueKind
from qm.node.replica.people_certificates import PeopleCertificates
from qm.node.replica.replicated_store import RAFT_FOLDER, ReplicatedStore
from qm.node.upkeep.peer_quotas import PeerQuotas
from qm.node.upkeep.totals import ConsensusTotals
from qm.observe.metrics import Metrics
from raft.founding import LOG_DIRECTORY
from raft.types import Role

QUEUES_MAX: Final = 100
"""Queues with series of their own; the others are summed under "other"."""
OTHER: Final = "other"
_PAGE: Final = 100
_APPLICATION: Final = QueueKind.APPLICATION
_DEADLETTER: Final = {
    QueueKind.DEADLETTER: "deadletter",
    QueueKind.TRANSACTIONAL_DEADLETTER: "transactional deadletter",
}


class _Totals(msgspec.Struct):
    """Values of one series."""

    messages: int = 0
    size_bytes: int = 0
    journal_messages: int = 0
    journal_bytes: int = 0


class _Holdings(msgspec.Struct):
    """What queues hold, by series."""

    named: dict[int, str] = msgspec.field(default_factory=dict)
    """Path names of queues with series of their own, by queue."""
    series: dict[str, _Totals] = msgspec.field(default_factory=dict)
    dead_letters: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, queue: QueueInfo) -> None:
        """Add one queue; its journal comes after it, since it is made after it."""
        if queue.kind is _APPLICATION and len(self.named) < QUEUES_MAX:
            self.named[queue.queue_id] = queue.pathname
        if queue.kind in _DEADLETTER:
            self.dead_letters[_DEADLETTER[queue.kind]] = queue.message_count
        is_journal = queue.kind is QueueKind.JOURNAL
        owner = queue.parent_queue if is_journal else queue.queue_id
        totals = self.series.setdefault(self.named.get(owner, OTHER), _Totals())
        if is_journal:
            totals.journal_messages += queue.message_count
            totals.journal_bytes += queue.total_bytes
        else:
            totals.messages += queue.message_count
            totals.size_bytes += queue.total_bytes


class Gauges(ClusterListener):
    """Sets the gauges; a ClusterListener, since changes of leader are counted as they come."""

    def __init__(self, replicated: ReplicatedStore, metrics: Metrics) -> None:
        self._replicated = replicated
        self._metrics = metrics
        self._totals = ConsensusTotals(metrics)
        self._peer_quotas = PeerQuotas(metrics)
        self._people = PeopleCertificates(metrics)
        self._term = 0

    @override
    def on_applied(self, applied: object) -> None:
        pass

    @override
    def on_restored(self, index: int) -> None:
        pass

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        """Count a leader when it is first reported."""
        if leadership.node is not None and leadership.term > self._term:
            self._term = leadership.term
            self._metrics.counter("quorate_elections_total").inc()

    async def refresh(self) -> None:
        """Set all of them. Yields to the event loop between pages of queues."""
        self._consensus()
        try:
            holdings = await self._holdings()
            view = self._replicated.view
            self._queues(view, holdings)
            self._metrics.gauge("quorate_client_sessions").set(view.counters().client_count)
            self._peer_quotas.refresh(view)
            self._people.refresh(view, self._replicated.now_ms() // 1000)
        except Unavailable:
            return  # a snapshot is being installed: the next scrape sees it

    def _consensus(self) -> None:
        gauge = self._metrics.gauge
        status = self._replicated.driver.status()
        gauge("quorate_is_leader").set(self._replicated.leadership.is_here)
        gauge("quorate_term").set(status.term)
        gauge("quorate_commit_index").set(status.commit)
        gauge("quorate_applied_index").set(status.applied)
        gauge("quorate_apply_lag_entries").set(status.commit - status.applied)
        self._totals.refresh(self._replicated.driver)
        log = self._replicated.config.data / RAFT_FOLDER / LOG_DIRECTORY
        gauge("quorate_log_bytes").set(sum(file.stat().st_size for file in log.iterdir()))
        members = gauge("quorate_members")
        members.labels(state="voter").set(len(status.configuration.voters))
        members.labels(state="learner").set(len(status.configuration.learners))
        if status.role is Role.LEADER:
            alive = sum(follower.is_alive for follower in status.followers) + 1
            members.labels(state="alive").set(alive)

    async def _holdings(self) -> _Holdings:
        """Return what all queues hold. The model bounds their number, so no total is cut."""
        found = _Holdings()
        after: int | None = 0
        while after is not None:
            page = list_queues(self._replicated.view, after=after, limit=_PAGE)
            for queue in page.items:
                found.add(queue)
            after = page.next
            await asyncio.sleep(0)
        return found

    def _queues(self, view: View, holdings: _Holdings) -> None:
        for name in _BY_QUEUE:
            self._metrics.gauge(name).clear()
        for name, count in holdings.dead_letters.items():
            self._metrics.gauge("quorate_deadletter_messages").labels(queue=name).set(count)
        for name, totals in holdings.series.items():
            self._set_totals(name, totals)
        now_s = self._replicated.now_ms() // 1000
        for queue_id, name in holdings.named.items():
            self._set_details(view, queue_id, name, now_s)

    def _set_totals(self, name: str, totals: _Totals) -> None:
        gauge = self._metrics.gauge
        gauge("quorate_queue_messages").labels(queue=name).set(totals.messages)
        gauge("quorate_queue_bytes").labels(queue=name).set(totals.size_bytes)
        gauge("windows_msmq_messages_in_queue").labels(name=name).set(totals.messages)
        gauge("windows_msmq_bytes_in_queue").labels(name=name).set(totals.size_bytes)
        journal_messages = gauge("windows_msmq_messages_in_journal_queue")
        journal_messages.labels(name=name).set(totals.journal_messages)
        journal_bytes = gauge("windows_msmq_bytes_in_journal_queue")
        journal_bytes.labels(name=name).set(totals.journal_bytes)

    def _set_details(self, view: View, queue_id: int, name: str, now_s: int) -> None:
        statistics = queue_statistics(view, queue_id)
        if statistics is None:
            return
        oldest = statistics.oldest_arrival_time
        age = 0 if oldest is None else max(now_s - oldest, 0)
        self._metrics.gauge("quorate_queue_oldest_seconds").labels(queue=name).set(age)
        if statistics.quota_bytes:
            ratio = statistics.quota_used_bytes / statistics.quota_bytes
            self._metrics.gauge("quorate_queue_quota_ratio").labels(queue=name).set(ratio)


_BY_QUEUE: Final = (
    "quorate_queue_messages",
    "quorate_queue_bytes",
    "quorate_queue_oldest_seconds",
    "quorate_queue_quota_ratio",
    "quorate_deadletter_messages",
    "windows_msmq_messages_in_queue",
    "windows_msmq_bytes_in_queue",
    "windows_msmq_messages_in_journal_queue",
    "windows_msmq_bytes_in_journal_queue",
)
