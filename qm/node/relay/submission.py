"""Submits commands to this node's driver and gathers their outcomes, for `Cluster.propose`."""

from collections.abc import Sequence
from typing import TypeAlias

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.values.effects import Outcome
from qm.node.relay.forwarding import NotTaken
from qm.node.relay.leader_stream import Pending, Submit, Weigh
from qm.store.codec import Inspected
from raft import proposals
from raft.core.core import Busy, NotLeader
from raft.driver import Stopping
from raft.proposals import ProposalLost

Places: TypeAlias = list[tuple[Pending, int]]


def check_since(commands: Sequence[Inspected], apply_version: int) -> None:
    """Raise Unavailable for a command that does not exist yet at the state's apply version."""
    for command in commands:
        since = command.declaration.since
        if since > apply_version:
            raise Unavailable(
                f"{command.op} exists from apply version {since} on, the cluster is at"
                f" {apply_version}: upgrade every node"
            )


def submit_all(submit: Submit, weigh: Weigh, commands: Sequence[Inspected]) -> Places:
    """Submit in order; either all are taken or the error says what happened.

    Raises NotTaken and Unavailable when nothing happened, OutcomeUnknown after the first.
    """
    places: Places = []
    try:
        for command in commands:
            places.append(submit(command.payload, weigh(command)))
    except (NotLeader, Stopping, Busy) as error:
        if places:
            raise OutcomeUnknown(f"only a part was taken: {error}") from error
        kind = Unavailable if isinstance(error, Busy) else NotTaken
        raise kind(str(error)) from error
    return places


async def gather_outcomes(places: Places) -> Sequence[Outcome]:
    """Wait for all outcomes. Raises NotTaken, OutcomeUnknown, ValueError (too large)."""
    outcomes: list[Outcome] = []
    try:
        for pending, ordinal in places:
            outcomes.append((await pending.wait())[ordinal])
    except (NotLeader, ProposalLost) as error:
        # Commands after a lost one are lost as well, but those before it are not.
        if outcomes:
            raise OutcomeUnknown("only a part was applied") from error
        raise NotTaken(str(error)) from error
    except (proposals.CommitUnknown, Stopping) as error:
        raise OutcomeUnknown(str(error)) from error
    return outcomes
