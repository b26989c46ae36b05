"""What a failed call means to a client: an answer, or a reason to ask another node."""

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from qm.client.errors import CallFailed, NotAllowed, error_of

_Code = grpc.StatusCode


def failure(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), details, "")


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (_Code.UNAVAILABLE, "connection refused"),
        (_Code.DEADLINE_EXCEEDED, ""),
        (_Code.CANCELLED, ""),
        # A node that died while a stream was written to.
        (_Code.INTERNAL, "Internal error from Core"),
    ],
)
def test_a_node_that_is_gone_is_no_answer(code: grpc.StatusCode, details: str) -> None:
    assert error_of(failure(code, details)) is None


def test_other_failures_are_answers() -> None:
    assert isinstance(error_of(failure(_Code.INTERNAL, "a fault")), CallFailed)
    assert isinstance(error_of(failure(_Code.PERMISSION_DENIED, "no")), NotAllowed)
