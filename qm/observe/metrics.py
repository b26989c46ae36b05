"""Every metric of the product in one table; `Metrics` registers them in one registry.

Names follow Prometheus: base units, `_total` for counters. Code reaches a metric only by its name
in this table, so documentation, alerts and dashboards are checked against it. Cost follows batches:
call once per batch, never per message.
"""

from enum import Enum
from typing import Final

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)


class MetricKind(Enum):
    """Prometheus types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    """With the unit, and `_total` for counters."""
    kind: MetricKind
    text: str
    """For HELP and for the documentation."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""
    values: tuple[str, ...] = ()
    """Values of its only label that start at 0, so that alerts see the first increase."""


SECONDS_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip

ALARMS: Final = (
    "archive_lag", "descriptors_short", "disk_exhausted", "disk_full", "disk_refusing", "disk_room",
    "disk_short", "diverged", "history_evicted", "id_reused", "journal_copy_dropped",
    "naming_limit", "peer_elsewhere", "peer_moved", "retired", "sequence_ahead", "snapshot_bad",
    "stream_limit", "stuck",
    "apply_lags", "peer_rolled_back", "rolled_back",
    "damaged", "damaged_everywhere", "contradicted",
)  # fmt: skip
"""Conditions that an operator has to act on; docs/runbook.md says what to do."""

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

TABLE: Final[tuple[Metric, ...]] = (
    # MSMQ sessions and edges
    Metric("quorate_sessions", _GAUGE, "Open MSMQ sessions", ("role",)),
    Metric("quorate_sessions_closed_total", _COUNTER, "MSMQ sessions that ended", ("reason",)),
    Metric("quorate_connections", _GAUGE, "Accepted TCP connections of MSMQ peers"),
    Metric("quorate_connections_refused_total", _COUNTER, "TCP connections refused", ("reason",)),
    Metric("quorate_messages_arrived_total", _COUNTER, "Messages by verdict", ("verdict",)),
    Metric("quorate_bytes_arrived_total", _COUNTER, "Bytes read from MSMQ peers"),
    Metric("quorate_bytes_sent_total", _COUNTER, "Bytes written to MSMQ peers"),
    Metric("quorate_edge_batches_total", _COUNTER, "Batches relayed to the leader", ("result",)),
    Metric("quorate_relay_streams_ended_total", _COUNTER, "Relay streams that ended", ("reason",)),
    Metric(
        "quorate_acknowledgement_seconds", _HISTOGRAM,
        "From the arrival of a batch at this edge to its commit", (), SECONDS_BUCKETS,
    ),
    Metric(
        "quorate_edge_reading_held_total", _COUNTER,
        "Times that an edge stopped reading from all peers until the leader caught up",
    ),
    Metric("quorate_late_packets_total", _COUNTER, "Order and final acks sent late", ("result",)),
    Metric("quorate_pings_total", _COUNTER, "UDP pings", ("result",)),
    Metric("quorate_signatures_total", _COUNTER, "Signatures of messages", ("result",)),
    Metric("quorate_encrypted_bodies_total", _COUNTER, "Encrypted bodies", ("result",)),
    Metric(
        "quorate_bodies_unopened_total", _COUNTER,
        "Stored bodies that do not open: broken, or without the sealing key", ("reason",),
    ),
    Metric(
        "quorate_examination_seconds_total", _COUNTER,
        "Time that the event loop spent on signatures and ciphers",
    ),
    Metric(
        "quorate_examinations_rationed_total", _COUNTER,
        "Times that a peer waited because too many of its signatures or keys were bad or new",
    ),
    Metric(
        "quorate_peer_quota_ratio", _GAUGE,
        "Share used of what is remembered of queue managers: of all, and of the fullest address",
        ("quota",),
    ),
    # Outgoing queues, at the leader
    Metric("quorate_outgoing_connects_total", _COUNTER, "Connections to peers", ("result",)),
    Metric("quorate_outgoing_messages_total", _COUNTER, "Messages sent to peers", ("result",)),
    Metric("quorate_outbox_rows", _GAUGE, "Acknowledgements owed to peers"),
    # Consensus and node
    Metric("quorate_is_leader", _GAUGE, "1 if this node leads"),
    Metric("quorate_term", _GAUGE, "Consensus term"),
    Metric("quorate_commit_index", _GAUGE, "Committed log index"),
    Metric("quorate_applied_index", _GAUGE, "Applied log index"),
    Metric("quorate_apply_lag_entries", _GAUGE, "Committed log entries not yet applied here"),
    Metric(
        "quorate_event_loop_lag_seconds", _HISTOGRAM, "Lateness of a timer of this node's loop",
        (), SECONDS_BUCKETS,
    ),
    Metric("quorate_elections_total", _COUNTER, "Changes of leader seen by this node"),
    Metric("quorate_raft_syncs_total", _COUNTER, "Syncs of the replicated log"),
    Metric("quorate_raft_entries_applied_total", _COUNTER, "Log entries applied"),
    Metric(
        "quorate_raft_dropped_total", _COUNTER,
        "Calls and frames between nodes that were dropped whole", ("reason",),
    ),
    Metric(
        "quorate_raft_peer_bytes_total", _COUNTER, "Consensus traffic with a node",
        ("peer", "direction"),
    ),
    Metric(
        "quorate_raft_peer_failures_total", _COUNTER, "Failures of the connection to a node",
        ("peer", "reason"),
    ),
    Metric(
        "quorate_relay_refused_total", _COUNTER,
        "Calls and relay streams between nodes that this node refused or ended", ("reason",),
    ),
    Metric(
        "quorate_http_refused_total", _COUNTER,
        "HTTP connections that this node closed, by reason", ("reason",),
    ),
    Metric(
        "quorate_grpc_connections_ended_total", _COUNTER,
        "gRPC connections that this node ended, as their address had too many", ("port",),
    ),
    Metric("quorate_descriptors", _GAUGE, "File descriptors: open, and allowed", ("state",)),
    Metric("quorate_members", _GAUGE, "Members by state", ("state",)),
    Metric(
        "quorate_alarms_total", _COUNTER, "Alarms raised on this node", ("alarm",), values=ALARMS,
    ),
    Metric(
        "quorate_events_dropped_total", _COUNTER,
        "Events of this node that are missing in the cluster's history", ("reason",),
    ),
    Metric("quorate_clock_offset_seconds", _GAUGE, "Wall clock minus cluster time"),
    Metric("quorate_clock_steps_total", _COUNTER, "Steps of the wall clock"),
    Metric(
        "quorate_clock_jumped_seconds_total", _COUNTER,
        "By how much cluster time went forward as this node began to lead",
    ),
    Metric(
        "quorate_clock_unread_terms_total", _COUNTER,
        "Terms that this node began without knowing a majority's wall clocks",
    ),
    Metric(
        "quorate_audits_total", _COUNTER,
        "Audit marks that this node compared as leader: agreed, differ or incomplete", ("result",),
        values=("agreed", "differ", "incomplete"),
    ),
    Metric(
        "quorate_archive_lag_entries", _GAUGE, "Log entries that this node has not exported yet",
    ),
    Metric(
        "quorate_archive_lag_seconds", _GAUGE, "How long entries have been waiting for export",
    ),
    Metric("quorate_archive_ranges_total", _COUNTER, "Ranges exported to the archive"),
    Metric("quorate_archive_checkpoints_total", _COUNTER, "Checkpoints written to the archive"),
    Metric("quorate_archive_bytes_total", _COUNTER, "Bytes written to the archive"),
    Metric("quorate_archive_failures_total", _COUNTER, "Failures of the export", ("reason",)),
    Metric(
        "quorate_archive_given_up_entries_total", _COUNTER,
        "Entries that left the log before this node exported them",
    ),
    Metric("quorate_duties_failed_total", _COUNTER, "Failed background tasks", ("work",)),
    Metric("quorate_backups_total", _COUNTER, "Backups: done, broken_off or damaged", ("result",)),
    Metric(
        "quorate_scrubbed_bytes_total", _COUNTER, "Bytes read back and compared with checksums",
    ),
    Metric(
        "quorate_scrub_ended_timestamp_seconds", _GAUGE,
        "When everything on this node had been read back once, Unix time; 0 since its start",
    ),
    Metric(
        "quorate_damage_found_total", _COUNTER, "Damaged records and bodies found", ("kind",),
        values=("body", "record"),
    ),
    Metric(
        "quorate_damage_healed_total", _COUNTER, "Damaged records and bodies restored", ("kind",),
        values=("body", "record"),
    ),
    Metric("quorate_damage_left", _GAUGE, "Damaged records and bodies that are not restored yet"),
    Metric("quorate_exports_unsigned_total", _COUNTER, "Exports without a key to sign them"),
    Metric("quorate_disk_free_bytes", _GAUGE, "Free space under the data folder"),
    Metric("quorate_log_bytes", _GAUGE, "Size of the replicated log on disk"),
    Metric("quorate_certificate_expiry_seconds", _GAUGE, "Time to certificate expiry", ("file",)),
    # Queues
    Metric("quorate_queue_messages", _GAUGE, "Messages in a queue", ("queue",)),
    Metric("quorate_queue_bytes", _GAUGE, "Bytes in a queue", ("queue",)),
    Metric("quorate_queue_oldest_seconds", _GAUGE, "Age of the oldest message", ("queue",)),
    Metric("quorate_queue_quota_ratio", _GAUGE, "Bytes over quota", ("queue",)),
    Metric("quorate_deadletter_messages", _GAUGE, "Dead letters", ("queue",)),
    # Names that existing MSMQ dashboards use (windows_exporter's collector msmq)
    Metric("windows_msmq_messages_in_queue", _GAUGE, "Messages in a queue", ("name",)),
    Metric("windows_msmq_bytes_in_queue", _GAUGE, "Bytes in a queue", ("name",)),
    Metric(
        "windows_msmq_messages_in_journal_queue", _GAUGE, "Messages in a queue's journal",
        ("name",),
    ),
    Metric("windows_msmq_bytes_in_journal_queue", _GAUGE, "Bytes in a queue's journal", ("name",)),
    # API
    Metric("quorate_api_calls_total", _COUNTER, "gRPC calls", ("method", "code")),
    Metric(
        "quorate_api_seconds", _HISTOGRAM, "Duration of gRPC calls", ("method",), SECONDS_BUCKETS,
    ),
    Metric(
        "quorate_quota_refused_total", _COUNTER,
        "Calls refused because their principal has too much of what the label names", ("quota",),
        values=("calls", "queues", "sessions", "streams", "waits"),
    ),
    Metric("quorate_rpc_connections", _GAUGE, "Accepted RPC connections of Windows programs"),
    Metric(
        "quorate_rpc_calls_total", _COUNTER, "RPC calls that ended",
        ("interface", "method", "result"),
    ),
    Metric(
        "quorate_remote_reads_total", _COUNTER, "Remote reads that ended",
        ("result",), (), ("received", "peeked", "none"),
    ),
    Metric(
        "quorate_remote_reads_returned_total", _COUNTER,
        "Messages lent to remote readers that went back to their queue", ("cause",),
    ),
    Metric(
        "quorate_remote_senders_cut_total", _COUNTER,
        "Lists of a queue's senders, told to remote management, that were too long to be whole",
    ),
    Metric(
        "quorate_dcom_unanswered_total",
        _COUNTER,
        "Questions of DCOM clients that another node, which has their objects, did not answer",
    ),
    Metric(
        "quorate_dcom_forgotten_total", _COUNTER,
        "Objects that are to be pinged at a node which does not answer, and were too many to keep",
    ),
    Metric("quorate_dcom_objects", _GAUGE, "Objects that DCOM clients hold at this node"),
    Metric(
        "quorate_dcom_events_total", _COUNTER, "Notifications of DCOM clients' sinks",
        ("result",), (), ("delivered", "failed", "unpinged", "unreachable"),
    ),
    Metric("quorate_rpc_refused_total", _COUNTER, "RPC clients and calls refused", ("reason",)),
    Metric("quorate_waiting_readers", _GAUGE, "Reads that wait for a message on this node"),
    Metric("quorate_client_sessions", _GAUGE, "Client sessions, open or remembered for repeats"),
)  # fmt: skip
"""Add a row together with the code that fills it."""


class Metrics:
    """The metrics of the table, live in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Would add a series for the creation time of each counter, which is in no table.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: Final = registry
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in TABLE:
            self._add(metric)

    def _add(self, metric: Metric) -> None:
        name, text, labels = metric.name, metric.text, metric.labels
        if metric.kind is _COUNTER:
            self._counters[name] = counter = Counter(name, text, labels, registry=self.registry)
            for value in metric.values:
                counter.labels(value)
        elif metric.kind is _GAUGE:
            self._gauges[name] = Gauge(name, text, labels, registry=self.registry)
        else:
            self._histograms[name] = Histogram(
                name, text, labels, buckets=metric.buckets, registry=self.registry
            )

    def counter(self, name: str) -> Counter:
        """Return a counter of the table. Raises KeyError for other names."""
        return self._counters[name]

    def gauge(self, name: str) -> Gauge:
        """Return a gauge of the table. Raises KeyError for other names."""
        return self._gauges[name]

    def histogram(self, name: str) -> Histogram:
        """Return a histogram of the table. Raises KeyError for other names."""
        return self._histograms[name]
