"""The errors that a call can raise."""

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
    ErrorCode.MQ_ERROR_TRANSACTION_USAGE: "transactional queues take messages only in"
    " transactions, and other queues only outside them",
    ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND: "there is no such queue",
    ErrorCode.MQ_ERROR_ACCESS_DENIED: "the queue's access list does not allow it",
    ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: "a quota is reached: receive messages or raise it",
    ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: "this kind of queue does not support that",
}
"""Texts for refusals that arrive as a status without a message from the server."""


class ClientError(Exception):
    """Base class of this package's errors."""


class MqError(ClientError):
    """The queue manager refused, with an HRESULT of [MS-MQMQ] 2.4."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or error_code_text(code))
        self.code = code
        """An `ErrorCode` if the table has it, otherwise the bare number."""

    @property
    def name(self) -> str:
        """The code as the table prints it, such as MQ_ERROR_QUEUE_NOT_FOUND."""
        return error_code_text(self.code)


class ClientFenced(ClientError):
    """Another client opened the session under the same id: this one gets nothing of it any more.

    The text names both addresses and times. Replicas of one program need ids of their own.
    """


class InvalidArgument(ClientError):
    """A field of the request is invalid in itself."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        """The field's path in the request, "" if the server does not say."""


class NotAllowed(ClientError):
    """The certificate is missing, unknown, or of a role that may not do this."""


class Unavailable(ClientError):
    """No node answered in time. The request may have taken effect or may still do so: repeat it
    later with the same number to find out.
    """


class CallFailed(ClientError):
    """Any other status: an error in the cluster, or a call that it does not offer."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        """Name of the gRPC status."""


def check_status(code: int) -> None:
    """Raise MqError for a status that is a failure."""
    if code & 0x8000_0000:
        raise MqError(ErrorCode(code) if code in _KNOWN else code, status_text(code))


def status_text(code: int) -> str:
    """Return a refusal's name, and advice if there is any."""
    name, advice = error_code_text(code), _ADVICE.get(code, "")
    return f"{name}: {advice}" if advice else name


def error_of(failure: grpc.aio.AioRpcError) -> ClientError | None:
    """Return the error that a failed call means, None if a retry may help."""
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
        # It is not a Call, but has the attributes that are read.
        status = rpc_status.from_call(failure)  # type: ignore[arg-type]
    except ValueError:
        # Two statuses that contradict each other: the outer one counts.
        return ()
    return status.details if status is not None else ()


_KNOWN = frozenset(ErrorCode)
_BROKEN_OFF = "Internal error from Core"
"""Details that grpc.aio gives when a stream's peer vanished during a write."""
