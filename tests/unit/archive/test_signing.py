"""Whatever says what a node exported is signed, and was so when it appeared."""

import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from qm.archive.checkpoints import (
    CHECKPOINT_NAME,
    CHECKPOINT_SCHEMA,
    Checkpoint,
    checkpoint_folder,
    find_newest,
)
from qm.archive.destination import FolderDestination, SignedDestination
from qm.archive.exported import find_exported
from qm.archive.manifest import MANIFEST_NAME, decode_manifest, encode_manifest, range_folder
from qm.store.effects.effects_log import Exported
from qm.store.signing import SIGNATURE_SUFFIX, Signer, verify
from spark.archive.store import ArchiveStore
from tests.unit.archive.test_resuming import filled
from tests.unit.archive.world import (
    CLUSTER,
    CONFIG,
    IDENTITY,
    Failing,
    Told,
    check_chain,
    export,
    ranges,
    with_destination,
)
from tests.unit.model.world import packet
from tests.unit.store.test_store import arrivals

SIGNER, OTHER = Signer(bytes(32)), Signer(bytes(31) + b"\1")
OFTEN = structs.replace(CONFIG, checkpoint_bytes=1)


def manifests(archive: Path) -> list[Path]:
    names = (MANIFEST_NAME, CHECKPOINT_NAME)
    return sorted(path for path in archive.rglob("*.json") if path.name in names)


def signer_of(path: Path) -> str:
    signature = path.with_name(path.name + SIGNATURE_SUFFIX).read_bytes()
    return verify(path.name, path.read_bytes(), signature)


def test_ranges_and_checkpoints_are_signed(tmp_path: Path) -> None:
    node = filled(tmp_path / "node")
    export(node, tmp_path / "archive", config=OFTEN, signer=SIGNER)
    found = manifests(tmp_path / "archive")
    assert {path.name for path in found} >= {MANIFEST_NAME}
    assert {signer_of(path) for path in found} == {SIGNER.public}
    node.close()


@pytest.mark.parametrize("calls", range(1, 13))
def test_a_manifest_appears_after_its_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    with monkeypatch.context() as patch:
        with_destination(patch, Failing(archive, calls, is_done=True))
        export(node, archive, signer=SIGNER)
    assert all(signer_of(path) == SIGNER.public for path in manifests(archive))
    export(node, archive, signer=SIGNER)
    assert len(ranges(archive)) == len(manifests(archive)) == 3
    node.close()


def test_a_reader_takes_what_a_named_key_signed_and_nothing_else(tmp_path: Path) -> None:
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    export(node, archive, signer=SIGNER)
    path = manifests(archive)[0]
    name = str(path.relative_to(archive))
    node.close()

    def read(*signers: Signer) -> bytes:
        trusted = frozenset(signer.public for signer in signers) or None
        return ArchiveStore(str(archive), trusted).read_signed(name)

    sound = path.read_bytes()
    assert read() == read(SIGNER) == read(SIGNER, OTHER) == sound
    with pytest.raises(OSError, match="was signed by"):
        read(OTHER)
    path.write_bytes(sound.replace(b"n1.1", b"n2.1"))
    with pytest.raises(OSError, match="was changed after it was signed"):
        read(SIGNER)
    path.with_name(path.name + SIGNATURE_SUFFIX).unlink()
    with pytest.raises(OSError, match="has no signature"):
        read(SIGNER)
    assert read() == path.read_bytes()


def put(path: Path, data: bytes, signer: Signer | None) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    if signer is not None:
        name = path.name + SIGNATURE_SUFFIX
        path.with_name(name).write_bytes(signer.sign(path.name, data))


@pytest.mark.parametrize("forger", [None, OTHER], ids=["unsigned", "signed by another"])
def test_a_node_does_not_believe_that_others_exported_for_it(
    tmp_path: Path, forger: Signer | None
) -> None:
    """Who may write to the archive would have it drop its effects, and release its log."""
    node, archive, told = filled(tmp_path / "node"), tmp_path / "archive", Told()
    export(node, archive, config=structs.replace(CONFIG, range_entries=20), signer=SIGNER)
    ((sound, _),) = ranges(archive)
    forged = structs.replace(sound, first=sound.last + 1, last=1 << 60, files=())
    folder = archive / range_folder(CLUSTER, "n1.1", forged.first, forged.last)
    put(folder / MANIFEST_NAME, encode_manifest(forged), forger)
    node.put([arrivals(packet(50))])
    export(node, archive, told, signer=SIGNER)
    assert not folder.exists()
    assert check_chain(archive)[-1] == sound.last + 1
    assert told.value("quorate_archive_failures_total", reason="unsigned")
    node.close()


def test_a_manifest_counts_where_it_was_written(tmp_path: Path) -> None:
    node, archive = filled(tmp_path / "node"), tmp_path / "archive"
    export(node, archive, signer=SIGNER)
    _, source = ranges(archive)[-1]
    copy = archive / range_folder(CLUSTER, "n1.1", 1 << 50, 1 << 60)
    shutil.copytree(source, copy)
    moved = archive / range_folder(CLUSTER, "n2.1", 0, 1).rpartition("/")[0] / source.name
    shutil.copytree(source, moved)
    destination = SignedDestination(FolderDestination(archive), lambda: SIGNER, print)
    last = decode_manifest((source / MANIFEST_NAME).read_bytes()).last
    assert find_exported(destination, IDENTITY, Exported()).upto == last
    other = structs.replace(IDENTITY, node="n2.1")
    assert find_exported(destination, other, Exported()) == Exported()
    assert not copy.exists()
    assert not moved.exists()
    node.close()


def test_a_checkpoint_counts_if_the_cluster_signed_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint(
        schema=CHECKPOINT_SCHEMA,
        cluster=CLUSTER,
        node="n2.1",
        group=1,
        index=1 << 60,
        term=1,
        digest="",
        stream_bytes=0,
        stream_blake3="",
    )
    data = msgspec.json.encode(checkpoint)
    destination = SignedDestination(FolderDestination(tmp_path), lambda: SIGNER, print)
    put(tmp_path / checkpoint_folder(CLUSTER, 1 << 60, "n2.1") / CHECKPOINT_NAME, data, OTHER)
    assert find_newest(destination, IDENTITY) is None
    put(tmp_path / checkpoint_folder(CLUSTER, 1 << 61, "n2.1") / CHECKPOINT_NAME, data, SIGNER)
    assert find_newest(destination, IDENTITY) is None, "it was copied there"
    signed = SIGNER.sign(CHECKPOINT_NAME, data)
    path = tmp_path / checkpoint_folder(CLUSTER, 1 << 60, "n2.1") / CHECKPOINT_NAME
    path.with_name(path.name + SIGNATURE_SUFFIX).write_bytes(signed)
    assert find_newest(destination, IDENTITY) == checkpoint
