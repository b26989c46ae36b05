"""Errors, as exceptions here and as rich gRPC statuses on the wire.

MSMQ's own errors keep their HRESULT: `google.rpc.ErrorInfo` has the code's name as reason, domain
"msmq", and the code in hexadecimal under `code`, with what it is about. An invalid argument carries
`google.rpc.BadRequest` with the field. Every text says what to do unless that is obvious.
"""

from typing import Final

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from typing_extensions import override

from qm.model.clients.clients import CLIENT_FENCED
from qm.wire.codes import MQ_OK, ErrorCode, error_code_text

ERROR_DOMAIN: Final = "msmq"
OWN_DOMAIN: Final = "quorate"
"""Domain of reasons for which MSMQ has no code."""
FENCED_REASON: Final = "CLIENT_FENCED"
QUOTA_REASON: Final = "QUOTA_REACHED"
_FENCED_ADVICE: Final = "replicas of one program need client ids of their own"

_Code: Final = grpc.StatusCode


class ApiError(Exception):
    """A call cannot be answered; `status` tells the caller why."""

    code: grpc.StatusCode = _Code.INTERNAL

    def status(self) -> status_pb2.Status:
        """Return the status with its details."""
        status = status_pb2.Status(code=self.code.value[0], message=str(self))
        self._add_details(status)
        return status

    def _add_details(self, status: status_pb2.Status) -> None:
        """Add machine-readable details."""


class MsmqError(ApiError):
    """The queue manager refused, with an HRESULT of [MS-MQMQ] 2.4."""

    def __init__(self, hresult: int, text: str = "") -> None:
        """`text` says what to do about it; "": use the known advice for the code."""
        name = error_code_text(hresult)
        advice = text or _ADVICE.get(hresult, "")
        super().__init__(f"{name}: {advice}" if advice else name)
        self.hresult = hresult
        self.about: dict[str, str] = {}
        """What the gate knows of the call: `qm.api.gate.refusals`."""
        self.code = _CODES.get(hresult, _Code.FAILED_PRECONDITION)

    @override
    def _add_details(self, status: status_pb2.Status) -> None:
        _pack(
            status,
            error_details_pb2.ErrorInfo(
                reason=error_code_text(self.hresult),
                domain=ERROR_DOMAIN,
                metadata={"code": f"0x{self.hresult:08X}", **self.about},
            ),
        )


class ClientFenced(ApiError):
    """Another opener took the caller's session over."""

    code = _Code.ABORTED

    def __init__(self, text: str = "") -> None:
        """`text`: who took it over from whom, and when."""
        told = text or "another client opened the session under the same id"
        super().__init__(f"{FENCED_REASON}: {told}; {_FENCED_ADVICE}")

    @override
    def _add_details(self, status: status_pb2.Status) -> None:
        _pack(status, error_details_pb2.ErrorInfo(reason=FENCED_REASON, domain=OWN_DOMAIN))


class InvalidArgument(ApiError):
    """A field of the request is invalid by itself."""

    code = _Code.INVALID_ARGUMENT

    def __init__(self, field: str, text: str) -> None:
        """`field`: its path in the request, such as `messages[3].properties.label`."""
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text

    def within(self, path: str) -> "InvalidArgument":
        """Return the same error for a field that lies below `path`."""
        return InvalidArgument(f"{path}.{self.field}", self.text)

    @override
    def _add_details(self, status: status_pb2.Status) -> None:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=self.field, description=self.text
        )
        _pack(status, error_details_pb2.BadRequest(field_violations=[violation]))


class NotPermitted(ApiError):
    """The caller's role does not allow the call."""

    code = _Code.PERMISSION_DENIED


class NotAuthenticated(ApiError):
    """The caller's certificate does not identify it."""

    code = _Code.UNAUTHENTICATED


class TryAgain(ApiError):
    """Nothing happened, or repeating the same numbered request returns what did."""

    code = _Code.UNAVAILABLE


class Unsupported(ApiError):
    """This node was built or configured without it."""

    code = _Code.UNIMPLEMENTED


class Conflict(ApiError):
    """The state of the cluster does not allow it; the text says why and what to do."""

    code = _Code.FAILED_PRECONDITION


class NotFound(ApiError):
    """What the request names does not exist, and MSMQ has no code for it."""

    code = _Code.NOT_FOUND


class LimitReached(ApiError):
    """A named limit of this node is reached."""

    code = _Code.RESOURCE_EXHAUSTED


class QuotaReached(LimitReached):
    """A limit of the caller's principal is reached; others may go on."""

    def __init__(self, quota: str, text: str) -> None:
        """`quota`: value of the metric `quorate_quota_refused_total`."""
        super().__init__(text)
        self.quota = quota

    @override
    def _add_details(self, status: status_pb2.Status) -> None:
        told = {"quota": self.quota}
        _pack(
            status,
            error_details_pb2.ErrorInfo(reason=QUOTA_REASON, domain=OWN_DOMAIN, metadata=told),
        )


class Damaged(ApiError):
    """This node's disk does not hold what was stored."""

    code = _Code.DATA_LOSS


class OutOfTime(ApiError):
    """The call's deadline passed before there was an answer."""

    code = _Code.DEADLINE_EXCEEDED


def check(hresult: int) -> None:
    """Raise MsmqError for an error code."""
    if hresult == CLIENT_FENCED:
        raise ClientFenced
    if hresult != MQ_OK and hresult & 0x8000_0000:
        raise MsmqError(hresult)


def internal_status() -> status_pb2.Status:
    """Return what a caller is told of an internal fault; the log has the details."""
    return status_pb2.Status(
        code=_Code.INTERNAL.value[0], message="internal error: see this node's log"
    )


def _pack(
    status: status_pb2.Status,
    detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest,
) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)


_E: Final = ErrorCode
_CODES: Final[dict[int, grpc.StatusCode]] = {
    _E.MQ_ERROR_ACCESS_DENIED: _Code.PERMISSION_DENIED,
    _E.MQ_ERROR_QUEUE_NOT_FOUND: _Code.NOT_FOUND,
    _E.MQ_ERROR_QUEUE_NOT_AVAILABLE: _Code.NOT_FOUND,
    _E.MQ_ERROR_MESSAGE_NOT_FOUND: _Code.NOT_FOUND,
    _E.MQ_ERROR_QUEUE_EXISTS: _Code.ALREADY_EXISTS,
    _E.MQ_ERROR_INSUFFICIENT_RESOURCES: _Code.RESOURCE_EXHAUSTED,
    _E.MQ_ERROR_IO_TIMEOUT: _Code.DEADLINE_EXCEEDED,
    _E.MQ_ERROR_OPERATION_CANCELLED: _Code.CANCELLED,
    _E.MQ_ERROR_PROPERTIES_CONFLICT: _Code.ABORTED,
    _E.MQ_ERROR_SERVICE_NOT_AVAILABLE: _Code.UNAVAILABLE,
    _E.MQ_ERROR_INVALID_PARAMETER: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_FORMATNAME: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_PROPID: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_PROPERTY_VALUE: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_PROPERTY_VT: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_PROPERTY_SIZE: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_LABEL_TOO_LONG: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_TOO_MANY_PROPERTIES: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_UNSUPPORTED_ACCESS_MODE: _Code.INVALID_ARGUMENT,
    _E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: _Code.UNIMPLEMENTED,
    _E.MQ_ERROR_UNSUPPORTED_OPERATION: _Code.UNIMPLEMENTED,
}
"""All others are FAILED_PRECONDITION."""

_ADVICE: Final[dict[int, str]] = {
    _E.MQ_ERROR_ACCESS_DENIED: "the queue's access list does not allow it; an owner or admin can",
    _E.MQ_ERROR_QUEUE_NOT_FOUND: "there is no such queue; `ListQueues` shows the existing ones",
    _E.MQ_ERROR_QUEUE_NOT_AVAILABLE: "the queue was deleted; open another one",
    _E.MQ_ERROR_QUEUE_EXISTS: "a queue has this path name; choose another or set if_not_exists",
    _E.MQ_ERROR_INSUFFICIENT_RESOURCES: "a quota or limit is reached; confirm results, receive"
    " messages or raise the quota, then try again",
    _E.MQ_ERROR_STALE_HANDLE: "the session or the number has ended; open a session again and"
    " continue above its highest number",
    _E.MQ_ERROR_INVALID_HANDLE: "nothing is open under this handle; open the queue again",
    _E.MQ_ERROR_SHARING_VIOLATION: "the queue is already open in a mode that excludes this one",
    _E.MQ_ERROR_TRANSACTION_USAGE: "transactional queues take messages only in transactions, and"
    " other queues only outside them",
    _E.MQ_ERROR_TRANSACTION_SEQUENCE: "the transaction is not in a state for this: it has ended,"
    " is another client's, or was not prepared",
    _E.MQ_ERROR_PROPERTIES_CONFLICT: "it has been changed meanwhile; read it again",
    _E.MQ_ERROR_ILLEGAL_CURSOR_ACTION: "peek the current message first, and let waits end",
    _E.MQ_ERROR_MESSAGE_ALREADY_RECEIVED: "the message at the cursor was received meanwhile",
    _E.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION: "this kind of queue does not support that",
    _E.MQ_ERROR_PROPERTY_NOTALLOWED: "the attribute is set at creation and cannot be changed",
    _E.MQ_ERROR_SERVICE_NOT_AVAILABLE: "the cluster has no queue manager yet: `qm cluster init`",
}
