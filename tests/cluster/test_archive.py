"""Real nodes that export what they apply."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qm.archive.manifest import MANIFEST_NAME, Manifest, decode_manifest
from qm.model.commands import AuditMark, ClockTick, OpenClient
from qm.node.config import ArchiveSection
from tests.cluster.harness import Harness, cluster, run, until, with_sections


def manifests(archive: Path) -> dict[str, list[tuple[Manifest, Path]]]:
    """Return each node's ranges, in order."""
    found: dict[str, list[tuple[Manifest, Path]]] = {}
    for path in sorted(archive.glob(f"*/ranges/*/*/{MANIFEST_NAME}")):
        manifest = decode_manifest(path.read_bytes())
        found.setdefault(manifest.node, []).append((manifest, path.parent))
    return found


def exported_upto(archive: Path) -> dict[str, int]:
    return {node: ranges[-1][0].last for node, ranges in manifests(archive).items()}


async def all_exported(nodes: Harness, archive: Path) -> None:
    """Wait until every node that is up exported what all have applied by now."""
    index = await nodes.agree()
    names = {node.service.replicated.config.node for node in nodes.up}

    def behind() -> set[str]:
        lasts = exported_upto(archive)
        return {name for name in names if lasts.get(name, 0) < index}

    await until(lambda: not behind(), lambda: (index, exported_upto(archive)))


def table(archive: Path, node: str, part: str) -> pa.Table:
    files = [
        path / file.name
        for manifest, path in manifests(archive)[node]
        for file in manifest.files
        if file.part == part
    ]
    return pa.concat_tables([pq.read_table(file) for file in files])


def test_nodes_export_the_same(tmp_path: Path) -> None:
    archive = tmp_path / "archive"

    async def scenario() -> None:
        section = ArchiveSection(url=str(archive), range_s=1)
        async with cluster(3, change=with_sections(archive=section)) as nodes:
            leader = await nodes.leader()
            for k in range(5):
                await leader.cluster.propose(OpenClient(f"c{k}", "p", 60_000), ClockTick(1))
            await leader.cluster.propose(AuditMark(1))
            await asyncio.sleep(0)
            await all_exported(nodes, archive)

    run(scenario())
    upto = min(exported_upto(archive).values())
    for part in ("entries", "operations", "queues"):
        tables = [
            table(archive, f"n{k}.1", part).filter(pc.field("index") <= upto) for k in (1, 2, 3)
        ]
        assert tables[0].num_rows
        assert tables[0] == tables[1] == tables[2]
