"""A program outlives its certificate: files that are replaced are used without a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from qm.api.gate.identity import Role
from qm.client.calls import FILES_LOOK_S, Calls, Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.client.stream import Stream
from qm.node.config.schema import NodeConfig
from qm.node.upkeep.pki import REVOKED_LIST, issue, renew, revoke
from qm.pb import data_pb2
from raft.transport.tls import REVOKED_LOOK_S
from tests.unit.client.world import PLAIN, Clients, clients, run

LATER_S = 1.5 * FILES_LOOK_S
"""When the files have been looked at again."""


def shown_by(made: Clients, folder: Path, name: str) -> Tls:
    """Files of a program's own, as it would have them from an operator."""
    pki = made.tls.authority.parent
    issue(pki, name, Role.ADMIN)
    tls = Tls(made.tls.authority, folder / "shown.pem", folder / "shown.key")
    put(pki / f"{name}.pem", tls.certificate)
    put(pki / f"{name}.key", tls.key)
    return tls


def put(source: Path, target: Path) -> None:
    fresh = target.with_name("fresh")
    fresh.write_bytes(source.read_bytes())
    fresh.replace(target)


async def principal(wire: Calls, client_id: str) -> str:
    """Whom a node takes the caller for."""
    request = data_pb2.OpenSessionRequest(client_id=client_id, lease_ms=3_000)
    reply = await wire.call(lambda stubs: stubs.data.OpenSession, request)
    return str(reply.principal)


def test_calls_show_the_certificate_that_is_there_now(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with clients() as made:
            pki, tls = made.tls.authority.parent, shown_by(made, tmp_path, "before")
            issue(pki, "after", Role.ADMIN)
            wire = Calls(made.endpoints, tls)
            assert await principal(wire, "first") == "before"
            put(pki / "after.pem", tls.certificate)
            await asyncio.sleep(LATER_S)
            assert await principal(wire, "second") == "before", "the key has not come yet"
            put(pki / "after.key", tls.key)
            await asyncio.sleep(LATER_S)
            assert await principal(wire, "third") == "after"
            await wire.close()

    run(scenario())


def test_a_stream_goes_on_when_its_certificate_was_renewed_and_revoked(tmp_path: Path) -> None:
    def watching(config: NodeConfig) -> NodeConfig:
        revoked = config.tls.authority.parent / REVOKED_LIST
        return msgspec.structs.replace(
            config, tls=msgspec.structs.replace(config.tls, revoked=revoked)
        )

    async def scenario() -> None:
        async with clients(change=watching) as made:
            pki, tls = made.tls.authority.parent, shown_by(made, tmp_path, "worker")
            leaked = tmp_path / "leaked.pem"
            put(tls.certificate, leaked)
            async with Client(made.endpoints, tls=tls) as client:
                queue = await client.open_queue(PLAIN)

                async def passes(stream: Stream, body: bytes) -> None:
                    await client.send(PLAIN, Message(body=body))
                    assert (await anext(stream)).body == body

                async with queue.stream(8) as stream:
                    await passes(stream, b"before")
                    renew(pki, pki / "worker.pem")
                    put(pki / "worker.pem", tls.certificate)
                    await asyncio.sleep(LATER_S)
                    await passes(stream, b"renewed")
                    assert stream.opened_count == 1, "what is open stays"
                    revoke(pki, leaked)
                    await asyncio.sleep(REVOKED_LOOK_S + LATER_S)
                    await passes(stream, b"revoked")
                    assert stream.opened_count == 2

    run(scenario())
