"""The licence of every dependency, from an SBOM: `python -m tests.sbom SBOM OUTPUT`.

Writes one line for each component: name, version, licences. Exit code 1: a component names none.
"""

import json
import sys
from pathlib import Path
from typing import Any

NONE = "none named"
_TEXT_MAX_CHARACTERS = 60
"""Some packages give the whole licence instead of its name."""


def licences(sbom: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (name, version, licences) of each component, in the order of their names."""
    return sorted(
        (component["name"], component.get("version", ""), _named(component.get("licenses", [])))
        for component in sbom.get("components", [])
    )


def _named(choices: list[dict[str, Any]]) -> str:
    names = set()
    for choice in choices:
        licence = choice.get("license", {})
        text = licence.get("text", {}).get("content")
        name = choice.get("expression") or licence.get("id") or text or licence.get("name", "")
        names.add(name.strip().partition("\n")[0][:_TEXT_MAX_CHARACTERS])
    return "; ".join(sorted(names - {""})) or NONE


def main(sbom: Path, output: Path) -> int:
    """Write the list; return the exit status."""
    rows = licences(json.loads(sbom.read_bytes()))
    output.write_text("".join(f"{' '.join(row[:2])}: {row[2]}\n" for row in rows), encoding="utf-8")
    unknown = [name for name, _, named in rows if named == NONE]
    print(f"{len(rows)} components in {sbom}, their licences in {output}")
    if unknown:
        print(f"without a licence: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    raise SystemExit(main(*map(Path, sys.argv[1:3])))
