"""Text for a terminal: data from the network must not be able to control it."""

from typing import Final

PREVIEW_MAX_BYTES: Final = 32


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped as in Python source."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def preview(data: bytes) -> str:
    """Return the first bytes in hexadecimal, and the number of bytes."""
    shown = data[:PREVIEW_MAX_BYTES].hex(" ", -4)
    more = "" if len(data) <= PREVIEW_MAX_BYTES else f" ... ({len(data)} bytes)"
    return shown + more
