"""Attacks over the nodes' TLS ports 1811 to 1813, by holders of every kind of certificate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from qm.api.gate.identity import Role
from qm.api.gate.roles import RULES
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.errors import ClientError
from qm.client.message import Message as Sent
from qm.node.config.addresses import host_and_port
from qm.node.config.schema import API_PORT, RAFT_PORT, RELAY_PORT
from qm.node.relay.peer_gate import METHODS
from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE
from qm.pb import control_pb2, data_pb2, relay_pb2
from raft.pb import peer_pb2
from raft.transport.grpc_transport import METADATA_CLUSTER, METADATA_FROM, METADATA_TO
from tests.hostile.sessions import Raw, again_and_again
from tests.hostile.victim import Count, Victim
from tests.unit.api.gate.half_sent import HalfSent

FOREIGN, STRANGER = "foreign", "stranger"
"""Certificates of another authority, and of the role node without being a member's."""
ROLES = {"client": Role.CLIENT, "operator": Role.OPERATOR, "admin": Role.ADMIN, STRANGER: Role.NODE}
UNDECODABLE = b"\xff" * 9
_CALL_MAX_S = 2.0
_CALLS_PER_CHANNEL = 200
_CALLERS = 8
_TLS_HOLDERS = 64
_BODY_MAX_BYTES = 1 << 16
_TEXTS = (
    "",
    "x",
    "\0",
    "\u2603" * 300,
    "DIRECT=OS:.\\private$\\q",
    "n1",
    "n9",
    "%s%n",
    "..\\..\\x",
)
_NUMBERS = (0, 1, 2, 255, 2**31 - 1, 2**32 - 1, 2**63 - 1)
_DEPTH_MAX = 4
_HALF_SENT = 500
_HALF_SENT_BYTES = 15 << 20
_CALLS = {
    f"/{service.full_name}/{method.name}": method
    for file in (data_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
}
_PEER_PATHS = {
    RELAY_PORT: [f"/{relay_pb2.DESCRIPTOR.package}.Relay/{method}" for method in METHODS],
    RAFT_PORT: [
        f"/{peer_pb2.DESCRIPTOR.package}.Peer/{method}" for method in ("Exchange", "SendSnapshot")
    ],
}


def filled(chance: Random, descriptor: Descriptor, depth: int = 0) -> Message:
    """Return a request with fields at their edges, or anywhere."""
    message: Any = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if chance.random() < 0.5:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                _fill(chance, message, field, depth)
    return message  # type: ignore[no-any-return]


def _fill(chance: Random, message: Any, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry or depth >= _DEPTH_MAX:
            return
        value = filled(chance, field.message_type, depth + 1)
        if field.is_repeated:
            getattr(message, field.name).extend([value] * chance.choice((1, 3)))
        else:
            getattr(message, field.name).CopyFrom(value)
        return
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        is_text = field.type == FieldDescriptor.TYPE_STRING
        scalar: Any = chance.choice(_TEXTS) if is_text else chance.randbytes(chance.choice((0, 16)))
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        scalar = chance.random() < 0.5
    else:
        scalar = chance.choice(_NUMBERS)
    if field.is_repeated:
        getattr(message, field.name).extend([scalar] * chance.choice((1, 100)))
    else:
        setattr(message, field.name, scalar)


def body(chance: Random, path: str, role: Role | None) -> bytes:
    """Return a request's bytes. What would be obeyed, and changes the cluster, stays undecodable:
    an administrator may take the cluster down, and that proves nothing.
    """
    rule = RULES[path]
    is_obeyed = role is not None and role in rule.roles
    if is_obeyed and rule.is_change and role is not Role.CLIENT:
        return UNDECODABLE + chance.randbytes(chance.randrange(64))
    kind = chance.random()
    if kind < 0.6:
        raw = filled(chance, _CALLS[path].input_type).SerializeToString()
        if kind < 0.4 or not raw:
            return raw
        cut = bytearray(raw)
        cut[chance.randrange(len(cut))] ^= 1 << chance.randrange(8)
        return bytes(cut)
    return chance.randbytes(chance.choice((0, 1, 9, 100, _BODY_MAX_BYTES)))


def credentials(victim: Victim, stem: str, *, is_peer: bool) -> grpc.ChannelCredentials:
    """Return credentials by the name of a certificate; "" presents none."""
    folder = "peers/" if is_peer else ""
    authority = victim.certificate(f"{folder}{AUTHORITY_CERTIFICATE}")[0].read_bytes()
    if not stem:
        return grpc.ssl_channel_credentials(authority)
    place = stem if stem == FOREIGN else f"{folder if stem == STRANGER else ''}{stem}"
    certificate, key = victim.certificate(place)
    return grpc.ssl_channel_credentials(authority, key.read_bytes(), certificate.read_bytes())


@contextlib.asynccontextmanager
async def _channel(victim: Victim, number: int, port: int, stem: str) -> Any:
    at = number % len(victim.hosts)
    opened = grpc.aio.secure_channel(
        host_and_port(victim.hosts[at], port),
        credentials(victim, stem, is_peer=port != API_PORT),
        options=(("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)),
    )
    try:
        yield opened
    finally:
        await opened.close(None)


async def _call(opened: Any, path: str, data: bytes, metadata: Any = ()) -> None:
    """Call as one request; whether the method streams is none of the attacker's business."""
    call = opened.unary_stream(path, None, None)(data, timeout=_CALL_MAX_S, metadata=metadata)
    with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
        async for _ in call:
            pass


def _stems() -> Iterator[str]:
    while True:
        yield from ("client", "operator", "admin", STRANGER, "", FOREIGN)


async def fuzz_grpc(victim: Victim, chance: Random, count: Count) -> None:
    """Every method by every role, with requests near sound ones; and TLS that is none."""
    stems = _stems()

    async def api(number: int) -> None:
        stem = next(stems)
        async with _channel(victim, number, API_PORT, stem) as opened:
            # Without a certificate of the cluster's there is no handshake.
            for _ in range(_CALLS_PER_CHANNEL if stem in ROLES else 2):
                path = chance.choice(list(RULES))
                await _call(opened, path, body(chance, path, ROLES.get(stem)))
                count(1)

    async def peers(number: int) -> None:
        stem, port = next(stems), chance.choice((RELAY_PORT, RAFT_PORT))
        metadata = (
            (METADATA_CLUSTER, chance.choice(("00" * 16, "x", chance.randbytes(16).hex()))),
            (METADATA_FROM, chance.choice(("n2.1", "n9.1", "", "n1.1"))),
            (METADATA_TO, chance.choice(("n1.1", "n2.1", "n3.1"))),
        )
        async with _channel(victim, number, port, stem) as opened:
            for _ in range(8):
                data = chance.choice((UNDECODABLE, chance.randbytes(chance.choice((1, 99, 9_999)))))
                await _call(opened, chance.choice(_PEER_PATHS[port]), data, metadata)
                count(1)

    async def bytes_alone(number: int) -> None:
        port = chance.choice((API_PORT, RELAY_PORT, RAFT_PORT))
        async with Raw.to(victim.host(number), port, victim.source(number)) as raw:
            await raw.send(
                chance.choice(
                    (
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64),
                        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(100),
                        b"\x16\x03\x01",
                        chance.randbytes(1_000),
                    )
                )
            )
            count(1)
            await raw.until_closed(chance.choice((0.1, 6.0)))

    await asyncio.gather(
        *(again_and_again(partial(api, number)) for number in range(_CALLERS)),
        *(again_and_again(partial(peers, number)) for number in range(_CALLERS // 2)),
        *(again_and_again(partial(bytes_alone, number)) for number in range(_TLS_HOLDERS)),
    )


async def half_sent(victim: Victim, chance: Random, count: Count) -> None:
    """Hundreds of large requests that begin, by every certificate, and do not end."""

    async def once(number: int) -> None:
        stem = ("client", "operator", STRANGER)[number % 3]
        port = RELAY_PORT if stem == STRANGER else API_PORT
        method = _PEER_PATHS[port][0] if stem == STRANGER else chance.choice(list(RULES))
        folder = "peers/" if stem == STRANGER else ""
        tls = ssl.create_default_context(
            cafile=victim.certificate(f"{folder}{AUTHORITY_CERTIFICATE}")[0]
        )
        tls.check_hostname = False
        tls.load_cert_chain(*victim.certificate(f"{folder}{stem}"))
        tls.set_alpn_protocols(["h2"])
        async with HalfSent.to(host_and_port(victim.host(number), port), tls) as attacker:
            for _ in range(_HALF_SENT):
                attacker.begin(method, _HALF_SENT_BYTES)
                count(1)
            for _ in range(20):
                await attacker.pour(_HALF_SENT_BYTES - 1)
                await asyncio.sleep(1)

    await asyncio.gather(*(again_and_again(partial(once, number)) for number in range(9)))


def _client(victim: Victim, number: int, chance: Random) -> Client:
    at = number % len(victim.hosts)
    hosts = (*victim.hosts[at:], *victim.hosts[:at])
    certificate, key = victim.certificate("client")
    authority = victim.certificate(AUTHORITY_CERTIFICATE)[0]
    return Client(
        [host_and_port(host, API_PORT) for host in hosts],
        tls=Tls(authority, certificate, key),
        client_id=f"hostile-{chance.getrandbits(64):x}",
    )


async def dead_letters(victim: Victim, chance: Random, count: Count) -> None:
    """A client whose every message dies and wants a copy in the dead-letter queue."""
    own = f"DIRECT={victim.name(victim.queue)}"

    async def once(number: int) -> None:
        async with _client(victim, number, chance) as client:
            for turn in range(1_000_000):
                dead = f"DIRECT=TCP:{victim.silent[turn % len(victim.silent)]}\\private$\\{turn}"
                messages = [
                    Sent(
                        body=bytes(200),
                        dead_letter=True,
                        time_to_reach_queue_s=1,
                        time_to_be_received_s=1,
                        administration_queue=own,
                        acknowledgements=0x0F,
                    )
                ] * 50
                await client.send(own if turn % 2 else dead, *messages)
                count(len(messages))

    await asyncio.gather(*(_stubborn(partial(once, number)) for number in range(3)))


async def slow_streams(victim: Victim, chance: Random, count: Count) -> None:
    """Clients that ask for streams and never take what comes."""

    async def once(number: int) -> None:
        async with _client(victim, number, chance) as client:
            queue = await client.open_queue(f"DIRECT={victim.name(victim.queue)}")
            async with queue.stream(credit=4_096) as stream:
                del stream
                for _ in range(20):
                    await client.send(queue.name, *([Sent(body=bytes(8_192))] * 10))
                    count(10)
                    await asyncio.sleep(1)

    await asyncio.gather(*(_stubborn(partial(once, number)) for number in range(16)))


async def _stubborn(once: Any) -> None:
    while True:
        with contextlib.suppress(ClientError, grpc.RpcError, OSError):
            await once()
        await asyncio.sleep(0.5)
