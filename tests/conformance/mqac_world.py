"""The objects of [MC-MQAC] over a real node."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from qm.client.errors import MqError
from qm.client.mqac import MSMQQueue, MSMQQueueInfo, MSMQService, connect
from qm.client.mqac.constants import MQACCESS, MQSHARE
from tests.unit.client.threaded import threaded_node

RECEIVE, SEND, PEEK = (
    MQACCESS.MQ_RECEIVE_ACCESS,
    MQACCESS.MQ_SEND_ACCESS,
    MQACCESS.MQ_PEEK_ACCESS,
)
_numbers = itertools.count(1)


@contextlib.contextmanager
def serving() -> Iterator[MSMQService]:
    """A service of a cluster of one node, for as long as the context lasts."""
    with threaded_node() as (endpoint, tls):
        service = connect([endpoint], tls=tls)
        try:
            yield service
        finally:
            service.client.close()


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
