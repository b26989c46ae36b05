"""Attributes of a queue as fields of a form, for making a queue and for changing it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from qm.client.values import python_value, value_of
from qm.pb import control_pb2 as pb


class Attribute(msgspec.Struct, frozen=True):
    """One attribute that a person may set."""

    name: str
    """As in the API."""
    label: str
    kind: Literal["text", "number", "flag", "choice"] = "number"
    limits: tuple[int, int] = (0, 0xFFFF_FFFF)
    """Of a number; a text's length."""
    choices: tuple[str, ...] = ()
    """Of a choice, by their numbers."""

    def value(self, text: str | None) -> pb.Value | None:
        """Return what a form's field says; None if it is not there, or a number left empty.

        Raises web.HTTPBadRequest.
        """
        if self.kind == "flag":
            return value_of(text is not None)
        if text is None or (self.kind == "number" and not text):
            return None
        if self.kind == "text":
            return value_of(text)
        if self.kind == "choice":
            if text not in self.choices:
                raise web.HTTPBadRequest(reason=f"{self.name}: one of {', '.join(self.choices)}")
            return value_of(self.choices.index(text))
        low, high = self.limits
        try:
            found = int(text)
        except ValueError:
            found = low - 1
        if not low <= found <= high:
            raise web.HTTPBadRequest(reason=f"{self.name}: a number of {low} to {high} is wanted")
        return value_of(found)


ATTRIBUTES: Final = (
    Attribute("label", "Label", "text", (0, 124)),
    Attribute("quota", "Quota, KB; 4294967295: none"),
    Attribute("journaling", "keep a copy of what is received", "flag"),
    Attribute("journal_quota", "Quota of these copies, KB"),
    Attribute("authentication", "take signed messages only", "flag"),
    Attribute("privacy_level", "Encrypted bodies", "choice", choices=("none", "optional", "body")),
    Attribute("base_priority", "Base priority", limits=(-32_768, 32_767)),
    Attribute("multicast_address", "Multicast address, ADDRESS:PORT", "text", (0, 64)),
    Attribute("max_deliveries", "Returns before a message is set aside; 0: no limit"),
    Attribute("retry_delay_ms", "Wait after a return, ms"),
    Attribute(
        "poison_action",
        "What becomes of a message that came back too often",
        "choice",
        choices=("move", "dead-letter", "reject"),
    ),
)


def changes_of(
    form: Mapping[str, str], before: Mapping[str, pb.Value] = MappingProxyType({})
) -> dict[str, pb.Value]:
    """Return what a form sets that is not so `before`. Raises web.HTTPBadRequest."""
    found = {one.name: one.value(form.get(one.name)) for one in ATTRIBUTES}
    return {
        name: value
        for name, value in found.items()
        if value is not None and python_value(value) != _known(before, name, value)
    }


def _known(before: Mapping[str, pb.Value], name: str, value: pb.Value) -> Any:
    """Return an attribute's value; one that a queue does not have is like an empty text, or 0."""
    if name in before:
        return python_value(before[name])
    return type(python_value(value))()
