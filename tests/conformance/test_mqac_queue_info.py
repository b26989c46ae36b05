"""MSMQQueueInfo over a real node [MC-MQAC 3.10]."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import (
    MSMQApplication,
    MSMQManagement,
    MSMQMessage,
    MSMQQuery,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import (
    MQACCESS,
    MQCERT_REGISTER,
    MQJOURNAL,
    MQPRIVLEVEL,
    MQSHARE,
    OLE_E_BLANK,
    QUEUE_STATE,
)
from qm.client.mqac.manager import QueueRecord
from qm.client.mqac.naming import format_name_of_path
from qm.client.values import kept_entry
from qm.names.guid import guid_text
from qm.pb import control_pb2, data_pb2
from qm.wire.access_mask import MachineAccess, QueueAccess
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
    serving_as,
)

E = ErrorCode
WAIT_S = 20
REMOTE = "elsewhere\\private$\\q"
ELSEWHERE = "PRIVATE=01020304-0506-0708-090A-0B0C0D0E0F10\\0000000a"
SEVERAL = "DIRECT=OS:QUORATE\\private$\\a,DIRECT=OS:QUORATE\\private$\\b"
MULTICAST = "MULTICAST=234.1.1.1:8001"
HTTP = "DIRECT=HTTP://host/msmq/q"
SYSTEM = tuple(f"DIRECT=OS:QUORATE\\SYSTEM$;{one}" for one in ("DEADLETTER", "DEADXACT", "JOURNAL"))
SEND_ONLY = (
    SEVERAL,
    SEVERAL.replace("OS:QUORATE\\private$\\b", "HTTP://host/msmq/q"),
    "DL=01020304-0506-0708-090A-0B0C0D0E0F10",
    MULTICAST,
    HTTP,
    HTTP.replace("HTTP", "HTTPS"),
    HTTP.lower(),
)
"""Lists of queues, multicast addresses and HTTP, in every form that names have."""


class Callers:
    """Services of an admin and of a client."""

    admin: MSMQService
    client: MSMQService


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving_as("admin", "client") as (admin, client):
        Callers.admin, Callers.client = admin, client
        yield admin


@contextlib.contextmanager
def as_client(service: MSMQService) -> Iterator[tuple[MSMQService, str]]:
    """The service of a caller who owns nothing, and the caller's name."""
    assert service is Callers.admin
    yield Callers.client, "client"


def acl_of(info: MSMQQueueInfo) -> control_pb2.GetAclRequest:
    """A request for a queue's access list."""
    return control_pb2.GetAclRequest(queue=control_pb2.QueueName(name=info.FormatName or ""))


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
    # It is told as it was put, and nobody is asked about it; nor does a refresh change it.
    asked = Asked(service)
    direct = f"Direct=os:quorate\\{(first.PathName or '').partition(chr(92))[2]}"
    for name in (direct, first.FormatName or "", SEVERAL, "no format name"):
        told = info_of(MSMQService(asked), name=name)
        assert told.FormatName == name
    assert asked.names == []
    direct_info = info_of(service, name=direct)
    assert direct_info.QueueGuid == first.QueueGuid
    assert direct_info.FormatName == direct


@pytest.mark.spec("AC-3.10.3-02")
def test_create_and_refresh_find_out_whether_it_is_an_application_s(service: MSMQService) -> None:
    for path in (fresh_path(), "QUORATE\\flagged"):
        info = info_of(service, path=path)
        info.Create()
        found = info_of(service, name=info.FormatName or "")
        found.Refresh()
        for each in (info, found):
            assert each.QueueGuid is not None
            assert each.ModifyTime.year > 1970
        # It is refreshed: no get reads it again.
        info.Label = "since"
        info.Update()
        assert (found.Label, found.PathName) == ("", info.PathName)
        found.Refresh()
        assert found.Label == "since"
        info.Delete()
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    system.Refresh()
    assert (system.QueueGuid, system.ModifyTime.year) == (None, 1970)


@pytest.mark.spec(
    "AC-3.10.3-01", "AC-3.10.6.1-01", "AC-3.10.4.1.26-03", "AC-3.10.4.1.26-04", "AC-3.10.6.1-05"
)
def test_without_a_name_nothing_can_be_done(service: MSMQService) -> None:
    info = MSMQQueueInfo(service)
    for call in (info.Create, info.Refresh, info.Update, info.Delete):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            call()
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        info.Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    for path in ("\\nobody", "\\private$\\nobody", "QUORATE\\", "QUORATE", "no path at all"):
        info.PathName = path
        for call in (info.Create, info.Refresh):
            with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
                call()
    named = made(service)
    with fails(E.MQ_ERROR_INVALID_PARAMETER):  # a format name does not do for Create
        info_of(service, name=named.FormatName or "").Create()
    for by in ({"name": named.FormatName or ""}, {"path": named.PathName or ""}):
        # One name does, before anything has found the other.
        for ready in ("Refresh", "Update"):
            getattr(info_of(service, **by), ready)()
        opened(info_of(service, **by)).Close()
    found = info_of(service, path=(named.PathName or "").replace("QUORATE", "."))
    assert found.FormatName == named.FormatName
    other = made(service)
    info_of(service, name=named.FormatName or "").Delete()
    info_of(service, path=other.PathName or "").Delete()
    for deleted in (named, other):
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            deleted.Refresh()
    public = info_of(service, path=".\\here")
    public.Create()
    assert info_of(service, path=".\\here").FormatName == public.FormatName
    public.Delete()


@pytest.mark.spec("AC-3.10.6.1-02", "AC-3.10.6.1-04", "AC-3.10.6.1-07", "AC-3.10.6.1-08")
def test_a_path_becomes_a_format_name(service: MSMQService) -> None:
    for name, code in (
        ("x" * 63, E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("x" * 64, E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ("x" * 61 + "/", E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("x" * 62 + "/", E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ):
        with fails(code):
            info_of(service, path="QUORATE\\" + name).Refresh()
    private = made(service)
    name = private.FormatName or ""
    own = guid_text(service.manager.identifier)
    assert re.fullmatch(f"PRIVATE={own}\\\\[0-9a-f]{{8}}", name), name
    path = private.PathName or ""
    subqueue = info_of(service, path=f"{path};retry")
    assert (subqueue.FormatName or "").upper() == f"DIRECT=OS:{path};retry".upper()
    dotted = info_of(service, path=path.replace("QUORATE", ".") + ";retry")
    assert dotted.FormatName == subqueue.FormatName
    missing = info_of(service, path=fresh_path())
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        missing.Refresh()
    assert missing.FormatName is None
    # A public queue that the directory does not know has no name, whatever its computer is.
    for unknown in ("elsewhere\\public", "QUORATE\\unknown", ".\\unknown"):
        missing = info_of(service, path=unknown)
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            missing.Refresh()
        assert missing.FormatName is None
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            opened(missing, SEND)


class Asked(ClusterManager):
    """The cluster, and which queues it was asked for."""

    def __init__(self, service: MSMQService) -> None:
        assert isinstance(service.manager, ClusterManager)
        super().__init__(service.manager.client)
        self.names: list[str] = []

    @override
    def queue(self, name: str) -> QueueRecord:
        self.names.append(name)
        return super().queue(name)


class Directory(ClusterManager):
    """The cluster with another answer about its directory."""

    def __init__(self, service: MSMQService, **attributes: bool) -> None:
        assert isinstance(service.manager, ClusterManager)
        super().__init__(service.manager.client)
        self.told = attributes

    @override
    def attributes(self) -> Mapping[str, Any]:
        return {**super().attributes(), **self.told}


@pytest.mark.spec("AC-3.1.6.2-01", "AC-3.1.6.2-04")
def test_the_format_name_of_a_path(service: MSMQService) -> None:
    private = made(service)
    path = private.PathName or ""
    integrated = Directory(service, directory_integrated=True)
    alone = Directory(service, directory_integrated=False)
    own = guid_text(service.manager.identifier)
    name = format_name_of_path(integrated, path)
    assert re.fullmatch(f"PRIVATE={own}\\\\[0-9a-f]{{8}}", name)
    assert name == private.FormatName
    assert format_name_of_path(alone, path).upper() == f"DIRECT=OS:{path}".upper()
    for each in (integrated, alone):
        subqueue = format_name_of_path(each, f"{path};retry")
        assert subqueue.upper() == f"DIRECT=OS:{path};retry".upper()
        of_public = format_name_of_path(each, "QUORATE\\public;retry")
        assert of_public.upper() == "DIRECT=OS:QUORATE\\PUBLIC;RETRY"
        elsewhere = format_name_of_path(each, REMOTE)
        assert elsewhere.upper() == f"DIRECT=OS:{REMOTE}".upper()
        for wrong in ("no path at all", "QUORATE\\system$;deadletter", ""):
            with fails(0xC00E_0014):
                format_name_of_path(each, wrong)


@pytest.mark.spec("AC-2.2.2.2-04")
def test_an_exclusive_queue_is_one_client_s(service: MSMQService) -> None:
    info = made(service)
    everything = control_pb2.Ace(
        type=control_pb2.ALLOW, principal="Everyone", mask=int(QueueAccess.QUEUE_GENERIC_ALL)
    )
    name = control_pb2.QueueName(name=info.FormatName or "")
    request = control_pb2.SetAclRequest(queue=name, entries=[everything])
    ask(service, lambda stubs: stubs.queues.SetAcl, request)
    same, another = (
        info_of(each, name=info.FormatName or "") for each in (service, Callers.client)
    )
    alone = info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    for share in (MQSHARE.MQ_DENY_NONE, MQSHARE.MQ_DENY_RECEIVE_SHARE):
        for other in (same, another):
            with fails(E.MQ_ERROR_SHARING_VIOLATION):  # DM-A21: as a receiver
                other.Open(RECEIVE, share)
    alone.Close()
    for other in (same, another):
        shared = other.Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
        with fails(E.MQ_ERROR_SHARING_VIOLATION):
            info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
        shared.Close()


@pytest.mark.spec("AC-3.1.6.2-02", "AC-3.1.6.2-01", "AC-3.10.6.1-04")
def test_a_public_queue_is_found_in_the_directory(service: MSMQService) -> None:
    info = info_of(service, path="QUORATE\\public1")
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        info.Refresh()
    info.Create()
    found = info_of(service, path="QUORATE\\public1")
    assert found.FormatName == f"PUBLIC={info.QueueGuid}"
    assert format_name_of_path(service.manager, "QUORATE\\public1") == found.FormatName
    assert (format_name_of_path(service.manager, ".\\public1")) == found.FormatName
    offline = Directory(service, directory_offline=True)
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        format_name_of_path(offline, "QUORATE\\public1")
    found.Delete()
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        format_name_of_path(service.manager, "QUORATE\\public1")


# Properties ------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.10.3-03")
def test_a_queue_has_the_defaults(service: MSMQService) -> None:
    info = made(service)
    wanted = {
        "Label": "", "ServiceTypeGuid": "00000000-0000-0000-0000-000000000000", "Journal": 0,
        "Quota": -1, "JournalQuota": -1, "Authenticate": 0, "PrivLevel": 1, "IsTransactional": 0,
        "MulticastAddress": "", "BasePriority": 0,
    }  # fmt: skip
    assert {name: getattr(info, name) for name in wanted} == wanted
    # So has the copy of an object, before Refresh fills it with anything else.
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert {name: getattr(system, name) for name in wanted} == wanted


PUTS: dict[str, Any] = {
    "ServiceTypeGuid": "{01020304-0506-0708-090A-0B0C0D0E0F10}", "Label": "l", "PrivLevel": 0,
    "Journal": 1, "Quota": 5, "Authenticate": 1, "JournalQuota": 6,
    "MulticastAddress": "234.1.1.1:8002",
}  # fmt: skip


@pytest.mark.spec("AC-3.10.4.1-01")
def test_what_is_put_stays_here_until_create_or_update(service: MSMQService) -> None:
    info = made(service)
    nowhere = MSMQQueueInfo(service)
    before = {name: getattr(info, name) for name in PUTS}
    for name, value in PUTS.items():
        setattr(info, name, value)
        setattr(nowhere, name, value)
    again = info_of(service, name=info.FormatName or "")
    assert {name: getattr(again, name) for name in PUTS} == before
    info.Update()
    again.Refresh()
    assert all(getattr(again, name) != before[name] for name in PUTS)
    for name in ("Journal", "Quota", "Authenticate", "JournalQuota", "PrivLevel"):
        for number in (-1, -77, 77):
            setattr(info, name, number)
    for name in ("PathName", "FormatName"):
        for text in ("", "no name", SEVERAL, HTTP, "x" * 500):
            setattr(nowhere, name, text)
    for name, odd in (
        ("ServiceTypeGuid", "no GUID"), ("Label", "l" * 500), ("PrivLevel", 77),
        ("MulticastAddress", "no address"),
    ):  # fmt: skip
        wrong = info_of(service, path=fresh_path())
        setattr(wrong, name, odd)  # no check here
        with pytest.raises(MqError):
            wrong.Create()


def test_what_was_put_is_read_before_create(service: MSMQService) -> None:
    numbers = {"Journal": 1, "Quota": 5, "JournalQuota": 6, "Authenticate": 1}
    for info in (MSMQQueueInfo(service), info_of(service, path=fresh_path())):
        for puts in (PUTS, {"PrivLevel": 2}, {"PrivLevel": 0}):
            for name, value in puts.items():
                setattr(info, name, value)
                wanted = value.strip("{}") if isinstance(value, str) else value
                assert getattr(info, name) == wanted, name
    # What belongs to no application has fixed answers once it is known.
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    system.Refresh()
    fixed = {"PrivLevel": 1, "Journal": 0, "Quota": -1, "JournalQuota": -1, "Authenticate": 0}
    for name, value in (numbers | {"PrivLevel": 2}).items():
        setattr(system, name, value)
        assert getattr(system, name) == fixed[name]


@pytest.mark.spec("AC-3.10.4.1-02", "AC-3.10.4.1-03")
def test_a_get_refreshes_first_and_fails_as_that_does(service: MSMQService) -> None:
    names = (
        *PUTS, "QueueGuid", "IsTransactional", "IsTransactional2", "BasePriority", "CreateTime",
        "ModifyTime", "PathNameDNS", "ADsPath",
    )  # fmt: skip
    for info, code in (
        (MSMQQueueInfo(service), E.MQ_ERROR_INVALID_PARAMETER),
        (info_of(service, path=fresh_path()), E.MQ_ERROR_QUEUE_NOT_FOUND),
        (info_of(service, name=SEVERAL), E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ):
        for name in names:
            with fails(code):
                getattr(info, name)
        assert info.IsWorldReadable == 1
        assert info.IsWorldReadable2 is True
        assert info.FormatName in (None, SEVERAL)
    with fails(E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):  # a path name that was put needs none
        _ = info_of(service, name=SEVERAL).PathName
    # The first get after Create reads the queue, and later ones do not.
    info = made(service)
    other = info_of(service, name=info.FormatName or "")
    for label in ("one", "two"):
        other.Label = label
        other.Update()
        assert info.Label == "one"


@pytest.mark.spec("AC-3.10.4.1.12-02", "AC-3.10.4.1.14-02", "AC-3.10.4.1.22-02")
def test_numbers_are_not_checked_when_they_are_put(service: MSMQService) -> None:
    for value in (1, 2, -1, 77):
        info = made(service)
        info.Journal = info.Authenticate = value
        info.Update()
        again = info_of(service, name=info.FormatName or "")
        assert (again.Journal, again.Authenticate) == (1, 1)
        again.Journal = again.Authenticate = 0
        again.Update()
        info.Refresh()
        assert (info.Journal, info.Authenticate) == (0, 0)
    info.PrivLevel = 77
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        info.Update()
    for level in (0, 1, 2):
        info.PrivLevel = level
        info.Update()
        assert info_of(service, name=info.FormatName or "").PrivLevel == level
        named = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=info.FormatName or ""))
        seen = ask(service, lambda s: s.queues.GetQueue, named)
        assert seen.attributes["privacy_level"].number == level


@pytest.mark.spec("AC-3.10.4.1.1-02", "AC-3.10.4.1.15-02", "AC-3.10.4.1.23-02", "AC-3.10.4.1.29-06")
def test_a_queue_manager_s_own_queue_shows_no_properties(service: MSMQService) -> None:
    own = guid_text(service.manager.identifier)
    for name in (
        *(f"DIRECT=OS:QUORATE\\SYSTEM$;{one}" for one in ("DEADLETTER", "DEADXACT", "JOURNAL")),
        *(f"MACHINE={own};{one}" for one in ("DEADLETTER", "DEADXACT", "JOURNAL")),
    ):
        asked = Asked(service)
        system = info_of(MSMQService(asked), name=name)
        system.Refresh()
        shown = ("QueueGuid", "Quota", "JournalQuota", "PathName", "Label", "IsTransactional")
        assert [getattr(system, each) for each in shown] == [None, -1, -1, None, "", 0]
        assert asked.names == [name]  # it was read once
    # Nor is an application queue's journal one, though it has a limit.
    info = info_of(service, path=fresh_path())
    info.Quota, info.JournalQuota = 5, 7
    info.Create()
    assert (info.Quota, info.JournalQuota) == (5, 7)
    journal = info_of(service, name=f"{info.FormatName};JOURNAL")
    assert (journal.Quota, journal.JournalQuota) == (-1, -1)


@pytest.mark.spec("AC-3.10.4.1.1-01", "AC-3.10.4.1.2-01", "AC-3.10.4.1.3-01", "AC-3.10.4.1.6-01")
def test_identity_and_type(service: MSMQService) -> None:
    path = fresh_path()
    info = info_of(service, path=path)
    info.Create()
    assert info_of(service, name=info.FormatName or "").PathName == f"QUORATE{path[1:]}"
    named = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=info.FormatName or ""))
    identifier = ask(service, lambda s: s.queues.GetQueue, named).identifier
    assert len(identifier) == 16
    assert info.QueueGuid == guid_text(identifier)
    assert len(info.QueueGuid or "") == 36
    public = info_of(service, path="QUORATE\\identity")
    public.Create()
    again = info_of(service, name=public.FormatName or "")
    assert (again.PathName, again.FormatName) == ("QUORATE\\identity", f"PUBLIC={again.QueueGuid}")
    public.Delete()
    assert info.ServiceTypeGuid == "00000000-0000-0000-0000-000000000000"
    kind = "01020304-0506-0708-090A-0B0C0D0E0F10"
    for put in ("no GUID", "", "{" + kind + "}"):  # any, here
        info.ServiceTypeGuid = put
    info.Update()
    again = info_of(service, name=info.FormatName or "")
    assert again.ServiceTypeGuid == kind
    assert again.PathName == info.PathName
    dead_letters = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    dead_letters.Refresh()
    assert dead_letters.QueueGuid is None
    refreshes_first(service, "QueueGuid", "ServiceTypeGuid", "PathName")


def refreshes_first(service: MSMQService, *names: str) -> None:
    """A get refreshes once, and fails as that does."""
    for name in names:
        for info, code in (
            (MSMQQueueInfo(service), E.MQ_ERROR_INVALID_PARAMETER),
            (
                info_of(service, name="DIRECT=OS:QUORATE\\private$\\none"),
                E.MQ_ERROR_QUEUE_NOT_FOUND,
            ),
            (info_of(service, name=SEVERAL), E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        ):
            with fails(code):
                getattr(info, name)
    queue = made(service)
    for name in names:
        again, other = (info_of(service, name=queue.FormatName or "") for _ in range(2))
        for label in (name, f"{name} since"):
            other.Label = label
            other.Update()
            getattr(again, name)
            assert again.Label == name


@pytest.mark.spec("AC-3.10.4.1.4-01", "AC-3.10.4.1.5-01", "AC-3.10.4.1.30-01")
def test_a_label_reaches_the_queue_with_update(service: MSMQService) -> None:
    info = made(service)
    info.Label = longest = "New label " * 12 + "end."
    assert info_of(service, name=info.FormatName or "").Label == ""
    info.Update()
    assert info_of(service, name=info.FormatName or "").Label == longest
    # Update writes whatever was put, and what a public queue has the directory has.
    public = info_of(service, path="QUORATE\\rewritten")
    public.Create()
    public.BasePriority = 7
    for queue in (info, public):
        for name, value in PUTS.items():
            setattr(queue, name, value)
        queue.Update()
        again = info_of(service, name=queue.FormatName or "")
        shown = {name: getattr(again, name) for name in PUTS}
        assert shown == PUTS | {"ServiceTypeGuid": PUTS["ServiceTypeGuid"][1:-1]}
    assert again.BasePriority == 7
    listed = MSMQQuery(service).LookupQueue(Label=str(PUTS["Label"])).Next()
    assert listed is not None
    assert listed.FormatName == public.FormatName
    public.Delete()
    refreshes_first(service, "Label")
    sent_to = f"DIRECT=OS:{REMOTE}"
    MSMQMessage(service).Send(opened(info_of(service, name=sent_to), SEND))
    for name, code in (
        (SEVERAL, E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (MULTICAST, E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (HTTP, E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        ("DIRECT=OS:QUORATE\\private$\\none", E.MQ_ERROR_QUEUE_NOT_FOUND),
        (sent_to, E.MQ_ERROR_UNSUPPORTED_OPERATION),
    ):
        with fails(code):
            info_of(service, name=name).Update()


@pytest.mark.spec("AC-3.10.4.1.10-01", "AC-3.10.4.1.10-02", "AC-3.10.4.1.35-01", "AC-2.2.2.5-01")
def test_a_queue_is_transactional_from_its_creation(service: MSMQService) -> None:
    for is_transactional in (False, True):
        info = made(service, is_transactional=is_transactional)
        again = info_of(service, name=info.FormatName or "")
        assert type(again.IsTransactional) is int
        assert type(again.IsTransactional2) is bool
        assert (again.IsTransactional, again.IsTransactional2) == (
            int(is_transactional),
            is_transactional,
        )
    refreshes_first(service, "IsTransactional", "IsTransactional2")


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
    public = info_of(service, path="QUORATE\\privacy")
    public.Create()
    for each in (info, public):
        for level in MQPRIVLEVEL:
            each.PrivLevel = level
            each.Update()
            assert info_of(service, name=each.FormatName or "").PrivLevel == level
    public.Delete()
    info.Journal = 0
    info.Update()
    assert info_of(service, name=info.FormatName or "").Journal == MQJOURNAL.MQ_JOURNAL_NONE
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert (system.PrivLevel, system.Journal) == (MQPRIVLEVEL.MQ_PRIV_LEVEL_OPTIONAL, 0)
    refreshes_first(service, "PrivLevel", "Journal")


@pytest.mark.spec("AC-3.10.4.1.15-01", "AC-3.10.4.1.16-01")
def test_quotas_are_kilobytes_both(service: MSMQService) -> None:
    info = made(service)
    assert (info.Quota, info.JournalQuota) == (-1, -1)
    info.Quota, info.JournalQuota = 100, 50
    info.Update()
    again = info_of(service, name=info.FormatName or "")
    assert (again.Quota, again.JournalQuota) == (100, 50)
    # Both in kilobytes, as the queue manager has them (AC-A9).
    name = control_pb2.QueueName(name=info.FormatName or "")
    seen = ask(service, lambda s: s.queues.GetQueue, control_pb2.GetQueueRequest(queue=name))
    assert [seen.attributes[each].number for each in ("quota", "journal_quota")] == [100, 50]
    refreshes_first(service, "Quota", "JournalQuota")
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert (system.Quota, system.JournalQuota) == (-1, -1)


@pytest.mark.spec(
    "AC-3.10.4.1.17-01", "AC-3.10.4.1.18-01", "AC-3.10.4.1.18-02", "AC-3.10.4.1.18-03"
)
def test_a_base_priority_is_a_public_queue_s(service: MSMQService) -> None:
    private = made(service)
    assert private.BasePriority == 0
    for info in (private, MSMQQueueInfo(service), info_of(service, name=SEVERAL)):
        for value in (3, 0, 40_000, -40_000):
            with fails(0xC00E_0018):
                info.BasePriority = value
    public = info_of(service, path="QUORATE\\public2")
    public.BasePriority = -5  # AC-A10: a public path name will do
    public.Create()
    for value in (-32769, 32768):
        with fails(0xC00E_0018):
            public.BasePriority = value
    public.BasePriority = -32768
    public.Update()
    assert info_of(service, path="QUORATE\\public2").BasePriority == -32768
    public.BasePriority = 32767
    public.Update()
    again = info_of(service, path="QUORATE\\public2")
    assert again.BasePriority == 32767
    name = public.FormatName or ""
    for each, wanted in (
        (name, 32767), (name.lower(), 32767), ("DIRECT=OS:QUORATE\\public2", 0),
    ):  # fmt: skip
        found = info_of(service, name=each)
        assert found.BasePriority == wanted
        if wanted:
            found.BasePriority = 7
        else:  # its path name, which is known by now, does not make up for its format name
            assert found.PathName == public.PathName
            with fails(0xC00E_0018):
                found.BasePriority = 7
    again.Delete()
    refreshes_first(service, "BasePriority")


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
    info.Authenticate = 0
    info.Update()
    assert info_of(service, name=info.FormatName or "").Authenticate == 0
    # Each of the two is its own.
    end = time.monotonic() + WAIT_S
    while (again := info_of(service, name=info.FormatName or "")).ModifyTime <= info.CreateTime:
        assert time.monotonic() < end
        info.Label = f"at {time.monotonic()}"
        info.Update()
    assert again.CreateTime == info.CreateTime
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    assert system.ModifyTime == datetime(1970, 1, 1, tzinfo=UTC)
    assert system.Authenticate == 0
    refreshes_first(service, "CreateTime", "ModifyTime", "Authenticate")


@pytest.mark.spec("AC-3.10.4.1.25-01", "AC-3.10.4.1.36-01")
def test_world_readable_follows_the_right_to_take_ownership(service: MSMQService) -> None:
    info = made(service)
    assert info.IsWorldReadable == int(info.IsWorldReadable2)
    assert info.IsWorldReadable2  # administrators may take it, too
    assert info_of(service, path=fresh_path()).IsWorldReadable2
    owner, take = "S-1-5-21-1-2-3-1001", QueueAccess.TAKE_QUEUE_OWNERSHIP
    mine = control_pb2.Ace(type=control_pb2.ALLOW, sid=owner, mask=take)
    for mask, is_readable in ((QueueAccess.RECEIVE_MESSAGE, False), (take, True)):
        others = control_pb2.Ace(type=control_pb2.ALLOW, principal="Everyone", mask=mask)
        name = control_pb2.QueueName(name=info.FormatName or "")
        request = control_pb2.SetAclRequest(queue=name, entries=[mine, others], owner=owner)
        ask(service, lambda stubs: stubs.queues.SetAcl, request)
        assert info.IsWorldReadable == int(is_readable)
        assert info.IsWorldReadable2 is is_readable
    # Who is denied the right does not hold it.
    denied = control_pb2.Ace(type=control_pb2.DENY, principal="Everyone", mask=take)
    request = control_pb2.SetAclRequest(queue=name, entries=[denied, mine], owner=owner)
    ask(service, lambda stubs: stubs.queues.SetAcl, request)
    assert (info.IsWorldReadable, info.IsWorldReadable2) == (0, False)


@pytest.mark.spec("AC-3.10.4.1.37-01", "AC-3.10.4.1.38-01")
def test_a_multicast_address(service: MSMQService) -> None:
    info = made(service)
    assert info.MulticastAddress == ""
    info.MulticastAddress = "no address"  # any, here
    assert info.MulticastAddress == "no address"
    info.MulticastAddress = "234.1.1.1:8001"
    info.Update()
    assert info_of(service, name=info.FormatName or "").MulticastAddress == "234.1.1.1:8001"
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    system.Refresh()
    assert system.MulticastAddress == ""
    system.MulticastAddress = "234.1.1.1:8002"  # its own value, of no application queue
    assert system.MulticastAddress == "234.1.1.1:8002"
    refreshes_first(service, "MulticastAddress")


@pytest.mark.spec(
    "AC-3.10.4.1.31-01", "AC-3.10.4.1.31-02", "AC-3.10.4.1.31-03", "AC-3.10.4.1.31-04"
)
def test_a_dns_path_is_a_public_queue_s(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\public3")
    public.Create()
    again = info_of(service, path="QUORATE\\public3")
    assert (
        again.PathNameDNS == f"{service.manager.attributes()['qualified_computer_name']}\\public3"
    )
    name = again.FormatName or ""
    again.Delete()
    are_public_alone(service, "PathNameDNS", name)


@pytest.mark.spec("AC-3.10.4.1.39-01", "AC-3.10.4.1.39-02", "AC-3.10.4.1.39-03")
def test_a_directory_path_is_a_public_queue_s(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\public4")
    public.Create()
    again = info_of(service, path="QUORATE\\public4")
    named = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=again.FormatName or ""))
    queue = ask(service, lambda s: s.queues.GetQueue, named)
    assert again.ADsPath == queue.attributes["directory_path"].text
    assert again.ADsPath.endswith(str(public.QueueGuid))
    for label in ("once", "twice"):  # it is refreshed, and not again
        public.Label = label
        public.Update()
        assert again.ADsPath
        assert again.Label == ""
    name = again.FormatName or ""
    again.Delete()
    are_public_alone(service, "ADsPath", name)


def are_public_alone(service: MSMQService, name: str, gone: str) -> None:
    """Neither a private queue has the property, nor several queues, nor none."""
    unsupported = E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    for info, code in (
        (made(service), unsupported),
        *((info_of(service, name=each), unsupported) for each in SEND_ONLY),
        *((info_of(service, name=each), unsupported) for each in SYSTEM),
        (info_of(service, name=gone), E.MQ_ERROR_QUEUE_NOT_FOUND),
        (MSMQQueueInfo(service), E.MQ_ERROR_INVALID_PARAMETER),
    ):
        with fails(code):
            getattr(info, name)


@pytest.mark.spec("AC-3.10.4.1.32-01", "AC-3.10.4.1.33-01", "AC-3.10.4.1.34-01")
def test_what_no_queue_has(service: MSMQService) -> None:
    for info in (
        made(service), MSMQQueueInfo(service), info_of(service, path="QUORATE\\none"),
        info_of(service, name=SEVERAL), info_of(service, name=SYSTEM[0]),
    ):  # fmt: skip
        for name in ("Properties", "Security"):
            with fails(0x8000_4001):
                getattr(info, name)
        with fails(0x8000_4001):
            info.Security = b""


# Methods ---------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.10.4.1.26-01", "AC-3.10.4.1.26-06", "AC-3.10.4.1.26-08",
    "AC-3.10.4.1.26-09",
)  # fmt: skip
def test_create_checks_in_order_and_sets_what_was_put(service: MSMQService) -> None:
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        MSMQQueueInfo(service).Create()
    with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        info_of(service, path="x" * 300).Create()
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        info_of(service, path=REMOTE).Create()
    info = info_of(service, path=fresh_path())
    for name, value in PUTS.items():
        setattr(info, name, value)
    info.Create(IsTransactional=True)
    again = info_of(service, name=info.FormatName or "")
    shown = {name: getattr(again, name) for name in PUTS}
    assert shown == PUTS | {"ServiceTypeGuid": PUTS["ServiceTypeGuid"][1:-1]}
    assert again.IsTransactional2
    # What was put is the queue's from then on, no longer the object's.
    again.Label = "by another"
    again.Update()
    assert (info.Label, info.IsTransactional) == ("by another", 1)
    # CreateQueue's own refusals are the result, too.
    wrong = info_of(service, path=fresh_path())
    wrong.MulticastAddress = "no address"
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        wrong.Create()
    with fails(E.MQ_ERROR_QUEUE_EXISTS):
        info_of(service, path=info.PathName or "").Create()
    # Before a read it is an application queue already; and a public one is in the directory.
    public = info_of(service, path="QUORATE\\created")
    for name, value in (PUTS | {"BasePriority": -5}).items():
        setattr(public, name, value)
    public.Create()
    assert public.FormatName == f"PUBLIC={public.QueueGuid}"
    found = MSMQQuery(service).LookupQueue(Label=str(PUTS["Label"])).Next()
    assert found is not None
    assert found.FormatName == public.FormatName
    assert {name: getattr(found, name) for name in PUTS} == shown
    assert found.BasePriority == -5
    assert labels(service)[public.QueueGuid or ""] == PUTS["Label"]
    assert not found.IsTransactional2
    for is_transactional in (False, True):
        for path in (fresh_path(), "QUORATE\\exact"):
            made_so = info_of(service, path=path)
            made_so.Create(is_transactional)
            told = info_of(service, name=made_so.FormatName or "")
            assert told.IsTransactional2 is is_transactional
            made_so.Delete()
    with fails(E.MQ_ERROR_QUEUE_EXISTS):
        info_of(service, path="QUORATE\\created").Create()
    public.Delete()


@pytest.mark.spec("AC-3.10.4.1.26-02", "AC-3.10.4.1.26-10")
def test_create_is_neither_transactional_nor_world_readable_by_default(
    service: MSMQService,
) -> None:
    def everyone(info: MSMQQueueInfo) -> int:
        name = control_pb2.QueueName(name=info.FormatName or "")
        acl = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
        mask = 0
        for entry in acl.entries:
            mask |= entry.mask if entry.principal == "Everyone" else 0
        return mask

    plain = info_of(service, path=fresh_path())
    plain.Create()
    assert (plain.FormatName or "").startswith("PRIVATE=")  # set by Create, AC-A11
    assert not plain.IsTransactional2
    assert not everyone(plain) & 0x3
    assert opened(plain).IsOpen2
    with as_client(service) as (limited, _):
        for access in (RECEIVE, PEEK):
            with fails(E.MQ_ERROR_ACCESS_DENIED):
                opened(info_of(limited, name=plain.FormatName or ""), access)
    readable = info_of(service, path=fresh_path())
    readable.Create(IsWorldReadable=True)
    assert everyone(readable) & 0x3 == 0x3


@pytest.mark.spec("AC-3.10.4.1.26.1-02", "AC-3.10.4.1.26.1-03", "AC-3.10.4.1.26-08")
def test_a_new_queue_s_access_list(service: MSMQService) -> None:
    name = control_pb2.QueueName(name=made(service).FormatName or "")
    acl = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest(queue=name))
    everyone, anonymous, owner, *_ = acl.entries
    everything = int(QueueAccess.QUEUE_GENERIC_ALL)
    see = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS
    assert (everyone.sid, everyone.mask) == ("S-1-1-0", see | QueueAccess.WRITE_MESSAGE)
    assert (anonymous.sid, anonymous.mask) == ("S-1-5-7", QueueAccess.WRITE_MESSAGE)
    assert (owner.sid, owner.mask) == (acl.owner_sid, everything)
    assert acl.owner == "admin"  # who created it


def test_who_may_create_is_said_by_the_queue_manager(service: MSMQService) -> None:
    with as_client(service) as (limited, name):
        info = info_of(limited, path=fresh_path())
        info.Create()
        acl = ask(service, lambda s: s.queues.GetAcl, acl_of(info))
        assert acl.owner == name  # whoever makes the call
        whole = ask(service, lambda s: s.queues.GetAcl, control_pb2.GetAclRequest())
        rest = [kept_entry(each) for each in whole.entries]
        for entry in rest:
            entry.mask &= ~MachineAccess.CREATE_QUEUE
        ask(service, lambda s: s.queues.SetAcl, control_pb2.SetAclRequest(entries=rest))
        refused = info_of(limited, path=fresh_path())
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            refused.Create()
        entries = [kept_entry(each) for each in whole.entries]
        ask(service, lambda s: s.queues.SetAcl, control_pb2.SetAclRequest(entries=entries))
        refused.Create()


@pytest.mark.spec("AC-3.10.4.1.27-01", "AC-3.10.4.1.27-02", "AC-3.10.4.1.27-04")
def test_delete_resets_the_object(service: MSMQService) -> None:
    info = made(service)
    name = info.FormatName or ""
    info.Refresh()
    info.Label = "still here"
    info.Delete()
    assert info.FormatName is None
    public = info_of(service, path="QUORATE\\deleted")
    public.Label = "deleted"
    public.Create()
    assert "deleted" in labels(service).values()
    public.Delete()
    assert public.FormatName is None
    assert MSMQQuery(service).LookupQueue(Label="deleted").Next() is None
    assert "deleted" not in labels(service).values()  # nor the directory
    for path in (fresh_path(), "QUORATE\\deleted"):  # its path name does, too
        info_of(service, path=path).Create()
        by_path = info_of(service, path=path)
        by_path.Delete()
        assert by_path.FormatName is None
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            info_of(service, path=path).Refresh()
    for read in ("PathName", "QueueGuid", "Quota", "Label"):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            getattr(info, read)
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        info.Delete()
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        info_of(service, name=name).Delete()
    # Nor is there an application queue in what the queue manager keeps for itself.
    for own in (*SYSTEM, f"{made(service).FormatName};JOURNAL"):
        with fails(E.MQ_ERROR_ILLEGAL_OPERATION):
            info_of(service, name=own).Delete()
        opened(info_of(service, name=own)).Close()
    for path, code in (
        (fresh_path(), E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("no path at all", E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ):
        with fails(code):
            info_of(service, path=path).Delete()


@pytest.mark.spec(
    "AC-3.10.4.1.27-03", "AC-3.10.4.1.27-05", "AC-3.10.4.1.27-06", "AC-3.10.4.1.27-07"
)
def test_what_delete_refuses_stays_as_it_was(service: MSMQService) -> None:
    for several in SEND_ONLY:
        info = info_of(service, name=several)
        with fails(E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
            info.Delete()
        assert info.FormatName == several
    remote = info_of(service, path=REMOTE)
    with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
        remote.Delete()
    assert remote.PathName == REMOTE
    # Nor are the messages on their way to it, whose queue has its format name.
    for name in (f"DIRECT=OS:{REMOTE}", ELSEWHERE):
        remote = info_of(service, name=name)
        MSMQMessage(service).Send(opened(remote, SEND))
        with fails(E.MQ_ERROR_UNSUPPORTED_OPERATION):
            remote.Delete()
        assert remote.FormatName == name
        kept = control_pb2.GetOutgoingRequest(queue=control_pb2.QueueName(name=name))
        assert ask(service, lambda s: s.outgoing.GetOutgoing, kept).message_count
    mine = made(service)
    with as_client(service) as (limited, _):
        same = info_of(limited, name=mine.FormatName or "")
        same.Label, same.Quota = "kept", 77
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            same.Delete()
        assert (same.FormatName, same.PathName) == (mine.FormatName, mine.PathName)
        assert (same.Label, same.Quota, same.QueueGuid) == ("kept", 77, mine.QueueGuid)
    mine.Refresh()


@pytest.mark.spec(
    "AC-3.10.4.1.28-02", "AC-3.10.4.1.28-03", "AC-3.10.4.1.28-04", "AC-3.10.4.1.28-05",
    "AC-2.2.2.3-02",
)  # fmt: skip
def test_open_checks_access_share_and_name(service: MSMQService) -> None:
    info = made(service)
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        MSMQQueueInfo(service).Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    with fails(E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME):
        info_of(service, path="no path at all").Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    for share in (MQSHARE.MQ_DENY_RECEIVE_SHARE, 7):
        for name in (info.FormatName, SEVERAL):
            with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
                info_of(service, name=name or "").Open(SEND, share)
    with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
        info.Open(SEND | MQACCESS.MQ_ADMIN_ACCESS, MQSHARE.MQ_DENY_NONE)
    for name in (SEVERAL, MULTICAST, HTTP):
        admin = MQACCESS.MQ_ADMIN_ACCESS
        for access in (RECEIVE, PEEK, SEND | PEEK, SEND | admin, RECEIVE | admin, PEEK | admin):
            with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
                info_of(service, name=name).Open(access, MQSHARE.MQ_DENY_NONE)
    for wrong, code in (
        ("DIRECT=OS:QUORATE\\private$\\none", E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("no format name", E.MQ_ERROR_ILLEGAL_FORMATNAME),
        ("MACHINE=01020304-0506-0708-090A-0B0C0D0E0F10;DEADLETTER",
         E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ):  # fmt: skip
        with fails(code):
            info_of(service, name=wrong).Open(SEND, MQSHARE.MQ_DENY_NONE)
    with fails(E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
        info.Open(RECEIVE | SEND, MQSHARE.MQ_DENY_NONE)
    alone = info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        info.Open(RECEIVE, MQSHARE.MQ_DENY_NONE)
    alone.Close()


@pytest.mark.spec("AC-3.10.4.1.28-01", "AC-3.10.4.1.28-06", "AC-2.2.2.3-03")
def test_open_gives_what_the_access_allows(service: MSMQService) -> None:
    info = made(service)
    message = MSMQMessage(service)
    sender, reader, looker = opened(info, SEND), opened(info), opened(info, PEEK)
    assert len({id(each) for each in (sender, reader, looker)}) == 3
    name = control_pb2.QueueName(name=info.FormatName or "")
    seen = ask(service, lambda s: s.queues.GetQueue, control_pb2.GetQueueRequest(queue=name))
    listed = ask(
        service,
        lambda s: s.clients.ListOpens,
        control_pb2.ListOpensRequest(queue_id=seen.queue_id),
    )
    assert {each.handle: (each.access, each.share_mode) for each in listed.opens} == {
        sender.Handle2: (data_pb2.SEND_ACCESS, data_pb2.DENY_NONE),
        reader.Handle2: (data_pb2.RECEIVE_ACCESS, data_pb2.DENY_NONE),
        looker.Handle2: (data_pb2.PEEK_ACCESS, data_pb2.DENY_NONE),
    }
    assert [each.Access for each in (sender, reader, looker)] == [SEND, RECEIVE, PEEK]
    assert {each.ShareMode for each in (sender, reader, looker)} == {MQSHARE.MQ_DENY_NONE}
    assert sender.QueueInfo is reader.QueueInfo is info
    other = made(service)
    alone = info_of(service, path=other.PathName or "").Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    assert alone.ShareMode == MQSHARE.MQ_DENY_RECEIVE_SHARE
    alone.Close()
    with fails(OLE_E_BLANK):  # only Open gives one that may be used
        MSMQQueue(service).Peek(ReceiveTimeout=0)
    message.Send(sender)
    # Opened in the same way, it is another one yet, with a cursor of its own.
    twin = opened(info)
    assert twin is not reader
    assert twin.Handle2 != reader.Handle2
    assert twin.PeekCurrent(ReceiveTimeout=0) is not None
    with fails(E.MQ_ERROR_ILLEGAL_CURSOR_ACTION):
        reader.PeekNext(ReceiveTimeout=0)
    twin.Close()
    assert reader.IsOpen2
    for queue in (looker, reader):
        assert queue.Peek(ReceiveTimeout=0) is not None  # it stays
    first = looker.PeekCurrent(ReceiveTimeout=0)
    assert first is not None
    with fails(E.MQ_ERROR_ILLEGAL_CURSOR_ACTION):
        reader.PeekNext(ReceiveTimeout=0)  # a cursor of its own, not used yet
    for queue in (reader, looker):
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            message.Send(queue)
    for queue in (sender, looker):
        with fails(E.MQ_ERROR_ACCESS_DENIED):
            queue.Receive(ReceiveTimeout=0)
    with fails(E.MQ_ERROR_ACCESS_DENIED):
        sender.Peek(ReceiveTimeout=0)
    assert reader.Receive(ReceiveTimeout=0) is not None
    for queue in (reader, looker):
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            queue.Peek(ReceiveTimeout=0)
    for queue in (sender, reader, looker):
        queue.Close()


def test_several_queues_are_opened_for_sending(service: MSMQService) -> None:
    one, two = made(service), made(service)
    several = info_of(service, name=f"{one.FormatName},{two.FormatName}")
    queue = opened(several, SEND)
    message = MSMQMessage(service)
    message.Body = "both"
    message.Send(queue)
    for info in (one, two):
        found = opened(info).Receive(ReceiveTimeout=0)
        assert found is not None
        assert found.Body == "both"
        assert found.Destination is not None
        assert found.Destination.FormatName == several.FormatName
    queue.Close()
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        opened(info_of(service, name=f"{one.FormatName},{SEVERAL}"), SEND)


@pytest.mark.spec("AC-2.2.2.3-01")
def test_the_admin_bit_means_the_outgoing_queue(service: MSMQService) -> None:
    far = info_of(service, name="DIRECT=TCP:127.255.255.254\\private$\\admin")
    MSMQMessage(service).Send(opened(far, SEND))
    for access in (RECEIVE, PEEK):
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            opened(far, access)
    looker = opened(far, PEEK | MQACCESS.MQ_ADMIN_ACCESS)
    assert looker.Peek(ReceiveTimeout=0) is not None
    reader = opened(far, RECEIVE | MQACCESS.MQ_ADMIN_ACCESS)
    assert reader.Receive(ReceiveTimeout=0) is not None
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        looker.Peek(ReceiveTimeout=0)
    values = [member.value for member in MQACCESS]
    assert values == [1, 2, 0x20, 0x80]


@pytest.mark.spec("AC-2.2.2.2-02")
def test_share_modes_exclude_both_ways(service: MSMQService) -> None:
    info = made(service)
    shared = opened(info)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    shared.Close()
    alone = info.Open(RECEIVE, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        opened(info)
    for access in (SEND, PEEK):  # DM-A21: let in, and shared
        other = opened(info, access)
        assert other.ShareMode == MQSHARE.MQ_DENY_NONE
        other.Close()
    alone.Close()
    # Whoever denies: one who peeks does, too.
    looker = info.Open(PEEK, MQSHARE.MQ_DENY_RECEIVE_SHARE)
    with fails(E.MQ_ERROR_SHARING_VIOLATION):
        opened(info)
    looker.Close()
    several = [opened(info), opened(info), opened(info, SEND), opened(info, PEEK)]
    request = control_pb2.ListOpensRequest()
    modes = {
        each.handle: each.share_mode
        for each in ask(service, lambda s: s.clients.ListOpens, request).opens
    }
    for shared in several:
        assert shared.ShareMode == MQSHARE.MQ_DENY_NONE
        assert modes[shared.Handle2] == data_pb2.DENY_NONE
        shared.Close()


@pytest.mark.spec(
    "AC-3.10.4.1.29-01", "AC-3.10.4.1.29-02", "AC-3.10.4.1.29-03", "AC-3.10.4.1.29-04",
    "AC-3.10.4.1.29-05",
)  # fmt: skip
def test_refresh_reads_and_refuses(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\refreshed")
    public.Label = "in the directory"
    public.Create()
    by_guid = info_of(service, name=public.FormatName or "")
    by_guid.Refresh()
    assert (by_guid.Label, by_guid.PathName) == ("in the directory", "QUORATE\\refreshed")
    public.Delete()
    assert by_guid.Label == "in the directory"  # a copy, read once
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        by_guid.Refresh()
    system = info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER")
    system.Refresh()
    assert system.QueueGuid is None  # no application queue
    info = made(service)
    again = info_of(service, name=info.FormatName or "")
    for name, value in PUTS.items():
        setattr(info, name, value)
    info.Label = "changed"
    info.Update()
    again.Refresh()
    assert again.Label == "changed"
    numbers = ("PrivLevel", "Journal", "Quota", "Authenticate", "JournalQuota", "MulticastAddress")
    assert {name: getattr(again, name) for name in numbers} == {
        name: PUTS[name] for name in numbers
    }
    refused(service, "Refresh")


@pytest.mark.spec(
    "AC-3.10.4.1.30-02", "AC-3.10.4.1.30-03", "AC-3.10.4.1.30-04", "AC-3.10.4.1.30-05",
    "AC-3.10.4.1.30-06",
)  # fmt: skip
def test_update_writes_and_refuses(service: MSMQService) -> None:
    for path in (fresh_path(), "QUORATE\\updated"):
        info = info_of(service, path=path)
        info.Create()
        info.Label = "changed"
        info.Update()
        assert info_of(service, name=info.FormatName or "").Label == "changed"
    found = MSMQQuery(service).LookupQueue(Label="changed").Next()
    assert found is not None
    assert found.FormatName == info.FormatName  # the directory has it, too
    assert labels(service)[info.QueueGuid or ""] == "changed"
    info.Label, info.PrivLevel = "unwritten", 77
    with fails(E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        info.Update()
    assert MSMQQuery(service).LookupQueue(Label="unwritten").Next() is None
    assert MSMQQuery(service).LookupQueue(Label="changed").Next() is not None
    info.Delete()
    refused(service, "Update")


def labels(service: MSMQService) -> dict[str, str]:
    """Labels of the queues in the directory, by their identifiers."""
    request = control_pb2.ListObjectsRequest(object_class="queue")
    listed = ask(service, lambda s: s.directory.ListObjects, request).objects
    return {guid_text(each.identifier): each.attributes["label"].text for each in listed}


def refused(service: MSMQService, method: str) -> None:
    """What names no one queue that is here is refused; what is on its way to one is none."""
    unsupported = E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    gone = info_of(service, path="QUORATE\\gone")
    gone.Create()
    public = gone.FormatName or ""
    gone.Delete()
    sent_to = f"DIRECT=OS:{REMOTE}"
    for name in (sent_to, ELSEWHERE):
        MSMQMessage(service).Send(opened(info_of(service, name=name), SEND))
    for info, code in (
        (MSMQQueueInfo(service), E.MQ_ERROR_INVALID_PARAMETER),
        (info_of(service, name=sent_to), E.MQ_ERROR_UNSUPPORTED_OPERATION),
        (info_of(service, name=f"{sent_to}2"), E.MQ_ERROR_QUEUE_NOT_FOUND),
        (info_of(service, path="no path at all"), E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        (info_of(service, path=fresh_path()), E.MQ_ERROR_QUEUE_NOT_FOUND),
        (info_of(service, name=public), E.MQ_ERROR_QUEUE_NOT_FOUND),
        (info_of(service, path=REMOTE), E.MQ_ERROR_UNSUPPORTED_OPERATION),
        (info_of(service, name=ELSEWHERE), E.MQ_ERROR_UNSUPPORTED_OPERATION),
        (info_of(service, name=f"{ELSEWHERE[:-1]}b"), E.MQ_ERROR_QUEUE_NOT_FOUND),
        *((info_of(service, name=name), unsupported) for name in SEND_ONLY),
    ):
        with fails(code):
            getattr(info, method)()


@pytest.mark.spec("AC-2.2.2.4-01")
def test_a_journal_keeps_what_was_received(service: MSMQService) -> None:
    for journal in MQJOURNAL:
        info = made(service)
        info.Journal = journal
        info.Update()
        kept = opened(info_of(service, name=f"{info.FormatName};JOURNAL"))
        message, reader = MSMQMessage(service), opened(info)
        message.Send(opened(info, SEND))
        reader.Peek(ReceiveTimeout=0)
        with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
            kept.Peek(ReceiveTimeout=0)
        reader.Receive(ReceiveTimeout=0)
        if journal == 1:
            found = kept.Receive(ReceiveTimeout=0)
            assert found is not None
            assert found.Id == message.Id
        else:
            with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
                kept.Peek(ReceiveTimeout=0)


@pytest.mark.spec("AC-3.1.1.1-01")
def test_the_objects_see_what_other_protocols_see(service: MSMQService) -> None:
    info = made(service)
    name = control_pb2.QueueName(name=info.FormatName or "")
    sender = opened(info, SEND)
    MSMQMessage(service).Send(sender)
    seen = ask(service, lambda s: s.queues.GetQueue, control_pb2.GetQueueRequest(queue=name))
    assert (guid_text(seen.identifier), seen.message_count) == (info.QueueGuid, 1)
    opens = ask(
        service,
        lambda s: s.clients.ListOpens,
        control_pb2.ListOpensRequest(queue_id=seen.queue_id),
    )
    assert [each.handle for each in opens.opens] == [sender.Handle2]
    changes = {"label": control_pb2.Value(text="by another")}
    ask(
        service,
        lambda s: s.queues.SetQueue,
        control_pb2.SetQueueRequest(queue=name, changes=changes),
    )
    info.Refresh()
    assert info.Label == "by another"
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    exact = made(service, is_transactional=True)
    MSMQMessage(service).Send(opened(exact, SEND), transaction)
    reply = ask(
        service, lambda s: s.clients.ListTransactions, control_pb2.ListTransactionsRequest()
    )
    identifier = transaction.attached().GetTransactionInfo().uow
    assert identifier in [each.identifier for each in reply.transactions]
    transaction.Abort()
    reader = opened(info)
    assert reader.PeekCurrent(ReceiveTimeout=0) is not None
    ask(service, lambda s: s.queues.PurgeQueue, control_pb2.PurgeQueueRequest(queue=name))
    with fails(E.MQ_ERROR_MESSAGE_NOT_FOUND):
        opened(info).Peek(ReceiveTimeout=0)
    with fails(E.MQ_ERROR_MESSAGE_ALREADY_RECEIVED):  # under the cursor
        reader.PeekCurrent(ReceiveTimeout=0)


@pytest.mark.spec("AC-3.1.1.1-01")
def test_so_they_do_of_messages_on_their_way_certificates_and_the_queue_manager(
    service: MSMQService,
) -> None:
    message = MSMQMessage(service)
    message.Label = "as it was sent"
    far = info_of(service, name="DIRECT=OS:elsewhere\\private$\\shared")
    message.Send(opened(far, SEND))
    name = control_pb2.QueueName(name=far.FormatName or "")
    browsed = ask(
        service,
        lambda s: s.messages.Browse,
        control_pb2.BrowseRequest(queue=name, page_size=2, view=data_pb2.PROPERTIES_WITHOUT_BODY),
    )
    (sent,) = browsed.messages
    assert sent.properties.label == message.Label
    assert sent.message_id == message.Id
    held = ask(service, lambda s: s.outgoing.Pause, control_pb2.GetOutgoingRequest(queue=name))
    assert held.message_count == 1
    management = MSMQManagement(service)
    management.Init(FormatName=far.FormatName)
    outgoing = management.outgoing_queue_management()
    assert (outgoing.State, outgoing.MessageCount) == (QUEUE_STATE.MQ_QUEUE_STATE_ONHOLD, 1)
    application = MSMQApplication(service)
    application.RegisterCertificate()
    theirs = ask(service, lambda s: s.certificates.List, control_pb2.ListCertificatesRequest())
    internal = [each.certificate for each in theirs.certificates if each.is_internal]
    signer = service.manager.signer(b"")
    assert signer is not None
    assert internal == [signer.certificate]
    # And the other way: what another takes away is not there for the objects either.
    for each in theirs.certificates:
        ask(
            service,
            lambda s: s.certificates.Remove,
            control_pb2.RemoveCertificateRequest(digest=each.digest),
        )
    flags = MQCERT_REGISTER.MQCERT_REGISTER_IF_NOT_EXIST
    assert application.RegisterCertificate(flags) == 0
    assert application.IsConnected
    for is_online in (False, True):
        changes = {"connection_active": control_pb2.Value(flag=is_online)}
        ask(
            service,
            lambda s: s.queues.SetQueueManager,
            control_pb2.SetQueueManagerRequest(changes=changes),
        )
        assert application.IsConnected is is_online


@pytest.mark.spec("AC-3.1.1.2-01")
def test_sends_to_other_computers_wait_in_an_outgoing_queue(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\deposited")
    public.Create()
    for local in (made(service), public):
        MSMQMessage(service).Send(opened(local, SEND))
        assert opened(local).Receive(ReceiveTimeout=0) is not None
    public.Delete()
    remote = info_of(service, name="DIRECT=TCP:127.255.255.254\\private$\\far")
    MSMQMessage(service).Send(opened(remote, SEND))
    reply = ask(
        service, lambda stubs: stubs.outgoing.ListOutgoing, control_pb2.ListOutgoingRequest()
    )
    waiting = {queue.format_name.upper(): queue.message_count for queue in reply.queues}
    assert waiting[(remote.FormatName or "").upper()] == 1
