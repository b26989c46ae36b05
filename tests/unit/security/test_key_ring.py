"""The ring of private keys that is sealed, and the lists that are published of it."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from qm.security.key_ring import KeyPairs, RingError, read_key_ring, write_key_ring
from qm.security.providers import Provider
from qm.wire.enums import PublicKeyAlgorithm
from qm.wire.structures.public_key import parse_mqds_public_keys
from tests.unit.edge.security.people import private_key

SMALL, LARGE = private_key(1024), private_key(2048)
PAIRS = KeyPairs(
    {Provider.BASE: SMALL, Provider.ENHANCED: LARGE, Provider.ADVANCED: LARGE},
    {Provider.ENHANCED: SMALL},
)


def test_a_ring_keeps_each_key_of_each_generation() -> None:
    ring = read_key_ring(write_key_ring({2: PAIRS, 1: KeyPairs({Provider.BASE: SMALL}, {})}))
    assert list(ring) == [2, 1]
    assert ring[2].exchange[Provider.ADVANCED].private_numbers() == LARGE.private_numbers()
    assert ring[2].signing[Provider.ENHANCED].private_numbers() == SMALL.private_numbers()
    assert not ring[1].signing


@pytest.mark.spec("MQ-2.2.1-05")
def test_published_lists_name_provider_purpose_and_key() -> None:
    encoded = PAIRS.exchange_list()
    keys, end = parse_mqds_public_keys(encoded, 0, len(encoded))
    assert end == len(encoded)
    assert [key.provider_name for key in keys] == [one.provider_name for one in PAIRS.exchange]
    assert {key.key.algorithm for key in keys} == {PublicKeyAlgorithm.RSA_KEYX}
    assert [key.key.bit_length for key in keys] == [1024, 2048, 2048]
    signing, _ = parse_mqds_public_keys(PAIRS.signing_list(), 0, len(PAIRS.signing_list()))
    assert [key.key.algorithm for key in signing] == [PublicKeyAlgorithm.RSA_SIGN]


def test_the_one_key_of_an_older_release_serves_the_exchange_of_two_providers() -> None:
    secret = LARGE.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    pairs = read_key_ring(secret)[1]
    assert set(pairs.exchange) == {Provider.ENHANCED, Provider.ADVANCED}
    assert not pairs.signing


def _elliptic() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "secret",
    [
        b"",
        b"\x03",
        b"\x02",
        b"\x02\xc1",
        b"\x30\x03\x02\x01\x00",
        b"\x02\x81\x01\x92\x81\x01\xc4\x00\x80",
    ],
)
def test_damaged_rings_are_refused(secret: bytes) -> None:
    with pytest.raises(RingError):
        read_key_ring(secret)


def test_keys_of_other_algorithms_are_refused() -> None:
    with pytest.raises(RingError):
        read_key_ring(_elliptic())
