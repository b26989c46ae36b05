"""A user's signing certificates: MQUSERSIGNCERTS [MS-MQMQ 2.2.21], MQUSERSIGNCERT [2.2.22]."""

from hashlib import md5
from struct import Struct
from typing import Final

import msgspec

from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.bounds import Buffer, take, truncated
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.limits import PACKET_SIZE_MAX_BYTES

_COUNT: Final = Struct("<I")
_HEAD: Final = Struct("<16s16sI")
_SECTION: Final = "MS-MQMQ 2.2.21"
_SECTION_CERTIFICATE: Final = "MS-MQMQ 2.2.22"

DIGEST_SIZE_BYTES: Final = 16
USER_CERTIFICATES_MAX: Final = 1024
"""Certificates of one user; no number is specified."""
USER_CERTIFICATE_MAX_BYTES: Final = PACKET_SIZE_MAX_BYTES
"""One encoded certificate; it must fit into a packet that it signs."""


class UserCertificate(msgspec.Struct, frozen=True, gc=False):
    """MQUSERSIGNCERT: one registered certificate [MS-MQMQ 2.2.22]."""

    digest: bytes
    """MD5 of `certificate`, 16 bytes; `certificate_digest` computes it."""
    identifier: Guid
    """Assigned at registration of the certificate, 16 raw bytes."""
    certificate: bytes
    """X.509, as encoded."""


def certificate_digest(certificate: bytes) -> bytes:
    """Return the 16 bytes by which users' certificates are looked up; it proves nothing."""
    return md5(certificate, usedforsecurity=False).digest()


def parse_user_certificate(buffer: Buffer, offset: int, end: int) -> tuple[UserCertificate, int]:
    """Read one MQUSERSIGNCERT; checking its digest is left to the reader."""
    start = offset + _HEAD.size
    if start > end:
        raise truncated(offset, _HEAD.size, end, "MQUSERSIGNCERT", _SECTION_CERTIFICATE)
    digest, identifier, size = _HEAD.unpack_from(buffer, offset)
    stop = start + size
    if size > USER_CERTIFICATE_MAX_BYTES or stop > end:
        raise ProtocolError(
            offset + 32,
            "MQUSERSIGNCERT.CertificateLength",
            _SECTION_CERTIFICATE,
            f"{size} bytes; {min(end - start, USER_CERTIFICATE_MAX_BYTES)} are possible",
        )
    return UserCertificate(digest, identifier, take(buffer, start, stop)), stop


def write_user_certificate(certificate: UserCertificate) -> bytes:
    """Return the bytes of one MQUSERSIGNCERT."""
    sizes = len(certificate.digest), len(certificate.identifier), len(certificate.certificate)
    if sizes[:2] != (DIGEST_SIZE_BYTES, GUID_SIZE_BYTES) or sizes[2] > USER_CERTIFICATE_MAX_BYTES:
        raise ValueOutOfRange(
            "MQUSERSIGNCERT",
            _SECTION_CERTIFICATE,
            f"digest, identifier and certificate of {sizes} bytes",
        )
    head = _HEAD.pack(certificate.digest, certificate.identifier, sizes[2])
    return head + certificate.certificate


def parse_user_certificates(
    buffer: Buffer, offset: int, end: int
) -> tuple[tuple[UserCertificate, ...], int]:
    """Read an MQUSERSIGNCERTS: the value of PROPID_U_SIGN_CERT."""
    at = offset + _COUNT.size
    if at > end:
        raise truncated(offset, _COUNT.size, end, "MQUSERSIGNCERTS", _SECTION)
    (count,) = _COUNT.unpack_from(buffer, offset)
    if count > USER_CERTIFICATES_MAX:
        raise ProtocolError(
            offset,
            "MQUSERSIGNCERTS.CertificateCount",
            _SECTION,
            f"{count} certificates; {USER_CERTIFICATES_MAX} are allowed",
        )
    certificates = []
    for _ in range(count):
        certificate, at = parse_user_certificate(buffer, at, end)
        certificates.append(certificate)
    return tuple(certificates), at


def write_user_certificates(certificates: tuple[UserCertificate, ...]) -> bytes:
    """Return the bytes of an MQUSERSIGNCERTS."""
    if len(certificates) > USER_CERTIFICATES_MAX:
        raise ValueOutOfRange(
            "MQUSERSIGNCERTS.CertificateCount",
            _SECTION,
            f"{len(certificates)} certificates; {USER_CERTIFICATES_MAX} are allowed",
        )
    return _COUNT.pack(len(certificates)) + b"".join(map(write_user_certificate, certificates))
