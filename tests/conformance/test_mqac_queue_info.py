"""MSMQQueueInfo over a real node [MC-MQAC 3.10]."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from qm.client.mqac import MSMQMessage, MSMQQueueInfo, MSMQService
from qm.client.mqac.constants import E_NOTIMPL, MQACCESS, MQJOURNAL, MQPRIVLEVEL, MQSHARE
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_world import (
    PEEK,
    RECEIVE,
    SEND,
    ask,
    fails,
    fresh_path,
    info_of,
    made,
    opened,
    serving,
)

E = ErrorCode
REMOTE = "elsewhere\\private$\\q"
SEVERAL = "DIRECT=OS:QUORATE\\private$\\a,DIRECT=OS:QUORATE\\private$\\b"
MULTICAST = "MULTICAST=234.1.1.1:8001"
HTTP = "DIRECT=HTTP://host/msmq/q"


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


# State and names -------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.10.1-01", "AC-3.10.4.1.7-01", "AC-3.10.4.1.8-01", "AC-3.10.4.1.9-01", "AC-3.10.3-02"
)
def test_a_name_that_is_put_means_another_queue(service: MSMQService) -> None:
    info = MSMQQueueInfo(service)
    assert info.FormatName is None
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        _ = info.PathName
    first, second = made(service), made(service)
    info.PathName = first.PathName or ""
    info.Label = "mine"
    info.Refresh()
    assert info.Label == ""
    info.FormatName = second.FormatName or ""
    assert info.PathName == second.PathName
    assert info.QueueGuid == second.QueueGuid != first.QueueGuid
    info.PathName = first.PathName or ""
    assert info.QueueGuid == first.QueueGuid
    renamed = info_of(service, path=first.PathName or "")
    renamed.Refresh()
    assert renamed.QueueGuid == first.QueueGuid


@pytest.mark.spec("AC-3.10.3-01", "AC-3.10.6.1-01")
def test_without_a_name_nothing_can_be_done(service: MSMQService) -> None:
    info = MSMQQueueInfo(service)
    for call in (info.Create, info.Refresh, info.Update, info.Delete):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            call()
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        info.Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    info.PathName = "\\nobody"
    with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        info.Create()
    named = made(service)
    found = info_of(service, path=(named.PathName or "").replace("QUORATE", "."))
    assert found.FormatName == named.FormatName


@pytest.mark.spec(
    "AC-3.10.6.1-02", "AC-3.10.6.1-03", "AC-3.10.6.1-04", "AC-3.1.6.2-01", "AC-3.1.6.2-03"
)
def test_a_path_becomes_a_format_name(service: MSMQService) -> None:
    for name, code in (
        ("x" * 63, E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("x" * 64, E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ("x" * 62 + "/", E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ):
        with fails(code):
            info_of(service, path="QUORATE\\" + name).Refresh()
    private = made(service)
    name = private.FormatName or ""
    guid, _, number = name.removeprefix("PRIVATE=").partition("\\")
    assert (len(guid), len(number)) == (36, 8)
    path = private.PathName or ""
    subqueue = info_of(service, path=f"{path};retry")
    assert (subqueue.FormatName or "").upper() == f"DIRECT=OS:{path};retry".upper()
    missing = info_of(service, path=fresh_path())
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        missing.Refresh()
    assert missing.FormatName is None
    wrong = info_of(service, path="no path at all")
    with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        wrong.Refresh()


@pytest.mark.spec("AC-3.1.6.2-02")
def test_a_public_queue_is_found_in_the_directory(service: MSMQService) -> None:
    info = info_of(service, path="QUORATE\\public1")
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        info.Refresh()
    info.Create()
    found = info_of(service, path="QUORATE\\public1")
    assert found.FormatName == f"PUBLIC={info.QueueGuid}"
    found.Delete()


# Properties ------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.10.4.1.1-01", "AC-3.10.4.1.2-01", "AC-3.10.4.1.3-01", "AC-3.10.4.1.6-01")
def test_identity_and_type(service: MSMQService) -> None:
    info = made(service)
    assert len(info.QueueGuid or "") == 36
    assert info.ServiceTypeGuid == "00000000-0000-0000-0000-000000000000"
    kind = "01020304-0506-0708-090A-0B0C0D0E0F10"
    info.ServiceTypeGuid = "{" + kind + "}"
    info.Update()
    again = info_of(service, name=info.FormatName or "")
    assert again.ServiceTypeGuid == kind
    assert again.PathName == info.PathName
    dead_letters = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    dead_letters.Refresh()
    assert dead_letters.QueueGuid is None


@pytest.mark.spec("AC-3.10.4.1.4-01", "AC-3.10.4.1.5-01", "AC-3.10.4.1.30-01")
def test_a_label_reaches_the_queue_with_update(service: MSMQService) -> None:
    info = made(service)
    info.Label = "new"
    assert info_of(service, name=info.FormatName or "").Label == ""
    info.Update()
    assert info_of(service, name=info.FormatName or "").Label == "new"
    for name, code in (
        (SEVERAL, E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        ("DIRECT=OS:QUORATE\\private$\\none", E.MQ_ERROR_QUEUE_NOT_FOUND),
    ):
        with fails(code):
            info_of(service, name=name).Update()


@pytest.mark.spec("AC-3.10.4.1.10-01", "AC-3.10.4.1.35-01")
def test_a_queue_is_transactional_from_its_creation(service: MSMQService) -> None:
    for is_transactional in (False, True):
        info = made(service, is_transactional=is_transactional)
        again = info_of(service, name=info.FormatName or "")
        assert (again.IsTransactional, again.IsTransactional2) == (
            int(is_transactional),
            is_transactional,
        )


@pytest.mark.spec(
    "AC-3.10.4.1.11-01",
    "AC-3.10.4.1.12-01",
    "AC-3.10.4.1.13-01",
    "AC-3.10.4.1.14-01",
)
def test_privacy_and_journal(service: MSMQService) -> None:
    info = made(service)
    assert (info.PrivLevel, info.Journal) == (MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL, 0)
    info.PrivLevel = MQPRIVLEVEL.MQ_PRIV_LEVEL_NONE
    info.Journal = 7
    info.Update()
    again = info_of(service, name=info.FormatName or "")
    assert (again.PrivLevel, again.Journal) == (
        MQPRIVLEVEL.MQ_PRIV_LEVEL_NONE,
        MQJOURNAL.MQ_JOURNAL,
    )
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert (system.PrivLevel, system.Journal) == (MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL, 0)


@pytest.mark.spec(
    "AC-3.10.4.1.15-01", "AC-3.10.4.1.16-01", "AC-3.10.4.1.23-01", "AC-3.10.4.1.24-01"
)
def test_quotas_are_kilobytes_both(service: MSMQService) -> None:
    info = made(service)
    assert (info.Quota, info.JournalQuota) == (-1, -1)
    info.Quota, info.JournalQuota = 100, 50
    info.Update()
    again = info_of(service, name=info.FormatName or "")
    assert (again.Quota, again.JournalQuota) == (100, 50)
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert (system.Quota, system.JournalQuota) == (-1, -1)


@pytest.mark.spec("AC-3.10.4.1.17-01", "AC-3.10.4.1.18-01")
def test_a_base_priority_is_a_public_queue_s(service: MSMQService) -> None:
    private = made(service)
    assert private.BasePriority == 0
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        private.BasePriority = 3
    public = info_of(service, path="QUORATE\\public2")
    public.BasePriority = -5  # a public path name will do
    public.Create()
    for value in (-32769, 32768):
        with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
            public.BasePriority = value
    public.BasePriority = 32767
    public.Update()
    again = info_of(service, path="QUORATE\\public2")
    assert again.BasePriority == 32767
    again.Delete()


@pytest.mark.spec(
    "AC-3.10.4.1.19-01", "AC-3.10.4.1.20-01", "AC-3.10.4.1.21-01", "AC-3.10.4.1.22-01"
)
def test_times_and_authentication(service: MSMQService) -> None:
    info = made(service)
    now = datetime.now(UTC)
    assert abs((info.CreateTime - now).total_seconds()) < 300
    assert info.CreateTime.tzinfo is UTC
    assert info.ModifyTime >= info.CreateTime
    assert info.Authenticate == 0
    info.Authenticate = 2
    info.Update()
    assert info_of(service, name=info.FormatName or "").Authenticate == 1
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert system.ModifyTime == datetime(1970, 1, 1, tzinfo=UTC)
    assert system.Authenticate == 0


@pytest.mark.spec("AC-3.10.4.1.25-01", "AC-3.10.4.1.36-01")
def test_world_readable_follows_the_right_to_take_ownership(service: MSMQService) -> None:
    info = made(service)
    assert info.IsWorldReadable == int(info.IsWorldReadable2)
    assert info.IsWorldReadable2  # administrators may take it, too
    assert info_of(service, path=fresh_path()).IsWorldReadable2


@pytest.mark.spec("AC-3.10.4.1.37-01", "AC-3.10.4.1.38-01")
def test_a_multicast_address(service: MSMQService) -> None:
    info = made(service)
    assert info.MulticastAddress == ""
    info.MulticastAddress = "234.1.1.1:8001"
    info.Update()
    assert info_of(service, name=info.FormatName or "").MulticastAddress == "234.1.1.1:8001"


@pytest.mark.spec(
    "AC-3.10.4.1.31-01",
    "AC-3.10.4.1.32-01",
    "AC-3.10.4.1.33-01",
    "AC-3.10.4.1.34-01",
    "AC-3.10.4.1.39-01",
)
def test_what_public_queues_have_alone_and_what_nobody_has(service: MSMQService) -> None:
    private = made(service)
    for name in ("PathNameDNS", "ADsPath"):
        with fails(E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
            getattr(private, name)
    public = info_of(service, path="QUORATE\\public3")
    public.Create()
    again = info_of(service, path="QUORATE\\public3")
    assert again.PathNameDNS.lower().endswith("\\public3")
    assert isinstance(again.ADsPath, str)
    again.Delete()
    for name in ("Properties", "Security"):
        with fails(E_NOTIMPL):
            getattr(private, name)
    with fails(E_NOTIMPL):
        private.Security = b""


# Methods ---------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.10.4.1.26-01")
def test_create_checks_in_order_and_sets_what_was_put(service: MSMQService) -> None:
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        MSMQQueueInfo(service).Create()
    with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        info_of(service, path="x" * 300).Create()
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        info_of(service, path=REMOTE).Create()
    info = info_of(service, path=fresh_path())
    info.Label, info.Journal, info.Quota = "l", 1, 77
    info.Create(IsTransactional=True)
    again = info_of(service, name=info.FormatName or "")
    assert (again.Label, again.Journal, again.Quota, again.IsTransactional2) == ("l", 1, 77, True)
    with fails(E.MQ_ERROR_QUEUE_EXISTS):
        info_of(service, path=info.PathName or "").Create()


@pytest.mark.spec("AC-3.10.4.1.26-02")
def test_create_is_neither_transactional_nor_world_readable_by_default(
    service: MSMQService,
) -> None:
    from qm.pb import control_pb2

    def everyone(info: MSMQQueueInfo) -> int:
        name = control_pb2.QueueName(name=info.FormatName or "")
        acl = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
        mask = 0
        for entry in acl.entries:
            mask |= entry.mask if entry.principal == "Everyone" else 0
        return mask

    plain = info_of(service, path=fresh_path())
    plain.Create()
    assert not plain.IsTransactional2
    assert not everyone(plain) & 0x3
    readable = info_of(service, path=fresh_path())
    readable.Create(IsWorldReadable=True)
    assert everyone(readable) & 0x3 == 0x3


@pytest.mark.spec("AC-3.10.4.1.26.1-01", "AC-3.10.4.1.26.1-02", "AC-3.10.4.1.26.1-03")
def test_a_new_queue_s_access_list(service: MSMQService) -> None:
    from qm.pb import control_pb2

    name = control_pb2.QueueName(name=made(service).FormatName or "")
    acl = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
    everyone, anonymous, owner, *_ = acl.entries
    everything = int(QueueAccess.QUEUE_GENERIC_ALL)
    see = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS
    assert (everyone.sid, everyone.mask) == ("S-1-1-0", see | QueueAccess.WRITE_MESSAGE)
    assert (anonymous.sid, anonymous.mask) == ("S-1-5-7", QueueAccess.WRITE_MESSAGE)
    assert (owner.sid, owner.mask) == (acl.owner_sid, everything)


@pytest.mark.spec("AC-3.10.4.1.27-01")
def test_delete_resets_the_object(service: MSMQService) -> None:
    info = made(service)
    name = info.FormatName or ""
    info.Delete()
    assert info.FormatName is None
    for read in ("PathName", "Label", "QueueGuid"):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            getattr(info, read)
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        info_of(service, name=name).Delete()
    for several in (SEVERAL, MULTICAST, HTTP):
        with fails(E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
            info_of(service, name=several).Delete()
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        info_of(service, path=REMOTE).Delete()


@pytest.mark.spec("AC-3.10.4.1.28-01", "AC-2.2.2.3-02", "AC-2.2.2.3-03")
def test_open_checks_access_share_and_name(service: MSMQService) -> None:
    info = made(service)
    with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
        info.Open(SEND, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
        info.Open(SEND | MQACCESS.MQ_ADMIN_ACCESS, MQSHARE.MQ_DENY_NONE)
    for name in (SEVERAL, MULTICAST, HTTP):
        with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
            info_of(service, name=name).Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        info_of(service, path=fresh_path()).Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    message = MSMQMessage(service)
    sender, reader, looker = opened(info, SEND), opened(info), opened(info, PEEK)
    message.Send(sender)
    assert looker.Peek(ReceiveTimeout=0) is not None
    assert reader.Receive(ReceiveTimeout=0) is not None
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        message.Send(reader)
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        looker.Receive(ReceiveTimeout=0)
    for queue in (sender, reader, looker):
        queue.Close()


@pytest.mark.spec("AC-2.2.2.2-02", "AC-2.2.2.2-03")
def test_share_modes_exclude_both_ways(service: MSMQService) -> None:
    info = made(service)
    shared = opened(info)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    shared.Close()
    alone = info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        opened(info)
    alone.Close()
    opened(info).Close()


@pytest.mark.spec("AC-3.10.4.1.29-01")
def test_refresh_reads_and_refuses(service: MSMQService) -> None:
    info = made(service)
    again = info_of(service, name=info.FormatName or "")
    info.Label = "changed"
    info.Update()
    again.Refresh()
    assert again.Label == "changed"
    for name in (SEVERAL, MULTICAST, HTTP):
        with fails(E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
            info_of(service, name=name).Refresh()
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        info_of(service, path=REMOTE).Refresh()


@pytest.mark.spec("AC-3.1.1.2-01")
def test_sends_to_other_computers_wait_in_an_outgoing_queue(service: MSMQService) -> None:
    from qm.pb import control_pb2

    local = made(service)
    MSMQMessage(service).Send(opened(local, SEND))
    assert opened(local).Receive(ReceiveTimeout=0) is not None
    remote = info_of(service, name="DIRECT=TCP:127.255.255.254\\private$\\far")
    MSMQMessage(service).Send(opened(remote, SEND))
    reply = ask(
        service, lambda stubs: stubs.outgoing.ListOutgoing, control_pb2.ListOutgoingRequest()
    )
    waiting = {queue.format_name.upper(): queue.message_count for queue in reply.queues}
    assert waiting[(remote.FormatName or "").upper()] == 1
