"""Checks a range and its files, as far as manifest and footers allow."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from qm.archive.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestError,
    ManifestFile,
    decode_manifest,
    folder_indexes,
    range_folder,
)
from qm.archive.schema import (
    METADATA_CLUSTER,
    METADATA_NODE,
    SCHEMA_VERSION,
    SCHEMAS,
    Part,
    columns_of,
)
from spark.archive.store import ArchiveStore


@dataclass(frozen=True)
class FileProblem:
    """A file, or a whole range, that cannot be used."""

    path: str
    detail: str
    group: int = 0
    node: str = ""
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class JudgedRange:
    """The usable parts of a range."""

    manifest: Manifest | None
    """None: nothing is usable, or nothing is wanted."""
    files: tuple[tuple[Part, str], ...] = ()
    problems: tuple[FileProblem, ...] = ()


def folder_of(manifest: Manifest) -> str:
    """Return a range's folder within the archive."""
    return range_folder(manifest.cluster, manifest.node, manifest.first, manifest.last)


def reaches_above(path: str, index: int) -> bool:
    """Return whether the range of a manifest may reach above an index, by its folder's name: most
    ranges of an old archive need not be opened.
    """
    indexes = folder_indexes(path.split("/")[-2])
    return indexes is None or indexes[1] > index


def judge_range(store: ArchiveStore, cluster: str, above: int, path: str) -> JudgedRange:
    """Return the usable parts of the range of a manifest; none if it does not reach above."""
    try:
        manifest = decode_manifest(store.read_signed(path))
    except (ManifestError, OSError) as error:
        return JudgedRange(None, problems=(FileProblem(path, f"unreadable manifest: {error}"),))
    problem = _range_problem(manifest, cluster, path)
    if problem:
        return JudgedRange(None, problems=(problem_of(path, manifest, problem),))
    if manifest.last <= above:
        return JudgedRange(None)
    usable: list[tuple[Part, str]] = []
    problems: list[FileProblem] = []
    for file in manifest.files:
        at = f"{path.rpartition('/')[0]}/{file.name}"
        problem = _file_problem(store, at, manifest, file)
        if problem:
            problems.append(problem_of(at, manifest, problem))
        else:
            usable.append((Part(file.part), at))
    return JudgedRange(manifest, tuple(usable), tuple(problems))


def _range_problem(manifest: Manifest, cluster: str, path: str) -> str:
    if manifest.cluster != cluster:
        return f"belongs to cluster {manifest.cluster}"
    if not 1 <= manifest.schema <= SCHEMA_VERSION:
        return f"has schema {manifest.schema}, this job knows up to {SCHEMA_VERSION}"
    if path != f"{folder_of(manifest)}/{MANIFEST_NAME}":
        return f"is in this folder, but belongs to {folder_of(manifest)}"
    return ""


def problem_of(path: str, manifest: Manifest, detail: str) -> FileProblem:
    """Return a problem of a range or of one of its files."""
    return FileProblem(path, detail, manifest.group, manifest.node, manifest.first, manifest.last)


def _file_problem(store: ArchiveStore, path: str, manifest: Manifest, file: ManifestFile) -> str:
    """Return what is wrong with a file, by its length and footer; "" for nothing."""
    size = store.size_bytes(path)
    if size is None:
        return "is missing"
    if size != file.size_bytes:
        return f"has {size} bytes, its manifest says {file.size_bytes}"
    try:
        part = Part(file.part)
    except ValueError:
        return f"is of a part {file.part!r} that this job does not know"
    try:
        schema = pq.read_schema(store.open(path))
    except (OSError, pa.ArrowInvalid) as error:
        return f"is not a Parquet file: {error}"
    return _foreign(schema, manifest) or _drifted(schema, part, manifest.schema)


def _foreign(schema: pa.Schema, manifest: Manifest) -> str:
    """Return whose file it is if it belongs elsewhere."""
    metadata = schema.metadata or {}
    for name, wanted in ((METADATA_CLUSTER, manifest.cluster), (METADATA_NODE, manifest.node)):
        found = metadata.get(name, b"").decode(errors="replace")
        if found != wanted:
            return f"says {name.decode()} {found!r}, its manifest {wanted!r}"
    return ""


def _drifted(schema: pa.Schema, part: Part, version: int) -> str:
    """Return how columns differ from those of the version; additional ones do no harm."""
    missing = [name for name in columns_of(part, version) if name not in schema.names]
    if missing:
        return f"lacks the columns {', '.join(missing)}"
    for name in columns_of(part, version):
        found, wanted = schema.field(name).type, SCHEMAS[part].field(name).type
        if not _same_kind(found, wanted):
            return f"has {found} in {name}, not {wanted}"
    return ""


def _same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_fixed_size_binary(wanted):
        return bool(pa.types.is_binary(found) or found == wanted)
    return bool(found == wanted)
