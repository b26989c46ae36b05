"""The console's pages and what their buttons do: each is a few calls of the public API."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import web

from qm.client.client import Access as QueueAccess
from qm.client.client import Client
from qm.client.message import Message
from qm.client.queue import exactly
from qm.client.values import python_value, value_of
from qm.console.bodies import shown_body
from qm.console.forms import form_of
from qm.console.people import Caller
from qm.names.guid import guid_text
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2

PAGE_ITEMS: Final = 100
SORT_QUEUES_MAX: Final = 20_000
"""Queues that are read for one list: it is sorted here."""
EVENTS_SHOWN_MAX: Final = 500
_PART_BYTES: Final = 64 << 10
"""Of a body that is downloaded."""
_SORTS: Final[Mapping[str, Callable[[pb.Queue], Any]]] = {
    "name": lambda queue: queue.path_name.lower(),
    "messages": lambda queue: -queue.message_count,
    "bytes": lambda queue: -queue.total_bytes,
}
_KINDS: Final = tuple(one.name.lower() for one in pb.QueueKind.DESCRIPTOR.values)
_CHANGEABLE: Final = ("label", "quota", "journaling", "max_deliveries", "retry_delay_ms")

Render = Callable[..., web.Response]


class Pages:
    """Handlers by path."""

    def __init__(self, render: Render, caller_of: Callable[[web.Request], Caller]) -> None:
        self._render = render
        self._caller_of = caller_of

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        queue, message = "/queues/{queue:[0-9]+}", "/queues/{queue:[0-9]+}/{key:[0-9]+}"
        return [
            web.get("/", self._overview),
            web.get("/live", self._live),
            web.get("/figures", self._figures),
            web.get("/queues", self._queues),
            web.post("/queues", self._create),
            web.get(queue, self._queue),
            web.post(f"{queue}/set", self._set),
            web.post(f"{queue}/purge", self._purge),
            web.post(f"{queue}/delete", self._delete),
            web.post(f"{queue}/send", self._send),
            web.get(message, self._message),
            web.get(f"{message}/body", self._body),
            web.post(f"{message}/delete", self._take),
            web.post(f"{message}/return", self._return),
            web.get("/outgoing", self._outgoing),
            web.post("/outgoing/{queue:[0-9]+}/{verb:pause|resume|resend}", self._steer),
            web.get("/clients", self._clients),
            web.post("/clients/close", self._close_client),
            web.get("/transactions", self._transactions),
            web.post("/transactions/resolve", self._resolve),
            web.get("/events", self._events),
        ]

    async def _call(self, request: web.Request, method: Callable[[Any], Any], wanted: Any) -> Any:
        return await self._caller_of(request).call(method, wanted)

    # Overview

    async def _status(self, request: web.Request) -> Any:
        return await self._call(request, lambda s: s.cluster.GetStatus, pb.GetStatusRequest())

    async def _overview(self, request: web.Request) -> web.Response:
        return self._render(request, "overview.html.j2", status=await self._status(request))

    async def _live(self, request: web.Request) -> web.Response:
        """The part of the overview that is renewed."""
        return self._render(request, "live.html.j2", status=await self._status(request))

    async def _figures(self, request: web.Request) -> web.Response:
        """Totals from which the page makes rates."""
        status = await self._status(request)
        return web.json_response(
            {
                "now_ms": status.now_ms,
                "commit_index": status.commit_index,
                "message_bytes": status.message_bytes,
                "leader": status.leader,
            }
        )

    # Queues

    async def _all_queues(
        self, request: web.Request, pattern: str, kinds: list[pb.QueueKind.ValueType]
    ) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            wanted = pb.ListQueuesRequest(
                page_size=1_000, page_token=token, pattern=pattern, kinds=kinds
            )
            reply = await self._call(request, lambda s: s.queues.ListQueues, wanted)
            found += [queue for queue in reply.queues if not queue.is_deleting]
            token = reply.page_token
            if not token or len(found) >= SORT_QUEUES_MAX:
                return found

    async def _queues(self, request: web.Request) -> web.Response:
        asked = request.query
        text, sort, kind = asked.get("filter", ""), asked.get("sort", "name"), asked.get("kind", "")
        if sort not in _SORTS or (kind and kind not in _KINDS):
            raise web.HTTPBadRequest(reason="there is no such order or kind of queue")
        kinds = [pb.QueueKind.Value(kind.upper())] if kind else []
        pattern = f"*{text}*" if text else ""
        found = sorted(await self._all_queues(request, pattern, kinds), key=_SORTS[sort])
        first = _number(asked.get("first", "0"))
        shown = found[first : first + PAGE_ITEMS]
        return self._render(
            request,
            "queues.html.j2",
            queues=shown,
            count=len(found),
            first=first,
            page_items=PAGE_ITEMS,
            filter=text,
            sort=sort,
            kind=kind,
            kinds=_KINDS,
            sorts=list(_SORTS),
        )

    async def _create(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        attributes = {"transactional": value_of("transactional" in form)}
        path = str(form.get("path", ""))
        if path and "\\" not in path:
            path = f".\\private$\\{path}"
        if path.startswith(".\\"):
            manager = await self._call(
                request, lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
            )
            path = manager.computer_name + path[1:]
        made = await self._call(
            request,
            lambda s: s.queues.CreateQueue,
            pb.CreateQueueRequest(path_name=path, attributes=attributes),
        )
        return _see(f"/queues/{made.queue_id}")

    def _name(self, request: web.Request) -> pb.QueueName:
        return pb.QueueName(queue_id=_number(request.match_info["queue"]))

    async def _found_queue(self, request: web.Request) -> Any:
        wanted = pb.GetQueueRequest(queue=self._name(request))
        return await self._call(request, lambda s: s.queues.GetQueue, wanted)

    async def _queue(self, request: web.Request) -> web.Response:
        found = await self._found_queue(request)
        browse = pb.BrowseRequest(
            queue=self._name(request),
            page_size=PAGE_ITEMS,
            page_token=request.query.get("after", ""),
            view=data_pb2.PROPERTIES_WITHOUT_BODY,
        )
        reply = await self._call(request, lambda s: s.messages.Browse, browse)
        wanted = pb.CountClassesRequest(queue=self._name(request))
        counts = await self._call(request, lambda s: s.messages.CountClasses, wanted)
        return self._render(
            request,
            "queue.html.j2",
            queue=found,
            attributes={name: python_value(found.attributes[name]) for name in found.attributes},
            changeable=_CHANGEABLE,
            messages=reply.messages,
            after=reply.page_token,
            reasons=[one for one in counts.counts if one.message_class],
        )

    async def _set(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        changes: dict[str, pb.Value] = {}
        for name in _CHANGEABLE:
            if name == "label":
                changes[name] = value_of(str(form.get(name, "")))
            elif name == "journaling":
                changes[name] = value_of(name in form)
            else:
                changes[name] = value_of(_number(form.get(name, "0")))
        wanted = pb.SetQueueRequest(queue=self._name(request), changes=changes)
        await self._call(request, lambda s: s.queues.SetQueue, wanted)
        return _see(f"/queues/{request.match_info['queue']}")

    async def _purge(self, request: web.Request) -> web.Response:
        wanted = pb.PurgeQueueRequest(queue=self._name(request))
        await self._call(request, lambda s: s.queues.PurgeQueue, wanted)
        return _see(f"/queues/{request.match_info['queue']}")

    async def _delete(self, request: web.Request) -> web.Response:
        wanted = pb.DeleteQueueRequest(queue=self._name(request))
        await self._call(request, lambda s: s.queues.DeleteQueue, wanted)
        return _see("/queues")

    # Messages

    async def _send(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        queue = await self._found_queue(request)
        message = Message.of_text(str(form.get("body", "")), label=str(form.get("label", "")))
        async with self._client(request) as client:
            if queue.is_transactional:
                async with client.transaction() as transaction:
                    await transaction.send(queue.path_name, message)
            else:
                await client.send(queue.path_name, message)
        return _see(f"/queues/{queue.queue_id}")

    def _client(self, request: web.Request) -> Client:
        endpoint, tls, metadata = self._caller_of(request).endpoint
        return Client([endpoint], tls=tls, metadata=metadata)

    async def _found_message(self, request: web.Request) -> Any:
        wanted = pb.GetMessageRequest(
            queue=self._name(request),
            lookup_identifier=_number(request.match_info["key"]),
            view=data_pb2.PROPERTIES,
        )
        return await self._call(request, lambda s: s.messages.GetMessage, wanted)

    async def _message(self, request: web.Request) -> web.Response:
        found = await self._found_message(request)
        form = request.query.get("form", "")
        body = shown_body(found.properties.body, found.properties.body_type, form)
        return self._render(
            request,
            "message.html.j2",
            queue=await self._found_queue(request),
            message=found,
            fields=list(found.properties.ListFields()),
            body=body,
        )

    async def _body(self, request: web.Request) -> web.StreamResponse:
        """Write it here, so that the request counts until its answer is taken."""
        found = await self._found_message(request)
        body = found.properties.body
        name = f"message-{found.lookup_identifier}.bin"
        answer = web.StreamResponse(
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "Content-Type": "application/octet-stream",
                "Content-Length": str(len(body)),
            }
        )
        await answer.prepare(request)
        for at in range(0, len(body), _PART_BYTES):
            await answer.write(body[at : at + _PART_BYTES])
        await answer.write_eof()
        return answer

    async def _take(self, request: web.Request) -> web.Response:
        """Receive a message by its identifier, and drop it."""
        found = await self._found_queue(request)
        key = _number(request.match_info["key"])
        async with self._client(request) as client:
            queue = await client.open_queue(
                found.format_name or found.path_name, QueueAccess.RECEIVE
            )
            if await queue.receive(0, selection=exactly(key)) is None:
                raise web.HTTPNotFound(reason="the message has left the queue, or is locked")
        return _see(f"/queues/{found.queue_id}")

    async def _return(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        wanted = pb.ReturnToSourceRequest(
            queue=self._name(request),
            lookup_identifier=_number(request.match_info["key"]),
            target=str(form.get("target", "")),
        )
        await self._call(request, lambda s: s.messages.ReturnToSource, wanted)
        return _see(f"/queues/{request.match_info['queue']}")

    # Outgoing queues, clients, transactions, events

    async def _outgoing(self, request: web.Request) -> web.Response:
        wanted = pb.ListOutgoingRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self._call(request, lambda s: s.outgoing.ListOutgoing, wanted)
        return self._render(
            request,
            "outgoing.html.j2",
            queues=[(queue, pb.OutgoingState.Name(queue.state).lower()) for queue in reply.queues],
            after=reply.page_token,
        )

    async def _steer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"].capitalize()
        wanted = pb.GetOutgoingRequest(queue=self._name(request))
        await self._call(request, lambda s: getattr(s.outgoing, verb), wanted)
        return _see("/outgoing")

    async def _clients(self, request: web.Request) -> web.Response:
        wanted = pb.ListClientsRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self._call(request, lambda s: s.clients.ListClients, wanted)
        return self._render(
            request, "clients.html.j2", clients=reply.clients, after=reply.page_token
        )

    async def _close_client(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        wanted = pb.CloseClientRequest(client_id=str(form.get("client_id", "")))
        await self._call(request, lambda s: s.clients.CloseClient, wanted)
        return _see("/clients")

    async def _transactions(self, request: web.Request) -> web.Response:
        wanted = pb.ListTransactionsRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self._call(request, lambda s: s.clients.ListTransactions, wanted)
        rows = [(one, pb.TransactionState.Name(one.state).lower()) for one in reply.transactions]
        return self._render(
            request, "transactions.html.j2", transactions=rows, after=reply.page_token
        )

    async def _resolve(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        wanted = pb.ResolveTransactionRequest(
            identifier=bytes.fromhex(str(form.get("identifier", ""))),
            commit=form.get("outcome") == "commit",
        )
        await self._call(request, lambda s: s.clients.ResolveTransaction, wanted)
        return _see("/transactions")

    async def _events(self, request: web.Request) -> web.Response:
        found = await self._caller_of(request).events(EVENTS_SHOWN_MAX)
        return self._render(request, "events.html.j2", events=found)


def _number(text: Any) -> int:
    try:
        number = int(str(text))
    except ValueError:
        raise web.HTTPBadRequest(reason="a number is wanted") from None
    if not 0 <= number < 1 << 64:
        raise web.HTTPBadRequest(reason="a number below 2^64 is wanted")
    return number


def _see(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


def texts_of() -> dict[str, Callable[..., str]]:
    """Return the filters of templates."""
    return {
        "instant": instant,
        "instant_ms": lambda ms: instant(ms / 1000) if ms else "",
        "hex": lambda raw: raw.hex(),
        "message_id": message_id,
        "plain": plain,
        "amount": amount,
        "query": lambda values: urlencode(values, quote_via=quote),
    }


def instant(seconds: float) -> str:
    """Return UTC seconds as text, "" for 0."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def message_id(raw: bytes) -> str:
    r"""Return a message identifier as MSMQ tools print it: GUID\number."""
    if len(raw) != 20:
        return raw.hex()
    return f"{guid_text(raw[:16])}\\{int.from_bytes(raw[16:], 'little')}"


def plain(value: Any) -> str:
    """Return an attribute or property as text."""
    if isinstance(value, bytes):
        return guid_text(value) if len(value) == 16 else value.hex()
    return str(value)


def amount(count: int) -> str:
    """Return bytes with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
