"""A call is ended without a traceback, also when its caller does not wait for it any more."""

import asyncio

import grpc
import grpc.aio
import pytest

from raft.transport.refusal import refuse


class Call:
    """A context whose `abort` ends in a given way."""

    def __init__(self, end: Exception) -> None:
        self._end = end

    async def abort(self, code: grpc.StatusCode, reason: str) -> None:
        assert (code, reason) == (grpc.StatusCode.INTERNAL, "why")
        raise self._end


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        (grpc.aio.AbortError(), grpc.aio.AbortError),
        (grpc.aio.UsageError(), asyncio.CancelledError),
        (RuntimeError('Failed "execute_batch"'), asyncio.CancelledError),
    ],
)
def test_a_caller_that_is_gone_counts_as_one_that_cancelled(
    end: Exception, seen: type[BaseException]
) -> None:
    with pytest.raises(seen):
        asyncio.run(refuse(Call(end), grpc.StatusCode.INTERNAL, "why"))
