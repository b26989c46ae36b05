"""Proposer: commands are repeated until their outcome is known."""

import asyncio

import pytest

from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.commands import Confirm
from tests.unit.api.propose.world import scripted


def test_what_is_not_known_is_proposed_again() -> None:
    async def scenario() -> None:
        cluster, face = scripted(Unavailable("no leader"), OutcomeUnknown("lost"))
        (outcome,) = await Proposer(face).repeat(Confirm("c", 7))
        assert (outcome.value, len(cluster.proposals)) == (7, 3)
        cluster, face = scripted(OutcomeUnknown("lost"))
        with pytest.raises(OutcomeUnknown):
            await Proposer(face).once(Confirm("c", 7))

    asyncio.run(scenario())
