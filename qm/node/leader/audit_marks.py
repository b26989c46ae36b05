"""Audit marks: every node proves its rows at the same entry, and the leader compares the results.

A proof copies the state and reads the whole copy, both in a thread, and its digest is kept here
until the leader asks for it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from qm.cluster.cluster import Cluster
from qm.model.values.commands import AuditMark, AuditResult
from qm.node.membership.peers import Peers
from qm.node.replica.state_machine import AppliedStore
from qm.observe.metrics import Metrics
from qm.store.audit import Mark, MarkGone, Proof, prove

logger = logging.getLogger(__name__)

PROOFS_KEPT_MAX: Final = 16
"""Digests that are kept until the leader asks for them."""
COLLECT_MAX_S: Final = 1_800.0
"""After this a mark is compared without the members that have not answered, if a majority has."""


class Auditor:
    """One node's part in audits."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Callable[[], AppliedStore],
        peers: Peers,
        on_damage: Callable[[str], None],
        on_proof: Callable[[Mark, Proof], None],
        metrics: Metrics,
    ) -> None:
        """`on_damage` ends a process whose rows are damaged;
        `on_proof` receives the result for each mark.
        """
        self.proofs: Final[dict[int, bytes]] = {}
        """Digest by mark, newest last."""
        self._cluster = cluster
        self._machine = machine
        self._peers = peers
        self._on_damage = on_damage
        self._on_proof = on_proof
        self._audits = metrics.counter("quorate_audits_total")
        self._open: dict[int, float] = {}
        """Marks without a result, and since when (loop time)."""

    # Every node

    async def prove_marks(self) -> None:
        """Prove the marks that were applied here since the last call."""
        marks = self._machine().store.marks
        while marks:
            mark = marks.pop(0)
            self._open[mark.number] = asyncio.get_running_loop().time()
            await self._prove(mark)
        while len(self._open) > PROOFS_KEPT_MAX:
            del self._open[next(iter(self._open))]

    async def _prove(self, mark: Mark) -> None:
        machine = self._machine()
        try:
            copy = await asyncio.to_thread(machine.copy_at, mark)
        except MarkGone as gone:
            logger.info("%s", gone)
            return
        proof = await asyncio.to_thread(prove, copy)
        self.proofs[mark.number] = proof.digest
        self._on_proof(mark, proof)
        while len(self.proofs) > PROOFS_KEPT_MAX:
            del self.proofs[next(iter(self.proofs))]
        if not proof.is_sound:
            self._on_damage(
                f"audit mark {mark.number}: {proof.reason}; remove this node's data and let it"
                " rejoin under its next incarnation"
            )

    # The leader

    async def mark(self) -> None:
        """Have every node prove its state as it is at this entry."""
        await self._cluster.propose(AuditMark(self._cluster.now_ms()))

    async def collect(self) -> None:
        """Ask for the open marks' digests; publish the result when enough are known.

        The newest mark comes first and settles those before it: a node that has restarted since has
        lost its digests, and a new leader must not wait for them.
        """
        if not self._open:
            return
        replies = await self._peers.inspect_all()
        now = asyncio.get_running_loop().time()
        for number in reversed(list(self._open)):
            digests = {
                name: reply.marks[number]
                for name, reply in replies.items()
                if number in reply.marks
            }
            is_late = now - self._open[number] > COLLECT_MAX_S
            is_most = 2 * len(digests) > self._peers.count()
            if len(digests) == self._peers.count() or (is_late and is_most):
                await self._tell(number, digests)
                return
            if is_late:
                del self._open[number]
                self._audits.labels(result="incomplete").inc()
                logger.warning("audit mark %d: only %d members answered", number, len(digests))

    async def _tell(self, number: int, digests: dict[str, bytes]) -> None:
        marks = list(self._open)
        settled = marks[: marks.index(number) + 1]
        await self._cluster.propose(AuditResult(number, digests))
        for mark in settled:
            self._open.pop(mark, None)
        result = "agreed" if len(set(digests.values())) == 1 else "differ"
        self._audits.labels(result=result).inc()
        logger.info("audit mark %d: the digests of %d members %s", number, len(digests), result)
