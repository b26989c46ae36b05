"""MSMQManagement and its two forms [MC-MQAC 3.3 to 3.5], over a real node and over a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from struct import Struct
from typing import Any

import pytest
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import (
    MSMQApplication,
    MSMQCollection,
    MSMQManagement,
    MSMQMessage,
    MSMQOutgoingQueueManagement,
    MSMQQueueManagement,
    MSMQService,
)
from qm.client.mqac.cluster.management import ClusterManagement
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import (
    FOREIGN_STATUS,
    QUEUE_STATE,
    QUEUE_TYPE,
    XACT_STATUS,
)
from qm.client.mqac.manager import Management
from qm.pb import control_pb2 as pb
from qm.wire.codes import ErrorCode
from qm.wire.property_id import MachineManagementProperty
from qm.wire.property_id import QueueManagementProperty as Property
from tests.conformance.mqac_reads import send
from tests.conformance.mqac_world import SEND, fails, info_of, made, opened, serving
from tests.conformance.test_mqac_transfer import until

E = ErrorCode
FAR = "DIRECT=TCP:127.255.255.254\\PRIVATE$\\far"
SEQUENCE_INFO = Struct("<QII")
REFUSED = E.MQ_ERROR_ACCESS_DENIED
E_NOINTERFACE = 0x8000_4002
UNINITIALIZED = 0xC00E_0094
INVALID_PARAMETER = 0xC00E_0006


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


class Script(Management):
    """Answers what it is told, or fails as it is told; what it has no answer for is refused."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {"LOCATION": "LOCAL"} | answers
        self.asked: list[tuple[str, str]] = []
        self.acts: list[tuple[str, ...]] = []

    @override
    def machine_info(self, property_id: MachineManagementProperty) -> Any:
        raise MqError(REFUSED)

    @override
    def queue_info(self, format_name: str, property_id: Property) -> Any:
        self.asked.append((format_name, property_id.name))
        if property_id.name not in self.answers:
            raise MqError(REFUSED)
        return _raised(self.answers[property_id.name])

    @override
    def act_on_machine(self, action: str) -> None:
        raise MqError(REFUSED)

    @override
    def act_on_queue(self, format_name: str, action: str) -> None:
        self.acts.append((format_name, action))
        if _raised(self.answers.get(action)) != "OK":
            raise MqError(REFUSED)


def _raised(answer: Any) -> Any:
    if isinstance(answer, MqError):
        raise answer
    return answer


class Scripted(ClusterManager):
    """The cluster, but for its management."""

    def __init__(self, manager: ClusterManager, script: Management) -> None:
        super().__init__(manager.client)
        self.script = script
        self.asked: list[str] = []

    @override
    def management(self, computer_name: str) -> Management:
        self.asked.append(computer_name)
        if computer_name == "unreachable":
            raise MqError(E.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return self.script


def scripted(service: MSMQService, **answers: Any) -> tuple[MSMQManagement, Script]:
    """An initialised object over a script."""
    assert isinstance(service.manager, ClusterManager)
    script = Script(**answers)
    management = MSMQManagement(MSMQService(Scripted(service.manager, script)))
    management.Init(FormatName="DIRECT=OS:host\\q")
    return management, script


STATUSES = (0xC00E_0025, 0xC00E_000B, 0xC00E_0039)
"""Access is denied, the service is not there, there is no such property."""


def failing(
    service: MSMQService, name: str, location: str = "LOCAL"
) -> Iterator[tuple[MSMQManagement, int]]:
    """Objects of which one property or action alone fails, and with which status."""
    everything = EOD | {
        "LOCATION": location, "MESSAGE_COUNT": 1, "BYTES_IN_QUEUE": 2, "JOURNAL_MESSAGE_COUNT": 3,
        "BYTES_IN_JOURNAL": 4, "FOREIGN": "NO", "TYPE": "PRIVATE", "XACT": "NO",
        "STATE": "CONNECTED", "NEXTHOPS": [], "EOD_SOURCE_INFO": [[] for _ in range(6)],
        "CONNECTION_HISTORY": [[] for _ in range(4)],
        "PAUSE": "OK", "RESUME": "OK", "EOD_RESEND": "OK",
    }  # fmt: skip
    for status in STATUSES:
        management, script = scripted(service, **everything)
        script.answers[name] = MqError(status)
        yield management, status


def initialised(service: MSMQService, format_name: str) -> MSMQManagement:
    management = MSMQManagement(service)
    management.Init(FormatName=format_name)
    return management


def outgoing(service: MSMQService, count: int = 1) -> MSMQOutgoingQueueManagement:
    """A queue with messages that cannot leave."""
    outgoing.count = getattr(outgoing, "count", 0) + 1  # type: ignore[attr-defined]
    name = f"{FAR}{outgoing.count}"  # type: ignore[attr-defined]
    queue = opened(info_of(service, name=name), SEND)
    for _ in range(count):
        MSMQMessage(service).Send(queue)
    return initialised(service, name).outgoing_queue_management()


# Init ------------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.3.4.1.1-02", "AC-3.3.4.1.1-03", "AC-3.3.4.1.1-04", "AC-3.3.4.1.1-05", "AC-4.1-01"
)
def test_init_names_one_active_queue_in_one_way(service: MSMQService) -> None:
    info = made(service)
    name, path = info.FormatName or "", info.PathName or ""
    management = MSMQManagement(service)
    for wrong in (
        {},
        {"Machine": "QUORATE"},
        {"Pathname": path, "FormatName": name},
        {"Machine": "QUORATE", "Pathname": path, "FormatName": name},
    ):
        with fails(INVALID_PARAMETER):
            management.Init(**wrong)
    with fails(E.MQ_ERROR_QUEUE_NOT_ACTIVE):
        management.Init(FormatName=name)
    for wrong, code in (
        ({"Pathname": path}, E.MQ_ERROR_QUEUE_NOT_ACTIVE),
        ({"Pathname": "QUORATE\\nobody"}, E.MQ_ERROR_QUEUE_NOT_FOUND),
        ({"FormatName": "no name"}, E.MQ_ERROR_INVALID_PARAMETER),
    ):
        with fails(code):
            management.Init(**wrong)
        with fails(UNINITIALIZED):
            _ = management.MessageCount
    queue = opened(info)
    send(service, info, "a", "b")
    for good in (
        {"FormatName": name},
        {"Pathname": path},
        {"Machine": "QUORATE", "Pathname": path},
    ):
        management = MSMQManagement(service)
        management.Init(**good)
        assert (management.MessageCount, management.Machine) == (2, "QUORATE")
        assert management.FormatName == name
    queue.Close()


@pytest.mark.spec("AC-3.3.4.1.1-06", "AC-3.3.4.1.1-07", "AC-3.3.4.1.1-08", "AC-3.3.4.1.1-09")
def test_what_fails_in_init_leaves_it_uninitialised(service: MSMQService) -> None:
    assert isinstance(service.manager, ClusterManager)
    script = Script()
    manager = Scripted(service.manager, script)
    management = MSMQManagement(MSMQService(manager))
    for path, code in (
        ("QUORATE\\unpublished", E.MQ_ERROR_QUEUE_NOT_FOUND),
        ("no path", E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ):
        with fails(code):
            management.Init(Pathname=path)
    with fails(E.MQ_ERROR_SERVICE_NOT_AVAILABLE):
        management.Init(Machine="unreachable", FormatName="DIRECT=OS:host\\q")
    del script.answers["LOCATION"]
    with fails(REFUSED):
        management.Init(Machine="other", FormatName="DIRECT=OS:host\\q")
    with fails(UNINITIALIZED):
        _ = management.FormatName
    for location, is_local in (("Remote", False), ("LOCAL", True)):
        script.answers["LOCATION"] = location
        management.Init(FormatName="DIRECT=OS:host\\r")
        # What the failed one set is still there.
        assert (management.Machine, management.FormatName) == ("other", "DIRECT=OS:host\\r")
        assert management.IsLocal is is_local
        # What it turned out to be, whatever it is asked later.
        forms = [management.outgoing_queue_management, management.queue_management]
        forms[is_local]()
        with fails(E_NOINTERFACE):
            forms[not is_local]()
    assert manager.asked == ["unreachable", "other", "other", "other"]
    # One that fails later leaves its names, too, whatever it fails at.
    script.answers["LOCATION"] = MqError(REFUSED)
    for machine, name, code in (
        ("third", "DIRECT=OS:host\\s", REFUSED),
        ("unreachable", "DIRECT=OS:host\\t", E.MQ_ERROR_SERVICE_NOT_AVAILABLE),
    ):
        with fails(code):
            management.Init(Machine=machine, FormatName=name)
        assert (management.Machine, management.FormatName) == (machine, name)
    del manager.asked[4:]
    script.answers["LOCATION"] = "LOCAL"
    own = MSMQManagement(MSMQService(manager))
    own.Init(FormatName="DIRECT=OS:host\\r")
    assert manager.asked[4:] == [""]  # the local one
    assert own.Machine == "QUORATE"


@pytest.mark.spec("AC-3.3.3-01", "AC-3.3.4.1.1-01", "AC-3.3.4.1.2-02", "AC-3.3.4.1.3-02")
def test_before_init_there_is_nothing(service: MSMQService) -> None:
    management = MSMQManagement(service)
    names = [name for name, found in vars(MSMQManagement).items() if isinstance(found, property)]
    assert {"FormatName", "Machine", "MessageCount", "ForeignStatus", "IsLocal", "QueueType",
            "TransactionalStatus", "BytesInQueue"} <= {*names}  # fmt: skip
    for name in names:
        with fails(UNINITIALIZED):
            getattr(management, name)
    for form in (management.queue_management, management.outgoing_queue_management):
        with fails(E_NOINTERFACE):
            form()
    queue = opened(made(service))
    assert queue.QueueInfo is not None
    management.Init(FormatName=queue.QueueInfo.FormatName)
    assert management.Machine == "QUORATE"  # none was named
    queue.Close()


@pytest.mark.spec(
    "AC-3.3.4.1.4-02", "AC-3.3.4.1.5-02", "AC-3.3.4.1.6-02", "AC-3.3.4.1.7-02", "AC-3.3.4.1.8-02"
)
def test_before_init_every_property_says_so(service: MSMQService) -> None:
    for name in ("MessageCount", "ForeignStatus", "QueueType", "IsLocal", "TransactionalStatus"):
        with fails(UNINITIALIZED):
            getattr(MSMQManagement(service), name)


@pytest.mark.spec(
    "AC-3.3.4.1.4-03", "AC-3.3.4.1.5-03", "AC-3.3.4.1.6-03", "AC-3.3.4.1.7-03", "AC-3.3.4.1.8-03"
)
def test_a_status_of_the_management_protocol_is_the_result(service: MSMQService) -> None:
    for property_name, name in (
        ("MESSAGE_COUNT", "MessageCount"),
        ("FOREIGN", "ForeignStatus"),
        ("TYPE", "QueueType"),
        ("LOCATION", "IsLocal"),
        ("XACT", "TransactionalStatus"),
    ):
        for management, status in failing(service, property_name):
            with fails(status):
                getattr(management, name)


@pytest.mark.spec("AC-3.3.4.1.9-01", "AC-3.3.4.1.9-02", "AC-3.3.4.1.9-03")
def test_bytes_in_a_queue(service: MSMQService) -> None:
    with fails(UNINITIALIZED):
        _ = MSMQManagement(service).BytesInQueue
    for management, status in failing(service, "BYTES_IN_QUEUE"):
        with fails(status):
            _ = management.BytesInQueue
    big = 1 << 40
    assert scripted(service, BYTES_IN_QUEUE=big)[0].BytesInQueue == big
    info = made(service)
    with_queue = opened(info)
    management = initialised(service, info.FormatName or "")
    assert management.BytesInQueue == 0
    send(service, info, "x" * 500)
    assert management.BytesInQueue >= 1_000
    with_queue.Close()


# What is read ----------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.3.4.1.2-01", "AC-3.3.4.1.3-01", "AC-3.3.4.1.4-01", "AC-3.3.4.1.7-01")
def test_a_local_queue(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    management = initialised(service, info.FormatName or "")
    assert management.FormatName == info.FormatName
    assert management.Machine == "QUORATE"
    # As Init was given them, whatever else they are called.
    direct = "DIRECT=OS:quorate\\" + (info.PathName or "").partition("\\")[2]
    other = MSMQManagement(service)
    other.Init(Machine="quorate", FormatName=direct)
    assert (other.FormatName, other.Machine) == (direct, "quorate")
    for count in range(3):
        assert management.MessageCount == other.MessageCount == count
        send(service, info, "a")
    assert management.IsLocal is True
    away = outgoing(service, 2)
    assert (away.IsLocal, away.MessageCount) == (False, 2)
    queue.Close()


@pytest.mark.spec("AC-3.3.4.1.5-01", "AC-3.3.4.1.6-01", "AC-3.3.4.1.8-01")
def test_strings_of_the_management_protocol_are_numbers(service: MSMQService) -> None:
    for property_name, attribute, texts in (
        ("FOREIGN", "ForeignStatus", ("YES", "NO", "UNKNOWN")),
        ("TYPE", "QueueType", ("PUBLIC", "PRIVATE", "MACHINE", "CONNECTOR", "MULTICAST")),
        ("XACT", "TransactionalStatus", ("YES", "NO", "UNKNOWN")),
    ):
        for number, text in enumerate(texts):
            for spelled in (text, text.title()):
                management, _ = scripted(service, **{property_name: spelled})
                assert getattr(management, attribute) == number
        with fails(E.MQ_ERROR_PROPERTY):
            getattr(scripted(service, **{property_name: "NEITHER"})[0], attribute)
    for is_public, is_transactional in product((False, True), repeat=2):
        if is_public:
            info = info_of(service, path=f"QUORATE\\managed{is_transactional:d}")
            info.Create(IsTransactional=is_transactional)
        else:
            info = made(service, is_transactional=is_transactional)
        queue = opened(info)
        management = initialised(service, info.FormatName or "")
        wanted_type = QUEUE_TYPE.MQ_TYPE_PUBLIC if is_public else QUEUE_TYPE.MQ_TYPE_PRIVATE
        assert management.QueueType == wanted_type
        assert management.ForeignStatus == FOREIGN_STATUS.MQ_STATUS_NOT_FOREIGN
        wanted = XACT_STATUS.MQ_XACT_STATUS_XACT, XACT_STATUS.MQ_XACT_STATUS_NOT_XACT
        assert management.TransactionalStatus == wanted[not is_transactional]
        queue.Close()
    assert outgoing(service).TransactionalStatus == XACT_STATUS.MQ_XACT_STATUS_UNKNOWN


@pytest.mark.spec(
    "MQ-2.3.12.3-01", "MQ-2.3.12.4-01", "MQ-2.3.12.5-01", "MQ-2.3.12.6-01", "MQ-2.3.11.4-01"
)
def test_the_control_plane_has_the_strings_of_the_management_protocol(
    service: MSMQService,
) -> None:
    asked = service.manager.management("")

    def told(name: str) -> list[Any]:
        properties = (Property.TYPE, Property.LOCATION, Property.XACT, Property.FOREIGN)
        return [asked.queue_info(name, each) for each in properties]

    for is_transactional, transacted in ((False, "NO"), (True, "YES")):
        info = made(service, is_transactional=is_transactional)
        queue = opened(info)
        assert told(info.FormatName or "") == ["PRIVATE", "LOCAL", transacted, "NO"]
        queue.Close()
    public = info_of(service, path="QUORATE\\told")
    public.Create()
    queue = opened(public)
    assert told(public.FormatName or "") == ["PUBLIC", "LOCAL", "NO", "NO"]
    queue.Close()
    public.Delete()
    dead = "DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER"
    queue = opened(info_of(service, name=dead))
    assert told(dead) == ["MACHINE", "LOCAL", "NO", "NO"]
    queue.Close()
    assert told(outgoing(service).FormatName) == ["PRIVATE", "REMOTE", "UNKNOWN", "NO"]
    connected = MachineManagementProperty.CONNECTED
    assert asked.machine_info(connected) == "CONNECTED"
    asked.act_on_machine("DISCONNECT")
    assert asked.machine_info(connected) == "DISCONNECTED"
    asked.act_on_machine("CONNECT")
    assert asked.machine_info(connected) == "CONNECTED"


def test_a_public_queue_is_one(service: MSMQService) -> None:
    info = info_of(service, path="QUORATE\\managed")
    info.Create()
    queue = opened(info)
    management = MSMQManagement(service)
    management.Init(Pathname=".\\managed")
    assert management.QueueType == QUEUE_TYPE.MQ_TYPE_PUBLIC
    queue.Close()
    info.Delete()


@pytest.mark.spec("AC-3.3.1-01", "AC-3.3.1-03", "AC-3.3.6.2-02", "AC-3.3.4.1.1-05")
def test_a_name_of_another_computer_means_its_outgoing_queue(service: MSMQService) -> None:
    name = "DIRECT=TCP:127.255.255.254\\PRIVATE$\\idle"
    with fails(E.MQ_ERROR_QUEUE_NOT_ACTIVE):
        initialised(service, name)
    queue = opened(info_of(service, name=name), SEND)
    MSMQMessage(service).Send(queue)
    management = initialised(service, name)
    assert (management.IsLocal, management.MessageCount) == (False, 1)
    assert management.outgoing_queue_management().MessageCount == 1
    with fails(E_NOINTERFACE):
        management.queue_management()
    with fails(INVALID_PARAMETER):  # no name at all: the far end says so
        initialised(service, "no format name")
    # One property at a time, and its status as it is.
    management, script = scripted(service, MESSAGE_COUNT=3)
    assert management.MessageCount == 3
    with fails(REFUSED):
        _ = management.BytesInQueue
    asked = ["LOCATION", "MESSAGE_COUNT", "BYTES_IN_QUEUE"]
    assert script.asked == [("DIRECT=OS:host\\q", name) for name in asked]
    # It is that of the computer that was named, or of the local one.
    assert isinstance(service.manager, ClusterManager)
    machines: list[dict[str, str | None]] = [{}, {"Machine": None}, {"Machine": "far-1"}]
    for named in machines:
        script = Script(LOCATION="REMOTE")
        manager = Scripted(service.manager, script)
        management = MSMQManagement(MSMQService(manager))
        management.Init(**named, FormatName="DIRECT=OS:host\\q")
        machine = named.get("Machine")
        assert manager.asked == [machine or ""]
        assert management.Machine == (machine or "QUORATE")
        management.outgoing_queue_management()


@pytest.mark.spec("AC-3.3.1-03")
def test_a_queue_is_looked_at_by_its_queue_manager_during_init(service: MSMQService) -> None:
    local, gone = made(service), made(service)
    names = [local.FormatName or "", gone.FormatName or "", f"{FAR}opened"]
    gone.Delete()
    for name in names:
        management = MSMQManagement(service)
        with fails(0xC00E_0004):
            management.Init(FormatName=name)
        with fails(UNINITIALIZED):
            _ = management.MessageCount
    queues = [opened(local), opened(info_of(service, name=names[2]), SEND)]
    counts = [initialised(service, name).MessageCount for name in (names[0], names[2])]
    assert counts == [0, 0], "open, and empty"
    for queue in queues:
        queue.Close()
    for name in names:
        with fails(0xC00E_0004):
            initialised(service, name)
    # It is the far end that says whether there is one, and as what.
    for status in STATUSES:
        management, script = scripted(service)
        script.answers["LOCATION"] = MqError(status)
        with fails(status):
            management.Init(FormatName="DIRECT=OS:host\\r")
        assert script.asked[1:] == [("DIRECT=OS:host\\r", "LOCATION")]


@pytest.mark.spec("AC-3.3.6.2-02")
def test_the_far_end_is_asked_about_what_is_no_format_name(service: MSMQService) -> None:
    for text in ("no format name", "DIRECT=", "PUBLIC=1;2;3", ""):
        management, script = scripted(service, LOCATION="REMOTE", STATE="WAITING", PAUSE="OK")
        management.Init(FormatName=text)
        out = management.outgoing_queue_management()
        out.Pause()
        assert (out.FormatName, out.State) == (text, 2)
        assert script.asked[1:] == [(text, "LOCATION"), (text, "STATE")]
        assert script.acts == [(text, "PAUSE")]
        for status in STATUSES:
            script.answers["LOCATION"] = MqError(status)
            with fails(status):
                management.Init(FormatName=text)


# Which form ------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.3.1-02", "AC-3.4.1-01", "AC-3.4.3-01", "AC-3.4.3-02", "AC-3.5.1-01")
def test_a_queue_s_object_has_the_form_of_its_queue(service: MSMQService) -> None:
    for form in (MSMQManagement(service).queue_management,
                 MSMQManagement(service).outgoing_queue_management):  # fmt: skip
        with fails(E_NOINTERFACE):  # not initialised
            form()
    info = made(service)
    queue = opened(info)
    management = initialised(service, info.FormatName or "")
    local = management.queue_management()
    assert isinstance(local, MSMQQueueManagement)
    assert (local.FormatName, local.MessageCount) == (management.FormatName, 0)
    with fails(E_NOINTERFACE):
        management.outgoing_queue_management()
    out = outgoing(service)
    assert isinstance(out, MSMQOutgoingQueueManagement)
    with fails(E_NOINTERFACE):
        out.queue_management()
    # Both have one state: another Init is seen through either.
    management.Init(FormatName=out.FormatName)
    assert local.FormatName == out.FormatName
    forward = management.outgoing_queue_management()
    assert forward.MessageCount == local.MessageCount == 1
    management.Init(FormatName=info.FormatName)
    assert (forward.FormatName, forward.MessageCount) == (info.FormatName, 0)
    assert forward.IsLocal
    # An Init of either form is the object's, too.
    inits = ((local.Init, out.FormatName), (forward.Init, info.FormatName))
    for init, name in inits:
        init(FormatName=name)
        assert management.FormatName == name
    queue.Close()


@pytest.mark.spec("AC-3.5.3-01")
def test_a_local_queue_has_no_outgoing_form(service: MSMQService) -> None:
    with fails(E_NOINTERFACE):
        scripted(service, LOCATION="LOCAL")[0].outgoing_queue_management()
    assert scripted(service, LOCATION="REMOTE")[0].outgoing_queue_management().FormatName


# Local queues ----------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.4.4.1.1-01", "AC-3.4.4.1.2-01", "MQ-2.3.12-01")
def test_a_queue_s_journal(service: MSMQService) -> None:
    info = made(service)
    info.Journal = 1
    info.Update()
    send(service, info, "a", "b")
    queue = opened(info)
    local = initialised(service, info.FormatName or "").queue_management()
    assert (local.JournalMessageCount, local.BytesInJournal) == (0, 0)
    both = local.BytesInQueue
    queue.Receive(ReceiveTimeout=0)
    assert (local.JournalMessageCount, local.MessageCount) == (1, 1)
    # Their bodies are of one length.
    assert local.BytesInJournal * 2 == local.BytesInQueue * 2 == both > 0
    # One that is no longer kept is as remote management tells of it (RP-A51).
    info.Journal = 0
    info.Update()
    assert (local.JournalMessageCount, local.BytesInJournal) == (1, 0)
    big = 1 << 40
    management, _ = scripted(service, BYTES_IN_JOURNAL=big, JOURNAL_MESSAGE_COUNT=3)
    assert management.queue_management().BytesInJournal == big
    assert management.queue_management().JournalMessageCount == 3
    queue.Close()


def local_form(management: MSMQManagement) -> MSMQQueueManagement:
    """The local form of an object that was not initialised."""
    return MSMQQueueManagement(management)


@pytest.mark.spec("AC-3.4.4.1.1-02", "AC-3.4.4.1.2-02", "AC-3.4.4.1.3-02")
def test_a_local_form_before_init(service: MSMQService) -> None:
    blank = local_form(MSMQManagement(service))
    reads: list[Callable[[], object]] = [
        lambda: blank.JournalMessageCount,
        lambda: blank.BytesInJournal,
        blank.EodGetReceiveInfo,
    ]
    for read in reads:
        with fails(UNINITIALIZED):
            read()


@pytest.mark.spec("AC-3.4.4.1.1-03", "AC-3.4.4.1.2-03", "AC-3.4.4.1.3-03")
def test_a_status_is_the_result_of_a_local_form(service: MSMQService) -> None:
    reads: dict[str, Callable[[MSMQQueueManagement], object]] = {
        "JOURNAL_MESSAGE_COUNT": lambda local: local.JournalMessageCount,
        "BYTES_IN_JOURNAL": lambda local: local.BytesInJournal,
        "EOD_SOURCE_INFO": lambda local: local.EodGetReceiveInfo(),
    }
    for property_name, read in reads.items():
        for management, status in failing(service, property_name):
            with fails(status):
                read(management.queue_management())


class Answers:
    """A control plane that knows one queue."""

    def __init__(self, queue: pb.Queue, outgoing: pb.OutgoingQueue | None = None) -> None:
        self.replies: dict[type[Any], Any] = {
            pb.GetQueueRequest: queue,
            pb.GetOutgoingRequest: outgoing,
        }

    def __call__(self, method: object, request: object, /) -> Any:
        return self.replies[type(request)]

    def management(self, service: MSMQService) -> MSMQManagement:
        """What an application sees of the queue."""
        assert isinstance(service.manager, ClusterManager)
        told = ClusterManagement(self)
        management = MSMQManagement(MSMQService(Scripted(service.manager, told)))
        management.Init(FormatName="DIRECT=OS:host\\q")
        return management


class Senders(Answers):
    """A control plane that knows a queue and who sends to it, each on a page of its own."""

    def __init__(self, queue: pb.Queue, sequences: dict[bytes, list[pb.PeerSequence]]) -> None:
        super().__init__(queue)
        self.sequences = sequences

    @override
    def __call__(self, method: object, request: object, /) -> Any:
        if isinstance(request, pb.ListPeersRequest):
            names = [*self.sequences]
            at = int(request.page_token or "0")
            token = str(at + 1) if at + 1 < len(names) else ""
            peers = [pb.Peer(queue_manager=one) for one in names[at : at + 1]]
            return pb.ListPeersReply(peers=peers, page_token=token)
        if isinstance(request, pb.GetPeerRequest):
            found, at = self.sequences[request.queue_manager], int(request.page_token or "0")
            token = str(at + 1) if at + 1 < len(found) else ""
            return pb.GetPeerReply(sequences=found[at : at + 1], page_token=token)
        return super().__call__(method, request)


@pytest.mark.spec("AC-3.4.4.1.3-01", "AC-2.2.4.1-01")
def test_each_sequence_into_a_queue_is_what_the_cluster_says_of_it(service: MSMQService) -> None:
    def sequence(queue_id: int, number: int) -> pb.PeerSequence:
        last = pb.SequencePlace(
            sequence_identifier=1 << 40 | number, sequence_number=number, previous_number=0
        )
        return pb.PeerSequence(
            queue_id=queue_id,
            format_name=f"DIRECT=OS:host\\q{number}",
            last=last,
            last_access_ms=1_700_000_000_999 + number * 1_000,
            reject_count=number + 100,
        )

    queue = pb.Queue(kind=pb.APPLICATION, is_active=True, queue_id=7)
    first, second = bytes(range(16)), bytes(range(1, 17))
    senders = {first: [sequence(8, 2), sequence(7, 1)], second: [sequence(7, 3)]}
    local = Senders(queue, senders).management(service).queue_management()
    assert [
        {name: one.Item(name) for name in one.names()} for one in local.EodGetReceiveInfo()
    ] == [
        {
            "QueueFormatName": f"DIRECT=OS:host\\q{number}",
            "SenderID": sender,
            "SeqID": 1 << 40 | number,
            "SeqNo": number,
            "LastAccessTime": 1_700_000_000 + number,
            "RejectCount": 100 + number,
        }
        for number, sender in (
            (1, "03020100-0504-0706-0809-0A0B0C0D0E0F"),
            (3, "04030201-0605-0807-090A-0B0C0D0E0F10"),
        )
    ]


@pytest.mark.spec("AC-3.4.4.1.3-01", "AC-2.2.4.1-01", "AC-4.2-01")
def test_senders_of_a_queue_are_a_collection_each(service: MSMQService) -> None:
    columns = [
        ["PUBLIC=a", "PUBLIC=b"],
        [bytes(range(16)), bytes(16)],
        [1 << 40, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]
    management, _ = scripted(service, EOD_SOURCE_INFO=columns)
    first, second = management.queue_management().EodGetReceiveInfo()
    assert {name: first.Item(name) for name in first.names()} == {
        "QueueFormatName": "PUBLIC=a",
        "SenderID": "03020100-0504-0706-0809-0A0B0C0D0E0F",
        "SeqID": 1 << 40,
        "SeqNo": 3,
        "LastAccessTime": 5,
        "RejectCount": 7,
    }
    assert (second.Item("QueueFormatName"), second.Item("SeqNo")) == ("PUBLIC=b", 4)


@pytest.mark.spec("MQ-2.3.12.24-01")
def test_senders_are_those_that_the_cluster_remembers(service: MSMQService) -> None:
    """Over answers of the control plane, and for a queue that nobody sent to."""
    here, elsewhere = bytes(range(16)), bytes(16)
    place = pb.SequencePlace(sequence_identifier=1 << 40, sequence_number=3)
    answers: dict[type, list[Any]] = {
        pb.GetQueueRequest: [pb.Queue(queue_id=5, format_name="PRIVATE=x", is_active=True)],
        pb.ListPeersRequest: [
            pb.ListPeersReply(peers=[pb.Peer(queue_manager=here)], page_token="more"),
            pb.ListPeersReply(peers=[pb.Peer(queue_manager=elsewhere)]),
        ],
        pb.GetPeerRequest: [
            pb.GetPeerReply(
                sequences=[
                    pb.PeerSequence(
                        queue_id=5,
                        last=place,
                        reject_count=2,
                        last_access_ms=7_999,
                        format_name="DIRECT=OS:here\\q",
                    ),
                    pb.PeerSequence(queue_id=6, last=place),
                ]
            ),
            pb.GetPeerReply(),
        ],
    }

    def call(method: object, request: object) -> Any:
        return answers[type(request)].pop(0)

    columns = ClusterManagement(call).queue_info("PRIVATE=x", Property.EOD_SOURCE_INFO)
    assert columns == [["DIRECT=OS:here\\q"], [here], [1 << 40], [3], [7], [2]]
    info = made(service)
    queue = opened(info)
    local = initialised(service, info.FormatName or "").queue_management()
    assert local.EodGetReceiveInfo() == []
    queue.Close()


# Outgoing queues -------------------------------------------------------------------------------


@pytest.mark.spec("MQ-2.3.12.3-01", "MQ-2.3.12.11-01", "MQ-2.3.12-01")
def test_the_control_plane_s_answers_have_their_strings() -> None:
    queue, away = pb.Queue(is_active=True), pb.OutgoingQueue()

    def told(property_id: Property) -> Any:
        call: Any = lambda _, given: away if isinstance(given, pb.GetOutgoingRequest) else queue  # noqa: E731
        return ClusterManagement(call).queue_info("DIRECT=OS:far\\q", property_id)

    for number, kind in (
        (pb.PUBLIC, "PUBLIC"), (pb.PRIVATE, "PRIVATE"),
        (pb.SYSTEM, "MACHINE"), (pb.CONNECTOR_QUEUE, "CONNECTOR"),
    ):  # fmt: skip
        queue.type = number
        assert told(Property.TYPE) == kind
        assert told(Property.STATE) == "LOCAL CONNECTION"
    queue.kind = pb.OUTGOING
    states = {
        pb.INACTIVE: "INACTIVE", pb.WAITING: "WAITING", pb.NEED_VALIDATION: "NEED VALIDATION",
        pb.ON_HOLD: "ONHOLD", pb.CONNECTED: "CONNECTED", pb.DISCONNECTING: "DISCONNECTING",
        pb.DISCONNECTED: "DISCONNECTED", pb.LOCKED: "LOCKED",
    }  # fmt: skip
    assert {*states} == {*pb.OutgoingState.values()}
    for state, text in states.items():
        away.state = state
        assert told(Property.STATE) == text
    for name, kind in (
        ("public=6B29FC40-CA47-1067-B31D-00DD010662DA", "PUBLIC"),
        ("PRIVATE=6B29FC40-CA47-1067-B31D-00DD010662DA\\1", "PRIVATE"),
        ("MACHINE=6B29FC40-CA47-1067-B31D-00DD010662DA;DEADXACT", "MACHINE"),
        ("CONNECTOR=6B29FC40-CA47-1067-B31D-00DD010662DA", "CONNECTOR"),
        ("MULTICAST=234.1.1.1:8001", "MULTICAST"),
        ("DIRECT=OS:far\\q", "PRIVATE"),
    ):
        away.format_name = name
        assert told(Property.TYPE) == kind
    away.message_count, away.total_bytes = 5, 600
    assert [told(one) for one in (Property.MESSAGE_COUNT, Property.BYTES_IN_QUEUE)] == [5, 600]


@pytest.mark.spec("AC-3.5.4.1.1-01", "AC-2.2.2.19-02", "AC-3.5.4.1.2-01")
def test_an_outgoing_queue_s_state_and_hops(service: MSMQService) -> None:
    states = (
        "LOCAL CONNECTION", "DISCONNECTED", "WAITING", "NEED VALIDATION", "ONHOLD", "INACTIVE",
        "CONNECTED", "DISCONNECTING", "LOCKED",
    )  # fmt: skip
    for number, text in enumerate(states):
        management, _ = scripted(service, LOCATION="REMOTE", STATE=text)
        assert management.outgoing_queue_management().State == number
    management, _ = scripted(service, LOCATION="REMOTE", NEXTHOPS=["IP=10.0.0.1", "IP=10.0.0.2"])
    assert management.outgoing_queue_management().NextHops == ["IP=10.0.0.1", "IP=10.0.0.2"]
    local = made(service)
    with_queue = opened(local)
    state = service.manager.management("").queue_info(local.FormatName or "", Property.STATE)
    assert state == "LOCAL CONNECTION"
    with_queue.Close()
    out = outgoing(service)
    assert out.State != QUEUE_STATE.MQ_QUEUE_STATE_LOCAL_CONNECTION
    # What is there to see of an address that nobody is at.
    until(lambda: out.NextHops == ["IP=127.255.255.254"])
    until(lambda: out.State == QUEUE_STATE.MQ_QUEUE_STATE_DISCONNECTED)
    out.Pause()
    assert out.State == QUEUE_STATE.MQ_QUEUE_STATE_ONHOLD


@pytest.mark.spec(
    "AC-3.5.4.1.4-01", "AC-3.5.4.1.5-01", "AC-4.3-01", "AC-3.3.6.3-01", "MQ-2.3.12.11-01"
)
def test_an_outgoing_queue_is_held_and_released(service: MSMQService) -> None:
    out = outgoing(service)
    for act, is_held in ((out.Pause, True), (out.Resume, False), (out.EodResend, False)):
        act()
        assert (out.State == QUEUE_STATE.MQ_QUEUE_STATE_ONHOLD) is is_held
    done = {"PAUSE": "OK", "RESUME": "OK", "EOD_RESEND": "OK"}
    management, script = scripted(service, LOCATION="REMOTE", **done)
    told = management.outgoing_queue_management()
    for act in (told.Pause, told.Resume, told.EodResend):
        act()
    assert script.acts == [("DIRECT=OS:host\\q", name) for name in done]
    for act, name in zip((told.Pause, told.Resume, told.EodResend), done, strict=True):
        del script.answers[name]
        with fails(REFUSED):  # the status is the result
            act()


@pytest.mark.spec("AC-3.5.4.1.6-01", "AC-3.3.6.3-02")
def test_resend_is_an_action_of_its_own_in_any_case(service: MSMQService) -> None:
    management, script = scripted(service, LOCATION="REMOTE", EOD_RESEND="OK")
    management.outgoing_queue_management().EodResend()
    assert script.acts == [("DIRECT=OS:host\\q", "EOD_RESEND")]
    out, application = outgoing(service), MSMQApplication(service)
    name = out.FormatName
    cluster = service.manager.management("")
    for case in (str.upper, str.lower, str.title):
        for action, is_held in (("PAUSE", True), ("RESUME", False), ("EOD_RESEND", False)):
            cluster.act_on_queue(name, case(action))
            assert (out.State == QUEUE_STATE.MQ_QUEUE_STATE_ONHOLD) is is_held
        for action, is_online in (("DISCONNECT", False), ("TIDY", False), ("CONNECT", True)):
            cluster.act_on_machine(case(action))
            assert application.IsConnected is is_online
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        cluster.act_on_queue(name, "EXPLODE")
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        cluster.act_on_machine("EXPLODE")


ACTIONS = ("Resume", "Pause", "EodResend")


@pytest.mark.spec(
    "AC-3.5.4.1.1-02", "AC-3.5.4.1.2-02", "AC-3.5.4.1.3-02", "AC-3.5.4.1.4-02", "AC-3.5.4.1.5-02"
)
def test_an_outgoing_form_before_init(service: MSMQService) -> None:
    blank = MSMQOutgoingQueueManagement(MSMQManagement(service))
    for name in ("State", "NextHops"):
        with fails(UNINITIALIZED):
            getattr(blank, name)
    for name in ("EodGetSendInfo", *ACTIONS):
        with fails(UNINITIALIZED):
            getattr(blank, name)()


@pytest.mark.spec("AC-3.5.4.1.6-02", "AC-3.5.4.1.6-03", "AC-3.5.4.1.4-03", "AC-3.5.4.1.5-03")
def test_an_action_s_status_is_the_result(service: MSMQService) -> None:
    for action, name in (("RESUME", "Resume"), ("PAUSE", "Pause"), ("EOD_RESEND", "EodResend")):
        for management, status in failing(service, action, "REMOTE"):
            told = management.outgoing_queue_management()
            with fails(status):
                getattr(told, name)()
            for other in {*ACTIONS} - {name}:
                getattr(told, other)()
        with fails(UNINITIALIZED):
            getattr(MSMQOutgoingQueueManagement(MSMQManagement(service)), name)()


@pytest.mark.spec("AC-3.5.4.1.1-03", "AC-3.5.4.1.2-03")
def test_a_status_is_the_result_of_an_outgoing_form(service: MSMQService) -> None:
    for name in ("State", "NextHops"):
        for management, status in failing(service, name.upper(), "REMOTE"):
            with fails(status):
                getattr(management.outgoing_queue_management(), name)


EOD = {
    "EOD_LAST_ACK": SEQUENCE_INFO.pack(1 << 40, 2, 1),
    "EOD_LAST_ACK_TIME": 11,
    "EOD_LAST_ACK_COUNT": 12,
    "EOD_FIRST_NON_ACK": SEQUENCE_INFO.pack(1 << 40, 3, 2),
    "EOD_LAST_NON_ACK": SEQUENCE_INFO.pack(1 << 40, 4, 3),
    "EOD_NEXT_SEQ": SEQUENCE_INFO.pack(1 << 40, 5, 4),
    "EOD_NO_READ_COUNT": 13,
    "EOD_NO_ACK_COUNT": 14,
    "EOD_RESEND_TIME": 15,
    "EOD_RESEND_INTERVAL": 16,
    "EOD_RESEND_COUNT": 17,
}


@pytest.mark.spec("AC-3.5.4.1.2-01", "MQ-2.3.12.12-01")
def test_next_hops_are_those_that_the_cluster_tells(service: MSMQService) -> None:
    away = pb.Queue(kind=pb.OUTGOING, is_active=True)
    for hops in (
        [],
        ["IP=10.0.0.1"],
        ["IP=10.0.0.1", "IPv6=fd00::2", "FOREIGN=6B29FC40-CA47-1067-B31D-00DD010662DA"],
    ):
        management = Answers(away, pb.OutgoingQueue(next_hops=hops)).management(service)
        assert management.outgoing_queue_management().NextHops == hops


@pytest.mark.spec("AC-3.3.4.1.6-01", "AC-3.5.4.1.1-01", "AC-3.5.4.1.3-01", "AC-2.2.2.19-02")
def test_what_the_cluster_says_of_a_queue(service: MSMQService) -> None:
    types = {pb.PUBLIC: 0, pb.PRIVATE: 1, pb.SYSTEM: 2, pb.CONNECTOR_QUEUE: 3}
    for told, number in types.items():
        local = pb.Queue(kind=pb.APPLICATION, type=told, is_active=True)
        assert Answers(local).management(service).QueueType == number
    away = pb.Queue(kind=pb.OUTGOING, is_active=True)
    names = {"PUBLIC=1": 0, "Private=1": 1, "MACHINE=1;JOURNAL": 2, "MULTICAST=234.1.1.1:8001": 4}
    for name, number in (names | {"DIRECT=TCP:10.0.0.1\\private$\\q": 1}).items():
        outgoing = pb.OutgoingQueue(format_name=name)
        assert Answers(away, outgoing).management(service).QueueType == number
    states = {
        pb.DISCONNECTED: 1, pb.WAITING: 2, pb.NEED_VALIDATION: 3, pb.ON_HOLD: 4, pb.INACTIVE: 5,
        pb.CONNECTED: 6, pb.DISCONNECTING: 7, pb.LOCKED: 8,
    }  # fmt: skip
    for state, number in states.items():
        management = Answers(away, pb.OutgoingQueue(state=state)).management(service)
        assert management.outgoing_queue_management().State == number
    last_acked, first_unacked, last_unacked, following = (
        pb.SequencePlace(
            sequence_identifier=1 << 40, sequence_number=number, previous_number=number - 1
        )
        for number in range(2, 6)
    )
    outgoing = pb.OutgoingQueue(
        last_acked=last_acked, last_ack_time_s=11, last_ack_count=12, first_unacked=first_unacked,
        last_unacked=last_unacked, next=following, unread_count=13, unacked_count=14,
        next_resend_ms=15_999, resend_interval_s=16, resend_count=17,
    )  # fmt: skip
    info = Answers(away, outgoing).management(service).outgoing_queue_management().EodGetSendInfo()
    told_of(info)


def told_of(info: MSMQCollection) -> None:
    """The eleven values, each of which is another number."""
    numbers = {
        "EodLastAckTime": 11, "EodLastAckCount": 12, "EodNoReadCount": 13, "EodNoAckCount": 14,
        "EodResendTime": 15, "EodResendInterval": 16, "EodResendCount": 17,
    }  # fmt: skip
    assert info.Count == 11
    assert {name: info.Item(name) for name in numbers} == numbers
    places = {"EodLastAck": 2, "EodFirstNonAck": 3, "EodLastNonAck": 4, "EodNextSeq": 5}
    for name, number in places.items():
        place = info.Item(name)
        assert isinstance(place, MSMQCollection)
        assert place.names() == ["SeqID", "SeqNo", "PrevNo"]
        assert [*place] == [1 << 40, number, number - 1]


@pytest.mark.spec(
    "AC-3.5.4.1.3-01", "AC-3.5.4.1.3-03", "AC-3.5.4.1.3-04", "AC-2.2.4.2-01", "AC-2.2.4.3-01"
)
def test_what_is_known_of_transactional_messages(service: MSMQService) -> None:
    management, _ = scripted(service, LOCATION="REMOTE", **EOD)
    told_of(management.outgoing_queue_management().EodGetSendInfo())
    for missing in EOD:
        left = {name: value for name, value in EOD.items() if name != missing}
        management, script = scripted(service, LOCATION="REMOTE", **left)
        script.asked.clear()
        with fails(REFUSED):
            management.outgoing_queue_management().EodGetSendInfo()
        # One by one, in this order; the first one that fails is the last one that is read.
        in_order = [*EOD]
        read = [name for _, name in script.asked]
        assert read == in_order[: in_order.index(missing) + 1]


@pytest.mark.spec("AC-2.2.4.2-01", "MQ-2.3-17", "MQ-2.2.5-01", "MQ-2.2.5.1-02")
def test_each_of_them_is_what_the_cluster_says_of_it(service: MSMQService) -> None:
    def place(number: int) -> pb.SequencePlace:
        return pb.SequencePlace(
            sequence_identifier=1 << 40, sequence_number=number, previous_number=number - 1
        )

    told = pb.OutgoingQueue(
        next=place(5),
        last_acked=place(2),
        first_unacked=place(3),
        last_unacked=place(4),
        unacked_count=14,
        unread_count=13,
        resend_count=17,
        next_resend_ms=15_000,
        last_ack_time_s=11,
        last_ack_count=12,
        resend_interval_s=16,
    )

    def call(method: object, request: object) -> Any:
        is_queue = isinstance(request, pb.GetQueueRequest)
        return pb.Queue(kind=pb.OUTGOING, is_active=True) if is_queue else told

    assert isinstance(service.manager, ClusterManager)
    asked = Scripted(service.manager, ClusterManagement(call))
    management = MSMQManagement(MSMQService(asked))
    management.Init(FormatName=FAR)
    info = management.outgoing_queue_management().EodGetSendInfo()
    numbers = {
        "EodLastAckTime": 11, "EodLastAckCount": 12, "EodNoReadCount": 13, "EodNoAckCount": 14,
        "EodResendTime": 15, "EodResendInterval": 16, "EodResendCount": 17,
    }  # fmt: skip
    assert {name: info.Item(name) for name in numbers} == numbers
    places = {"EodLastAck": 2, "EodFirstNonAck": 3, "EodLastNonAck": 4, "EodNextSeq": 5}
    for name, number in places.items():
        assert [*info.Item(name)] == [1 << 40, number, number - 1]


class Answering(ClusterManager):
    """The cluster, with one answer about every outgoing queue."""

    def __init__(self, manager: ClusterManager, answer: pb.OutgoingQueue) -> None:
        super().__init__(manager.client)
        self._answer = answer

    @override
    def call(self, method: Any, request: Any) -> Any:
        is_outgoing = isinstance(request, pb.GetOutgoingRequest)
        return self._answer if is_outgoing else super().call(method, request)


@pytest.mark.spec("AC-2.2.4.2-02", "DM-3.1.1.4-02", "MQ-2.3.12-01", "MQ-2.3.12-02")
def test_pending_transactional_messages_are_counted(service: MSMQService) -> None:
    from qm.client.mqac.constants import MQTRANSACTION

    name = "DIRECT=TCP:127.255.255.254\\PRIVATE$\\ordered"
    queue = opened(info_of(service, name=name), SEND)
    for _ in range(3):
        MSMQMessage(service).Send(queue, MQTRANSACTION.MQ_SINGLE_MESSAGE)
    out = initialised(service, name).outgoing_queue_management()
    info = out.EodGetSendInfo()
    assert info.Count == 11
    assert (info.Item("EodNoReadCount"), info.Item("EodLastAckTime")) == (0, 0)
    assert out.MessageCount == 3
    known = pb.OutgoingQueue(
        last_acked=pb.SequencePlace(sequence_identifier=9, sequence_number=2, previous_number=1),
        first_unacked=pb.SequencePlace(sequence_identifier=9, sequence_number=3, previous_number=2),
        last_unacked=pb.SequencePlace(sequence_identifier=9, sequence_number=5, previous_number=3),
        next=pb.SequencePlace(sequence_identifier=9, sequence_number=6, previous_number=5),
        last_ack_time_s=11, last_ack_count=12, unread_count=13, unacked_count=14,
        next_resend_ms=1_700_000_000_999, resend_interval_s=15, resend_count=16,
    )  # fmt: skip
    assert isinstance(service.manager, ClusterManager)
    answering = MSMQService(Answering(service.manager, known))
    info = initialised(answering, name).outgoing_queue_management().EodGetSendInfo()
    places = ("EodLastAck", "EodFirstNonAck", "EodLastNonAck", "EodNextSeq")
    assert [list(info.Item(place)) for place in places] == [
        [9, 2, 1],
        [9, 3, 2],
        [9, 5, 3],
        [9, 6, 5],
    ]
    assert {each: info.Item(each) for each in info.names() if each not in places} == {
        "EodLastAckTime": 11, "EodLastAckCount": 12, "EodNoReadCount": 13, "EodNoAckCount": 14,
        "EodResendTime": 1_700_000_000, "EodResendInterval": 15, "EodResendCount": 16,
    }  # fmt: skip


@pytest.mark.spec("AC-3.5.4.1.4-04", "AC-3.5.4.1.5-04", "AC-3.5.4.1.6-04")
def test_what_is_not_active_cannot_be_held_or_released(service: MSMQService) -> None:
    cluster = service.manager.management("")
    for name in ("DIRECT=TCP:127.255.255.254\\PRIVATE$\\nothing", made(service).FormatName or ""):
        for action in ("PAUSE", "RESUME", "EOD_RESEND"):
            with fails(0xC00E_0004):
                cluster.act_on_queue(name, action)
    # One that was active when the object was bound to it.
    queue = opened(info_of(service, name=f"{FAR}released"), SEND)
    released = initialised(service, f"{FAR}released").outgoing_queue_management()
    queue.Close()
    for name in ACTIONS:
        with fails(0xC00E_0004):
            getattr(released, name)()


def test_properties_that_a_queue_does_not_have(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info)
    cluster = service.manager.management("")
    for name, property_id in (
        (info.FormatName or "", Property.NEXTHOPS),
        (outgoing(service).FormatName, Property.JOURNAL_MESSAGE_COUNT),
    ):
        with fails(E.MQ_ERROR_ILLEGAL_PROPID):
            cluster.queue_info(name, property_id)
    assert cluster.queue_info(info.FormatName or "", Property.STATE) == "LOCAL CONNECTION"
    assert cluster.queue_info(info.FormatName or "", Property.PATHNAME) == info.PathName
    queue.Close()
