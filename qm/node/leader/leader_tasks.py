"""What a leader proposes by itself: time, purges, audits. None of it is done per message.

All of it depends only on rows, so that a new leader continues where the last one stopped; each
proposal is one bounded step (DESIGN section 4).
"""

import logging
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from qm.cluster.cluster import Cluster, ClusterListener, Leadership
from qm.model.management.purge import STEP_POSITIONS_MAX
from qm.model.queries import is_due, purging_queue_ids
from qm.model.values.commands import ClockTick, PurgeStep
from qm.model.values.effects import Applied
from qm.node.leader.audit_marks import Auditor
from qm.node.leader.disk_failover import LOOK_EVERY_S as ROOM_EVERY_S
from qm.node.leader.disk_failover import Yielding
from qm.node.leader.final_claims import LOOK_EVERY_S as CLAIMS_EVERY_S
from qm.node.leader.final_claims import FinalClaims
from qm.node.leader.key_publication import LOOK_EVERY_S as PUBLICATION_EVERY_S
from qm.node.leader.key_publication import KeyPublication
from qm.node.leader.message_policy import LOOK_EVERY_S as POLICY_EVERY_S
from qm.node.leader.message_policy import MessagePolicy
from qm.node.leader.peer_bindings import LOOK_EVERY_S as BINDINGS_EVERY_S
from qm.node.leader.peer_bindings import PeerBindings
from qm.node.leader.periodic import DOZE_MAX_S, Rounds
from qm.node.leader.removed_pods import LOOK_EVERY_S as SCALED_AWAY_EVERY_S
from qm.node.leader.removed_pods import ScaledAway
from qm.node.leader.timekeeping import STEER_EVERY_S, Timekeeper
from qm.node.leader.upgrade import LOOK_EVERY_S as VERSIONS_EVERY_S
from qm.node.leader.upgrade import Versions
from qm.observe.metrics import Metrics
from raft.driver import end_process

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.1
"""How late a deadline is noticed at most."""
LOOK_AHEAD_MS: Final = 2_000
"""If nothing becomes due so soon, deadlines are not looked for again before an entry is applied."""
TICK_EVERY_MS: Final = 5_000
"""Cluster time in the state advances at least this often."""
assert LOOK_AHEAD_MS > 1_000 * DOZE_MAX_S
DEADLINES_AT_ONCE: Final = 64
"""Each may leave a dead letter and an acknowledgement, and other entries wait meanwhile."""
PURGES_TOGETHER_MAX: Final = 16
"""Queues that are purged at the same time; together they settle what one step may."""
AUDIT_EVERY_S: Final = 3_600.0
COLLECT_EVERY_S: Final = 1.0


class Duties(ClusterListener):
    """Active while this node leads; a ClusterListener."""

    def __init__(
        self,
        cluster: Cluster,
        timekeeper: Timekeeper,
        auditor: Auditor,
        versions: Versions,
        yielding: Yielding,
        bindings: PeerBindings,
        final_claims: FinalClaims,
        policy: MessagePolicy,
        publication: KeyPublication,
        scaled_away: ScaledAway | None,
        metrics: Metrics,
        die: Callable[[str], None] = end_process,
        phase_s: float = 0.0,
    ) -> None:
        """`scaled_away`: given where members are pods; `phase_s`: of `Rounds`."""
        self._cluster = cluster
        self._timekeeper = timekeeper
        self._auditor = auditor
        self._versions = versions
        self._yielding = yielding
        self._bindings = bindings
        self._final_claims = final_claims
        self._policy = policy
        self._publication = publication
        self._scaled_away = scaled_away
        self._rounds = Rounds(metrics.counter("quorate_duties_failed_total"), die, phase_s=phase_s)
        self._ticked_ms = 0
        """Cluster time of the last ClockTick, which handled everything that was due before."""
        self._has_news = True
        """An entry was applied since deadlines were looked for."""
        self._is_nothing_due = self._is_nothing_purged = False
        self._is_active = False

    @override
    def on_applied(self, applied: Applied) -> None:
        self._has_news = True
        self._rounds.on_applied(applied)

    @override
    def on_restored(self, index: int) -> None:
        self._has_news = True
        self._rounds.on_restored(index)

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        """Start or stop."""
        if leadership.is_here and not self._is_active:
            self._begin()
        elif not leadership.is_here and self._is_active:
            self._rounds.cancel()
        self._is_active = leadership.is_here

    def _begin(self) -> None:
        self._ticked_ms = 0
        self._is_nothing_due = self._is_nothing_purged = False
        begin = self._rounds.begin
        begin("expiry", LOOK_EVERY_S, self._tick, is_idle=lambda: self._is_nothing_due)
        begin("purging", LOOK_EVERY_S, self._purge, is_idle=lambda: self._is_nothing_purged)
        begin("steering time", STEER_EVERY_S, self._timekeeper.steer)
        begin("apply version", VERSIONS_EVERY_S, self._versions.look)
        begin("bindings", BINDINGS_EVERY_S, self._bindings.look)
        begin("final claims", CLAIMS_EVERY_S, self._final_claims.look)
        begin("message policy", POLICY_EVERY_S, self._policy.look)
        begin("key publication", PUBLICATION_EVERY_S, self._publication.look)
        begin("room", ROOM_EVERY_S, self._yielding.look)
        if self._scaled_away is not None:
            self._scaled_away.begin()
            begin("scaling", SCALED_AWAY_EVERY_S, self._scaled_away.look)
        begin("audit", AUDIT_EVERY_S, self._auditor.mark, first_after_s=AUDIT_EVERY_S)
        begin("audit result", COLLECT_EVERY_S, self._auditor.collect)

    async def stop(self) -> None:
        """Stop."""
        await self._rounds.stop()

    async def _tick(self) -> None:
        """Expire what is due, step by step."""
        now, ticked = self._cluster.now_ms(), self._ticked_ms
        has_news, self._has_news, self._is_nothing_due = self._has_news, False, False
        if now - ticked < TICK_EVERY_MS and not is_due(self._cluster.view, ticked, now):
            soon = now + LOOK_AHEAD_MS
            if not has_news and soon - ticked < TICK_EVERY_MS:
                self._is_nothing_due = not is_due(self._cluster.view, now, soon)
            return
        is_left = True
        while is_left:
            (outcome,) = await self._cluster.propose(ClockTick(DEADLINES_AT_ONCE))
            is_left = bool(outcome.value)
        self._ticked_ms = now

    async def _purge(self) -> None:
        """Settle hidden positions, a step of each queue in turn."""
        self._is_nothing_purged = False
        while queue_ids := purging_queue_ids(self._cluster.view, PURGES_TOGETHER_MAX):
            count = STEP_POSITIONS_MAX // len(queue_ids)
            outcomes = await self._cluster.propose(
                *(PurgeStep(queue_id, count) for queue_id in queue_ids)
            )
            if all(outcome.status for outcome in outcomes):
                raise RuntimeError(f"purges of {queue_ids} are refused: {outcomes[0].status:#x}")
        self._is_nothing_purged = True
