"""What an audit says of itself: JSON, and where the last one ended."""

from typing import Any, Final

import msgspec

from spark.store import ArchiveStore

AUDITED_NAME: Final = "audited.json"


class Audited(msgspec.Struct, frozen=True):
    """Written last: this audit is whole."""

    cluster: str
    first: int
    last: int
    folder: str
    findings: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run; every list is bounded."""

    cluster: str
    first: int
    last: int
    nodes: list[str] = []
    ranges: int = 0
    entries: int = 0
    operations: int = 0
    findings_by_rule: dict[str, int] = {}
    examples: list[dict[str, Any]] = []
    flow: list[dict[str, Any]] = []
    """Per queue: messages by operation."""
    ages: list[dict[str, Any]] = []
    """Per queue: p50_s, p99_s, max_s of what was received."""
    dead_letters: list[dict[str, Any]] = []
    time_line: list[dict[str, Any]] = []

    @property
    def findings_total(self) -> int:
        """Findings of all rules."""
        return sum(self.findings_by_rule.values())

    @classmethod
    def nothing(cls, cluster: str, base: int) -> "Summary":
        """Return what an audit says that has nothing new to judge."""
        return cls(cluster=cluster, first=base + 1, last=base)


def last_audited(store: ArchiveStore, cluster: str) -> Audited | None:
    """Return the newest whole audit of a cluster."""
    found = [
        msgspec.json.decode(store.read(path), type=Audited)
        for path in store.names(f"{cluster}/audit", AUDITED_NAME)
    ]
    return max(found, key=lambda audited: audited.last, default=None)
