"""`--dry-run`: a cluster that is asked, but not changed."""

from collections.abc import Callable
from typing import Any, Final

import click

_READS: Final = ("Get", "List", "Browse", "Count", "CanStop")
"""Beginnings of the names of methods that change nothing."""


class Shown(Exception):
    """What would be done was printed, and nothing was done."""


class _Names:
    """Stands for a client's stubs and tells which method is called."""

    def __init__(self) -> None:
        self.path: list[str] = []

    def __getattr__(self, name: str) -> "_Names":
        self.path.append(name)
        return self


class Preview:
    """Makes the calls that read, and prints the first one that would change something."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    async def call(self, method: Callable[[Any], Any], request: Any, **options: Any) -> Any:
        """Make the call, or print it and raise Shown."""
        names = _Names()
        method(names)
        name = names.path[-1]
        if name.startswith(_READS):
            return await self._wire.call(method, request, **options)
        from google.protobuf.json_format import MessageToJson

        said = MessageToJson(request, indent=None, preserving_proto_field_name=True)
        click.echo(f"would {name}: {said}", err=True)
        raise Shown
