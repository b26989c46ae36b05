"""The legs of a message's way, as docs/life-of-a-message.md tells them.

A leg is a heading of the second level; its numbered steps name functions in backticks, as
`qm.edge.tcp.connection.Connection.data_received` or without the first `qm.`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import msgspec

from tests.house.modules import ROOT, Module

PAGE = ROOT / "docs" / "life-of-a-message.md"
LEGS = ("arrival", "acknowledgement", "receive and confirm", "outgoing")
"""How their headings begin, whichever the case."""
_STEP = re.compile(r"^\d+\. ")
_NAME = re.compile(r"`([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")


class PageUnusable(Exception):
    """The page is missing, lacks a leg, or names what there is not; says which."""


class Place(msgspec.Struct, frozen=True):
    """A function that a step names."""

    module: str
    function: str
    """With its class; "" when a module alone is named."""


def legs(modules: Mapping[str, Module], page: Path = PAGE) -> dict[str, list[Place]]:
    """The places of each leg, in order. Raises PageUnusable."""
    shown = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    if not page.exists():
        raise PageUnusable(f"{shown} does not exist: the legs of a message cannot be counted")
    found: dict[str, list[Place]] = {leg: [] for leg in LEGS}
    for heading, steps in _sections(page.read_text(encoding="utf-8")):
        leg = next((leg for leg in LEGS if heading.lower().startswith(leg)), None)
        if leg is not None:
            names = [name for step in steps for name in _NAME.findall(step)]
            found[leg] = [place_of(name, modules, str(shown)) for name in names]
    for leg, places in found.items():
        if not places:
            raise PageUnusable(f"{shown} has no steps under a heading that begins with {leg!r}")
    return found


def hops(places: list[Place]) -> int:
    """How often a leg goes from one module to another."""
    return sum(one.module != other.module for one, other in pairwise(places))


def place_of(name: str, modules: Mapping[str, Module], page: str) -> Place:
    """The function that a dotted name means. Raises PageUnusable."""
    for whole in (name, f"qm.{name}"):
        parts = whole.split(".")
        for length in range(len(parts), 0, -1):
            module = modules.get(".".join(parts[:length]))
            if module is None:
                continue
            rest = parts[length:]
            if not rest or _holds(module.tree.body, rest):
                return Place(module.name, ".".join(rest))
            break
    raise PageUnusable(f"{page} names `{name}`, which does not exist")


def _holds(body: list[ast.stmt], names: list[str]) -> bool:
    for node in body:
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and node.name == names[0]
        ):
            if len(names) == 1:
                return True
            if isinstance(node, ast.ClassDef):
                return _holds(node.body, names[1:])
    return False


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """(heading, numbered steps with the lines that continue them) of each section."""
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("## "):
            sections.append((line[3:].strip(), []))
        elif not sections:
            continue
        elif _STEP.match(line):
            sections[-1][1].append(line)
        elif line.startswith("  ") and sections[-1][1]:
            sections[-1][1][-1] += f" {line.strip()}"
    return sections
