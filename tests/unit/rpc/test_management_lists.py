"""Values of remote management that need no node: whole lists, and each word and number of a set."""

from array import array

import msgspec
import pytest

from qm.api.gate.operations import Link, LinkEvent
from qm.model.queries import View
from qm.model.state.ledger import QueueInHand
from qm.model.values.commands import TransferFailed
from qm.model.values.elements import (
    OutgoingAdminState,
    OutgoingQueueState,
    QueueAccessType,
    QueueType,
)
from qm.rpc.remote_management.properties import (
    machine_property,
    outgoing_property,
    queue_property,
)
from qm.rpc.variants import Variant
from qm.wire.enums import ConnectionStatus, VarType
from qm.wire.message_class import MessageClass
from tests.conformance.test_management_properties import a_queue_to_elsewhere
from tests.unit.model.test_delivery import Sender
from tests.unit.model.world import World, packet
from tests.unit.rpc.test_management_values import (
    ACTIVE,
    ALL_BYTES,
    AWAY,
    FAILED,
    HISTORY,
    PRIVATE_QUEUES,
    STATE,
    TYPE,
)

GUID = "6B29FC40-CA47-1067-B31D-00DD010662DA"
QUEUES = 1_005
"""More than are read at a time."""


@pytest.mark.spec("MR-2.2.3.1-02", "MR-2.2.3.1-04")
def test_lists_of_the_machine_are_whole() -> None:
    world = World()
    names = [f"q{number:04}" for number in range(1, QUEUES + 1)]
    for name in names:
        world.create(f"private$\\{name}")
    for to in ("private$\\q0001", "private$\\q1005"):
        assert world.arrive(packet(int(to[-4:]), to=to)) == [0]
    world.create("public")
    assert world.arrive(packet(1_006, to="public")) == [0]
    world.client().open("DIRECT=OS:vhost\\private$\\q1004", QueueAccessType.RECEIVE_ACCESS)
    view = View.of(world.state)
    private = machine_property(view, PRIVATE_QUEUES)
    assert private.kind == 0x101F
    assert sorted(private.value) == [f"vhost\\private$\\{name}" for name in names]
    active = machine_property(view, ACTIVE)
    assert active.kind == 0x101F
    assert [name.partition("=")[0] for name in active.value] == [*["PRIVATE"] * 3, "PUBLIC"]


@pytest.mark.spec("MR-2.2.3.1-09")
def test_the_bytes_of_all_queues_are_those_of_each_kind() -> None:
    sender = Sender(forgets=False)
    orders = sender.create("orders", journaling=True)
    assert sender.arrive(packet(1), packet(2)) == [0, 0]
    sender.c.receive(sender.c.open("DIRECT=OS:vhost\\orders", QueueAccessType.RECEIVE_ACCESS))
    sender.send(1, has_positive_journaling=True)
    sender.session_ack(*sender.keys())
    sender.send(1, has_negative_journaling=True)
    late = TransferFailed(
        sender.queue_id, array("Q", sender.keys()), MessageClass.NACK_REACH_QUEUE_TIMEOUT
    )
    assert sender.one(late).status == 0
    sender.send(1)
    machine = map(sender.manager_queue, ("system_journal_queue", "system_deadletter_queue"))
    queues = (orders, sender.record(orders).journal_queue, sender.queue_id, *machine)
    sizes = [sender.stats(one).total_bytes for one in queues]
    assert 0 not in sizes
    told = machine_property(sender.machine.view, ALL_BYTES)
    assert (told.kind, told.value) == (20, sum(sizes))


@pytest.mark.spec("MR-2.2.3.2-05")
def test_a_queue_is_of_one_of_five_types() -> None:
    world = World()
    made = {"public": world.create("public"), "private": world.create("private$\\inbox")}
    made["machine"] = world.manager_queue("system_deadletter_queue")
    view = View.of(world.state)
    told: dict[str, Variant] = {}
    for kind, queue_id in made.items():
        told[kind] = queue_property(view, world.stats(queue_id), TYPE)
    record = msgspec.structs.replace(world.record(made["public"]), queue_type=QueueType.CONNECTOR)
    told["connector"] = queue_property(view, QueueInHand(record, None), TYPE)
    for kind, name in (
        ("multicast", "MULTICAST=234.1.1.1:8001"),
        ("public elsewhere", f"PUBLIC={GUID}"),
        ("private elsewhere", f"PRIVATE={GUID}\\00000010"),
        ("direct elsewhere", AWAY),
    ):
        named = msgspec.structs.replace(a_queue_to_elsewhere(), destination_format_name=name)
        told[kind] = outgoing_property(named, None, TYPE)
    assert {kind: (one.kind, one.value) for kind, one in told.items()} == {
        "public": (VarType.LPWSTR, "PUBLIC"),
        "private": (VarType.LPWSTR, "PRIVATE"),
        "machine": (VarType.LPWSTR, "MACHINE"),
        "connector": (VarType.LPWSTR, "CONNECTOR"),
        "multicast": (VarType.LPWSTR, "MULTICAST"),
        "public elsewhere": (VarType.LPWSTR, "PUBLIC"),
        "private elsewhere": (VarType.LPWSTR, "PRIVATE"),
        "direct elsewhere": (VarType.LPWSTR, "PRIVATE"),
    }


@pytest.mark.spec("MR-2.2.3.2-34")
def test_each_status_of_a_connection_has_its_number() -> None:
    numbers = {
        ConnectionStatus.ESTABLISHING: 0,
        ConnectionStatus.ESTABLISH_PACKET_RECEIVED: 1,
        ConnectionStatus.READY: 2,
        ConnectionStatus.UNKNOWN_FAILURE: FAILED,
        ConnectionStatus.PING_FAILURE: FAILED + 1,
        ConnectionStatus.CREATE_SOCKET_FAILURE: FAILED + 2,
        ConnectionStatus.BIND_SOCKET_FAILURE: FAILED + 3,
        ConnectionStatus.CONNECT_SOCKET_FAILURE: FAILED + 4,
        ConnectionStatus.TCP_NOT_ENABLED: FAILED + 5,
        ConnectionStatus.SEND_FAILURE: FAILED + 6,
        ConnectionStatus.SEND_NOT_READY: FAILED + 7,
        ConnectionStatus.DNS_FAILURE: FAILED + 8,
        ConnectionStatus.HTTPS_CERTIFICATE_FAILURE: FAILED + 9,
        ConnectionStatus.CONNECTION_LIMIT_REACHED: FAILED + 10,
        ConnectionStatus.REFUSED_BY_PEER: FAILED + 11,
        ConnectionStatus.NO_DIRECTORY_FOR_ROUTING: FAILED + 12,
        ConnectionStatus.LOW_MEMORY: FAILED + 13,
    }
    assert {*numbers} == {*ConnectionStatus}
    events = tuple(LinkEvent(status, 7, 0, "") for status in numbers)
    link = Link(OutgoingQueueState.WAITING, connection_history=events)
    told = outgoing_property(a_queue_to_elsewhere(), link, HISTORY).value[0]
    assert told == Variant(VarType.VECTOR_UI4, [*numbers.values()])


@pytest.mark.spec("MR-2.2.3.2-16")
def test_a_paused_queue_is_held_whatever_its_link_says() -> None:
    info = a_queue_to_elsewhere()
    paused = msgspec.structs.replace(info, admin_state=OutgoingAdminState.ON_HOLD)
    for link in (None, *map(Link, OutgoingQueueState)):
        held = outgoing_property(paused, link, STATE)
        assert held == Variant(VarType.LPWSTR, "ONHOLD")
        is_held = link is not None and link.state is OutgoingQueueState.ON_HOLD
        assert (outgoing_property(info, link, STATE) == held) is is_held
