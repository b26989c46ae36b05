"""Whatever says what a node exported is signed, and was so when it appeared."""

from pathlib import Path

import pytest
from msgspec import structs

from qm.archive.checkpoints import CHECKPOINT_NAME
from qm.archive.manifest import MANIFEST_NAME
from qm.store.signing import SIGNATURE_SUFFIX, Signer, verify
from spark.archive.store import ArchiveStore
from tests.unit.archive.test_resuming import filled
from tests.unit.archive.world import CONFIG, Failing, export, ranges, with_destination

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
