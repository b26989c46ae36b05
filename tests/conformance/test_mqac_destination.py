"""MSMQDestination [MC-MQAC 3.12] over a real node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import MSMQDestination, MSMQMessage, MSMQQueue, MSMQService
from qm.client.mqac.cluster.manager import ClusterManager
from qm.pb import control_pb2, data_pb2
from qm.wire.codes import ErrorCode
from tests.conformance.mqac_reads import body
from tests.conformance.mqac_world import (
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


@pytest.fixture(scope="module")
def service() -> Iterator[MSMQService]:
    with serving() as running:
        yield running


def named(service: MSMQService, format_name: str | None) -> MSMQDestination:
    destination = MSMQDestination(service)
    destination.FormatName = format_name or ""
    return destination


def receives(service: MSMQService, destination: MSMQDestination, queue: MSMQQueue) -> bool:
    """Whether what is sent to a destination arrives at a queue."""
    MSMQMessage(service).Send(destination)
    try:
        queue.Receive(ReceiveTimeout=0)
    except MqError as error:
        assert error.code == E.MQ_ERROR_MESSAGE_NOT_FOUND
        return False
    return True


def open_names(service: MSMQService) -> list[str]:
    """Format names that are open for sending in the cluster."""
    return [each.format_name for each in opens(service) if each.access == data_pb2.SEND_ACCESS]


def opens(service: MSMQService) -> Sequence[control_pb2.Open]:
    """OpenQueueDescriptors of the cluster."""
    reply = ask(service, lambda s: s.clients.ListOpens, control_pb2.ListOpensRequest())
    return reply.opens


# State -----------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.12-01", "AC-3.12.1-01", "AC-3.12.3-01", "AC-3.12.4.1.3-01")
def test_a_new_destination_has_no_name_and_is_not_open(service: MSMQService) -> None:
    destination = MSMQDestination(service)
    assert (destination.FormatName, destination.PathName, destination.ADsPath) == ("", "", None)
    assert (destination.IsOpen, destination.Handle) == (False, None)
    for call in (destination.Open, lambda: MSMQMessage(service).Send(destination)):
        with fails(E.MQ_ERROR_INVALID_PARAMETER):
            call()
    info = made(service)
    for put, value in (("FormatName", info.FormatName), ("PathName", info.PathName)):
        destination = MSMQDestination(service)
        setattr(destination, put, value)
        for change, is_open in ((destination.Open, True), (destination.Close, False)):
            assert destination.IsOpen is not is_open
            change()
            assert destination.IsOpen is is_open


@pytest.mark.spec("AC-3.12.1-01", "AC-3.12.4.1.6-01", "AC-3.12.4.2.1-01")
def test_a_destination_has_three_names_and_a_handle(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\stateful")
    public.Create()
    queue, name = opened(public, SEND), f"PUBLIC={public.QueueGuid}"
    names = {"FormatName": "DIRECT=OS:host\\q", "PathName": public.PathName}
    for put, value in (names | {"Handle": queue.Handle2}).items():
        destination = MSMQDestination(service)
        destination.ADsPath = public.ADsPath
        assert (destination.PathName, destination.ADsPath) == ("", public.ADsPath)
        assert (destination.FormatName, destination.Handle) == (name, None)
        setattr(destination, put, value)
        assert destination.ADsPath is None, "another one was put last"
        assert getattr(destination, put) == value
        assert (destination.PathName, destination.Handle) == (
            public.PathName if put == "PathName" else "",
            queue.Handle2 if put == "Handle" else None,
        )
    # The handle is the queue manager's, of what the destination itself opened.
    destination = named(service, name)
    before = {each.handle for each in opens(service)}
    destination.Open()
    assert {each.handle for each in opens(service)} - before == {destination.Handle}
    destination.Close()
    assert destination.Handle is None
    queue.Close()
    public.Delete()


@pytest.mark.spec("AC-3.12.1-01")
def test_a_destination_is_a_target_a_response_and_what_was_sent_to(service: MSMQService) -> None:
    one, two = made(service), made(service)
    target = named(service, f"{one.FormatName},{two.FormatName}")
    answers = named(service, "DIRECT=OS:nowhere\\PRIVATE$\\a,DIRECT=OS:nowhere\\PRIVATE$\\b")
    message = MSMQMessage(service)
    message.ResponseDestination = answers
    message.Send(target)
    for info in (one, two):
        found = opened(info).Receive(ReceiveTimeout=0)
        assert found is not None
        for shown, given in ((found.ResponseDestination, answers), (found.Destination, target)):
            assert isinstance(shown, MSMQDestination)
            assert (shown.FormatName, shown.PathName) == (given.FormatName, "")
            assert (shown.ADsPath, shown.IsOpen) == (None, False)
    target.Close()


@pytest.mark.spec("AC-3.12.4.1.1-01", "AC-3.12.4.1.1-02", "AC-3.12.4.1.2-01", "AC-3.12.4.1.2-02")
def test_open_and_close_say_whether_they_did_something(service: MSMQService) -> None:
    info = made(service)
    destination = named(service, info.FormatName)
    assert destination.Close() is False
    assert destination.Open() is True
    handle = destination.Handle
    assert destination.Open() is False
    assert destination.Handle == handle  # the descriptor stays
    assert info.FormatName in open_names(service)
    (found,) = (each for each in opens(service) if each.handle == handle)
    assert found.access == data_pb2.SEND_ACCESS
    assert found.share_mode == data_pb2.DENY_NONE
    assert destination.Close() is True
    assert (destination.IsOpen, destination.Close()) == (False, False)
    assert info.FormatName not in open_names(service)
    for wrong, code in (
        ("", E.MQ_ERROR_INVALID_PARAMETER),
        ("no format name", E.MQ_ERROR_ILLEGAL_FORMATNAME),
        ("DIRECT=OS:QUORATE\\private$\\none", E.MQ_ERROR_QUEUE_NOT_FOUND),
    ):
        destination.FormatName = wrong
        with fails(code):
            destination.Open()
        assert destination.IsOpen is False


def test_several_queues_are_open_all_or_none(service: MSMQService) -> None:
    one, two = made(service), made(service)
    readers = opened(one), opened(two)
    both = named(service, f"{one.FormatName},{two.FormatName}")
    message = MSMQMessage(service)
    message.Body = "both"
    message.Send(both)  # not opened before
    assert [body(reader.Receive(ReceiveTimeout=0)) for reader in readers] == ["both", "both"]
    assert {one.FormatName, two.FormatName} <= set(open_names(service))
    both.Close()
    for reader in readers:
        reader.Close()
    wrong = named(service, f"{one.FormatName},DIRECT=OS:QUORATE\\private$\\none")
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        wrong.Open()
    assert wrong.IsOpen is False
    assert one.FormatName not in open_names(service)


# Names -----------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.12.4.1.8-01", "AC-3.12.4.1.9-01", "AC-3.12.4.1.9-02", "AC-3.12.4.1.10-01")
def test_a_path_name_is_resolved_when_it_is_put(service: MSMQService) -> None:
    info = made(service)
    destination = named(service, "DIRECT=OS:QUORATE\\private$\\before")
    assert destination.PathName == ""
    assert named(service, info.FormatName).PathName == ""  # nobody asks whose name it is
    destination.PathName = info.PathName or ""
    assert (destination.PathName, destination.FormatName) == (info.PathName, info.FormatName)
    destination.PathName = f".\\{(info.PathName or '').partition(chr(92))[2]}"
    assert destination.FormatName == info.FormatName
    for wrong, code in (
        ("no path", E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ("QUORATE\\unpublished", E.MQ_ERROR_QUEUE_NOT_FOUND),
    ):
        with fails(code):
            destination.PathName = wrong
        assert (destination.PathName, destination.FormatName) == (wrong, info.FormatName)
    destination.FormatName = "DIRECT=OS:host\\q"
    assert destination.PathName == ""


@pytest.mark.spec(
    "AC-3.12.4.1.6-01", "AC-3.12.4.1.7-01", "AC-3.12.4.1.7-02", "AC-3.12.4.1.10-01", "AC-3.12-01"
)
def test_a_directory_path_is_a_queue_s(service: MSMQService) -> None:
    public = info_of(service, path="QUORATE\\published")
    public.Create()
    path = public.ADsPath
    destination = MSMQDestination(service)
    for put, value, shown in (
        ("FormatName", "DIRECT=OS:host\\q", None),
        ("ADsPath", path, path),
    ):
        setattr(destination, put, value)
        assert destination.ADsPath == shown
    assert destination.FormatName == f"PUBLIC={public.QueueGuid}"
    assert receives(service, destination, opened(public))
    for wrong in ("LDAP://CN=nobody", path[:-1] + "?", "", path.replace("raft", "ldap")):
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            destination.ADsPath = wrong
        assert destination.ADsPath == wrong
        assert destination.FormatName == f"PUBLIC={public.QueueGuid}"
    destination.PathName = public.PathName or ""
    assert destination.ADsPath is None
    # Open, it is closed and opened again with the new name, and has no path name any more.
    before = made(service)
    destination.PathName = before.PathName or ""
    destination.Close()
    destination.Open()
    kept = {name: getattr(destination, name) for name in ("PathName", "FormatName", "Handle")}
    for wrong in ("LDAP://CN=nobody", ""):  # its path is another one, and nothing else is
        with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
            destination.ADsPath = wrong
        after = {name: getattr(destination, name) for name in ("ADsPath", *kept)}
        assert after == {"ADsPath": wrong} | kept
    destination.ADsPath = path
    assert (destination.IsOpen, destination.PathName) == (True, "")
    assert before.FormatName not in open_names(service)
    assert receives(service, destination, opened(public))
    destination.Close()
    public.Delete()


@pytest.mark.spec(
    "AC-3.12.4.1.11-01", "AC-3.12.4.1.11-02", "AC-3.12.4.1.11-03", "AC-3.12.4.1.9-01",
    "AC-3.12.4.1.10-01",
)  # fmt: skip
def test_a_name_put_on_an_open_destination_opens_it_again(service: MSMQService) -> None:
    one, two = made(service), made(service)
    destination = named(service, one.FormatName)
    destination.Open()
    for put, value in (("FormatName", two.FormatName), ("PathName", one.PathName)):
        setattr(destination, put, value)
        assert destination.IsOpen is True
        assert destination.PathName == (value if put == "PathName" else "")
        old, new = (one, two) if put == "FormatName" else (two, one)
        assert new.FormatName in open_names(service)
        assert old.FormatName not in open_names(service)
        assert receives(service, destination, opened(new))
    with fails(E.MQ_ERROR_ILLEGAL_FORMATNAME):  # closed, and not opened again
        destination.FormatName = "no format name"
    assert (destination.IsOpen, destination.FormatName) == (False, "no format name")
    destination.FormatName = "nor this"  # not open: not parsed either
    assert destination.FormatName == "nor this"
    with fails(0xC00E_001E):  # but then
        destination.Open()
    assert (destination.IsOpen, destination.FormatName) == (False, "nor this")
    public = info_of(service, path="QUORATE\\forgotten")
    public.Create()
    destination.ADsPath = public.ADsPath
    destination.FormatName = one.FormatName or ""
    assert destination.ADsPath is None
    destination.ADsPath = public.ADsPath
    destination.PathName = one.PathName or ""
    assert destination.ADsPath is None
    public.Delete()


@pytest.mark.spec(
    "AC-3.12.4.1.4-01", "AC-3.12.4.1.4-02", "AC-3.12.4.1.5-01", "AC-3.12.4.1.12-01",
    "AC-3.12.4.1.13-01",
)  # fmt: skip
def test_what_is_not_implemented(service: MSMQService) -> None:
    destination = MSMQDestination(service)
    for name in ("IADs", "Destinations", "Properties"):
        with fails(0x8000_4001):
            getattr(destination, name)
    for name in ("IADs", "Destinations"):
        with fails(0x8000_4001):
            setattr(destination, name, None)


@pytest.mark.spec("AC-3.12.4.1.14-01")
def test_properties_are_not_implemented_open_or_not(service: MSMQService) -> None:
    destination = named(service, made(service).FormatName)
    for change in (destination.Open, destination.Close):
        with fails(0x8000_4001):
            _ = destination.Properties
        assert change()
    with fails(0x8000_4001):
        _ = destination.Properties


class Offline(ClusterManager):
    """The cluster without its directory."""

    @override
    def attributes(self) -> Mapping[str, Any]:
        return {**super().attributes(), "directory_offline": True}


@pytest.mark.spec("AC-3.12.6.1-01")
def test_without_a_directory_no_path_is_found(service: MSMQService) -> None:
    assert isinstance(service.manager, ClusterManager)
    public = info_of(service, path="QUORATE\\offline")
    public.Create()
    destination = MSMQDestination(MSMQService(Offline(service.manager.client)))
    with fails(0xC00E_0003):
        destination.ADsPath = public.ADsPath
    path, there = public.ADsPath, MSMQDestination(service)
    there.ADsPath = path
    assert path is not None
    scheme, _, rest = path.partition("//")
    for other in (f"ldap://{rest}", f"{scheme}//another.{rest}"):  # the same GUID, elsewhere
        with fails(0xC00E_0003):
            there.ADsPath = other
    public.Delete()
    with fails(0xC00E_0003):  # nothing is read there any more
        there.ADsPath = path


# Handles ---------------------------------------------------------------------------------------


@pytest.mark.spec("AC-3.12.4.2.1-01", "AC-3.12.4.2.2-01", "AC-3.12.4.2.2-02")
def test_a_destination_takes_over_a_handle(service: MSMQService) -> None:
    info = made(service)
    queue = opened(info, SEND)
    destination = MSMQDestination(service)
    destination.PathName = made(service).PathName or ""
    destination.Open()
    destination.Handle = queue.Handle2
    assert (destination.Handle, destination.PathName) == (queue.Handle2, "")
    assert (destination.IsOpen, destination.ADsPath) == (True, None)
    assert receives(service, destination, opened(info))
    # A directory path goes, too.
    public = info_of(service, path="QUORATE\\taken-over")
    public.Create()
    other = MSMQDestination(service)
    other.ADsPath = public.ADsPath
    other.Handle = queue.Handle2
    assert (other.ADsPath, other.PathName, other.IsOpen) == (None, "", True)
    assert receives(service, other, opened(info))
    public.Delete()
    for none in (None, 0, (1 << 64) - 1, 12_345_678):
        destination.Handle = queue.Handle2
        assert destination.IsOpen
        destination.Handle = none
        assert (destination.Handle, destination.IsOpen) == (None, False)
    queue.Close()


# Path names [3.1.6.2] --------------------------------------------------------------------------


def test_a_private_queue_that_does_not_exist_is_named_by_its_path(service: MSMQService) -> None:
    destination = MSMQDestination(service)
    path = fresh_path().replace(".\\", "QUORATE\\")
    destination.PathName = path
    assert destination.FormatName.casefold() == f"direct=os:{path}".casefold()
    with fails(E.MQ_ERROR_QUEUE_NOT_FOUND):
        destination.Open()
