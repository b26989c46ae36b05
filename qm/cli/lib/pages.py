"""Reads lists that are returned in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


async def all_pages(
    wire: Any, method: Callable[[Any], Any], request: Callable[[str], Any], field: str
) -> list[Any]:
    """Return the items of all pages in `field`; `request` builds the request for a page token."""
    found: list[Any] = []
    token = ""
    while True:
        reply = await wire.call(method, request(token))
        found += getattr(reply, field)
        token = reply.page_token
        if not token:
            return found
