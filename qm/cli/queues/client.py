"""`qm client`: sessions of applications, and the queues that they have open."""

from __future__ import annotations

from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.output import confirm, instant, output_option, show_rows, yes_option
from qm.cli.lib.pages import all_pages

_COLUMNS = ("client_id", "principal", "open", "lease_until", "unconfirmed", "unconfirmed_bytes")
_OPEN_COLUMNS = ("handle", "queue", "access", "share_mode", "client_id")


@click.group()
def client() -> None:
    """Show and end the sessions of applications."""


@client.command("list")
@click.option(
    "--all", "with_closed", is_flag=True, help="Also list closed ones that are still remembered."
)
@output_option
@connected
def list_clients(connection: Connection, with_closed: bool, output: str) -> None:
    """List sessions: owner, end of the lease, and unconfirmed results."""
    from qm.pb import control_pb2

    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.clients.ListClients,
            lambda token: control_pb2.ListClientsRequest(page_token=token),
            "clients",
        )
    )
    show_rows([_row(each) for each in found if each.is_open or with_closed], _COLUMNS, output)


@client.command("opens")
@click.option("--client", "client_id", default="", help="Only those of this client.")
@output_option
@connected
def list_opens(connection: Connection, client_id: str, output: str) -> None:
    """List queues that clients have open, and how they share them."""
    from qm.pb import control_pb2

    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.clients.ListOpens,
            lambda token: control_pb2.ListOpensRequest(page_token=token, client_id=client_id),
            "opens",
        )
    )
    show_rows(map(_open_row, found), _OPEN_COLUMNS, output)


@client.command()
@click.argument("client_id")
@yes_option
@changing
def close(connection: Connection, client_id: str, yes: bool) -> None:
    """End the session of CLIENT_ID, whose process is gone or hangs.

    Its locks are released, its transactions aborted, and messages that it received but has not
    confirmed go to the dead-letter queue.
    """
    from qm.pb import control_pb2

    confirm(f"End the session of {client_id}?", yes=yes)
    request = control_pb2.CloseClientRequest(client_id=client_id)
    connection.run(lambda wire: wire.call(lambda stubs: stubs.clients.CloseClient, request))


def _row(found: Any) -> dict[str, Any]:
    return {
        "client_id": found.client_id,
        "principal": found.principal,
        "open": found.is_open,
        "lease_until": instant(found.lease_deadline_ms // 1000),
        "unconfirmed": found.unconfirmed_count,
        "unconfirmed_bytes": found.unconfirmed_bytes,
        "confirmed_upto": found.confirmed_upto,
        "highest_number": found.highest_number,
    }


def _open_row(found: Any) -> dict[str, Any]:
    from qm.pb import data_pb2

    return {
        "handle": found.handle,
        "queue": found.format_name,
        "queue_id": found.queue_id,
        "access": data_pb2.QueueAccess.Name(found.access).lower(),
        "share_mode": data_pb2.QueueShareMode.Name(found.share_mode).lower(),
        "client_id": found.client_id,
    }
