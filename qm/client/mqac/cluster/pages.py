"""Lists of the control plane, which come in pages."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class Page(Protocol):
    """A reply with a part of a list."""

    page_token: str
    """Where the next one begins; "": there is none."""


P = TypeVar("P", bound=Page)


def pages(ask: Callable[[str], P]) -> Iterator[P]:
    """Yield all pages of a list, `ask` being called with the token of each ("": the first).

    Raises what `ask` raises.
    """
    token = ""
    while True:
        page = ask(token)
        yield page
        token = page.page_token
        if not token:
            return
