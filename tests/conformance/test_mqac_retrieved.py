"""What a message that was read has of the one that is stored [MC-MQAC 3.17.3]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from qm.client.message import Message
from qm.client.mqac import MSMQDestination, MSMQMessage, MSMQQueueInfo, MSMQService
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import MQSHARE
from qm.client.mqac.manager import FIRST
from qm.client.signing import Signer, new_signer
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.conformance.mqac_reads import arguments, takes
from tests.conformance.mqac_world import PEEK, RECEIVE, SEND, Way, made, opened, serving

CONNECTOR = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
ANSWERS = "DIRECT=OS:nowhere\\PRIVATE$\\a,DIRECT=OS:nowhere\\PRIVATE$\\b"
READS = {
    "Receive": 0, "Receive_v1": 0, "Peek": 0, "Peek_v1": 0, "ReceiveCurrent": 0,
    "ReceiveCurrent_v1": 0, "PeekCurrent": 0, "PeekCurrent_v1": 0, "PeekNext": 1,
    "PeekNext_v1": 1, "ReceiveByLookupId": 1, "ReceiveByLookupIdAllowPeek": 1,
    "ReceiveNextByLookupId": 2, "ReceivePreviousByLookupId": 0, "ReceiveFirstByLookupId": 0,
    "ReceiveLastByLookupId": 2, "PeekByLookupId": 1, "PeekNextByLookupId": 2,
    "PeekPreviousByLookupId": 0, "PeekFirstByLookupId": 0, "PeekLastByLookupId": 2,
}  # fmt: skip
"""Which of three messages a method reads; LookupId is the second one's, the cursor at the first."""


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def put(k: int) -> dict[str, Any]:
    """What is put into the k-th message: nothing is as in a new one."""
    return {
        "Body": f"body {k}", "Label": f"label {k}", "AppSpecific": 1_000 + k, "Priority": 5,
        "Delivery": 1, "Trace": 1, "Journal": 3, "Ack": 8 + k, "PrivLevel": 1,
        "HashAlgorithm": 0x8003, "EncryptAlgorithm": 0x6602, "MsgClass": 0x2100 + k,
        "MaxTimeToReachQueue": 500 + k, "MaxTimeToReceive": 9_000 + k,
        "Extension": bytes([k, 0, 255]), "CorrelationId": bytes([k]) + bytes(range(19)),
    }  # fmt: skip


def sent(service: MSMQService, info: MSMQQueueInfo, answers: MSMQQueueInfo) -> list[MSMQMessage]:
    """Three messages, as their sender has them."""
    several = MSMQDestination(service)
    several.FormatName = ANSWERS
    messages = []
    for k in range(3):
        message = MSMQMessage(service)
        for name, value in (put(k) | {"ConnectorTypeGuid": CONNECTOR}).items():
            setattr(message, name, value)
        message.ResponseQueueInfo = message.AdminQueueInfo = answers
        message.ResponseDestination = several
        message.Send(opened(info, SEND))
        messages.append(message)
    return messages


@pytest.mark.spec("AC-3.17.3-02", "AC-3.17.4.1.42-01", "AC-3.17.4.1.42-02")
@pytest.mark.parametrize("name", READS)
def test_each_method_takes_every_value_from_the_message_that_it_read(
    service: MSMQService, name: str
) -> None:
    answers = made(service)
    for wants_destination in (False, True):
        info = made(service)
        messages = sent(service, info, answers)
        queue, at = opened(info, RECEIVE), READS[name]
        if name.startswith("PeekNext") and not takes(name, "LookupId"):
            queue.PeekCurrent(ReceiveTimeout=0)
        wants = {"WantDestinationQueue": True} if wants_destination else {}
        found = getattr(queue, name)(**arguments(name, messages[1].LookupId, **wants))
        expected = put(at) | {
            "Class": 0x2100 + at, "Id": messages[at].Id, "LookupId": messages[at].LookupId,
            "SourceMachineGuid": messages[at].SourceMachineGuid, "SenderIdType": 1,
            "BodyLength": 12,
        }  # fmt: skip
        assert {each: getattr(found, each) for each in expected} == expected
        assert (found.ResponseQueueInfo.FormatName, found.AdminQueueInfo.FormatName) == (
            answers.FormatName,
        ) * 2
        assert found.ResponseDestination.FormatName == ANSWERS
        assert found.Destination is None
        for time in (found.SentTime, found.ArrivedTime):
            assert abs((datetime.now(UTC) - time).total_seconds()) < 300
        if wants_destination:
            assert found.DestinationQueueInfo.FormatName == info.FormatName
            assert found.DestinationQueueInfo is not found.DestinationQueueInfo
        else:
            assert found.DestinationQueueInfo is None


class Changing:
    """Who signs a packet and then changes it."""

    def __init__(self, signer: Signer, change: Callable[[UserMessage], UserMessage]) -> None:
        self._signer = signer
        self._change = change

    @property
    def certificate(self) -> bytes:
        return self._signer.certificate

    def signed(self, packet: bytes, message: Message) -> bytes:
        raw = self._signer.signed(packet, message)
        return write_user_message(self._change(parse_user_message(raw, 0, len(raw))[0]))


def signing(service: MSMQService, *signers: Any) -> MSMQService:
    """The same cluster, for a program that has these signers."""
    assert isinstance(service.manager, ClusterManager)
    return MSMQService(ClusterManager(service.manager.client, signers))


@pytest.mark.spec("AC-3.17.3-07")
@pytest.mark.parametrize("soap", [SoapHeader("<h/>", None), SoapHeader(None, "<b/>")])
def test_parts_for_srmp_are_not_taken_from_the_message(
    service: MSMQService, soap: SoapHeader
) -> None:
    signer = Changing(new_signer("x", 1024, 1), lambda packet: structs.replace(packet, soap=soap))
    program = signing(service, signer)
    way, message = Way(program), MSMQMessage(program)
    message.AuthLevel = 4
    message.Send(way.sender)
    stored = program.manager.open_queue(way.info.FormatName or "", PEEK, MQSHARE.MQ_DENY_NONE)
    kept = stored.look(FIRST, 0)
    stored.close()
    assert kept is not None
    assert kept.wire.soap == soap
    found = way.next()
    assert found.Signature
    found.SenderCertificate = b""
    found.Send(way.sender)  # refused if it had one
    assert not way.next().Signature


@pytest.mark.spec("AC-3.17.3-07")
def test_a_certificate_is_not_kept_to_sign_with(service: MSMQService) -> None:
    first, second = (new_signer(name, 1024, 1) for name in "ab")
    program = signing(service, first, second)
    way, message = Way(program), MSMQMessage(program)
    message.AuthLevel, message.SenderCertificate = 8, second.certificate
    message.AttachCurrentSecurityContext()
    message.Send(way.sender)
    found = way.next()
    assert (found.AuthLevel, found.SenderCertificate) == (0, second.certificate)
    found.SenderCertificate = b""
    found.AuthLevel = 4
    found.Send(way.sender)
    assert way.next().SenderCertificate == first.certificate  # the internal one
