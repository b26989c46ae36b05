"""`make architecture`: docs/architecture.svg, the house as its imports draw it.

A row per layer, a box per package, an arrow for each import that no longer way already says. The
picture follows from the sources alone, so a test can say whether it is current.
"""

from __future__ import annotations

import ast
import html
import sys
from functools import partial
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "architecture.svg"
GENERATED: Final = ("qm/pb/", "raft/pb/")
BOX_WIDTH, BOX_HEIGHT, GAP_Y, MARGIN = 132, 46, 44, 24
WIDTH: Final = 960
"""Pixels."""

CAPTIONS: Final = {
    "qm.api": "gRPC, HTTP",
    "qm.archive": "log export",
    "qm.cli": "command line",
    "qm.client": "Python SDK",
    "qm.cluster": "faces of the cluster",
    "qm.drill": "failover drills",
    "qm.edge": "MSMQ over TCP, UDP",
    "qm.load": "workloads, verdicts",
    "qm.model": "MS-MQDMPR, pure",
    "qm.names": "format, path names",
    "qm.node": "one process",
    "qm.observe": "metrics, logs",
    "qm.security": "access, SIDs",
    "qm.session": "MS-MQQB, sans-IO",
    "qm.store": "state on disk",
    "qm.wire": "MS-MQMQ bytes",
    "raft": "consensus",
    "spark": "audit, compaction",
}


def packages_and_imports(root: Path = ROOT) -> dict[str, set[str]]:
    """Return each package of the house and the packages that it imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.glob("*/**/*.py")):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] not in ("qm", "raft", "spark") or name.startswith(GENERATED):
            continue
        package = _package(name.removesuffix(".py").replace("/", "."))
        if package is None:
            continue
        imports = found.setdefault(package, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imports |= {_package(alias.name) or package for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                imports |= {_package(each) or package for each in names}
    return {
        package: {each for each in imports if each in found and each != package}
        for package, imports in found.items()
    }


def _package(dotted: str) -> str | None:
    """Return the package of the house that a module is in; None for what is none of it."""
    parts = dotted.split(".")
    if parts[0] in ("raft", "spark"):
        return parts[0]
    if parts[0] == "qm" and len(parts) > 1 and f"qm.{parts[1]}" in CAPTIONS:
        return f"qm.{parts[1]}"
    return None


def layers(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the packages by height: each stands one above the highest that it imports.

    `spark` and `qm.cli` import each other's world (`qm audit` runs Spark in its process), so what
    `qm.cli` imports of `spark` is drawn and does not count.
    """
    heights: dict[str, int] = {}

    def height(package: str, above: tuple[str, ...] = ()) -> int:
        if package in above:
            raise ValueError(f"a circle: {' -> '.join((*above, package))}")
        if package not in heights:
            below = (height(each, (*above, package)) for each in imports[package])
            heights[package] = 1 + max(below, default=-1)
        return heights[package]

    for package in imports:
        height(package)
    rows: list[list[str]] = [[] for _ in range(max(heights.values()) + 1)]
    for package in sorted(heights):
        rows[heights[package]].append(package)
    return rows[::-1]


def shortest(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that no way over another package says already."""

    def reached(package: str) -> set[str]:
        below = set(imports[package])
        for each in imports[package]:
            below |= reached(each)
        return below

    return sorted(
        (package, each)
        for package, below in imports.items()
        for each in below
        if not any(each in reached(other) for other in below if other != each)
    )


def _pull(
    ways: list[tuple[str, str]], places: dict[str, tuple[float, float]], package: str
) -> tuple[float, str]:
    """Return where the importers of a package stand on average, so that arrows stay short."""
    above = [places[importer][0] for importer, imported in ways if imported == package]
    return (sum(above) / len(above) if above else WIDTH / 2, package)


def picture(imports: dict[str, set[str]]) -> str:
    """Return the picture as SVG."""
    rows = layers(imports)
    places: dict[str, tuple[float, float]] = {}
    ways = shortest(imports)
    for number, row in enumerate(rows):
        step = WIDTH / (len(row) + 1)
        for column, package in enumerate(sorted(row, key=partial(_pull, ways, places))):
            left = step * (column + 1) - BOX_WIDTH / 2
            places[package] = (left, MARGIN + number * (BOX_HEIGHT + GAP_Y))
    height = 2 * MARGIN + len(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            ' font-family="sans-serif" role="img">'
        ),
        "<title>Packages of Quorate; an arrow points from a package to one that it imports</title>",
        (
            '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4"'
            ' orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#7a8594"/></marker></defs>'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for package, below in ways:
        (x1, y1), (x2, y2) = places[package], places[below]
        lines.append(
            f'<line x1="{x1 + BOX_WIDTH / 2:g}" y1="{y1 + BOX_HEIGHT:g}"'
            f' x2="{x2 + BOX_WIDTH / 2:g}" y2="{y2:g}" stroke="#7a8594" marker-end="url(#tip)"/>'
        )
    for package, (x, y) in places.items():
        fill = "#e3ecf7" if package.startswith("qm") else "#f5ead8"
        lines += [
            (
                f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"'
                f' fill="{fill}" stroke="#4a5568"/>'
            ),
            (
                f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + 19:g}" text-anchor="middle"'
                f' font-size="14" font-weight="bold" fill="#1a202c">{package}</text>'
            ),
            (
                f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + 36:g}" text-anchor="middle"'
                f' font-size="11" fill="#4a5568">{html.escape(CAPTIONS[package])}</text>'
            ),
        ]
    return "\n".join((*lines, "</svg>", ""))


def main() -> int:
    """Write the picture, or with `--check` say whether it is current."""
    current = picture(packages_and_imports())
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(current, encoding="utf-8")
        return 0
    if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == current:
        return 0
    print("docs/architecture.svg is not current: run `make architecture` and commit it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
