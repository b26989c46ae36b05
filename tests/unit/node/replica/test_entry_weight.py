"""What a command weighs, and that an entry of real nodes stays light (DESIGN 1.6)."""

from array import array

import pytest

from qm.model.values.commands import (
    CancelRequests,
    ClockTick,
    CloseClient,
    Command,
    Confirm,
    Move,
    PurgeStep,
    ReceiveRun,
    Request,
    Selector,
    SelectorKind,
    Send,
    TransferAcked,
    TxAbort,
    TxCommit,
)
from qm.model.values.commands.declaration import SEND_COSTS_POSITIONS
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX, READS_PER_CLIENT_MAX
from qm.node.replica.entry_weight import Weights
from qm.store.codec import Inspected, encode_command, inspect
from tests.unit.model.world import World, packet

REQUEST = Request("c", 1, 0)


def inspected(command: Command) -> Inspected:
    return inspect(encode_command(command))


def send(*targets: str) -> Send:
    return Send.of(REQUEST, [(target, b"x") for target in targets])


def receive(queue: int, count: int) -> ReceiveRun:
    return ReceiveRun("c", 1, queue, 1, count, 0, Selector(SelectorKind.FIRST))


@pytest.mark.parametrize(
    ("command", "weight"),
    [
        (Confirm("c", 9), 1),
        (send("DIRECT=OS:a\\b"), SEND_COSTS_POSITIONS),
        (send("DIRECT=OS:a\\b", "DIRECT=OS:a\\c", "DIRECT=OS:a\\d"), 3 * SEND_COSTS_POSITIONS),
        (CancelRequests("c", 1, 7, 0), 7),
        (Move(REQUEST, 1, 2, 3, ()), 2),
        (PurgeStep(1, 4_096), 4_096),
        (ClockTick(256), 256),
        (TransferAcked(1, array("Q", range(20))), 20),
        (PurgeStep(1, 1 << 31), POSITIONS_PER_ENTRY_MAX),
        (TxCommit(REQUEST, b"?" * 16), 1),
        (CloseClient("nobody"), 1),
        (receive(404, 1_000), 1),
    ],
)
def test_a_command_weighs_what_it_names(command: Command, weight: int) -> None:
    world = World()
    assert Weights(lambda: world.machine.view).of(inspected(command)) == weight


def test_a_batch_weighs_its_messages() -> None:
    world = World()
    weights = Weights(lambda: world.machine.view)
    batch = world.edge_batch(*(packet(n) for n in range(1, 38)))
    assert weights.of(inspected(batch)) == 37


def test_what_ends_much_at_once_weighs_what_the_state_holds() -> None:
    world = World()
    orders = world.create("orders", transactional=True)
    client = world.client()
    opened = client.open("DIRECT=OS:vhost\\orders", int(QueueAccessType.RECEIVE_ACCESS))
    transaction = client.begin("t")
    for _ in range(5):
        assert client.send("DIRECT=OS:vhost\\orders", transaction=transaction).status == 0
    weights = Weights(lambda: world.machine.view)
    for outcome in (TxCommit(REQUEST, transaction), TxAbort(REQUEST, transaction)):
        assert weights.of(inspected(outcome)) == 10
    assert client.commit(transaction) == 0
    assert weights.of(inspected(receive(orders, 1_000))) == 5
    client.receive(opened, 3)
    held = weights.of(inspected(CloseClient("c")))
    assert held - READS_PER_CLIENT_MAX >= 3
