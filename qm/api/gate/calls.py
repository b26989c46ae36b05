"""What every call passes: who is it, may it, how did it end.

One interceptor around all services: it authenticates the caller, applies the role table, turns
exceptions into rich statuses, counts and times by method, and makes control calls events.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, NoReturn, TypeAlias
from uuid import uuid4

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status
from typing_extensions import override

from qm.api.gate.errors import (
    ApiError,
    Damaged,
    InvalidArgument,
    NotAuthenticated,
    NotPermitted,
    TryAgain,
    internal_status,
)
from qm.api.gate.events import EventLog
from qm.api.gate.identity import LOOPBACK, Principal, Unauthenticated, authenticate
from qm.api.gate.roles import Rule, rule_of
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.store.bodies.body_places import BodyDamaged

logger = logging.getLogger(__name__)

DETAIL_MAX_CHARS: Final = 200
"""Of a request's field in an event."""
_CALLER: ContextVar[Principal] = ContextVar("caller")
_CALL_ID: ContextVar[Callable[[], str]] = ContextVar("call_id")
SESSION_EPOCH_KEY: Final = "quorate-session-epoch"
"""Metadata: as which opener of its session a client calls (docs/client.md)."""
CALL_ID_KEY: Final = "quorate-call-id"
"""Metadata: a name that the caller gives a call, and uses again when it repeats the call."""
CALL_ID_MAX_CHARS: Final = 64
_OK: Final = grpc.StatusCode.OK.name
_CANCELLED: Final = grpc.StatusCode.CANCELLED.name
_CODE_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]
_METADATA: ContextVar[Callable[[], Metadata | None]] = ContextVar("metadata")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


def caller() -> Principal:
    """Return who makes the call that is being served."""
    return _CALLER.get()


def call_id() -> str:
    """Return the name of the call that is being served, the same when its caller repeats it."""
    return _CALL_ID.get()()


def session_epoch() -> int:
    """Return of which epoch the caller takes its session to be; 0: it does not say.

    Raises InvalidArgument.
    """
    given = dict(_METADATA.get(_no_metadata)() or ()).get(SESSION_EPOCH_KEY, "0")
    try:
        epoch = int(given)
    except ValueError:
        epoch = -1
    if not 0 <= epoch < 1 << 64:
        raise InvalidArgument(SESSION_EPOCH_KEY, f"{str(given)[:32]!r} is no number of 64 bits")
    return epoch


def _no_metadata() -> None:
    return None


def begin_call(who: Principal, method: str, metadata: Callable[[], Metadata | None]) -> None:
    """Serve a call of `who` from here on, in this task; `metadata` is asked when it is needed."""
    found: list[str] = []

    def name() -> str:
        if not found:
            given = dict(metadata() or ()).get(CALL_ID_KEY, "")
            if not isinstance(given, str) or not 0 < len(given) <= CALL_ID_MAX_CHARS:
                given = uuid4().hex
            found.append(f"{method} {given}")
        return found[0]

    _CALLER.set(who)
    _CALL_ID.set(name)
    _METADATA.set(metadata)


class CallGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The interceptor around all services."""

    def __init__(self, metrics: Metrics, events: EventLog, *, is_insecure: bool) -> None:
        """`is_insecure`: there are no certificates; every caller is an admin."""
        self._calls = metrics.counter("quorate_api_calls_total")
        self._seconds = metrics.histogram("quorate_api_seconds")
        self._events = events
        self._is_insecure = is_insecure
        self._log = LimitedLog(logger, monotonic)

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the method's handler with the gate around it."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return handler  # type: ignore[return-value]  # None: UNIMPLEMENTED
        method: str = handler_call_details.method
        rule = rule_of(method)
        if handler.response_streaming:
            behaviour = handler.stream_stream if handler.request_streaming else handler.unary_stream
            factory: Any = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            guarded: Any = self._streaming(method, rule, behaviour)
        else:
            behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
            factory = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            guarded = self._single(method, rule, behaviour)
        wrapped: Handler = factory(
            guarded, handler.request_deserializer, handler.response_serializer
        )
        return wrapped

    def _single(self, method: str, rule: Rule | None, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            async with self._guarded(method, rule, request, context):
                return await behaviour(request, context)

        return call

    def _streaming(self, method: str, rule: Rule | None, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._guarded(method, rule, request, context):
                async for answer in behaviour(request, context):
                    yield answer

        return call

    @asynccontextmanager
    async def _guarded(
        self, method: str, rule: Rule | None, request: Any, context: Context
    ) -> AsyncIterator[None]:
        """Admit the caller; then count, time and record how the call ends, and say it in status."""
        with self._measured(method) as outcome:
            try:
                self._admit(method, rule, context)
                yield
            except (asyncio.CancelledError, GeneratorExit):
                # Its caller went away; what it asked for may be done all the same.
                self._record(method, rule, request, outcome, None)
                raise
            except Exception as error:
                status = self._status(method, error)
                self._record(method, rule, request, outcome, status)
                await _abort(context, status)
            outcome[0] = _OK
            self._record(method, rule, request, outcome, None)

    @contextmanager
    def _measured(self, method: str) -> Iterator[list[str]]:
        """Count and time; the list holds the code, and stays CANCELLED if the caller went away."""
        outcome = [_CANCELLED]
        began = monotonic()
        try:
            yield outcome
        finally:
            self._calls.labels(method, outcome[0]).inc()
            self._seconds.labels(method).observe(monotonic() - began)

    def _admit(self, method: str, rule: Rule | None, context: Context) -> None:
        """Find out who calls. Raises NotAuthenticated, NotPermitted."""
        if self._is_insecure:
            principal = LOOPBACK
        else:
            try:
                principal = authenticate(context.auth_context())  # type: ignore[arg-type]
            except Unauthenticated as error:
                raise NotAuthenticated(str(error)) from None
        begin_call(principal, method, context.invocation_metadata)
        if rule is None or principal.role not in rule.roles:
            roles = "nobody" if rule is None else ", ".join(sorted(r.value for r in rule.roles))
            raise NotPermitted(
                f"{method.rpartition('/')[2]} is for {roles}; {principal.name!r} is"
                f" {principal.role.value}"
            )

    def _status(self, method: str, error: Exception) -> status_pb2.Status:
        """Return what a caller is told; log what is our fault."""
        if isinstance(error, Unavailable):
            error = TryAgain(str(error) or "no leader: try again")
        elif isinstance(error, OutcomeUnknown):
            error = TryAgain(
                str(error) or "the outcome is not known: repeat the call with the same numbers"
            )
        elif isinstance(error, BodyDamaged):
            self._log.warning("body_damaged", str(error), method=method)
            error = Damaged(str(error))
        elif isinstance(error, NotAuthenticated | NotPermitted):
            self._log.warning(error.code.name.lower(), str(error), method=method)
        if isinstance(error, ApiError):
            return error.status()
        logger.error("%s failed", method, exc_info=error, extra={"fields": {"method": method}})
        return internal_status()

    def _record(
        self,
        method: str,
        rule: Rule | None,
        request: Any,
        outcome: list[str],
        status: status_pb2.Status | None,
    ) -> None:
        """Set the code, and make an event of a control call."""
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
            f"{verb} by {name or 'nobody known'}: {outcome[0]}",
            principal=name,
            details=_details(request, outcome[0]),
        )


def _details(request: Any, code: str) -> dict[str, str]:
    """Return the short texts and numbers of a request, never bytes."""
    details = {"code": code}
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


async def _abort(context: Context, status: status_pb2.Status) -> NoReturn:
    rich: Any = rpc_status.to_status(status)
    await context.abort(rich.code, rich.details, rich.trailing_metadata)
