"""What a node tells of itself and of its queues, by remote management [MS-MQMQ 2.3.11, 2.3.12]."""

from __future__ import annotations

from struct import pack
from typing import Any

import msgspec
import pytest

from qm.api.gate.operations import Link, LinkEvent
from qm.model import queries
from qm.model.queries import OutgoingQueueInfo, SequencePlace
from qm.model.values.elements import OutgoingAdminState, OutgoingQueueState
from qm.names.format_name import parse_format_name
from qm.pb import data_pb2
from qm.rpc.remote_management.interface import QMMGMT, InfoIn, ManagementObject
from qm.rpc.remote_management.properties import (
    NULL,
    machine_property,
    outgoing_property,
    queue_property,
)
from qm.rpc.variants import Variant
from qm.wire.enums import ConnectionStatus, VarType
from qm.wire.property_id import (
    Choices,
    MachineManagementProperty,
    Property,
    QueueManagementProperty,
)
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import run
from tests.unit.api.test_data import create
from tests.unit.model.test_delivery import Sender
from tests.unit.model.world import NOW_S, PEER, World, packet
from tests.unit.rpc.reading import rpc_world
from tests.unit.rpc.test_remote_management import MACHINE, act, queue

PUBLIC = r"DIRECT=OS:QUORATE\orders"
PRIVATE = r"DIRECT=OS:QUORATE\private$\exact"
SYSTEM = r"DIRECT=OS:QUORATE\SYSTEM$;DEADXACT"
AWAY = r"DIRECT=OS:elsewhere.example\PRIVATE$\q"
HELD = "DIRECT=TCP:127.0.0.98\\q"
IDLE = r"DIRECT=OS:QUORATE\idle"
JOURNAL = rf"{PUBLIC};JOURNAL"
Told = dict[str, dict[int, Variant]]


@pytest.fixture(scope="module")
def told() -> Told:
    """Every property of the machine and of seven queues, by number."""
    found: Told = {}

    async def scenario() -> None:
        async with rpc_world() as made, made.client(await made.leader()) as client:
            await create(client, r".\orders", journaling=True)
            await create(client, r".\private$\exact", transactional=True)
            await create(client, r".\idle")
            await create(client, r".\private$\empty")
            await client.open(IDLE)
            await client.send(PUBLIC, b"taken", b"kept", b"kept", b"kept")
            await client.receive(await client.open(PUBLIC))
            for short in ("later", "sooner"):
                await client.open(f"{PUBLIC};{short}", access=data_pb2.MOVE_ACCESS)
            for name in (AWAY, HELD):
                await client.send(name, b"out")
            caller = await made.caller(QMMGMT)

            async def ask(what: ManagementObject, numbers: range) -> dict[int, Variant]:
                given = InfoIn(what, len(numbers), list(numbers), [NULL for _ in numbers])
                answer = await caller.call(QMMGMT, 0, given)
                assert answer.status == 0
                return dict(zip(numbers, answer.values, strict=True))

            assert await act(caller, queue(HELD), "PAUSE") == 0
            found["machine"] = await ask(MACHINE, range(1, 7))
            for name in (PUBLIC, PRIVATE, SYSTEM, AWAY, HELD, IDLE, JOURNAL):
                found[name] = await ask(queue(name), range(1, 28))
            for name in (PUBLIC, PRIVATE, SYSTEM, JOURNAL):
                # By the name that is told of it the same queue is opened.
                named = of(found, name, Q.FORMATNAME)
                assert (await client.open(named)).queue_id == (await client.open(name)).queue_id
            assert await act(caller, MACHINE, "DISCONNECT") == 0
            found["disconnected"] = await ask(MACHINE, range(1, 7))

    run(scenario())
    return found


def of(told: Told, what: str, one: Property) -> Any:
    return told[what][one.number].value


def is_typed(told: Told, *properties: Property) -> bool:
    """Whether each property has its type wherever it applies, and applies somewhere."""
    for one in properties:
        whats = [what for what in told if ("DIRECT" in what) is isinstance(one, Q)]
        kinds = {told[what][one.number].kind for what in whats} - {VarType.NULL}
        if kinds != {one.value.vartype}:
            return False
    return True


Q, M = QueueManagementProperty, MachineManagementProperty


@pytest.mark.spec("MQ-2.3.11-01", "MQ-2.3.11.1-01", "MQ-2.3.11.2-01", "MQ-2.3.11.4-01")
def test_of_the_machine(told: Told) -> None:
    assert is_typed(told, M.TYPE, M.BYTES_IN_ALL_QUEUES, M.ACTIVEQUEUES, M.PRIVATEQ, M.CONNECTED)
    assert of(told, "machine", M.TYPE).startswith("Quorate")
    parts = [
        of(told, what, one)
        for what in (PUBLIC, PRIVATE, AWAY, HELD)
        for one in (Q.BYTES_IN_QUEUE, Q.BYTES_IN_JOURNAL)
    ]
    assert of(told, "machine", M.BYTES_IN_ALL_QUEUES) == sum(parts) > 0
    active = of(told, "machine", M.ACTIVEQUEUES)
    # What holds messages, and what somebody has open.
    here = {of(told, what, Q.FORMATNAME) for what in (PUBLIC, IDLE)}
    assert {AWAY, HELD, *here} == set(active)
    assert of(told, PRIVATE, Q.FORMATNAME) not in active, "it is empty and nobody has it open"
    assert len([parse_format_name(name) for name in active]) == 4
    private = [rf"QUORATE\private$\{name}" for name in ("empty", "exact")]
    assert sorted(of(told, "machine", M.PRIVATEQ)) == private
    assert of(told, "machine", M.CONNECTED) == "CONNECTED"
    assert of(told, "disconnected", M.CONNECTED) == "DISCONNECTED"


@pytest.mark.spec("MQ-2.3.12.1-01", "MQ-2.3.12.2-01", "MQ-2.3.12.3-01", "MQ-2.3.12.4-01")
def test_what_a_queue_is_called_and_where_it_is(told: Told) -> None:
    assert is_typed(told, Q.PATHNAME, Q.FORMATNAME, Q.TYPE, Q.LOCATION)
    paths = {what: of(told, what, Q.PATHNAME) for what in (PUBLIC, PRIVATE, SYSTEM, JOURNAL)}
    assert paths == {
        PUBLIC: r"QUORATE\orders",
        PRIVATE: r"QUORATE\private$\exact",
        SYSTEM: r"QUORATE\system$;DEADXACT",
        JOURNAL: r"QUORATE\orders;JOURNAL",
    }
    assert of(told, PUBLIC, Q.FORMATNAME).startswith("PUBLIC=")
    assert of(told, PRIVATE, Q.FORMATNAME).startswith("PRIVATE=")
    assert of(told, JOURNAL, Q.FORMATNAME) == of(told, PUBLIC, Q.FORMATNAME) + ";JOURNAL"
    assert of(told, SYSTEM, Q.FORMATNAME).startswith("MACHINE=")
    assert of(told, SYSTEM, Q.FORMATNAME).endswith(";DEADXACT")
    assert of(told, AWAY, Q.FORMATNAME) == AWAY
    kinds = [of(told, what, Q.TYPE) for what in (PUBLIC, PRIVATE, SYSTEM, AWAY, JOURNAL)]
    assert kinds == ["PUBLIC", "PRIVATE", "MACHINE", "PRIVATE", "MACHINE"]
    places = [of(told, what, Q.LOCATION) for what in (PUBLIC, SYSTEM, AWAY)]
    assert places == ["LOCAL", "LOCAL", "REMOTE"]


@pytest.mark.spec("MQ-2.3.12.5-01", "MQ-2.3.12.6-01", "MQ-2.3.12.11-01", "MQ-2.3.12.27-01")
def test_what_a_queue_is_and_how_it_is_connected(told: Told) -> None:
    assert is_typed(told, Q.XACT, Q.FOREIGN, Q.STATE, Q.SUBQUEUE_NAMES)
    kinds = [of(told, what, Q.XACT) for what in (PUBLIC, PRIVATE, AWAY)]
    assert kinds == ["NO", "YES", "UNKNOWN"]
    assert [of(told, what, Q.FOREIGN) for what in (PUBLIC, AWAY)] == ["NO", "NO"]
    assert of(told, PUBLIC, Q.STATE) == "LOCAL CONNECTION"
    assert of(told, HELD, Q.STATE) == "ONHOLD"
    # Nobody knows its host, or it is still being asked for.
    assert of(told, AWAY, Q.STATE) in ("NEED VALIDATION", "WAITING", "INACTIVE", "DISCONNECTED")
    for one in (Q.TYPE, Q.LOCATION, Q.XACT, Q.FOREIGN, Q.STATE):
        assert isinstance(one.value.valid, Choices)
        legal = {value for _, value in one.value.valid.named}
        assert {of(told, what, one) for what in told if "DIRECT" in what} <= legal
    assert sorted(of(told, PUBLIC, Q.SUBQUEUE_NAMES)) == ["later", "sooner"]
    assert of(told, PRIVATE, Q.SUBQUEUE_NAMES) == [], "those of others are not its own"


@pytest.mark.spec("MQ-2.3.11.2-01")
def test_private_queues_are_told_whatever_their_number() -> None:
    world = World()
    names = [f"q{number:04}" for number in range(1_001)]
    for name in names:
        world.create(f"private$\\{name}")
    world.create("public")
    told = machine_property(queries.View.of(world.state), M.PRIVATEQ.number)
    assert told.kind == 0x101F, "VT_VECTOR|VT_LPWSTR"
    assert sorted(told.value) == [rf"vhost\private$\{name}" for name in names]


@pytest.mark.spec("MQ-2.3.12-01", "MQ-2.3.12-02", "MQ-2.3.12-03")
def test_what_is_counted(told: Told) -> None:
    local = (
        *(Q.MESSAGE_COUNT, Q.BYTES_IN_QUEUE, Q.JOURNAL_MESSAGE_COUNT, Q.BYTES_IN_JOURNAL),
        Q.SUBQUEUE_COUNT,
    )
    sent = (
        *(Q.EOD_LAST_ACK_TIME, Q.EOD_LAST_ACK_COUNT, Q.EOD_NO_READ_COUNT, Q.EOD_NO_ACK_COUNT),
        *(Q.EOD_RESEND_TIME, Q.EOD_RESEND_INTERVAL, Q.EOD_RESEND_COUNT),
    )
    assert is_typed(told, *local, *sent)
    counts = [of(told, PUBLIC, one) for one in local]
    assert (counts[0], counts[2], counts[4]) == (3, 1, 2)
    # Each has a header, and the one in the journal a body that is longer by one byte.
    assert 3 * (counts[3] - 8) <= counts[1] < 3 * counts[3] < 3000
    assert [of(told, AWAY, one) for one in local[:1]] == [1]
    assert of(told, AWAY, Q.EOD_NO_ACK_COUNT) == of(told, AWAY, Q.EOD_NO_READ_COUNT) == 0


@pytest.mark.spec("MQ-2.3.12.24-01", "MQ-2.3.12.12-01")
def test_tables_and_next_hops(told: Told) -> None:
    (senders,) = {told[PRIVATE][Q.EOD_SOURCE_INFO.number].kind}
    assert senders is VarType.VECTOR_VARIANT
    columns = of(told, PRIVATE, Q.EOD_SOURCE_INFO)
    assert [column.kind.name for column in columns] == [
        *("VECTOR_LPWSTR", "VECTOR_CLSID", "VECTOR_UI8", "VECTOR_UI4", "VECTOR_I4", "VECTOR_UI4"),
    ]
    assert {told[what][Q.NEXTHOPS.number].kind for what in (PUBLIC, HELD)} == {VarType.NULL}


def a_queue_to_elsewhere() -> OutgoingQueueInfo:
    sender = Sender(forgets=False)
    sender.send(1)
    found = queries.outgoing_queue(sender.machine.view, sender.queue_id)
    assert found is not None
    return found


@pytest.mark.spec("MQ-2.3.12.25-04")
def test_only_addresses_of_the_grammar_are_in_a_history() -> None:
    entries = ("10.0.0.1", "", "2001:db8::1", "::ffff:10.0.0.1", "fe80::1%eth0")
    events = tuple(LinkEvent(ConnectionStatus.READY, 1, 0, one) for one in entries)
    link = Link(OutgoingQueueState.CONNECTED, connection_history=events)
    told = outgoing_property(a_queue_to_elsewhere(), link, Q.CONNECTION_HISTORY.number)
    *_, addresses = told.value
    assert [one.value for one in addresses.value] == [["10.0.0.1"], [], [], [], []]
    assert {one.kind for one in addresses.value} == {VarType.VECTOR_LPWSTR}


@pytest.mark.spec("MQ-2.3.12.4-01", "MQ-2.3.12.5-01", "MQ-2.3.12.6-01")
def test_a_queue_elsewhere_is_transactional_where_a_sequence_goes_to_it() -> None:
    place = SequencePlace(7 << 32 | 1, 2, 1)
    for begun, kind in ((None, "UNKNOWN"), (place, "YES")):
        info = msgspec.structs.replace(a_queue_to_elsewhere(), eod_next_seq=begun)
        for one, value in ((Q.LOCATION, "REMOTE"), (Q.XACT, kind), (Q.FOREIGN, "NO")):
            told = outgoing_property(info, None, one.number)
            assert told == Variant(VarType.LPWSTR, value)


@pytest.mark.spec("MQ-2.3.12-01", "MQ-2.3.12-02", "MQ-2.3.12-03", "MQ-2.3-17", "MQ-2.3.12.12-01")
def test_each_figure_of_what_is_sent_has_a_number_of_its_own() -> None:
    places = [SequencePlace(7 << 32 | 1, number, number - 1) for number in range(1, 5)]
    info = msgspec.structs.replace(
        a_queue_to_elsewhere(),
        eod_last_ack=places[0],
        eod_first_non_ack=places[1],
        eod_last_non_ack=places[2],
        eod_next_seq=places[3],
        eod_no_read_count=5,
        eod_no_ack_count=6,
        message_count=12,
        total_bytes=13,
    )
    hops = ("IP=10.0.0.1", "IPv6=2001:db8::1")
    link = Link(
        OutgoingQueueState.CONNECTED,
        hops,
        resend_count=7,
        next_resend_ms=8_999,
        last_ack_time_s=9,
        last_ack_count=10,
        resend_interval_s=11,
    )
    expected: dict[Property, object] = {
        Q.NEXTHOPS: list(hops),
        Q.EOD_LAST_ACK: pack("<QII", 7 << 32 | 1, 1, 0),
        Q.EOD_FIRST_NON_ACK: pack("<QII", 7 << 32 | 1, 2, 1),
        Q.EOD_LAST_NON_ACK: pack("<QII", 7 << 32 | 1, 3, 2),
        Q.EOD_NEXT_SEQ: pack("<QII", 7 << 32 | 1, 4, 3),
        Q.EOD_NO_READ_COUNT: 5,
        Q.EOD_NO_ACK_COUNT: 6,
        Q.EOD_RESEND_COUNT: 7,
        Q.EOD_RESEND_TIME: 8,
        Q.EOD_LAST_ACK_TIME: 9,
        Q.EOD_LAST_ACK_COUNT: 10,
        Q.EOD_RESEND_INTERVAL: 11,
        Q.MESSAGE_COUNT: 12,
        Q.BYTES_IN_QUEUE: 13,
        Q.JOURNAL_MESSAGE_COUNT: 0,
        Q.BYTES_IN_JOURNAL: 0,
    }
    for one, value in expected.items():
        assert outgoing_property(info, link, one.number) == Variant(one.value.vartype, value)


@pytest.mark.spec("MQ-2.2.5-01", "MQ-2.2.5.1-01", "MQ-2.2.5.1-02")
def test_a_place_is_a_sequence_a_number_and_the_one_before_it() -> None:
    high = 1 << 64
    for sequence, number, before in ((-2, 7, 6), (1, 0xFFFF_FFFF, 0xFFFF_FFFE), (-high // 2, 1, 0)):
        place = SequencePlace(sequence % high, number, before)
        for one in ("last_ack", "first_non_ack", "last_non_ack", "next_seq"):
            info = msgspec.structs.replace(a_queue_to_elsewhere(), **{f"eod_{one}": place})
            found = outgoing_property(info, None, Q[f"EOD_{one.upper()}"].number)
            assert found == Variant(VarType.BLOB, pack("<qII", sequence, number, before))


@pytest.mark.spec("MQ-2.3.12.24-01")
def test_each_stream_is_a_row_of_its_own_queue() -> None:
    world = World()
    exact, other = (world.create(name, transactional=True) for name in ("exact", "other"))
    sequence, spelled = 5 << 32 | 1, DirectQueueFormatName("TCP:127.0.0.11\\exact")
    world.arrive(*(packet(k, to="exact", sequence=(sequence, k, k - 1)) for k in (1, 2, 3)))
    world.tick(4_999)
    # Refused: neither comes next.
    for number in (9, 8):
        world.arrive(packet(number, to="exact", sequence=(sequence, number, number - 1)))
    world.arrive(packet(10, to=spelled, sequence=(sequence + 1, 1, 0)))
    world.tick(2_000)
    world.arrive(packet(11, to="other", sequence=(sequence + 2, 1, 0)))

    def columns(queue_id: int) -> list[list[Any]]:
        view = queries.View.of(world.state)
        found = view.ledger.queue(queue_id)
        assert found is not None
        streams = queries.list_incoming_sequences(view, queue_id=queue_id).items
        told = queue_property(view, found, Q.EOD_SOURCE_INFO.number, streams)
        return [one.value for one in told.value]

    expected = [
        [r"DIRECT=OS:vhost\exact", r"DIRECT=TCP:127.0.0.11\exact"],
        [PEER, PEER],
        [sequence, sequence + 1],
        [3, 1],
        [NOW_S + 4] * 2,
        [2, 0],
    ]
    assert columns(exact) == expected
    last = [[r"DIRECT=OS:vhost\other"], [PEER], [sequence + 2], [1], [NOW_S + 6], [0]]
    assert columns(other) == last


@pytest.mark.spec("MQ-2.3.12.11-01", "MQ-2.3.12.3-01", "DM-3.1.1.3-03")
def test_each_state_and_each_kind_of_name_has_its_text() -> None:
    info = a_queue_to_elsewhere()
    states = {
        OutgoingQueueState.INACTIVE: "INACTIVE",
        OutgoingQueueState.LOCKED: "INACTIVE",  # RP-A49
        OutgoingQueueState.NEED_VALIDATION: "NEED VALIDATION",
        OutgoingQueueState.WAITING: "WAITING",
        OutgoingQueueState.CONNECTED: "CONNECTED",
        OutgoingQueueState.DISCONNECTING: "DISCONNECTING",
        OutgoingQueueState.DISCONNECTED: "DISCONNECTED",
        OutgoingQueueState.ON_HOLD: "ONHOLD",
    }
    assert set(states) == set(OutgoingQueueState)
    held = msgspec.structs.replace(info, admin_state=OutgoingAdminState.ON_HOLD)
    for state, text in states.items():
        assert outgoing_property(info, Link(state), Q.STATE.number).value == text
        assert outgoing_property(held, Link(state), Q.STATE.number).value == "ONHOLD"
    assert outgoing_property(info, None, Q.STATE.number).value == "INACTIVE"
    for name, kind in (
        ("PUBLIC=6B29FC40-CA47-1067-B31D-00DD010662DA", "PUBLIC"),
        ("PRIVATE=6B29FC40-CA47-1067-B31D-00DD010662DA\\1", "PRIVATE"),
        (r"DIRECT=OS:far\q", "PRIVATE"),
        ("MULTICAST=234.1.1.1:8001", "MULTICAST"),
    ):
        named = msgspec.structs.replace(info, destination_format_name=name)
        assert outgoing_property(named, None, Q.TYPE.number).value == kind
