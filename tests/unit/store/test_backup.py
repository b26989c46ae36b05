"""A backup is accepted when its checks pass; otherwise the failing file is named."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qm.model.values import commands
from qm.store.backup import (
    BACKUP_FORMAT,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    STATE_FILE,
    BackupError,
    BackupHead,
    BackupWriter,
    check_files,
    encode_backup,
    read_backup,
    read_signed,
    unpack_backup,
    verify_backup,
    write_backup,
)
from qm.store.digest import digest_bytes
from qm.store.signing import Signer
from tests.unit.model.world import HOST, OWN, packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

MESSAGES, RECEIVED = 40, 15
SIGNER = Signer(bytes(32))
TRUSTED = {SIGNER.public}


def head_of(node: Node, **changes: object) -> BackupHead:
    applied = node.store.applied
    fields: dict[str, object] = {
        "cluster": "00" * 16,
        "index": applied.index,
        "term": applied.term,
        "digest": digest_bytes(applied.digest).hex(),
        "state_version": 1,
        "created_ms": 1,
        "source": "n1",
        "build": "test",
    }
    return BackupHead(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return backup_of(tmp_path)


def backup_of(path: Path, **changes: object) -> Path:
    """Return the folder of a backup of a queue with messages."""
    path.mkdir(exist_ok=True)
    node = Node(path / "node")
    node.put(setup_commands())
    node.put([arrivals(*(packet(number, body=bytes(3_000)) for number in range(1, MESSAGES + 1)))])
    node.put([receive(2, RECEIVED), commands.Confirm("c", RECEIVED + 1)])
    source = node.store.snapshot(node.store.applied.index)
    write_backup(path / "backup", source, head_of(node, **changes), SIGNER)
    source.close()
    node.close()
    return path / "backup"


def test_a_backup_proves_itself(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    found = verify_backup(folder, None, lambda done, total: told.append((done, total)), TRUSTED)
    assert found.signer == SIGNER.public
    assert (found.queue_manager, found.computer_name) == (OWN, HOST)
    assert found.messages == MESSAGES - RECEIVED
    assert found.size_bytes == (folder / STATE_FILE).stat().st_size
    assert told[-1] == (found.size_bytes, found.size_bytes)


def test_a_pinned_state_is_that_of_its_moment(tmp_path: Path) -> None:
    """Its stream is made later, in another thread, while messages come and go."""
    node = Node(tmp_path / "node")
    node.put(setup_commands())
    node.put([arrivals(*(packet(number) for number in range(1, MESSAGES + 1)))])
    head, pinned = head_of(node), node.store.pin()
    node.put([receive(2, MESSAGES), commands.Confirm("c", MESSAGES + 1)])
    node.put([arrivals(packet(MESSAGES + 1))])
    with ThreadPoolExecutor(1) as pool:
        source = pool.submit(pinned.source).result()
    write_backup(tmp_path / "backup", source, head)
    source.close()
    assert verify_backup(tmp_path / "backup").messages == MESSAGES
    assert not list((tmp_path / "node" / "store" / "pinned").iterdir())
    node.close()


@pytest.mark.parametrize("part", range(8))
def test_a_changed_byte_is_found(folder: Path, part: int) -> None:
    path = folder / STATE_FILE
    data = bytearray(path.read_bytes())
    data[len(data) * part // 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackupError, match=r"state\.qsnap: its SHA-256"):
        verify_backup(folder)


def test_a_changed_body_is_found_without_its_hash(folder: Path) -> None:
    """Even with a matching hash: positions have their own checksum."""
    path = folder / STATE_FILE
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    (path.parent / MANIFEST_FILE).write_bytes(manifest_of(folder, sha256_of(path)))
    with pytest.raises(BackupError, match="changed after it was signed"):
        verify_backup(folder)
    (folder / SIGNATURE_FILE).unlink()
    with pytest.raises(BackupError, match="has no signature"):
        verify_backup(folder, trusted=TRUSTED)
    with pytest.raises(BackupError, match="does not match its checksum"):
        verify_backup(folder)


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(folder: Path, sha256: str) -> bytes:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["files"][0]["sha256"] = sha256
    return json.dumps(manifest).encode()


def test_a_short_or_missing_file_is_named(folder: Path) -> None:
    path = folder / STATE_FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BackupError, match=r"state\.qsnap: \d+ bytes instead of \d+"):
        check_files(folder, read_backup(folder))
    path.unlink()
    with pytest.raises(BackupError, match="No such file"):
        check_files(folder, read_backup(folder))


def test_a_backup_is_taken_from_those_who_may_sign_it(folder: Path) -> None:
    other = Signer(bytes(31) + b"\1")
    assert read_signed(folder, TRUSTED | {other.public}).signer == SIGNER.public
    with pytest.raises(BackupError, match="was signed by"):
        read_signed(folder, {other.public})
    manifest = (folder / MANIFEST_FILE).read_bytes()
    (folder / SIGNATURE_FILE).write_bytes(other.sign(MANIFEST_FILE, manifest))
    assert read_signed(folder, None).signer == other.public
    with pytest.raises(BackupError, match="was signed by"):
        verify_backup(folder, trusted=TRUSTED)
    (folder / SIGNATURE_FILE).write_bytes(b"x" * 10_000)
    with pytest.raises(BackupError, match="is damaged"):
        read_backup(folder)


def test_a_description_of_other_bytes_is_not_kept(tmp_path: Path) -> None:
    head = BackupHead("00" * 16, 1, 1, "00" * 16, 1, 1, "n1", "test")
    manifest = encode_backup(head, 4, hashlib.sha256(b"sent").hexdigest())
    with BackupWriter(tmp_path / "backup") as writer:
        writer.write(b"SENT")
        with pytest.raises(BackupError, match="other bytes arrived"):
            writer.finish_signed(manifest, SIGNER.sign(MANIFEST_FILE, manifest))
    assert not list((tmp_path / "backup").iterdir())


def test_the_head_must_be_the_states(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="the state's digest is"):
        verify_backup(backup_of(tmp_path / "a", digest="00" * 16))
    with pytest.raises(BackupError, match="the stream holds entry"):
        verify_backup(backup_of(tmp_path / "b", index=1))


def test_what_is_no_backup_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(BackupError, match="no backup"):
        read_backup(tmp_path)
    manifest = folder / MANIFEST_FILE
    for text, reason in (
        ("{", "damaged"),
        ("[]", "damaged"),
        (" " * (1 << 20) + "{}", "longer"),
        (manifest.read_text().replace(f'"format": {BACKUP_FORMAT}', '"format": 99'), "format 99"),
    ):
        (tmp_path / MANIFEST_FILE).write_text(text)
        with pytest.raises(BackupError, match=reason):
            read_backup(tmp_path)


@pytest.mark.parametrize("name", ["/etc/hostname", "../other", "sub/file", "..", ""])
def test_a_manifest_opens_no_path_outside_its_folder(folder: Path, name: str) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["files"].append({"name": name, "size_bytes": 1, "sha256": "00"})
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    (folder / SIGNATURE_FILE).unlink()
    with pytest.raises(BackupError, match="not a file of its own folder"):
        verify_backup(folder)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, folder: Path) -> None:
    state = folder / STATE_FILE
    state.rename(tmp_path / "elsewhere")
    state.symlink_to(tmp_path / "elsewhere")
    backup = read_backup(folder)
    with pytest.raises(BackupError, match=STATE_FILE):
        check_files(folder, backup)
    with pytest.raises(OSError, match="symbolic links"):
        unpack_backup(folder, backup, tmp_path / "store")


def test_a_state_of_a_newer_build_is_not_restored(tmp_path: Path) -> None:
    folder = backup_of(tmp_path, state_version=1_000)
    with pytest.raises(BackupError, match="newer release"):
        unpack_backup(folder, read_backup(folder), tmp_path / "store")


def test_a_backup_that_is_broken_off_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    with BackupWriter(folder) as writer:
        writer.write(b"half")
    assert not list(folder.iterdir())
    (folder / "other").touch()
    with pytest.raises(BackupError, match="not empty"):
        BackupWriter(folder)
