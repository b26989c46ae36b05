"""The transport between processes: direct streams, and gRPC for the rest.

Ordinary traffic goes over direct streams (`raft.transport.direct`). Snapshots go over gRPC, and so
does everything to and from nodes of builds without direct streams; `raft.transport.door` tells them
apart at the one port that a node has. Who may speak is the same for both.
"""

import asyncio
import contextlib
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from typing_extensions import override

from raft.transport.direct import (
    ANSWER_MAX_BYTES,
    HELLO_MAX_BYTES,
    FrameConnection,
    Hello,
    prepare,
    read_hello,
)
from raft.transport.door import HANDSHAKE_TIMEOUT_MS, Door
from raft.transport.grpc_transport import DIAL_TIMEOUT_MS, GrpcConfig, GrpcTransport
from raft.transport.peer import Stream
from raft.transport.tls import ALPN, PeerCertificate, read_certificate
from raft.transport.transport import TransportEvents, node_name
from raft.types import NodeId


class OnlyGrpc(Exception):
    """The node at the other end has no direct streams."""


class DirectTransport(GrpcTransport):
    """Implements `raft.transport.transport.Transport`."""

    def __init__(
        self, config: GrpcConfig, events: TransportEvents, random: Callable[[int], int]
    ) -> None:
        """`random(n)` gives 0 to n - 1, for jitter. Raises TlsError."""
        self._door_at = config.listen
        hidden = f"quorate-raft-{secrets.token_hex(8)}"
        super().__init__(replace(config, listen=f"unix-abstract:{hidden}"), events, random)
        self._door = Door(self._on_direct, hidden, self._refuse_connection)

    @override
    async def _listen(self) -> None:
        await super()._listen()
        try:
            await self._door.open(self._door_at)
        except OSError as error:
            await super()._stop_listening()
            raise OSError(f"cannot listen on {self._door_at}: {error}") from error
        self.port = self._door.port

    @override
    async def _stop_listening(self) -> None:
        await self._door.close()
        await super()._stop_listening()

    # Calls to peers

    @override
    @asynccontextmanager
    async def open_stream(self, peer: NodeId, address: str) -> AsyncIterator[Stream]:
        """Dial for ordinary traffic."""
        connection = FrameConnection()
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
                certificate = await self._call_directly(connection, peer, address)
        except OnlyGrpc:
            connection.abort()
            async with super().open_stream(peer, address) as stream:
                yield stream
            return
        except BaseException:
            connection.abort()
            raise
        forget = self._identity.watch(certificate.pem, partial(self._end_revoked, connection))
        try:
            yield _stream(connection, is_dialed=True)
        finally:
            forget()
            connection.abort()

    async def _call_directly(
        self, connection: FrameConnection, peer: NodeId, address: str
    ) -> PeerCertificate:
        """Connect and be accepted; return the certificate of the called node.

        Raises OSError, OnlyGrpc.
        """
        certificate = await self.secure(connection, peer, address)
        if not certificate.is_peer:
            raise PermissionError(f"{address} has roles {certificate.roles}")
        if self._identity.is_revoked(certificate.pem):
            raise PermissionError(f"the certificate of {address} was revoked")
        await connection.write(Hello(self.cluster, self.node, peer).pack())
        answer = await connection.first(ANSWER_MAX_BYTES)
        if answer:
            raise PermissionError(answer.decode("utf-8", "replace"))
        return certificate

    async def secure(
        self, connection: FrameConnection, peer: NodeId, address: str
    ) -> PeerCertificate:
        """Connect to a node; return its certificate, which names it. Raises OSError, OnlyGrpc."""
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        try:
            transport, _ = await loop.create_connection(
                lambda: connection,
                host.strip("[]"),
                int(port),
                ssl=self._identity.calling_context(),
                server_hostname=node_name(peer),
            )
        except ssl.SSLError as error:
            if error.reason in _NOT_SPOKEN:
                raise OnlyGrpc from error
            raise
        if _alpn(transport) != ALPN:
            raise OnlyGrpc
        prepare(transport.get_extra_info("socket"))
        return _certificate(transport)

    # Calls from peers

    def _refuse_connection(self, reason: str, place: str, text: str) -> None:
        """Count and log a connection that ended before its caller said who it is."""
        if reason == "connections":
            self.metrics.connections_total += 1
        else:
            self.metrics.handshake_total += 1
        self._log_refusal("", place, text, reason)

    async def _on_direct(self, accepted: socket.socket, place: str) -> None:
        """Serve a connection that a node opened. Raises OSError."""
        connection = FrameConnection()
        try:
            try:
                certificate = await self._shake_hands(connection, accepted)
            except OSError as error:
                self._refuse_connection("handshake", place, f"no TLS handshake: {error!r}")
                return
            await self.welcome(connection, certificate, place)
        finally:
            connection.abort()
            if connection.transport is None:  # a handshake that failed would wait for its peer
                with contextlib.suppress(OSError):
                    accepted.shutdown(socket.SHUT_RDWR)

    async def _shake_hands(
        self, connection: FrameConnection, accepted: socket.socket
    ) -> PeerCertificate:
        """Return the caller's certificate. Raises OSError."""
        try:
            prepare(accepted)
        except OSError:  # the caller is gone
            accepted.close()
            raise
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
            transport, _ = await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._identity.called_context()
            )
        return _certificate(transport)

    async def welcome(
        self, connection: FrameConnection, certificate: PeerCertificate, place: str
    ) -> None:
        """Serve a connection whose other end has this certificate, to its end. Raises OSError."""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                hello = read_hello(await connection.first(HELLO_MAX_BYTES))
        except ValueError as error:
            self.metrics.malformed_total += 1
            self._log_refusal("", place, str(error))
            return
        except TimeoutError:
            self._refuse_connection("handshake", place, "it did not say who it is in time")
            return
        reason = self._refusal(certificate, hello.sender, hello.cluster.hex(), hello.to)
        await connection.write(reason.encode()[:ANSWER_MAX_BYTES])
        if reason:
            self._log_refusal(hello.sender, place, reason)
            await connection.leave()
        else:
            await self._serve_directly(hello.sender, connection, certificate)

    async def _serve_directly(
        self, peer: NodeId, connection: FrameConnection, certificate: PeerCertificate
    ) -> None:
        forget = self._identity.watch(certificate.pem, partial(self._end_revoked, connection))
        try:
            await self._serve(peer, _stream(connection, is_dialed=False))
        finally:
            forget()

    def _end_revoked(self, connection: FrameConnection) -> None:
        self.metrics.revoked_total += 1
        connection.abort()


_NOT_SPOKEN = frozenset({"TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "NO_APPLICATION_PROTOCOL"})


def _stream(connection: FrameConnection, *, is_dialed: bool) -> Stream:
    return Stream(
        None,
        connection.write,
        connection.abort,
        is_dialed=is_dialed,
        run=connection.run,
        write_now=connection.write_now,
    )


def _tls(transport: asyncio.BaseTransport) -> ssl.SSLObject:
    found = transport.get_extra_info("ssl_object")
    assert found is not None
    return found  # type: ignore[no-any-return]


def _alpn(transport: asyncio.BaseTransport) -> str | None:
    return _tls(transport).selected_alpn_protocol()


def _certificate(transport: asyncio.BaseTransport) -> PeerCertificate:
    """Return the verified certificate of the other end. Raises PermissionError."""
    der = _tls(transport).getpeercert(binary_form=True)
    try:
        return read_certificate(der or b"")
    except ValueError as error:
        raise PermissionError(f"a certificate that cannot be read: {error}") from error
