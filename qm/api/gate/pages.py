"""Pages of lists: the caller's size and token, read and written."""

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
    """Return the number that a token stands for, None for the first page."""
    if not token:
        return None
    if not (token.isascii() and token.isdecimal() and len(token) <= 20):
        raise InvalidArgument("page_token", "it is none that an answer gave")
    return int(token)


def bytes_after(token: str) -> bytes:
    """Return the key that a token stands for, b"" for the first page."""
    try:
        return bytes.fromhex(token)
    except ValueError:
        raise InvalidArgument("page_token", "it is none that an answer gave") from None


def token_of(following: int | bytes | str | None) -> str:
    """Return the token of the next page, "" for none."""
    if following is None:
        return ""
    return following.hex() if isinstance(following, bytes) else str(following)
