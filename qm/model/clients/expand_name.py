"""Expand Format Name ([MS-MQDMPR] 3.1.7.3.8): the destinations that a name means. Pure.

The proposer of a command expands its names, since distribution lists are outside the state; the
embedded directory has none.
"""

from collections.abc import Callable

from qm.names.errors import QueueNameError
from qm.names.format_name import (
    DistributionListName,
    FormatName,
    MultipleElementName,
    SingleFormatName,
    format_name_text,
    parse_format_name,
)

Resolve = Callable[[DistributionListName], "list[str] | None"]
"""Returns the format names of a list's members, None if the directory does not know them."""


def no_lists(_name: DistributionListName) -> list[str] | None:
    """Resolve nothing: the embedded directory has no distribution lists."""
    return None


def expand_format_name(name: FormatName, resolve: Resolve = no_lists) -> FormatName | None:
    """Return the name itself, or its elements sorted without repeats, ignoring case; None: FALSE.

    Lists may contain lists, and themselves (DM-A22). A single remaining element is returned alone.
    """
    if not isinstance(name, MultipleElementName | DistributionListName):
        return name
    found: dict[str, SingleFormatName] = {}
    elements = name.elements if isinstance(name, MultipleElementName) else (name,)
    if not _collect(elements, resolve, found, set()):
        return None
    ordered = tuple(found[key] for key in sorted(found))
    return ordered[0] if len(ordered) == 1 else MultipleElementName(ordered)


def _collect(
    elements: tuple[SingleFormatName, ...],
    resolve: Resolve,
    found: dict[str, SingleFormatName],
    visited: set[str],
) -> bool:
    for element in elements:
        key = format_name_text(element).lower()
        if not isinstance(element, DistributionListName):
            found.setdefault(key, element)
            continue
        if key in visited:
            continue
        visited.add(key)
        members = resolve(element)
        if members is None:
            return False
        try:
            names = [parse_format_name(member) for member in members]
        except QueueNameError:
            return False
        if not all(_collect(_elements(one), resolve, found, visited) for one in names):
            return False
    return bool(found)


def _elements(name: FormatName) -> tuple[SingleFormatName, ...]:
    return name.elements if isinstance(name, MultipleElementName) else (name,)
