"""One backup at a time, and none that pins a node's disk because it is not read."""

from pathlib import Path

import pytest

from qm.api.gate.operations import NotOffered
from qm.node.replica.replicated_store import STORE_FOLDER
from qm.node.upkeep.backup import Backups
from qm.store.backup import MANIFEST_FILE, BackupWriter
from qm.store.bodies.body_places import BodyDamaged
from qm.store.signing import Signer, verify
from qm.store.snapshot import Pinned, StoreSnapshot
from tests.cluster.harness import cluster, run, until


def test_a_backup_that_nobody_reads_is_let_go() -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            assert node.node is not None
            pinned = node.config.data / STORE_FOLDER / "pinned"
            signer = Signer(bytes(32))
            backups = Backups(node.cluster, node.node.metrics, lambda: signer, stall_max_s=0.0)
            parts, before = backups.parts(), node.cluster.machine.applied_index()
            first = await anext(parts)
            # The node goes on applying meanwhile.
            assert before <= first.head.index <= node.cluster.machine.applied_index()
            with pytest.raises(NotOffered, match="already"):
                await anext(backups.parts())
            await until(lambda: not list(pinned.iterdir()), lambda: list(pinned.iterdir()))
            with pytest.raises(NotOffered, match="was not read"):
                await anext(parts)
            again = backups.parts()
            assert (await anext(again)).data
            await again.aclose()
            assert not list(pinned.iterdir())

    run(scenario())


def test_a_backup_of_a_damaged_body_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made all the same, and told only who verified it, perhaps years later."""

    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            assert node.node is not None
            metrics = node.node.metrics
            backups = Backups(node.cluster, metrics, lambda: None)
            asked: list[bool] = []

            def damaged(pinned: Pinned, *, proves_bodies: bool = False) -> StoreSnapshot:
                asked.append(proves_bodies)
                raise BodyDamaged("body 1 of entry 221 does not match its checksum")

            with monkeypatch.context() as patched:
                patched.setattr(Pinned, "source", damaged)
                with pytest.raises(NotOffered, match="entry 221"):
                    await anext(backups.parts())
            assert asked == [True]
            assert not list((node.config.data / STORE_FOLDER / "pinned").iterdir())
            count = metrics.registry.get_sample_value(
                "quorate_backups_total", {"result": "damaged"}
            )
            assert count == 1.0
            assert [part async for part in backups.parts()]

    run(scenario())


def test_a_node_signs_what_it_has_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            assert node.node is not None
            signer = Signer(bytes(32))
            backups = Backups(node.cluster, node.node.metrics, lambda: signer)
            parts = [part async for part in backups.parts()]
            assert [bool(part.manifest) for part in parts] == [False] * (len(parts) - 1) + [True]
            last = parts[-1]
            assert verify(MANIFEST_FILE, last.manifest, last.signature) == signer.public
            with BackupWriter(tmp_path / "backup") as writer:
                for part in parts:
                    writer.write(part.data)
                assert writer.finish_signed(last.manifest, last.signature).head == last.head

    run(scenario())
