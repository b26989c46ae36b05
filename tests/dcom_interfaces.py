"""`python -m tests.dcom_interfaces --write`: qm/rpc/dcom/mqac/interfaces.json from the catalogue.

The catalogue restates the published IDL and adds dispatch identifiers; of those that it does not
know the rule of type libraries is used: 0x60020000 and the place among an interface's own members,
one level of inheritance higher for each base below IDispatch.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tests" / "data" / "spec" / "mqac-interfaces.json"
TARGET = ROOT / "qm" / "rpc" / "dcom" / "mqac" / "interfaces.json"
FIRST_DISPID = 0x6002_0000
LEVEL = 0x1_0000


def compact() -> str:
    """The file's text."""
    source = json.loads(SOURCE.read_text(encoding="utf-8"))
    by_name = {one["name"]: one for one in source["interfaces"]}
    lines = [_line(_interface(one, by_name)) for one in source["interfaces"]]
    classes = [_line(_coclass(one, by_name)) for one in source["coclasses"]]
    joined = ",\n".join
    return f'{{"interfaces": [\n{joined(lines)}\n],\n"coclasses": [\n{joined(classes)}\n]}}\n'


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _interface(one: dict[str, Any], by_name: dict[str, Any]) -> list[Any]:
    level, base = 0, one["base"]
    while base in by_name:
        level, base = level + 1, by_name[base]["base"]
    methods = []
    for place, method in enumerate(one["methods"]):
        dispid = method["dispid"]
        if dispid is None:
            dispid = FIRST_DISPID + level * LEVEL + place
        opnum = -1 if method["opnum"] is None else method["opnum"]
        parameters = [_parameter(each) for each in method["params"]]
        marks = [True] if method.get("restricted") else []
        methods.append([opnum, method["name"], method["kind"], dispid, parameters, *marks])
    return [one["name"], one["iid"], one["base"], methods, one["attributes"]]


def _coclass(one: dict[str, Any], by_name: dict[str, Any]) -> list[Any]:
    source = [one["source"]] if one.get("source") else []
    return [one["name"], one["clsid"], one["default"], _exposed(one, by_name), *source]


def _parameter(one: dict[str, Any]) -> list[Any]:
    marks = [one["dir"] == "out", bool(one["optional"]), bool(one.get("retval"))]
    while marks and not marks[-1]:
        marks.pop()
    return [one["name"], one["type"], *marks]


def _exposed(one: dict[str, Any], by_name: dict[str, Any]) -> list[str]:
    """Interfaces that an object of the class has; sinks have those of sources."""
    added = ["IConnectionPointContainer"] if one.get("source") else []
    return [*(name for name in one["interfaces"] if not by_name[name]["dispinterface"]), *added]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        TARGET.write_text(compact(), encoding="utf-8")
    else:
        print(compact(), end="")
