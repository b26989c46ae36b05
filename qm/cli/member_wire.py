"""Calls that one certain node is to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from qm.cli.connection import Connection
    from qm.client.wire import Wire


async def list_members(wire: Wire) -> list[Any]:
    """Return the members, as control.proto has them."""
    from qm.pb import control_pb2

    request = control_pb2.ListMembersRequest()
    reply = await wire.call(lambda stubs: stubs.cluster.ListMembers, request)
    return list(reply.members)


def wire_to(connection: Connection, member: Any) -> Wire:
    """Return a wire to one member alone; to be closed."""
    from qm.node.addresses import host_and_port

    return wire_to_endpoint(connection, host_and_port(member.host, member.api_port))


def wire_to_endpoint(connection: Connection, endpoint: str) -> Wire:
    """Return a wire to one of the endpoints alone; to be closed."""
    from qm.client.wire import Wire

    return Wire((endpoint,), connection.tls())


async def wire_to_name(connection: Connection, wire: Wire, name: str) -> Wire:
    """As `wire_to`, by name. Raises click.UsageError for a stranger."""
    members = await list_members(wire)
    for member in members:
        if member.name == name:
            return wire_to(connection, member)
    known = ", ".join(sorted(member.name for member in members))
    raise click.UsageError(f"{name!r} is no member; members are {known}")
