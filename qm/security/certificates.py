"""X.509 certificates with which people sign [MS-MQMQ 2.2.22], and the keys in them."""

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qm.security.signatures import SIGNING_KEY_MAX_BITS, SIGNING_KEY_MIN_BITS, is_usable
from qm.wire.limits import SENDER_CERT_MAX_BYTES


class UnusableCertificate(Exception):
    """A certificate that nobody can sign with here; the text says why."""


class SignerCertificate(msgspec.Struct, frozen=True):
    """What a certificate says."""

    subject: str
    issuer: str
    not_before_s: int
    """Epoch seconds."""
    not_after_s: int
    key_bits: int


def described(certificate: bytes) -> SignerCertificate:
    """Return what a certificate (X.509, DER) says. Raises UnusableCertificate."""
    found = _loaded(certificate)
    key = _key(found)
    return SignerCertificate(
        found.subject.rfc4514_string(),
        found.issuer.rfc4514_string(),
        int(found.not_valid_before_utc.timestamp()),
        int(found.not_valid_after_utc.timestamp()),
        key.key_size,
    )


def _loaded(certificate: bytes) -> x509.Certificate:
    if not 0 < len(certificate) <= SENDER_CERT_MAX_BYTES:
        raise UnusableCertificate(
            f"{len(certificate)} bytes; a certificate has at most {SENDER_CERT_MAX_BYTES}"
        )
    try:
        return x509.load_der_x509_certificate(certificate)
    except ValueError:
        raise UnusableCertificate("these bytes are not an X.509 certificate in DER") from None


def _key(certificate: x509.Certificate) -> RSAPublicKey:
    try:
        key = certificate.public_key()
    except Exception as error:  # the library raises what its parsers do
        raise UnusableCertificate(f"its key cannot be read: {error}") from None
    if not isinstance(key, RSAPublicKey) or not is_usable(key):
        raise UnusableCertificate(
            f"MSMQ signs with RSA keys of {SIGNING_KEY_MIN_BITS} to {SIGNING_KEY_MAX_BITS} bits"
        )
    return key
