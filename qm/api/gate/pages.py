"""Pages of lists: reads the caller's page size and token, and makes the next token."""

from typing import Final

from qm.api.gate.errors import InvalidArgument
from qm.model.queries import PAGE_ITEMS_MAX

PAGE_SIZE_DEFAULT: Final = 100


def page_size(given: int) -> int:
    """Return how many items a page has. Raises InvalidArgument."""
    if given > PAGE_ITEMS_MAX:
        raise InvalidArgument("page_size", f"{given}; at most {PAGE_ITEMS_MAX}")
    return given or PAGE_SIZE_DEFAULT


def number_after(token: str) -> int | None:
    """Return the number in a token, None for the first page."""
    if not token:
        return None
    if not (token.isascii() and token.isdecimal() and len(token) <= 20):
        raise InvalidArgument("page_token", "it does not come from an answer")
    return int(token)


def bytes_after(token: str) -> bytes:
    """Return the key in a token, b"" for the first page."""
    try:
        return bytes.fromhex(token)
    except ValueError:
        raise InvalidArgument("page_token", "it does not come from an answer") from None


def token_of(following: int | bytes | str | None) -> str:
    """Return the token of the next page, "" if there is none."""
    if following is None:
        return ""
    return following.hex() if isinstance(following, bytes) else str(following)
