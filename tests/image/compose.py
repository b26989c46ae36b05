"""The compose file as what it starts: checked against the compose specification, variables filled.

Only what the file uses is understood; anything else in a service fails, so that no test passes by
leaving out what Docker would do.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import compose_spec
import msgspec
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "deploy" / "compose"
FILE: Final = FOLDER / "compose.yaml"
_VARIABLE: Final = re.compile(r"\$(?:\$|\{(\w+)(?::\?([^}]*))?\})")


class Healthcheck(msgspec.Struct, forbid_unknown_fields=True):
    """When a service counts as healthy."""

    test: list[str]
    interval: str
    timeout: str
    retries: int


class Condition(msgspec.Struct, forbid_unknown_fields=True):
    """What a service waits for."""

    condition: str


class Service(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One service, as the file has it."""

    image: str
    user: str = ""
    entrypoint: list[str] = []
    command: list[str] = []
    environment: dict[str, str] = {}
    volumes: list[str] = []
    hostname: str = ""
    ports: list[str] = []
    tmpfs: list[str] = []
    read_only: bool = False
    cap_drop: list[str] = []
    security_opt: list[str] = []
    restart: str = "no"
    profiles: list[str] = []
    stop_grace_period: str = "10s"
    depends_on: dict[str, Condition] = {}
    healthcheck: Healthcheck | None = None

    def mounts(self, volumes: Mapping[str, Path]) -> list[tuple[Path, str, bool]]:
        """Return (folder or file here, place in the container, read only) for every volume."""
        found = []
        for volume in self.volumes:
            source, target, *mode = volume.split(":")
            here = FOLDER / source if source.startswith(".") else volumes[source]
            found.append((here, target, mode == ["ro"]))
        return found


class Compose(msgspec.Struct, forbid_unknown_fields=True):
    """The file."""

    name: str
    services: dict[str, Service]
    volumes: dict[str, dict[str, Any]]


def load(environment: Mapping[str, str]) -> Compose:
    """Return the file. Raises what `parse` raises."""
    return parse(FILE.read_text(encoding="utf-8"), environment)


def parse(text: str, environment: Mapping[str, str]) -> Compose:
    """Return a file with its variables filled in. Raises ValueError where the compose
    specification forbids it, msgspec.ValidationError where this module does not understand it.
    """
    content = yaml.safe_load(filled(text, environment))
    compose_spec.PyCompose.from_yaml(yaml.safe_dump(content))  # which knows no merge keys
    return msgspec.convert({k: v for k, v in content.items() if not k.startswith("x-")}, Compose)


def filled(text: str, environment: Mapping[str, str]) -> str:
    """Replace `${NAME}` and `${NAME:?what to do}`; `$$` is a dollar. Raises ValueError."""

    def value(found: re.Match[str]) -> str:
        name, what_to_do = found.groups()
        if name is None:
            return "$"
        if not environment.get(name):
            raise ValueError(f"{name}: {what_to_do or 'it is not set'}")
        return environment[name]

    return _VARIABLE.sub(value, text)
