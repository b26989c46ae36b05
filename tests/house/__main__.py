"""How the product's code is laid out: `python -m tests.house [--list]`.

Prints one JSON object and writes it to build/house.json:

    max_modules_per_folder, max_modules_folder    the fullest folder, `__init__` not counted
    circles                                       groups of siblings that import each other
    longest_module_lines, longest_module
    longest_function_lines, longest_function
    duplicates_six_lines                          pairs of identical runs of six code lines and more
    <leg>_leg_modules, <leg>_leg_hops             different modules of a leg; changes of module
    mean_leg_hops                                 over the four legs of docs/life-of-a-message.md

`--list` names circles and duplicates on stderr. Exit code 1: the page of the legs cannot be used;
what is counted from it is missing then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from statistics import mean

from tests.house.duplicates import duplicates
from tests.house.legs import PageUnusable, hops, legs
from tests.house.modules import (
    ROOT,
    Module,
    circles,
    function_lines,
    imports,
    module_lines,
    modules_per_folder,
    product_modules,
)

RESULT = ROOT / "build" / "house.json"
Figures = dict[str, int | float | str]


def code_figures(modules: dict[str, Module], *, is_listed: bool) -> Figures:
    """Everything but the legs."""
    found_circles = circles(imports(modules))
    found_duplicates = duplicates(modules.values())
    if is_listed:
        for circle in found_circles:
            print("circle: " + " ".join(circle), file=sys.stderr)
        for each in found_duplicates:
            print(f"duplicate: {each}", file=sys.stderr)
    folder, count = _most(modules_per_folder(modules.values()))
    module, lines = _most(module_lines(modules.values()))
    function, length = _most(function_lines(modules.values()))
    return {
        "max_modules_per_folder": count,
        "max_modules_folder": folder,
        "circles": len(found_circles),
        "longest_module_lines": lines,
        "longest_module": module,
        "longest_function_lines": length,
        "longest_function": function,
        "duplicates_six_lines": len(found_duplicates),
    }


def leg_figures(modules: dict[str, Module]) -> Figures:
    """What the page of the legs says. Raises PageUnusable."""
    found = legs(modules)
    figures: Figures = {}
    for leg, places in found.items():
        name = leg.replace(" ", "_")
        figures[f"{name}_leg_modules"] = len({place.module for place in places})
        figures[f"{name}_leg_hops"] = hops(places)
    figures["mean_leg_hops"] = round(mean(map(hops, found.values())), 1)
    return figures


def _most(counts: Counter[str]) -> tuple[str, int]:
    return max(counts.items(), key=lambda item: (item[1], item[0]))


def main() -> int:
    """Print and write the figures; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.house")
    parser.add_argument("--list", action="store_true", help="name circles and duplicates")
    arguments = parser.parse_args()
    modules = product_modules()
    figures = code_figures(modules, is_listed=arguments.list)
    status = 0
    try:
        figures |= leg_figures(modules)
    except PageUnusable as error:
        print(f"house: {error}", file=sys.stderr)
        status = 1
    text = json.dumps(figures, indent=2)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
