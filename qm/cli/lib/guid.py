"""GUIDs as arguments of commands."""

from __future__ import annotations

from typing import Any

import click
from typing_extensions import override


class Guid(click.ParamType):  # type: ignore[type-arg]  # generic in stubs only
    """A GUID as text, with or without braces; the value is its 16 bytes as in packets."""

    name = "guid"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> bytes:
        from qm.names.guid import guid_from_text

        found = guid_from_text(str(value).strip("{}"))
        if found is None:
            self.fail(f"{value!r} is not a GUID: write 8-4-4-4-12 hex digits", param, ctx)
        return found
