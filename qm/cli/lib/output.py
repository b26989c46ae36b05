"""Output of results: a table for people, JSON or YAML for programs; and confirmation questions."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from qm.cli.lib.text import printable

Row = Mapping[str, Any]
_Command = TypeVar("_Command", bound=Callable[..., Any])

FORMATS = ("table", "json", "yaml")
DRY_RUN = "quorate.dry_run"
"""Key in a click context's `meta`: whether the command only shows what it would do."""
LISTED_MAX_CHARS = 32
"""Width of the first text in a list: longer ones get lines of their own."""


def output_option(command: _Command) -> _Command:
    """Add `-o` to a command, which gets the format as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Output format: a table for people, JSON or YAML for programs.",
    )(command)


def yes_option(command: _Command) -> _Command:
    """Add `--yes` to a command, which skips its question."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def dry_run_option(command: _Command) -> _Command:
    """Add `--dry-run` to a command."""
    return click.option("--dry-run", is_flag=True, help="Only show what would happen.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an action that cannot be undone; a No ends the command with exit code 1."""
    if not yes and not click.get_current_context().meta.get(DRY_RUN):
        click.confirm(question, abort=True, err=True)


def show_rows(rows: Iterable[Row], columns: Sequence[str], output: str) -> None:
    """Print several items. A table shows `columns`; the other formats show everything."""
    items = list(rows)
    if output == "json":
        click.echo(json.dumps([_plain(item) for item in items], indent=1))
    elif output == "yaml":
        click.echo(_yaml([_plain(item) for item in items]), nl=False)
    else:
        _print_table(items, columns)


def sortable(value: Any) -> Any:
    """Return what rows are sorted by: nothing comes before anything, texts without case."""
    return (value is not None, value.lower() if isinstance(value, str) else value or 0)


def show_one(item: Row, output: str) -> None:
    """Print one item with everything known about it."""
    if output == "json":
        click.echo(json.dumps(_plain(item), indent=1))
    elif output == "yaml":
        click.echo(_yaml(_plain(item)), nl=False)
    else:
        width = max((len(name) for name in item), default=0)
        for name, value in item.items():
            if inner := _lines_within(value):
                click.echo(name)
                for line in inner:
                    click.echo(f"  {line}".rstrip())
            else:
                click.echo(f"{name:<{width}}  {_cell(value)}".rstrip())


def instant(epoch_s: int | None) -> str:
    """Return a time in a form for people and programs; "" for none."""
    if not epoch_s:
        return ""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat().replace("+00:00", "Z")


def attribute_shown(name: str, value: Any) -> Any:
    """Return an attribute in readable form: GUIDs and times as text."""
    from qm.names.guid import GUID_SIZE_BYTES, guid_text

    if isinstance(value, bytes) and len(value) == GUID_SIZE_BYTES:
        return guid_text(value) if any(value) else ""
    if isinstance(value, int) and name.endswith("_time"):
        return instant(value)
    return value


def _lines_within(value: Any) -> list[str]:
    """Return the lines to print below a name; none for a value that fits next to it."""
    match value:
        case dict():
            inner = max((len(key) for key in value), default=0)
            return [f"{key:<{inner}}  {_cell(each)}" for key, each in value.items()]
        case [dict() as first, *_]:
            return _table(value, list(first))
        case [str() as first, _, *_] if len(first) > LISTED_MAX_CHARS:
            return [_cell(each) for each in value]
    return []


def _print_table(items: Sequence[Row], columns: Sequence[str]) -> None:
    """Print columns as wide as their contents: nothing is cut, so that it can be copied."""
    for line in _table(items, columns):
        click.echo(line)


def _table(items: Sequence[Row], columns: Sequence[str]) -> list[str]:
    from rich.cells import cell_len  # slow to load, and only needed here

    numbers = [bool(items) and all(type(i.get(c)) is int for i in items) for c in columns]
    lines = [[column.upper().replace("_", " ") for column in columns]]
    lines += [[_cell(item.get(column)) for column in columns] for item in items]
    widths = [max(cell_len(line[k]) for line in lines) for k in range(len(columns))]
    shown = []
    for line in lines:
        cells = []
        for text, width, is_number in zip(line, widths, numbers, strict=True):
            space = " " * (width - cell_len(text))
            cells.append(space + text if is_number else text + space)
        shown.append("  ".join(cells).rstrip())
    return shown


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(_cell(each) for each in value)
        case dict():
            return ", ".join(f"{name}={_cell(each)}" for name, each in value.items())
        case bytes():
            return value.hex()
    return printable(str(value))


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _yaml(value: Any) -> str:
    import yaml

    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    if text.replace("\n", "").isprintable():
        return text
    # It lets pass what turns the direction of text around, and other marks that are not seen.
    return str(yaml.safe_dump(value, sort_keys=False))
