"""A program's threads: one closes the queue that another one waits at."""

from __future__ import annotations

import asyncio

import pytest

from qm.rpc.dcom.hresults import ComError
from qm.wire.codes import ErrorCode
from tests.unit.rpc.dcom.scripts import RECEIVE, Program, play


@pytest.mark.parametrize("name", ["Receive", "Peek", "ReceiveCurrent", "PeekCurrent"])
def test_a_read_says_that_its_queue_was_closed_meanwhile(name: str) -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        queue = await program.opened(RECEIVE)
        waiting = asyncio.ensure_future(queue.call(name, ReceiveTimeout=-1))
        await asyncio.sleep(0.5)
        await queue.call("Close")
        with pytest.raises(ComError) as ended:
            await waiting
        assert ended.value.status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
        with pytest.raises(ComError) as closed:
            await queue.call(name, ReceiveTimeout=0)
        assert closed.value.status == ErrorCode.MQ_ERROR_INVALID_HANDLE

    play(scenario)
