"""Access to a node's relay endpoint: decided before a request is decoded.

The certificate shows that a caller is a node (the role "node" and no other, not revoked), and a DNS
name in it that it is a member. Some calls come from nodes that are not members yet: see METHODS.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from qm.api.gate.receiving import NoRequest, Receiving
from qm.node.relay.roster import Roster
from qm.pb import relay_pb2
from raft.transport.refusal import refuse
from raft.transport.tls import PeerCertificate, TlsIdentity, peer_certificate

logger = logging.getLogger(__name__)


class Right(Enum):
    """What a caller must be."""

    NODE = "a node of this cluster's authority"
    FOUNDER = "this node itself, or one that its configuration names"
    ENTRANT = "a member, or the node that the change is about"
    MEMBER = "a member"


METHODS: Final = {
    "Inspect": Right.NODE,
    "Adopt": Right.FOUNDER,
    "Lead": Right.ENTRANT,
    "Propose": Right.MEMBER,
    "Drain": Right.MEMBER,
    "Links": Right.MEMBER,
    "Resend": Right.MEMBER,
    "Scrub": Right.MEMBER,
    "Sessions": Right.MEMBER,
    "ReadEntry": Right.MEMBER,
    "ReadBodies": Right.MEMBER,
    "AskExporter": Right.MEMBER,
    "Exchange": Right.MEMBER,
}
"""Every method of the service."""
Refused: TypeAlias = Callable[[str, str, Any], None]
"""Takes a reason, a text and the call's context."""


class PeerGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The interceptor around the relay service."""

    def __init__(
        self,
        own: str,
        identity: TlsIdentity,
        roster: Roster,
        refused: Refused,
        takes: Callable[[str], bool],
    ) -> None:
        self._own = own
        self._identity = identity
        self._roster = roster
        self._refused = refused
        self._takes = takes
        self._receiving = Receiving()

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # UNIMPLEMENTED
        method: str = handler_call_details.method.rpartition("/")[2]
        serializer = handler.response_serializer
        if handler.request_streaming:
            guarded: Any = self._streaming(method, handler)
            return grpc.stream_stream_rpc_method_handler(guarded, None, serializer)
        # For gRPC this request is a stream, too: it reads none before its sender is known.
        return grpc.stream_unary_rpc_method_handler(self._single(method, handler), None, serializer)

    def _single(self, method: str, handler: Any) -> Any:
        async def call(bodies: Any, context: Any) -> Any:
            del bodies
            certificate = await self._node(context)
            await self._admit(method, certificate, context)
            try:
                data = await self._received(method, certificate, context)
                request = handler.request_deserializer(data)
            except (DecodeError, NoRequest) as error:
                await self._refuse(
                    context, "malformed", f"{method}: {error}", grpc.StatusCode.INVALID_ARGUMENT
                )
            if isinstance(request, relay_pb2.LeadRequest):
                await self._admit_change(request, certificate, context)
            try:
                return await handler.unary_unary(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                logger.debug("%s failed", method, exc_info=error)
                await self._refuse(
                    context, "failed", f"{method} failed: {error!r}", grpc.StatusCode.INTERNAL
                )

        return call

    async def _received(self, method: str, certificate: PeerCertificate, context: Any) -> bytes:
        """Return the bytes of a request, of which a node that is not a member gets few."""
        names = certificate.dns_names
        caller = ", ".join(names)
        is_member = any(map(self._roster.is_member, names))
        if not is_member and not self._receiving.has_place(caller):
            text = f"{caller} sends too many requests at once"
            await self._refuse(context, "crowded", text, grpc.StatusCode.RESOURCE_EXHAUSTED)
        try:
            return await self._receiving.request(caller, context)
        except grpc.aio.AbortError:
            self._refused("slow", f"{method} did not arrive in time", context)
            raise

    def _streaming(self, method: str, handler: Any) -> Any:
        async def call(frames: Any, context: Any) -> None:
            certificate = await self._node(context)
            await self._admit(method, certificate, context)
            await handler.stream_stream(frames, context)

        return call

    async def _node(self, context: Any) -> PeerCertificate:
        """Return the certificate of a caller that is a node, or refuse."""
        certificate = peer_certificate(context.auth_context())
        if not certificate.is_peer:
            text = "this endpoint is for nodes: the certificate lacks the role 'node'"
            await self._refuse(context, "role", text)
        if self._identity.is_revoked(certificate.pem):
            await self._refuse(context, "revoked", "the certificate was revoked")
        return certificate

    async def _admit(self, method: str, certificate: PeerCertificate, context: Any) -> None:
        right = METHODS[method]
        if right is Right.NODE:
            return
        names = certificate.dns_names
        if right is Right.FOUNDER:
            if not self._roster.seeds.isdisjoint(names) or self._own in names:
                return
        elif not self._takes(method):
            text = "this node belongs to no cluster yet: `qm cluster init` or `qm node join`"
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, text)
        elif right is Right.ENTRANT or any(map(self._roster.may_ask, names)):
            return
        await self._refuse(
            context, "stranger", f"{method} is for {right.value}: the certificate names {names}"
        )

    async def _admit_change(
        self, request: relay_pb2.LeadRequest, certificate: PeerCertificate, context: Any
    ) -> None:
        """Let a node that is not a member ask only for its own entry."""
        names = certificate.dns_names
        if any(map(self._roster.is_member, names)):
            return
        change = request.change_members
        is_own = request.WhichOneof("kind") == "change_members" and change.node in names
        if not is_own:
            text = f"Lead is for {Right.ENTRANT.value}: the certificate names {names}"
            await self._refuse(context, "stranger", text)

    async def _refuse(
        self,
        context: Any,
        reason: str,
        text: str,
        code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED,
    ) -> None:
        self._refused(reason, text, context)
        await refuse(context, code, text)
