"""MSMQMessage over a real node [MC-MQAC 3.17]."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from qm.client.mqac import (
    MSMQDestination,
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQCALG,
    MQMSGAUTHENTICATION,
    MQMSGCLASS,
    MQTRANSACTION,
)
from qm.client.mqac.variant import (
    VT_BOOL,
    VT_BSTR,
    VT_BYTES,
    VT_CY,
    VT_DATE,
    VT_I2,
    VT_I4,
    VT_I8,
    VT_LPSTR,
    VT_R4,
    VT_R8,
    VT_STREAMED_OBJECT,
    VT_UI1,
    Typed,
    from_body,
    to_body,
)
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import SEND, fails, info_of, made, opened, serving

E = ErrorCode
EXPIRY_WAIT_MS = 20_000


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


class Way:
    """A queue that messages are sent to and received from."""

    def __init__(self, service: MSMQService, *, is_transactional: bool = False) -> None:
        self.service = service
        self.info = made(service, is_transactional=is_transactional)
        self.sender, self.reader = opened(self.info, SEND), opened(self.info)

    def through(self, message: MSMQMessage, **wants: bool) -> MSMQMessage:
        message.Send(self.sender)
        return self.next(**wants)

    def next(self, **wants: bool) -> MSMQMessage:
        found = self.reader.Receive(ReceiveTimeout=0, **wants)
        assert found is not None
        return found


@pytest.fixture
def way(service: MSMQService) -> Way:
    return Way(service)


# A message of one's own ------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.3-01", "AC-3.17-01")
def test_a_new_message_has_the_defaults(service: MSMQService) -> None:
    message = MSMQMessage(service)
    wanted = {
        "Class": 0, "PrivLevel": 0, "AuthLevel": 0, "Delivery": 0, "Trace": 0, "Priority": 3,
        "Journal": 0, "Ack": 0, "AppSpecific": 0, "SenderIdType": 1,
        "HashAlgorithm": MQCALG.MQMSG_CALG_SHA, "EncryptAlgorithm": MQCALG.MQMSG_CALG_RC4,
        "MaxTimeToReachQueue": -1, "MaxTimeToReceive": -1, "LookupId": "0", "Label": "",
        "Id": b"", "ResponseQueueInfo": None, "AdminQueueInfo": None, "SentTime": None,
        "ArrivedTime": None, "DestinationQueueInfo": None, "Extension": b"", "BodyLength": 0,
    }  # fmt: skip
    assert {name: getattr(message, name) for name in wanted} == wanted


@pytest.mark.spec(
    "AC-3.17.4.1.1-01", "AC-3.17.4.1.65-01", "AC-3.17.4.1.66-01", "AC-3.17.4.1.50-01",
    "AC-3.17.4.1.67-01",
)  # fmt: skip
def test_class_version_and_properties(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    assert (message.Class, message.MsgClass) == (MQMSGCLASS.MQMSG_CLASS_NORMAL,) * 2
    found = way.through(message)
    assert (found.Class, found.MsgClass, found.SenderVersion) == (0, 0, 0x10)
    message.MsgClass = MQMSGCLASS.MQMSG_CLASS_REPORT
    assert message.Class == MQMSGCLASS.MQMSG_CLASS_REPORT
    with fails(E_NOTIMPL):
        _ = message.Properties


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("PrivLevel", (0, 1, 3), (2, 5)),
        ("AuthLevel", (0, 1, 2, 4, 8), (3,)),
        ("Delivery", (0, 1), (2, -1)),
        ("Trace", (0, 1), (2,)),
        ("Priority", tuple(range(8)), (-1, 8)),
    ],
)
@pytest.mark.spec(
    "AC-3.17.4.1.3-01", "AC-3.17.4.1.5-01", "AC-3.17.4.1.8-01", "AC-3.17.4.1.10-01",
    "AC-3.17.4.1.12-01",
)  # fmt: skip
def test_levels_take_their_values_alone(
    service: MSMQService, name: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    message = MSMQMessage(service)
    for value in good:
        setattr(message, name, value)
        assert getattr(message, name) == value
    for value in bad:
        with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
            setattr(message, name, value)
    assert getattr(message, name) == good[-1]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Journal", tuple(range(4)), (4,)),
        ("Ack", tuple(range(16)), (16,)),
        ("AppSpecific", (0, -1, 0xFFFF_FFFF), (1 << 32,)),
        ("SenderIdType", (0, 1), (2,)),
    ],
)
@pytest.mark.spec(
    "AC-3.17.4.1.14-01", "AC-3.17.4.1.29-01", "AC-3.17.4.1.18-01", "AC-3.17.4.1.47-01",
    "AC-2.2.2.12-04",
)  # fmt: skip
def test_flags_take_their_values_alone(
    service: MSMQService, name: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    message = MSMQMessage(service)
    for value in good:
        setattr(message, name, value)
        assert getattr(message, name) == value
    for value in bad:
        with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
            setattr(message, name, value)


# What arrives ----------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.17.3-02", "AC-3.17.4.1.7-01", "AC-3.17.4.1.11-01", "AC-3.17.4.1.13-01",
    "AC-3.17.4.1.17-01",
)  # fmt: skip
def test_delivery_priority_journal_and_tag_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Delivery, message.Priority, message.Journal, message.AppSpecific = 1, 6, 3, 0xFFFF_FFFF
    found = way.through(message)
    assert (found.Delivery, found.Priority, found.Journal) == (1, 6, 3)
    assert found.AppSpecific == 0xFFFF_FFFF
    plain = way.through(MSMQMessage(service))
    assert (plain.Delivery, plain.Priority, plain.Journal, plain.AppSpecific) == (0, 3, 0, 0)


@pytest.mark.spec(
    "AC-3.17.4.1.28-01", "AC-3.17.4.1.30-01", "AC-3.17.4.1.31-01", "AC-3.17.4.1.26-01",
    "AC-3.17.4.1.27-01",
)  # fmt: skip
def test_label_acknowledgments_and_correlation_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Label = "l" * 249
    message.AdminQueueInfo = made(service)
    message.Ack = 2
    message.CorrelationId = bytes(range(20))
    found = way.through(message)
    assert (found.Label, found.Ack, found.CorrelationId) == ("l" * 249, 2, bytes(range(20)))
    with fails(E.MQ_ERROR_LABEL_TOO_LONG):
        message.Label = "l" * 250
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_SIZE):
        message.CorrelationId = bytes(19)


@pytest.mark.spec(
    "AC-3.17.4.1.32-01", "AC-3.17.4.1.33-01", "AC-3.17.4.1.34-01", "AC-3.17.4.1.35-01",
    "AC-3.17.4.1.48-06",
)  # fmt: skip
def test_times_arrive_and_neither_is_raised_to_the_other(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    found = way.through(message)
    assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (-1, -1)
    message.MaxTimeToReachQueue, message.MaxTimeToReceive = 100, 500
    found = way.through(message)
    assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (100, 500)
    message.MaxTimeToReachQueue, message.MaxTimeToReceive = 900, 500
    assert way.through(message).MaxTimeToReceive == 500
    message.MaxTimeToReachQueue = -1
    assert way.through(message).MaxTimeToReceive == 500


@pytest.mark.spec(
    "AC-3.17.4.1.25-01", "AC-3.17.4.1.40-01", "AC-3.17.4.1.41-01", "AC-3.17.4.1.83-01",
    "AC-3.17.4.1.19-01",
)  # fmt: skip
def test_identity_and_times_of_a_message(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Send(way.sender)
    first = message.Id
    message.Send(way.sender)
    assert len(first) == len(message.Id) == 20
    assert first != message.Id
    found = way.next()
    assert found.Id == first
    assert found.LookupId == str(int(found.LookupId))
    now = datetime.now(UTC)
    for time in (found.SentTime, found.ArrivedTime):
        assert time is not None
        assert abs((time - now).total_seconds()) < 300
    assert len(found.SourceMachineGuid) == 36
    reply = MSMQMessage(service)
    reply.CorrelationId = found.Id
    way.next()
    assert way.through(reply).CorrelationId == first


@pytest.mark.spec(
    "AC-3.17.4.1.51-01", "AC-3.17.4.1.52-01", "AC-3.17.4.1.2-01", "AC-3.17.4.1.9-01",
    "AC-3.17.4.1.4-01",
)  # fmt: skip
def test_extension_and_levels_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Extension = b"\x00\x01\xff"
    found = way.through(message)
    assert (found.Extension, found.PrivLevel, found.Trace) == (b"\x00\x01\xff", 0, 0)
    message.AuthLevel = 8
    assert (message.AuthLevel, found.AuthLevel) == (8, 0)


@pytest.mark.spec(
    "AC-3.17.4.1.36-01", "AC-3.17.4.1.37-01", "AC-3.17.4.1.38-01", "AC-3.17.4.1.39-01"
)
def test_algorithms_are_kept(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.HashAlgorithm = MQCALG.MQMSG_CALG_MD5
    message.EncryptAlgorithm = MQCALG.MQMSG_CALG_RC2
    found = way.through(message)
    assert found.HashAlgorithm == MQCALG.MQMSG_CALG_MD5
    assert found.EncryptAlgorithm == MQCALG.MQMSG_CALG_RC2


@pytest.mark.spec(
    "AC-3.17.4.1.6-01", "AC-3.17.4.1.75-01", "AC-3.17.4.1.84-01", "AC-3.17.4.1.46-01"
)  # fmt: skip
def test_an_unsigned_message_is_not_authenticated(way: Way, service: MSMQService) -> None:
    found = way.through(MSMQMessage(service))
    assert (found.IsAuthenticated, found.IsAuthenticated2) == (0, False)
    assert found.SenderIdType == (1 if found.SenderId else 0)
    wanted = MQMSGAUTHENTICATION.MQMSG_AUTHENTICATION_NOT_REQUESTED
    assert found.ReceivedAuthenticationLevel == wanted


# Bodies ----------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.4.1.20-01", "AC-3.17.4.1.21-01", "AC-3.17.4.1.22-01")
@pytest.mark.parametrize(
    ("value", "vartype", "length"),
    [
        ("Grüße", VT_BSTR, 10),
        (b"\x00\xff", VT_BYTES, 2),
        (True, VT_BOOL, 2),
        (-7, VT_I4, 4),
        (1 << 40, VT_I8, 8),
        (2.5, VT_R8, 8),
        (Decimal("12.34"), VT_CY, 8),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), VT_DATE, 8),
        (Typed(VT_I2, -3), VT_I2, 2),
        (Typed(VT_UI1, 200), VT_UI1, 1),
        (Typed(VT_R4, 0.5), VT_R4, 4),
        (Typed(VT_LPSTR, "text"), VT_LPSTR, 5),
        (Typed(VT_STREAMED_OBJECT, b"clsid and more"), VT_STREAMED_OBJECT, 14),
    ],
)
def test_a_body_arrives_with_its_type(
    way: Way, service: MSMQService, value: Any, vartype: int, length: int
) -> None:
    message = MSMQMessage(service)
    message.Body = value
    found = way.through(message)
    plain = value.value if isinstance(value, Typed) else value
    assert type(found.Body) is type(plain)
    assert found.Body == plain
    assert (message.BodyLength, found.BodyLength) == (length, length)
    assert to_body(value)[1] == vartype


def test_what_has_no_variant_is_refused_and_odd_bytes_stay_bytes(service: MSMQService) -> None:
    message = MSMQMessage(service)
    for value in (object(), [1], Typed(9, None), Typed(VT_I2, 1 << 20), datetime(2024, 1, 1)):  # noqa: DTZ001
        with fails(E_INVALIDARG):
            message.Body = value
    assert from_body(b"odd", VT_I4) == b"odd"
    assert from_body(b"\x00", VT_BSTR) == b"\x00"
    assert from_body(b"x", 0x1234) == b"x"


# Queues of a message ---------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.17.4.1.15-01", "AC-3.17.4.1.16-01", "AC-3.17.4.1.71-01", "AC-3.17.4.1.72-01",
    "AC-3.17.4.1.76-01",
)  # fmt: skip
def test_response_queues_arrive_under_every_revision_s_name(way: Way, service: MSMQService) -> None:
    queue = made(service)
    names = ("ResponseQueueInfo", "ResponseQueueInfo_v1", "ResponseQueueInfo_v2")
    for name in names:
        message = MSMQMessage(service)
        assert getattr(message, name) is None
        setattr(message, name, queue)
        found = way.through(message)
        for other in names:
            info = getattr(found, other)
            assert isinstance(info, MSMQQueueInfo)
            assert info.QueueGuid == queue.QueueGuid
    assert way.through(MSMQMessage(service)).ResponseQueueInfo is None


@pytest.mark.spec(
    "AC-3.17.4.1.23-01", "AC-3.17.4.1.24-01", "AC-3.17.4.1.73-01", "AC-3.17.4.1.74-01",
    "AC-3.17.4.1.78-01",
)  # fmt: skip
def test_administration_queues_arrive_under_every_revision_s_name(
    way: Way, service: MSMQService
) -> None:
    queue = made(service)
    names = ("AdminQueueInfo", "AdminQueueInfo_v1", "AdminQueueInfo_v2")
    for name in names:
        message = MSMQMessage(service)
        setattr(message, name, queue)
        message.Ack = 1
        found = way.through(message)
        for other in names:
            assert getattr(found, other).QueueGuid == queue.QueueGuid


@pytest.mark.spec("AC-3.17.4.1.77-01", "AC-3.17.4.1.79-01", "AC-3.17.4.1.42-01")
def test_queues_are_put_by_reference_and_taken_back(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for name in ("ResponseQueueInfo", "AdminQueueInfo"):
        setattr(message, name, way.info)
        assert getattr(message, name).FormatName == way.info.FormatName
        setattr(message, name, None)
        assert getattr(message, name) is None
    found = way.through(MSMQMessage(service), WantDestinationQueue=True)
    assert found.DestinationQueueInfo is not None
    assert found.DestinationQueueInfo.QueueGuid == way.info.QueueGuid
    assert way.through(MSMQMessage(service)).DestinationQueueInfo is None


@pytest.mark.spec("AC-3.17.4.1.80-01", "AC-3.17.4.1.81-01", "AC-3.17.4.1.82-01")
def test_lists_of_queues_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    assert (message.ResponseDestination, message.Destination) == (None, None)
    names = ["DIRECT=OS:host\\PRIVATE$\\a", "DIRECT=OS:host\\PRIVATE$\\b"]
    several = MSMQDestination(service)
    several.FormatName = ",".join(names)
    message.ResponseDestination = several
    other = made(service)
    both = MSMQDestination(service)
    both.FormatName = f"{way.info.FormatName},{other.FormatName}"
    message.Send(both)
    found = way.next()
    assert isinstance(found.ResponseDestination, MSMQDestination)
    assert found.ResponseDestination.FormatName == ",".join(names)
    # Each copy names them all (MS-MQDMPR 3.1.1.12, DestinationMultiQueueFormatName).
    assert isinstance(found.Destination, MSMQDestination)
    assert found.Destination.FormatName == both.FormatName
    assert way.through(MSMQMessage(service)).ResponseDestination is None


# Sending ---------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.4.1.48-01", "AC-3.17.4.1.48-05")
def test_send_wants_a_queue_or_a_destination(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for wrong in (None, way.info, "queue"):
        with fails(E_INVALIDARG):
            message.Send(wrong)  # type: ignore[arg-type]
    other = made(service)
    destination = MSMQDestination(service)
    destination.FormatName = f"{way.info.FormatName},{other.FormatName}"
    message.Body = "both"
    message.Send(destination)
    assert destination.IsOpen
    second = opened(other).Receive(ReceiveTimeout=0)
    assert second is not None
    first = way.next()
    assert first.Body == second.Body == "both"
    assert first.Id == second.Id == message.Id
    assert first.Class == MQMSGCLASS.MQMSG_CLASS_NORMAL


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
    setattr(message, name, value)
    with fails(E.MQ_ERROR_MISSING_CONNECTOR_TYPE):
        message.Send(way.sender)


@pytest.mark.spec(
    "AC-3.17.4.1.48-03", "AC-3.17.4.1.60-01", "AC-3.17.4.1.61-01", "AC-3.17.4.1.62-01",
    "AC-3.17.4.1.63-01",
)  # fmt: skip
def test_a_provider_has_a_type_and_a_name(way: Way, service: MSMQService) -> None:
    for name, value in (
        ("AuthenticationProviderType", 1),
        ("AuthenticationProviderName", "provider"),
    ):
        message = MSMQMessage(service)
        message.ConnectorTypeGuid = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
        setattr(message, name, value)
        assert getattr(message, name) == value
        with fails(E.MQ_ERROR_INSUFFICIENT_PROPERTIES):
            message.Send(way.sender)


@pytest.mark.spec(
    "AC-3.17.4.1.56-01", "AC-3.17.4.1.57-01", "AC-3.17.4.1.58-01", "AC-3.17.4.1.59-01",
    "AC-3.17.4.1.64-01",
)  # fmt: skip
def test_connector_properties_are_kept(service: MSMQService) -> None:
    message = MSMQMessage(service)
    for name in ("DestinationSymmetricKey", "Signature", "SenderId"):
        assert getattr(message, name) == b""
        setattr(message, name, b"bytes")
        assert getattr(message, name) == b"bytes"


@pytest.mark.spec(
    "AC-3.17.4.1.43-01", "AC-3.17.4.1.44-01", "AC-3.17.4.1.45-01", "AC-3.17.4.1.54-01",
    "AC-3.17.4.1.55-01",
)  # fmt: skip
def test_certificate_sender_and_connector_type(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.SenderCertificate = b"der"
    assert message.SenderCertificate == b"der"
    message.ConnectorTypeGuid = "{01020304-0506-0708-090a-0b0c0d0e0f10}"
    assert message.ConnectorTypeGuid == "01020304-0506-0708-090A-0B0C0D0E0F10"
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        message.ConnectorTypeGuid = "nothing"
    found = way.through(MSMQMessage(service))
    assert isinstance(found.SenderId, bytes)
    assert found.TransactionStatusQueueInfo is None


@pytest.mark.spec("AC-3.17.4.1.53-01")
def test_a_connector_sends_other_classes_and_is_named_if_wanted(
    way: Way, service: MSMQService
) -> None:
    message = MSMQMessage(service)
    message.ConnectorTypeGuid = "01020304-0506-0708-090A-0B0C0D0E0F10"
    message.MsgClass = MQMSGCLASS.MQMSG_CLASS_ACK_RECEIVE
    found = way.through(message, WantConnectorType=True)
    assert found.ConnectorTypeGuid == message.ConnectorTypeGuid
    assert found.Class == MQMSGCLASS.MQMSG_CLASS_ACK_RECEIVE
    assert way.through(message).ConnectorTypeGuid == ""


@pytest.mark.spec(
    "AC-3.17.4.1.48-04", "AC-3.17.4.1.68-01", "AC-3.17.4.1.69-01", "AC-3.17.4.1.70-01",
    "AC-3.17.4.1.85-01",
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
    assert len({m.TransactionId for m in found}) == 1
    assert len(found[0].TransactionId) == 20
    assert (found[0].Delivery, found[0].Priority) == (1, 0)
    with fails(E_INVALIDARG):
        message.Send(way.sender, "mine")  # type: ignore[arg-type]
    with fails(E.MQ_ERROR_TRANSACTION_USAGE):
        message.Send(way.sender)


@pytest.mark.spec("AC-3.17.4.1.86-01")
def test_a_single_message_is_a_transaction_of_its_own(service: MSMQService) -> None:
    way = Way(service, is_transactional=True)
    MSMQMessage(service).Send(way.sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    found = way.next()
    assert (found.IsFirstInTransaction2, found.IsLastInTransaction2) == (True, True)


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


@pytest.mark.spec("AC-2.2.2.12-02", "AC-3.1.6.1.1-02")
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
