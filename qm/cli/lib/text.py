"""Text for a terminal: what came from the network must not be able to steer it."""

from typing import Final

PREVIEW_MAX_BYTES: Final = 32


def printable(text: str) -> str:
    """The text with all that is not printable escaped as in Python source."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def preview(data: bytes) -> str:
    """The first bytes in hexadecimal, and how many there are."""
    shown = data[:PREVIEW_MAX_BYTES].hex(" ", -4)
    more = "" if len(data) <= PREVIEW_MAX_BYTES else f" ... ({len(data)} bytes)"
    return shown + more
