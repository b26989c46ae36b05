"""Pages of messages, and what can be done with one or with several of a queue."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from qm.client.client import Access, Client
from qm.client.errors import ClientError
from qm.client.message import Message
from qm.client.queue import Queue, exactly
from qm.client.sending import is_transactional, send_packet
from qm.console.forms import form_of, values_of
from qm.console.messages.bodies import EDITED_MAX_BYTES, editable_text, edited_body, shown_body
from qm.console.messages.reading import MessageGroup, download, packet_name
from qm.console.messages.sending import send_all
from qm.console.page_group import number, see
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2

_GONE: Final = "the message has left the queue, or is locked"
_KEPT: Final = (
    "body",
    "body_type",
    "label",
    "correlation_id",
    "application_tag",
    "response_queue",
    "response_queues",
    "administration_queue",
    "acknowledgements",
    "dead_letter",
    "journal",
    "extension",
    "trace",
)
"""Properties that a copy has of its original; it is sent now, by the person at the console."""

_KEPT_IF_SET: Final = ("priority", "time_to_reach_queue_s", "time_to_be_received_s")

_Act = Callable[[web.Request, int, Mapping[str, str]], Awaitable[None]]


class MessagePages(MessageGroup):
    """Handlers of messages."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        queue, message = "/queues/{queue:[0-9]+}", "/queues/{queue:[0-9]+}/{key:[0-9]+}"
        return [
            web.get(message, self._message),
            web.get(f"{message}/body", self._body),
            web.get(f"{message}/packet", self._packet),
            web.get(f"{message}/edit", self._edit),
            web.post(f"{message}/resend", self._resend),
            web.post(message + "/{verb:delete|return|move|copy}", self._do),
            web.post(f"{queue}/messages", self._do_with_several),
            web.post(f"{queue}/load", self._load),
        ]

    async def _message(self, request: web.Request) -> web.Response:
        found = await self.found(request, number(request.match_info["key"]))
        form = request.query.get("form", "")
        return self.render(
            request,
            "message.html.j2",
            queue=await self.seen_queue(request),
            message=found,
            fields=list(found.properties.ListFields()),
            body=shown_body(found.properties.body, found.properties.body_type, form),
            is_editable=len(found.properties.body) <= EDITED_MAX_BYTES,
        )

    async def _body(self, request: web.Request) -> web.StreamResponse:
        found = await self.found(request, number(request.match_info["key"]))
        name = f"message-{found.lookup_identifier}.bin"
        return await download(request, name, found.properties.body)

    async def _packet(self, request: web.Request) -> web.StreamResponse:
        """The message as `qm message save` writes it, with its properties."""
        key = number(request.match_info["key"])
        found = await self.found(request, key, data_pb2.PACKETS)
        return await download(request, packet_name(key), found.packet)

    async def _load(self, request: web.Request) -> web.Response:
        """Send what was saved as a new message with the same properties."""
        form = await form_of(request)
        try:
            packet = bytes.fromhex(form.get("packet", ""))
        except ValueError:
            packet = b""
        if not packet:
            raise web.HTTPBadRequest(reason="choose a file that a message was saved to")
        found = await self.found_queue(request)
        async with self.client(request) as client:
            target = client.format_name(found.format_name or found.path_name)
            if is_transactional(packet):
                async with client.transaction() as one:
                    await send_packet(await one.session(), [target], packet, one.identifier)
            else:
                await send_packet(client.main, [target], packet)
        return see(f"/queues/{found.queue_id}")

    # One message, or several

    def _acts(self) -> Mapping[str, _Act]:
        return {
            "delete": self._delete,
            "return": self._return,
            "move": self._move,
            "copy": self._copy,
        }

    async def _do(self, request: web.Request) -> web.Response:
        act = self._acts()[request.match_info["verb"]]
        await act(request, number(request.match_info["key"]), await form_of(request))
        return see(f"/queues/{request.match_info['queue']}")

    async def _do_with_several(self, request: web.Request) -> web.Response:
        """Do the same with each; those that have left meanwhile do not keep the others."""
        form = await form_of(request)
        act = self._acts().get(form.get("verb", ""))
        keys = [number(key) for key in await values_of(request, "key")]
        if act is None or not keys:
            raise web.HTTPBadRequest(reason="choose messages, and what to do with them")
        failed: list[tuple[int, str]] = []
        for key in keys:
            try:
                await act(request, key, form)
            except web.HTTPNotFound as error:
                failed.append((key, error.reason))
            except ClientError as error:
                failed.append((key, str(error)))
        if not failed:
            return see(f"/queues/{request.match_info['queue']}")
        return self.render(
            request,
            "several.html.j2",
            queue=await self.seen_queue(request),
            verb=form["verb"],
            done=len(keys) - len(failed),
            failed=failed,
        )

    async def _delete(self, request: web.Request, key: int, form: Mapping[str, str]) -> None:
        """Receive a message by its identifier, and drop it."""
        found = await self.found_queue(request)
        async with self.client(request) as client:
            queue = await client.open_queue(found.format_name or found.path_name, Access.RECEIVE)
            if await queue.receive(0, selection=exactly(key)) is None:
                raise web.HTTPNotFound(reason=_GONE)

    async def _return(self, request: web.Request, key: int, form: Mapping[str, str]) -> None:
        await self._send_again(request, key, "")

    async def _move(self, request: web.Request, key: int, form: Mapping[str, str]) -> None:
        target = await self._target(request, form)
        if ";" not in target:
            await self._send_again(request, key, target)
            return
        found = await self.found_queue(request)
        async with self.client(request) as client:
            source = await client.open_queue(found.format_name or found.path_name)
            await self._move_to_subqueue(client, source, key, target)

    async def _move_to_subqueue(self, client: Client, source: Queue, key: int, target: str) -> None:
        message = await source.peek(selection=exactly(key))
        if message is None:
            raise web.HTTPNotFound(reason=_GONE)
        await source.move(message, await client.open_queue(target, Access.MOVE))

    async def _send_again(self, request: web.Request, key: int, target: str) -> None:
        """Send it anew; the original ends in the same step."""
        wanted = pb.ReturnToSourceRequest(
            queue=self.queue_name(request), lookup_identifier=key, target=target
        )
        await self.call(request, lambda s: s.messages.ReturnToSource, wanted)

    async def _copy(self, request: web.Request, key: int, form: Mapping[str, str]) -> None:
        target = await self._target(request, form)
        found = await self.found(request, key)
        await self._send(request, target, _copied(found.properties))

    async def _target(self, request: web.Request, form: Mapping[str, str]) -> str:
        target = form.get("target", "").strip()
        if not target:
            raise web.HTTPBadRequest(reason="name the queue that it is to go to")
        if "\\" in target or "=" in target:
            return target
        manager = await self.call(
            request, lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
        )
        return f"{manager.computer_name}\\private$\\{target}"

    async def _send(self, request: web.Request, target: str, message: Message) -> None:
        async with self.client(request) as client:
            takes_transactions = await self._is_transactional(request, client.format_name(target))
            await send_all(client, target, [message], takes_transactions)

    async def _is_transactional(self, request: web.Request, target: str) -> bool:
        wanted = pb.GetQueueRequest(queue=pb.QueueName(name=target))
        try:
            return bool(
                (await self.call(request, lambda s: s.queues.GetQueue, wanted)).is_transactional
            )
        except ClientError:
            return False  # it is elsewhere, or missing: the send says which

    # Editing

    async def _edit(self, request: web.Request) -> web.Response:
        found = await self.found(request, number(request.match_info["key"]))
        properties = found.properties
        if len(properties.body) > EDITED_MAX_BYTES:
            raise web.HTTPBadRequest(
                reason=f"bodies of more than {EDITED_MAX_BYTES >> 10} KiB are not edited here:"
                " download it, and send it with `qm message send --file`"
            )
        text, form = editable_text(properties.body, properties.body_type)
        return self.render(
            request,
            "edit.html.j2",
            queue=await self.seen_queue(request),
            message=found,
            text=text,
            form=form,
        )

    async def _resend(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        key = number(request.match_info["key"])
        found = await self.found(request, key)
        message = _copied(found.properties)
        try:
            message.body = edited_body(form.get("body", ""), form.get("form", ""))
        except ValueError as error:
            raise web.HTTPBadRequest(reason=str(error)) from None
        message.label = form.get("label", "")
        message.priority = number(form.get("priority", "3"))
        await self._send(request, await self._target(request, form), message)
        if "delete" in form:
            await self._delete(request, key, form)
        return see(f"/queues/{request.match_info['queue']}")


def _copied(properties: data_pb2.Properties) -> Message:
    """Return a message to send with what a copy keeps."""
    message = Message()
    for name in _KEPT:
        value = getattr(properties, name)
        setattr(message, name, tuple(value) if name == "response_queues" else value)
    was_set = {field.name for field, _ in properties.ListFields()}
    for name in _KEPT_IF_SET:
        setattr(message, name, getattr(properties, name) if name in was_set else None)
    message.recoverable = properties.delivery == data_pb2.RECOVERABLE
    return message
