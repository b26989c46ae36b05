"""Bases: whole states that replace the log up to an index (qm/archive/design.md).

A base is a folder with a stream of `qm.store.snapshot` and its description. `base.json` is written
last: with it the base exists.
"""

from typing import Final

import msgspec

from qm.store.backup import STATE_FILE
from spark.archive.store import ArchiveStore

BASE_FOLDER: Final = "base"
BASE_NAME: Final = "base.json"
BASE_SCHEMA: Final = 1
_DIGITS: Final = 20


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `base.json`."""

    schema: int
    cluster: str
    """Hexadecimal."""
    group: int
    index: int
    """Index of the last entry that it contains."""
    term: int
    chain: str
    """The chain value at that entry, hexadecimal; the next entry names it."""
    digest: str
    """Digest of the state, hexadecimal, as nodes report it at audit marks."""
    built_from: int
    """Index of the base or checkpoint that it was built from; 0: from the first entry on."""
    messages: int
    """Messages in queues."""
    stream_bytes: int
    stream_sha256: str


class BaseProblem(msgspec.Struct, frozen=True):
    """A base that cannot be used."""

    path: str
    detail: str


def base_folder(cluster: str, index: int) -> str:
    """Return a base's folder within the archive."""
    return f"{cluster}/{BASE_FOLDER}/{index:0{_DIGITS}}"


def find_bases(store: ArchiveStore, cluster: str) -> tuple[list[Base], list[BaseProblem]]:
    """Return the bases of a cluster, oldest first, and those that cannot be used."""
    bases: list[Base] = []
    problems: list[BaseProblem] = []
    for path in store.names(f"{cluster}/{BASE_FOLDER}", BASE_NAME):
        try:
            base = msgspec.json.decode(store.read_signed(path), type=Base)
        except (msgspec.DecodeError, OSError) as error:
            problems.append(BaseProblem(path, f"unreadable: {error}"))
            continue
        detail = _problem(store, base, cluster, path.rpartition("/")[0])
        if detail:
            problems.append(BaseProblem(path, detail))
        else:
            bases.append(base)
    return sorted(bases, key=lambda base: base.index), problems


def _problem(store: ArchiveStore, base: Base, cluster: str, folder: str) -> str:
    if base.cluster != cluster:
        return f"belongs to cluster {base.cluster}"
    if not 1 <= base.schema <= BASE_SCHEMA:
        return f"has schema {base.schema}, this job knows up to {BASE_SCHEMA}"
    return stream_problem(store, folder, base.stream_bytes)


def stream_problem(store: ArchiveStore, folder: str, stream_bytes: int) -> str:
    """Return what is wrong with the length of the stream in a folder, "" for nothing."""
    size = store.size_bytes(f"{folder}/{STATE_FILE}")
    if size != stream_bytes:
        return f"names {stream_bytes} bytes of {STATE_FILE}, there are {size or 0}"
    return ""


def newest(bases: list[Base], upto: int) -> Base | None:
    """Return the last base at or below an index."""
    return max(
        (base for base in bases if base.index <= upto), key=lambda base: base.index, default=None
    )
