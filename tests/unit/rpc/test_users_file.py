"""Accounts in a file, and `qm user` that writes it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from qm.api.gate.identity import principal_sid
from qm.cli.main import main
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import UsersFile, UsersFileUnusable, read_users
from qm.security.sid import ADMINISTRATORS


def run(path: Path, *words: str) -> str:
    result = CliRunner().invoke(main, ["user", *words, "--file", str(path)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.spec("RP-OUR-auth-01", "RP-OUR-auth-05")
def test_accounts_are_added_and_valid_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    accounts = UsersFile(path)
    assert accounts.find("alice", "") is None
    shown = run(path, "add", "alice", "--password", "S3cret!", "--group", "S-1-5-32-544")
    found = accounts.find("ALICE", "ANY")
    assert found is not None
    assert found.nt_hash == nt_hash("S3cret!")
    assert found.sids == (principal_sid("alice"), ADMINISTRATORS)
    run(path, "add", "bob", "--password", "x", "--domain", "CORP", "--disabled")
    bob = accounts.find("bob", "corp")
    assert bob is not None
    assert not bob.is_enabled
    assert accounts.find("bob", "OTHER") is None
    shown += run(path, "list")
    assert found.nt_hash.hex() not in shown
    run(path, "remove", "alice")
    assert accounts.find("alice", "") is None


@pytest.mark.spec("RP-OUR-auth-03")
def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    run(path, "add", "alice", "--password", "S3cret!")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    accounts = UsersFile(path)
    assert accounts.find("alice", "") is None
    assert "chmod 600" in accounts.problem
    with pytest.raises(UsersFileUnusable):
        read_users(path)
    path.chmod(0o600)
    path.write_text('[[user]]\nname = "a"\nnt_hash = "00"\n')
    with pytest.raises(UsersFileUnusable):
        read_users(path)
