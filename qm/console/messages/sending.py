"""Sending a test message with the properties that a sender can set."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from aiohttp import web

from qm.client.client import Client
from qm.client.message import VT_BSTR, VT_BYTES, Message
from qm.console.forms import form_of
from qm.console.messages.bodies import edited_body
from qm.console.page_group import PageGroup, number_within, see

_T = TypeVar("_T")

MESSAGES_MAX: Final = 100
"""Messages at a time."""
CORRELATION_BYTES: Final = 20
_U32_MAX: Final = 0xFFFF_FFFF
_BODIES: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "text": ("utf-16-le", VT_BSTR),
        "bytes of UTF-8": ("utf-8", VT_BYTES),
        "hexadecimal bytes": ("hex", VT_BYTES),
    }
)
"""What a body is given as: its form (`qm.console.messages.bodies`), and its VARTYPE."""
_ACKNOWLEDGEMENTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "none": 0,
        "reach-queue": 5,
        "receive": 14,
        "nack-reach-queue": 4,
        "nack-receive": 12,
    }
)
"""As `qm message send --ack`."""


class Sending(PageGroup):
    """Handlers of the form for a message."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        path = "/queues/{queue:[0-9]+}/send"
        return [web.get(path, self._form), web.post(path, self._send)]

    async def _form(self, request: web.Request) -> web.Response:
        return self.render(
            request,
            "send.html.j2",
            queue=await self.found_queue(request),
            bodies=list(_BODIES),
            acknowledgements=list(_ACKNOWLEDGEMENTS),
            count_max=MESSAGES_MAX,
        )

    async def _send(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        queue = await self.found_queue(request)
        count = number_within(form, "count", 1, MESSAGES_MAX) or 1
        async with self.client(request) as client:
            message = _message(form, client)
            await send_all(client, queue.path_name, [message] * count, queue.is_transactional)
        return see(f"/queues/{queue.queue_id}")


async def send_all(
    client: Client, target: str, messages: Sequence[Message], is_transactional: bool
) -> None:
    """Send, in a transaction where the queue takes nothing else. Raises ClientError."""
    if is_transactional:
        async with client.transaction() as transaction:
            await transaction.send(target, *messages)
    else:
        await client.send(target, *messages)


def _message(form: Mapping[str, str], client: Client) -> Message:
    """Return the message of a form; what it has no field for is as always.

    Raises web.HTTPBadRequest, QueueNameError.
    """
    body_form, body_type = _chosen(form, "as", _BODIES, _BODIES["text"])
    try:
        body = edited_body(form.get("body", ""), body_form)
        correlation_id = bytes.fromhex(form.get("correlation_id", ""))
    except ValueError as error:
        raise web.HTTPBadRequest(reason=str(error)) from None
    if len(correlation_id) not in (0, CORRELATION_BYTES):
        raise web.HTTPBadRequest(reason="a correlation identifier has 40 hexadecimal digits")
    return Message(
        body=body,
        body_type=body_type,
        label=form.get("label", ""),
        priority=number_within(form, "priority", 0, 7),
        recoverable="express" not in form,
        time_to_reach_queue_s=number_within(form, "reach_queue_s", 0, _U32_MAX),
        time_to_be_received_s=number_within(form, "receive_s", 0, _U32_MAX),
        acknowledgements=_chosen(form, "ack", _ACKNOWLEDGEMENTS, 0),
        administration_queue=_queue(form, "admin_queue", client),
        response_queue=_queue(form, "response_queue", client),
        journal="journal" in form,
        dead_letter="dead_letter" in form,
        correlation_id=correlation_id,
        application_tag=number_within(form, "tag", 0, _U32_MAX) or 0,
    )


def _queue(form: Mapping[str, str], name: str, client: Client) -> str:
    text = form.get(name, "").strip()
    return client.format_name(text) if text else ""


def _chosen(form: Mapping[str, str], name: str, among: Mapping[str, _T], otherwise: _T) -> _T:
    text = form.get(name)
    if text is None:
        return otherwise
    if text not in among:
        raise web.HTTPBadRequest(reason=f"{name}: one of {', '.join(among)}")
    return among[text]
