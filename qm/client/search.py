"""Which of a browsed message's properties contain a text."""

from collections.abc import Sequence
from typing import Any, Final

from qm.names.guid import guid_text

PLACES: Final = ("label", "body", "id", "correlation", "destination")
_ENCODINGS: Final = ("utf-8", "utf-16-le")
_ID_BYTES: Final = 20
_GUID_BYTES: Final = 16


def found_in(entry: Any, text: str, places: Sequence[str] = PLACES) -> list[str]:
    """Return in which of the places a message (`BrowsedMessage`) contains the text, in any case.

    Bodies are searched as UTF-8 and as UTF-16; ids are hexadecimal digits, or as MSMQ prints them.
    """
    properties, folded = entry.properties, text.casefold()
    texts = {
        "label": properties.label,
        "id": f"{message_id_text(entry.message_id)} {entry.message_id.hex()}",
        "correlation": properties.correlation_id.hex(),
        "destination": properties.destination_queue,
    }
    body = properties.body if "body" in places else b""
    return [
        place
        for place in places
        if folded in texts.get(place, "").casefold() or (place == "body" and _holds(body, folded))
    ]


def message_id_text(raw: bytes) -> str:
    r"""Return a message identifier as MSMQ tools print it: GUID\number; "" if there is none."""
    if len(raw) != _ID_BYTES:
        return ""
    ordinal = int.from_bytes(raw[_GUID_BYTES:], "little")
    return f"{guid_text(raw[:_GUID_BYTES])}\\{ordinal}"


def _holds(body: bytes, folded: str) -> bool:
    return any(folded in body.decode(encoding, "ignore").casefold() for encoding in _ENCODINGS)
