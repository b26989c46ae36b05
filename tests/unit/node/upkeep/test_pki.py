"""Certificates: who they name, what they allow, and what replaces them."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from qm.api.gate.identity import Role
from qm.node.upkeep.pki import PkiRefused, create_authority, ends_at, issue, renew, revoke


def names(path: Path) -> list[object]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [name.value for name in extension.value]


def handshake(authority: Path, certificate: Path, key: Path, name: str) -> None:
    """Shake hands in memory, both sides with the same certificate. Raises ssl.SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
        context.verify_mode = ssl.CERT_REQUIRED
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


def test_a_node_is_known_by_its_name_and_by_its_addresses(tmp_path: Path) -> None:
    authority = create_authority(tmp_path, "test authority")
    certificate, key = issue(tmp_path, "n1", Role.NODE, ["127.0.0.11", "n1.example"])
    assert {str(name) for name in names(certificate)} == {
        "quorate:role/node", "n1", "127.0.0.11", "n1.example",
    }  # fmt: skip
    assert key.stat().st_mode & 0o777 == 0o600
    for name in ("n1", "127.0.0.11", "n1.example"):
        handshake(authority, certificate, key, name)
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        handshake(authority, certificate, key, "n2")


def test_a_caller_has_one_role_and_no_host(tmp_path: Path) -> None:
    create_authority(tmp_path, "test authority")
    for role in (Role.ADMIN, Role.OPERATOR, Role.CLIENT):
        certificate, _ = issue(tmp_path, f"some {role.value}", role)
        assert names(certificate) == [f"quorate:role/{role.value}"]


def test_renewal_keeps_key_and_names_and_extends_the_time(tmp_path: Path) -> None:
    authority = create_authority(tmp_path, "test authority")
    certificate, key = issue(tmp_path, "n1", Role.NODE, ["127.0.0.11"], days=2)
    before, known = ends_at(certificate), names(certificate)
    end = renew(tmp_path, certificate, days=30)
    assert end == ends_at(certificate) > before + timedelta(days=27)
    assert names(certificate) == known
    handshake(authority, certificate, key, "n1")


def test_nothing_is_overwritten_and_strangers_are_not_renewed(tmp_path: Path) -> None:
    create_authority(tmp_path, "test authority")
    certificate, _ = issue(tmp_path, "n1", Role.NODE)
    with pytest.raises(PkiRefused, match="exists"):
        create_authority(tmp_path, "another")
    with pytest.raises(PkiRefused, match="renew it"):
        issue(tmp_path, "n1", Role.NODE)
    with pytest.raises(PkiRefused, match=r"authority\.pem"):
        issue(tmp_path / "empty", "n2", Role.NODE)
    (tmp_path / "authority.key").unlink()
    with pytest.raises(PkiRefused, match="issue where it is kept"):
        renew(tmp_path, certificate)
    with pytest.raises(PkiRefused, match="cannot be a certificate's name"):
        create_authority(tmp_path / "other", "n" * 65)


def test_an_ended_certificate_is_refused(tmp_path: Path) -> None:
    authority = create_authority(tmp_path, "test authority")
    certificate, key = issue(tmp_path, "n1", Role.NODE, days=0)
    assert ends_at(certificate) <= datetime.now(UTC)
    with pytest.raises(ssl.SSLError, match="expired"):
        handshake(authority, certificate, key, "n1")


def test_what_is_revoked_is_listed_for_good(tmp_path: Path) -> None:
    create_authority(tmp_path, "test authority")
    revoked = tmp_path / "revoked.pem"
    assert list(x509.load_pem_x509_crl(revoked.read_bytes())) == []
    first, _ = issue(tmp_path, "alice", Role.CLIENT)
    second, _ = issue(tmp_path, "bob", Role.CLIENT)
    for path in (first, second, first):
        assert revoke(tmp_path, path) == revoked
    listed = x509.load_pem_x509_crl(revoked.read_bytes())
    serials = [
        x509.load_pem_x509_certificate(path.read_bytes()).serial_number for path in (first, second)
    ]
    assert sorted(one.serial_number for one in listed) == sorted(serials)
    create_authority(tmp_path / "other", "another authority")
    with pytest.raises(PkiRefused, match="another authority"):
        revoke(tmp_path / "other", first)


def test_a_caller_cannot_be_reached_under_a_nodes_name(tmp_path: Path) -> None:
    create_authority(tmp_path, "test authority")
    with pytest.raises(PkiRefused, match="only a node"):
        issue(tmp_path, "mallory", Role.CLIENT, ["n1"])
