"""`qm context`: clusters by name, so that commands work in any folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.contexts import (
    CONTEXTS_MAX,
    Context,
    Contexts,
    find_context,
    read_contexts,
    write_contexts,
)
from qm.cli.lib.output import output_option, show_one, show_rows

NAME_MAX_CHARS: Final = 64
_COLUMNS: Final = ("name", "current", "endpoints", "certificate")


@click.group()
def context() -> None:
    """Name clusters, and choose the one that commands speak to."""


@context.command()
@click.argument("name")
@click.option("--server-name", default="", help="Name in the nodes' certificates.")
@click.option("--use", "is_current", is_flag=True, help="Make it the current one.")
@connected
def add(connection: Connection, name: str, server_name: str, is_current: bool) -> None:
    """Keep a cluster as NAME: the one of the options, or the dev cluster of this folder.

    The first context becomes the current one. A NAME that exists is replaced.
    """
    if not name.isprintable() or not 0 < len(name) <= NAME_MAX_CHARS:
        raise click.UsageError(f"a name has 1 to {NAME_MAX_CHARS} printable characters")
    contexts = read_contexts()
    if len(contexts.contexts) >= CONTEXTS_MAX:
        raise click.UsageError(f"there are {CONTEXTS_MAX} contexts: remove some")
    contexts.contexts[name] = Context(
        connection.endpoints,
        _absolute(connection.authority),
        _absolute(connection.certificate),
        _absolute(connection.key),
        server_name or connection.server_name,
    )
    if is_current or not contexts.current:
        contexts.current = name
    write_contexts(contexts)


@context.command("list")
@output_option
def list_contexts(output: str) -> None:
    """List contexts; the current one is used where a folder has no dev cluster."""
    contexts = read_contexts()
    rows = [_row(name, one, contexts) for name, one in sorted(contexts.contexts.items())]
    show_rows(rows, _COLUMNS, output)


@context.command()
@click.argument("name", required=False)
@output_option
def show(name: str | None, output: str) -> None:
    """Show the context NAME, or the current one."""
    contexts = read_contexts()
    if not (name or contexts.current):
        raise click.UsageError("there is no current context: `qm context use NAME`")
    wanted = name or contexts.current
    show_one(_row(wanted, find_context(contexts, wanted), contexts), output)


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the current context."""
    contexts = read_contexts()
    find_context(contexts, name)
    contexts.current = name
    write_contexts(contexts)


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget the context NAME. The cluster and the PEM files stay."""
    contexts = read_contexts()
    find_context(contexts, name)
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = ""
    write_contexts(contexts)


def _row(name: str, one: Context, contexts: Contexts) -> dict[str, object]:
    return {
        "name": name,
        "current": name == contexts.current,
        "endpoints": list(one.endpoints),
        "authority": one.authority,
        "certificate": one.certificate,
        "key": one.key,
        "server_name": one.server_name,
    }


def _absolute(file: Path | None) -> str:
    return "" if file is None else str(file.absolute())
