"""The errors that a call can raise."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import grpc
import msgspec
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from qm.wire.codes import ErrorCode, error_code_text

_DOMAIN = "msmq"
_T = TypeVar("_T")
_OWN_DOMAIN, _FENCED, _QUOTA = "quorate", "CLIENT_FENCED", "QUOTA_REACHED"
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


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a refusal is about; "" where neither the node nor the client can say."""

    queue: str = ""
    """As it was named: a format name or a path name."""
    right: str = ""
    """The right that was asked for, as [MS-MQMQ] 2.2.23 and 2.2.24 name it, without MQSEC_."""
    principal: str = ""
    """Whom the caller's certificate identifies."""
    quota: str = ""
    """`queue`, `computer`, or a limit of the caller's own, such as `sessions` or `streams`."""


NOTHING: Final = Subject()


class MqError(ClientError):
    """The queue manager refused, with an HRESULT of [MS-MQMQ] 2.4."""

    def __init__(self, code: int, text: str = "", about: Subject = NOTHING) -> None:
        super().__init__(text or error_code_text(code))
        self.code = code
        """An `ErrorCode` if the table has it, otherwise the bare number."""
        self.about = about
        """What it is about, as far as is known."""

    @property
    def name(self) -> str:
        """The code as the table prints it, such as MQ_ERROR_QUEUE_NOT_FOUND."""
        return error_code_text(self.code)


class AccessDenied(MqError):
    """The access list of `queue` does not give `principal` the `right`."""

    @property
    def principal(self) -> str:
        """Whom the caller's certificate identifies."""
        return self.about.principal

    @property
    def right(self) -> str:
        """Such as WRITE_MESSAGE; `qm acl explain` says which entry decides."""
        return self.about.right

    @property
    def queue(self) -> str:
        """As the call named it; "" for a right to the queue manager."""
        return self.about.queue


class QueueNotFound(MqError):
    """There is no such queue, or no longer."""

    @property
    def queue(self) -> str:
        """As the call named it."""
        return self.about.queue


class QuotaExceeded(MqError):
    """A quota or a limit has no room: receive messages, end what is open, or have it raised."""

    @property
    def which(self) -> str:
        """`queue`, `computer`, a limit of the caller's own such as `sessions`, or ""."""
        return self.about.quota

    @property
    def queue(self) -> str:
        """As the call named it."""
        return self.about.queue


class NotOpen(ClientError):
    """The client is not open, or no longer."""


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


OF_A_NODE: Final = (CallFailed, NotAllowed, QuotaExceeded)
"""Refusals of one node: another one may have carried out the same call before."""


def is_unsent(failure: grpc.aio.AioRpcError) -> bool:
    """Return whether a call is known to have reached no node."""
    return (failure.details() or "").startswith(_UNSENT)


def check_status(code: int, about: Subject = NOTHING) -> None:
    """Raise MqError for a status that is a failure."""
    if code & 0x8000_0000:
        raise mq_error(code, about=about)


def mq_error(code: int, text: str = "", about: Subject = NOTHING) -> MqError:
    """Return the error of an HRESULT, of the class that says most."""
    kind = KIND_OF_CODE.get(code, MqError)
    known = ErrorCode(code) if code in _KNOWN else code
    names = _TOLD.get(code, ("queue",))
    told = ", ".join(f"{name} {value}" for name in names if (value := getattr(about, name)))
    said = text or status_text(code)
    return kind(known, f"{said} ({told})" if told else said, about)


def if_there(ask: Callable[[], _T]) -> _T | None:
    """Return what `ask` is told about a queue, None if there is no such queue: one that a list
    names may be deleted by then. Raises what `ask` raises otherwise.
    """
    try:
        return ask()
    except MqError as error:
        if error.code != ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND:
            raise
        return None


def has_ended(error: ClientError) -> bool:
    """Whether it says that the caller's session is over: its lease, or by an operator."""
    return isinstance(error, MqError) and error.code == ErrorCode.MQ_ERROR_STALE_HANDLE


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
            about = _subject(info.metadata)
            return None if is_transient else mq_error(hresult, text, about)
        if info.domain == _OWN_DOMAIN and info.reason == _QUOTA:
            code_ = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
            return QuotaExceeded(code_, text, _subject(info.metadata))
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


def _subject(metadata: Mapping[str, str]) -> Subject:
    """Return what a node told; one of an older build tells less."""
    return Subject(**{name: metadata.get(name, "") for name in Subject.__struct_fields__})


def _details(failure: grpc.aio.AioRpcError) -> Iterable:  # type: ignore[type-arg]
    try:
        # It is not a Call, but has the attributes that are read.
        status = rpc_status.from_call(failure)  # type: ignore[arg-type]
    except ValueError:
        # Two statuses that contradict each other: the outer one counts.
        return ()
    return status.details if status is not None else ()


KIND_OF_CODE: Final[Mapping[int, type[MqError]]] = MappingProxyType(
    {
        ErrorCode.MQ_ERROR_ACCESS_DENIED: AccessDenied,
        ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND: QueueNotFound,
        ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE: QueueNotFound,
        ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: QuotaExceeded,
    }
)
_TOLD: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        ErrorCode.MQ_ERROR_ACCESS_DENIED: ("principal", "right", "queue"),
        ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES: ("quota", "queue"),
    }
)
"""What belongs into a text besides the queue."""
_KNOWN = frozenset(ErrorCode)
_UNSENT = "failed to connect to all addresses"
"""Details that gRPC gives where there was no connection; with others a call may have been sent."""
_BROKEN_OFF = "Internal error from Core"
"""Details that grpc.aio gives when a stream's peer vanished during a write."""
