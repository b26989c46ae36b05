"""Signing of messages: the private key stays in the client's process.

The queue manager composes the packet, because only it knows how names appear in it; the client
signs what the packet says and sends it as it is ([MS-MQQB] 3.1.7.1.4).
"""

from datetime import UTC, datetime, timedelta
from enum import IntEnum
from os import O_CREAT, O_EXCL, O_WRONLY, fdopen
from os import open as open_file
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from cryptography.x509.oid import NameOID

from qm.client.errors import MqError
from qm.client.message import Message
from qm.security.hashes import UnsupportedHash
from qm.security.signature_input import SignatureVersion
from qm.security.signatures import is_usable, sign
from qm.wire.codes import ErrorCode
from qm.wire.headers.security_header import SENDER_ID_NONE, SecurityHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message

COMMON_NAME_MAX_CHARS: Final = 64
"""ub-common-name of X.520."""
_EXPONENT: Final = 65537
_CLOCKS_DIFFER_BY: Final = timedelta(minutes=5)
_FILE_MODE: Final = 0o600


class AuthenticationLevel(IntEnum):
    """How a message is signed (MQMSG_AUTH_LEVEL, [MC-MQAC] 2.2.2.16)."""

    NONE = 0
    ALWAYS = 1
    """As SIG30."""
    SIG10 = 2
    SIG20 = 4
    SIG30 = 8


class SigningFailed(Exception):
    """A message or a key with which nothing can be signed; the text says why."""


class Signer:
    """A user's certificate with its private key."""

    def __init__(self, certificate: bytes, key: RSAPrivateKey) -> None:
        """`certificate`: X.509, DER. Raises SigningFailed if the two do not belong together."""
        self._certificate = certificate
        self._key = key
        try:
            public = x509.load_der_x509_certificate(certificate).public_key()
        except ValueError:
            raise SigningFailed("the certificate is not X.509 in DER") from None
        if public != key.public_key():
            raise SigningFailed("the private key is not the certificate's")
        if not is_usable(key.public_key()):
            raise SigningFailed(f"a key of {key.key_size} bits cannot sign messages of MSMQ")

    @staticmethod
    def load(file: Path, password: bytes | None = None) -> "Signer":
        """Return the signer in a file: PKCS#12, or PEM with both certificate and key.

        Raises SigningFailed, OSError.
        """
        raw = file.read_bytes()
        try:
            if b"-----BEGIN" in raw:
                key = load_pem_private_key(raw, password)
                found = x509.load_pem_x509_certificate(raw)
            else:
                bundle = load_pkcs12(raw, password)
                if bundle.key is None or bundle.cert is None:
                    raise SigningFailed(f"{file}: a certificate and its private key are needed")
                key, found = bundle.key, bundle.cert.certificate
        except (ValueError, TypeError) as error:
            raise SigningFailed(f"{file}: {error}") from None
        if not isinstance(key, RSAPrivateKey):
            raise SigningFailed(f"{file}: MSMQ signs with RSA keys alone")
        return Signer(found.public_bytes(Encoding.DER), key)

    @property
    def certificate(self) -> bytes:
        """X.509, DER."""
        return self._certificate

    def write(self, file: Path) -> None:
        """Write certificate and key to a new file, PEM, that only its owner reads."""
        key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        found = x509.load_der_x509_certificate(self.certificate).public_bytes(Encoding.PEM)
        with fdopen(open_file(file, O_WRONLY | O_CREAT | O_EXCL, _FILE_MODE), "wb") as target:
            target.write(key + found)

    def signed(self, packet: bytes, message: Message) -> bytes:
        """Return a composed packet with its signature.

        Raises SigningFailed for a packet that is not this message's, MqError for a hash that no
        signature is made with.
        """
        composed, _ = parse_user_message(packet, 0, len(packet))
        _check(composed, message)
        security = composed.security or SecurityHeader(SENDER_ID_NONE)
        security = msgspec.structs.replace(security, sender_cert=self.certificate)
        version = version_of(composed, message.authentication_level)
        lists = composed.multi_queue_format
        try:
            signature = sign(composed, version, self._key)
        except UnsupportedHash as error:
            raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, str(error)) from None
        if version is SignatureVersion.MSMQ_3:
            assert lists is not None, "version 3.0 signs what has the header"
            lists = msgspec.structs.replace(lists, signature=signature)
        else:
            security = msgspec.structs.replace(
                security, signature=signature, is_default_provider=True
            )
        return write_user_message(
            msgspec.structs.replace(composed, security=security, multi_queue_format=lists)
        )


def new_signer(name: str, bits: int, days: int) -> Signer:
    """Return a signer with a new key of `bits` and a self-signed certificate for `days` days."""
    key = generate_private_key(_EXPONENT, bits)
    common_name = name[:COMMON_NAME_MAX_CHARS]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER_BY)
        .not_valid_after(now + timedelta(days=days))
        .sign(key, SHA256())
    )
    return Signer(made.public_bytes(Encoding.DER), key)


def version_of(message: UserMessage, level: int) -> SignatureVersion:
    """Return the list of fields that a level signs in a message (MQ-A18).

    What has a list of destinations is signed as 3.0 at every level ([MS-MQQB] 3.1.7.1.4), and at
    SIG30 also what has other lists ([MS-MQDMPR] 3.1.1.12); everything else as 2.0, or as 1.0.
    """
    lists = message.multi_queue_format
    is_30 = level in (AuthenticationLevel.ALWAYS, AuthenticationLevel.SIG30)
    if lists is not None and (lists.destination or is_30):
        return SignatureVersion.MSMQ_3
    if level == AuthenticationLevel.SIG10:
        return SignatureVersion.MSMQ_1
    return SignatureVersion.MSMQ_2


def _check(composed: UserMessage, message: Message) -> None:
    """Sign nothing that the caller did not say."""
    properties = composed.properties
    is_same = (
        properties.message_body == message.body
        and (properties.label or "") == message.label
        and properties.body_type == message.body_type
        and properties.application_tag == message.application_tag
        and properties.extension_data == message.extension
        and properties.privacy_level == message.privacy_level
    )
    if not is_same:
        raise SigningFailed("the queue manager composed another message than it was given")
