"""`${NAME}` in a configuration's strings: variables of the process's environment.

One file can then serve all nodes: what differs between them comes from their environment.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NotExpanded(Exception):
    """A reference cannot be replaced; the text is one line that names the key and the variable."""


def expand(value: Any, environment: Mapping[str, str], key: str = "") -> Any:
    """Return TOML values with every `${NAME}` in their strings replaced; `$${` stands for `${`.

    Keys are not changed, and the value of a variable is not expanded again. Raises NotExpanded.
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _value_of(found, environment, key), value)
    if isinstance(value, list):
        return [expand(part, environment, f"{key}[{k}]") for k, part in enumerate(value)]
    if isinstance(value, dict):
        place = f"{key}." if key else ""
        return {name: expand(part, environment, place + name) for name, part in value.items()}
    return value


def _value_of(found: re.Match[str], environment: Mapping[str, str], key: str) -> str:
    text, name = found[0], found[1]
    if name is None:
        return "${"
    if not text.endswith("}") or not _NAME.fullmatch(name):
        raise NotExpanded(f"`{key}`: {text!r} names no variable: write ${{NAME}}, or $${{ for ${{")
    if name not in environment:
        raise NotExpanded(
            f"`{key}`: the environment variable {name} is not set; write $${{ where ${{ is meant"
        )
    return environment[name]
