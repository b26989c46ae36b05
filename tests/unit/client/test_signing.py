"""Messages signed in the client, against a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from qm.client.blocking import BlockingClient
from qm.client.errors import ClientError, InvalidArgument, MqError
from qm.client.message import Message, ReceivedMessage
from qm.client.mqac import MSMQApplication, MSMQMessage
from qm.client.signing import AuthenticationLevel, Signer, SigningFailed, new_signer
from qm.pb import control_pb2 as pb
from qm.security.signature_input import SignatureVersion
from qm.security.signatures import verified_version
from qm.wire.codes import ErrorCode
from qm.wire.enums import HashAlgorithm
from tests.conformance.mqac_world import SEND, made, opened, serving
from tests.unit.client.threaded import threaded_node

FIRST, SECOND = r".\private$\first", r".\private$\second"
SIGNER = new_signer("alice", 1024, 30)


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingClient]:
    with threaded_node() as (endpoint, tls), BlockingClient([endpoint], tls=tls) as made:
        for path in (FIRST, SECOND):
            made.call(lambda stubs: stubs.queues.CreateQueue, pb.CreateQueueRequest(path_name=path))
        yield made


def signed(body: bytes, level: int, **more: Any) -> Message:
    return Message(body=body, authentication_level=level, signer=SIGNER, **more)


def version(message: ReceivedMessage) -> SignatureVersion | None:
    security = message.wire.security
    assert security is not None
    key = x509.load_der_x509_certificate(security.sender_cert).public_key()
    assert isinstance(key, RSAPublicKey)
    return verified_version(message.wire, key, range(0x8000, 0x9000))


def taken(client: BlockingClient, path: str) -> ReceivedMessage:
    queue = client.open_queue(path)
    found = queue.receive(10.0)
    queue.close()
    assert found is not None
    return found


@pytest.mark.spec(
    "QB-3.1.7.1.4-02", "MQ-1.1-15", "MQ-2.2.20.6-16", "DM-3.1.1.12-11", "MQ-2.2.20.6-07"
)
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (AuthenticationLevel.SIG10, SignatureVersion.MSMQ_1),
        (AuthenticationLevel.SIG20, SignatureVersion.MSMQ_2),
        (AuthenticationLevel.SIG30, SignatureVersion.MSMQ_2),
        (AuthenticationLevel.ALWAYS, SignatureVersion.MSMQ_2),
    ],
)
def test_a_level_chooses_the_version(
    client: BlockingClient, level: int, expected: SignatureVersion
) -> None:
    client.send(FIRST, signed(b"body", level, label="label", response_queue="DIRECT=OS:x\\y"))
    message = taken(client, FIRST)
    assert version(message) is expected
    security = message.wire.security
    assert security is not None
    assert (security.is_default_provider, security.sender_cert) == (True, SIGNER.certificate)


@pytest.mark.spec("DM-3.1.1.12-11")
@pytest.mark.parametrize(("level", "kind"), [(2, 1), (4, 3), (8, 5), (1, 5)])
def test_each_level_signs_what_has_lists_in_its_own_way(
    client: BlockingClient, level: int, kind: int
) -> None:
    answers = ("DIRECT=OS:x\\y", "DIRECT=OS:x\\z")
    client.send(FIRST, signed(b"body", level, response_queues=answers))
    assert version(taken(client, FIRST)) == kind


@pytest.mark.spec("DM-3.1.1.12-11")
def test_who_does_not_ask_for_a_signature_makes_none(client: BlockingClient) -> None:
    assert Message().authentication_level == AuthenticationLevel.NONE
    client.send(FIRST, Message(body=b"plain"))
    assert taken(client, FIRST).wire.security is None
    with pytest.raises(InvalidArgument):  # a certificate alone asks for nothing
        client.send(FIRST, Message(body=b"able to", signer=SIGNER))


@pytest.mark.spec(
    "QB-3.1.7.1.4-01", "MQ-2.2.20.3-05", "DM-3.1.1.12-21", "MQ-1.1-15", "MQ-2.2.19.3-21"
)
@pytest.mark.parametrize("level", [level for level in AuthenticationLevel if level])
def test_several_destinations_share_a_signature(client: BlockingClient, level: int) -> None:
    client.send([FIRST, SECOND], signed(b"both", level))
    for path in (FIRST, SECOND):
        message = taken(client, path)
        assert version(message) is SignatureVersion.MSMQ_3
        assert message.wire.security is not None
        assert message.wire.security.signature == b""
        assert message.wire.multi_queue_format is not None
        assert message.wire.multi_queue_format.signature
    # Each of the lists alone asks for it too.
    for lists in ({"response_queues": ("DIRECT=OS:x\\y", "DIRECT=OS:x\\z")},):
        client.send(FIRST, signed(b"one", AuthenticationLevel.SIG30, **lists))
        assert version(taken(client, FIRST)) is SignatureVersion.MSMQ_3
        # Not at another level: they are no destinations.
        client.send(FIRST, signed(b"one", AuthenticationLevel.SIG20, **lists))
        assert version(taken(client, FIRST)) is SignatureVersion.MSMQ_2
    # Without any there is none, and Signature is used.
    client.send(FIRST, signed(b"one", level))
    alone = taken(client, FIRST).wire
    assert alone.multi_queue_format is None
    assert alone.security is not None
    assert alone.security.signature
    assert alone.properties.hash_algorithm == HashAlgorithm.SHA512, "unless it is chosen"


@pytest.mark.spec("QB-3.1.7.1.4-02", "AC-3.17.4.1.48-23")
def test_hashes(client: BlockingClient) -> None:
    for algorithm in (0x8003, 0x8004, 0x800C, 0x800E):
        client.send(FIRST, signed(b"x", 4, hash_algorithm=algorithm))
        message = taken(client, FIRST)
        assert message.wire.properties.hash_algorithm == algorithm
        assert version(message) is SignatureVersion.MSMQ_2
        assert message.wire.security is not None
        assert message.wire.security.is_default_provider
    with pytest.raises(MqError):
        client.send(FIRST, signed(b"x", 4, hash_algorithm=0x8001))


@pytest.mark.spec("MQ-2.2.20.6-18", "MQ-2.2.19.3-21")
@pytest.mark.parametrize("level", [level for level in AuthenticationLevel if level])
@pytest.mark.parametrize("paths", [[FIRST], [FIRST, SECOND]])
def test_a_signed_message_brings_its_senders_certificate_and_sha_512(
    client: BlockingClient, level: int, paths: list[str]
) -> None:
    client.send(paths, signed(b"body", level))
    for path in paths:
        wire = taken(client, path).wire
        assert wire.security is not None
        found = x509.load_der_x509_certificate(wire.security.sender_cert)
        assert found == x509.load_der_x509_certificate(SIGNER.certificate)
        assert found.subject.rfc4514_string() == "CN=alice"
        key = found.public_key()
        assert isinstance(key, RSAPublicKey)
        assert wire.properties.hash_algorithm == 0x800E
        # It is what the signature was made with, too.
        assert verified_version(wire, key, [0x800E]) is not None


@pytest.mark.spec("MQ-2.2.19.3-21")
def test_objects_sign_with_sha_512_unless_a_program_chooses() -> None:
    with serving() as service:
        info = made(service)
        sender, reader = opened(info, SEND), opened(info)
        assert MSMQApplication(service).RegisterCertificate() == 0
        for chosen in (None, 0x800C):
            message = MSMQMessage(service)
            message.AuthLevel = AuthenticationLevel.SIG20
            if chosen is not None:
                message.HashAlgorithm = chosen
            message.Send(sender)
            found = reader.Receive(ReceiveTimeout=10_000)
            assert found is not None
            assert found.HashAlgorithm == (chosen or 0x800E)


def test_who_cannot_sign(client: BlockingClient) -> None:
    with pytest.raises(ClientError) as refused:
        client.send(FIRST, Message(authentication_level=4))
    assert isinstance(refused.value, MqError)
    assert refused.value.code == ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED
    with pytest.raises(ClientError, match="sender_id"):
        client.send(FIRST, Message(sender_id=b"somebody"))
    with pytest.raises(ClientError, match="privacy_level"):
        client.send(FIRST, Message(privacy_level=2))


def test_signers_in_files(tmp_path: Path) -> None:
    pem = tmp_path / "signer.pem"
    SIGNER.write(pem)
    assert pem.stat().st_mode & 0o777 == 0o600
    assert Signer.load(pem).certificate == SIGNER.certificate
    bundle = pkcs12.serialize_key_and_certificates(
        b"alice",
        SIGNER._key,  # the bundle of a user's store
        x509.load_der_x509_certificate(SIGNER.certificate),
        None,
        BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "signer.pfx").write_bytes(bundle)
    assert Signer.load(tmp_path / "signer.pfx", b"secret").certificate == SIGNER.certificate
    with pytest.raises(SigningFailed):
        Signer.load(tmp_path / "signer.pfx", b"wrong")
    with pytest.raises(SigningFailed, match="not the certificate's"):
        Signer(new_signer("bob", 1024, 1).certificate, SIGNER._key)
    with pytest.raises(SigningFailed, match="another message"):
        SIGNER.signed(_composed(b"evil"), signed(b"good", 4))


def _composed(body: bytes) -> bytes:
    from tests.unit.model.world import packet

    return packet(0, body=body)
