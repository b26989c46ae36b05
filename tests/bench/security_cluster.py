"""What signatures and ciphers cost a whole cluster: `python -m tests.bench.security_cluster`.

Three node processes as `qm dev up` runs them, fsync on a quorum before any acknowledgement, load on
a follower. Rounds take plain messages and the mixture (10 % signed with RSA-2048, 10 % encrypted
with AES-256) in turns, so that the machine's other work meets both. Prints JSON and writes it to
build/bench-security-cluster.json; `loss` is the median of the rounds' losses of rate, `cpu_*` are
all nodes' microseconds of CPU per message.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop
from msgspec.structs import replace

from qm.client.calls import Calls
from qm.client.errors import CallFailed
from qm.load.outgoing import PrebuiltStream
from qm.load.packets import message_packet
from qm.load.sender import Link
from qm.load.workload import Delivery, Planned, Target
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2
from qm.security.body_ciphers import encrypt_body, session_key
from qm.security.providers import Provider
from qm.security.session_keys import public_key, wrapped
from qm.session import SessionConfig
from qm.session.outgoing import own_packet
from qm.wire.enums import EncryptionAlgorithm, PrivacyLevel
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.public_key import PublicKeyBlob, parse_public_key_blob
from tests.bench.cluster_nodes import Nodes
from tests.unit.edge.security.people import certificate, signed

SESSIONS: Final = 8
MESSAGES: Final = 24_000
"""Of a turn."""
ROUNDS: Final = 7
BODY_BYTES: Final = 1024
WINDOW: Final = 64
ALICE_TEXT: Final = "S-1-5-21-1-2-3-1001"
READY_TRIES: Final = 120
READY_PAUSE_S: Final = 0.5
OUTPUT: Final = Path("build") / "bench-security-cluster.json"


async def prepare(nodes: Nodes) -> PublicKeyBlob:
    """Register Alice's certificate; return the key that bodies are encrypted for."""
    wire = Calls([node.api for node in nodes.nodes], nodes.tls)
    try:
        request = control_pb2.RegisterCertificateRequest(
            person=control_pb2.Person(sid=ALICE_TEXT), certificate=certificate()
        )
        for _ in range(READY_TRIES):
            try:
                await wire.call(lambda stubs: stubs.certificates.Register, request)
                break
            except CallFailed:  # the version of a new cluster is raised a moment after its start
                await asyncio.sleep(READY_PAUSE_S)
        else:
            raise RuntimeError("the cluster takes no certificate")
        keys = await wire.call(lambda stubs: stubs.keys.GetKeys, control_pb2.GetKeysRequest())
    finally:
        await wire.close()
    (blob,) = (
        one.blob
        for one in keys.keys
        if one.provider == Provider.ADVANCED.provider_name and not one.is_for_signatures
    )
    return parse_public_key_blob(blob, 0, len(blob))[0]


def encrypted(message: UserMessage, receiver: PublicKeyBlob) -> UserMessage:
    """Encrypt a body as one sender does: with a session key of its own."""
    level, algorithm = PrivacyLevel.ADVANCED, EncryptionAlgorithm.AES256
    key = session_key(level, algorithm, os.urandom(32))
    properties = replace(
        message.properties,
        message_body=encrypt_body(key, message.properties.message_body),
        privacy_level=int(level),
        encryption_algorithm=int(algorithm),
    )
    blob = wrapped(key, public_key(receiver))
    security = SecurityHeader(is_body_encrypted=True, encryption_key=blob)
    return replace(message, properties=properties, security=security)


def packets(target: str, count: int, receiver: PublicKeyBlob | None) -> tuple[bytes, list[bytes]]:
    """Return a source and its messages: a mixture, or plain ones without `receiver`."""
    guid, now_s = os.urandom(16), int(time.time())
    planned = Planned("bench", 0, Delivery.RECOVERABLE, 3, 1, os.urandom(BODY_BYTES))
    plain = message_packet(guid, Target(target), planned)
    kinds = [plain] * 10
    if receiver is not None:
        message, _ = parse_user_message(plain, 0, len(plain))
        kinds[3] = write_user_message(signed(message))
        kinds[7] = write_user_message(encrypted(message, receiver))
    return guid, [own_packet(kinds[k % 10], k + 1, now_s) for k in range(count)]


async def turn(host: str, target: str, receiver: PublicKeyBlob | None) -> float:
    """Return messages per second, to the last acknowledgement."""
    share = MESSAGES // SESSIONS
    streams: list[PrebuiltStream] = []
    links = []
    done = asyncio.Event()

    def look(_: int) -> None:
        if sum(stream.acknowledged for stream in streams) == SESSIONS * share:
            done.set()

    for _ in range(SESSIONS):
        guid, made = packets(target, share, receiver)
        stream = PrebuiltStream(made)
        config = SessionConfig(window_size=WINDOW)
        streams.append(stream)
        links.append(Link(guid, [(host, MSMQ_PORT)], [stream], config=config, on_advance=look))
    began = time.perf_counter()
    for link in links:
        link.start()
    await asyncio.wait_for(done.wait(), 120)
    seconds = time.perf_counter() - began
    for link in links:
        await link.stop()
    return SESSIONS * share / seconds


async def measure(nodes: Nodes, target: str) -> dict[str, object]:
    receiver = await prepare(nodes)
    host = nodes.follower().host
    for kind in (None, receiver):
        await turn(host, target, kind)
    rates: dict[str, list[float]] = {"plain": [], "mixed": []}
    costs: dict[str, list[float]] = {"plain": [], "mixed": []}
    for _ in range(ROUNDS):
        for name, kind in (("plain", None), ("mixed", receiver)):
            cpu_s = nodes.cpu_s()
            rates[name].append(await turn(host, target, kind))
            costs[name].append((nodes.cpu_s() - cpu_s) / MESSAGES * 1e6)
    losses = [
        1 - mixed / plain for plain, mixed in zip(rates["plain"], rates["mixed"], strict=True)
    ]
    return {
        **{
            f"{name}_messages_per_s": round(statistics.median(all_)) for name, all_ in rates.items()
        },
        **{f"cpu_us_{name}": round(statistics.median(all_), 1) for name, all_ in costs.items()},
        "loss": round(statistics.median(losses), 3),
        "losses": [round(loss, 3) for loss in losses],
        "load": os.getloadavg()[0],
    }


def main() -> int:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as folder, Nodes(Path(folder), "127.0.8") as nodes:
        (target,) = nodes.create_queues(["bench"])
        figures = uvloop.run(measure(nodes, target))
    text = json.dumps(figures, indent=1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
