"""What becomes of a message that its readers do not take."""

from typing import Any

import pytest

from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import PoisonAction, QueueAccessType
from qm.model.values.limits import RETRY_DELAY_MAX_MS, VERSION_OF_RETURNS
from qm.model.values.records import Obligation, Queue, decode, encode
from qm.model.values.rows import POSITION_KEY, class_code
from qm.names.path_name import parse_path_name
from qm.wire.codes import ErrorCode
from qm.wire.message_class import AcknowledgeFlags, MessageClass
from tests.unit.model.world import HOST, ClientInWorld, World, direct, packet, request

RECEIVE = QueueAccessType.RECEIVE_ACCESS
QUEUE = "q"
NAME = f"DIRECT=OS:{HOST}\\{QUEUE}"


def counts(world: World, queue_id: int) -> list[tuple[int, int, int]]:
    """Return returns, aborts and moves of each message of a queue."""
    found = []
    for key in world.positions(queue_id):
        row = world.state.get(Table.OBLIGATION, POSITION_KEY.pack(queue_id, key))
        told = Obligation() if row is None else decode(Obligation, row)
        found.append((told.returns, told.aborts, told.moves))
    return found


def subqueue(world: World, name: str = f"{QUEUE};poison") -> int:
    queue_id = world.machine.view.registry.path(parse_path_name(f".\\{name}"))
    assert queue_id > 0, "no subqueue"
    return queue_id


class Case:
    """A queue with a message, and a reader who does not take it."""

    def __init__(self, *, transactional: bool = True, **attributes: Any) -> None:
        self.world = World()
        self.queue = self.world.create(QUEUE, transactional=transactional, **attributes)
        self.client: ClientInWorld = self.world.client()
        self.opened = self.client.open(NAME, RECEIVE)
        self.begun = 0

    def abort(self) -> int:
        """Read in a transaction that is aborted; return how many messages it had."""
        self.begun += 1
        transaction = self.client.begin(f"t{self.begun}")
        found = self.client.receive(self.opened, transaction=transaction)
        assert self.client.abort(transaction) == 0
        return len([one for one in found if one.status == 0])

    def put_back(self) -> None:
        """Borrow a message and return it."""
        (found,) = self.client.receive(self.opened, is_two_phase=True)
        end = commands.ReadEnd(
            self.client.request(), found.queue_id, found.lookup_identifier, delete=False
        )
        assert self.world.one(end).status == 0


def test_returns_are_counted_for_every_kind_of_reader() -> None:
    case = Case()
    case.client.send(NAME, transaction=(sent := case.client.begin("s")))
    case.client.commit(sent)
    case.abort()
    case.put_back()
    assert counts(case.world, case.queue) == [(2, 1, 0)]
    (found,) = case.client.receive(case.opened, is_two_phase=True)
    assert found.status == 0
    assert case.world.one(commands.CloseClient("c")).status == 0
    case.world.tick()
    assert counts(case.world, case.queue) == [(3, 1, 0)]


def test_nothing_is_counted_before_the_version() -> None:
    case = Case(transactional=False)
    case.world.version = VERSION_OF_RETURNS - 1
    case.client.send(NAME)
    case.put_back()
    assert counts(case.world, case.queue) == [(0, 0, 0)]
    attributes = {"max_deliveries": encode_attribute(3)}
    outcome = case.world.one(commands.SetQueue(request(), case.queue, attributes, (), None))
    assert outcome.status == ErrorCode.MQ_ERROR_ILLEGAL_PROPID


def filled(*, count: int = 1, **attributes: Any) -> Case:
    case = Case(**attributes)
    sent = case.client.begin("s")
    for _ in range(count):
        case.client.send(NAME, transaction=sent)
    assert case.client.commit(sent) == 0
    return case


def test_a_poison_message_goes_to_its_subqueue_and_the_next_is_read() -> None:
    case = filled(count=2, max_deliveries=3)
    first, second = case.world.positions(case.queue)
    for _ in range(2):
        assert case.abort() == 1
        assert list(case.world.positions(case.queue)) == [first, second]
    case.abort()
    assert list(case.world.positions(case.queue)) == [second]
    poison = subqueue(case.world)
    assert list(case.world.positions(poison)) == [first]
    assert counts(case.world, poison) == [(3, 3, 1)]
    stats = case.world.stats(case.queue)
    assert (stats.count(), sum(stats.locked)) == (1, 0)


def test_who_moves_it_back_gives_it_a_new_start() -> None:
    case = filled(max_deliveries=1)
    case.abort()
    poison = subqueue(case.world)
    (key,) = case.world.positions(poison)
    move = commands.Move(case.client.request(), poison, key, case.queue, ())
    assert case.world.one(move).status == 0
    assert counts(case.world, case.queue) == [(0, 1, 2)]


def test_a_dead_letter_says_that_it_was_rejected() -> None:
    case = filled(max_deliveries=1, poison_action=PoisonAction.DEAD_LETTER)
    case.abort()
    assert not case.world.positions(case.queue)
    dead = case.world.manager_queue("system_transactional_deadletter_queue")
    (position,) = case.world.positions(dead).values()
    assert position.class_code == class_code(MessageClass.NACK_RECEIVE_REJECTED)


def test_a_rejected_message_is_acknowledged_so_and_not_kept() -> None:
    case = Case(transactional=False, max_deliveries=1, poison_action=PoisonAction.REJECT)
    admin = case.world.create("admin")
    flags = {"flags": AcknowledgeFlags.NR}
    raw = packet(1, admin_queue=direct("admin"), properties=flags)
    case.client.send(NAME, raw=raw)
    case.put_back()
    assert not case.world.positions(case.queue)
    (acknowledgement,) = case.world.messages(admin)
    assert acknowledgement.properties.message_class == MessageClass.NACK_RECEIVE_REJECTED


def test_a_message_whose_dead_letter_has_no_room_stays() -> None:
    case = filled(max_deliveries=1, poison_action=PoisonAction.DEAD_LETTER)
    limit = {"journal_quota": encode_attribute(0)}
    assert case.world.one(commands.SetQueueManager(request(), limit, (), None)).status == 0
    case.abort()
    assert len(case.world.positions(case.queue)) == 1
    dead = case.world.manager_queue("system_transactional_deadletter_queue")
    assert not case.world.positions(dead)
    assert case.abort() == 1


def test_a_returned_message_waits_before_the_next_reader_gets_it() -> None:
    case = filled(count=2, retry_delay_ms=5_000)
    first, second = case.world.positions(case.queue)
    assert case.abort() == 1
    (found,) = case.client.receive(case.opened, is_two_phase=True)
    assert found.lookup_identifier == second, "who is behind it overtakes it"
    case.world.tick(4_999)
    assert case.client.receive_outcome(case.opened).value == []
    case.world.tick(1)
    (found,) = case.client.receive(case.opened)
    assert found.lookup_identifier == first


def test_a_purge_takes_what_waits() -> None:
    case = filled(retry_delay_ms=RETRY_DELAY_MAX_MS)
    case.abort()
    assert case.world.one(commands.PurgeQueue(request(), case.queue, ())).status == 0
    case.world.settle(case.queue)
    assert not case.world.positions(case.queue)
    stats = case.world.stats(case.queue)
    assert (stats.count(), sum(stats.locked)) == (0, 0)
    case.world.tick(RETRY_DELAY_MAX_MS)  # finds nothing


def test_a_deleted_queue_takes_what_waits() -> None:
    case = filled(retry_delay_ms=RETRY_DELAY_MAX_MS)
    case.abort()
    assert case.world.one(commands.DeleteQueue(request(), case.queue, ())).status == 0
    case.world.settle(case.queue)
    case.world.tick(RETRY_DELAY_MAX_MS)
    assert not case.world.positions(case.queue)


@pytest.mark.parametrize("lifetime_s", [5, 6])
def test_a_message_that_expires_while_it_waits_is_gone(lifetime_s: int) -> None:
    case = Case(transactional=False, retry_delay_ms=6_000)
    case.client.send(NAME, raw=packet(0, time_to_be_received=lifetime_s))
    case.put_back()
    case.world.tick(6_000)
    assert not case.world.positions(case.queue)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_deliveries", -1), ("retry_delay_ms", RETRY_DELAY_MAX_MS + 1), ("poison_action", 3)],
)
def test_other_values_are_refused(name: str, value: int) -> None:
    case = Case()
    attributes = {name: encode_attribute(value)}
    outcome = case.world.one(commands.SetQueue(request(), case.queue, attributes, (), None))
    assert outcome.status == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def test_rows_without_the_new_fields_stay_as_they_were() -> None:
    """Builds of both versions write the same bytes while the cluster is at the lower one."""
    obligation = Obligation(acknowledgements=1)
    assert encode(obligation)[0] == 0x9D, "13 elements"
    obligation.moves = 1
    assert encode(obligation)[:3] == b"\xdc\x00\x10", "16 elements"
    assert decode(Obligation, encode(obligation)) == obligation
    record = Case(max_deliveries=2).world.record(1)
    assert isinstance(record, Queue)
