"""MSMQApplication [MC-MQAC 3.2] over a real node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import md5
from typing import Any

import pytest
from cryptography import x509
from typing_extensions import override

from qm.client.calls import Calls, Tls
from qm.client.errors import MqError, Unavailable
from qm.client.mqac import MSMQApplication, MSMQMessage, MSMQService
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import MQCERT_REGISTER
from qm.client.mqac.manager import Management
from qm.client.signing import new_signer
from qm.names.guid import guid_text
from qm.node.config.schema import API_PORT
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from qm.wire.property_id import MachineManagementProperty
from qm.wire.property_id import QueueManagementProperty as Property
from tests.cluster.harness import cluster, make_queue_manager, run
from tests.conformance.mqac_reads import body, send
from tests.conformance.mqac_world import (
    SEND,
    Deleting,
    ask,
    fails,
    info_of,
    made,
    opened,
    serving,
    serving_as,
)

E = ErrorCode
REFUSED = E.MQ_ERROR_ACCESS_DENIED


class Callers:
    """The service of a caller who may not administer."""

    client: MSMQService


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving_as("admin", "client") as (running, Callers.client):
        yield running


class Elsewhere(Management):
    """Another queue manager: it answers what it is told, or refuses with a status."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.status: int = answers.pop("status", REFUSED)
        self.answers = answers
        self.asked: list[str] = []
        self.acts: list[str] = []

    @override
    def machine_info(self, property_id: MachineManagementProperty) -> Any:
        self.asked.append(property_id.name)
        if property_id.name not in self.answers:
            raise MqError(self.status)
        return self.answers[property_id.name]

    @override
    def queue_info(self, format_name: str, property_id: Property) -> Any:
        raise MqError(REFUSED)

    @override
    def act_on_machine(self, action: str) -> None:
        self.acts.append(action)
        if "acts" not in self.answers:
            raise MqError(self.status)

    @override
    def act_on_queue(self, format_name: str, action: str) -> None:
        raise MqError(REFUSED)


class World(ClusterManager):
    """The cluster, and another queue manager called `other`."""

    def __init__(self, manager: ClusterManager, other: Elsewhere) -> None:
        super().__init__(manager.client)
        self.other = other

    @override
    def management(self, computer_name: str) -> Management:
        return self.other if computer_name == "other" else super().management(computer_name)


def elsewhere(service: MSMQService, **answers: Any) -> tuple[MSMQApplication, Elsewhere]:
    """An object that stands for another computer's queue manager."""
    assert isinstance(service.manager, ClusterManager)
    other = Elsewhere(answers)
    application = MSMQApplication(MSMQService(World(service.manager, other)))
    application.Machine = "other"
    return application, other


# The machine -----------------------------------------------------------------------------------


REMOTE_READS = (
    "PrivateQueues",
    "DirectoryServiceServer",
    "IsConnected",
    "BytesInAllQueues",
)
REMOTE_CALLS = ("ActiveQueues", "Connect", "Disconnect", "Tidy")


@pytest.mark.spec("AC-3.2.1-01")
def test_with_a_name_everything_else_goes_to_that_machine(service: MSMQService) -> None:
    application, other = elsewhere(service)
    for name in REMOTE_READS:
        with fails(REFUSED):
            getattr(application, name)
    for name in REMOTE_CALLS:
        with fails(REFUSED):
            getattr(application, name)()
    assert other.asked == ["PRIVATEQ", "DSSERVER", "CONNECTED", "BYTES_IN_ALL_QUEUES",
                           "ACTIVEQUEUES"]  # fmt: skip
    assert other.acts == ["CONNECT", "DISCONNECT", "TIDY"]
    # Without one, the local queue manager answers.
    local = MSMQApplication(MSMQService(application._manager))
    for name in REMOTE_READS:
        getattr(local, name)
    for name in REMOTE_CALLS:
        getattr(local, name)()
    local.Connect()
    assert len(other.asked) + len(other.acts) == 8


@pytest.mark.spec("AC-3.2.3-01", "AC-3.2.4.3.6-01", "AC-3.2.4.3.7-01")
def test_the_machine_is_the_local_one_until_it_is_put(service: MSMQService) -> None:
    application = MSMQApplication(service)
    assert application.Machine == service.manager.computer_name == "QUORATE"
    application.Machine = "no such, unchecked"
    assert application.Machine == "no such, unchecked"
    with fails(E.MQ_ERROR_SERVICE_NOT_AVAILABLE):
        application.ActiveQueues()
    application, _ = elsewhere(service, CONNECTED="DISCONNECTED")
    connected = [application.IsConnected]
    application.Machine = "quorate"
    connected.append(application.IsConnected)
    assert connected == [False, True]
    application.Machine = ""  # so a NULL name arrives
    assert application.Machine == "QUORATE"
    assert application.IsDsEnabled is True


def published(service: MSMQService, computer_name: str) -> str:
    """Put another queue manager into the directory; its GUID."""
    request = control_pb2.PutObjectRequest(
        object_class="queue_manager",
        attributes={"computer_name": control_pb2.Value(text=computer_name)},
    )
    return guid_text(ask(service, lambda s: s.directory.PutObject, request).identifier)


@pytest.mark.spec("AC-3.2.4.1.1-01", "AC-3.2.4.1.1-02", "AC-3.2.4.1.1-03", "AC-3.2.4.1.1-04")
def test_a_machine_s_identifier(service: MSMQService) -> None:
    application = MSMQApplication(service)
    own = guid_text(service.manager.identifier)
    assert re.fullmatch("[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", own)
    for name in (None, "", "QUORATE", "quorate"):
        assert application.MachineIdOfMachineName(name) == own
    peer = published(service, "PEER-1")
    for name in ("PEER-1", "peer-1"):
        assert application.MachineIdOfMachineName(name) == peer
    with fails(E.MQ_ERROR_ACCESS_DENIED):  # operators alone read the directory
        MSMQApplication(Callers.client).MachineIdOfMachineName("PEER-1")
    with fails(0xC00E_000D):
        application.MachineIdOfMachineName("elsewhere")


@pytest.mark.spec("AC-3.2.4.2.2-01", "AC-3.2.4.2.2-02")
def test_a_machine_by_its_identifier(service: MSMQService) -> None:
    application = MSMQApplication(service)
    own = guid_text(service.manager.identifier)
    for text in (own, "{" + own + "}", own.lower()):
        assert application.MachineNameOfMachineId(text) == "QUORATE"
    peer = published(service, "PEER-2")
    for text in (peer, "{" + peer + "}"):
        assert application.MachineNameOfMachineId(text) == "PEER-2"
    for unknown in (
        "01020304-0506-0708-090A-0B0C0D0E0F10", "{01020304-0506-0708-090A-0B0C0D0E0F10}",
    ):  # fmt: skip
        with fails(0xC00E_000D):
            application.MachineNameOfMachineId(unknown)
    for wrong in ("no identifier", "", own[:-1], "{}", "{{" + own + "}}"):
        with fails(0xC00E_0018):
            application.MachineNameOfMachineId(wrong)
    with fails(0xC00E_0025):  # operators alone read the directory
        MSMQApplication(Callers.client).MachineNameOfMachineId(peer)


# Local properties ------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.2.4.2.3-01", "AC-3.2.4.2.4-01", "AC-3.2.4.2.5-01", "AC-3.2.4.2.6-01", "AC-3.2.4.2.7-01"
)
def test_what_is_known_of_the_local_one_alone(service: MSMQService) -> None:
    application = MSMQApplication(service)
    names = ("MSMQVersionMajor", "MSMQVersionMinor", "MSMQVersionBuild", "IsDsEnabled")
    assert [getattr(application, name) for name in names] == [4, 1, 6000, True]
    for is_integrated in (False, True):
        changes = {"directory_integrated": control_pb2.Value(flag=is_integrated)}
        request = control_pb2.SetQueueManagerRequest(changes=changes)
        ask(service, lambda stubs: stubs.queues.SetQueueManager, request)
        assert application.IsDsEnabled is is_integrated
    application.Machine = "QUORATE"
    for name in names:
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            getattr(application, name)
    for each in (application, MSMQApplication(service)):
        with fails(0x8000_4001):
            _ = each.Properties


@pytest.mark.spec("AC-3.2.4.2.3-02", "AC-3.2.4.2.4-02", "AC-3.2.4.2.5-02")
def test_the_version_is_that_of_msmq_4(service: MSMQService) -> None:
    application = MSMQApplication(service)
    assert (application.MSMQVersionMajor, application.MSMQVersionMinor) == (4, 1)
    assert application.MSMQVersionBuild == 6000


@pytest.mark.spec("AC-3.2.4.2.1-02", "AC-3.2.4.2.1-03", "AC-3.2.4.2.1-04")
def test_certificates_are_refused_in_order(service: MSMQService) -> None:
    application, _ = elsewhere(service)
    local = MSMQApplication(service)
    always, only_new = MQCERT_REGISTER
    assert (always, only_new) == (1, 2)
    external = new_signer("somebody", 1024, 1).certificate
    for certificate in (external, None):
        for flags in (always, only_new):
            with fails(0x8000_4001):
                application.RegisterCertificate(flags, certificate)
        with fails(0x8000_4001):
            application.RegisterCertificate(ExternalCertificate=certificate)
    for certificate in (external, b""):
        with fails(0xC00E_0006):
            local.RegisterCertificate(only_new, certificate)
    assert certificates(service) == []
    # Left out is ALWAYS: it goes with an external certificate, and makes another internal one.
    assert local.RegisterCertificate(ExternalCertificate=external) == 0
    assert certificates(service) == [external]
    assert local.RegisterCertificate() == local.RegisterCertificate() == 0
    kept, newest = certificates(service)
    assert kept == external
    assert local.RegisterCertificate(only_new) == E.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
    assert certificates(service) == [kept, newest]
    assert local.RegisterCertificate() == 0
    assert newest not in certificates(service)


@pytest.mark.spec("AC-3.2.4.2.1-07", "AC-3.2.4.2.1-08", "AC-3.2.4.2.1-06")
def test_an_internal_certificate_is_kept_or_replaced() -> None:
    with serving() as service:
        application = MSMQApplication(service)
        external = new_signer("somebody", 1024, 1).certificate
        assert application.RegisterCertificate(ExternalCertificate=external) == 0

        def own() -> bytes:
            signer = service.manager.signer(b"")
            assert signer is not None
            (user,) = users(service)
            listed = signers(service)
            digests = [md5(one.certificate, usedforsecurity=False).digest() for one in listed]
            assert [one.certificate for one in listed] == [external, signer.certificate]
            assert [one.is_internal for one in listed] == [False, True]
            assert [*user.attributes["certificate_digest_list"].datas.items] == digests
            return signer.certificate

        only_new = MQCERT_REGISTER.MQCERT_REGISTER_IF_NOT_EXIST
        assert application.RegisterCertificate(only_new) == 0, "there was none"
        first = own()
        before = signers(service)
        assert application.RegisterCertificate(only_new) == 0x400E_000A
        assert (own(), signers(service)) == (first, before)
        assert application.RegisterCertificate() == 0
        assert own() != first
        (kept, _), (old, new) = signers(service), before
        assert kept == old
        assert new.identifier not in {one.identifier for one in signers(service)}


@pytest.mark.spec("AC-3.2.4.2.1-01", "AC-3.2.4.2.1-06", "AC-3.2.4.2.1-09", "DM-3.1.1.15-01")
def test_certificates_have_a_digest_and_a_guid_in_the_directory() -> None:
    with serving() as service:
        application = MSMQApplication(service)
        external = new_signer("somebody", 1024, 1).certificate
        assert application.RegisterCertificate(ExternalCertificate=external) == 0
        assert application.RegisterCertificate() == 0
        signer = service.manager.signer(b"")
        assert signer is not None
        made = signer.certificate
        x509.load_der_x509_certificate(made)
        listed = signers(service)
        assert [each.certificate for each in listed] == [external, made]
        assert [each.is_internal for each in listed] == [False, True]
        digests = [md5(each, usedforsecurity=False).digest() for each in (external, made)]
        assert [each.digest for each in listed] == digests
        identifiers = {each.identifier for each in listed}
        assert [len(each) for each in identifiers] == [16, 16]
        assert bytes(16) not in identifiers
        # The directory has both, by their digests.
        (user,) = users(service)
        assert [*user.attributes["certificate_digest_list"].datas.items] == digests
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            application.RegisterCertificate(ExternalCertificate=b"no certificate")
        assert signers(service) == listed


@pytest.mark.spec("AC-3.2.4.2.1-01")
def test_a_certificate_is_its_caller_s() -> None:
    with serving_as("admin", "client") as (admin, client):
        certificates: dict[bytes, list[bytes]] = {}
        for service in (admin, client):
            external = new_signer("somebody", 1024, 1).certificate
            application = MSMQApplication(service)
            application.RegisterCertificate(ExternalCertificate=external)
            application.RegisterCertificate()
            signer = service.manager.signer(b"")
            assert signer is not None
            mine = [each.certificate for each in signers(service)]
            assert mine == [external, signer.certificate]
            found = [
                each.identifier
                for each in users(admin)
                if [*each.attributes["certificate_digest_list"].datas.items]
                == [md5(one, usedforsecurity=False).digest() for one in mine]
            ]
            assert len(found) == 1
            certificates[found[0]] = mine
        assert len(certificates) == 2
        assert [each.certificate for each in signers(admin)] == next(iter(certificates.values()))


def signers(service: MSMQService) -> list[control_pb2.SignerCertificate]:
    """Certificates of the caller."""
    reply = ask(service, lambda s: s.certificates.List, control_pb2.ListCertificatesRequest())
    return [*reply.certificates]


def users(service: MSMQService) -> list[control_pb2.DirectoryObject]:
    """Users of the directory."""
    request = control_pb2.ListObjectsRequest(object_class="user")
    return [*ask(service, lambda s: s.directory.ListObjects, request).objects]


def certificates(service: MSMQService) -> list[bytes]:
    """Those of the caller, as they were registered."""
    return [each.certificate for each in signers(service)]


# Either ----------------------------------------------------------------------------------------


@pytest.mark.spec(
    "AC-3.2.4.3.1-01", "AC-3.2.4.3.2-01", "AC-3.2.4.3.5-01", "MQ-2.3.11-01", "MQ-2.3.11.1-01"
)
def test_queues_of_the_queue_manager(service: MSMQService) -> None:
    application = MSMQApplication(service)
    info, idle = made(service), made(service)
    assert info.FormatName not in application.ActiveQueues()
    queue = opened(info)
    active = application.ActiveQueues()
    assert info.FormatName in active
    assert idle.FormatName not in active
    far = info_of(service, name="DIRECT=TCP:127.255.255.254\\PRIVATE$\\active")
    MSMQMessage(service).Send(opened(far, SEND))
    assert far.FormatName in application.ActiveQueues()
    assert {info.PathName, idle.PathName} <= set(application.PrivateQueues)
    public = info_of(service, path="QUORATE\\not-private")
    public.Create()
    assert public.PathName not in application.PrivateQueues
    assert public.FormatName not in application.ActiveQueues()
    reader = opened(public)
    assert str(public.FormatName).startswith("PUBLIC=")
    assert public.FormatName in application.ActiveQueues()
    reader.Close()
    assert isinstance(service.manager, ClusterManager)
    manager = Deleting(service.manager.client)
    manager.doomed = [str(public.FormatName)]
    left = MSMQApplication(MSMQService(manager)).ActiveQueues()
    assert public.FormatName not in left
    assert info.FormatName in left
    told, _ = elsewhere(
        service, ACTIVEQUEUES=["PUBLIC=a"], PRIVATEQ=["h\\q"], BYTES_IN_ALL_QUEUES=7
    )
    assert (told.ActiveQueues(), told.PrivateQueues) == (["PUBLIC=a"], ["h\\q"])
    assert told.BytesInAllQueues == 7
    for status in (0xC00E_0025, 0xC00E_000B, 0xC00E_0006):
        with fails(status):
            elsewhere(service, status=status)[0].ActiveQueues()
    before = application.BytesInAllQueues
    send(service, info, "x" * 1_000)
    send(service, idle, "y" * 3_000)
    grown = 0
    for each in (info, idle):
        name = control_pb2.QueueName(name=each.FormatName or "")
        request = control_pb2.GetQueueRequest(queue=name)
        grown += ask(service, lambda stubs: stubs.queues.GetQueue, request).total_bytes
    assert grown >= 8_000
    assert application.BytesInAllQueues == before + grown
    queue.Close()


@pytest.mark.spec("AC-3.2.4.3.1-01", "AC-3.2.4.3.2-01", "AC-3.2.4.3.5-01")
def test_queues_that_are_private_and_those_that_are_active_are_no_others() -> None:
    with serving() as service:
        application = MSMQApplication(service)
        assert (application.PrivateQueues, application.ActiveQueues()) == ([], [])
        kept, exact = made(service), made(service, is_transactional=True)
        kept.Journal = 1
        kept.Update()
        public = info_of(service, path="QUORATE\\public")
        public.Create()
        far = info_of(service, name="DIRECT=TCP:127.255.255.254\\PRIVATE$\\far")
        MSMQMessage(service).Send(opened(far, SEND))
        send(service, kept, "journaled")
        readers = [opened(each) for each in (kept, public)]
        assert body(readers[0].Receive(ReceiveTimeout=0)) == "journaled"
        paths = [str(each.PathName).replace(".", "QUORATE", 1) for each in (kept, exact)]
        assert sorted(map(str.casefold, application.PrivateQueues)) == sorted(
            map(str.casefold, paths)
        )
        names = [str(each.FormatName) for each in (kept, public, far)]
        assert sorted(application.ActiveQueues()) == sorted(names)
        # The bytes are of all queues there are, of a journal and on the way out, too.
        sizes = []
        for name in (f"{kept.FormatName};JOURNAL", str(far.FormatName)):
            request = control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=name))
            sizes.append(ask(service, lambda s: s.queues.GetQueue, request).total_bytes)
        assert min(sizes) > 0
        assert application.BytesInAllQueues == sum(sizes)
        for each in readers:
            each.Close()


@pytest.mark.spec("AC-3.2.4.3.3-01", "AC-3.2.4.3.3-03", "AC-3.2.4.3.4-01", "AC-3.2.4.3.4-03")
@pytest.mark.spec("MQ-2.3.11.3-01")
def test_the_directory_and_the_connection(service: MSMQService) -> None:
    application = MSMQApplication(service)
    assert application.DirectoryServiceServer == "\\\\QUORATE"
    answers = [application.IsConnected]
    for change in (application.Disconnect, application.Connect):
        change()
        answers.append(application.IsConnected)
    assert answers == [True, False, True]
    for answer, is_connected in (("CONNECTED", True), ("DISCONNECTED", False)):
        told, _ = elsewhere(service, DSSERVER="\\\\dc-1.example.com", CONNECTED=answer)
        assert told.DirectoryServiceServer == "\\\\dc-1.example.com"
        assert told.IsConnected is is_connected


@pytest.mark.spec("AC-3.2.4.3.8-01", "AC-3.2.4.3.9-01", "AC-3.2.4.3.10-01")
def test_the_queue_manager_goes_offline_and_comes_back(service: MSMQService) -> None:
    application = MSMQApplication(service)
    application.Disconnect()
    assert application.IsConnected is False
    application.Tidy()
    assert application.IsConnected is False
    told, other = elsewhere(service, acts=True)
    for act in (told.Disconnect, told.Tidy, told.Connect):
        act()
    assert other.acts == ["DISCONNECT", "TIDY", "CONNECT"]
    assert application.IsConnected is False  # that was the other one
    for status in (0xC00E_0025, 0xC00E_000B, 0xC00E_0006):
        with fails(status):
            elsewhere(service, status=status)[0].Connect()
    assert application.IsConnected is False
    application.Connect()
    assert application.IsConnected is True


@pytest.mark.spec("AC-3.2.4.3.8-03", "AC-3.2.4.3.9-03", "AC-3.2.4.3.10-03")
def test_who_cannot_be_asked_or_may_not_ask(service: MSMQService) -> None:
    unreachable = MSMQApplication(service)
    unreachable.Machine = "elsewhere"
    forbidden, _ = elsewhere(service)
    for name in ("Connect", "Disconnect", "Tidy"):
        with fails(0xC00E_000B):
            getattr(unreachable, name)()
        with fails(0xC00E_0025):
            getattr(forbidden, name)()
    # A caller of this queue manager who is no administrator, too.
    for name in ("Connect", "Disconnect"):
        with fails(0xC00E_0025):
            getattr(MSMQApplication(Callers.client), name)()


@pytest.mark.spec(
    "AC-3.2.4.3.1-02", "AC-3.2.4.3.2-02", "AC-3.2.4.3.3-02", "AC-3.2.4.3.4-02", "AC-3.2.4.3.5-02"
)
def test_another_queue_manager_answers_by_its_management(service: MSMQService) -> None:
    told, _ = elsewhere(
        service,
        ACTIVEQUEUES=["PUBLIC=a"],
        PRIVATEQ=["h\\private$\\q"],
        DSSERVER="\\\\d",
        CONNECTED="DISCONNECTED",
        BYTES_IN_ALL_QUEUES=1 << 40,
    )
    assert told.ActiveQueues() == ["PUBLIC=a"]
    assert told.PrivateQueues == ["h\\private$\\q"]
    assert told.DirectoryServiceServer == "\\\\d"
    assert (told.IsConnected, told.BytesInAllQueues) == (False, 1 << 40)
    silent, _ = elsewhere(service)
    with fails(REFUSED):
        silent.ActiveQueues()
    for name in ("PrivateQueues", "DirectoryServiceServer", "IsConnected", "BytesInAllQueues"):
        with fails(REFUSED):
            getattr(silent, name)


@pytest.mark.spec("AC-3.2.4.3.8-02", "AC-3.2.4.3.9-02", "AC-3.2.4.3.10-02", "AC-3.3.6.2-03")
def test_another_queue_manager_acts_by_its_management(service: MSMQService) -> None:
    told, other = elsewhere(service, acts=True)
    for name in ("Connect", "Disconnect", "Tidy"):
        getattr(told, name)()
    for status in (0xC00E_0025, 0xC00E_000B, 0xC00E_0006):
        refusing, silent = elsewhere(service, status=status)
        for name in ("Connect", "Disconnect", "Tidy"):
            with fails(status):
                getattr(refusing, name)()
        assert other.acts == silent.acts == ["CONNECT", "DISCONNECT", "TIDY"]
    # So do reads: each is of a property of that machine, and of nobody else's.
    for name, property_id, value, wanted in (
        ("PrivateQueues", "PRIVATEQ", ["there"], ["there"]),
        ("DirectoryServiceServer", "DSSERVER", "server", "server"),
        ("IsConnected", "CONNECTED", "DISCONNECTED", False),
        ("BytesInAllQueues", "BYTES_IN_ALL_QUEUES", 1 << 40, 1 << 40),
    ):
        reading, there = elsewhere(service, **{property_id: value})
        assert getattr(reading, name) == wanted
        assert there.asked == [property_id]
    reading, there = elsewhere(service, ACTIVEQUEUES=["there"])
    assert (reading.ActiveQueues(), there.asked) == (["there"], ["ACTIVEQUEUES"])
    # The management object is the machine, in any case of the action.
    cluster = service.manager.management("")
    for action in ("tidy", "Connect"):
        cluster.act_on_machine(action)
    with fails(E.MQ_ERROR_INVALID_PARAMETER):
        cluster.act_on_machine("PAUSE")
    with fails(E.MQ_ERROR_ILLEGAL_PROPID):
        cluster.machine_info(MachineManagementProperty.TYPE)


@pytest.mark.spec("AC-3.1.3-01")
def test_nothing_is_answered_before_there_is_a_queue_manager() -> None:
    request = control_pb2.GetQueueManagerRequest()

    async def main() -> None:
        async with cluster(1, is_provisioned=False) as nodes:
            node = await nodes.leader()
            files = nodes.certificate("admin")
            tls = Tls(files.authority, files.certificate, files.key)
            calls = Calls([f"{node.host}:{API_PORT}"], tls)
            with pytest.raises(Unavailable):
                await calls.call(lambda s: s.queues.GetQueueManager, request, deadline_s=0.1)
            await make_queue_manager(nodes)
            found = await calls.call(lambda s: s.queues.GetQueueManager, request)
            assert found.computer_name == "QUORATE"
            await calls.close()

    run(main())
