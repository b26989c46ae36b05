from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.structures.user_certificate import (
    USER_CERTIFICATES_MAX,
    UserCertificate,
    certificate_digest,
    parse_user_certificate,
    parse_user_certificates,
    write_user_certificate,
    write_user_certificates,
)
from tests.unit.wire.structures.codec_check import check_codec, check_refused, value_or_error

sixteen = st.binary(min_size=16, max_size=16)
certificates = st.builds(UserCertificate, sixteen, sixteen, st.binary(max_size=40))


@given(certificates)
def test_a_certificate_reads_back(certificate: UserCertificate) -> None:
    raw = (
        certificate.digest
        + certificate.identifier
        + len(certificate.certificate).to_bytes(4, "little")
        + certificate.certificate
    )
    check_codec(parse_user_certificate, write_user_certificate, certificate, raw)


@given(st.lists(certificates, max_size=4).map(tuple))
def test_certificates_read_back(many: tuple[UserCertificate, ...]) -> None:
    raw = len(many).to_bytes(4, "little") + b"".join(map(write_user_certificate, many))
    check_codec(parse_user_certificates, write_user_certificates, many, raw)


@given(st.binary(max_size=80))
def test_any_bytes_end_in_certificates_or_the_protocol_error(raw: bytes) -> None:
    for data in (raw, b"\x01\0\0\0" + raw):
        many = value_or_error(parse_user_certificates, data)
        if not isinstance(many, ProtocolError):
            assert data.startswith(write_user_certificates(many))


def test_the_digest_is_the_md5_of_the_certificate() -> None:
    assert certificate_digest(b"certificate") == md5(b"certificate").digest()


def test_counts_and_lengths_are_checked_before_they_are_trusted() -> None:
    entry = UserCertificate(bytes(16), bytes(16), b"")
    many = (entry,) * USER_CERTIFICATES_MAX
    raw = write_user_certificates(many)
    assert parse_user_certificates(raw, 0, len(raw)) == (many, len(raw))
    over = (USER_CERTIFICATES_MAX + 1).to_bytes(4, "little") + raw[4:] + raw[4:40]
    assert check_refused(parse_user_certificates, over).field.endswith("CertificateCount")
    with pytest.raises(ValueOutOfRange):
        write_user_certificates((*many, entry))
    long = bytes(32) + b"\xff\xff\xff\xff" + bytes(8)
    assert check_refused(parse_user_certificate, long).field.endswith("CertificateLength")


@pytest.mark.parametrize(
    "certificate",
    [
        UserCertificate(bytes(15), bytes(16), b""),
        UserCertificate(bytes(16), bytes(17), b""),
        UserCertificate(bytes(16), bytes(16), bytes(0x40_0001)),
    ],
)
def test_a_value_without_an_encoding_is_refused(certificate: UserCertificate) -> None:
    with pytest.raises(ValueOutOfRange):
        write_user_certificate(certificate)
