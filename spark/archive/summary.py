"""The summary of an audit as JSON, and where the last audit ended."""

from typing import Any, Final

import msgspec

from spark.archive.store import ArchiveStore

AUDIT_FOLDER: Final = "audit"
AUDITED_NAME: Final = "audited.json"
SUMMARY_NAME: Final = "summary.json"
REPORT_NAME: Final = "report.html"
METRICS_NAME: Final = "metrics.prom"
UNUSABLE_RULES: Final = ("file_unusable", "base_broken")
"""Rules whose findings mean that the archive itself is damaged."""


class Audited(msgspec.Struct, frozen=True):
    """Written last: with it the audit is complete."""

    cluster: str
    first: int
    last: int
    folder: str
    findings: int
    begun_after: int = 0
    """Index of the entry before the first one that this or an earlier audit saw."""


class ReplaySaid(msgspec.Struct, frozen=True):
    """How far a group's log was replayed."""

    group: int
    index: int
    """Index of the last applied entry."""
    marks: int
    """Number of audit marks passed."""
    digest: str
    """Digest of the state there, hexadecimal."""
    problem: str
    """Why it went no further; "" when it reached the last mark."""
    is_damage: bool


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run; every list is bounded."""

    cluster: str
    first: int
    """Index of the first entry that this audit covers."""
    last: int
    begun_after: int = 0
    """The archive begins after this entry of the cluster, 0: with its first one."""
    is_partial: bool = False
    """Whether this is the first audit of an archive that begins after the cluster's first entry."""
    nodes: list[str] = []
    ranges: int = 0
    entries: int = 0
    operations: int = 0
    findings_by_rule: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    flow: list[dict[str, Any]] = []
    """Per queue: messages by operation."""
    ages: list[dict[str, Any]] = []
    """Per queue: p50_s, p99_s, max_s of received messages."""
    dead_letters: list[dict[str, Any]] = []
    time_line: list[dict[str, Any]] = []
    replays: list[ReplaySaid] = []

    @property
    def is_damaged(self) -> bool:
        """Whether some of the archive could not be used; the rest was judged."""
        return any(rule in self.findings_by_rule for rule in UNUSABLE_RULES) or any(
            said.is_damage for said in self.replays
        )

    @property
    def findings_total(self) -> int:
        """Number of findings of all rules."""
        return sum(self.findings_by_rule.values())

    @classmethod
    def nothing(cls, cluster: str, base: int) -> "Summary":
        """Return the summary of an audit that has nothing new to judge."""
        return cls(cluster=cluster, first=base + 1, last=base)


def read_summary(store: ArchiveStore, audited: Audited) -> Summary:
    """Return the summary of an audit. Raises OSError, ValueError."""
    return msgspec.json.decode(store.read(f"{audited.folder}/{SUMMARY_NAME}"), type=Summary)
