"""What `qm rpc` asks; apart from the command, since RPC takes long to load."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import click

from qm.names.errors import QueueNameError
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.endpoint_mapper import MAPPER, LookupIn, MapIn, parse_tower, port_of_tower, tower_of
from qm.rpc.interface import Fault, Interface
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.path_names import QMCOMM
from qm.rpc.pdu.bind import Syntax
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.queue_formats import format_of
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ, EndIn, Handle, OpenIn, StartIn, StartOut
from qm.rpc.remote_read.sections import body_place
from qm.rpc.security.kerberos import KerberosClient, KerberosMissing
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.provider import Provider, SecurityRefused
from qm.rpc.security.spnego import OID_KERBEROS, SpnegoClient
from qm.wire.codes import error_code_text
from qm.wire.headers.message_properties import MESSAGE_PROPERTIES_MIN_BYTES

_ACCESS_RECEIVE, _ACCESS_PEEK = 1, 0x20
_RECEIVE, _PEEK_CURRENT = 0, 0x8000_0000
_ACK: Final = 2
_BODY_MAX_BYTES: Final = 0xFFFF_FFFF
_ENTRIES_MAX: Final = 100
_ANSWER_WAIT_S: Final = 10.0
_KNOWN: Final = {one.syntax.uuid: one.name for one in (MAPPER, MGMT, REMOTE_READ, QMMGMT, QMCOMM)}


async def ping(host: str, mapper_port: int) -> None:
    """Print all interfaces that the endpoint mapper knows."""
    async with _connected(host, mapper_port) as client:
        await client.bind(MAPPER, MGMT)
        await client.call(MGMT, 2, Nothing())
        given = LookupIn(0, None, None, 1, NIL, _ENTRIES_MAX)
        found = await client.call(MAPPER, 2, given)
    for entry in found.entries.items:
        octets = b"" if entry.tower is None else entry.tower.octets
        syntax = parse_tower(octets)
        if syntax is not None:
            text = entry.annotation.decode("ascii", "replace")
            click.echo(f"{port_of_tower(octets)}\t{_shown(syntax)}\t{text}")


async def ports(host: str, mapper_port: int) -> None:
    """Print the ports of remote read and remote management."""
    for interface in (REMOTE_READ, QMMGMT):
        port = await _port_of(host, mapper_port, interface)
        click.echo(f"{interface.name}\t{port or 'not registered'}")


async def open_and_close(queue: str, where: dict[str, Any]) -> None:
    """Open a queue and close it."""
    async with _opened(queue, _ACCESS_PEEK, where) as (client, handle):
        await client.call(REMOTE_READ, 3, Handle(handle))
    click.echo("opened and closed")


async def receive(queue: str, peek: bool, timeout_ms: int, where: dict[str, Any]) -> None:
    """Print the body of a message, and accept it unless it is only looked at."""
    access = _ACCESS_PEEK if peek else _ACCESS_RECEIVE
    action = _PEEK_CURRENT if peek else _RECEIVE
    wait_s = timeout_ms / 1000 + _ANSWER_WAIT_S
    async with _opened(queue, access, where) as (client, handle):
        given = StartIn(handle, 0, 0, action, timeout_ms, 1, _BODY_MAX_BYTES, _BODY_MAX_BYTES)
        found: StartOut = await client.call(REMOTE_READ, 7, given, wait_s)
        _demand(found.status)
        packet = b"".join(one.data or b"" for one in found.sections or ())
        if len(packet) < MESSAGE_PROPERTIES_MIN_BYTES:
            raise RpcFailed("the answer holds no message")
        start, size = body_place(packet)
        click.echo(packet[start : start + size], nl=False)
        if not peek:
            _demand((await client.call(REMOTE_READ, 9, EndIn(handle, _ACK, 1))).status)
        await client.call(REMOTE_READ, 3, Handle(handle))


def run(work: Awaitable[None]) -> None:
    """Ask, and end the command with one line if that is refused."""

    async def main() -> None:
        await work

    try:
        asyncio.run(main())
    except Fault as error:
        raise click.ClickException(
            f"refused with 0x{error.status:08X} {error_code_text(error.status)}"
        ) from None
    except (RpcFailed, SecurityRefused) as error:
        raise click.ClickException(str(error)) from None


@asynccontextmanager
async def _connected(host: str, port: int) -> AsyncIterator[RpcClient]:
    client = RpcClient()
    try:
        yield await client.connect(host, port)
    finally:
        client.close()
        await asyncio.sleep(0)  # the transport closes in the loop's next round


async def _port_of(host: str, mapper_port: int, interface: Interface) -> int:
    async with _connected(host, mapper_port) as client:
        await client.bind(MAPPER)
        asked = tower_of(interface.syntax, 0, "0.0.0.0")
        found = await client.call(MAPPER, 3, MapIn(None, asked, NIL, 4))
    towers = [one for one in found.towers.items if one is not None]
    return port_of_tower(towers[0].octets) if towers else 0


@asynccontextmanager
async def _opened(
    queue: str, access: int, where: dict[str, Any]
) -> AsyncIterator[tuple[RpcClient, bytes]]:
    try:
        name: Any = parse_format_name(queue)
    except QueueNameError as error:
        raise click.UsageError(error.reason) from None
    host = where["host"]
    port = where["port"] or await _port_of(host, where["mapper_port"], REMOTE_READ)
    if not port:
        raise RpcFailed(f"{host} has no remote read registered")
    async with _connected(host, port) as client:
        provider, auth_type = _provider(where)
        level = AuthLevel.INTEGRITY if where["level"] == "integrity" else AuthLevel.PRIVACY
        await client.bind(
            REMOTE_READ,
            provider=provider,
            auth_type=auth_type,
            level=level if provider is not None else AuthLevel.NONE,
        )
        given = OpenIn(format_of(name), access, 0, secrets.token_bytes(16), 1, 6, 1, 7601, 0)
        found = await client.call(REMOTE_READ, 2, given)
        yield client, found.handle


def _provider(where: dict[str, Any]) -> tuple[Provider | None, int]:
    if where["kerberos"]:
        try:
            return SpnegoClient(KerberosClient(where["host"]), OID_KERBEROS), AuthType.SPNEGO
        except KerberosMissing as error:
            raise click.ClickException(str(error)) from None
    if not where["user"]:
        return None, 0
    password = where["password"]
    if password is None:
        password = click.prompt("Password", hide_input=True, err=True)
    ntlm = NtlmClient(where["user"], password, where["domain"], secrets.token_bytes)
    if where["spnego"]:
        return SpnegoClient(ntlm), AuthType.SPNEGO
    return ntlm, AuthType.NTLM


def _shown(syntax: Syntax) -> str:
    name = _KNOWN.get(syntax.uuid, "")
    return f"{guid_text(syntax.uuid).lower()} {syntax.major}.{syntax.minor} {name}".rstrip()


def _demand(status: int) -> None:
    if status:
        raise Fault(status)
