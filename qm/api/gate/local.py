"""Calls from within this process: by the stubs that programs use, without a connection.

What the node itself offers to others (objects over DCOM) is a client of its own API. Its calls pass
the gate like everybody's: roles, counts, metrics, events, errors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from grpc_status import rpc_status

from qm.api.gate.calls import CallGate, CallRefused
from qm.api.gate.identity import Principal

Unary = Callable[..., Awaitable[Any]]


class LocalServices:
    """Services by their methods; takes the place of a server where they are registered."""

    def __init__(self) -> None:
        self._handlers: dict[str, Unary] = {}

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Take a service's methods; of those only the second form is used."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Take a service's methods."""
        for name, handler in handlers.items():
            if handler.unary_unary is not None:
                self._handlers[f"/{service}/{name}"] = handler.unary_unary

    def method(self, path: str) -> Unary | None:
        """Return what answers /service/method."""
        return self._handlers.get(path)


class _Context:
    """What methods ask of a call's context."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        """Return the caller's address, as gRPC names one."""
        return self._peer


class LocalChannel:
    """A channel for stubs, on which one principal calls."""

    def __init__(
        self, gate: CallGate, services: LocalServices, who: Principal, address: str
    ) -> None:
        """`address`: from where the principal calls, without port."""
        self._gate = gate
        self._services = services
        self._who = who
        host = f"ipv6:[{address}]" if ":" in address else f"ipv4:{address}"
        self._context: Final = _Context(f"{host}:0")

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Awaitable[Any]]:
        """Return a callable for a method."""
        return partial(self._call, method)

    async def _call(
        self,
        method: str,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Sequence[tuple[str, str]] | None = None,
    ) -> Any:
        behaviour = self._services.method(method)
        if behaviour is None:
            raise _error(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not offered here")
        try:
            async with asyncio.timeout(timeout):
                return await self._gate.local(
                    method, behaviour, request, self._who, tuple(metadata or ()), self._context
                )
        except CallRefused as refusal:
            raise _refused(refusal.status) from None
        except TimeoutError:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time") from None

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Return a callable that refuses: streams need a connection."""
        return partial(_refuse_stream, method)

    unary_stream = stream_unary = stream_stream

    async def close(self, grace: float | None = None) -> None:
        """Nothing is kept."""


def _refuse_stream(method: str, *_: Any, **__: Any) -> Any:
    raise _error(grpc.StatusCode.UNIMPLEMENTED, f"{method} needs a connection")


def _error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, text, None)


def _refused(status: Any) -> grpc.aio.AioRpcError:
    """Return the error that a caller over a connection would have of a rich status."""
    rich: Any = rpc_status.to_status(status)
    trailing = grpc.aio.Metadata(*rich.trailing_metadata)
    return grpc.aio.AioRpcError(rich.code, grpc.aio.Metadata(), trailing, rich.details, None)
