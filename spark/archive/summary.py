"""The summary of an audit as JSON, and where the last audit ended.

`audited.json` names the other files that are read again with their hashes; whoever runs the audit
may sign it, and then all of them are.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from blake3 import blake3

from spark.archive.store import ArchiveStore

AUDIT_FOLDER: Final = "audit"
AUDITED_NAME: Final = "audited.json"
SUMMARY_NAME: Final = "summary.json"
REPORT_NAME: Final = "report.html"
METRICS_NAME: Final = "metrics.prom"
_READ_BYTES: Final = 4 << 20
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
    files: dict[str, str] = {}
    """BLAKE3, hexadecimal, of its files by their path below `folder`; empty in older releases."""


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
    refusals: list[dict[str, Any]] = []
    """Messages that were refused for good, by class of the refusal, most frequent first."""
    protection: list[dict[str, Any]] = []
    """Per queue with signed or encrypted messages: how many arrived, and how many were which."""
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


class AuditChanged(ValueError):
    """A file of an audit is not what the audit wrote."""


def hashes(store: ArchiveStore, folder: str, paths: Iterable[str]) -> dict[str, str]:
    """Return `Audited.files` of files in an audit's folder. Raises OSError."""
    return {path[len(folder) + 1 :]: _hash(store, path) for path in paths}


def carried_files(store: ArchiveStore, audited: Audited, name: str) -> list[str]:
    """Return the files of a table that an audit left for the next one, as it wrote them.

    Raises AuditChanged, OSError.
    """
    folder = f"carry/{name}"
    if not audited.files:
        return [f"{audited.folder}/{folder}"]
    found = [path for path in audited.files if path.startswith(f"{folder}/")]
    for path in found:
        if _hash(store, f"{audited.folder}/{path}") != audited.files[path]:
            raise _changed(audited, path)
    return [f"{audited.folder}/{path}" for path in found]


def read_file(store: ArchiveStore, audited: Audited, name: str) -> bytes:
    """Return a small file of an audit. Raises OSError, AuditChanged."""
    data = store.read(f"{audited.folder}/{name}")
    if audited.files and blake3(data).hexdigest() != audited.files.get(name):
        raise _changed(audited, name)
    return data


def read_summary(store: ArchiveStore, audited: Audited) -> Summary:
    """Return the summary of an audit. Raises OSError, ValueError."""
    return msgspec.json.decode(read_file(store, audited, SUMMARY_NAME), type=Summary)


def _hash(store: ArchiveStore, path: str) -> str:
    digest = blake3()
    with store.open_input(path) as stream:
        while chunk := stream.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _changed(audited: Audited, name: str) -> AuditChanged:
    return AuditChanged(
        f"{audited.folder}/{name} was changed after the audit: remove this folder, and the next"
        " run audits these entries again"
    )
