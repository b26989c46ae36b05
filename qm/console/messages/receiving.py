"""Receiving and peeking at several messages of a queue.

What is received is lent first (two-phase receive): it stays in its queue, locked, while a page
shows it, and leaves the queue when the person accepts it. Whatever becomes of the page, the browser
or this node, a message is accepted or returns. The session that holds the locks is the cluster's;
this node remembers nothing of it.
"""

import asyncio
import secrets
from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final
from urllib.parse import urlencode
from zipfile import ZipFile

import msgspec
from aiohttp import web

from qm.client.client import Access
from qm.client.errors import MqError
from qm.client.message import ReceivedMessage
from qm.client.queue import Queue, after
from qm.console.forms import form_of, values_of
from qm.console.messages.bodies import ShownBody, shown_body
from qm.console.messages.reading import MessageGroup, download, packet_name
from qm.console.page_group import number, number_within, see
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode

RECEIVED_MAX: Final = 100
"""Messages at a time."""
WAIT_MAX_S: Final = 10
"""For the first one."""
TAKING_MAX_S: Final = 5.0
"""For the others, once the first is there: then the page shows those that were taken."""
LENT_S: Final = 300
"""How long messages wait for being accepted; then they return to their queue."""
SHOWN_MAX_CHARS: Final = 1 << 20
"""Of all bodies of a page; those behind it are on pages of their own."""
SAVED_MAX_BYTES: Final = 16 << 20
"""Of messages in one file."""
_LENT_ID_BYTES: Final = 16
_GONE: Final = (ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)
_NOT_LENT: Final = "it is not lent to you any more: it was accepted, or is in its queue again"


class Shown(msgspec.Struct, frozen=True):
    """A message of a page."""

    message: Any
    fields: Sequence[Any]
    body: ShownBody | None
    """None: the page has no room for it."""
    is_lent: bool


class Receiving(MessageGroup):
    """Handlers of messages that are received or peeked at together."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        queue = "/queues/{queue:[0-9]+}"
        lent = f"{queue}/lent/{{lent:[0-9a-f]{{32}}}}"
        return [
            web.post(f"{queue}/receive", self._take),
            web.get(f"{queue}/peeked", self._shown),
            web.get(lent, self._shown),
            web.post(lent, self._settle),
            web.get(f"{queue}/packets", self._packets),
        ]

    # Taking ----------------------------------------------------------------------------------

    async def _take(self, request: web.Request) -> web.Response:
        """Lend or peek at messages, and lead to a page that shows them: to load it again, or to go
        back to it, takes nothing more.
        """
        form = await form_of(request)
        count = number_within(form, "count", 1, RECEIVED_MAX) or 1
        timeout_s = number_within(form, "timeout", 0, WAIT_MAX_S) or 0
        queue = await self.found_queue(request)
        name = queue.format_name or queue.path_name
        match form.get("verb", "receive"):
            case "receive":
                lent = secrets.token_hex(_LENT_ID_BYTES)
                keys = await self._lend(request, lent, name, count, timeout_s)
                path = f"lent/{lent}"
            case "peek":
                keys = await self._peek(request, name, count, timeout_s)
                path = "peeked"
            case _:
                raise web.HTTPBadRequest(reason="messages are received or peeked at")
        if keys:
            return see(f"/queues/{queue.queue_id}/{path}?{_query(keys)}")
        return self.render(request, "none.html.j2", queue=queue, count=count, timeout_s=timeout_s)

    async def _lend(
        self, request: web.Request, lent: str, name: str, count: int, timeout_s: int
    ) -> list[int]:
        """Lock messages for a session that stays for LENT_S; none stays locked after a failure."""
        client = self.client(request, _client_id(lent), LENT_S)
        keys: list[int] = []
        await client.open()
        try:
            queue = await client.open_queue(name, Access.RECEIVE)
            keys = await _lent_keys(queue, count, timeout_s)
        finally:
            await client.close(confirm=not keys)
        return keys

    async def _peek(self, request: web.Request, name: str, count: int, timeout_s: int) -> list[int]:
        async with self.client(request) as client:
            queue = await client.open_queue(name, Access.PEEK)
            found = await queue.peek_many(count, timeout_s)
            keys = _keys_of(found)
            while found and len(keys) < count:
                found = await queue.peek_many(count - len(keys), selection=after(keys[-1]))
                keys += _keys_of(found)
        return keys

    # Showing ---------------------------------------------------------------------------------

    async def _shown(self, request: web.Request) -> web.Response:
        keys = _keys_asked(request)
        lent = request.match_info.get("lent", "")
        messages = await self._messages(request, keys, lent)
        return self.render(
            request,
            "received.html.j2",
            queue=await self.seen_queue(request),
            lent=lent,
            lent_min=LENT_S // 60,
            messages=messages,
            gone_count=len(keys) - len(messages),
            keys_query=_query(keys),
        )

    async def _messages(self, request: web.Request, keys: Sequence[int], lent: str) -> list[Shown]:
        """Return those that are still in the queue."""
        form, left = request.query.get("form", ""), SHOWN_MAX_CHARS
        shown: list[Shown] = []
        for key in keys:
            view = data_pb2.PROPERTIES if left > 0 else data_pb2.PROPERTIES_WITHOUT_BODY
            found = await self._found_if_there(request, key, view)
            if found is None:
                continue
            body = None
            if left > 0:
                body = shown_body(found.properties.body, found.properties.body_type, form)
                left -= len(body.text)
            fields = found.properties.ListFields()
            shown.append(Shown(found, fields, body, _is_lent(found, lent)))
        return shown

    async def _found_if_there(
        self, request: web.Request, key: int, view: data_pb2.View.ValueType
    ) -> Any:
        try:
            return await self.found(request, key, view)
        except MqError as error:
            if error.code in _GONE:
                return None
            raise

    async def _packets(self, request: web.Request) -> web.StreamResponse:
        """The messages in one file, each as it is saved alone."""
        keys = _keys_asked(request)
        file = BytesIO()
        with ZipFile(file, "w") as archive:
            for key in keys:
                found = await self._found_if_there(request, key, data_pb2.PACKETS)
                if found is None:
                    continue
                if file.tell() + len(found.packet) > SAVED_MAX_BYTES:
                    raise web.HTTPBadRequest(
                        reason=f"they have more than {SAVED_MAX_BYTES >> 20} MiB: save them one by"
                        " one, or ask for fewer"
                    )
                archive.writestr(packet_name(key), found.packet)
        name = f"messages-{request.match_info['queue']}.zip"
        return await download(request, name, file.getvalue())

    # Settling --------------------------------------------------------------------------------

    async def _settle(self, request: web.Request) -> web.Response:
        """Accept the chosen ones of what was lent; the others return, as their session ends."""
        form = await form_of(request)
        keys = [number(key) for key in await values_of(request, "key")]
        verb = form.get("verb", "")
        if verb not in ("accept", "return") or (verb == "accept" and not keys):
            raise web.HTTPBadRequest(reason="choose messages to accept, or return all")
        queue = await self.found_queue(request)
        client = self.client(request, _client_id(request.match_info["lent"]), LENT_S)
        async with client:
            source = await client.open_queue(queue.format_name or queue.path_name)
            failed = await _accepted(source, keys) if verb == "accept" else []
        if not failed:
            return see(f"/queues/{queue.queue_id}")
        done = len(keys) - len(failed)
        return self.render(
            request, "several.html.j2", queue=queue, verb=verb, done=done, failed=failed
        )


async def _lent_keys(queue: Queue, count: int, timeout_s: int) -> list[int]:
    """Lock messages one by one, so that few bodies are in memory."""
    loop = asyncio.get_running_loop()
    first = await queue.receive_two_phase(timeout_s)
    keys = [] if first is None else [first.lookup_identifier]
    end = loop.time() + TAKING_MAX_S
    while keys and len(keys) < count and loop.time() < end:
        message = await queue.receive_two_phase(0)
        if message is None:
            break
        keys.append(message.lookup_identifier)
    return keys


async def _accepted(source: Queue, keys: Sequence[int]) -> list[tuple[int, str]]:
    """Accept lent messages; return those that were not lent any more, and why."""
    failed: list[tuple[int, str]] = []
    for key in keys:
        lent = ReceivedMessage(b"", 0, key, source.queue_id, 0, 0, 0)
        try:
            await source.accept(lent)
        except MqError as error:
            is_over = error.code == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
            failed.append((key, _NOT_LENT if is_over else str(error)))
    return failed


def _client_id(lent: str) -> str:
    """Return the session of what was lent; the cluster lets its owner alone use it."""
    return f"console-{lent}"


def _is_lent(found: Any, lent: str) -> bool:
    """Whether a message is locked for that session, as far as the person sees who holds it."""
    is_locked = found.state == pb.POSITION_LOCKED
    return is_locked and (not found.lock_owner or found.lock_owner.startswith(_client_id(lent)))


def _keys_of(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [message.lookup_identifier for message in messages]


def _keys_asked(request: web.Request) -> list[int]:
    """Return which messages a page is to show. Raises web.HTTPBadRequest."""
    keys = [number(key) for key in request.query.getall("key", [])]
    if not 0 < len(keys) <= RECEIVED_MAX:
        raise web.HTTPBadRequest(reason=f"1 to {RECEIVED_MAX} messages are shown together")
    return keys


def _query(keys: Sequence[int]) -> str:
    return urlencode([("key", key) for key in keys])
