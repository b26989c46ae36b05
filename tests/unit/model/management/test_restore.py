"""A restored state assigns nothing twice, and continues with senders that are ahead of it."""

from array import array

import pytest

from qm.model.management.restore import (
    HANDLE_JUMP,
    ORDINAL_JUMP,
    PRIVATE_NUMBER_JUMP,
    SEQUENTIAL_ID_JUMP,
)
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import OutgoingAdminState
from qm.model.values.limits import HISTORY_HORIZON_DEFAULT_MS, SETTLED_PER_COMMAND_MAX
from qm.model.values.records import Counters
from qm.wire.codes import ErrorCode
from tests.unit.model.test_delivery import EPOCH, TRANSACTIONAL, Sender
from tests.unit.model.world import World, packet

STAMP = 1_900_000_000
RESTORED = commands.StateRestored(STAMP, ("10.0.0.7",), False)
HELD = commands.StateRestored(STAMP, (), True)
SEQUENCE = 5 << 32 | 1
ACCEPTED, DUPLICATE = TransferVerdict.ACCEPTED, TransferVerdict.DUPLICATE
OUT_OF_ORDER = TransferVerdict.OUT_OF_ORDER


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    world = World(forgets=request.param)
    world.create("orders", transactional=True)
    return world


def counters(world: World) -> Counters:
    return world.machine.view.counters()


def test_identifiers_jump_and_members_are_forgotten(world: World) -> None:
    world.apply(commands.SetMember("n1", "a.example", 1, 2, 3))
    before = counters(world)
    ordinal, sequential = before.message_ordinal, before.sequential_id
    before_handle, before_number = before.handle, before.private_queue_number
    outcome = world.one(RESTORED)
    assert (outcome.status, outcome.value) == (0, STAMP)
    after = counters(world)
    assert after.message_ordinal == ordinal + ORDINAL_JUMP
    assert after.sequential_id == sequential + SEQUENTIAL_ID_JUMP
    assert after.handle == before_handle + HANDLE_JUMP
    assert after.private_queue_number == before_number + PRIVATE_NUMBER_JUMP
    assert min(ORDINAL_JUMP, SEQUENTIAL_ID_JUMP, HANDLE_JUMP) > 1 << 30
    assert not world.state.scan(Table.META, b"member/", b"member0", 10)
    manager = world.machine.manager
    assert manager is not None
    assert manager.aliases == ("127.0.0.11", "10.0.0.7")


@pytest.mark.spec("QB-3.1.1.3.1-04")
def test_the_time_stamp_rises_whatever_the_clock_says(world: World) -> None:
    assert world.one(RESTORED).value == STAMP
    assert world.one(RESTORED).value == STAMP + 1
    assert world.one(commands.StateRestored(1, (), False)).value == STAMP + 2
    end = commands.StateRestored(0xFFFF_FFFF, (), False)
    assert world.one(end).status == 0
    assert world.one(end).status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


def test_a_name_that_cannot_be_changes_nothing(world: World) -> None:
    stamp = counters(world).tx_time_stamp
    outcome = world.one(commands.StateRestored(STAMP, ("no\\name",), False))
    assert outcome.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert counters(world).tx_time_stamp == stamp


def test_no_restore_before_birth() -> None:
    from qm.model.machine import Machine
    from qm.model.state.tables import MemoryState
    from qm.model.values.commands import CommandBatch, Stamp

    applied = Machine(MemoryState()).apply(CommandBatch(1, Stamp(1, "n1"), (RESTORED,)))
    assert applied.outcomes[0].status == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


# Outgoing ----------------------------------------------------------------------------------


@pytest.mark.spec("QB-3.1.1.3.1-04")
def test_pending_messages_leave_under_a_new_sequence(sender: Sender) -> None:
    sender.send(3, **TRANSACTIONAL)
    sender.assign()
    keys = sender.keys()
    sender.one(RESTORED)
    assert sender.one(commands.RenumberStep(2)).value == 2
    assert sender.one(commands.RenumberStep(2)).value == 1
    assert sender.one(commands.RenumberStep(2)).value == 0
    sender.order_ack(EPOCH | 1, 3)
    sender.session_ack(*keys)
    assert sender.keys() == keys
    fresh = STAMP << 32 | 2
    assert sender.assign() == [
        (keys[0], fresh, 1, 0),
        (keys[1], fresh, 2, 1),
        (keys[2], fresh, 3, 2),
    ]
    sender.order_ack(fresh, 3)
    sender.session_ack(*keys)
    assert sender.keys() == []


def test_what_is_known_to_have_arrived_is_not_sent_again(sender: Sender) -> None:
    sender.send(2, **TRANSACTIONAL)
    sender.assign()
    keys = sender.keys()
    sender.order_ack(EPOCH | 1, 1)
    sender.one(RESTORED)
    sender.one(commands.RenumberStep(100))
    assert sender.keys() == keys[1:]


def test_outgoing_queues_can_be_held(sender: Sender) -> None:
    sender.send(1)
    sender.one(HELD)
    assert sender.record(sender.queue_id).admin_state is OutgoingAdminState.ON_HOLD
    sender.one(commands.TransferAcked(sender.queue_id, array("Q", sender.keys())))
    assert sender.keys() == []


def test_a_step_has_a_bound(world: World) -> None:
    for count in (0, 1 << 20):
        status = world.one(commands.RenumberStep(count)).status
        assert status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    for count in (1, SETTLED_PER_COMMAND_MAX):
        assert world.one(commands.RenumberStep(count)).status == 0


# Incoming ----------------------------------------------------------------------------------


def test_a_sender_goes_on_behind_what_the_lost_state_acknowledged(world: World) -> None:
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0))) == [ACCEPTED]
    world.one(RESTORED)
    # Numbers 2 to 6 were acknowledged by the state that was lost.
    assert world.arrive(packet(7, sequence=(SEQUENCE, 7, 6))) == [ACCEPTED]
    assert world.arrive(packet(6, sequence=(SEQUENCE, 6, 5))) == [DUPLICATE]
    assert world.arrive(packet(9, sequence=(SEQUENCE, 9, 8))) == [OUT_OF_ORDER]
    assert world.arrive(packet(8, sequence=(SEQUENCE, 8, 7))) == [ACCEPTED]


def test_a_sender_goes_on_with_a_later_sequence(world: World) -> None:
    assert world.arrive(packet(1, sequence=(SEQUENCE, 1, 0))) == [ACCEPTED]
    world.one(RESTORED)
    assert world.arrive(packet(7, sequence=(SEQUENCE + 1, 3, 2))) == [ACCEPTED]
    assert world.arrive(packet(8, sequence=(SEQUENCE + 1, 5, 4))) == [OUT_OF_ORDER]


def test_what_the_restored_state_knows_stays_a_duplicate(world: World) -> None:
    first = packet(1, sequence=(SEQUENCE, 1, 0))
    assert world.arrive(first) == [ACCEPTED]
    world.one(RESTORED)
    assert world.arrive(first) == [DUPLICATE]
    # The sender has shown where it is: from here on nothing may be missing.
    assert world.arrive(packet(7, sequence=(SEQUENCE, 7, 6))) == [OUT_OF_ORDER]


@pytest.mark.parametrize(("passed_ms", "verdict"), [
    (0, ACCEPTED), (HISTORY_HORIZON_DEFAULT_MS + 1_000, OUT_OF_ORDER),
])  # fmt: skip
def test_an_unknown_sender_is_believed_for_a_time(
    world: World, passed_ms: int, verdict: TransferVerdict
) -> None:
    world.one(RESTORED)
    world.now_ms += passed_ms
    assert world.arrive(packet(7, sequence=(SEQUENCE, 7, 6))) == [verdict]


def test_without_a_restore_nothing_may_be_missing(world: World) -> None:
    assert world.arrive(packet(7, sequence=(SEQUENCE, 7, 6))) == [OUT_OF_ORDER]
