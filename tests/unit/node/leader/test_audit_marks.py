"""Audits come to a result after restarts and changes of leader."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from qm.model.values.commands import AuditResult
from qm.node.leader import audit_marks
from qm.node.leader.audit_marks import Auditor
from qm.node.membership.peers import ClockReading, Peers
from qm.observe.metrics import Metrics
from qm.pb import relay_pb2
from qm.store.audit import Mark

SAME, OTHER = b"s" * 16, b"o" * 16


class Members(Peers):
    """Three members' digests by mark, and what the leader tells them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: dict[str, dict[int, bytes]] = {"n1": {}, "n2": {}, "n3": {}}
        self.results: list[AuditResult] = []
        self._marks: list[Any] = []
        self.metrics = Metrics(CollectorRegistry())
        proof = SimpleNamespace(digest=SAME, is_sound=True, reason="")
        monkeypatch.setattr(audit_marks, "prove", lambda _: proof)
        self.auditor = Auditor(
            cast(Any, self),
            lambda: cast(
                Any,
                SimpleNamespace(store=SimpleNamespace(marks=self._marks), copy_at=lambda _: None),
            ),
            self,
            pytest.fail,
            lambda mark, proof: None,
            self.metrics,
        )

    async def propose(self, result: AuditResult) -> None:
        self.results.append(result)

    async def inspect_all(self) -> dict[str, relay_pb2.InspectReply]:
        return {name: relay_pb2.InspectReply(marks=marks) for name, marks in self.told.items()}

    async def read_clocks(self, enough: int) -> dict[str, ClockReading]:
        raise NotImplementedError

    def majority(self) -> int:
        return 2

    def count(self) -> int:
        return 3

    async def mark(self, number: int, **digests: bytes) -> None:
        """A mark is applied and proven by these members."""
        for name, digest in digests.items():
            self.told[name][number] = digest
        self._marks.append(cast(Mark, SimpleNamespace(number=number)))
        await self.auditor.prove_marks()


def test_a_mark_that_a_restarted_node_forgot_holds_no_later_one_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        members = Members(monkeypatch)
        await members.mark(1, n1=SAME, n2=SAME)
        await members.auditor.collect()
        assert members.results == []
        await members.mark(2, n1=SAME, n2=SAME, n3=SAME)
        await members.auditor.collect()
        assert [result.number for result in members.results] == [2]
        members.told["n3"][1] = SAME
        await members.auditor.collect()
        assert len(members.results) == 1

    asyncio.run(scenario())


def test_a_mark_that_came_meanwhile_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        members = Members(monkeypatch)
        await members.mark(1, n1=SAME, n2=OTHER, n3=SAME)
        await members.mark(2, n1=SAME, n2=SAME)
        await members.auditor.collect()
        members.told["n3"][2] = SAME
        await members.auditor.collect()
        assert [result.number for result in members.results] == [1, 2]
        audits = members.metrics.registry.get_sample_value
        assert audits("quorate_audits_total", {"result": "differ"}) == 1
        assert audits("quorate_audits_total", {"result": "agreed"}) == 1

    asyncio.run(scenario())
