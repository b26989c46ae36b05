"""An archive that real nodes write while clients send and receive and their leader dies."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from qm.archive.manifest import MANIFEST_NAME, Manifest, decode_manifest
from qm.archive.schema import SCHEMAS, Part
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.verdict import Verdict
from qm.load.workload import Target, Workload
from qm.model.values.commands import AuditMark
from qm.node.config.schema import MSMQ_PORT, ArchiveSection
from tests.cluster.harness import Harness, until, with_sections
from tests.unit.client.world import OTHER, PLAIN, TRANSACTIONAL, Clients, clients

SETTLE_S = 60.0
QUEUES = (PLAIN, OTHER, TRANSACTIONAL)


def manifests(archive: Path) -> dict[str, list[tuple[Manifest, Path]]]:
    """Return each node's ranges, in order."""
    found: dict[str, list[tuple[Manifest, Path]]] = {}
    for path in sorted(archive.glob(f"*/ranges/*/*/{MANIFEST_NAME}")):
        manifest = decode_manifest(path.read_bytes())
        found.setdefault(manifest.node, []).append((manifest, path.parent))
    return found


def exported_upto(archive: Path) -> dict[str, int]:
    """Return the last index of each node."""
    return {node: ranges[-1][0].last for node, ranges in manifests(archive).items()}


def table(archive: Path, node: str, part: Part) -> pa.Table:
    """Return what a node exported of a part."""
    files = [
        pq.read_table(path / file.name)
        for manifest, path in manifests(archive)[node]
        for file in manifest.files
        if file.part == part.value
    ]
    return pa.concat_tables(files) if files else SCHEMAS[part].empty_table()


async def all_exported(nodes: Harness, archive: Path) -> int:
    """Wait until every node that is up exported what all have applied by now; return the index."""
    index = await nodes.agree()
    names = {node.cluster.config.node for node in nodes.up}

    def behind() -> set[str]:
        lasts = exported_upto(archive)
        return {name for name in names if lasts.get(name, 0) < index}

    await until(lambda: not behind(), lambda: (index, exported_upto(archive)))
    return index


def prompt(
    archive: Path, *, range_entries: int = 65_536, checkpoint_mb: int = 256
) -> ArchiveSection:
    """Return a configuration that exports at once: nodes of a test share one loop, so that each of
    them looks as busy as all together.
    """
    return ArchiveSection(
        url=str(archive),
        range_s=1,
        busy_wait_s=0,
        range_entries=range_entries,
        checkpoint_mb=checkpoint_mb,
    )


async def mark(nodes: Harness, number: int) -> None:
    """Have all nodes prove their state."""
    leader = await nodes.leader()
    await leader.cluster.propose(AuditMark(number))


async def archived_load(archive: Path, folder: Path) -> Verdict:
    """Send and receive over the death of the leader, which comes back; leave an archive of it.

    `folder`: for the clients' history.
    """
    section = prompt(archive, range_entries=150, checkpoint_mb=1)
    async with clients(3, with_sections(archive=section)) as made:
        nodes = made.harness
        senders = [[(node.host, MSMQ_PORT)] for node in await nodes.followers()]
        async with Run(_plan(made, senders, folder)) as run:
            await run.send(1.0)
            await mark(nodes, 1)
            run.fault("the leader dies")
            dead = await made.kill_leader()
            await run.send(1.0)
            await nodes.leader()
            await nodes.restart(dead)
            await run.send(0.5)
            assert await run.settle(SETTLE_S)
            verdict = await run.verdict()
        await mark(nodes, 2)
        await all_exported(nodes, archive)
    return verdict


def _plan(made: Clients, senders: list[list[tuple[str, int]]], folder: Path) -> Plan:
    return Plan(
        workload=Workload(
            targets=(
                Target(f"DIRECT=OS:{PLAIN}"),
                Target(f"DIRECT=OS:{OTHER}"),
                Target(f"DIRECT=OS:{TRANSACTIONAL}", is_transactional=True),
            ),
            seed=3,
            priorities=(0, 3, 7),
            body_bytes=(2_000, 8_000),
        ),
        rate_per_s=150.0,
        senders=senders,
        receivers=[
            Reading(PLAIN, Mode.STREAM),
            Reading(OTHER, Mode.TWO_PHASE, return_every=5),
            Reading(TRANSACTIONAL, Mode.TRANSACTION, return_every=3),
        ],
        endpoints=made.endpoints,
        tls=made.tls,
        reconnect_s=0.05,
        history=folder / "history.jsonl",
    )
