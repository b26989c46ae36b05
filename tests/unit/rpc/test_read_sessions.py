"""Sessions of remote readers: numbers, repeated proposals."""

import asyncio
from typing import Any

from qm.model.values.commands import CancelRequests, Command, ReceiveRun, Selector
from qm.model.values.effects import Outcome
from qm.model.values.results import RequestResult
from qm.model.values.rows import ResultKind
from qm.rpc.remote_read.sessions import ReadSession
from qm.rpc.security.provider import ANONYMOUS
from qm.wire.codes import ErrorCode

MISSED = int(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)


class Answers:
    """A proposer that answers as it is told."""

    def __init__(self, *answers: list[RequestResult]) -> None:
        self.answers = list(answers)
        self.proposed: list[tuple[Command, ...]] = []

    async def repeat(self, *commands: Command) -> list[Outcome]:
        self.proposed.append(commands)
        return [Outcome(0, value=self.answers.pop(0))]


def session(answers: Answers) -> ReadSession:
    unused: Any = None
    proposer: Any = answers
    return ReadSession("rpc-n1-x", ANONYMOUS, "10.0.0.1", proposer, unused)


def test_a_try_that_misses_closes_its_number() -> None:
    async def scenario() -> None:
        lent, late = (
            RequestResult(number, 0, kind=ResultKind.BORROWED, lookup_identifier=7)
            for number in (2, 3)
        )
        answers = Answers([], [RequestResult(1, MISSED)], [lent], [], [late])
        mine = session(answers)
        assert await mine.lend(1, 5, Selector()) is None
        assert await mine.lend(1, 5, Selector()) == lent
        # What an earlier copy of the proposal lent is told by the end of its number.
        assert await mine.lend(1, 5, Selector()) == late
        kinds = [type(command) for (command,) in answers.proposed]
        assert kinds == [ReceiveRun, CancelRequests, ReceiveRun, ReceiveRun, CancelRequests]
        runs = [one for (one,) in answers.proposed if isinstance(one, ReceiveRun)]
        ends = [one for (one,) in answers.proposed if isinstance(one, CancelRequests)]
        assert [(run.first_request, run.confirmed_upto) for run in runs] == [(1, 0), (2, 1), (3, 2)]
        assert [one.first_request for one in ends] == [1, 3]
        assert all(run.is_two_phase for run in runs)

    asyncio.run(scenario())
