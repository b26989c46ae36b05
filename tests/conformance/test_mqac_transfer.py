"""What [MC-MQAC] objects ask of a message, as another queue manager sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from qm.client.mqac import (
    MSMQDestination,
    MSMQManagement,
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    connect,
)
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import (
    MQMSGAUTHENTICATION,
    MQMSGAUTHLEVEL,
    MQMSGJOURNAL,
    MQMSGSENDERIDTYPE,
    MQTRANSACTION,
)
from qm.client.signing import Signer, new_signer
from qm.names.guid import guid_text
from qm.pb import control_pb2
from qm.security.sid import sid_from_text, sid_text
from qm.session.schedules import resend_timer_table
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.enums import HashAlgorithm
from tests.conformance.mqac_world import SEND, ask, fails, info_of, made, opened
from tests.unit.client.threaded import threaded_node

E = ErrorCode
ARRIVES_WITHIN_MS = 60_000
ANONYMOUS, BY_SID = MQMSGSENDERIDTYPE
BOTH = "DIRECT=OS:nowhere\\private$\\a,DIRECT=OS:nowhere\\private$\\b"
SEVERAL_LISTS = (False, True)


class Two(NamedTuple):
    """Two queue managers: of the sender, and of the queues that are sent to."""

    near: MSMQService
    far: MSMQService
    far_host: str
    signer: Signer
    """The sender's; the far directory has the certificate, too."""
    sid: bytes
    """The sender's, at its own queue manager."""
    second: Signer
    """The sender's as well, with another certificate."""

    def from_near(self, info: MSMQQueueInfo) -> MSMQQueueInfo:
        """A far queue, as the sender names it."""
        path = (info.PathName or "").partition("\\")[2]
        return info_of(self.near, name=f"DIRECT=TCP:{self.far_host}\\{path}")


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    signer, second = (new_signer("alice", 1024, 1) for _ in range(2))
    with threaded_node() as (near, near_tls), threaded_node() as (far, far_tls):
        here, there = connect([near], tls=near_tls), connect([far], tls=far_tls)
        try:
            sid = caller(here)
            for service in (here, there):
                for each in (signer, second):
                    register(service, each.certificate, sid)
            assert isinstance(here.manager, ClusterManager)
            signing = MSMQService(ClusterManager(here.manager.client, [signer, second]))
            yield Two(signing, there, far.rpartition(":")[0], signer, sid, second)
        finally:
            there.close()
            here.close()


def caller(service: MSMQService) -> bytes:
    """The SID of who calls: what owns a new queue."""
    info = made(service)
    name = control_pb2.QueueName(name=info.FormatName or "")
    acl = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
    return bytes(sid_from_text(acl.owner_sid))


def register(service: MSMQService, certificate: bytes, sid: bytes) -> None:
    person = control_pb2.Person(sid=sid_text(sid))
    ask(
        service,
        lambda s: s.certificates.Register,
        control_pb2.RegisterCertificateRequest(person=person, certificate=certificate),
    )


def arrived(queue: MSMQQueue) -> MSMQMessage:
    """The next message, which may still be on its way."""
    found = queue.Receive(ReceiveTimeout=ARRIVES_WITHIN_MS)
    assert found is not None
    return found


def signed(two: Two, level: int, *, has_lists: bool = False) -> MSMQMessage:
    message = MSMQMessage(two.near)
    message.AuthLevel = level
    if has_lists:  # only what has lists can be signed as version 3.0
        answers = MSMQDestination(two.near)
        answers.FormatName = BOTH
        message.ResponseDestination = answers
    return message


# Signatures ------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.17.4.1.48-07", "AC-3.17.4.1.48-23", "AC-3.17.4.1.5-01", "AC-2.2.2.16-03")
@pytest.mark.parametrize("has_lists", SEVERAL_LISTS)
def test_a_level_says_how_a_message_is_signed(two: Two, has_lists: bool) -> None:
    levels, codes = MQMSGAUTHLEVEL, MQMSGAUTHENTICATION
    as_30 = codes.MQMSG_AUTHENTICATED_SIG30 if has_lists else codes.MQMSG_AUTHENTICATED_SIG20
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    for level, found_valid in (
        (levels.MQMSG_AUTH_LEVEL_NONE, codes.MQMSG_AUTHENTICATION_NOT_REQUESTED),
        (levels.MQMSG_AUTH_LEVEL_SIG10, codes.MQMSG_AUTHENTICATED_SIG10),
        (levels.MQMSG_AUTH_LEVEL_SIG20, codes.MQMSG_AUTHENTICATED_SIG20),
        (levels.MQMSG_AUTH_LEVEL_SIG30, as_30),
        (levels.MQMSG_AUTH_LEVEL_ALWAYS, as_30),
    ):
        message = signed(two, level, has_lists=has_lists)
        message.Send(sender)
        follows = {1: 5, 2: 1, 4: 3, 8: 5}  # what it was asked for
        assert message.ReceivedAuthenticationLevel == follows.get(level, 0)
        found = arrived(reader)
        assert found.ReceivedAuthenticationLevel == found_valid, level
    for number in (HashAlgorithm.SHA256, HashAlgorithm.SHA512):  # hashed as it says
        message = signed(two, levels.MQMSG_AUTH_LEVEL_SIG20, has_lists=has_lists)
        message.HashAlgorithm = number
        message.Send(sender)
        found = arrived(reader)
        assert found.HashAlgorithm == number
        assert found.ReceivedAuthenticationLevel == codes.MQMSG_AUTHENTICATED_SIG20
    for signer in (two.second, two.signer):  # with the key of its certificate
        message = signed(two, levels.MQMSG_AUTH_LEVEL_SIG20, has_lists=has_lists)
        message.SenderCertificate = signer.certificate
        message.Send(sender)
        found = arrived(reader)
        assert found.SenderCertificate == signer.certificate
        assert found.ReceivedAuthenticationLevel == codes.MQMSG_AUTHENTICATED_SIG20
    # There is one provider; another one is not passed over.
    message = signed(two, levels.MQMSG_AUTH_LEVEL_SIG20, has_lists=has_lists)
    message.AuthenticationProviderType = 24
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        message.Send(sender)
    message.AuthenticationProviderType = 1
    message.Send(sender)
    assert arrived(reader).AuthenticationProviderType == 1


@pytest.mark.spec("AC-3.17.4.1.68-01", "AC-3.17.4.1.68-02")
def test_a_transaction_s_id_names_the_computer_that_sent(two: Two) -> None:
    info = made(two.far, is_transactional=True)
    MSMQMessage(two.near).Send(opened(two.from_near(info), SEND), MQTRANSACTION.MQ_SINGLE_MESSAGE)
    identifier = arrived(opened(info)).TransactionId
    assert (len(identifier), identifier[:16]) == (20, two.near.manager.identifier)
    assert two.near.manager.identifier != two.far.manager.identifier


@pytest.mark.spec("AC-3.17.4.1.48-16", "MQ-2.2.19.2-07", "AC-3.17.4.1.19-01")
def test_a_message_that_is_sent_on_comes_from_where_that_is_done(two: Two) -> None:
    info, other = made(two.far), made(two.far)
    MSMQMessage(two.near).Send(opened(two.from_near(info), SEND))
    found = arrived(opened(info))
    assert found.SourceMachineGuid == guid_text(two.near.manager.identifier)
    begun = int(datetime.now(UTC).timestamp())
    found.Send(opened(other, SEND))
    again = arrived(opened(other))
    assert again.SentTime is not None
    assert abs(again.SentTime.timestamp() - begun) < 300
    own = guid_text(two.far.manager.identifier)
    assert found.SourceMachineGuid == again.SourceMachineGuid == own


@pytest.mark.spec(
    "AC-3.17.4.1.6-01", "AC-3.17.4.1.75-01", "AC-3.17.4.1.84-01", "AC-2.2.2.17-01",
    "AC-2.2.2.17-02",
)  # fmt: skip
def test_what_was_found_valid_is_shown_by_its_number(two: Two) -> None:
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    assert MQMSGAUTHENTICATION["MQMSG_AUTHENTICATED_SIGXML"].value == 9  # SRMP alone has these
    for level, number in ((0, 0), (2, 1), (4, 3), (8, 5)):
        signed(two, level, has_lists=True).Send(sender)
        found = arrived(reader)
        assert found.ReceivedAuthenticationLevel == number
        assert (found.IsAuthenticated, found.IsAuthenticated2) == (int(number > 0), number > 0)
        assert (type(found.IsAuthenticated), type(found.IsAuthenticated2)) == (int, bool)
        names = [each for each, value in MQMSGAUTHENTICATION.__members__.items() if value == number]
        assert names == SYNONYMS[number]


SYNONYMS = {
    0: ["MQMSG_AUTHENTICATION_NOT_REQUESTED"],
    1: ["MQMSG_AUTHENTICATION_REQUESTED", "MQMSG_AUTHENTICATED_SIG10"],
    3: ["MQMSG_AUTHENTICATION_REQUESTED_EX", "MQMSG_AUTHENTICATED_SIG20"],
    5: ["MQMSG_AUTHENTICATED_SIG30"],
}


@pytest.mark.spec("AC-2.2.2.6-01")
def test_a_queue_may_take_authenticated_messages_alone(two: Two) -> None:
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    for is_wanted in (1, 0):
        info.Authenticate = is_wanted
        info.Update()
        for level in (0, 4):
            message = signed(two, level)
            message.AppSpecific = level
            message.Send(sender)
        taken = [arrived(reader).AppSpecific for _ in range(2 - is_wanted)]
        assert taken == ([4] if is_wanted else [0, 4])


# The sender ------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.17.4.1.43-01", "AC-3.17.4.1.45-01", "AC-3.17.4.1.46-01", "AC-3.17.4.1.47-01",
    "AC-3.17.4.1.48-13",
)  # fmt: skip
def test_a_message_names_its_sender_unless_it_shall_not(two: Two) -> None:
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    for level in (0, 4):
        certificate = two.signer.certificate if level else b""
        for kind, sid in ((1, two.sid), (0, b"")):
            message = signed(two, level)
            assert message.SenderIdType == 1  # unless it is put
            message.SenderIdType = kind
            message.Send(sender)
            found = arrived(reader)
            assert (found.SenderIdType, found.SenderId) == (kind, sid)
            assert found.SenderCertificate == certificate


@pytest.mark.spec("AC-2.2.2.14-01")
def test_a_sender_without_sid_counts_as_anonymous(two: Two) -> None:
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    allowed = control_pb2.Ace(
        type=control_pb2.ALLOW, sid=sid_text(two.sid), mask=int(QueueAccess.WRITE_MESSAGE)
    )
    name = control_pb2.QueueName(name=info.FormatName or "")
    request = control_pb2.SetAclRequest(queue=name, entries=[allowed])
    ask(two.far, lambda s: s.queues.SetAcl, request)
    for kind in (ANONYMOUS, BY_SID):
        message = signed(two, 4)
        message.SenderIdType, message.AppSpecific = kind, int(kind)
        message.Send(sender)
    assert arrived(reader).AppSpecific == BY_SID
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        reader.Receive(ReceiveTimeout=0)


# Transactional senders -------------------------------------------------------------------------


@pytest.mark.spec("AC-2.2.4.1-02", "AC-2.2.4.2-02", "MQ-2.3.12-01", "MQ-2.3.12-02")
def test_both_sides_know_the_same_of_a_sequence(two: Two) -> None:
    info = made(two.far, is_transactional=True)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    for _ in range(3):
        MSMQMessage(two.near).Send(sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
        arrived(reader)
        # One OrderAck for each message: a later one may confirm two.
        until(lambda: not waiting(two.near))
    now = datetime.now(UTC).timestamp()
    management = MSMQManagement(two.far)
    management.Init(FormatName=info.FormatName)
    (found,) = management.queue_management().EodGetReceiveInfo()
    assert found.Item("SenderID") == guid_text(two.near.manager.identifier)
    name = two.from_near(info).FormatName or ""
    assert str(found.Item("QueueFormatName")).upper() == name.upper()
    sequence, number = found.Item("SeqID"), found.Item("SeqNo")
    assert abs(found.Item("LastAccessTime") - now) < 300
    assert found.Item("RejectCount") == 0
    # The sender knows the same of it.
    management = MSMQManagement(two.near)
    management.Init(FormatName=two.from_near(info).FormatName)
    sent = management.outgoing_queue_management().EodGetSendInfo()
    assert [*sent.Item("EodLastAck")] == [sequence, number, number - 1]
    assert [*sent.Item("EodNextSeq")] == [sequence, number + 1, number]
    counts = ("EodLastAckCount", "EodNoAckCount", "EodNoReadCount", "EodResendCount")
    assert [sent.Item(name) for name in counts] == [3, 0, 0, 0]
    assert abs(sent.Item("EodLastAckTime") - now) < 300
    assert sent.Item("EodResendInterval") == resend_timer_table()[0]


# Journals and dead letters ---------------------------------------------------------------------


def system_queue(service: MSMQService, name: str, *, quota_kib: int = 0xFFFF_FFFF) -> MSMQQueue:
    """A queue of the queue manager's own; all of them have this quota."""
    info = info_of(service, name=f"DIRECT=OS:QUORATE\\SYSTEM$;{name}")
    changes = {"journal_quota": control_pb2.Value(number=quota_kib)}
    request = control_pb2.SetQueueManagerRequest(changes=changes)
    ask(service, lambda s: s.queues.SetQueueManager, request)
    return opened(info)


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + ARRIVES_WITHIN_MS / 1_000
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def waiting(service: MSMQService) -> int:
    """Messages that have not been acknowledged by other queue managers."""
    request = control_pb2.ListOutgoingRequest()
    reply = ask(service, lambda s: s.outgoing.ListOutgoing, request)
    return sum(queue.message_count for queue in reply.queues)


def held(service: MSMQService, info: MSMQQueueInfo) -> int:
    """Messages in a queue."""
    name = control_pb2.QueueName(name=info.FormatName or "")
    request = control_pb2.GetQueueRequest(queue=name)
    return ask(service, lambda s: s.queues.GetQueue, request).message_count


@pytest.mark.spec("AC-2.2.2.12-03")
def test_delivered_messages_are_copied_to_the_journal_while_it_has_room(two: Two) -> None:
    info = made(two.far)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    journal = system_queue(two.near, "JOURNAL", quota_kib=2)
    for number in range(4):
        message = MSMQMessage(two.near)
        message.Body, message.AppSpecific = bytes(1_000), number
        message.Journal = MQMSGJOURNAL.MQMSG_JOURNAL if number else MQMSGJOURNAL.MQMSG_JOURNAL_NONE
        message.Send(sender)
        assert arrived(reader).Journal == message.Journal  # PositiveJournalingRequested
    until(lambda: not waiting(two.near))
    assert arrived(journal).AppSpecific == 1
    system_queue(two.near, "JOURNAL")
    message.AppSpecific = 9
    message.Send(sender)
    assert arrived(journal).AppSpecific == 9  # 2 and 3 were discarded
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        journal.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-2.2.2.12-03")
def test_so_are_those_of_transactions(two: Two) -> None:
    info = made(two.far, is_transactional=True)
    sender, reader = opened(two.from_near(info), SEND), opened(info)
    journal = system_queue(two.near, "JOURNAL")
    for number, asked in enumerate((0, 2)):
        message = MSMQMessage(two.near)
        message.AppSpecific, message.Journal = number, asked
        message.Send(sender, MQTRANSACTION.MQ_SINGLE_MESSAGE)
        assert arrived(reader).Journal == asked
    assert arrived(journal).AppSpecific == 1
    until(lambda: not waiting(two.near))
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        journal.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-2.2.2.12-02")
def test_undelivered_messages_are_copied_to_the_dead_letters_while_these_have_room(
    two: Two,
) -> None:
    info = made(two.far)
    sender = opened(info, SEND)
    letters = system_queue(two.far, "DEADLETTER", quota_kib=2)
    for number in range(4):
        message = MSMQMessage(two.far)
        message.Body, message.AppSpecific = bytes(1_000), number
        message.Journal = (
            MQMSGJOURNAL.MQMSG_DEADLETTER if number else MQMSGJOURNAL.MQMSG_JOURNAL_NONE
        )
        message.MaxTimeToReceive = 1
        message.Send(sender)
    until(lambda: not held(two.far, info))
    assert arrived(letters).AppSpecific == 1
    system_queue(two.far, "DEADLETTER")
    message.AppSpecific = 9
    message.Send(sender)
    found = arrived(letters)
    assert (found.AppSpecific, found.Journal) == (9, 1)  # NegativeJournalingRequested
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        letters.Receive(ReceiveTimeout=0)
    # What never reaches its queue is copied where it was sent.
    unsent = opened(info_of(two.near, name="DIRECT=TCP:127.255.255.254\\private$\\q"), SEND)
    letters = system_queue(two.near, "DEADLETTER")
    for number in (7, 8):
        message = MSMQMessage(two.near)
        message.AppSpecific, message.MaxTimeToReachQueue = number, 1
        if number == 8:
            message.Journal = MQMSGJOURNAL.MQMSG_DEADLETTER
        message.Send(unsent)
    assert arrived(letters).AppSpecific == 8
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        letters.Receive(ReceiveTimeout=0)


@pytest.mark.spec("AC-3.1.6.1.1-02", "AC-3.1.6.1.1-03", "AC-1.4-01")
def test_an_expired_message_of_another_source_machine(two: Two) -> None:
    for is_transactional in (True, False):
        info = made(two.far, is_transactional=is_transactional)
        sender, looker = opened(two.from_near(info), SEND), opened(info)
        how = MQTRANSACTION.MQ_SINGLE_MESSAGE if is_transactional else 0
        for journal in (0, 1):
            message = MSMQMessage(two.near)
            message.Label, message.Journal = f"asked {journal}", journal
            message.MaxTimeToReceive = 6
            message.Send(sender, how)
        looker.Peek(ReceiveTimeout=ARRIVES_WITHIN_MS)
    letters = {
        name: opened(info_of(two.far, name=f"DIRECT=OS:QUORATE\\SYSTEM$;{name}"))
        for name in ("DEADLETTER", "DEADXACT")
    }
    # Only the non-transactional one that asked for it, and in the queue of this side.
    assert arrived(letters["DEADLETTER"]).Label == "asked 1"
    for queue in letters.values():
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            queue.Receive(ReceiveTimeout=0)
    # The transactional one is its own machine's dead letter.
    source = opened(info_of(two.near, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADXACT"))
    assert arrived(source).Label == "asked 1"
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        source.Receive(ReceiveTimeout=0)
