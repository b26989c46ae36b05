"""Who sent a message, and what says so in it ([MS-MQDMPR] 3.1.1.12, [MS-MQMQ] 2.2.20.6)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

import pytest
from cryptography import x509
from msgspec.structs import replace

from qm.api.gate.identity import principal_sid
from qm.client.message import Message
from qm.client.mqac import MSMQApplication, MSMQMessage, MSMQService
from qm.client.mqac.constants import MQMSGAUTHLEVEL, MQMSGSENDERIDTYPE
from qm.client.signing import new_signer
from qm.security.body_ciphers import session_key
from qm.security.body_encryption import encrypted
from qm.security.providers import Provider
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel, ProviderType
from qm.wire.headers.security_header import (
    FLAG_DE,
    ProviderInfo,
    SecurityHeader,
    write_provider_info,
)
from qm.wire.packets.peek import peek_head, security_header_offset
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.conformance.mqac_world import SEND, made, opened, serving
from tests.unit.edge.security.people import plain


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as found:
        yield found


@pytest.mark.spec("DM-3.1.1.12-42")
def test_the_sender_is_the_caller_unless_nobody_is_to_be_named(service: MSMQService) -> None:
    info = made(service)
    sender, reader = opened(info, SEND), opened(info)
    assert MSMQApplication(service).RegisterCertificate() == 0
    for level, kind in ((0, 1), (0, 0), (MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20, 1)):
        message = MSMQMessage(service)
        assert message.SenderIdType == MQMSGSENDERIDTYPE.MQMSG_SENDERID_TYPE_SID
        assert message.SenderCertificate == b""
        message.SenderIdType, message.AuthLevel = kind, level
        message.Send(sender)
        found = reader.Receive(ReceiveTimeout=1000)
        assert found is not None
        assert found.SenderId == (principal_sid("admin") if kind else b"")
        if level:
            x509.load_der_x509_certificate(found.SenderCertificate)
        else:
            assert found.SenderCertificate == b""


def provider_size(message: UserMessage) -> int:
    """Return ProviderInfoSize as written; it is 0 exactly if DE is set or nothing is proven."""
    raw = write_user_message(message)
    at = security_header_offset(raw, 0, peek_head(raw, 0))
    flags, size = unpack_from("<H10xI", raw, at)
    assert bool(size) is not bool(flags & FLAG_DE)
    return int(size)


@pytest.mark.spec("MQ-2.2.20.6-22", "MQ-2.2.20.6-07")
def test_a_provider_is_named_where_the_default_one_did_not_sign() -> None:
    packet = plain(1)
    private = replace(packet, properties=replace(packet.properties, privacy_level=5))
    aes = EncryptionAlgorithm.AES256
    key = session_key(PrivacyLevel.ADVANCED, aes, bytes(32))
    secret = encrypted(private, key, b"blob")
    assert secret.security is not None
    info = secret.security.provider_info
    assert provider_size(secret) == len(info)
    assert unpack_from("<I", info) == (ProviderType.RSA_AES,)
    assert info[4:].decode("utf-16-le") == Provider.ADVANCED.provider_name + "\0"
    said = Message(body=packet.properties.message_body, body_type=packet.properties.body_type)
    signer = new_signer("alice", 1024, 1)
    said.authentication_level = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20
    raw = signer.signed(write_user_message(packet), said)
    proven = parse_user_message(raw, 0, len(raw))[0]
    assert provider_size(proven) == 0
    # Encrypted as well, it still says who signed it: the default one, or another by its name.
    both = encrypted(replace(proven, properties=private.properties), key, b"blob")
    assert provider_size(both) == 0
    named = write_provider_info(ProviderInfo(ProviderType.RSA_FULL, "Another"))
    by_another = SecurityHeader(signature=b"signed", provider_info=named)
    foreign = encrypted(replace(private, security=by_another), key, b"blob")
    assert foreign.security is not None
    assert foreign.security.provider_info == named
    assert provider_size(foreign) == len(named)
