"""Forms: read and parsed within bounds, since whoever is signed in may post anything."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

FORM_MAX_BYTES: Final = 1 << 20
FIELDS_MAX: Final = 160
"""A page of messages may be chosen, besides what else a form has."""
PARSED_HERE_MAX_BYTES: Final = 16 << 10
"""A larger form is parsed in another thread: it takes up to half a second."""
_TYPE: Final = "application/x-www-form-urlencoded"
_FORM: Final = web.RequestKey("form", list)


async def form_of(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form, the last one of each name. Raises web.HTTPException."""
    return dict(await _pairs(request))


async def values_of(request: web.Request, name: str) -> list[str]:
    """Return all values of a field that a form has several times. Raises web.HTTPException."""
    return [value for field, value in await _pairs(request) if field == name]


async def _pairs(request: web.Request) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] | None = request.get(_FORM)
    if found is None:
        if request.content_type != _TYPE:
            raise web.HTTPUnsupportedMediaType(reason=f"a form must be {_TYPE}")
        try:
            body = await request.read()
        except OSError:  # the browser is gone
            raise web.HTTPBadRequest(reason="the form did not arrive") from None
        try:
            if len(body) <= PARSED_HERE_MAX_BYTES:
                fields = _parsed(body)
            else:
                fields = await asyncio.to_thread(_parsed, body)
        except ValueError:
            reason = f"a form has at most {FIELDS_MAX} fields, in UTF-8"
            raise web.HTTPBadRequest(reason=reason) from None
        request[_FORM] = found = fields
    return found


def _parsed(body: bytes) -> list[tuple[str, str]]:
    """Return the fields. Raises ValueError."""
    text = body.decode("ascii")
    return parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
