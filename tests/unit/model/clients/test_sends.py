"""A message that is sent in the place of another: both happen, or neither."""

import pytest

from qm.model.values import commands
from qm.model.values.elements import QueueAccessType
from qm.wire.codes import ErrorCode
from tests.unit.model.world import HOST, ClientInWorld, World, packet, request

OLD = f"DIRECT=OS:{HOST}\\old"
NEW = f"DIRECT=OS:{HOST}\\new"
SAFE = f"DIRECT=OS:{HOST}\\safe"
RECEIVE, PEEK = QueueAccessType.RECEIVE_ACCESS, QueueAccessType.PEEK_ACCESS


class Both(World):
    """A message in a queue that is open for receiving, and two queues where it may go."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__(forgets=forgets)
        self.old, self.new = self.create("old", journaling=True), self.create("new")
        self.safe = self.create("safe", transactional=True)
        self.c: ClientInWorld = self.client()
        assert self.c.send(OLD).status == 0
        self.handle, _ = self.c.open(OLD, RECEIVE)
        (self.key,) = self.positions(self.old)

    def counts(self) -> tuple[int, int, int]:
        return (
            len(self.positions(self.old)),
            len(self.positions(self.new)),
            len(self.positions(self.safe)),
        )


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def both(request: pytest.FixtureRequest) -> Both:
    return Both(forgets=request.param)


def test_the_old_one_ends_as_received_when_the_new_one_is_there(both: Both) -> None:
    assert both.c.send(NEW, replaced=(both.handle, both.key)).status == 0
    assert both.counts() == (0, 1, 0)
    assert len(both.positions(both.record(both.old).journal_queue)) == 1
    again = both.c.send(NEW, replaced=(both.handle, both.key))
    assert again.status == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert both.counts() == (0, 1, 0)


def test_a_name_that_is_none_is_the_result_of_its_send(both: Both) -> None:
    """Another build may have taken it for one."""
    assert both.c.send("no name").status == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME


def test_a_refused_send_leaves_the_old_one(both: Both) -> None:
    refused = both.c.send(SAFE, replaced=(both.handle, both.key))
    assert refused.status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    assert both.c.send(f"DIRECT=OS:{HOST}\\none", replaced=(both.handle, both.key)).status
    assert both.counts() == (1, 0, 0)


def test_what_may_not_be_received_is_not_replaced(both: Both) -> None:
    peeking, _ = both.c.open(OLD, PEEK)
    stranger = both.client("d")
    for outcome, status in (
        (both.c.send(NEW, replaced=(peeking, both.key)), ErrorCode.MQ_ERROR_ACCESS_DENIED),
        (both.c.send(NEW, replaced=(999, both.key)), ErrorCode.MQ_ERROR_INVALID_HANDLE),
        (stranger.send(NEW, replaced=(both.handle, 1)), ErrorCode.MQ_ERROR_INVALID_HANDLE),
        (both.c.send(NEW, NEW, replaced=(both.handle, both.key)),
         ErrorCode.MQ_ERROR_INVALID_PARAMETER),
    ):  # fmt: skip
        assert outcome.status == status
    assert both.counts() == (1, 0, 0)


@pytest.mark.parametrize("is_committed", [True, False])
def test_in_a_transaction_both_wait_for_its_outcome(both: Both, is_committed: bool) -> None:
    transaction = both.c.begin("t")
    raw = packet(0, sequence=(1, 1, 0))
    outcome = both.c.send(SAFE, raw=raw, transaction=transaction, replaced=(both.handle, both.key))
    assert outcome.status == 0
    locked = both.c.send(NEW, replaced=(both.handle, both.key))
    assert locked.status, "a locked message can be taken by nobody else"
    if is_committed:
        both.c.commit(transaction)
        assert both.counts() == (0, 0, 1)
    else:
        both.c.abort(transaction)
        assert both.counts() == (1, 0, 0)
        assert both.c.send(NEW, replaced=(both.handle, both.key)).status == 0


def test_nothing_of_a_queue_that_is_being_deleted_is_replaced(both: Both) -> None:
    both.one(commands.DeleteQueue(request(), both.old, ()))
    assert both.record(both.old).is_deleting
    refused = both.c.send(NEW, replaced=(both.handle, both.key))
    assert refused.status in (
        ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE,
        ErrorCode.MQ_ERROR_INVALID_HANDLE,
    )
    assert len(both.positions(both.new)) == 0


def test_what_must_be_received_at_once_ends_at_once(both: Both) -> None:
    raw = packet(0, time_to_be_received=0, has_negative_journaling=True)
    assert both.c.send(NEW, raw=raw).status == 0
    assert not both.positions(both.new)
    assert len(both.positions(both.manager_queue("system_deadletter_queue"))) == 1
