"""The leader repeats final acks from elsewhere as soon as their sender is pinned there."""

import asyncio
from collections.abc import Sequence

from qm.model.queries import View
from qm.model.state.outgoing_queues import claims_of
from qm.model.values import commands
from qm.model.values.effects import Outcome
from qm.names.guid import guid_text
from qm.node.leader.final_claims import FinalClaims
from tests.unit.model.test_delivery import JOURNALED, TRANSACTIONAL, Sender
from tests.unit.model.test_transfer_peers import ADDRESS, FAR, bind, final_ack, opened

BACK_DOOR = "10.0.0.66"


class OneState:
    """A `Cluster` of a sender."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.proposed = 0

    @property
    def view(self) -> View:
        return self.sender.machine.view

    async def propose(self, *given: commands.Command) -> Sequence[Outcome]:
        self.proposed += len(given)
        return self.sender.apply(*given).outcomes


def test_it_repeats_what_holds_and_nothing_else() -> None:
    sender = Sender(forgets=False)
    bind(sender)
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    opened(sender, FAR, ADDRESS)
    sender.assign()
    final_ack(sender, (FAR, BACK_DOOR))
    cluster = OneState(sender)
    claims = FinalClaims(cluster)  # type: ignore[arg-type]
    asyncio.run(claims.look())
    assert cluster.proposed == 0
    bind(sender, f"{guid_text(FAR)} {BACK_DOOR}")
    asyncio.run(claims.look())
    assert cluster.proposed == 1
    assert not sender.keys()
    assert not claims_of(sender.state, 0, 1)
    asyncio.run(claims.look())
    assert cluster.proposed == 1
