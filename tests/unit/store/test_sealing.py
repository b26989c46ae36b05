"""Sealed keys, and where the sealing key comes from."""

import sys
from pathlib import Path

import pytest

from qm.store.sealing import SealingError, key_from_command, key_from_file, seal, unseal

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
