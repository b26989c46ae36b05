"""`qm peer`: other queue managers, whose messages this one remembers."""

from __future__ import annotations

from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.guid import Guid
from qm.cli.lib.output import confirm, instant, output_option, show_one, show_rows, yes_option
from qm.cli.lib.pages import all_pages

_COLUMNS = ("queue_manager", "address", "pins", "heard", "destinations", "history_rows")


@click.group()
def peer() -> None:
    """Show and forget other queue managers that send to this one."""


@peer.command("list")
@click.option("--address", default="", help="Only those bound to, or counted at, this address.")
@output_option
@connected
def list_peers(connection: Connection, address: str, output: str) -> None:
    """List queue managers of which messages are remembered, and the address each speaks from."""
    from qm.pb import control_pb2

    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.peers.ListPeers,
            lambda token: control_pb2.ListPeersRequest(page_token=token, address=address),
            "peers",
        )
    )
    show_rows(map(_row, found), _COLUMNS, output)


@peer.command()
@click.argument("queue_manager", type=Guid())
@output_option
@connected
def show(connection: Connection, queue_manager: bytes, output: str) -> None:
    """Show where QUEUE_MANAGER, a GUID, is bound to, and how far its sequences came."""
    from qm.pb import control_pb2

    first = control_pb2.GetPeerRequest(queue_manager=queue_manager, page_size=1)
    reply: Any = connection.run(lambda wire: wire.call(lambda stubs: stubs.peers.GetPeer, first))
    sequences = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.peers.GetPeer,
            lambda token: control_pb2.GetPeerRequest(queue_manager=queue_manager, page_token=token),
            "sequences",
        )
    )
    shown = _row(reply.peer)
    shown["sequences"] = [
        {
            "queue_id": one.queue_id,
            "sequence": f"{one.last.sequence_identifier:#x}",
            "number": one.last.sequence_number,
            "rejected": one.reject_count,
            "last_access": instant(one.last_access_ms // 1000),
        }
        for one in sequences
    ]
    show_one(shown, output)


@peer.command()
@click.argument("queue_manager", type=Guid())
@click.option(
    "--address-only",
    is_flag=True,
    help="Only where its GUID is bound to: the next address from which it sends counts.",
)
@yes_option
@changing
def forget(connection: Connection, queue_manager: bytes, address_only: bool, yes: bool) -> None:
    """Forget QUEUE_MANAGER, a GUID, which is gone or has moved.

    Without --address-only its duplicates are no longer recognized, and one that still sends cannot
    continue its transactional sequences.
    """
    from qm.names.guid import guid_text
    from qm.pb import control_pb2

    what = "the address" if address_only else "everything"
    confirm(f"Forget {what} of {guid_text(queue_manager)}?", yes=yes)
    request = control_pb2.ForgetPeerRequest(queue_manager=queue_manager, address_only=address_only)
    connection.run(lambda wire: wire.call(lambda stubs: stubs.peers.ForgetPeer, request))


def _row(found: Any) -> dict[str, Any]:
    from qm.names.guid import guid_text

    return {
        "queue_manager": guid_text(found.queue_manager),
        "address": found.address,
        "pins": ", ".join(found.pins),
        "bound_since": instant(found.bound_since_ms // 1000),
        "heard": instant(found.heard_ms // 1000),
        "counted_at": found.counted_at,
        "destinations": found.streams,
        "history_rows": found.history_rows,
    }
