"""`qm pki`: an authority, certificates of every role, and their renewal."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from qm.api.gate.identity import Role
from qm.cli.main import main

USAGE = 2


def pki(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["pki", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_a_certificate_of_every_role_is_issued_and_renewed(tmp_path: Path, role: str) -> None:
    folder = ("--folder", str(tmp_path))
    pki("init", *folder)
    hosts = ("--host", "10.0.0.1") if role == Role.NODE.value else ()
    pki("issue", *folder, "--role", role, "--days", "3", *hosts, "holder")
    made, key = tmp_path / "holder.pem", tmp_path / "holder.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before, secret = certificate(made), key.read_bytes()
    said = pki("renew", str(made), *folder, "--days", "30").output
    after = certificate(made)
    assert f"{after.not_valid_after_utc:%Y-%m-%d}" in said
    assert after.not_valid_after_utc > before.not_valid_after_utc
    assert after.subject == before.subject
    assert key.read_bytes() == secret


def test_nothing_is_made_twice_or_for_nobody(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    pki("issue", *folder, "--role", "client", "a", exit_code=1)  # there is no authority yet
    pki("init", *folder)
    pki("init", *folder, exit_code=1)
    pki("issue", *folder, "--role", "client", "a")
    pki("issue", *folder, "--role", "client", "a", exit_code=1)
    pki("issue", *folder, "--role", "emperor", "b", exit_code=USAGE)
    pki("renew", str(tmp_path / "b.pem"), *folder, exit_code=1)
