"""Is docs/configuration.md what the schema says? `python -m tests.config_reference [--write]`.

Keys, types, bounds and defaults come from the structs of `qm.node.config.schema`, meanings from the
docstrings beneath their fields.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from qm.node.config.schema import NodeConfig, Section

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

_REFERENCE: Final = re.compile(r" \(DESIGN section \d+\)")
_HEAD: Final = """\
# Configuration of a node

One TOML file per node, checked as a whole before any port opens: a wrong or unknown key ends
`qm node run` with exit code 78 and one line that says where it is and what to write instead.
`qm config check FILE` checks a file without starting a node.

The queue manager itself (queues, quotas, access, limits that replicas must agree on) is not
configured here: it is replicated, and changed with `qm queue`, `qm acl` and `qm defs`.

- Relative paths are relative to the file's folder.
- `${NAME}` in a string is an environment variable, so that one file serves all nodes; one that is
  not set is an error. `$${` stands for `${`.
- TLS files are read again when they change, everything else is read at the start.
- An empty node is given its cluster by `qm cluster init` or `qm node join`, or finds it by itself
  (`[birth]`).

The shortest configuration:

```toml
name = "n1"
host = "10.0.0.1"
data = "/var/lib/quorate"

[tls]
authority = "pki/authority.pem"
certificate = "pki/n1.pem"
key = "pki/n1.key"

[[members]]
name = "n1"
host = "10.0.0.1"

[[members]]
name = "n2"
host = "10.0.0.2"

[[members]]
name = "n3"
host = "10.0.0.3"
```
"""
_NOTE: Final = """
This page is made from the schema: `python -m tests.config_reference --write`.
"""


def page() -> str:
    """Return the page as it should be."""
    parts = [_HEAD, _table("The file itself", "", NodeConfig)]
    for field in msgspec.structs.fields(NodeConfig):
        section = _section(field.type)
        if section is not None:
            head = f"[[{field.name}]]" if _is_list(field.type) else f"[{field.name}]"
            parts.append(_table(f"`{head}`", _purpose(section), section))
            for inner in msgspec.structs.fields(section):
                within = _section(inner.type)
                if within is not None:
                    name = f"`[{field.name}.{inner.name}]`"
                    parts.append(_table(name, _purpose(within), within))
    return "\n".join([*parts, _NOTE.lstrip("\n")])


def _table(title: str, purpose: str, section: type[Section]) -> str:
    lines = [f"## {title}", *([purpose, ""] if purpose else [])]
    lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|", *_rows(section)]
    return "\n".join(lines) + "\n"


def _rows(section: type[Section]) -> Iterator[str]:
    meanings = _meanings(section)
    for field in msgspec.structs.fields(section):
        if _section(field.type) is not None:
            continue
        kind = _text(types.type_info(field.type))
        default = "needed" if field.required else _default(field)
        meaning = meanings.get(field.name, "").replace("|", "\\|")
        yield f"| `{field.name}` | {kind} | {default} | {meaning} |"


def _meanings(section: type[Section]) -> dict[str, str]:
    """Return the docstrings beneath fields, each in one line."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            found[field.target.id] = _REFERENCE.sub("", " ".join(_said(after).split()))
    return found


def _said(node: ast.stmt) -> str:
    """Return a docstring; empty if the statement is none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else ""
    return ""


def _purpose(section: type[Section]) -> str:
    """Return what the section's docstring says behind its name."""
    text = " ".join((section.__doc__ or "").split()).partition("`: ")[2].rstrip(".")
    return f"{text if text.startswith('gRPC') else text[:1].upper() + text[1:]}."


def _section(kind: Any) -> type[Section] | None:
    info = types.type_info(kind)
    if isinstance(info, types.VarTupleType):
        info = info.item_type
    if isinstance(info, types.UnionType):
        (info, *_) = (one for one in info.types if not isinstance(one, types.NoneType))
    if isinstance(info, types.StructType) and issubclass(info.cls, Section):
        return info.cls
    return None


def _is_list(kind: Any) -> bool:
    return isinstance(types.type_info(kind), types.VarTupleType)


def _text(info: types.Type) -> str:
    """Return a type for people."""
    match info:
        case types.Metadata():
            return _text(info.type)
        case types.BoolType():
            return "true or false"
        case types.IntType():
            if info.le is None:
                return "integer" if info.ge is None else f"integer, {info.ge} or more"
            return f"integer, {info.ge} to {info.le}"
        case types.StrType():
            return "string" if info.pattern is None else f"string, `{info.pattern}`"
        case types.LiteralType():
            return ", ".join(f"`{value}`" for value in info.values)
        case types.VarTupleType():
            return f"list of {_text(info.item_type)}s"
        case types.DictType():
            return f"table, {_text(info.key_type)} to {_text(info.value_type)}"
        case types.UnionType():
            kinds = [_text(t) for t in info.types if not isinstance(t, types.NoneType)]
            return " or ".join(dict.fromkeys(kinds))
        case types.CustomType() if info.cls is Path:
            return "path"
    raise AssertionError(f"say how {info} reads for people")


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, Path):
        value = str(value)
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the committed page")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
    if not is_current:
        sys.stderr.write(f"{PAGE.name} is not current: {__doc__.splitlines()[0]}\n")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main())
