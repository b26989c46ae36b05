"""`qm message`: send, receive, peek at, move, copy, return and trace messages."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click

from qm.cli.lib.bodies import FORMS, append_nothing, read_body, shown_body, write_body
from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import QueueName
from qm.cli.lib.output import dry_run_option, instant, output_option, show_rows, yes_option
from qm.cli.queues.browse import (
    browse,
    browsed_row,
    confirm_choice,
    get_message,
    return_chosen,
)
from qm.cli.queues.trace import trace
from qm.client.search import message_id_text

COLUMNS = ("lookup_id", "label", "priority", "bytes", "arrived", "body")
_ACKNOWLEDGEMENTS = {
    "none": 0,
    "reach-queue": 5,
    "receive": 14,
    "nack-reach-queue": 4,
    "nack-receive": 12,
}


@click.group()
def message() -> None:
    """Send, receive, peek at, move, copy, return and trace messages."""


@message.command()
@click.argument("queue", type=QueueName())
@click.option("--body", help="The body as text.")
@click.option("--file", help="A file with the body, - for standard input; its bytes as they are.")
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="What to make of the text.  [default: text for --body, no change for --file]",
)
@click.option("--label", default="")
@click.option("--priority", type=click.IntRange(0, 7))
@click.option("--express", is_flag=True, help="Do not request that it survives a restart.")
@click.option("--transactional", is_flag=True, help="Send it in its own transaction.")
@click.option("--reach-queue-s", type=click.IntRange(0), help="Time to reach its queue.")
@click.option("--receive-s", type=click.IntRange(0), help="Time to be received.")
@click.option("--ack", type=click.Choice(list(_ACKNOWLEDGEMENTS)), default="none")
@click.option("--admin-queue", type=QueueName(), default="", help="Queue for acknowledgments.")
@click.option("--response-queue", type=QueueName(), default="")
@click.option("--journal", is_flag=True, help="Keep a copy when it has been sent.")
@click.option("--dead-letter", is_flag=True, help="Keep a copy if it is not delivered.")
@click.option("--correlation-id", metavar="HEX", default="", help="20 bytes.")
@click.option("--tag", type=click.IntRange(0, 0xFFFF_FFFF), default=0)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--sign",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Sign with the certificate and key in this file, PEM or PKCS#12.",
)
@click.option("--sign-password", envvar="QM_SIGN_PASSWORD", help="[env: QM_SIGN_PASSWORD]")
@click.option(
    "--signature",
    type=click.Choice(["sig10", "sig20", "sig30"]),
    default="sig20",
    show_default=True,
    help="Version of the signature; several queues have sig30.",
)
@click.option(
    "--hash",
    type=click.Choice(["md5", "sha1", "sha256", "sha512"]),
    default="sha512",
    show_default=True,
)
@click.option("--sender-sid", metavar="S-1-...", help="Whose certificate it is at the receiver.")
@click.option(
    "--encrypt",
    type=click.Choice(["base", "enhanced", "advanced"]),
    help="Encrypt the body on its way: 40-bit, 128-bit, or AES.",
)
@click.option("--cipher", type=click.Choice(["rc2", "rc4", "aes128", "aes192", "aes256"]))
@dry_run_option
@output_option
@connected
def send(
    connection: Connection,
    queue: str,
    body: str | None,
    file: str | None,
    form: str | None,
    count: int,
    transactional: bool,
    dry_run: bool,
    output: str,
    **options: Any,
) -> None:
    """Send a message to QUEUE, a path name or format name.

    --sign uses a certificate with its private key, which stays here; --encrypt has the body
    encrypted on its way with the destination's public key of the directory.
    """
    payload, body_type = read_body(body, file, form)
    one = _message(payload, body_type, options)
    _secure(one, options)
    if dry_run:
        what = f"{count} messages" if count > 1 else "a message"
        click.echo(f"would send {what} of {len(payload)} bytes to {queue}", err=True)
        return

    async def work(client: Any) -> list[Any]:
        for name in ("response_queue", "administration_queue"):
            if getattr(one, name):
                setattr(one, name, client.format_name(getattr(one, name)))
        from qm.client.errors import MqError
        from qm.client.sending import SendRefused

        sent: list[Any] = []
        if transactional:
            async with client.transaction() as transaction:
                sent = await transaction.send(queue, *[one] * count)
        else:
            try:
                sent = await client.send(queue, *[one] * count)
            except SendRefused as error:
                if count > 1:
                    said = await _how_far(client.wire, queue, error, count)
                    raise MqError(error.code, said) from error
                raise
        return sent

    sent = connection.run_client(work)
    rows = [
        {
            "message_id": message_id_text(each.message_id),
            "lookup_id": [place for _, place in each.places],
        }
        for each in sent
    ]
    show_rows(rows, ("message_id", "lookup_id"), output)


async def _how_far(wire: Any, queue: str, error: Any, count: int) -> str:
    """Say how many messages were stored, which quota ended it, and how to go on."""
    from qm.cli.queues.queue import get_queue
    from qm.client.errors import ClientError

    stored, left = len(error.sent), count - len(error.sent)
    said = f"{stored} of {count} messages are stored, the next was refused: {error}"
    try:
        statistics = (await get_queue(wire, queue)).statistics
    except ClientError:
        statistics = None  # it is elsewhere, or not to be seen
    if statistics is not None and statistics.HasField("quota_bytes"):
        said += (
            f"; the queue's quota is {statistics.quota_bytes} bytes, of which"
            f" {statistics.quota_used_bytes} are used (`qm queue set '{queue}' --quota KB`)"
        )
    return f"{said}; to go on, send the other {left} with --count {left}"


def _message(payload: bytes, body_type: int, options: dict[str, Any]) -> Any:
    from qm.client.message import Message

    try:
        correlation_id = bytes.fromhex(options["correlation_id"])
    except ValueError as error:
        raise click.UsageError(f"--correlation-id is not hexadecimal text: {error}") from error
    return Message(
        body=payload,
        body_type=body_type,
        label=options["label"],
        priority=options["priority"],
        recoverable=not options["express"],
        time_to_reach_queue_s=options["reach_queue_s"],
        time_to_be_received_s=options["receive_s"],
        acknowledgements=_ACKNOWLEDGEMENTS[options["ack"]],
        administration_queue=options["admin_queue"],
        response_queue=options["response_queue"],
        journal=options["journal"],
        dead_letter=options["dead_letter"],
        correlation_id=correlation_id,
        application_tag=options["tag"],
    )


def _secure(one: Any, options: dict[str, Any]) -> None:
    """Say how a message is signed and encrypted. Raises click.UsageError."""
    from qm.client.signing import AuthenticationLevel, Signer, SigningFailed
    from qm.wire.enums import EncryptionAlgorithm, HashAlgorithm, PrivacyLevel

    if options["encrypt"]:
        one.privacy_level = int(PrivacyLevel[options["encrypt"].upper()])
    if options["cipher"]:
        one.encryption_algorithm = int(EncryptionAlgorithm[options["cipher"].upper()])
    if options["sign"] is None:
        return
    password = options["sign_password"]
    try:
        one.signer = Signer.load(options["sign"], password.encode() if password else None)
    except SigningFailed as error:
        raise click.UsageError(f"--sign: {error}") from None
    one.authentication_level = int(AuthenticationLevel[options["signature"].upper()])
    one.hash_algorithm = int(HashAlgorithm[options["hash"].upper()])
    if options["sender_sid"]:
        from qm.security.sid import sid_from_text
        from qm.wire.errors import ValueOutOfRange

        try:
            one.sender_id = sid_from_text(options["sender_sid"])
        except ValueOutOfRange as error:
            raise click.UsageError(f"--sender-sid: {error}") from None


def _reading(command: Any) -> Any:
    for option in (
        click.option("--count", type=click.IntRange(1), default=1, show_default=True),
        click.option(
            "--timeout",
            type=click.FloatRange(0),
            default=0.0,
            help="Seconds to wait for the first one.",
        ),
        click.option("--lookup-id", type=click.IntRange(1), help="Only this message."),
        click.option(
            "--save-body",
            "save_to",
            metavar="FILE",
            help="Write the body's bytes to FILE, - for standard output; one message only.",
        ),
        click.option(
            "--body",
            "form",
            type=click.Choice(["auto", *FORMS, "none"]),
            default="auto",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


@message.command()
@click.argument("queue", type=QueueName())
@_reading
@output_option
@connected
def receive(
    connection: Connection,
    queue: str,
    count: int,
    timeout: float,
    lookup_id: int | None,
    save_to: str | None,
    form: str,
    output: str,
) -> None:
    """Take messages from QUEUE. Exit code 1: there was none."""
    from qm.client.queue import exactly
    from qm.client.reading import FIRST

    _check_save(save_to, count)

    async def work(client: Any) -> list[Any]:
        opened = await client.open_queue(queue)
        selection = FIRST if lookup_id is None else exactly(lookup_id)
        found = list(await opened.receive_many(count, timeout, selection=selection))
        if lookup_id is None:
            await _fill(found, count, lambda: opened.receive_many(count - len(found), 0.0))
        # Before the cluster is told: what cannot be written becomes a dead letter.
        _save(found, save_to)
        _show(found, form, output, is_saved=save_to is not None)
        await client.close_queue(opened)
        return found

    if not connection.run_client(work):
        sys.exit(1)


@message.command()
@click.argument("queue", type=QueueName())
@_reading
@click.option("--locked", is_flag=True, help="Show locked messages and who holds them.")
@output_option
@connected
def peek(
    connection: Connection,
    queue: str,
    count: int,
    timeout: float,
    lookup_id: int | None,
    save_to: str | None,
    form: str,
    locked: bool,
    output: str,
) -> None:
    """Peek at messages of QUEUE. Exit code 1: there was none."""
    _check_save(save_to, count)
    if locked:
        _show_locked(connection, queue, form, output)
        return
    from qm.client.client import Access
    from qm.client.queue import after, exactly
    from qm.client.reading import FIRST

    async def work(client: Any) -> list[Any]:
        opened = await client.open_queue(queue, Access.PEEK)
        selection = FIRST if lookup_id is None else exactly(lookup_id)
        found = list(await opened.peek_many(count, timeout, selection=selection))

        def more() -> Any:
            behind = after(found[-1].lookup_identifier)
            return opened.peek_many(count - len(found), selection=behind)

        if lookup_id is None:
            await _fill(found, count, more)
        _save(found, save_to)
        await client.close_queue(opened)
        return found

    found = connection.run_client(work)
    _show(found, form, output, is_saved=save_to is not None)
    if not found:
        sys.exit(1)


@message.command()
@click.argument("queue", type=QueueName())
@click.argument("lookup_ids", nargs=-1, required=True, type=click.IntRange(1))
@click.option(
    "--to",
    "target",
    type=QueueName(),
    required=True,
    help="A subqueue of QUEUE, or its main queue.",
)
@connected
def move(connection: Connection, queue: str, lookup_ids: Sequence[int], target: str) -> None:
    """Move messages of QUEUE to a subqueue, or back."""
    from qm.client.client import Access
    from qm.client.errors import MqError
    from qm.client.queue import exactly
    from qm.wire.codes import ErrorCode

    async def work(client: Any) -> None:
        source = await client.open_queue(queue)
        destination = await client.open_queue(target, Access.MOVE)
        for lookup_id in lookup_ids:
            found = await source.peek(selection=exactly(lookup_id))
            if found is None:
                raise MqError(
                    ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, f"no message {lookup_id} in {queue}"
                )
            await source.move(found, destination)

    connection.run_client(work)


@message.command()
@click.argument("queue", type=QueueName())
@click.argument("lookup_ids", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--to", "targets", type=QueueName(), multiple=True, required=True, help="Repeatable.")
@connected
def copy(
    connection: Connection, queue: str, lookup_ids: Sequence[int], targets: Sequence[str]
) -> None:
    """Send messages of QUEUE to other queues again, as new messages."""

    async def work(client: Any) -> None:
        names = [client.format_name(target) for target in targets]
        for lookup_id in lookup_ids:
            found = await get_message(client.wire, queue, lookup_id)
            await _send_packet(client, names, found.packet)

    connection.run_client(work)


@message.command()
@click.argument("queue", type=QueueName())
@click.argument("lookup_id", type=click.IntRange(1))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@connected
def save(connection: Connection, queue: str, lookup_id: int, file: Path) -> None:
    """Write a message of QUEUE to FILE as a packet, also for `qm packet decode`; it stays
    queued.
    """
    found = connection.run(lambda wire: get_message(wire, queue, lookup_id))
    file.write_bytes(found.packet)


@message.command()
@click.argument("queue", type=QueueName())
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@connected
def load(connection: Connection, queue: str, file: Path) -> None:
    """Send the packet in FILE to QUEUE as a new message with the same properties."""
    packet = file.read_bytes()

    async def work(client: Any) -> None:
        await _send_packet(client, [client.format_name(queue)], packet)

    connection.run_client(work)


@message.command("return")
@click.argument("queue", type=QueueName())
@click.argument("lookup_ids", nargs=-1, type=click.IntRange(1))
@click.option("--all", "is_all", is_flag=True, help="Every message of QUEUE.")
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
def return_messages(
    connection: Connection,
    queue: str,
    lookup_ids: Sequence[int],
    is_all: bool,
    target: str,
    yes: bool,
    output: str,
) -> None:
    """Send messages of a dead-letter queue, a journal or a subqueue to their original
    destination.
    """
    confirm_choice(lookup_ids, f"Return every message of {queue}?", is_all=is_all, is_confirmed=yes)

    async def name_of(wire: Any) -> Any:
        from qm.cli.queues.queue import queue_name

        return await queue_name(wire, queue)

    return_chosen(connection, name_of, lookup_ids, target, output)


message.add_command(trace)


async def _fill(found: list[Any], count: int, more: Callable[[], Awaitable[Any]]) -> None:
    """Append messages until there are `count`, or `more` finds none."""
    while found and len(found) < count:
        added = await more()
        if not added:
            return
        found += added


async def _send_packet(client: Any, targets: Sequence[str], packet: bytes) -> None:
    """Send a packet again; a transactional one in its own transaction."""
    from qm.client.sending import is_transactional, send_packet

    if not is_transactional(packet):
        await send_packet(client.main, targets, packet)
        return
    async with client.transaction() as transaction:
        await send_packet(await transaction.session(), targets, packet, transaction.identifier)


def _show_locked(connection: Connection, queue: str, form: str, output: str) -> None:
    from qm.cli.queues.queue import queue_name
    from qm.pb import control_pb2

    async def work(wire: Any) -> list[Any]:
        found = await browse(wire, await queue_name(wire, queue))
        return [entry for entry in found if entry.state == control_pb2.POSITION_LOCKED]

    rows = [browsed_row(entry, form) for entry in connection.run(work)]
    show_rows(rows, ("lookup_id", "lock_owner", "label", "bytes", "arrived", "body"), output)
    if not rows:
        sys.exit(1)


def _check_save(save_to: str | None, count: int) -> None:
    """Whether a body can be written, before a message is taken for it."""
    if save_to is None:
        return
    if count > 1:
        raise click.UsageError("--save-body is for one message: leave --count away")
    if save_to != "-":
        append_nothing(save_to)


def _save(found: Sequence[Any], save_to: str | None) -> None:
    if found and save_to is not None:
        write_body(found[0].body, save_to)


def _show(found: Sequence[Any], form: str, output: str, *, is_saved: bool = False) -> None:
    if is_saved and output == "table":
        return
    rows = [
        {
            "lookup_id": each.lookup_identifier,
            "message_id": message_id_text(each.message_id),
            "label": each.label,
            "priority": each.priority,
            "bytes": len(each.body),
            "class": f"{each.message_class:04x}",
            "recoverable": each.is_recoverable,
            "transactional": each.is_transactional,
            "sent": instant(each.sent_time_s),
            "arrived": instant(each.arrived_time_s),
            "correlation_id": each.correlation_id,
            "tag": each.application_tag,
            "destination_queue": each.destination_queue,
            "response_queue": each.response_queue,
            "administration_queue": each.administration_queue,
            "body_type": each.body_type,
            "body": shown_body(each.body, each.body_type, form),
        }
        for each in found
    ]
    show_rows(rows, COLUMNS, output)
