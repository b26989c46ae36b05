"""A certificate authority for tests and benches: keys and certificates of nodes, as files."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from raft.transport.tls import PEER_ROLE, TlsFiles

LASTING = datetime.timedelta(days=7)


class Authority:
    """Signs nodes of one cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        certificate = (
            _builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._name = name
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        node: str,
        *,
        files: str = "",
        uris: Sequence[str] = (PEER_ROLE,),
        names: Sequence[x509.GeneralName] | None = None,
        until: datetime.timedelta = LASTING,
    ) -> TlsFiles:
        """Write key and certificate for the node name `node`; `files` renames the files, `names`
        replaces the alternative names beside `uris`, `until` is counted from now.
        """
        known = [x509.DNSName(node)] if names is None else names
        alternatives = [*known, *map(x509.UniformResourceIdentifier, uris)]
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        certificate = (
            _builder(name, self._name, key.public_key(), until)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = files or node
        made = TlsFiles(self.file, self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def revoke(self, file: Path, *revoked: TlsFiles) -> None:
        """Write the list of what this authority took back."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now)
            .next_update(now + LASTING)
        )
        for files in revoked:
            taken = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(taken.serial_number)
                .revocation_date(now)
                .build()
            )
        signed = builder.sign(self._key, hashes.SHA256())
        fresh = file.with_suffix(".new")
        fresh.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        fresh.replace(file)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    until: datetime.timedelta = LASTING,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=2))
        .not_valid_after(now + until)
    )
