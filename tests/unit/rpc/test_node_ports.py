"""The RPC ports of a whole node: what the mapper tells of them, and at which level they answer."""

import asyncio
import secrets
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qm.rpc.client import RpcClient
from qm.rpc.endpoint_mapper import MAPPER, LookupIn, MapIn, tower_of
from qm.rpc.interface import Fault, Interface
from qm.rpc.mgmt import MGMT, NameIn
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.path_names import QMCOMM
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, write_bind
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduType
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.unit.rpc.reading import MAPPER_PORT, RPC_PORT, RpcWorld, rpc_world

SERVED = (REMOTE_READ, QMMGMT, QMCOMM, MGMT)


def in_node(test: Callable[[RpcWorld, str], Coroutine[Any, Any, None]], **rpc: Any) -> None:
    async def main() -> None:
        async with rpc_world(1, **rpc) as world:
            await test(world, (await world.harness.leader()).host)

    asyncio.run(main())


async def status_at(host: str, interface: Interface, opnum: int, level: AuthLevel) -> int:
    """What a call without parameters is faulted with, by alice at a level or by nobody."""
    client = await RpcClient().connect(host, RPC_PORT)
    is_alice = level is not AuthLevel.NONE
    provider = NtlmClient("alice", "pw", "", secrets.token_bytes) if is_alice else None
    await client.bind(
        interface, provider=provider, auth_type=AuthType.NTLM if is_alice else 0, level=level
    )
    with pytest.raises(Fault) as caught:
        await client.raw_call(interface, opnum, b"")
    client.close()
    return caught.value.status


@pytest.mark.spec(
    "RP-RPCE-2.1.1.1-02",
    "RP-RPCE-2.2.1.2.5-09",
    "RP-RPCE-2.2.1.2.5-10",
    "RP-RPCE-3.3.3.3.1.4-01",
    "RP-RPCE-3.3.1.5.5-01",
)
def test_a_node_tells_all_its_interfaces_where_it_was_asked() -> None:
    async def test(world: RpcWorld, host: str) -> None:
        client = await RpcClient().connect(host, MAPPER_PORT)
        assert client._transport is not None
        assert client._transport.get_extra_info("sockname")[0] != host, "two different addresses"
        await client.bind(MAPPER)
        place = b"\1\0\x07\2\0" + struct.pack(">H", RPC_PORT)
        place += b"\1\0\x09\4\0" + bytes(int(one) for one in host.split("."))
        found = await client.call(MAPPER, 2, LookupIn(0, None, None, 1, NIL, 500))
        towers = [one.tower.octets for one in found.entries.items]
        assert {tower[5:21] for tower in towers} == {one.syntax.uuid for one in SERVED}
        assert len(towers) == len(SERVED)
        for one in SERVED:
            asked = tower_of(one.syntax, 0, "0.0.0.0")
            mapped = await client.call(MAPPER, 3, MapIn(None, asked, NIL, 4))
            towers += [tower.octets for tower in mapped.towers.items]
        assert len(towers) == 2 * len(SERVED)
        assert {tower[-16:] for tower in towers} == {place}
        client.close()
        for port in (MAPPER_PORT, RPC_PORT):
            reader, writer = await asyncio.open_connection(host, port)
            proposal = Proposal(0, MGMT.syntax, (NDR20,))
            writer.write(write_bind(PduType.BIND, 1, Bind(5840, 5840, 0, (proposal,))))
            ack = await reader.readexactly(32)
            assert ack[24:32] == b"\x06\0" + str(port).encode() + b"\0"
            writer.close()

    in_node(test)


@pytest.mark.spec("RP-RPCE-5.1.1-01", "RP-RPCE-2.2.1.1.8-03", "RP-RPCE-3.1.1.5.4-01")
@pytest.mark.parametrize("level", ["", "integrity"])
def test_a_node_serves_messages_to_none_but_protected_calls(level: str) -> None:
    bad_stub, denied = 0x6F7, 5

    async def test(world: RpcWorld, host: str) -> None:
        for asked in (AuthLevel.NONE, AuthLevel.CONNECT, AuthLevel.PACKET):
            for interface, opnum in ((REMOTE_READ, 2), (QMMGMT, 0)):
                assert await status_at(host, interface, opnum, asked) == denied
        # They reach the method, which misses its parameters.
        assert await status_at(host, QMMGMT, 0, AuthLevel.INTEGRITY) == bad_stub
        assert await status_at(host, QMMGMT, 0, AuthLevel.PRIVACY) == bad_stub
        assert await status_at(host, REMOTE_READ, 2, AuthLevel.PRIVACY) == bad_stub
        told = await status_at(host, REMOTE_READ, 2, AuthLevel.INTEGRITY)
        assert told == (bad_stub if level else denied), "privacy, unless it is configured"
        for port in (MAPPER_PORT, RPC_PORT):
            open_to_all = await RpcClient().connect(host, port)
            await open_to_all.bind(MGMT)
            assert (await open_to_all.call(MGMT, 2, Nothing())).is_listening == 1
            open_to_all.close()

    in_node(test, **({"level": level} if level else {}))


@pytest.mark.spec("RP-RPCE-2.2.1.3.4-01")
def test_a_node_is_named_to_those_who_may_log_on() -> None:
    async def test(world: RpcWorld, host: str) -> None:
        for port in (MAPPER_PORT, RPC_PORT):
            client = await RpcClient().connect(host, port)
            await client.bind(MGMT)
            for kind in (9, 10):
                named = await client.call(MGMT, 4, NameIn(kind, 100))
                assert (named.name.text, named.status) == ("HOST/quorate.example", 0)
            # Kerberos is not offered without a keytab, and others never are.
            for kind in (0, 1, 14, 16, 68, 0xFFFF_FFFF):
                unknown = await client.call(MGMT, 4, NameIn(kind, 100))
                assert (unknown.name.text, unknown.status) == ("", 1747), kind
            client.close()

    in_node(test)
