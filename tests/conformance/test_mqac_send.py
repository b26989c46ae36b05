"""MSMQMessage.Send over a real node [MC-MQAC 3.17.4.1.48]."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from struct import pack
from typing import Any

import pytest

from qm.client.client import Access
from qm.client.message import ReceivedMessage
from qm.client.mqac import (
    MSMQApplication,
    MSMQDestination,
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import (
    E_INVALIDARG,
    MQCERT_REGISTER,
    MQMSGAUTHLEVEL,
    MQMSGCLASS,
    MQMSGPRIVLEVEL,
    MQPRIVLEVEL,
    MQTRANSACTION,
)
from qm.client.signing import new_signer
from qm.names.guid import guid_text
from qm.pb import control_pb2
from qm.security.sid import sid_from_text
from qm.wire.codes import ErrorCode
from tests.conformance import mqac_reads as reads
from tests.conformance.mqac_world import (
    SEND,
    Way,
    ask,
    fails,
    info_of,
    made,
    opened,
    serving,
)

E = ErrorCode
EXPIRY_WAIT_MS = 20_000
CONNECTOR = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
CLOCK_S = 20.0
WANTS = "WantConnectorType"
SIGNATURE_BYTES = 256
"""Of a key of 2,048 bits, which internal certificates have."""


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


@pytest.fixture
def way(service: MSMQService) -> Way:
    return Way(service)


# What is filled in -----------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.4.1.48-01")
def test_send_wants_a_queue_or_a_destination(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.MsgClass = 1  # refused, too, but later
    for wrong in (None, way.info, "queue"):
        with fails(E_INVALIDARG):
            message.Send(wrong)  # type: ignore[arg-type]
    message = MSMQMessage(service)
    destination = MSMQDestination(service)
    destination.FormatName = way.info.FormatName or ""
    for target in (way.sender, destination):
        message.Send(target)
        way.next()


@pytest.mark.spec("AC-3.17.4.1.48-05")
def test_what_a_send_fills_in(way: Way, service: MSMQService) -> None:
    assert isinstance(service.manager, ClusterManager)
    signer = new_signer("somebody", 1024, 1)
    message = MSMQMessage(MSMQService(ClusterManager(service.manager.client, [signer])))
    message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20
    owner = ask(
        service,
        lambda s: s.queues.GetAcl,
        control_pb2.GetAclRequest(queue=control_pb2.QueueName(name=way.info.FormatName or "")),
    ).owner_sid
    found = way.through(message, WantDestinationQueue=True)
    assert found.SenderId == bytes(sid_from_text(owner))
    assert found.SenderCertificate == signer.certificate
    for each in (message, found):
        assert each.SourceMachineGuid == guid_text(service.manager.identifier)
        assert each.Class == MQMSGCLASS.MQMSG_CLASS_NORMAL
        assert each.DestinationQueueInfo is not None
        assert each.DestinationQueueInfo.FormatName == way.info.FormatName
        assert each.SentTime is not None
    assert found.Id == message.Id != b""
    assert abs((message.SentTime - found.SentTime).total_seconds()) < CLOCK_S
    # All of it is filled in again, also in what was read.
    for sent in (message, found):
        identifier, time = sent.Id, sent.SentTime
        if sent is found:
            sent.AuthLevel, sent.SenderCertificate = 0, b""
        again = way.through(sent)
        assert again.Id == sent.Id != identifier
        assert sent.SentTime > time
    report = MSMQMessage(service)
    report.ConnectorTypeGuid, report.MsgClass = CONNECTOR, 1
    read = way.through(report)
    assert read.Class == 1
    assert way.through(read).Class == read.Class == MQMSGCLASS.MQMSG_CLASS_NORMAL


def names_of_destination(message: MSMQMessage) -> tuple[str | None, str | None]:
    """The names in Destination and in DestinationQueueInfo."""
    destination, info = message.Destination, message.DestinationQueueInfo
    return (
        destination.FormatName if isinstance(destination, MSMQDestination) else None,
        info.FormatName if info is not None else None,
    )


@pytest.mark.spec("AC-3.17.4.1.48-18", "AC-3.17.4.1.48-19", "DM-3.1.1.12-02")
def test_a_send_gives_a_new_id_and_names_the_destination(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    ids = []
    for _ in range(3):
        message.Send(way.sender)
        ids.append(message.Id)
        assert way.next().Id == message.Id
    assert len(set(ids)) == 3
    # An OBJECTID: the queue manager's own GUID, then a number that it gives once.
    assert {len(each) for each in ids} == {20}
    assert {each[:16] for each in ids} == {service.manager.identifier}
    info = message.DestinationQueueInfo
    assert info is not None
    assert info.FormatName == way.info.FormatName
    other = made(service)
    destination = MSMQDestination(service)
    destination.FormatName = f"{way.info.FormatName},{other.FormatName}"
    message.Body = "both"
    message.Send(destination)
    second = opened(other).Receive(ReceiveTimeout=0)
    assert second is not None
    first = way.next()
    assert first.Body == second.Body == "both"
    assert first.Id == second.Id == message.Id
    assert isinstance(message.Destination, MSMQDestination)
    assert message.Destination.FormatName == destination.FormatName
    # It is the name as it was put, of whichever form.
    direct = f"Direct=os:quorate\\{(way.info.PathName or '').partition(chr(92))[2]}"
    for name in (direct, way.info.FormatName or ""):
        destination.FormatName = name
        for target in (destination, opened(info_of(service, name=name), SEND)):
            message.Send(target)
            assert way.next().Id == message.Id
            assert names_of_destination(message) == (None, name)
    several = f"{direct},{other.FormatName}"
    destination.FormatName = several
    for target in (destination, opened(info_of(service, name=several), SEND)):
        message.Send(target)
        assert names_of_destination(message) == (several, None)


@pytest.mark.spec("AC-2.2.2.9-03")
def test_what_ends_in_its_queue_is_told_by_its_class(service: MSMQService) -> None:
    admin = made(service)
    told = opened(admin)

    def expire(info: MSMQQueueInfo) -> None:
        assert info.FormatName

    def purge(info: MSMQQueueInfo) -> None:
        opened(info).Purge()

    for end, number in ((MSMQQueueInfo.Delete, 0xC000), (purge, 0xC001), (expire, 0xC002)):
        message, info = MSMQMessage(service), made(service)
        message.Ack, message.AdminQueueInfo = 8, admin
        message.MaxTimeToReceive = 1 if end is expire else -1
        message.Send(opened(info, SEND))
        end(info)
        found = told.Receive(ReceiveTimeout=EXPIRY_WAIT_MS)
        assert found is not None
        assert (found.Class, found.CorrelationId) == (number, message.Id)


@pytest.mark.spec("AC-3.17.4.1.48-16", "AC-3.17.4.1.48-20", "MQ-2.2.19.2-07")
def test_a_send_says_where_and_when(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for _ in range(2):  # each send says it anew
        before = datetime.now(UTC)
        message.Send(way.sender)
        assert message.SentTime is not None
        assert before <= message.SentTime <= datetime.now(UTC)
    assert message.SourceMachineGuid == guid_text(service.manager.identifier)
    found = way.next()
    assert found.SourceMachineGuid == message.SourceMachineGuid
    assert found.SentTime is not None
    assert abs((found.SentTime - message.SentTime).total_seconds()) < 300


@pytest.mark.spec("AC-3.17.4.1.48-16", "AC-3.17.4.1.48-18", "AC-3.17.4.1.48-20")
def test_so_does_one_in_a_transaction(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    ids: list[bytes] = []
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    message = MSMQMessage(service)
    for how in (transaction, transaction, MQTRANSACTION.MQ_SINGLE_MESSAGE):
        before = datetime.now(UTC)
        message.Send(way.sender, how)
        assert message.SentTime is not None
        assert before <= message.SentTime <= datetime.now(UTC)
        assert message.SourceMachineGuid == guid_text(service.manager.identifier)
        ids.append(message.Id)
    transaction.Commit()
    assert len(set(ids)) == 3
    assert {way.next().Id for _ in ids} == {*ids}


@pytest.mark.spec("AC-3.17.4.1.48-17")
def test_a_class_is_kept_for_connectors_alone(service: MSMQService) -> None:
    way, other = Way(service), Way(service)
    message = MSMQMessage(service)
    message.ConnectorTypeGuid = CONNECTOR
    message.MsgClass = MQMSGCLASS.MQMSG_CLASS_ACK_RECEIVE
    found = way.through(message)
    assert (message.Class, found.Class) == (0x4000, 0x4000)
    # Read without its connector and sent again, it is an ordinary message.
    assert other.through(found).Class == MQMSGCLASS.MQMSG_CLASS_NORMAL
    assert found.Class == MQMSGCLASS.MQMSG_CLASS_NORMAL


@pytest.mark.spec("AC-3.17.4.1.48-25", "AC-3.17.4.1.48-26", "AC-3.17.4.1.48-27", "AC-4.9-01")
def test_a_send_goes_through_what_is_open(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    info = MSMQQueueInfo(service)
    info.FormatName = way.info.FormatName or ""
    queue = opened(info, SEND)
    message.Send(queue)
    assert way.next().Id == message.Id
    queue.Close()
    with fails(E.MQ_ERROR_INVALID_HANDLE):
        message.Send(queue)
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        message.Send(way.reader)
    unopened = MSMQDestination(service)
    unopened.FormatName = way.info.FormatName or ""
    message.Send(unopened)  # opens it
    assert unopened.IsOpen
    way.info.Quota = 1
    way.info.Update()
    message.Body = bytes(4_000)
    with fails(E.MQ_ERROR_INSUFFICIENT_RESOURCES):
        for _ in range(3):
            message.Send(way.sender)


@pytest.mark.spec("AC-3.17.4.1.48-27")
def test_what_a_full_queue_manager_and_an_expired_message_answer() -> None:
    with serving() as service:
        way = Way(service)
        message = MSMQMessage(service)
        message.Body = bytes(4_000)
        # One whose time is over is sent all the same, and not there.
        message.MaxTimeToReachQueue = message.MaxTimeToReceive = 0
        message.Send(way.sender)
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            way.reader.Peek(ReceiveTimeout=0)
        message.MaxTimeToReachQueue = message.MaxTimeToReceive = -1
        changes = {"queue_manager_quota": control_pb2.Value(number=2)}
        request = control_pb2.SetQueueManagerRequest(changes=changes)
        ask(service, lambda s: s.queues.SetQueueManager, request)
        with fails(E.MQ_ERROR_INSUFFICIENT_RESOURCES):
            message.Send(way.sender)
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            way.reader.Peek(ReceiveTimeout=0)


# What connectors put ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MsgClass", 1),
        ("SenderId", b"sid"),
        ("DestinationSymmetricKey", b"key"),
        ("Signature", b"signature"),
        ("AuthenticationProviderName", "provider"),
    ],
)
@pytest.mark.spec("AC-3.17.4.1.48-02")
def test_what_connectors_alone_may_put(
    way: Way, service: MSMQService, name: str, value: Any
) -> None:
    message = MSMQMessage(service)
    message.Send(way.sender)
    for put in (value, getattr(MSMQMessage(service), name)):  # whatever the value is
        setattr(message, name, put)
        for _ in range(2):
            with fails(E.MQ_ERROR_MISSING_CONNECTOR_TYPE):
                message.Send(way.sender)
        message = MSMQMessage(service)
    # A connector may; what the data plane does not carry is refused for that reason (AC-A55).
    setattr(message, name, value)
    message.ConnectorTypeGuid = CONNECTOR
    if name in ("MsgClass", "AuthenticationProviderName"):
        message.Send(way.sender)
    else:
        with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
            message.Send(way.sender)


BOTH = ("AuthenticationProviderType", "AuthenticationProviderName")


@pytest.mark.spec(
    "AC-3.17.4.1.48-03", "AC-3.17.4.1.60-01", "AC-3.17.4.1.61-01", "AC-3.17.4.1.62-01",
    "AC-3.17.4.1.63-01",
)  # fmt: skip
def test_a_provider_has_a_type_and_a_name(way: Way, service: MSMQService) -> None:
    name = "AuthenticationProviderName"
    assert MSMQMessage(service).AuthenticationProviderType == 1
    for put, is_good in (
        ({"AuthenticationProviderType": 5}, True),
        ({name: "provider"}, True),
        ({"AuthenticationProviderType": 5, name: "provider"}, True),
        ({name: "provider", "AuthenticationProviderType": 5}, True),
        ({"AuthenticationProviderType": None}, False),
        ({name: None}, False),
        ({name: ""}, False),
        ({"AuthenticationProviderType": None, name: None}, True),
    ):
        message = MSMQMessage(service)
        message.ConnectorTypeGuid = CONNECTOR
        wanted = {property_name: getattr(message, property_name) for property_name in BOTH} | put
        for property_name, value in put.items():
            setattr(message, property_name, value)
        # What was not put keeps its value.
        shown = {property_name: getattr(message, property_name) for property_name in BOTH}
        assert shown == wanted | {name: wanted[name] or ""}
        if is_good:
            message.Send(way.sender)
        else:
            with fails(E.MQ_ERROR_INSUFFICIENT_PROPERTIES):
                message.Send(way.sender)
    alone = MSMQMessage(service)
    alone.AuthenticationProviderType = None
    with fails(E.MQ_ERROR_INSUFFICIENT_PROPERTIES):
        alone.Send(way.sender)


@pytest.mark.spec("AC-3.17.4.1.62-02", "AC-3.17.4.1.63-02")
def test_provider_names(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for name in ("Base", "Enhanced"):
        full = f"Microsoft {name} Cryptographic Provider, v1.0"
        message.AuthenticationProviderName = full
        assert message.AuthenticationProviderName == full
        message.ConnectorTypeGuid = CONNECTOR
        way.through(message)
    message.AuthenticationProviderName = None
    assert message.AuthenticationProviderName == ""


@pytest.mark.spec(
    "AC-3.17.4.1.56-01", "AC-3.17.4.1.57-01", "AC-3.17.4.1.58-01", "AC-3.17.4.1.59-01",
    "AC-3.17.4.1.64-01",
)  # fmt: skip
def test_connector_properties_are_kept_and_ask_for_a_connector(
    way: Way, service: MSMQService
) -> None:
    for name in ("DestinationSymmetricKey", "Signature", "SenderId"):
        message = MSMQMessage(service)
        assert getattr(message, name) == b""
        setattr(message, name, b"its own " + name.encode())
        assert getattr(message, name) == b"its own " + name.encode()
        with fails(E.MQ_ERROR_MISSING_CONNECTOR_TYPE):
            message.Send(way.sender)
        # Not carried yet, so not dropped either.
        message.ConnectorTypeGuid = CONNECTOR
        with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
            message.Send(way.sender)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        way.reader.Receive(ReceiveTimeout=0)


def test_what_would_not_be_done_is_refused(way: Way, service: MSMQService) -> None:
    for name, value in (
        ("SoapHeader", "<h/>"), ("SoapBody", "<b/>"), ("SenderCertificate", b"der"),
    ):  # fmt: skip
        message = MSMQMessage(service)
        setattr(message, name, value)
        with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
            message.Send(way.sender)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        way.reader.Receive(ReceiveTimeout=0)


def beside(way: Way) -> ReceivedMessage:
    """The next message, past the objects."""
    manager = way.service.manager
    assert isinstance(manager, ClusterManager)
    queue = manager.client.open_queue(way.info.FormatName or "", Access.PEEK)
    found = queue.peek(1.0)
    queue.close()
    assert found is not None
    return found


@pytest.mark.spec("AC-3.17.4.1.48-14", "AC-3.17.1-01", "AC-3.17.4.1.58-01")
def test_messages_are_signed_with_a_certificate_whose_key_is_here(
    way: Way, service: MSMQService
) -> None:
    manager = service.manager
    message = MSMQMessage(service)
    message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_ALWAYS
    with fails(E.MQ_ERROR_CERTIFICATE_NOT_PROVIDED):
        message.Send(way.sender)
    assert MSMQApplication(service).RegisterCertificate() == 0
    kept = MSMQApplication(service).RegisterCertificate(
        MQCERT_REGISTER.MQCERT_REGISTER_IF_NOT_EXIST
    )
    assert kept == E.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
    first = manager.signer(b"")
    assert first is not None
    message.AttachCurrentSecurityContext()
    assert MSMQApplication(service).RegisterCertificate() == 0
    for each, signer in ((message, first), (MSMQMessage(service), manager.signer(b""))):
        each.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_ALWAYS
        each.Send(way.sender)
        packet = beside(way).packet
        found = way.reader.Receive(ReceiveTimeout=1000)
        assert signer is not None
        assert found is not None
        assert found.SenderCertificate == signer.certificate
        assert len(found.Signature) == SIGNATURE_BYTES
        assert found.Signature in packet, "as it stands there"
    # One that was put comes before the one of the context.
    assert isinstance(manager, ClusterManager)
    attached, put = (new_signer(name, 1024, 1) for name in ("attached", "put"))
    message = MSMQMessage(MSMQService(ClusterManager(manager.client, [attached, put])))
    message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_ALWAYS
    message.AttachCurrentSecurityContext()
    for certificate, wanted in ((b"", attached), (put.certificate, put), (b"", attached)):
        message.SenderCertificate = certificate
        assert way.through(message).SenderCertificate == wanted.certificate


@pytest.mark.spec("AC-3.17.4.1.49-03", "AC-3.17.4.1.87-03", "AC-3.17.4.1.44-01", "AC-3.17.1-01")
def test_what_is_attached_signs_later_sends(way: Way, service: MSMQService) -> None:
    assert isinstance(service.manager, ClusterManager)
    internal, other = (new_signer(name, 1024, 1) for name in ("internal", "other"))
    signing = MSMQService(ClusterManager(service.manager.client, [internal, other]))
    for attach in ("AttachCurrentSecurityContext", "AttachCurrentSecurityContext2"):
        for put, cached in ((b"", internal), (other.certificate, other)):
            message = MSMQMessage(signing)
            message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20
            message.SenderCertificate = put
            getattr(message, attach)()
            message.SenderCertificate = b""
            for _ in range(2):  # it lives as long as the object
                assert way.through(message).SenderCertificate == cached.certificate
            # What the message has itself comes first.
            message.SenderCertificate = other.certificate
            assert way.through(message).SenderCertificate == other.certificate
            message.SenderCertificate = b""
            assert way.through(message).SenderCertificate == cached.certificate
    # It is the internal one of then, whatever is the internal one later.
    messages = [MSMQMessage(signing), MSMQMessage(signing)]
    for message in messages:
        message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20
    messages[0].AttachCurrentSecurityContext()
    messages[1].AttachCurrentSecurityContext2()
    MSMQApplication(signing).RegisterCertificate()
    newer = signing.manager.signer(b"")
    assert newer is not None
    for message in messages:
        assert way.through(message).SenderCertificate == internal.certificate
    message = MSMQMessage(signing)
    message.AuthLevel = MQMSGAUTHLEVEL.MQMSG_AUTH_LEVEL_SIG20
    assert way.through(message).SenderCertificate == newer.certificate != internal.certificate


@pytest.mark.spec("AC-2.2.2.7-01")
def test_a_queue_says_whether_bodies_are_encrypted(way: Way, service: MSMQService) -> None:
    plain, base, enhanced = MQMSGPRIVLEVEL
    for level, taken in (
        (MQPRIVLEVEL.MQ_PRIV_LEVEL_NONE, [plain]),
        (MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL, [plain, base, enhanced]),
        (MQPRIVLEVEL.MQ_PRIV_LEVEL_BODY, [base, enhanced]),
    ):
        way.info.PrivLevel = level
        way.info.Update()
        for asked in MQMSGPRIVLEVEL:
            message = MSMQMessage(service)
            message.PrivLevel = asked
            if asked in taken:
                assert way.through(message).PrivLevel == asked
            else:
                with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
                    message.Send(way.sender)


@pytest.mark.spec("AC-3.17.4.1.49-04", "AC-3.17.4.1.87-04")
def test_the_security_context_changes_no_property(service: MSMQService) -> None:
    assert MSMQApplication(service).RegisterCertificate() == 0  # there is one to attach
    for attach in ("AttachCurrentSecurityContext", "AttachCurrentSecurityContext2"):
        for certificate, sender in ((b"", b""), (b"der", b"a SID")):
            message = MSMQMessage(service)
            if certificate:
                message.SenderCertificate, message.SenderId = certificate, sender
            getattr(message, attach)()
            assert (message.SenderCertificate, message.SenderId) == (certificate, sender)


def test_certificate_and_sender(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.SenderCertificate = b"der"
    assert message.SenderCertificate == b"der"
    message.SenderId = b"a SID"
    assert message.SenderId == b"a SID"


@pytest.mark.spec(
    "AC-3.17.4.1.53-01", "AC-3.17.4.1.53-02", "AC-3.17.4.1.54-01", "AC-3.17.4.1.54-02"
)
def test_a_connector_is_named_in_braces_and_if_wanted(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    digits = CONNECTOR[1:-1]
    no_guids = (
        digits, "", "{}", CONNECTOR[:-1], CONNECTOR + " ", "{x}", "nothing",
        f"({digits})", f"{{{digits}", f"[{digits}}}", digits.replace("-", ""),
        CONNECTOR.replace("-", ""), CONNECTOR.replace("A-0B", "A0-B"), CONNECTOR.replace("F", "G"),
        f"{{{digits}1}}", f"{{{digits[1:]}}}", f"{{{digits.replace('-', ' ')}}}",
    )  # fmt: skip
    for kept in ("{00000000-0000-0000-0000-000000000000}", CONNECTOR):
        assert message.ConnectorTypeGuid == kept
        for wrong in no_guids:
            with fails(0xC00E_0018):
                message.ConnectorTypeGuid = wrong
            assert message.ConnectorTypeGuid == kept
        message.ConnectorTypeGuid = CONNECTOR.lower()
    assert message.ConnectorTypeGuid == CONNECTOR
    assert way.through(message, WantConnectorType=True).ConnectorTypeGuid == CONNECTOR
    unwanted = way.through(message).ConnectorTypeGuid
    assert unwanted == "{00000000-0000-0000-0000-000000000000}"


READS = (
    "Receive", "ReceiveCurrent", "ReceiveByLookupId", "ReceiveByLookupIdAllowPeek",
    "ReceiveNextByLookupId", "ReceivePreviousByLookupId", "ReceiveFirstByLookupId",
    "ReceiveLastByLookupId", "Peek", "PeekCurrent", "PeekNext", "PeekByLookupId",
    "PeekNextByLookupId", "PeekPreviousByLookupId", "PeekFirstByLookupId", "PeekLastByLookupId",
)  # fmt: skip


@pytest.mark.spec("AC-3.17.4.1.53-02")
@pytest.mark.parametrize("name", READS)
def test_each_read_gives_a_connector_that_it_asked_for(service: MSMQService, name: str) -> None:
    none = "{00000000-0000-0000-0000-000000000000}"
    cases: list[tuple[dict[str, bool], str]] = [
        ({}, none),
        ({WANTS: False}, none),
        ({WANTS: True}, CONNECTOR),
    ]
    for wants, shown in cases:
        queue, arguments, _ = reads.ready(service, name, "a", "b", "c")
        found = getattr(queue, name)(**arguments, **wants)
        assert found.ConnectorTypeGuid == shown
        queue.Close()


# Transactions ----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.17.4.1.48-04", "AC-3.17.4.1.69-01", "AC-3.17.4.1.70-01", "AC-3.17.4.1.85-01",
    "AC-3.17.4.1.86-01",
)  # fmt: skip
def test_a_transactional_send_marks_its_messages(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    message = MSMQMessage(service)
    for body in ("first", "middle", "last"):
        message.Body = body
        message.Send(way.sender, transaction)
    transaction.Commit()
    found = [way.next() for _ in range(3)]
    assert [m.IsFirstInTransaction for m in found] == [1, 0, 0]
    assert [m.IsLastInTransaction for m in found] == [0, 0, 1]
    assert [m.IsFirstInTransaction2 for m in found] == [True, False, False]
    assert [m.IsLastInTransaction2 for m in found] == [False, False, True]
    for m in found:  # numbers, and booleans
        flags = (m.IsFirstInTransaction, m.IsLastInTransaction)
        assert [type(flag) for flag in flags] == [int, int]
        flags = (m.IsFirstInTransaction2, m.IsLastInTransaction2)
        assert [type(flag) for flag in flags] == [bool, bool]
    assert (found[0].Delivery, found[0].Priority) == (1, 0)


@pytest.mark.spec("AC-3.17.4.1.68-01", "AC-3.17.4.1.68-02")
def test_a_transaction_s_id_is_the_sender_s_guid_and_a_number(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    dispenser = MSMQTransactionDispenser(service)
    ids = []
    for _ in range(2):
        transaction = dispenser.BeginTransaction()
        for _ in range(2):
            MSMQMessage(service).Send(way.sender, transaction)
        transaction.Commit()
        header = beside(way).wire.transaction
        assert header is not None
        one, other = way.next().TransactionId, way.next().TransactionId
        assert one == other
        assert one[16:] == pack("<I", header.transaction_id)
        ids.append(one)
    own = service.manager.identifier
    assert [(len(each), each[:16]) for each in ids] == [(20, own), (20, own)]
    numbers = [int.from_bytes(each[16:], "little") for each in ids]
    assert numbers[0] != numbers[1]
    assert all(numbers)
    assert Way(service).through(MSMQMessage(service)).TransactionId == bytes(20)


@pytest.mark.spec(
    "AC-3.17.4.1.48-04", "AC-3.17.4.1.48-09", "AC-3.17.4.1.48-11", "AC-3.17.4.1.48-12"
)
def test_what_a_send_takes_as_a_transaction(service: MSMQService) -> None:
    way, plain = Way(service, is_transactional=True), Way(service)
    message = MSMQMessage(service)
    for wrong in ("mine", b"mine", 1.0, True, 4, -1, way):
        for each in (way, plain):
            with fails(E_INVALIDARG):
                message.Send(each.sender, wrong)  # type: ignore[arg-type]
    with_one = MSMQTransactionDispenser(service).BeginTransaction()
    message.Send(way.sender, with_one)
    with_one.Commit()
    assert way.next().IsFirstInTransaction2
    # MTS and XA are those of the context, which has none (AC-A21): a transactional queue refuses.
    for none in (None, 0, 1, 2):
        with fails(E.MQ_ERROR_TRANSACTION_USAGE):
            message.Send(way.sender, none)
        message.Send(plain.sender, none)
        assert plain.next().TransactionId == bytes(20)
    with fails(E.MQ_ERROR_TRANSACTION_USAGE):
        message.Send(way.sender)  # omitted: MTS
    # What is sent alone needs no transaction of anybody: none is begun, and it is there at once.
    message.Send(way.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    reply = ask(
        service, lambda s: s.clients.ListTransactions, control_pb2.ListTransactionsRequest()
    )
    assert list(reply.transactions) == []
    assert way.next().Id == message.Id
    with fails(E.MQ_ERROR_TRANSACTION_USAGE):
        message.Send(plain.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)


@pytest.mark.spec("AC-3.17.4.1.48-10", "AC-3.6.4.1.1-02")
def test_a_transaction_becomes_known_with_its_own_identifier(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()

    def known() -> list[bytes]:
        reply = ask(
            service, lambda s: s.clients.ListTransactions, control_pb2.ListTransactionsRequest()
        )
        return [each.identifier for each in reply.transactions]

    identifier = transaction.attached().GetTransactionInfo().uow
    assert identifier not in known()
    MSMQMessage(service).Send(way.sender, transaction)
    assert identifier in known()
    transaction.Commit()
    assert identifier not in known()


@pytest.mark.spec("AC-2.2.2.1-02")
def test_a_single_message_is_a_transaction_of_its_own(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    MSMQMessage(service).Send(way.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    found = way.next()
    assert (found.IsFirstInTransaction2, found.IsLastInTransaction2) == (True, True)
    # Required to send one alone, enough to take one alone.
    for none in {*MQTRANSACTION} - {MQTRANSACTION.MQ_SINGLE_MESSAGE}:
        with fails(E.MQ_ERROR_TRANSACTION_USAGE):
            MSMQMessage(service).Send(way.sender, none)
    message = MSMQMessage(service)
    message.Send(way.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    taken = way.reader.Receive(MQTRANSACTION.MQ_SINGLE_MESSAGE, ReceiveTimeout=0)
    assert taken is not None
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        way.reader.Receive(ReceiveTimeout=0)


def dead_letters(service: MSMQService, *, is_transactional: bool) -> MSMQQueue:
    name = "DEADXACT" if is_transactional else "DEADLETTER"
    info = info_of(service, name=f"DIRECT=OS:QUORATE\\SYSTEM$;{name}")
    return opened(info)


def short_lived(service: MSMQService, label: str, journal: int) -> MSMQMessage:
    message = MSMQMessage(service)
    message.Label, message.Journal = label, journal
    message.MaxTimeToReachQueue = message.MaxTimeToReceive = 1
    return message


def label_of(message: MSMQMessage | None) -> str:
    assert message is not None
    return str(message.Label)


# Times -----------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.4.1.48-21")
def test_a_lone_time_to_be_received_counts(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.MaxTimeToReceive = 7
    assert way.through(message).MaxTimeToReceive == 7
    # Nor does a longer time to reach the queue raise it.
    message.MaxTimeToReachQueue = 100
    assert way.through(message).MaxTimeToReceive == 7


@pytest.mark.spec("AC-3.1.6.1.1-02", "AC-3.1.6.1.1-03", "AC-1.4-01")
@pytest.mark.parametrize("is_transactional", [False, True])
def test_an_expired_message_is_a_dead_letter_if_it_asked_for_that(
    service: MSMQService, is_transactional: bool
) -> None:
    way = Way(service, is_transactional=is_transactional)
    how = MQTRANSACTION.MQ_SINGLE_MESSAGE if is_transactional else 0
    for label, journal in (("forget", 0), ("keep", 1)):
        short_lived(service, label, journal).Send(way.sender, how)
    queue = dead_letters(service, is_transactional=is_transactional)
    assert label_of(queue.Receive(ReceiveTimeout=EXPIRY_WAIT_MS)) == "keep"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-3.1.6.1.1-01")
def test_a_locked_message_expires_when_its_transaction_aborts(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    queue = dead_letters(service, is_transactional=True)
    for label in ("locked", "free"):
        short_lived(service, label, 1).Send(way.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    assert label_of(way.reader.Receive(transaction, ReceiveTimeout=0)) == "locked"
    assert label_of(queue.Receive(ReceiveTimeout=EXPIRY_WAIT_MS)) == "free"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        queue.Receive(ReceiveTimeout=0)
    transaction.Abort()
    assert label_of(queue.Receive(ReceiveTimeout=EXPIRY_WAIT_MS)) == "locked"
