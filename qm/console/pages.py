"""The overview, and the pages of queues: each is a few calls of the public API."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from qm.api.gate.identity import Role
from qm.archive.reasons import reason_name
from qm.client.errors import AccessDenied, ClientError
from qm.client.search import PLACES, found_in
from qm.client.values import python_value, value_of
from qm.console.attributes import ATTRIBUTES, changes_of
from qm.console.forms import form_of, values_of
from qm.console.messages.receiving import RECEIVED_MAX, WAIT_MAX_S
from qm.console.page_group import PAGE_ITEMS, PageGroup, has_properties, number, see
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2


class Column(msgspec.Struct, frozen=True):
    """A column that a list of queues can be sorted by."""

    name: str
    title: str
    order: pb.QueueOrder.ValueType
    is_greatest_first: bool = False
    """Unless asked otherwise."""


SEARCHED_QUEUES_MAX: Final = 20_000
_COLUMNS: Final = (
    Column("name", "Queue", pb.BY_NAME),
    Column("messages", "Messages", pb.BY_MESSAGES, is_greatest_first=True),
    Column("bytes", "Bytes", pb.BY_BYTES, is_greatest_first=True),
    Column("age", "Oldest", pb.BY_AGE, is_greatest_first=True),
    Column("quota", "Quota", pb.BY_QUOTA, is_greatest_first=True),
)
MATCHING_MAX: Final = 500
"""Queues that are purged or deleted by their names at once; a browser waits for them."""
_WAYS: Final = {"up": False, "down": True}
MESSAGE_ID_BYTES: Final = 20
SCANNED_ITEMS: Final = 1_000
"""Messages that a call looks at where few are shown."""
SEARCH_MAX_S: Final = 2.0
"""A page is there within 3 s; it says how far the search came."""
_UNREAD: Final = (pb.ORDER, pb.NOTIFICATION, pb.CONNECTOR)
_KINDS: Final = tuple(one.name.lower() for one in pb.QueueKind.DESCRIPTOR.values)


class Pages(PageGroup):
    """Handlers by path."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        queue = "/queues/{queue:[0-9]+}"
        return [
            web.get("/", self._overview),
            web.get("/live", self._live),
            web.get("/figures", self._figures),
            web.get("/queues", self._queues),
            web.post("/queues", self._create),
            web.post("/queues/several", self._do_with_several),
            web.post("/queues/matching", self._do_with_matching),
            web.get("/search", self._search),
            web.get("/trace", self._trace),
            web.get(queue, self._queue),
            web.post(f"{queue}/set", self._set),
            web.post(f"{queue}/purge", self._purge),
            web.post(f"{queue}/delete", self._delete),
        ]

    # Overview

    async def _status(self, request: web.Request) -> Any:
        return await self.call(request, lambda s: s.cluster.GetStatus, pb.GetStatusRequest())

    async def _overview(self, request: web.Request) -> web.Response:
        if self.caller(request).who.role is Role.CLIENT:
            return see("/queues")
        return self.render(request, "overview.html.j2", status=await self._status(request))

    async def _live(self, request: web.Request) -> web.Response:
        """The part of the overview that is renewed."""
        return self.render(request, "live.html.j2", status=await self._status(request))

    async def _figures(self, request: web.Request) -> web.Response:
        """Totals from which the page makes rates and gaps."""
        status = await self._status(request)
        return web.json_response(
            {
                "now_ms": status.now_ms,
                "commit_index": status.commit_index,
                "message_bytes": status.message_bytes,
                "leader": status.leader,
                "leaderless_ms": status.leaderless_ms,
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
            reply = await self.call(request, lambda s: s.queues.ListQueues, wanted)
            found += [queue for queue in reply.queues if not queue.is_deleting]
            token = reply.page_token
            if not token or len(found) >= SEARCHED_QUEUES_MAX:
                return found

    async def _queues(self, request: web.Request) -> web.Response:
        asked = request.query
        text, sort, kind = asked.get("filter", ""), asked.get("sort", "name"), asked.get("kind", "")
        column = next((one for one in _COLUMNS if one.name == sort), None)
        if column is None or (kind and kind not in _KINDS):
            raise web.HTTPBadRequest(reason="there is no such order or kind of queue")
        is_descending = _WAYS.get(asked.get("way", ""), column.is_greatest_first)
        first = number(asked.get("first", "0"))
        wanted = pb.ListQueuesRequest(
            page_size=PAGE_ITEMS,
            page_token=str(first),
            pattern=f"*{text}*" if text else "",
            kinds=[pb.QueueKind.Value(kind.upper())] if kind else [],
            order=column.order,
            is_descending=is_descending,
            with_statistics=True,
        )
        reply = await self.call(request, lambda s: s.queues.ListQueues, wanted)
        return self.render(
            request,
            "queues.html.j2",
            queues=reply.queues,
            count=reply.total_count,
            now_s=reply.now_ms // 1000,
            first=first,
            page_items=PAGE_ITEMS,
            chosen={"filter": text, "kind": kind},
            sort=sort,
            way="down" if is_descending else "up",
            kinds=_KINDS,
            columns=_COLUMNS,
            fields=ATTRIBUTES,
        )

    async def _create(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        attributes = changes_of(form) | {"transactional": value_of("transactional" in form)}
        path = str(form.get("path", ""))
        if path and "\\" not in path:
            path = f".\\private$\\{path}"
        if path.startswith(".\\"):
            manager = await self.call(
                request, lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
            )
            path = manager.computer_name + path[1:]
        made = await self.call(
            request,
            lambda s: s.queues.CreateQueue,
            pb.CreateQueueRequest(path_name=path, attributes=attributes),
        )
        return see(f"/queues/{made.queue_id}")

    async def _queue(self, request: web.Request) -> web.Response:
        """What the access list shows: attributes, messages, or both."""
        found = await self.seen_queue(request)
        try:
            messages, after, reasons = await self._contents(request)
        except AccessDenied:
            if not has_properties(found):
                raise
            messages, after, reasons = None, "", []
        return self.render(
            request,
            "queue.html.j2",
            queue=found,
            journal=await self._journal_of(request, found),
            sees_properties=has_properties(found),
            attributes={name: python_value(found.attributes[name]) for name in found.attributes},
            fields=ATTRIBUTES,
            messages=messages,
            after=after,
            reasons=reasons,
            received_max=RECEIVED_MAX,
            wait_max_s=WAIT_MAX_S,
        )

    async def _journal_of(self, request: web.Request, queue: Any) -> Any:
        """Return a queue's journal, None for none."""
        if not queue.journal_queue_id:
            return None
        wanted = pb.GetQueueRequest(queue=pb.QueueName(queue_id=queue.journal_queue_id))
        return await self.call(request, lambda s: s.queues.GetQueue, wanted)

    async def _contents(self, request: web.Request) -> tuple[Any, str, list[Any]]:
        """Return some messages, where the next ones begin, and why they are there."""
        browse = pb.BrowseRequest(
            queue=self.queue_name(request),
            page_size=PAGE_ITEMS,
            page_token=request.query.get("after", ""),
            view=data_pb2.PROPERTIES_WITHOUT_BODY,
        )
        reply = await self.call(request, lambda s: s.messages.Browse, browse)
        wanted = pb.CountClassesRequest(queue=self.queue_name(request))
        counts = await self.call(request, lambda s: s.messages.CountClasses, wanted)
        reasons = [one for one in counts.counts if one.message_class]
        return reply.messages, reply.page_token, reasons

    async def _set(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        before = await self.found_queue(request)
        wanted = pb.SetQueueRequest(
            queue=self.queue_name(request), changes=changes_of(form, before.attributes)
        )
        if "version" in form:
            wanted.if_version = number(form["version"])
        await self.call(request, lambda s: s.queues.SetQueue, wanted)
        return see(f"/queues/{request.match_info['queue']}")

    async def _purge(self, request: web.Request) -> web.Response:
        wanted = pb.PurgeQueueRequest(queue=self.queue_name(request))
        await self.call(request, lambda s: s.queues.PurgeQueue, wanted)
        return see(f"/queues/{request.match_info['queue']}")

    async def _delete(self, request: web.Request) -> web.Response:
        wanted = pb.DeleteQueueRequest(queue=self.queue_name(request))
        await self.call(request, lambda s: s.queues.DeleteQueue, wanted)
        return see("/queues")

    async def _do_with_several(self, request: web.Request) -> web.Response:
        """Purge or delete each; one that is refused does not keep the others."""
        form = await form_of(request)
        chosen = await values_of(request, "queue")
        return await self._each(request, form.get("verb", ""), [number(one) for one in chosen])

    async def _do_with_matching(self, request: web.Request) -> web.Response:
        """The same with all queues whose names contain a text, if they are as many as were seen."""
        form = await form_of(request)
        text, kind = form.get("filter", ""), form.get("kind", "")
        if not text or (kind and kind not in _KINDS):
            raise web.HTTPBadRequest(reason="say what the names of the queues contain")
        kinds = [pb.QueueKind.Value(kind.upper())] if kind else []
        found = await self._all_queues(request, f"*{text}*", kinds)
        if len(found) != number(form.get("count", "")):
            raise web.HTTPConflict(reason=f"{len(found)} queues match now: look at the list again")
        if len(found) > MATCHING_MAX:
            raise web.HTTPBadRequest(
                reason=f"at most {MATCHING_MAX} queues at a time: narrow the text, or use"
                " `qm queue purge` or `qm queue delete` with a pattern"
            )
        return await self._each(request, form.get("verb", ""), [one.queue_id for one in found])

    async def _each(
        self, request: web.Request, verb: str, queue_ids: Sequence[int]
    ) -> web.Response:
        if verb not in ("purge", "delete") or not queue_ids:
            raise web.HTTPBadRequest(reason="choose queues, and what to do with them")
        failed: list[tuple[int, str]] = []
        for queue_id in queue_ids:
            name = pb.QueueName(queue_id=queue_id)
            try:
                if verb == "purge":
                    wanted = pb.PurgeQueueRequest(queue=name)
                    await self.call(request, lambda s: s.queues.PurgeQueue, wanted)
                else:
                    gone = pb.DeleteQueueRequest(queue=name)
                    await self.call(request, lambda s: s.queues.DeleteQueue, gone)
            except ClientError as error:
                failed.append((queue_id, str(error)))
        if not failed:
            return see("/queues")
        done = len(queue_ids) - len(failed)
        return self.render(
            request, "several.html.j2", queue=None, verb=verb, done=done, failed=failed
        )

    # Search

    async def _search(self, request: web.Request) -> web.Response:
        """Messages with a text in them: as many as are found in the time of a page."""
        asked = request.query
        text, pattern = asked.get("text", ""), asked.get("queue", "")
        places = [place for place in PLACES if place in asked] or list(PLACES)
        found: list[tuple[Any, Any, list[str]]] = []
        looked, is_whole = 0, True
        if text:
            loop = asyncio.get_running_loop()
            end = loop.time() + SEARCH_MAX_S
            async for queue, entry in self._messages(request, pattern, "body" in places):
                looked += 1
                where = found_in(entry, text, places)
                if where:
                    found.append((queue, entry, where))
                if len(found) == PAGE_ITEMS or loop.time() > end:
                    is_whole = False
                    break
        return self.render(
            request,
            "search.html.j2",
            text=text,
            queue=pattern,
            chosen=places,
            places=PLACES,
            found=found,
            looked=looked,
            is_whole=is_whole,
        )

    async def _trace(self, request: web.Request) -> web.Response:
        """Where a message and its acknowledgments are: what is found in the time of a page."""
        try:
            identifier = bytes.fromhex(request.query.get("id", ""))
        except ValueError:
            identifier = b""
        if len(identifier) != MESSAGE_ID_BYTES:
            raise web.HTTPBadRequest(reason="a message's identifier has 40 hexadecimal digits")
        held: list[tuple[Any, Any]] = []
        told: list[tuple[Any, Any, str]] = []
        is_whole = True
        try:
            async with asyncio.timeout(SEARCH_MAX_S):
                async for queue, entry in self._messages(request, message_id=identifier):
                    held.append((queue, entry))
                async for queue, entry in self._messages(request, correlation_id=identifier):
                    if entry.properties.message_class:
                        told.append((queue, entry, reason_name(entry.properties.message_class)))
        except TimeoutError:
            is_whole = False
        return self.render(
            request,
            "trace.html.j2",
            message_id=identifier,
            held=held[:PAGE_ITEMS],
            told=told[:PAGE_ITEMS],
            is_whole=is_whole and max(len(held), len(told)) <= PAGE_ITEMS,
        )

    async def _messages(
        self,
        request: web.Request,
        pattern: str = "",
        with_bodies: bool = False,
        **identifiers: bytes,
    ) -> AsyncIterator[tuple[Any, Any]]:
        view = data_pb2.PROPERTIES if with_bodies else data_pb2.PROPERTIES_WITHOUT_BODY
        for queue in await self._all_queues(request, f"*{pattern}*" if pattern else "", []):
            if not queue.message_count or queue.kind in _UNREAD:
                continue
            token = ""
            while True:
                wanted = pb.BrowseRequest(
                    queue=pb.QueueName(queue_id=queue.queue_id),
                    page_size=SCANNED_ITEMS if identifiers else PAGE_ITEMS,
                    page_token=token,
                    view=view,
                    message_id=identifiers.get("message_id", b""),
                    correlation_id=identifiers.get("correlation_id", b""),
                )
                try:
                    reply = await self.call(request, lambda s: s.messages.Browse, wanted)
                except AccessDenied:
                    break
                for entry in reply.messages:
                    yield queue, entry
                token = reply.page_token
                if not token:
                    break
