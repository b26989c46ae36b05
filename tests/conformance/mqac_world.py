"""The objects of [MC-MQAC] over a real node."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from qm.client.calls import Method, Stubs
from qm.client.errors import MqError
from qm.client.mqac import MSMQMessage, MSMQQueue, MSMQQueueInfo, MSMQService, connect
from qm.client.mqac.cluster.manager import ClusterManager
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.threaded import threaded_callers, threaded_node

RECEIVE, SEND, PEEK = (
    MQACCESS.MQ_RECEIVE_ACCESS,
    MQACCESS.MQ_SEND_ACCESS,
    MQACCESS.MQ_PEEK_ACCESS,
)
WAIT_S = 20
_numbers = itertools.count(1)
_Q = TypeVar("_Q")
_R = TypeVar("_R")


def ask(service: MSMQService, method: Callable[[Stubs], Method[_Q, _R]], request: _Q) -> _R:
    """A call of the control plane, past the objects."""
    assert isinstance(service.manager, ClusterManager)
    return service.manager.call(method, request)


@contextlib.contextmanager
def serving() -> Iterator[MSMQService]:
    """A service of a cluster of one node, for as long as the context lasts."""
    with threaded_node() as (endpoint, tls):
        service = connect([endpoint], tls=tls)
        try:
            yield service
        finally:
            service.close()


@contextlib.contextmanager
def serving_as(*roles: str) -> Iterator[tuple[MSMQService, ...]]:
    """Services of one cluster, each of a caller with that role and name."""
    with threaded_callers(*roles) as (endpoint, tls), contextlib.ExitStack() as closing:
        services = tuple(connect([endpoint], tls=each) for each in tls)
        for each in services:
            closing.callback(each.close)
        yield services


def fresh_path() -> str:
    """A path name that no test has used."""
    return f".\\private$\\q{next(_numbers)}"


def made(service: MSMQService, *, is_transactional: bool = False) -> MSMQQueueInfo:
    """A new queue."""
    info = MSMQQueueInfo(service)
    info.PathName = fresh_path()
    info.Create(IsTransactional=is_transactional)
    return info


def info_of(service: MSMQService, *, path: str = "", name: str = "") -> MSMQQueueInfo:
    """An object that names a queue."""
    info = MSMQQueueInfo(service)
    if path:
        info.PathName = path
    if name:
        info.FormatName = name
    return info


def opened(info: MSMQQueueInfo, access: MQACCESS = RECEIVE) -> MSMQQueue:
    """Open it for everybody."""
    return info.Open(access, MQSHARE.MQ_DENY_NONE)


@contextlib.contextmanager
def fails(code: int) -> Iterator[None]:
    """The block must raise MqError with this HRESULT."""
    with pytest.raises(MqError) as raised:
        yield
    assert raised.value.code == code, raised.value


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


class Deleting(ClusterManager):
    """A cluster in which queues are deleted between the list of all and the look at each."""

    doomed: Sequence[str] = ()

    @override
    def call(self, method: Any, request: Any) -> Any:
        if isinstance(request, control_pb2.GetQueueRequest):
            doomed, self.doomed = self.doomed, ()
            for name in doomed:
                named = control_pb2.QueueName(name=name)
                found = super().call(method, control_pb2.GetQueueRequest(queue=named))
                self.delete_queue(name)
                by_id = control_pb2.QueueName(queue_id=found.queue_id)
                self._wait_until_gone(method, control_pb2.GetQueueRequest(queue=by_id))
        return super().call(method, request)

    def _wait_until_gone(self, method: Any, request: Any) -> None:
        end = monotonic() + WAIT_S
        while monotonic() < end:
            try:
                super().call(method, request)
            except MqError as error:
                assert error.code == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
                return
            sleep(0.01)
        raise AssertionError("the queue is still there")
