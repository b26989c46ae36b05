"""`qm transaction`: transactions without an outcome, and those in doubt."""

from __future__ import annotations

from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.output import confirm, instant, output_option, show_rows, yes_option
from qm.cli.lib.pages import all_pages

_COLUMNS = ("identifier", "state", "in_doubt", "owner", "coordinator", "operations", "deadline")
_OPERATION_COLUMNS = ("number", "operation", "queue_id", "lookup_identifier", "target_queue_id")
_STATES = ("active", "prepared", "committed", "aborted")


@click.group()
def transaction() -> None:
    """Show transactions, and decide those whose coordinator is gone."""


@transaction.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Repeatable; default: those without an outcome.",
)
@output_option
@connected
def list_transactions(connection: Connection, states: tuple[str, ...], output: str) -> None:
    """List transactions with their owner and time limit."""
    from qm.pb import control_pb2

    wanted = [control_pb2.TransactionState.Value(state.upper()) for state in states]
    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.clients.ListTransactions,
            lambda token: control_pb2.ListTransactionsRequest(page_token=token, states=wanted),
            "transactions",
        )
    )
    show_rows(map(_row, found), _COLUMNS, output)


@transaction.command()
@click.argument("identifier")
@output_option
@connected
def show(connection: Connection, identifier: str, output: str) -> None:
    """Show what the transaction IDENTIFIER, which has no outcome yet, has done so far."""
    from qm.pb import control_pb2

    guid = _guid(identifier)
    found = connection.run(
        lambda wire: all_pages(
            wire,
            lambda stubs: stubs.clients.ListOperations,
            lambda token: control_pb2.ListOperationsRequest(identifier=guid, page_token=token),
            "operations",
        )
    )
    rows = (
        {
            "number": one.number,
            "operation": control_pb2.OperationType.Name(one.type).lower(),
            "queue_id": one.queue_id,
            "lookup_identifier": one.lookup_identifier,
            "target_queue_id": one.target_queue_id,
        }
        for one in found
    )
    show_rows(rows, _OPERATION_COLUMNS, output)


@transaction.command()
@click.argument("identifier")
@yes_option
@changing
def commit(connection: Connection, identifier: str, yes: bool) -> None:
    """Commit the prepared transaction IDENTIFIER in its coordinator's place.

    Its other participants must have committed, too: this is not checked.
    """
    _resolve(connection, identifier, yes=yes, commits=True)


@transaction.command()
@click.argument("identifier")
@yes_option
@changing
def abort(connection: Connection, identifier: str, yes: bool) -> None:
    """Abort the transaction IDENTIFIER: its sends are discarded, its receives returned."""
    _resolve(connection, identifier, yes=yes, commits=False)


def _resolve(connection: Connection, identifier: str, *, yes: bool, commits: bool) -> None:
    from qm.pb import control_pb2

    guid = _guid(identifier)
    confirm(f"{'Commit' if commits else 'Abort'} {identifier}?", yes=yes)
    request = control_pb2.ResolveTransactionRequest(identifier=guid, commit=commits)
    connection.run(lambda wire: wire.call(lambda stubs: stubs.clients.ResolveTransaction, request))


def _guid(identifier: str) -> bytes:
    from qm.names.guid import guid_from_text

    guid = guid_from_text(identifier)
    if guid is None:
        raise click.UsageError(f"{identifier!r} is not a GUID: see `qm transaction list`")
    return guid


def _row(found: Any) -> dict[str, Any]:
    from qm.names.guid import guid_text
    from qm.pb import control_pb2

    return {
        "identifier": guid_text(found.identifier),
        "state": control_pb2.TransactionState.Name(found.state).lower(),
        "in_doubt": found.is_in_doubt,
        "owner": found.owner,
        "coordinator": found.coordinator,
        "operations": found.operation_count,
        "deadline": instant(found.deadline_ms // 1000),
        "outcome": instant(found.outcome_ms // 1000),
    }
