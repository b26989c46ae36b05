"""`qm log`: the replicated log of a node, read directly from its folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from qm.cli.lib.output import instant, output_option, show_one, show_rows

if TYPE_CHECKING:
    from qm.node.log_reading import EntryInfo, NodeLog, Summary

_T = TypeVar("_T")

_COLUMNS = ("index", "term", "time", "kind", "size_bytes", "commands")
_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))


@click.group()
def log() -> None:
    """Read the replicated log of a node in its folder. Nothing but `skip` changes anything.

    The node may run: you see what it has written so far. It drops old segments when it needs their
    space; use a copy of the folder for a stable view.
    """


@log.command()
@_FOLDER
@click.option(
    "--first",
    type=click.IntRange(1),
    help="Index of the first entry; default: the last COUNT entries.",
)
@click.option("--count", type=click.IntRange(1), default=50, show_default=True)
@output_option
def dump(folder: Path, first: int | None, count: int, output: str) -> None:
    """Print entries in readable form, oldest first; never the bodies of messages.

    FOLDER is a node's data folder, or that of the segments. Exit code 1: the log is damaged.
    """
    with _opened(folder) as opened:
        begin = opened.summary().last_index - count + 1 if first is None else first
        rows = _guarded(lambda: [_row(each) for each in opened.entries(begin, begin + count - 1)])
    show_rows(rows, _COLUMNS, output)


@log.command()
@_FOLDER
@output_option
def verify(folder: Path, output: str) -> None:
    """Check every record of the log and read every entry.

    Records are chained by checksums from one to the next over all segments. Exit code: 0 sound; 1
    damaged, with file, byte and entry. A torn end after the synced part is not damage: the node
    cuts it when it starts.
    """
    with _opened(folder) as opened:
        found = opened.summary()
        commands = _guarded(
            lambda: sum(len(each.commands) for each in opened.entries(1, found.last_index))
        )
    show_one(_summary(found) | {"commands": commands, "sound": True}, output)


@log.command()
@_FOLDER
@click.argument("index", type=click.IntRange(1))
@click.argument("sha256")
def skip(folder: Path, index: int, sha256: str) -> None:
    """Have a stopped node leave out the entry INDEX, which no build can read.

    FOLDER is the node's data folder. The node's last line says INDEX and SHA256. Do it for every
    node of the cluster before you start them again: a node that applies what others leave out
    would differ from them, and is found and stopped. Exit code 1: it can be read, or it is another
    entry.
    """
    from qm.node.replica.skipped_entries import SkippedEntries

    with _opened(folder) as opened:
        data = _guarded(lambda: opened.data(index))
    try:
        SkippedEntries(folder).add(index, data, sha256)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"entry {index} is left out from the next start on")


def _opened(folder: Path) -> NodeLog:
    from qm.node.log_reading import NodeLog

    return _guarded(lambda: NodeLog(folder))


def _guarded(work: Callable[[], _T]) -> _T:
    from qm.node.log_reading import LogUnreadable

    try:
        return work()
    except LogUnreadable as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _row(entry: EntryInfo) -> dict[str, Any]:
    return {
        "index": entry.index,
        "term": entry.term,
        "time": instant(entry.time_ms // 1000),
        "leader": entry.leader,
        "kind": entry.kind,
        "size_bytes": entry.size_bytes,
        "commands": list(entry.commands),
    }


def _summary(found: Summary) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "first_index": found.first_index,
        "last_index": found.last_index,
        "last_term": found.last_term,
        "synced_index": found.synced_index,
        "snapshot_index": found.snapshot_index,
        "term": found.term,
        "voted_for": found.voted_for,
        "commit_index": found.commit_index,
        "voters": list(found.configuration.voters),
        "learners": list(found.configuration.learners),
        "segments": [
            {
                "name": segment.name,
                "first_index": segment.first_index,
                "last_index": segment.last_index,
                "used_bytes": segment.used_bytes,
            }
            for segment in found.segments
        ],
    }
