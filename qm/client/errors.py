"""What a call can end with, other than its answer."""

from collections.abc import Iterable
from typing import Final

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from qm.wire.codes import ErrorCode, error_code_text

_DOMAIN = "msmq"
_OWN_DOMAIN, _FENCED = "quorate", "CLIENT_FENCED"
_Code = grpc.StatusCode
_ADVICE: Final[dict[int, str]] = {
    ErrorCode.MQ_ERROR_TRANSACTION_USAGE: "transactional queues take messages in transactions"
    " only, and other queues none",
    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND: "there is no such queue",
    ErrorCode.MQ_ERROR_ACCESS_DENIED: "the queue's access list does not allow it",
    ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: "a quota is reached: receive messages or raise it",
    ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: "queues of this kind are not for that",
}
"""Of refusals that come as a status, without the server's own words."""


class ClientError(Exception):
    """Base of what this package raises."""


class MqError(ClientError):
    """The queue manager refused, with an HRESULT of [MS-MQMQ] 2.4."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or error_code_text(code))
        self.code = code
        """An `ErrorCode` where the table has it, else the bare number."""

    @property
    def name(self) -> str:
        """The code as the table prints it, such as MQ_ERROR_QUEUE_NOT_FOUND."""
        return error_code_text(self.code)


class ClientFenced(ClientError):
    """Another client opened the session under the same id: this one gets nothing of it any more.

    The text names both addresses and times. Replicas of one program need ids of their own.
    """


class InvalidArgument(ClientError):
    """A field of the request is wrong in itself."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        """Its path in the request, "" if the server does not say."""


class NotAllowed(ClientError):
    """The certificate is missing, unknown, or of a role that may not do this."""


class Unavailable(ClientError):
    """No node answered in time. What was asked for may have happened or may happen yet: the same
    numbered request, repeated later, tells.
    """


class CallFailed(ClientError):
    """Any other status: a fault of the cluster, or a call that it does not offer."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        """The gRPC status' name."""


def check_status(code: int) -> None:
    """Raise MqError for a status that is a failure."""
    if code & 0x8000_0000:
        raise MqError(ErrorCode(code) if code in _KNOWN else code, status_text(code))


def status_text(code: int) -> str:
    """Return a refusal's name, and what to do about it if that is known."""
    name, advice = error_code_text(code), _ADVICE.get(code, "")
    return f"{name}: {advice}" if advice else name


def error_of(failure: grpc.aio.AioRpcError) -> ClientError | None:
    """Return what a failed call means, None if another node, or time, may help."""
    code, text = failure.code(), failure.details() or ""
    for detail in _details(failure):
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == _DOMAIN:
            hresult = int(info.metadata["code"], 16)
            is_transient = hresult == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
            return None if is_transient else MqError(hresult, text)
        if info.domain == _OWN_DOMAIN and info.reason == _FENCED:
            return ClientFenced(text)
        if detail.Is(bad.DESCRIPTOR) and detail.Unpack(bad) and bad.field_violations:
            return InvalidArgument(bad.field_violations[0].field, text)
    if code in (_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.CANCELLED):
        return None
    if code is _Code.INTERNAL and text == _BROKEN_OFF:
        return None
    if code in (_Code.PERMISSION_DENIED, _Code.UNAUTHENTICATED):
        return NotAllowed(text)
    if code is _Code.INVALID_ARGUMENT:
        return InvalidArgument("", text)
    return CallFailed(code.name, text)


def _details(failure: grpc.aio.AioRpcError) -> Iterable:  # type: ignore[type-arg]
    try:
        # It is not a Call, but has what is read of one.
        status = rpc_status.from_call(failure)  # type: ignore[arg-type]
    except ValueError:
        # Two statuses that contradict each other: the outer one is what counts.
        return ()
    return status.details if status is not None else ()


_KNOWN = frozenset(ErrorCode)
_BROKEN_OFF = "Internal error from Core"
"""What grpc.aio calls a stream whose peer vanished while it was written to."""
