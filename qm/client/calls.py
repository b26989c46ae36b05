"""Calls that any node of a cluster can answer: tries one node after another until one does."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar
from uuid import uuid4

import grpc
import msgspec
from grpc import aio

from qm.client.endpoints import cause_of, full_endpoint
from qm.client.errors import OF_A_NODE, ClientError, Unavailable, error_of, is_unsent
from qm.pb import control_pb2_grpc, data_pb2_grpc

logger = logging.getLogger(__name__)

ATTEMPT_S: Final = 5.0
"""How long one node may take, beyond the wait that the call itself asks for."""
DEADLINE_S: Final = 30.0
"""How long a call is tried on all nodes by default."""
CALL_ID_KEY: Final = "quorate-call-id"
"""Metadata: by its value a node knows a call that is repeated (docs/api.md)."""
SESSION_EPOCH_KEY: Final = "quorate-session-epoch"
"""Metadata: as which opener of its session a client calls (docs/client.md)."""
FILES_LOOK_S: Final = 1.0
"""Time between two looks at whether files of certificates have been replaced."""
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 0.25
_MESSAGE_MAX_BYTES: Final = 64 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_MAX_BYTES),
    # Lets waiting calls notice a node that hangs or has vanished.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # a minute by default, whatever the one above
    ("grpc.http2.max_pings_without_data", 0),  # by default, from the third on one a minute
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)

Request__contra = TypeVar("Request__contra", contravariant=True)
Reply__co = TypeVar("Reply__co", covariant=True)
_Q = TypeVar("_Q")
_S = TypeVar("_S")
_R = TypeVar("_R")


def session_metadata(session_epoch: int) -> tuple[tuple[str, str], ...]:
    """Return what says as which opener of its session a client calls."""
    return ((SESSION_EPOCH_KEY, str(session_epoch)),) if session_epoch else ()


class Tls(msgspec.Struct, frozen=True):
    """PEM files of this client."""

    authority: Path
    """Certificates that sign the cluster's nodes."""
    certificate: Path
    """Identifies the caller; its role says what the caller may do."""
    key: Path
    server_name: str = ""
    """Name expected in the nodes' certificates instead of the endpoints' hosts."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises OSError."""
        return grpc.ssl_channel_credentials(
            self.authority.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )

    def context(self) -> ssl.SSLContext:
        """Return what a handshake needs. Raises OSError (ssl.SSLError for files of no use)."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2"])
        return context

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return what is another when a file has been replaced. Raises OSError."""
        stats = [path.stat() for path in (self.authority, self.certificate, self.key)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


class _Credentials:
    """What new channels show and trust. A program may outlive the certificate it began with."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._stamp = tls.stamp()
        self.current = tls.credentials()
        self._looked_at = monotonic()
        self._obstacle = ""

    def have_changed(self) -> bool:
        """Read files that were replaced, and return whether there were any. While they cannot be
        used, such as a certificate whose key has not come yet, the ones before stay in use.
        """
        if monotonic() - self._looked_at < FILES_LOOK_S:
            return False
        self._looked_at = monotonic()
        try:
            stamp = self._tls.stamp()
            if stamp == self._stamp:
                return False
            self._tls.context()  # raises where certificate and key do not match
            self.current = self._tls.credentials()
        except OSError as error:
            if str(error) != self._obstacle:
                self._obstacle = str(error)
                logger.warning("the previous certificate stays in use: %s", error)
            return False
        self._stamp, self._obstacle = stamp, ""
        return True


class Method(Protocol[Request__contra, Reply__co]):
    """A unary call of a stub of grpc.aio."""

    def __call__(
        self,
        request: Request__contra,
        /,
        *,
        timeout: float | None = None,
        metadata: Sequence[tuple[str, str]] | None = None,
    ) -> Awaitable[Reply__co]:
        """Start the call."""


class _Service(Generic[_S]):
    """A service's stubs, made when they are first used."""

    def __init__(self, make: Callable[[aio.Channel], _S]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, stubs: "Stubs", owner: type) -> _S:
        made = self._make(stubs.channel)
        # Found before this descriptor from now on.
        stubs.__dict__[self._name] = made
        return made


class Stubs:
    """Stubs of every service over one channel; few clients use more than two or three of them."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel

    data = _Service(data_pb2_grpc.DataStub)
    cluster = _Service(control_pb2_grpc.ClusterControlStub)
    queues = _Service(control_pb2_grpc.QueueControlStub)
    outgoing = _Service(control_pb2_grpc.OutgoingControlStub)
    peers = _Service(control_pb2_grpc.PeerControlStub)
    keys = _Service(control_pb2_grpc.KeyControlStub)
    directory = _Service(control_pb2_grpc.DirectoryControlStub)
    certificates = _Service(control_pb2_grpc.CertificateControlStub)
    messages = _Service(control_pb2_grpc.MessageControlStub)
    console = _Service(control_pb2_grpc.ConsoleControlStub)
    clients = _Service(control_pb2_grpc.ClientControlStub)
    definitions = _Service(control_pb2_grpc.DefinitionControlStub)
    nodes = _Service(control_pb2_grpc.NodeControlStub)


class Calls:
    """Channels to the nodes of a cluster; keeps using a node as long as it answers."""

    def __init__(
        self,
        endpoints: Sequence[str],
        tls: Tls | None = None,
        connect_s: float | None = None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`endpoints`: HOST or HOST:PORT of the nodes' APIs, any number of them. Without `tls` a
        node answers only on loopback, and only if its configuration allows it. `connect_s`: how
        long it may take until the first of them is reached; None: as long as the call may take.
        `metadata` goes with every call.
        """
        if not endpoints:
            raise ValueError("no endpoints: name at least one node as host:port")
        self.endpoints = tuple(map(full_endpoint, endpoints))
        self._tls = tls
        self._connect_s = connect_s
        self._has_answered = connect_s is None
        self._metadata = tuple(metadata)
        self._credentials = _Credentials(tls) if tls is not None else None
        self._stubs: dict[int, Stubs] = {}
        self._at = 0

    @property
    def endpoint(self) -> str:
        """The node that is asked first."""
        return self.endpoints[self._at]

    def stubs(self) -> Stubs:
        """Return the stubs of the node that is asked first."""
        return self._stubs_of(self._at)

    def is_current(self, stubs: Stubs) -> bool:
        """Whether new calls may use these, too: not if the certificate was replaced since."""
        return any(each is stubs for each in self._stubs.values())

    def _stubs_of(self, at: int) -> Stubs:
        if self._credentials is not None and self._credentials.have_changed():
            # Whoever is calling keeps a channel; one that nobody uses any more closes itself.
            self._stubs.clear()
        stubs = self._stubs.get(at)
        if stubs is None:
            stubs = self._stubs[at] = Stubs(self._channel(self.endpoints[at]))
        return stubs

    def leave(self, stubs: Stubs) -> None:
        """Ask another node first from now on, unless that was already done for `stubs`."""
        if self._stubs.get(self._at) is stubs:
            self._at = (self._at + 1) % len(self.endpoints)

    async def call(
        self,
        method: Callable[[Stubs], Method[_Q, _R]],
        request: _Q,
        *,
        wait_s: float = 0.0,
        deadline_s: float = DEADLINE_S,
        session_epoch: int = 0,
    ) -> _R:
        """Make a call that is safe to repeat; `wait_s` is how long its answer may rightly take.
        `session_epoch`: of the session that it is for.

        Raises ClientError; Unavailable when no node answered within `wait_s` + `deadline_s`, or one
        refuses what another that was asked before may have carried out.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait_s + deadline_s
        own = ((CALL_ID_KEY, uuid4().hex), *session_metadata(session_epoch))
        metadata = (*own, *self._metadata)
        pause = _PAUSE_FIRST_S
        may_be_done = False
        if not self._has_answered:
            await self.reach()
        for attempt in range(1, 1 << 31):
            stubs = self.stubs()
            left = end - loop.time()
            try:
                reply = await method(stubs)(
                    request, timeout=min(left, wait_s + ATTEMPT_S), metadata=metadata
                )
            except aio.AioRpcError as failure:
                error = error_of(failure)
                if error is not None:
                    self._has_answered = True
                    if may_be_done and isinstance(error, OF_A_NODE):
                        raise Unavailable(
                            f"{error}; a node that was asked before may have carried it out"
                        ) from error
                    raise error from None
                if not self._has_answered and (cause := await self._cause(self._at)):
                    # Such as a certificate that the node refuses once it has been connected.
                    raise Unavailable(cause) from None
                may_be_done = may_be_done or not is_unsent(failure)
                self.leave(stubs)
                if loop.time() + pause >= end:
                    raise self._unavailable(failure) from None
            else:
                self._has_answered = True
                return reply
            if attempt % len(self.endpoints) == 0:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_MAX_S)
        raise AssertionError("unreachable")

    async def reach(self) -> None:
        """Ask that node first which is connected first. Raises Unavailable, which names the cause
        for each node, when none is within `connect_s` or it is clear that none will be.
        """
        trying = {
            asyncio.ensure_future(self._obstacle(at)): at for at in range(len(self.endpoints))
        }
        waiting, causes = set(trying), []
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    if cause := each.result():
                        causes.append(cause)
                    else:
                        self._at = trying[each]
                        return
        finally:
            for each in waiting:
                each.cancel()
        raise Unavailable(f"no node is reached: {'; '.join(causes)}")

    async def _obstacle(self, at: int) -> str:
        """Wait until a node is connected; return why it is not, "" if it is."""
        limit_s = self._connect_s or ATTEMPT_S
        channel = self._stubs_of(at).channel
        try:
            async with asyncio.timeout(limit_s):
                state = channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    has_failed = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
                    if has_failed and (cause := await self._cause(at)):
                        return cause
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            return f"no answer from {self.endpoints[at]} within {limit_s:g} s"
        return ""

    async def _cause(self, at: int) -> str:
        tls, endpoint = self._tls, self.endpoints[at]
        try:
            context = None if tls is None else tls.context()
        except OSError as error:
            return f"{endpoint}: the certificate and its key cannot be used: {error}"
        name = "" if tls is None else tls.server_name
        return await cause_of(endpoint, context, name, self._connect_s or ATTEMPT_S)

    async def close(self) -> None:
        """Close every channel."""
        stubs, self._stubs = list(self._stubs.values()), {}
        for each in stubs:
            await each.channel.close(None)

    def _channel(self, endpoint: str) -> aio.Channel:
        if self._credentials is None:
            return aio.insecure_channel(endpoint, options=_OPTIONS)
        options: tuple[tuple[str, str | int], ...] = _OPTIONS
        if self._tls is not None and self._tls.server_name:
            options = (*options, ("grpc.ssl_target_name_override", self._tls.server_name))
        return aio.secure_channel(endpoint, self._credentials.current, options=options)

    def _unavailable(self, failure: aio.AioRpcError) -> ClientError:
        return Unavailable(
            f"none of {', '.join(self.endpoints)} answered; the last one said:"
            f" {failure.details() or failure.code().name}"
        )
