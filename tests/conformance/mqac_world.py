"""A real node in a thread, so that blocking objects can be tried from the main one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator

import pytest

from qm.client.errors import MqError
from qm.client.mqac import MSMQQueue, MSMQQueueInfo, MSMQService, connect
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.client.wire import Tls
from tests.cluster.harness import cluster, run

START_S = 60
RECEIVE, SEND, PEEK = (
    MQACCESS.MQ_RECEIVE_ACCESS,
    MQACCESS.MQ_SEND_ACCESS,
    MQACCESS.MQ_PEEK_ACCESS,
)
_numbers = itertools.count(1)


@contextlib.contextmanager
def serving() -> Iterator[MSMQService]:
    """A service of a cluster of one node, for as long as the context lasts."""
    ready, stop = threading.Event(), threading.Event()
    reached: list[tuple[str, Tls]] = []
    failures: list[BaseException] = []

    async def main() -> None:
        async with cluster(1) as nodes:
            node = await nodes.leader()
            files = nodes.certificate("admin")
            tls = Tls(files.authority, files.certificate, files.key)
            reached.append((f"{node.host}:1811", tls))
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)

    def thread() -> None:
        try:
            run(main())
        except BaseException as error:
            failures.append(error)
            ready.set()

    runner = threading.Thread(target=thread, name="cluster")
    runner.start()
    try:
        assert ready.wait(START_S)
        assert not failures, failures
        ((endpoint, tls),) = reached
        service = connect([endpoint], tls=tls)
        try:
            yield service
        finally:
            service.client.close()
    finally:
        stop.set()
        runner.join()
    assert not failures, failures


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
