"""Calls to a specific node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qm.cli.lib.preview import Preview

if TYPE_CHECKING:
    from qm.cli.lib.connection import Connection
    from qm.client.calls import Calls


async def list_members(wire: Calls) -> list[Any]:
    """Return the members, as control.proto has them."""
    from qm.pb import control_pb2

    request = control_pb2.ListMembersRequest()
    reply = await wire.call(lambda stubs: stubs.cluster.ListMembers, request)
    return list(reply.members)


def wire_to(connection: Connection, member: Any) -> Any:
    """Return a connection to one member only; the caller closes it."""
    from qm.node.config.addresses import host_and_port

    return wire_to_endpoint(connection, host_and_port(member.host, member.api_port))


def wire_to_endpoint(connection: Connection, endpoint: str) -> Any:
    """Return a connection to one of the endpoints only; the caller closes it."""
    from qm.client.calls import Calls

    wire = Calls((endpoint,), connection.tls())
    return Preview(wire) if connection.is_dry else wire


async def wire_to_name(connection: Connection, wire: Any, name: str) -> Any:
    """As `wire_to`, by name. Raises click.UsageError if the name is not a member's."""
    members = await list_members(wire)
    for member in members:
        if member.name == name:
            return wire_to(connection, member)
    known = ", ".join(sorted(member.name for member in members))
    raise click.UsageError(f"{name!r} is not a member; members are {known}")
