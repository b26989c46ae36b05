"""Object exporters of the other nodes: what a client asks here about objects there."""

import re
from collections.abc import Callable, Iterable
from typing import Final

import grpc.aio
from typing_extensions import override

from qm.node.relay.channels import Channels, Unreachable
from qm.pb import relay_pb2
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.relayed import OtherNodes, Question, Unanswered

ASK_TIMEOUT_S: Final = 5.0
NODES_MAX: Final = 1 << 16
"""Numbers of nodes in identifiers of objects."""
_NUMBER_AT_END: Final = re.compile(r"(\d+)$")


def number_of(name: str) -> int:
    """Return the number of a node in identifiers of objects: the one at the end of its name."""
    found = _NUMBER_AT_END.search(name)
    return int(found.group()) % NODES_MAX if found is not None else 0


class RelayedExporters(OtherNodes):
    """Implements it over the relay ports."""

    def __init__(self, own: str, members: Callable[[], Iterable[str]], channels: Channels) -> None:
        """`own`: this node's name. `members`: names of all."""
        self._own = own
        self._members = members
        self._channels = channels

    def _name(self, node: int) -> str | None:
        """Return the member with a number; None for this node's, and where two have it."""
        named = [name for name in self._members() if number_of(name) == node]
        return named[0] if len(named) == 1 and named[0] != self._own else None

    @override
    def has(self, node: int) -> bool:
        return self._name(node) is not None

    @override
    async def ask(self, node: int, question: Question) -> bytes:
        name = self._name(node)
        if name is None:
            raise Unanswered(f"there is no node {node}")
        request = relay_pb2.AskExporterRequest(
            operation=question.operation,
            stub=question.stub,
            account=question.owner.name,
            address=question.owner.address,
            dialled=question.dialled,
        )
        try:
            stub = await self._channels.stub(name)
            reply = await stub.AskExporter(request, timeout=ASK_TIMEOUT_S)
        except (Unreachable, grpc.aio.AioRpcError) as error:
            raise Unanswered(f"{name} does not answer: {error}") from error
        return reply.stub


def question_of(request: relay_pb2.AskExporterRequest) -> Question:
    """Return what a request asks."""
    owner = Owner(request.account, request.address)
    return Question(request.operation, request.stub, owner, request.dialled)
