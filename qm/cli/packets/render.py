"""Output of decoded packets: an annotated tree for people, JSON for programs.

Unprintable characters from the network are escaped: a label must not be able to control the
reader's terminal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from qm.cli.lib.text import preview, printable
from qm.cli.packets.source import Decoded, Found, Item, Lost
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.packets.describe import Description, Node

PREVIEW_MAX_CHARS: Final = 200


def heading(item: Item) -> Text:
    """Return a line with the item's kind, place and time."""
    line = Text()
    if isinstance(item, Found):
        line.append(item.description.kind, "bold")
        line.append(f"  {item.description.size} bytes")
    else:
        line.append(f"{item.size} bytes", "bold red")
        line.append(f"  {printable(item.reason)}")
    line.append(f" at {item.offset}")
    if item.source:
        line.append(f"  {item.source}", "cyan")
    if item.time is not None:
        line.append(f"  {instant(item.time)}", "dim")
    return line


def print_tree(decoded: Decoded, *, shows_clear_bits: bool = False) -> None:
    """Print every item and the notes about the input; in colour on a terminal."""
    console = terminal()
    for item in decoded.items:
        print_item(console, item, shows_clear_bits=shows_clear_bits)
    for note in decoded.notes:
        print_text(console, Text(f"note: {printable(note)}", "yellow"))


def terminal() -> Console:
    """Return standard output as a console without markup: the text comes from the network."""
    return Console(markup=False, highlight=False, emoji=False)


def print_item(console: Console, item: Item, *, shows_clear_bits: bool = False) -> None:
    """Print one item as a tree; clear bits only on request."""
    lines = [heading(item)]
    if isinstance(item, Found):
        lines += _description(item.description, shows_clear_bits)
    print_text(console, Text("\n").join(lines))


def print_text(console: Console, text: Text) -> None:
    """Print text unchanged: no line is cut or folded, and without a terminal nothing is styled."""
    if console.is_terminal:
        console.print(text, soft_wrap=True)
    else:
        console.file.write(text.plain + "\n")


@dataclass
class _Branch:
    line: Text
    children: list["_Branch"] = field(default_factory=list)


def _description(description: Description, shows_clear_bits: bool) -> Iterator[Text]:
    branches = [_branch(node, shows_clear_bits) for node in description.nodes]
    branches += [_Branch(Text(f"note: {printable(n)}", "yellow")) for n in description.notes]
    if description.error is not None:
        line = Text(f"error: {printable(str(description.error))}", "bold red")
        branches.append(_Branch(line))
    yield from _drawn(branches, "")


def _drawn(branches: list[_Branch], guide: str) -> Iterator[Text]:
    """Return the lines of a tree, each after its guides."""
    for branch in branches:
        is_last = branch is branches[-1]
        yield Text().append(guide + ("└─ " if is_last else "├─ "), "dim").append(branch.line)
        yield from _drawn(branch.children, guide + ("   " if is_last else "│  "))


def _branch(node: Node, shows_clear_bits: bool) -> _Branch:
    line = Text()
    if node.size:
        line.append(f"{node.offset:>5} +{node.size:<4} ", "dim")
    line.append(node.name, "bold" if node.value is None else "")
    if node.value is not None and not _says_value(node):
        line.append(f" {_value(node)}", "green")
    if node.text:
        line.append(f"  {printable(node.text)}", "green" if _says_value(node) else "")
    if node.section:
        line.append(f"  [{node.section}]", "dim")
    shown = [c for c in node.children if c.size or c.value or shows_clear_bits]
    return _Branch(line, [_branch(child, shows_clear_bits) for child in shown])


def _says_value(node: Node) -> bool:
    """Whether the text is the value itself in a more readable form: 0x0310, 36 bytes, a GUID."""
    if isinstance(node.value, bytes):
        return len(node.value) == GUID_SIZE_BYTES and bool(node.text)
    return node.text.startswith(("0x", f"{node.value} "))


def _value(node: Node) -> str:
    if isinstance(node.value, bytes):
        return preview(node.value)
    if isinstance(node.value, str):
        shown = printable(node.value[:PREVIEW_MAX_CHARS])
        return f'"{shown}"' + ("" if len(node.value) <= PREVIEW_MAX_CHARS else " ...")
    return str(node.value)


def instant(seconds: float) -> str:
    """Return a time of the capture, to the microsecond."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"


def as_json(decoded: Decoded) -> dict[str, Any]:
    """Return the whole result as JSON values: bytes in hexadecimal, errors with place and
    section.
    """
    return {
        "packets": [_item_json(item) for item in decoded.items],
        "notes": list(decoded.notes),
        "is_clean": decoded.is_clean,
    }


def _item_json(item: Item) -> dict[str, Any]:
    entry: dict[str, Any] = {"source": item.source, "offset": item.offset}
    if item.time is not None:
        entry["time"] = item.time
    if isinstance(item, Lost):
        return entry | {"kind": "lost", "size": item.size, "reason": item.reason}
    description = item.description
    error = description.error
    entry |= {
        "kind": description.kind,
        "size": description.size,
        "notes": list(description.notes),
        "error": None,
        "headers": [_node_json(node) for node in description.nodes],
    }
    if error is not None:
        entry["error"] = {
            "offset": error.offset,
            "field": error.field,
            "section": error.section,
            "reason": error.reason,
        }
    return entry


def _node_json(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "offset": node.offset, "size": node.size}
    if node.value is not None:
        entry["value"] = node.value.hex() if isinstance(node.value, bytes) else node.value
    if node.text:
        entry["text"] = node.text
    if node.section:
        entry["section"] = node.section
    if node.children:
        entry["children"] = [_node_json(child) for child in node.children]
    return entry
