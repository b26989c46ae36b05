"""Sealed keys and the disk reserve."""

import sys
from pathlib import Path

import pytest

from qm.store.reserve import DiskLevel, DiskReserve
from qm.store.sealing import SealingError, key_from_command, key_from_file, seal, unseal
from raft.log.disk import DiskDirectory

KEY, NONCE = bytes(range(32)), bytes(12)


def test_only_the_right_key_and_label_open_a_seal() -> None:
    sealed = seal(KEY, NONCE, b"secret", b"signing")
    assert b"secret" not in sealed
    assert unseal(KEY, sealed, b"signing") == b"secret"
    for key, data, label in (
        (KEY[::-1], sealed, b"signing"),
        (KEY, sealed, b"encryption"),
        (KEY, sealed[:-1] + bytes([sealed[-1] ^ 1]), b"signing"),
        (KEY, b"\x02" + sealed[1:], b"signing"),
        (KEY, sealed[:20], b"signing"),
        (KEY, b"", b"signing"),
    ):
        with pytest.raises(SealingError):
            unseal(key, data, label)
    with pytest.raises(ValueError, match="nonce"):
        seal(KEY, b"short", b"", b"")


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), KEY.hex().encode() + b"\n"])
def test_a_key_from_a_file_or_a_command(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    assert key_from_file(path) == KEY
    program = f"import sys; sys.stdout.buffer.write({content!r})"
    assert key_from_command([sys.executable, "-c", program]) == KEY


def test_keys_that_cannot_be_had(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"z" * 64)
    with pytest.raises(SealingError, match="64 hexadecimal"):
        key_from_file(path)
    with pytest.raises(SealingError, match="cannot read"):
        key_from_file(tmp_path / "absent")
    with pytest.raises(SealingError, match="ended with 3"):
        key_from_command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(SealingError, match="failed"):
        key_from_command([str(tmp_path / "no-such-program")])


class Disk(DiskDirectory):
    """A real folder on a disk whose free space the test decides."""

    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free


def test_the_reserve_is_held_given_up_and_taken_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    reserve = DiskReserve(disk, 1 << 20)
    assert (tmp_path / "reserve").stat().st_size == 1 << 20
    assert reserve.level() is DiskLevel.ROOM
    disk.free = (1 << 20) - 1
    assert reserve.level() is DiskLevel.REFUSING
    reserve.give_up()
    assert reserve.level() is DiskLevel.EXHAUSTED
    assert not (tmp_path / "reserve").exists()
    assert not reserve.hold()
    disk.free = 1 << 30
    assert reserve.hold()
    assert DiskReserve(disk, 1 << 20).level() is DiskLevel.ROOM
