"""The sending of traced messages is reported [MS-MQDMPR] 3.1.5.8."""

from array import array

import pytest

from qm.client.mqac.constants import MQMSGTRACE
from qm.model.values import commands
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX
from qm.wire.codes import ErrorCode
from tests.unit.model.test_delivery import Sender

HOP = "TCP:10.9.8.7"


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


def traced(sender: Sender, count: int, wanted: bytes) -> int:
    numbers = array("Q", range(1, count + 1))
    return sender.one(commands.TransferTraced(sender.queue_id, numbers, wanted, HOP)).status


@pytest.mark.spec("AC-2.2.2.13-01")
def test_every_message_is_reported_to_the_queue_that_it_names(sender: Sender) -> None:
    reports = sender.create("reports")
    sender.send()
    wanted = sender.record(reports).identifier
    assert traced(sender, 2, wanted * 2) == 0
    found = sender.positions(reports)
    assert len(found) == 2  # one for each that takes this hop
    assert (MQMSGTRACE.MQMSG_TRACE_NONE, MQMSGTRACE.MQMSG_SEND_ROUTE_TO_REPORT_QUEUE) == (0, 1)


def test_numbers_and_names_must_be_as_many_and_bounded(sender: Sender) -> None:
    sender.send()
    nobody = bytes(16)
    for count, names in ((0, 0), (2, 1), (1, 2), (POSITIONS_PER_ENTRY_MAX + 1,) * 2):
        assert traced(sender, count, nobody * names) == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert traced(sender, POSITIONS_PER_ENTRY_MAX, nobody * POSITIONS_PER_ENTRY_MAX) == 0
