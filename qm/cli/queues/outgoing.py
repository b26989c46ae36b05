"""`qm outgoing`: messages waiting for other queue managers."""

from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import QueueName
from qm.cli.lib.output import output_option, show_one, show_rows
from qm.cli.lib.pages import all_pages

_COLUMNS = ("format_name", "state", "waiting", "unacknowledged", "unprocessed", "bytes")


@click.group()
def outgoing() -> None:
    """Show and control queues of messages for other queue managers."""


@outgoing.command("list")
@output_option
@connected
def list_outgoing(connection: Connection, output: str) -> None:
    """List outgoing queues.

    Waiting: in the queue. Unacknowledged: transactional messages that were sent but have no order
    acknowledgment. Unprocessed: arrived, but not received by an application yet.
    """
    from qm.pb import control_pb2

    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.outgoing.ListOutgoing,
            lambda token: control_pb2.ListOutgoingRequest(page_token=token),
            "queues",
        )
    )
    show_rows(map(_row, found), _COLUMNS, output)


@outgoing.command()
@click.argument("name", type=QueueName())
@output_option
@connected
def show(connection: Connection, name: str, output: str) -> None:
    """Show the connection and the transactional link of the outgoing queue NAME."""
    show_one(_details(_ask(connection, name, "GetOutgoing")), output)


@outgoing.command()
@click.argument("name", type=QueueName())
@changing
def pause(connection: Connection, name: str) -> None:
    """Stop sending from the outgoing queue NAME."""
    _ask(connection, name, "Pause")


@outgoing.command()
@click.argument("name", type=QueueName())
@changing
def resume(connection: Connection, name: str) -> None:
    """Continue sending from the outgoing queue NAME."""
    _ask(connection, name, "Resume")


@outgoing.command()
@click.argument("name", type=QueueName())
@changing
def resend(connection: Connection, name: str) -> None:
    """Resend now what is waiting for an order acknowledgment."""
    _ask(connection, name, "Resend")


@outgoing.command()
@click.argument("name", type=QueueName())
@click.argument("priority", type=click.IntRange(-32768, 32767))
@changing
def priority(connection: Connection, name: str, priority: int) -> None:
    """Send messages of the outgoing queue NAME before others to the same host.

    PRIORITY is added to each message's own; it is 0 unless set.
    """
    from qm.cli.queues.queue import queue_name
    from qm.client.values import value_of
    from qm.pb import control_pb2

    async def work(wire: Any) -> None:
        request = control_pb2.SetQueueRequest(
            queue=await queue_name(wire, name), changes={"base_priority": value_of(priority)}
        )
        await wire.call(lambda stubs: stubs.queues.SetQueue, request)

    connection.run(work)


def _ask(connection: Connection, name: str, method: str) -> Any:
    from qm.cli.queues.queue import queue_name
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.GetOutgoingRequest(queue=await queue_name(wire, name))
        return await wire.call(lambda stubs: getattr(stubs.outgoing, method), request)

    return connection.run(work)


def _row(found: Any) -> dict[str, Any]:
    from qm.pb import control_pb2

    return {
        "format_name": found.format_name,
        "queue_id": found.queue_id,
        "state": control_pb2.OutgoingState.Name(found.state).lower(),
        "waiting": found.message_count,
        "unacknowledged": found.unacked_count,
        "unprocessed": found.unread_count,
        "bytes": found.total_bytes,
        "base_priority": found.base_priority,
        "last_error": found.last_error,
    }


def _details(found: Any) -> dict[str, Any]:
    return _row(found) | {
        "next_hops": list(found.next_hops),
        "history": list(found.connection_history),
        "next": _place(found.next),
        "last_acknowledged": _place(found.last_acked),
        "first_unacknowledged": _place(found.first_unacked),
        "last_unacknowledged": _place(found.last_unacked),
        "resends": found.resend_count,
        "next_resend_ms": found.next_resend_ms,
    }


def _place(place: Any) -> dict[str, int]:
    return {
        "sequence": place.sequence_identifier,
        "number": place.sequence_number,
        "previous": place.previous_number,
    }
