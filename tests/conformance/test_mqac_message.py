"""MSMQMessage over a real node [MC-MQAC 3.17]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import tzset
from typing import Any

import pytest

from qm.client.message import ReceivedMessage
from qm.client.mqac import (
    MSMQApplication,
    MSMQDestination,
    MSMQMessage,
    MSMQQueueInfo,
    MSMQService,
)
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import (
    E_INVALIDARG,
    E_NOTIMPL,
    MQACCESS,
    MQCALG,
    MQMSGAUTHENTICATION,
    MQMSGCLASS,
    MQMSGDELIVERY,
    MQMSGJOURNAL,
    MQSHARE,
)
from qm.client.mqac.manager import FIRST
from qm.client.mqac.variant import (
    VT_BOOL,
    VT_BSTR,
    VT_BYTES,
    VT_CY,
    VT_DATE,
    VT_DISPATCH,
    VT_EMPTY,
    VT_I1,
    VT_I2,
    VT_I4,
    VT_I8,
    VT_LPSTR,
    VT_R4,
    VT_R8,
    VT_STREAMED_OBJECT,
    VT_UI1,
    VT_UI2,
    VT_UI4,
    VT_UI8,
    PersistedObject,
    Typed,
    from_body,
    to_body,
)
from qm.client.signing import new_signer
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import Way, fails, info_of, made, serving

E = ErrorCode


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


@pytest.fixture
def way(service: MSMQService) -> Way:
    return Way(service)


def wire_of(way: Way) -> ReceivedMessage:
    """The first message of a queue, as the protocol has it."""
    opened = way.service.manager.open_queue(
        way.info.FormatName or "", MQACCESS.MQ_PEEK_ACCESS, MQSHARE.MQ_DENY_NONE
    )
    found = opened.look(FIRST, 0)
    opened.close()
    assert found is not None
    return found


class Wire:
    """A queue whose messages are read as the protocol has them."""

    def __init__(self, service: MSMQService) -> None:
        self.way = Way(service)

    def through(self, message: MSMQMessage) -> ReceivedMessage:
        message.Send(self.way.sender)
        found = wire_of(self.way)
        self.way.next()
        return found


# A message of one's own ------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.17.3-01", "AC-3.17.4.1.36-02", "AC-3.17.4.1.38-02", "AC-2.2.2.13-01",
    "DM-3.1.1.12-13",
)  # fmt: skip
def test_a_new_message_has_the_defaults(service: MSMQService) -> None:
    message = MSMQMessage(service)
    wanted = {
        "Class": 0, "PrivLevel": 0, "AuthLevel": 0, "Delivery": 0, "Trace": 0, "Priority": 3,
        "Journal": 0, "Ack": 0, "AppSpecific": 0, "SenderIdType": 1,
        "HashAlgorithm": 0x8004, "EncryptAlgorithm": 0x6801,
        "MaxTimeToReachQueue": -1, "MaxTimeToReceive": -1, "LookupId": "0",
    }  # fmt: skip
    assert {name: getattr(message, name) for name in wanted} == wanted


@pytest.mark.spec(
    "AC-3.17.3-03", "AC-3.17.3-04", "AC-3.17.3-05", "AC-3.17.3-06", "AC-3.17.4.1.30-02"
)
def test_a_new_message_names_nothing_but_a_provider(service: MSMQService) -> None:
    message = MSMQMessage(service)
    zeros = "00000000-0000-0000-0000-000000000000"
    wanted = {
        "AuthenticationProviderType": 1,
        "AuthenticationProviderName": "Microsoft Base Cryptographic Provider, v1.0",
        "SourceMachineGuid": zeros, "ConnectorTypeGuid": "{" + zeros + "}",
        "SentTime": None, "ArrivedTime": None, "IsFirstInTransaction": 0,
        "IsLastInTransaction2": False, "Label": "", "Body": None, "BodyLength": 0, "Id": b"",
        "CorrelationId": bytes(20), "Extension": b"", "SenderId": b"", "SenderCertificate": b"",
        "Signature": b"", "DestinationSymmetricKey": b"", "TransactionId": bytes(20),
        "ResponseQueueInfo": None, "AdminQueueInfo": None, "DestinationQueueInfo": None,
        "ResponseDestination": None, "Destination": None, "TransactionStatusQueueInfo": None,
        "SoapEnvelope": "", "CompoundMessage": b"",
    }  # fmt: skip
    assert {name: getattr(message, name) for name in wanted} == wanted
    way = Way(service)
    found = way.through(message)  # refused if it had a part for SRMP
    assert found.Label == ""
    message.Label = "a label"
    message.Label = ""
    assert message.Label == way.through(message).Label == ""


@pytest.mark.spec("AC-3.17.4.1-01", "AC-3.17-01")
def test_every_getter_answers_before_and_after_a_send_and_a_read(
    way: Way, service: MSMQService
) -> None:
    names = [
        name
        for name, found in vars(MSMQMessage).items()
        if isinstance(found, property) and found.fget is not None and name != "Properties"
    ]
    assert len(names) > 50
    message = MSMQMessage(service)

    def answers(each: MSMQMessage) -> None:
        for name in names:
            getattr(each, name)

    answers(message)
    found = way.through(message)
    answers(message)
    answers(found)
    message.Send(way.sender)
    bare = way.next(WantBody=False)
    answers(bare)
    # What an object has beside its message: what is asked of Send, caches, and parts for SRMP.
    assert isinstance(service.manager, ClusterManager)
    signer = new_signer("somebody", 1024, 1)
    message = MSMQMessage(MSMQService(ClusterManager(service.manager.client, [signer])))
    message.AuthLevel, message.SoapBody, message.SoapHeader = 8, "<b/>", "<h/>"
    message.AttachCurrentSecurityContext()
    kept = ("SenderId", "SenderIdType", "SenderCertificate", "Signature", "Body", "BodyLength")
    shown = {name: getattr(MSMQMessage(service), name) for name in kept}
    assert {name: getattr(message, name) for name in shown} == shown
    assert (message.AuthLevel, message.ReceivedAuthenticationLevel) == (8, 0)
    for name in ("SoapBody", "SoapHeader"):
        with pytest.raises(AttributeError):
            getattr(message, name)


def test_a_name_that_is_not_a_property_is_an_error(service: MSMQService) -> None:
    for one in (MSMQMessage(service), MSMQDestination(service), MSMQQueueInfo(service)):
        with pytest.raises(AttributeError):
            setattr(one, "Labell", "a slip of the pen")  # noqa: B010 - no such attribute


@pytest.mark.spec(
    "AC-3.17.4.1.1-01", "AC-3.17.4.1.65-01", "AC-3.17.4.1.65-02", "AC-3.17.4.1.66-01",
    "AC-3.17.4.1.67-01",
)  # fmt: skip
def test_class_is_put_by_its_other_name(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    assert (message.Class, message.MsgClass) == (MQMSGCLASS.MQMSG_CLASS_NORMAL,) * 2
    found = way.through(message)
    assert (found.Class, found.MsgClass) == (0, 0)
    message.MsgClass = MQMSGCLASS.MQMSG_CLASS_REPORT
    assert (message.Class, message.MsgClass) == (MQMSGCLASS.MQMSG_CLASS_REPORT,) * 2
    with fails(E.MQ_ERROR_MISSING_CONNECTOR_TYPE):
        message.Send(way.sender)
    message.ConnectorTypeGuid = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
    found = way.through(message)
    assert (found.Class, found.MsgClass) == (MQMSGCLASS.MQMSG_CLASS_REPORT,) * 2
    for number in MQMSGCLASS:
        message.MsgClass = number
        assert way.through(message).Class == number
        alone = MSMQMessage(service)
        alone.MsgClass = number  # what it is put to is no matter
        with fails(E.MQ_ERROR_MISSING_CONNECTOR_TYPE):
            alone.Send(way.sender)
    with pytest.raises(AttributeError):
        message.Class = 2
    with fails(E_NOTIMPL):
        _ = message.Properties


@pytest.mark.spec("AC-3.17.4.1.50-01", "AC-3.17.4.1.50-02")
def test_the_sender_s_version_is_always_the_same(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    assert message.SenderVersion == way.through(message).SenderVersion == 0x10


def takes(message: MSMQMessage, name: str, good: Sequence[int], bad: Sequence[int]) -> None:
    """Good values are kept; bad ones are refused and change nothing."""
    for value in good:
        setattr(message, name, value)
        assert getattr(message, name) == value
        for wrong in bad:
            with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
                setattr(message, name, wrong)
            assert getattr(message, name) == value


@pytest.mark.spec("AC-3.17.4.1.3-01", "AC-3.17.4.1.3-02", "AC-3.17.4.1.2-01", "AC-2.2.2.15-01")
def test_privacy_levels(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    takes(message, "PrivLevel", (0, 1, 3), (2, 4, 5, -1))
    for level in (0, 1, 3):
        message.PrivLevel = level
        assert way.through(message).PrivLevel == level


@pytest.mark.spec("AC-3.17.4.1.5-02", "AC-3.17.4.1.4-01", "AC-3.17.1-02")
def test_authentication_levels(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    takes(message, "AuthLevel", (0, 1, 2, 4, 8), (3, *range(5, 8), *range(9, 17), -1))
    assert message.AuthLevel == 8  # what is asked for
    assert message.ReceivedAuthenticationLevel == 0  # what was done
    assert way.through(MSMQMessage(service)).AuthLevel == 0
    assert MSMQApplication(service).RegisterCertificate() == 0
    for level, done in ((2, 1), (4, 3)):
        message.AuthLevel = level
        found = way.through(message)
        assert (message.AuthLevel, message.ReceivedAuthenticationLevel) == (level, done)
        assert found.Signature
        assert found.AuthLevel == 0


@pytest.mark.spec(
    "AC-3.17.4.1.8-01", "AC-3.17.4.1.8-02", "AC-3.17.4.1.10-01", "AC-3.17.4.1.10-02",
    "AC-2.2.2.12-04",
)  # fmt: skip
def test_delivery_trace_and_both_journals(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    takes(message, "Delivery", (0, 1), (2, 3, 256, -1))
    takes(message, "Trace", (0, 1), (2, 3, 256, -1))
    for value in (0, 1):
        message.Delivery = message.Trace = value
        found = way.through(message)
        assert (found.Delivery, found.Trace) == (value, value)
    message.Journal = MQMSGJOURNAL.MQMSG_DEADLETTER | MQMSGJOURNAL.MQMSG_JOURNAL
    assert message.Journal == way.through(message).Journal == 3


@pytest.mark.spec("AC-2.2.2.10-01")
def test_a_message_says_whether_it_is_to_be_recoverable(service: MSMQService) -> None:
    """An express one may be lost when a queue manager stops; this one keeps it, too."""
    message, wire = MSMQMessage(service), Wire(service)
    for number, delivery in enumerate(("EXPRESS", "RECOVERABLE")):
        message.Delivery = MQMSGDELIVERY[f"MQMSG_DELIVERY_{delivery}"]
        assert message.Delivery == number
        assert wire.through(message).is_recoverable == (delivery == "RECOVERABLE")


@pytest.mark.spec(
    "AC-3.17.4.1.12-01", "AC-3.17.4.1.12-02", "AC-3.17.4.1.14-01", "AC-3.17.4.1.14-02",
    "AC-2.2.2.12-01",
)  # fmt: skip
def test_priorities_and_journals(service: MSMQService) -> None:
    message, wire = MSMQMessage(service), Wire(service)
    takes(message, "Priority", range(8), (-1, 8))
    takes(message, "Journal", range(4), (-1, 4))
    for value in range(8):
        message.Priority, message.Journal = value, value % 4
        found = wire.through(message)
        assert found.priority == value
        assert found.wire.user_header.has_negative_journaling == bool(value & 1)
        assert found.wire.user_header.has_positive_journaling == bool(value & 2)


@pytest.mark.spec("AC-3.17.4.1.29-01", "AC-3.17.4.1.29-02", "AC-3.17.4.1.29-03")
def test_any_acknowledgments_go_together(service: MSMQService) -> None:
    message, wire = MSMQMessage(service), Wire(service)
    takes(message, "Ack", range(16), (-1, 16, 0x8000))
    message.AdminQueueInfo = made(service)
    for value in range(16):
        message.Ack = value
        assert wire.through(message).wire.properties.flags == value


@pytest.mark.spec("AC-3.17.4.1-02", "AC-3.17.4.1.39-02", "AC-3.17.4.1.18-01")
def test_what_is_not_checked_is_stored(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    values: dict[str, Any] = {
        "HashAlgorithm": 7, "EncryptAlgorithm": 7, "MsgClass": 0x1234, "SenderIdType": 5,
        "CorrelationId": b"short", "Extension": b"e", "SenderId": b"s", "SenderCertificate": b"c",
        "Signature": b"g", "DestinationSymmetricKey": b"k", "AuthenticationProviderType": 99,
        "AuthenticationProviderName": "n", "MaxTimeToReachQueue": 5, "MaxTimeToReceive": 6,
    }  # fmt: skip
    for name, value in values.items():
        setattr(message, name, value)
    assert {name: getattr(message, name) for name in values} == values
    for name, value in values.items():
        wrong = (-2, 0, 1 << 32) if isinstance(value, int) else (type(value)(), value * 5_000)
        for odd in wrong:
            setattr(message, name, odd)
            assert getattr(message, name) == odd
    tagged = MSMQMessage(service)
    for tag in (0, -1, 7, -(1 << 31), (1 << 31) - 1, 1 << 31, 0xFFFF_FFFF):
        tagged.AppSpecific = tag
        assert tagged.AppSpecific == tag
        assert way.through(tagged).AppSpecific == tag % (1 << 32)
    ciphered = MSMQMessage(service)
    for algorithm in (7, 0x6602, 0xFFFF_FFFF):  # nothing is encrypted, so nothing is validated
        ciphered.EncryptAlgorithm = algorithm
        assert way.through(ciphered).EncryptAlgorithm == algorithm
    odd = MSMQMessage(service)
    odd.CorrelationId = b"short"
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        odd.Send(way.sender)


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
    for flags in range(4):
        message.Journal = flags
        message.Send(way.sender)
        header = wire_of(way).wire.user_header
        assert header.has_negative_journaling == bool(flags & 1)
        assert header.has_positive_journaling == bool(flags & 2)
        assert way.next().Journal == flags
    for priority in range(8):
        message.Priority = priority
        assert message.Priority == way.through(message).Priority == priority
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
    message.CorrelationId = bytes(range(20))
    for acknowledgements in (0, 1, 2, 4, 8, 5, 12, 15):
        message.Ack = acknowledgements
        found = way.through(message)
        assert found.Ack == acknowledgements
        assert (found.Label, found.CorrelationId) == ("l" * 249, bytes(range(20)))


@pytest.mark.spec("AC-3.17.4.1.31-02", "MQ-2.4-20")
def test_a_label_that_is_too_long_changes_nothing(service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Label = "before"
    for label in ("l" * 250, "l" * 1_000, "\U0001f600" * 125):
        with fails(E.MQ_ERROR_LABEL_TOO_LONG):
            message.Label = label
        assert message.Label == "before"


@pytest.mark.spec(
    "AC-3.17.4.1.32-01", "AC-3.17.4.1.33-01", "AC-3.17.4.1.34-01", "AC-3.17.4.1.35-01",
)  # fmt: skip
def test_times_arrive_and_neither_is_raised_to_the_other(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for found in (message, way.through(message)):
        assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (-1, -1)
    message.MaxTimeToReachQueue, message.MaxTimeToReceive = 100, 500
    found = way.through(message)
    assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (100, 500)
    message.MaxTimeToReachQueue, message.MaxTimeToReceive = 900, 500
    assert way.through(message).MaxTimeToReceive == 500
    message.MaxTimeToReachQueue = -1
    found = way.through(message)
    assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (-1, 500)
    message.MaxTimeToReceive = -1
    for seconds in (0, 1, 345_600, (1 << 31) - 1):
        message.MaxTimeToReachQueue = seconds
        found = way.through(message)
        assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (seconds, -1)
    message.MaxTimeToReachQueue = 0
    for seconds in (60, 345_600, 100_000_000):
        message.MaxTimeToReceive = seconds
        message.Send(way.sender)
        assert wire_of(way).wire.user_header.time_to_be_received == seconds
        found = way.next()
        assert (found.MaxTimeToReachQueue, found.MaxTimeToReceive) == (0, seconds)
    message.MaxTimeToReceive = 0
    message.Send(way.sender)
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):  # it was over at once
        way.next()


@pytest.mark.spec(
    "AC-3.17.4.1.25-01", "AC-3.17.4.1.40-01", "AC-3.17.4.1.41-01", "AC-3.17.4.1.83-01",
)  # fmt: skip
def test_identity_and_times_of_a_message(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Send(way.sender)
    first = message.Id
    message.Send(way.sender)
    assert message.SentTime is not None
    assert abs((message.SentTime - datetime.now(UTC)).total_seconds()) < 300
    assert message.ArrivedTime is None
    assert len(first) == len(message.Id) == 20
    assert first[:16] == message.Id[:16] == service.manager.identifier
    assert first[16:] != message.Id[16:]
    lookup = wire_of(way).lookup_identifier
    assert way.reader.PeekByLookupId(lookup) is not None
    found = way.next()
    assert found.Id == first
    assert found.LookupId == str(lookup)
    now = datetime.now(UTC)
    for time in (found.SentTime, found.ArrivedTime):
        assert time is not None
        assert time.tzinfo is UTC
        assert abs((time - now).total_seconds()) < 300
    reply = MSMQMessage(service)
    reply.CorrelationId = found.Id
    way.next()
    assert way.through(reply).CorrelationId == first


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The program's own time zone is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        tzset()
        yield
    tzset()


@pytest.mark.spec("AC-3.17.4.1.40-01", "AC-3.17.4.1.41-01")
@pytest.mark.usefixtures("in_tokyo")
def test_a_message_that_was_on_its_way_has_two_times(way: Way, service: MSMQService) -> None:
    MSMQMessage(service).Send(way.sender)
    sent = wire_of(way)
    later = ReceivedMessage(
        *(sent.packet, sent.number, sent.lookup_identifier, sent.queue_id, sent.sent_time_s + 60),
        *(sent.verdict_class, sent.flags),
    )
    found = MSMQMessage.received(
        service, later, wants_destination=False, wants_body=True, wants_connector=False
    )
    assert found.SentTime == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=sent.sent_time_s)
    assert abs((found.SentTime - datetime.now(UTC)).total_seconds()) < 300
    assert found.ArrivedTime == found.SentTime + timedelta(minutes=1)


@pytest.mark.spec("AC-3.17.4.1.19-01", "AC-3.17.4.1.19-02")
def test_the_source_machine_is_named_without_braces(way: Way, service: MSMQService) -> None:
    found = way.through(MSMQMessage(service))
    raw = service.manager.identifier  # as packets have it: the first three parts little-endian
    digits = [part.hex().upper() for part in (raw[3::-1], raw[5:3:-1], raw[7:5:-1])]
    digits += [raw[8:10].hex().upper(), raw[10:].hex().upper()]
    assert found.SourceMachineGuid == "-".join(digits)
    assert re.fullmatch("[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", found.SourceMachineGuid)


@pytest.mark.spec("AC-3.17.4.1.51-01", "AC-3.17.4.1.52-01", "AC-3.17.4.1.9-01", "AC-2.2.2.13-01")
def test_extension_and_levels_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    message.Extension, message.Trace = b"\x00\x01\xff", 1
    found = way.through(message)
    assert (found.Extension, found.PrivLevel, found.Trace) == (b"\x00\x01\xff", 0, 1)
    assert way.through(MSMQMessage(service)).Trace == 0
    for extension in (b"", b"\x00", bytes(range(256)) * 4 + b"\x00"):
        message.Extension = extension
        assert message.Extension == way.through(message).Extension == extension


@pytest.mark.spec("AC-3.17.3-07")
def test_what_was_asked_of_a_send_does_not_arrive(way: Way, service: MSMQService) -> None:
    assert MSMQApplication(service).RegisterCertificate() == 0
    message = MSMQMessage(service)
    message.AuthLevel = 4
    message.AttachCurrentSecurityContext()
    found = way.through(message)
    assert found.Signature
    assert found.AuthLevel == 0
    plain = way.through(MSMQMessage(service))
    plain.Send(way.sender)  # refused if it had a SOAP part
    assert not way.next().Signature  # nor a level, or a certificate to sign with
    again = MSMQMessage(service)
    again.SoapBody = "<body/>"
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        again.Send(way.sender)


@pytest.mark.spec(
    "AC-3.17.4.1.36-01", "AC-3.17.4.1.37-01", "AC-3.17.4.1.38-01", "AC-3.17.4.1.39-01"
)
def test_algorithms_are_kept(way: Way, service: MSMQService) -> None:
    hashes = {"MD2": 0x8001, "MD4": 0x8002, "MD5": 0x8003, "SHA": 0x8004, "SHA1": 0x8004}
    ciphers = {"RC2": 0x6602, "RC4": 0x6801}
    for property_name, numbers in (("HashAlgorithm", hashes), ("EncryptAlgorithm", ciphers)):
        for name, number in numbers.items():
            message, wire = MSMQMessage(service), Wire(service)
            setattr(message, property_name, MQCALG[f"MQMSG_CALG_{name}"])
            assert getattr(message, property_name) == number
            stored = wire.through(message).wire.properties
            kept = (stored.hash_algorithm, stored.encryption_algorithm)
            assert number == kept[property_name == "EncryptAlgorithm"]
            assert getattr(way.through(message), property_name) == number


@pytest.mark.spec("QB-6-01")
def test_a_queue_manager_chooses_sha_512_if_nothing_was_put(way: Way, service: MSMQService) -> None:
    found = way.through(MSMQMessage(service))
    assert (found.HashAlgorithm, found.EncryptAlgorithm) == (0x800E, MQCALG.MQMSG_CALG_RC4)
    for number in (0x8004, 0x800C):
        message = MSMQMessage(service)
        message.HashAlgorithm = number
        assert way.through(message).HashAlgorithm == number


def test_an_unsigned_message_is_not_authenticated(way: Way, service: MSMQService) -> None:
    found = way.through(MSMQMessage(service))
    assert (found.IsAuthenticated, found.IsAuthenticated2) == (0, False)
    wanted = MQMSGAUTHENTICATION.MQMSG_AUTHENTICATION_NOT_REQUESTED
    assert found.ReceivedAuthenticationLevel == wanted


# Bodies ----------------------------------------------------------------------------------------

CLSID = bytes(range(16))


@pytest.mark.spec("AC-3.17.4.1.20-01", "AC-3.17.4.1.21-01", "AC-3.17.4.1.22-01")
@pytest.mark.parametrize(
    ("value", "vartype", "length"),
    [
        (Typed(VT_I1, -3), VT_I1, 1),
        (Typed(VT_UI1, 200), VT_UI1, 1),
        (Typed(VT_I2, -3), VT_I2, 2),
        (Typed(VT_UI2, 60_000), VT_UI2, 2),
        (-7, VT_I4, 4),
        (0xFFFF_FFFF, VT_UI4, 4),
        (Typed(VT_R4, 0.5), VT_R4, 4),
        (2.5, VT_R8, 8),
        (Decimal("12.34"), VT_CY, 8),
        (datetime(2024, 2, 29, 12, tzinfo=UTC), VT_DATE, 8),
        (True, VT_BOOL, 2),
        ("Grüße", VT_BSTR, 10),
        ("half a pair: \ud83d", VT_BSTR, 28),
        (b"\x00\xff", VT_BYTES, 2),
        (b"\xff" * 70_000, VT_BYTES, 70_000),
        (PersistedObject(CLSID, b"state"), VT_STREAMED_OBJECT, 21),
        (Typed(VT_DISPATCH, PersistedObject(CLSID, b"")), VT_STREAMED_OBJECT, 16),
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


@pytest.mark.spec("AC-3.17.4.1.22-02", "AC-3.17.4.1.22-03")
@pytest.mark.parametrize(
    "value",
    [
        None, 1 << 40, Typed(VT_I8, 1), Typed(VT_UI8, 1), Typed(VT_EMPTY, b""), Typed(1, None),
        Typed(VT_LPSTR, "x"), Typed(VT_STREAMED_OBJECT, b"x"), Typed(0x2003, [1]), [1], object(),
        Typed(VT_I2, 1 << 20), Typed(VT_DISPATCH, None), PersistedObject(b"short", b""),
        datetime(2024, 1, 1),  # noqa: DTZ001 - a time of no time zone
    ],
)  # fmt: skip
def test_what_is_not_a_body_s_variant_is_refused(service: MSMQService, value: Any) -> None:
    message = MSMQMessage(service)
    message.Body = "before"
    with fails(0x8007_0057):
        message.Body = value
    assert (message.Body, message.BodyLength) == ("before", 12)


@pytest.mark.spec("AC-3.17.4.1.22-03")
def test_a_send_s_argument_that_is_none_is_refused_alike(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for target in (None, way.info, "DIRECT=OS:QUORATE\\private$\\q"):
        with fails(0x8007_0057):
            message.Send(target)  # type: ignore[arg-type]
    for transaction in (4, -1, "0", way.sender):
        with fails(0x8007_0057):
            message.Send(way.sender, transaction)  # type: ignore[arg-type]
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        way.next()


def test_bodies_of_other_senders_are_read() -> None:
    assert from_body(b"\x01" + bytes(7), VT_I8) == from_body(b"\x01" + bytes(7), VT_UI8) == 1
    assert from_body(b"text\0", VT_LPSTR) == "text"
    assert (from_body(b"raw", VT_EMPTY), from_body(b"", VT_EMPTY)) == (b"raw", None)
    for odd, vartype in ((b"odd", VT_I4), (b"\x00", VT_BSTR), (b"x", 0x1234), (b"x", 68)):
        assert from_body(odd, vartype) == odd


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
            assert info.FormatName == queue.FormatName
            assert info.QueueGuid == queue.QueueGuid
            assert getattr(found, other) is not info
    assert way.through(MSMQMessage(service)).ResponseQueueInfo is None
    are_refreshed(found, names, queue)
    are_put_as_they_stand(way, names)


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
    are_refreshed(found, names, queue)
    are_put_as_they_stand(way, names)


def are_refreshed(found: MSMQMessage, names: Sequence[str], queue: MSMQQueueInfo) -> None:
    """Refresh was called: what changes after the get is not seen."""
    for name in names:
        info = getattr(found, name)
        before, queue.Label = queue.Label, f"since {name}"
        queue.Update()
        assert info.Label == before


def are_put_as_they_stand(way: Way, names: Sequence[str]) -> None:
    """A format name arrives as it is: of a queue that is nowhere, and of one that has another."""
    here = made(way.service)
    path = (here.PathName or "").rpartition("\\")[2]
    for other in ("DIRECT=OS:nowhere\\PRIVATE$\\q", f"DIRECT=OS:QUORATE\\PRIVATE$\\{path}"):
        for name in names:
            message = MSMQMessage(way.service)
            setattr(message, name, info_of(way.service, name=other))
            message.Ack = int(name.startswith("Admin"))
            found = getattr(way.through(message), name)
            assert found.FormatName == other
    assert found.QueueGuid == here.QueueGuid
    assert here.FormatName != other


@pytest.mark.spec(
    "AC-3.17.4.1.77-01", "AC-3.17.4.1.79-01", "AC-3.17.4.1.42-01", "AC-3.17.4.1.42-02"
)
def test_queues_are_put_by_reference_and_taken_back(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    for name in ("ResponseQueueInfo", "AdminQueueInfo"):
        setattr(message, name, way.info)
        assert getattr(message, name).FormatName == way.info.FormatName
        setattr(message, name, None)
        assert getattr(message, name) is None
    are_put_as_they_stand(way, ("ResponseQueueInfo", "AdminQueueInfo"))
    own = MSMQMessage(service)
    destinations = [own.DestinationQueueInfo]
    found = way.through(own, WantDestinationQueue=True)
    assert destinations == [None]
    sent_to = own.DestinationQueueInfo
    assert isinstance(sent_to, MSMQQueueInfo)
    assert sent_to.FormatName == way.info.FormatName
    assert found.DestinationQueueInfo is not None
    assert found.DestinationQueueInfo.QueueGuid == way.info.QueueGuid
    are_refreshed(found, ("DestinationQueueInfo",), way.info)
    assert way.through(MSMQMessage(service)).DestinationQueueInfo is None


@pytest.mark.spec("AC-3.17.4.1.15-02")
def test_a_queue_that_cannot_be_refreshed_is_shown_by_its_name(
    way: Way, service: MSMQService
) -> None:
    message = MSMQMessage(service)
    message.ResponseQueueInfo = info_of(service, name="DIRECT=OS:nowhere\\PRIVATE$\\q")
    found = way.through(message)
    assert found.ResponseQueueInfo is not None
    assert found.ResponseQueueInfo.FormatName == "DIRECT=OS:nowhere\\PRIVATE$\\q"
    assert found.AdminQueueInfo is None
    # What can be refreshed has been: the queue's later label is not seen.
    message.ResponseQueueInfo = way.info
    shown = way.through(message).ResponseQueueInfo
    assert shown is not None
    way.info.Label = "later"
    way.info.Update()
    assert shown.Label == ""


@pytest.mark.spec(
    "AC-3.17.4.1.80-01", "AC-3.17.4.1.80-02", "AC-3.17.4.1.81-01", "AC-3.17.4.1.82-01"
)
def test_lists_of_queues_arrive(way: Way, service: MSMQService) -> None:
    message = MSMQMessage(service)
    assert (message.ResponseDestination, message.Destination) == (None, None)
    names = ["DIRECT=OS:host\\PRIVATE$\\a", "DIRECT=OS:host\\PRIVATE$\\b"]
    several = MSMQDestination(service)
    several.FormatName = ",".join(names)
    message.ResponseDestination = several
    with fails(E_INVALIDARG):
        message.ResponseDestination = way.info  # type: ignore[assignment]
    other = made(service)
    both = MSMQDestination(service)
    both.FormatName = f"{way.info.FormatName},{other.FormatName}"
    message.Send(both)
    assert message.Destination is not None
    assert message.Destination.FormatName == both.FormatName
    found = way.next()
    assert isinstance(found.ResponseDestination, MSMQDestination)
    assert found.ResponseDestination.FormatName == ",".join(names)
    # Each copy names them all (MS-MQDMPR 3.1.1.12, DestinationMultiQueueFormatName).
    assert isinstance(found.Destination, MSMQDestination)
    assert found.Destination.FormatName == both.FormatName
    for name in ("Destination", "ResponseDestination"):
        assert getattr(found, name) is not getattr(found, name)
    assert way.through(MSMQMessage(service)).ResponseDestination is None
    for count in (1, 3):
        several.FormatName = ",".join([*names, "DIRECT=OS:host\\PRIVATE$\\c"][:count])
        message.ResponseDestination = several
        answers = way.through(message).ResponseDestination
        assert answers is not None
        assert answers.FormatName == several.FormatName
