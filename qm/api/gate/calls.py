"""What every call passes: authentication, authorization, and the record of its outcome.

One interceptor around all services: it authenticates the caller, applies the role table, turns
exceptions into rich statuses, counts and times by method, and records control calls as events.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, NoReturn, Protocol, TypeAlias
from uuid import uuid4

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from grpc_status import rpc_status
from typing_extensions import override

from qm.api.gate.answers import Answers, Room, begin_answers
from qm.api.gate.delegation import Delegation
from qm.api.gate.errors import (
    ApiError,
    Damaged,
    InvalidArgument,
    MsmqError,
    NotAuthenticated,
    NotPermitted,
    QuotaReached,
    TryAgain,
    internal_status,
)
from qm.api.gate.events import EventLog
from qm.api.gate.identity import LOOPBACK, Principal, Role, Unauthenticated, authenticate
from qm.api.gate.receiving import NoRequest, Receiving, end_call
from qm.api.gate.refusals import subject
from qm.api.gate.roles import Rule, rule_of
from qm.api.gate.turns import Turns
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.commands import ControlCall
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.store.bodies.body_places import BodyDamaged, BodyUnopened

logger = logging.getLogger(__name__)

CALLS_PER_PRINCIPAL_MAX: Final = 8_192
"""Open at once on a node, including waits and streams."""
STREAMS_PER_PRINCIPAL_MAX: Final = 64
"""Of them those whose requests are streams: gRPC may hold a whole message of each, 384 MiB."""
STREAMS_MAX: Final = 192
"""The same of all principals, 1.1 GiB; the last quarter is for those that have few."""
STREAMS_FEW: Final = 8
_STREAMS: Final = "streams"
_LIMITS: Final = {
    False: (("calls", CALLS_PER_PRINCIPAL_MAX),),
    True: (("calls", CALLS_PER_PRINCIPAL_MAX), (_STREAMS, STREAMS_PER_PRINCIPAL_MAX)),
}
"""By whether the request is a stream."""
DETAIL_MAX_CHARS: Final = 200
"""Length of a request's field in an event."""
_CALLER: ContextVar[Principal] = ContextVar("caller")
_IN_HISTORY: ContextVar[list[bool]] = ContextVar("in_history")
"""Not empty once an entry has recorded the call."""
_METHOD: ContextVar[str] = ContextVar("method")
_CALL_ID: ContextVar[Callable[[], str]] = ContextVar("call_id")
SESSION_EPOCH_KEY: Final = "quorate-session-epoch"
"""Metadata: the epoch that a client holds of its session (docs/client.md)."""
CALL_ID_KEY: Final = "quorate-call-id"
"""Metadata: a name that the caller gives a call, and uses again when it repeats the call."""
CALL_ID_MAX_CHARS: Final = 64
_CONTROL: Final = "/quorate.control."
_OK: Final = grpc.StatusCode.OK.name
_CANCELLED: Final = grpc.StatusCode.CANCELLED.name
_CODE_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
_METADATA: ContextVar[Callable[[], Metadata | None]] = ContextVar("metadata")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Decode: TypeAlias = Callable[[bytes], Any]
_REVOKED: Final = "the certificate was revoked"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def caller() -> Principal:
    """Return the caller of the call being served."""
    return _CALLER.get()


def call_id() -> str:
    """Return the name of the call being served, the same when its caller repeats it."""
    return _CALL_ID.get()()


def control_call(node: str, request: Message) -> ControlCall:
    """Return the call being served as the entry that carries it out records it."""
    verb = _METHOD.get().rpartition("/")[2]
    return ControlCall(node, caller().name, verb, short_fields(request))


def is_in_history() -> None:
    """Note that an entry has recorded the call being served."""
    _IN_HISTORY.get().append(True)


def session_epoch() -> int:
    """Return the epoch that the caller states for its session; 0: it states none.

    Raises InvalidArgument.
    """
    given = dict(_METADATA.get(_no_metadata)() or ()).get(SESSION_EPOCH_KEY, "0")
    try:
        epoch = int(given)
    except ValueError:
        epoch = -1
    if not 0 <= epoch < 1 << 64:
        raise InvalidArgument(SESSION_EPOCH_KEY, f"{str(given)[:32]!r} is not a 64-bit number")
    return epoch


def _no_metadata() -> None:
    return None


def begin_call(who: Principal, method: str, metadata: Callable[[], Metadata | None]) -> None:
    """Serve a call of `who` from here on, in this task; `metadata` is called on demand."""
    found: list[str] = []

    def name() -> str:
        if not found:
            given = dict(metadata() or ()).get(CALL_ID_KEY, "")
            if not isinstance(given, str) or not 0 < len(given) <= CALL_ID_MAX_CHARS:
                given = uuid4().hex
            found.append(f"{method} {given}")
        return found[0]

    _CALLER.set(who)
    _METHOD.set(method)
    _IN_HISTORY.set([])
    _CALL_ID.set(name)
    _METADATA.set(metadata)


class Revocations(Protocol):
    """Which certificates were revoked (`raft.transport.tls.TlsIdentity`)."""

    def is_revoked(self, pem: bytes) -> bool:
        """Return whether this certificate was revoked."""

    def watch(self, pem: bytes, end: Callable[[], object]) -> Callable[[], None]:
        """Have `end` called if it is revoked from now on; calling the result stops that."""


class CallRefused(Exception):
    """How a call from within this process ended, as a status."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


class CallGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The interceptor around all services."""

    def __init__(
        self,
        metrics: Metrics,
        events: EventLog,
        revocations: Revocations | None,
        delegation: Delegation,
    ) -> None:
        """`revocations` None: there are no certificates, and every caller is an admin."""
        self._calls = metrics.counter("quorate_api_calls_total")
        self._seconds = metrics.histogram("quorate_api_seconds")
        self._quotas = metrics.counter("quorate_quota_refused_total")
        self._events = events
        self._revocations = revocations
        self._delegation = delegation
        self._receiving = Receiving()
        self._answers = Answers()
        self._turns = Turns()
        self._open: Counter[tuple[str, str]] = Counter()
        """By kind and principal, only those that are not zero."""
        self._log = LimitedLog(logger, monotonic)

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler, wrapped by the gate."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler  # type: ignore[return-value]  # None: UNIMPLEMENTED
        method: str = handler_call_details.method
        rule = rule_of(method)
        is_stream: bool = handler.request_streaming
        if handler.response_streaming:
            behaviour = handler.stream_stream if is_stream else handler.unary_stream
            factory: Any = grpc.stream_stream_rpc_method_handler
            guarded: Any = self._streaming(method, rule, behaviour, handler)
        else:
            behaviour = handler.stream_unary if is_stream else handler.unary_unary
            factory = grpc.stream_unary_rpc_method_handler
            guarded = self._single(method, rule, behaviour, handler)
        # For gRPC all requests are streams: it reads none before its sender is known.
        wrapped: Handler = factory(guarded, None, handler.response_serializer)
        return wrapped

    def _single(self, method: str, rule: Rule | None, behaviour: Any, handler: Any) -> Any:
        async def call(bodies: Any, context: Context) -> Any:
            async with self._guarded(method, rule, bodies, handler, context) as (request, _):
                return await behaviour(request, context)

        return call

    def _streaming(self, method: str, rule: Rule | None, behaviour: Any, handler: Any) -> Any:
        async def call(bodies: Any, context: Context) -> AsyncIterator[Any]:
            with self._watched(context) as is_revoked:
                async with self._guarded(method, rule, bodies, handler, context, is_revoked) as (
                    request,
                    delivered,
                ):
                    async for answer in behaviour(request, context):
                        yield answer
                        delivered()

        return call

    @asynccontextmanager
    async def _guarded(
        self,
        method: str,
        rule: Rule | None,
        bodies: Any,
        handler: Any,
        context: Context,
        is_revoked: Callable[[], bool] = lambda: False,
    ) -> AsyncIterator[tuple[Any, Callable[[], None]]]:
        """Admit the caller, then read and decode the request and yield it, with what to call when
        an answer was delivered; count, time and record how the call ends, and report it in the
        status.

        `is_revoked`: whether the call was cancelled because the certificate was revoked.
        """
        request = None
        with self._measured(method) as outcome:
            try:
                who = self._admit(method, rule, context)
                with self._counted(who, is_stream=handler.request_streaming):
                    request = await self._request(method, who, bodies, handler, context)
                    room = Room(self._answers, who.name, context)
                    yield request, begin_answers(room)
            except grpc.aio.AbortError:
                code = (
                    grpc.StatusCode.UNKNOWN
                    if request is not None
                    else grpc.StatusCode.DEADLINE_EXCEEDED
                )
                outcome[0] = code.name
                raise
            except (asyncio.CancelledError, GeneratorExit) as error:
                # The caller is gone; its request may be executed all the same.
                self._record(method, rule, request, outcome, None)
                if is_revoked() and isinstance(error, asyncio.CancelledError):
                    await _abort(context, NotAuthenticated(_REVOKED).status())
                raise
            except Exception as error:
                status = self._status(method, request, error)
                self._record(method, rule, request, outcome, status)
                await _abort(context, status)
            outcome[0] = _OK
            self._record(method, rule, request, outcome, None)

    async def local(
        self,
        method: str,
        behaviour: Callable[[Any, Any], Awaitable[Any]],
        request: Any,
        who: Principal,
        metadata: Metadata,
        context: Any,
    ) -> Any:
        """Serve a call of `who` from within this process. Raises CallRefused."""
        rule = rule_of(method)
        with self._measured(method) as outcome:
            begin_call(who, method, lambda: metadata)
            try:
                _demand_role(method, rule, who)
                with self._counted(who, is_stream=False):
                    answer = await behaviour(request, context)
            except asyncio.CancelledError:
                self._record(method, rule, request, outcome, None)
                raise
            except Exception as error:
                status = self._status(method, request, error)
                self._record(method, rule, request, outcome, status)
                raise CallRefused(status) from error
            outcome[0] = _OK
            self._record(method, rule, request, outcome, None)
            return answer

    @contextmanager
    def _counted(self, who: Principal, *, is_stream: bool) -> Iterator[None]:
        """Count a principal's open calls. Raises QuotaReached."""
        for kind, limit in _LIMITS[is_stream]:
            if self._open[kind, who.name] >= limit:
                raise QuotaReached(
                    kind,
                    f"{who.name!r} has {limit} {kind} open at this node: end some, or use another"
                    " node",
                )
        if is_stream:
            self._check_streams(who)
        kinds = [kind for kind, _ in _LIMITS[is_stream]]
        self._open.update((kind, who.name) for kind in kinds)
        try:
            yield
        finally:
            for kind in kinds:
                self._open[kind, who.name] -= 1
                if not self._open[kind, who.name]:
                    del self._open[kind, who.name]

    def _check_streams(self, who: Principal) -> None:
        """Refuse a stream of which this node has too many. Raises QuotaReached."""
        count = sum(number for (kind, _), number in self._open.items() if kind == _STREAMS)
        is_few = self._open[_STREAMS, who.name] < STREAMS_FEW
        if count >= (STREAMS_MAX if is_few else STREAMS_MAX * 3 // 4):
            raise QuotaReached(_STREAMS, f"{count} streams are open at this node: use another node")

    async def _request(
        self, method: str, who: Principal, bodies: Any, handler: Any, context: Context
    ) -> Any:
        """Return the decoded request, or an iterator that decodes a stream of them.

        Raises InvalidArgument; AbortError for one that did not arrive in time.
        """
        decode: Decode = handler.request_deserializer
        if handler.request_streaming:
            return _decoded_stream(bodies, decode)
        try:
            if method.startswith(_CONTROL) and not handler.response_streaming:
                await self._turns.take(who.name, context)
            return _decoded(await self._receiving.request(who.name, context), decode)
        except NoRequest as error:
            raise InvalidArgument("", str(error)) from None
        except grpc.aio.AbortError:
            text = "a request did not arrive in time"
            self._log.warning("slow_request", text, method=method, principal=who.name)
            raise

    @contextmanager
    def _watched(self, context: Context) -> Iterator[Callable[[], bool]]:
        """Cancel this task if its caller's certificate is revoked; yields whether that happened."""
        revocations, task = self._revocations, asyncio.current_task()
        if revocations is None or task is None:
            yield lambda: False
            return
        pem = certificate_of(context)
        ended: list[bool] = []

        def end() -> None:
            ended.append(True)
            task.cancel()

        def is_revoked() -> bool:
            if ended:
                task.uncancel()
            return bool(ended)

        forget = revocations.watch(pem, end)
        try:
            yield is_revoked
        finally:
            forget()

    @contextmanager
    def _measured(self, method: str) -> Iterator[list[str]]:
        """Count and time; the list holds the code, CANCELLED if the caller went away."""
        outcome = [_CANCELLED]
        began = monotonic()
        try:
            yield outcome
        finally:
            self._calls.labels(method, outcome[0]).inc()
            self._seconds.labels(method).observe(monotonic() - began)

    def _admit(self, method: str, rule: Rule | None, context: Context) -> Principal:
        """Identify the caller. Raises NotAuthenticated, NotPermitted."""
        if self._revocations is None:
            principal = LOOPBACK
        else:
            try:
                principal = authenticate(context.auth_context())  # type: ignore[arg-type]
            except Unauthenticated as error:
                raise NotAuthenticated(str(error)) from None
            if self._revocations.is_revoked(certificate_of(context)):
                raise NotAuthenticated(_REVOKED)
            if principal.role is Role.NODE:
                given = context.invocation_metadata() or ()
                principal = self._delegation.acting(principal, given)
        begin_call(principal, method, context.invocation_metadata)
        _demand_role(method, rule, principal)
        return principal

    def _status(self, method: str, request: Any, error: Exception) -> status_pb2.Status:
        """Return what a caller is told; log internal faults."""
        if isinstance(error, Unavailable):
            error = TryAgain(str(error) or "no leader: try again")
        elif isinstance(error, OutcomeUnknown):
            error = TryAgain(
                str(error) or "the outcome is not known: repeat the call with the same numbers"
            )
        elif isinstance(error, BodyUnopened):
            error = TryAgain(str(error))
        elif isinstance(error, BodyDamaged):
            self._log.warning("body_damaged", str(error), method=method)
            error = Damaged(str(error))
        elif isinstance(error, QuotaReached):
            self._quotas.labels(error.quota).inc()
            self._log.warning(f"quota_{error.quota}", str(error), method=method)
        elif isinstance(error, NotAuthenticated | NotPermitted):
            self._log.warning(error.code.name.lower(), str(error), method=method)
        if isinstance(error, MsmqError):
            who = _CALLER.get(None)
            error.about = subject(method, request, who.name if who is not None else "")
        if isinstance(error, ApiError):
            return error.status()
        self._log.error("failed", f"{method} failed", error, method=method)
        return internal_status()

    def _record(
        self,
        method: str,
        rule: Rule | None,
        request: Any,
        outcome: list[str],
        status: status_pb2.Status | None,
    ) -> None:
        """Set the code, and record a control call as an event."""
        if status is not None:
            outcome[0] = _CODE_NAMES[status.code]
        if rule is None or not rule.is_change:
            return
        principal = _CALLER.get(None)
        name = principal.name if principal is not None else ""
        verb = method.rpartition("/")[2]
        self._events.add(
            "control",
            verb,
            f"{verb} by {name or 'an unknown caller'}: {outcome[0]}",
            principal=name,
            details={"code": outcome[0]} | short_fields(request),
            is_in_history=bool(_IN_HISTORY.get(())),
        )


def _demand_role(method: str, rule: Rule | None, principal: Principal) -> None:
    """Raise NotPermitted for a caller whose role may not make a call."""
    if rule is None or principal.role not in rule.roles:
        roles = "no role" if rule is None else ", ".join(sorted(r.value for r in rule.roles))
        raise NotPermitted(
            f"{method.rpartition('/')[2]} is for {roles}; {principal.name!r} is"
            f" {principal.role.value}"
        )


def short_fields(request: Any) -> dict[str, str]:
    """Return the short texts and numbers of a request, never bytes."""
    details: dict[str, str] = {}
    if isinstance(request, Message):
        for field, value in request.ListFields():
            if isinstance(value, Message):
                details |= {
                    f"{field.name}.{inner.name}": str(part)[:DETAIL_MAX_CHARS]
                    for inner, part in value.ListFields()
                    if isinstance(part, str | int | float)
                }
            elif isinstance(value, str | int | float):
                details[field.name] = str(value)[:DETAIL_MAX_CHARS]
    return details


def certificate_of(context: Context) -> bytes:
    """Return a caller's certificate as PEM, b"" if it showed none."""
    return bytes(next(iter(context.auth_context().get("x509_pem_cert", ())), b""))


def _decoded(body: bytes, decode: Decode) -> Any:
    try:
        return decode(body)
    except DecodeError as error:
        raise InvalidArgument("", f"the request cannot be decoded: {error}") from None


async def _decoded_stream(bodies: AsyncIterator[bytes], decode: Decode) -> AsyncIterator[Any]:
    async for body in bodies:
        yield _decoded(body, decode)


async def _abort(context: Context, status: status_pb2.Status) -> NoReturn:
    rich: Any = rpc_status.to_status(status)
    await end_call(context, rich.code, rich.details, rich.trailing_metadata)
