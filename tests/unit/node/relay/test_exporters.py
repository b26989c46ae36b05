import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from qm.node.relay.channels import Unreachable
from qm.node.relay.exporters import RelayedExporters, number_of
from qm.observe.metrics import Metrics
from qm.rpc.dcom.runtime.exporter import Owner
from qm.rpc.dcom.runtime.relayed import Question, Unanswered


class Cut:
    """Channels to nodes that are not there."""

    async def stub(self, node: str) -> Any:
        raise Unreachable(f"the address of {node} is not known")


class World:
    def __init__(self, own: str, *others: str) -> None:
        self.registry = CollectorRegistry()
        channels: Any = Cut()
        self.exporters = RelayedExporters(
            own, lambda: others, channels, Metrics(self.registry), lambda: 0.0
        )

    def known(self, *numbers: int) -> list[bool]:
        return [number in self.exporters.numbers() for number in numbers]

    async def ask(self, node: int) -> bytes:
        return await self.exporters.ask(node, Question(1, b"", Owner("a", "b"), "vip"))


def test_the_number_of_a_node_is_at_the_end_of_its_name() -> None:
    names = ("n1", "quorate-2", "node", "n65537", "7up")
    assert [number_of(name) for name in names] == [1, 2, 0, 1, 0]


def test_nobody_is_asked_for_this_node_or_in_doubt() -> None:
    assert World("n1", "n2", "n3").known(1, 2, 3, 4) == [False, True, True, False]
    assert World("n1", "m1", "n2").known(1, 2) == [False, True], "m1 has this node's number"
    assert World("n3", "n1", "m1").known(1) == [False], "two have it"


def test_a_node_that_does_not_answer_is_counted_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World("n1", "n2")
    for _ in range(3):
        with pytest.raises(Unanswered, match="n2 does not answer"):
            asyncio.run(world.ask(2))
    with pytest.raises(Unanswered, match="no node 9"):
        asyncio.run(world.ask(9))
    assert world.registry.get_sample_value("quorate_dcom_unanswered_total") == 3
    assert len(caplog.records) == 1
