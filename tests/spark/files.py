"""Writes small archives as files, as nodes do: Parquet by range, then the manifest."""

import itertools
from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from qm.archive.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    decode_manifest,
    encode_manifest,
    range_folder,
)
from qm.archive.schema import (
    METADATA_CLUSTER,
    METADATA_NODE,
    METADATA_SCHEMA,
    SCHEMA_VERSION,
    SCHEMAS,
    Part,
    columns_of,
)
from tests.spark.archives import NODES, Archive

CLUSTER = "ab" * 16


def write_range(
    root: Path,
    archive: Archive,
    node: str,
    first: int,
    last: int,
    *,
    schema_version: int = SCHEMA_VERSION,
    own_cluster: str = CLUSTER,
    has_data: bool = True,
) -> Path:
    """Write what a node exports of first to last; return the folder.

    `own_cluster`: what its files say of themselves; `has_data`: whether it has entries' data.
    """
    folder = root / range_folder(CLUSTER, node, first, last)
    folder.mkdir(parents=True)
    files = []
    for part in Part:
        column = "exported_with" if part is Part.ACKS else "index"
        rows = [r for r in archive.of(part, node=node) if first <= r[column] <= last]
        if not has_data and part is Part.ENTRIES:
            rows = [{**row, "data": None} for row in rows]
        metadata = {
            METADATA_SCHEMA: str(schema_version).encode(),
            METADATA_CLUSTER: own_cluster.encode(),
            METADATA_NODE: node.encode(),
        }
        fields = [SCHEMAS[part].field(name) for name in columns_of(part, schema_version)]
        schema = pa.schema(fields, metadata)
        path = folder / f"{part.value}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        files.append(_file(path, part, len(rows), is_blake3=schema_version >= 3))
    entries = sorted(archive.of(Part.ENTRIES, node=node), key=lambda row: int(row["index"]))
    inside = [row for row in entries if first <= row["index"] <= last]
    manifest = Manifest(
        schema_version, CLUSTER, node, archive.group, first, last, inside[0]["previous_index"],
        inside[0]["chain_before"].hex(), inside[-1]["chain"].hex(), tuple(files),
        has_data=has_data,
    )  # fmt: skip
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    return folder


def _file(path: Path, part: Part, rows: int, *, is_blake3: bool = True) -> ManifestFile:
    data = path.read_bytes()
    digest = (
        {"blake3": blake3(data).hexdigest()} if is_blake3 else {"sha256": sha256(data).hexdigest()}
    )
    return ManifestFile(part.value, path.name, len(data), rows, **digest)


def write_archive(root: Path, archive: Archive, *bounds: int) -> None:
    """Write ranges of all nodes, each from behind one bound to the next."""
    for node in NODES:
        for below, last in itertools.pairwise(bounds):
            write_range(root, archive, node, below + 1, last)


def replace_file(folder: Path, part: Part, table: pa.Table) -> None:
    """Put another table in the place of a part's file, and name it in the manifest."""
    path = folder / f"{part.value}.parquet"
    pq.write_table(table, path)
    file = _file(path, part, table.num_rows)
    manifest = decode_manifest((folder / MANIFEST_NAME).read_bytes())
    files = tuple(file if old.part == part.value else old for old in manifest.files)
    changed = msgspec.structs.replace(manifest, files=files)
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(changed))
