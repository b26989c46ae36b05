"""What pages of messages share: one message as the API shows it, and files to save."""

from typing import Any, Final

from aiohttp import web

from qm.console.page_group import PageGroup
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2

_PART_BYTES: Final = 64 << 10
"""Of what is downloaded."""


class MessageGroup(PageGroup):
    """Handlers of pages that show messages of the queue in their path."""

    async def found(
        self, request: web.Request, key: int, view: data_pb2.View.ValueType = data_pb2.PROPERTIES
    ) -> Any:
        """Return the message with a LookupIdentifier. Raises ClientError."""
        wanted = pb.GetMessageRequest(
            queue=self.queue_name(request), lookup_identifier=key, view=view
        )
        return await self.call(request, lambda s: s.messages.GetMessage, wanted)


def packet_name(key: int) -> str:
    """Return the name of the file that a message is saved to."""
    return f"message-{key}.packet"


async def download(request: web.Request, name: str, content: bytes) -> web.StreamResponse:
    """Write a file here, so that the request counts until its answer is taken."""
    answer = web.StreamResponse(
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(content)),
        }
    )
    await answer.prepare(request)
    for at in range(0, len(content), _PART_BYTES):
        await answer.write(content[at : at + _PART_BYTES])
    await answer.write_eof()
    return answer
