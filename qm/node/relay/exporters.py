"""Object exporters of the other nodes: what a client asks here about objects there."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import grpc.aio
from typing_extensions import override

from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.relayed import OtherNodes, Question, Unanswered

_LOGGER: Final = logging.getLogger(__name__)
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

    def __init__(
        self,
        own: str,
        others: Callable[[], Iterable[str]],
        channels: Channels,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        """`own`: this node's name. `others`: those of the other members. `now`: monotonic, in
        seconds.
        """
        self._own = number_of(own)
        self._others = others
        self._channels = channels
        self._unanswered = metrics.counter("quorate_dcom_unanswered_total")
        self._log = LimitedLog(_LOGGER, now)

    def _names(self) -> Mapping[int, str]:
        """Return the other members by number, without this node's and those that two have."""
        names = list(self._others())
        count = Counter([self._own, *map(number_of, names)])
        return {number_of(name): name for name in names if count[number_of(name)] == 1}

    @override
    def numbers(self) -> Collection[int]:
        return self._names().keys()

    @override
    async def ask(self, node: int, question: Question) -> bytes:
        name = self._names().get(node)
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
            reply = await reply_to(stub.AskExporter, request, timeout_s=ASK_TIMEOUT_S)
        except (Unreachable, grpc.aio.AioRpcError) as error:
            self._unanswered.inc()
            text = "a node does not answer what a DCOM client asks about its objects there"
            self._log.warning(name, text, peer=name, error=str(error))
            raise Unanswered(f"{name} does not answer: {error}") from error
        return reply.stub


def question_of(request: relay_pb2.AskExporterRequest) -> Question:
    """Return what a request asks."""
    owner = Owner(request.account, request.address)
    return Question(request.operation, request.stub, owner, request.dialled)
