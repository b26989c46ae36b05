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
        return [Outcome(0, value=self.answers.pop(0)), Outcome(0)]


def session(answers: Answers) -> ReadSession:
    unused: Any = None
    proposer: Any = answers
    return ReadSession("rpc-n1-x", ANONYMOUS, "10.0.0.1", proposer, unused)


def test_a_repeated_try_that_missed_is_a_miss() -> None:
    async def scenario() -> None:
        lent = RequestResult(2, 0, kind=ResultKind.BORROWED, lookup_identifier=7)
        answers = Answers([RequestResult(1, MISSED)], [lent], [])
        mine = session(answers)
        assert await mine.lend(1, 5, Selector()) is None
        assert await mine.lend(1, 5, Selector()) == lent
        assert await mine.lend(1, 5, Selector()) is None
        for number, (run, closing) in enumerate(answers.proposed, 1):
            assert isinstance(run, ReceiveRun)
            assert isinstance(closing, CancelRequests)
            # Each try closes its number, so that the next one confirms it.
            assert (run.first_request, run.confirmed_upto) == (number, number - 1)
            assert (closing.first_request, run.is_two_phase) == (number, True)

    asyncio.run(scenario())
