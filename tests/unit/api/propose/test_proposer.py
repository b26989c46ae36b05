"""Proposer: commands share proposals, and are repeated until their outcome is known."""

import asyncio

import pytest

from qm.api.propose.proposer import COMMANDS_PER_PROPOSAL_MAX, Proposer
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.commands import Confirm, Request, Send
from tests.unit.api.propose.world import scripted


def test_one_round_of_the_loop_is_one_proposal() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        proposer = Proposer(face)
        outcomes = await asyncio.gather(
            *(proposer.once(Confirm("c", k), Confirm("c", k + 100)) for k in range(5))
        )
        assert cluster.proposals == [10]
        assert [[one.value for one in job] for job in outcomes] == [[k, k + 100] for k in range(5)]
        half = [Confirm("c", k) for k in range(COMMANDS_PER_PROPOSAL_MAX // 2 + 1)]
        await asyncio.gather(proposer.once(*half), proposer.once(*half))
        assert cluster.proposals[1:] == [len(half), len(half)]
        await proposer.close()

    asyncio.run(scenario())


def test_sends_travel_apart_so_that_a_full_disk_refuses_them_alone() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        proposer = Proposer(face)
        send = Send.of(Request("c", 1, 9), [("DIRECT=OS:a\\b", b"x")])
        await asyncio.gather(
            proposer.once(Confirm("c", 1)),
            proposer.once(send, send),
            proposer.once(Confirm("c", 2)),
            proposer.once(send),
        )
        assert cluster.proposals == [3, 2]

    asyncio.run(scenario())


def test_what_is_not_known_is_proposed_again() -> None:
    async def scenario() -> None:
        cluster, face = scripted(Unavailable("no leader"), OutcomeUnknown("lost"))
        (outcome,) = await Proposer(face).repeat(Confirm("c", 7))
        assert (outcome.value, len(cluster.proposals)) == (7, 3)
        cluster, face = scripted(OutcomeUnknown("lost"))
        with pytest.raises(OutcomeUnknown):
            await Proposer(face).once(Confirm("c", 7))

    asyncio.run(scenario())
