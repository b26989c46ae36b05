"""`qm journal` and `qm deadletter`: browse, replay and return copies and failed messages."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from qm.cli.lib.bodies import FORMS
from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import QueueName
from qm.cli.lib.output import output_option, show_rows, yes_option
from qm.cli.queues.browse import browse, browsed_row, confirm_choice, return_chosen

_BODY = click.option(
    "--body",
    "form",
    type=click.Choice(["auto", *FORMS, "none"]),
    default="auto",
    show_default=True,
)
_LIMIT = click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
_COLUMNS = ("lookup_id", "label", "bytes", "arrived", "body")


@click.group()
def journal() -> None:
    """Browse and replay copies of messages that were received or sent to other queue managers."""


@journal.command("list")
@click.argument("queue", default="", type=QueueName())
@_LIMIT
@_BODY
@output_option
@connected
def list_journal(connection: Connection, queue: str, limit: int, form: str, output: str) -> None:
    """Browse the journal of QUEUE; without QUEUE, that of messages sent to other queue managers."""

    async def work(wire: Any) -> list[Any]:
        return await browse(wire, await _journal_name(wire, queue), limit=limit)

    show_rows([browsed_row(each, form) for each in connection.run(work)], _COLUMNS, output)


@journal.command()
@click.argument("queue", type=QueueName())
@click.argument("lookup_ids", nargs=-1, type=click.IntRange(1))
@click.option("--all", "is_all", is_flag=True, help="Every copy.")
@click.option(
    "--to",
    "target",
    type=QueueName(),
    default="",
    help="A queue other than the message's destination.",
)
@yes_option
@output_option
@changing
def replay(
    connection: Connection,
    queue: str,
    lookup_ids: Sequence[int],
    is_all: bool,
    target: str,
    yes: bool,
    output: str,
) -> None:
    """Put copies from the journal of QUEUE back into the queue they came from."""
    question = f"Replay the whole journal of {queue}?"
    confirm_choice(lookup_ids, question, is_all=is_all, is_confirmed=yes)
    return_chosen(connection, lambda wire: _journal_name(wire, queue), lookup_ids, target, output)


@click.group()
def deadletter() -> None:
    """Browse and return messages of the whole cluster that could not be delivered."""


_TRANSACTIONAL = click.option(
    "--transactional", is_flag=True, help="Use the queue of transactional dead letters."
)


@deadletter.command("list")
@_TRANSACTIONAL
@click.option(
    "--reason", "reasons", multiple=True, metavar="CLASS", help="Reason, such as Q_PURGED."
)
@_LIMIT
@_BODY
@output_option
@connected
def list_deadletter(
    connection: Connection,
    transactional: bool,
    reasons: Sequence[str],
    limit: int,
    form: str,
    output: str,
) -> None:
    """Browse dead letters, all or only those with given reasons."""
    classes = [class_of(reason) for reason in reasons]

    async def work(wire: Any) -> list[Any]:
        name = await _dead_letter_name(wire, transactional=transactional)
        return await browse(wire, name, limit=limit, reasons=classes)

    columns = ("lookup_id", "reason", *_COLUMNS[1:])
    show_rows([browsed_row(each, form) for each in connection.run(work)], columns, output)


@deadletter.command()
@_TRANSACTIONAL
@output_option
@connected
def reasons(connection: Connection, transactional: bool, output: str) -> None:
    """Count dead letters by reason. Exit code 1: there are some."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        name = await _dead_letter_name(wire, transactional=transactional)
        request = control_pb2.CountClassesRequest(queue=name)
        return await wire.call(lambda stubs: stubs.messages.CountClasses, request)

    reply = connection.run(work)
    rows = [
        {"reason": each.reason, "class": f"{each.message_class:04x}", "count": each.count}
        for each in reply.counts
    ]
    show_rows(rows, ("reason", "class", "count"), output)
    if rows:
        sys.exit(1)


@deadletter.command("return")
@click.argument("lookup_ids", nargs=-1, type=click.IntRange(1))
@click.option("--all", "is_all", is_flag=True, help="Every dead letter.")
@click.option(
    "--to",
    "target",
    type=QueueName(),
    default="",
    help="A queue other than the message's destination.",
)
@_TRANSACTIONAL
@yes_option
@output_option
@changing
def return_deadletter(
    connection: Connection,
    lookup_ids: Sequence[int],
    is_all: bool,
    target: str,
    transactional: bool,
    yes: bool,
    output: str,
) -> None:
    """Send dead letters to their original destination."""
    confirm_choice(lookup_ids, "Return every dead letter?", is_all=is_all, is_confirmed=yes)
    return_chosen(
        connection,
        lambda wire: _dead_letter_name(wire, transactional=transactional),
        lookup_ids,
        target,
        output,
    )


def class_of(reason: str) -> int:
    """Return the MessageClass of a name or of hexadecimal digits. Raises UsageError."""
    from qm.wire.message_class import MessageClass

    name = reason.upper().replace("-", "_").removeprefix("MQMSG_CLASS_")
    for known in (name, f"NACK_{name}"):
        if known in MessageClass.__members__:
            return int(MessageClass[known])
    try:
        return int(reason, 16)
    except ValueError:
        names = ", ".join(n.removeprefix("NACK_") for n in MessageClass.__members__)
        raise click.UsageError(f"{reason!r} is not a reason; known are {names}") from None


async def _journal_name(wire: Any, queue: str) -> Any:
    """Return the QueueName of a queue's journal, or of the system's."""
    from qm.cli.queues.queue import get_queue
    from qm.pb import control_pb2

    if not queue:
        return await _system_queue(wire, "system_journal")
    return control_pb2.QueueName(queue_id=(await get_queue(wire, queue)).journal_queue_id)


async def _dead_letter_name(wire: Any, *, transactional: bool) -> Any:
    return await _system_queue(
        wire, "transactional_dead_letter" if transactional else "dead_letter"
    )


async def _system_queue(wire: Any, kind: str) -> Any:
    from qm.cli.queues.queue import queues_like
    from qm.pb import control_pb2

    (found,) = await queues_like(wire, kinds=(kind,))
    return control_pb2.QueueName(queue_id=found.queue_id)
