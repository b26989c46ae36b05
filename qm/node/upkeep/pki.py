"""A cluster's own certificate authority: makes, issues, renews and revokes certificates.

A certificate has its holder's name as common name and gives it one role, as a URI among its
alternative names (`qm.api.gate.identity`). A node's also has there its name, which the other nodes
check, and its addresses, which clients check. An authority in PEERS_FOLDER signs only nodes towards
each other, so that no caller's certificate opens what is reserved to nodes.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from qm.api.gate.identity import Role, role_uri

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 398
CLOCK_SKEW: Final = timedelta(hours=1)
"""By how much clocks may differ: a fresh certificate is valid from so long ago."""
AUTHORITY_CERTIFICATE: Final = "authority.pem"
AUTHORITY_KEY: Final = "authority.key"
PEERS_FOLDER: Final = "peers"
"""Folder, within the authority's, of the authority for connections between nodes."""
REVOKED_LIST: Final = "revoked.pem"


class PkiRefused(Exception):
    """The files are not as the command needs them; the text says what to do."""


def create_authority(folder: Path, name: str, *, days: int = AUTHORITY_DAYS) -> Path:
    """Make a certificate authority's files and return its certificate's path.

    Raises PkiRefused when there is one already: replacing it would lock out every node.
    """
    certificate_path = folder / AUTHORITY_CERTIFICATE
    if certificate_path.exists():
        raise PkiRefused(f"{certificate_path} exists: use it, or give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / AUTHORITY_KEY, key)
    _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    _write_revoked(folder, [])  # so that a node can read it from the first day
    return certificate_path


def issue(
    folder: Path, name: str, role: Role, hosts: Sequence[str] = (), *, days: int = CERTIFICATE_DAYS
) -> tuple[Path, Path]:
    """Make `name`.pem and `name`.key, signed by the folder's authority; return their paths.

    `hosts`: DNS names and addresses under which a node is reached; only nodes may have any, since
    a caller trusts the holder of such a name as that node. Raises PkiRefused.
    """
    if hosts and role is not Role.NODE:
        raise PkiRefused(f"only a node has hosts: issue {name!r} without, or as a node")
    certificate_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    if certificate_path.exists():
        raise PkiRefused(f"{certificate_path} exists: renew it, or remove it first")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(role_uri(role))]
    if role is Role.NODE:
        names.append(x509.DNSName(name))
    names += map(_host, hosts)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(folder, _name(name), key.public_key(), names, days)
    _write_key(key_path, key)
    _write(certificate_path, certificate)
    return certificate_path, key_path


def renew(folder: Path, certificate_path: Path, *, days: int = CERTIFICATE_DAYS) -> datetime:
    """Replace a certificate by one for the same key and names; return when it ends.

    Processes that use the file take the new one at their next handshake. Raises PkiRefused.
    """
    old = _read_certificate(certificate_path)
    public_key = old.public_key()
    if not isinstance(public_key, ec.EllipticCurvePublicKey):
        raise PkiRefused(f"{certificate_path} is not of this authority: renew it where it is from")
    names = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    certificate = _sign(folder, old.subject, public_key, names, days)
    _write(certificate_path, certificate)
    return _read_certificate(certificate_path).not_valid_after_utc


def revoke(folder: Path, certificate_path: Path) -> Path:
    """Add a certificate to the folder's list of revoked ones; return the list's path.

    Nodes that have the list in `tls.revoked` or `tls.peer_revoked` refuse it from then on. Raises
    PkiRefused.
    """
    certificate = _read_certificate(certificate_path)
    authority = _read_certificate(folder / AUTHORITY_CERTIFICATE)
    if certificate.issuer != authority.subject:
        raise PkiRefused(f"{certificate_path} is of another authority: revoke it where that is")
    known = _revoked(folder)
    if all(one.serial_number != certificate.serial_number for one in known):
        known.append(
            x509.RevokedCertificateBuilder()
            .serial_number(certificate.serial_number)
            .revocation_date(datetime.now(UTC))
            .build()
        )
    return _write_revoked(folder, known)


def _revoked(folder: Path) -> list[x509.RevokedCertificate]:
    path = folder / REVOKED_LIST
    if not path.exists():
        return []
    try:
        return list(x509.load_pem_x509_crl(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise PkiRefused(f"cannot read the list of revoked certificates {path}: {error}") from error


def _write_revoked(folder: Path, revoked: Iterable[x509.RevokedCertificate]) -> Path:
    authority = _read_certificate(folder / AUTHORITY_CERTIFICATE)
    key = _read_key(folder / AUTHORITY_KEY)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now)
        .next_update(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    for one in revoked:
        builder = builder.add_revoked_certificate(one)
    path = folder / REVOKED_LIST
    _write(path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


def ends_at(certificate_path: Path) -> datetime:
    """Return when a certificate ends. Raises PkiRefused."""
    return _read_certificate(certificate_path).not_valid_after_utc


def _sign(
    folder: Path,
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    names: Iterable[x509.GeneralName],
    days: int,
) -> bytes:
    authority = _read_certificate(folder / AUTHORITY_CERTIFICATE)
    authority_key = _read_key(folder / AUTHORITY_KEY)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(subject, authority.subject, public_key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    except ValueError as error:
        raise PkiRefused(f"{common_name!r} cannot be a certificate's name: {error}") from error


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PkiRefused(f"cannot read the certificate {path}: {error}") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise PkiRefused(
            f"cannot read the authority's key {path}: {error}; issue where it is kept"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiRefused(f"{path} is not the key of an authority that `qm pki init` made")
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, data, mode=0o600)


def _write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file atomically: a running node may read it at any moment."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.replace(path)
