"""What the console's pages share: rendering, calls, and how values look as text."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from qm.client.client import Client
from qm.client.errors import AccessDenied
from qm.client.search import message_id_text
from qm.client.session import LEASE_MS
from qm.console.people import Caller
from qm.names.guid import guid_text
from qm.pb import control_pb2 as pb

PAGE_ITEMS: Final = 100

Render = Callable[..., web.Response]


class PageGroup:
    """Handlers of some pages."""

    def __init__(self, render: Render, caller_of: Callable[[web.Request], Caller]) -> None:
        self.render = render
        self._caller_of = caller_of

    def caller(self, request: web.Request) -> Caller:
        """Return the API as the person of this request may call it."""
        return self._caller_of(request)

    async def call(self, request: web.Request, method: Callable[[Any], Any], wanted: Any) -> Any:
        """Make a call. Raises ClientError."""
        return await self._caller_of(request).call(method, wanted)

    def client(
        self, request: web.Request, client_id: str = "", lease_s: float = LEASE_MS / 1000
    ) -> Client:
        """Return a client of the data plane for the person of this request, not open yet."""
        endpoint, tls, metadata = self._caller_of(request).endpoint
        return Client([endpoint], tls=tls, client_id=client_id, lease_s=lease_s, metadata=metadata)

    def queue_name(self, request: web.Request) -> pb.QueueName:
        """Return the queue in the path."""
        return pb.QueueName(queue_id=number(request.match_info["queue"]))

    async def found_queue(self, request: web.Request) -> Any:
        """Return the queue in the path. Raises ClientError."""
        wanted = pb.GetQueueRequest(queue=self.queue_name(request))
        return await self.call(request, lambda s: s.queues.GetQueue, wanted)

    async def seen_queue(self, request: web.Request) -> Any:
        """Return the queue in the path as far as its access list shows it: without the right to its
        properties only its number. Raises ClientError.
        """
        try:
            return await self.found_queue(request)
        except AccessDenied:
            queue_id = number(request.match_info["queue"])
            return pb.Queue(queue_id=queue_id, path_name=f"Queue {queue_id}")


class Cell(msgspec.Struct, frozen=True):
    """A text in a table, and where it leads, "" for nowhere."""

    text: str
    link: str = ""


def cells_of(rows: Sequence[Sequence[Cell | str | int]]) -> list[list[Cell]]:
    """Return rows as the template of a table has them."""
    return [[one if isinstance(one, Cell) else Cell(str(one)) for one in row] for row in rows]


def has_properties(queue: Any) -> bool:
    """Whether the person sees more of a queue than its number."""
    return bool(queue.identifier)


def number(text: Any) -> int:
    """Return an unsigned number of 64 bits. Raises web.HTTPBadRequest."""
    try:
        found = int(str(text))
    except ValueError:
        raise web.HTTPBadRequest(reason="a number is wanted") from None
    if not 0 <= found < 1 << 64:
        raise web.HTTPBadRequest(reason="a number below 2^64 is wanted")
    return found


def number_within(form: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    """Return a field's number, None if it is left empty. Raises web.HTTPBadRequest."""
    text = form.get(name, "")
    if not text:
        return None
    found = number(text)
    if not low <= found <= high:
        raise web.HTTPBadRequest(reason=f"{name}: a number of {low} to {high} is wanted")
    return found


def see(path: str) -> web.Response:
    """Have the browser open another page."""
    return web.Response(status=303, headers={"Location": path})


def texts_of() -> dict[str, Callable[..., str]]:
    """Return the filters of templates."""
    return {
        "instant": instant,
        "instant_ms": instant_ms,
        "hex": lambda raw: raw.hex(),
        "message_id": message_id_text,
        "plain": plain,
        "amount": amount,
        "age": age,
        "query": lambda values: urlencode(values, quote_via=quote),
    }


def instant(seconds: float) -> str:
    """Return UTC seconds as text, "" for 0."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def instant_ms(milliseconds: int) -> str:
    """Return UTC milliseconds as text, "" for 0."""
    return instant(milliseconds / 1000)


def plain(value: Any) -> str:
    """Return an attribute or property as text."""
    if isinstance(value, bytes):
        return guid_text(value) if len(value) == 16 else value.hex()
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value)


def age(seconds: int) -> str:
    """Return how long ago as text, in its two largest units."""
    parts: list[str] = []
    left = max(seconds, 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def amount(count: int) -> str:
    """Return bytes with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
