"""The state of an archive, from its small files alone: no Spark is needed."""

import logging

import msgspec

from qm.archive.manifest import MANIFEST_NAME, RANGES_FOLDER, folder_indexes
from spark.archive.base import find_bases
from spark.archive.store import ArchiveStore
from spark.archive.summary import AUDIT_FOLDER, AUDITED_NAME, Audited

logger = logging.getLogger(__name__)


class NoArchive(ValueError):
    """There is nothing to audit; the text says what is missing."""


class Exports(msgspec.Struct, frozen=True):
    """What one node exported."""

    ranges: int
    last: int
    """Highest index."""


class Standing(msgspec.Struct, frozen=True):
    """What there is, and how much of it was audited."""

    cluster: str
    exported: dict[str, Exports]
    """By node (name.incarnation)."""
    audited: int
    """Highest audited index; 0: none."""
    audits: int
    findings: int
    """Number of findings of the newest audit."""
    bases: list[int]
    """Indexes of the bases."""
    problems: list[str]


def clusters(store: ArchiveStore) -> list[str]:
    """Return the clusters that an archive holds, by the folders of their ranges."""
    return [name for name in store.folders("") if store.folders(f"{name}/{RANGES_FOLDER}")]


def only_cluster(store: ArchiveStore) -> str:
    """Return the archive's cluster. Raises NoArchive unless there is exactly one."""
    found = clusters(store)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise NoArchive(f"say --cluster: {store.url} holds {names}")
    return found[0]


def audits(store: ArchiveStore, cluster: str | None = None) -> list[Audited]:
    """Return the complete audits of a cluster, oldest first. Raises NoArchive.

    One that none of the store's signers signed, or that was copied, is not there: an audit goes on
    from the last one, and a compaction may drop what was audited.
    """
    named = cluster or only_cluster(store)
    found = []
    for path in store.names(f"{named}/{AUDIT_FOLDER}", AUDITED_NAME):
        try:
            audited = msgspec.json.decode(store.read_signed(path), type=Audited)
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("%s does not count: %s", path, error)
            continue
        if (audited.cluster, audited.folder) == (named, path.rpartition("/")[0]):
            found.append(audited)
        else:
            logger.warning("%s does not count: it belongs to %s", path, audited.folder)
    return sorted(found, key=lambda audited: audited.last)


def last_audited(store: ArchiveStore, cluster: str) -> Audited | None:
    """Return the newest complete audit of a cluster."""
    return max(audits(store, cluster), key=lambda audited: audited.last, default=None)


def standing(store: ArchiveStore, cluster: str | None = None) -> Standing:
    """Return the state of an archive. Raises NoArchive."""
    named = cluster or only_cluster(store)
    exported: dict[str, Exports] = {}
    problems: list[str] = []
    for node in store.folders(f"{named}/{RANGES_FOLDER}"):
        folder = f"{named}/{RANGES_FOLDER}/{node}"
        whole = [
            indexes
            for name in store.folders(folder)
            if (indexes := folder_indexes(name)) is not None
            and store.size_bytes(f"{folder}/{name}/{MANIFEST_NAME}") is not None
        ]
        exported[node] = Exports(len(whole), max((last for _, last in whole), default=0))
    bases, bad = find_bases(store, named)
    problems += [f"{problem.path} {problem.detail}" for problem in bad]
    done = audits(store, named)
    return Standing(
        named,
        exported,
        done[-1].last if done else 0,
        len(done),
        done[-1].findings if done else 0,
        [base.index for base in bases],
        problems,
    )
