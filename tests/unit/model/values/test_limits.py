"""The named limits: what is at the limit is taken, what is beyond it is refused with its code."""

from __future__ import annotations

import pytest

from qm.model.clients import clients, opens, reads, sends, transactions
from qm.model.management import administration
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import (
    MESSAGE_LABEL_MAX_CHARS,
    PACKET_MAX_BYTES,
    PROPERTIES_PER_CALL_MAX,
    QUEUE_LABEL_MAX_CHARS,
)
from qm.wire.codes import ErrorCode
from tests.unit.model.world import HOST, ClientInWorld, World, packet, request

ORDERS = f"DIRECT=OS:{HOST}\\orders"
FULL = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
RECEIVE = QueueAccessType.RECEIVE_ACCESS


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> ClientInWorld:
    return world.client()


def limit(monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: int) -> None:
    monkeypatch.setattr(module, name, value)


def created(world: World, path: str, **attributes: object) -> int:
    """Create a queue; return the status."""
    identifier = path.encode()[-16:].ljust(16, b"\0")
    encoded = {name: encode_attribute(value) for name, value in attributes.items()}
    command = commands.CreateQueue(request(), identifier, identifier, path, encoded, b"", ())
    return world.one(command).status


def test_queues(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.counters().queue_count
    first = world.create("first")
    journal = world.record(first).journal_queue
    each = world.counters().queue_count - before  # its journal is one, too
    limit(monkeypatch, administration, "QUEUES_MAX", before + each)
    assert created(world, ".\\second") == FULL
    assert world.one(commands.DeleteQueue(request(), first, ())).status == 0
    world.settle(journal)
    world.settle(first)
    assert created(world, ".\\second") == 0


def test_subqueues_of_a_queue(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, administration, "SUBQUEUES_PER_QUEUE_MAX", 2)
    world.create("orders")
    world.create("others")

    def opened(name: str) -> int:
        command = commands.OpenQueue(client.request(), name, QueueAccessType.MOVE_ACCESS, 0, ())
        return world.one(command).status

    for name in ("a", "b"):
        assert opened(f"{ORDERS};{name}") == 0
    assert opened(f"{ORDERS};c") == FULL
    assert opened(f"{ORDERS};a") == 0
    assert opened(f"DIRECT=OS:{HOST}\\others;c") == 0


def test_open_queues_of_a_client(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, opens, "OPEN_QUEUES_PER_CLIENT_MAX", 2)
    world.create("orders")
    handle, _ = client.open(ORDERS, RECEIVE)
    client.open(ORDERS, RECEIVE)
    beyond = commands.OpenQueue(client.request(), ORDERS, RECEIVE, 0, ())
    assert world.one(beyond).status == FULL
    world.client("d").open(ORDERS, RECEIVE)
    assert world.one(commands.CloseQueue(client.request(), handle)).status == 0
    client.open(ORDERS, RECEIVE)


def test_clients(world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, clients, "CLIENTS_MAX", 2)
    world.client("d")
    assert world.one(commands.OpenClient("e", "principal", 60_000)).status == FULL
    assert world.one(commands.OpenClient("d", "principal", 60_000)).status == 0, "it goes on"


def test_transactions_of_a_client(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, transactions, "TRANSACTIONS_PER_CLIENT_MAX", 2)
    first, _ = client.begin("t1"), client.begin("t2")
    beyond = commands.TxBegin(client.request(), b"t3".ljust(16, b"-"), True, "", 60_000)
    assert world.one(beyond).status == FULL
    world.client("d").begin("t4")
    assert client.commit(first) == 0
    client.begin("t5")


def test_operations_of_a_transaction(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, transactions, "OPERATIONS_PER_TRANSACTION_MAX", 2)
    orders = world.create("orders", transactional=True)
    transaction = client.begin("t")
    assert client.send(ORDERS, ORDERS, ORDERS, transaction=transaction).status == FULL
    assert client.send(ORDERS, transaction=transaction).status == 0
    assert client.send(ORDERS, transaction=transaction).status == 0
    assert client.send(ORDERS, transaction=transaction).status == FULL
    assert client.commit(transaction) == 0
    assert len(world.positions(orders)) == 2
    reading = client.begin("r")
    opened = client.open(ORDERS, RECEIVE)
    client.send(ORDERS, transaction=reading)
    assert len(client.receive(opened, 2, transaction=reading)) == 1


def test_two_phase_reads_of_a_client(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, reads, "READS_PER_CLIENT_MAX", 2)
    world.create("orders")
    world.arrive(*(packet(n) for n in range(1, 5)))
    opened = client.open(ORDERS, RECEIVE)
    assert len(client.receive(opened, 4, is_two_phase=True)) == 2
    assert client.receive_outcome(opened, 1, is_two_phase=True).status == FULL
    assert len(client.receive(opened, 1)) == 1, "others are not concerned"


def test_targets_of_a_message(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, sends, "TARGETS_PER_SEND_MAX", 2)
    orders = world.create("orders")
    assert client.send(ORDERS, ORDERS).status == 0
    assert client.send(ORDERS, ORDERS, ORDERS).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert client.send().status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert len(world.positions(orders)) == 2


def test_size_of_a_packet(
    world: World, client: ClientInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PACKET_MAX_BYTES == 4 << 20
    world.create("orders")
    raw = packet(0)
    limit(monkeypatch, sends, "PACKET_MAX_BYTES", len(raw))
    assert client.send(ORDERS, raw=raw).status == 0
    limit(monkeypatch, sends, "PACKET_MAX_BYTES", len(raw) - 1)
    assert client.send(ORDERS, raw=raw).status == FULL


def test_properties_of_a_call(world: World) -> None:
    assert PROPERTIES_PER_CALL_MAX == 128
    many = {f"attribute{n}": 0 for n in range(128)}
    assert created(world, ".\\q", **many) == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    many["one_more"] = 0
    assert created(world, ".\\q", **many) == ErrorCode.MQ_ERROR_TOO_MANY_PROPERTIES


def test_label_of_a_queue(world: World) -> None:
    assert QUEUE_LABEL_MAX_CHARS == 124
    assert created(world, ".\\q", label="x" * 124) == 0
    assert created(world, ".\\r", label="x" * 125) == ErrorCode.MQ_ERROR_LABEL_TOO_LONG
    label = "\U0001f600" * 62  # two UTF-16 code units each
    assert created(world, ".\\r", label=label) == 0
    assert created(world, ".\\s", label=f"{label}x") == ErrorCode.MQ_ERROR_LABEL_TOO_LONG


def test_a_label_has_room_for_its_end_in_the_250_characters_of_the_packet() -> None:
    """[MS-MQMQ 2.2.19.3] LabelLength."""
    assert MESSAGE_LABEL_MAX_CHARS == 250 - 1
