"""Accounts in a file of a node."""

import os
from pathlib import Path

import pytest

from qm.api.gate.identity import principal_sid
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import User, UsersFile, UsersFileUnusable, described, read_users
from qm.security.sid import ADMINISTRATORS
from tests.unit.rpc.users import write_users

HASH = nt_hash("S3cret!")
ALICE = User("alice", HASH.hex(), groups=("S-1-5-32-544",))


@pytest.mark.spec("RP-OUR-auth-01", "RP-OUR-auth-05", "RP-NLMP-3.2.5.1.2-10")
def test_accounts_of_a_file_are_valid_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.toml"
    accounts = UsersFile(path)
    assert accounts.find("alice", "") is None
    bob = User("bob", nt_hash("x").hex(), domain="CORP", enabled=False)
    write_users(path, [ALICE, bob])
    found = accounts.find("ALICE", "ANY")
    assert found is not None
    assert found.nt_hash == HASH
    assert found.sids == (principal_sid("alice"), ADMINISTRATORS)
    disabled = accounts.find("bob", "corp")
    assert disabled is not None
    assert not disabled.is_enabled
    assert accounts.find("bob", "OTHER") is None
    assert HASH.hex() not in described(ALICE)
    write_users(path, [bob])
    assert accounts.find("alice", "") is None
    # Also when an older file comes back, and when there is none any more.
    write_users(path, [ALICE])
    os.utime(path, ns=(0, 0))
    assert accounts.find("alice", "") is not None
    assert accounts.find("bob", "CORP") is None
    path.unlink()
    assert accounts.find("alice", "") is None
    path.touch(0o600)
    # What is wrong with a hash is told without it.
    for wrong in (HASH.hex()[:-2], HASH.hex() + "00", HASH.hex() + "zz", HASH.hex() + '"'):
        path.write_text(f'[[user]]\nname = "carol"\nnt_hash = "{wrong}"\n')
        assert accounts.find("carol", "") is None
        assert str(path) in accounts.problem
        assert accounts.problem in caplog.text
        assert HASH.hex()[:8] not in caplog.text


@pytest.mark.spec("RP-OUR-auth-03", "RP-OUR-auth-05")
def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    write_users(path, [ALICE])
    for mode in (0o640, 0o604, 0o644, 0o660, 0o606):
        path.chmod(mode)
        accounts = UsersFile(path)
        assert accounts.find("alice", "") is None
        assert "chmod 600" in accounts.problem
        with pytest.raises(UsersFileUnusable):
            read_users(path)
    path.chmod(0o600)
    assert UsersFile(path).find("alice", "") is not None
    # A node that runs sees that its mode has changed, though nothing else has.
    assert accounts.find("alice", "") is not None
    assert accounts.problem == ""
    path.chmod(0o640)
    assert accounts.find("alice", "") is None
    assert "chmod 600" in accounts.problem
    path.chmod(0o600)
    path.write_text('[[user]]\nname = "a"\nnt_hash = "00"\n')
    with pytest.raises(UsersFileUnusable):
        read_users(path)
    assert accounts.find("a", "") is None
    assert UsersFile(None).find("a", "") is None
