"""Destinations, paths and transfer state [MS-MQDMPR 3.1.1.3 to .5, 3.1.7.1.26, 3.1.7.3.8]."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from qm.model import queries
from qm.model.clients.expand_name import expand_format_name
from qm.model.messages.message import Message, SenderIdentifierType
from qm.model.values import commands
from qm.model.values.commands import Facts
from qm.model.values.elements import (
    DirectoryObjectType,
    OutgoingAdminState,
    OutgoingQueueState,
    QueueAccessType,
)
from qm.names.format_name import (
    DistributionListName,
    MultipleElementName,
    format_name_text,
    parse_format_name,
)
from qm.names.guid import guid_text
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import ANONYMOUS, EVERYONE, sid_from_text
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.conformance.test_model_directory import set_manager
from tests.unit.model.management.test_directory import write
from tests.unit.model.test_delivery import TRANSACTIONAL, Sender
from tests.unit.model.world import BIRTH, NOW_MS, OWN, PEER, World, packet

RECEIVE, SEND, PEEK, MOVE, RECEIVE_ADMIN, PEEK_ADMIN = (
    QueueAccessType.RECEIVE_ACCESS,
    QueueAccessType.SEND_ACCESS,
    QueueAccessType.PEEK_ACCESS,
    QueueAccessType.MOVE_ACCESS,
    QueueAccessType.RECEIVE_ADMIN_ACCESS,
    QueueAccessType.PEEK_ADMIN_ACCESS,
)
A, B, C = "DIRECT=OS:a\\q", "DIRECT=OS:b\\q", "DIRECT=OS:c\\q"
SEQUENCE = 3 << 32 | 1


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    return Sender(forgets=request.param)


# Expand Format Name ------------------------------------------------------------------------


def expanded(text: str, lists: dict[str, list[str]] | None = None) -> str | None:
    def resolve(name: DistributionListName) -> list[str] | None:
        return (lists or {}).get(format_name_text(name))

    found = expand_format_name(parse_format_name(text), resolve)
    return None if found is None else format_name_text(found)


def a_list(number: int) -> str:
    return f"DL={guid_text(bytes([number]) * 16)}"


@pytest.mark.spec("DM-3.1.7.3.8-01", "DM-3.1.7.3.8-03", "DM-3.1.7.3.8-04")
def test_names_are_sorted_and_each_is_there_once() -> None:
    for single in (A, f"PUBLIC={guid_text(OWN)}", "MULTICAST=234.1.1.1:8001"):
        assert expanded(single) == single
    assert expanded(f"{C},{A},{B}") == f"{A},{B},{C}"
    assert expanded(f"{B},{A},{B.replace('OS:b', 'OS:B')}") == f"{A},{B}"
    assert expanded(f"{A},{A.replace('q', 'Q')}") == A
    upper = C.replace("OS:c", "OS:C")
    assert expanded(f"{upper},{B},{A}") == f"{A},{B},{upper}", "case does not count"
    assert isinstance(parse_format_name(f"{A},{A}"), MultipleElementName)


@pytest.mark.spec("DM-3.1.7.3.8-02")
def test_lists_are_resolved_however_deep() -> None:
    lists = {a_list(1): [C, a_list(2)], a_list(2): [A, a_list(1), B], a_list(3): [B]}
    assert expanded(a_list(1), lists) == f"{A},{B},{C}"
    assert expanded(f"{a_list(3)},{B}", lists) == B
    assert expanded(a_list(9), lists) is None
    assert expanded(f"{A},{a_list(4)}", {a_list(4): [a_list(9)]}) is None
    assert expanded(a_list(5), {a_list(5): []}) is None
    assert expanded(a_list(5), {a_list(5): ["no name"]}) is None


@pytest.mark.spec("DM-3.1.7.1.5-01")
def test_an_open_means_the_expanded_name(world: World) -> None:
    orders = world.create("orders")
    client = world.client()
    name = "DIRECT=OS:vhost\\orders"
    assert client.open(f"{name},{name.upper()}", RECEIVE)[1] == orders
    # Several names are sorted, and none is there twice: so they are open.
    handle, _ = client.open(f"{C},{A},{name},{A.replace('OS:a', 'OS:A')}", SEND)
    around, *inside = queries.list_opens(world.machine.view, after=handle - 1).items
    assert around.format_name == f"{A},{C},{name}"
    assert [one.format_name for one in inside] == [A, C, name]
    opening = commands.OpenQueue(client.request(), a_list(1), SEND, 0, ())
    unsupported = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert world.one(opening).status == unsupported
    before = queries.list_opens(world.machine.view).items
    opening = commands.OpenQueue(client.request(), f"{A},{a_list(1)}", SEND, 0, ())
    assert world.one(opening).status == unsupported
    assert queries.list_opens(world.machine.view).items == before


# Get Queue Path ----------------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.7.1.26-01",
    "DM-3.1.7.1.26-02",
    "DM-3.1.7.1.26-03",
    "DM-3.1.7.1.26-04",
    "DM-3.1.7.1.26-05",
)
def test_paths_of_format_names(world: World) -> None:
    orders = world.record(world.create("orders"))
    secret = world.record(world.create("private$\\secret"))
    own, stranger = guid_text(OWN), guid_text(b"?" * 16)
    number = f"{secret.private_queue_number:08x}"
    assert write(world, ord("F"), DirectoryObjectType.QUEUE_MANAGER, computer_name="far") == 0
    for name, path, machine in (
        ("DIRECT=OS:far\\q", "far\\q", "far"),
        ("DIRECT=TCP:10.0.0.1\\private$\\q", "10.0.0.1\\PRIVATE$\\q", "10.0.0.1"),
        ("DIRECT=HTTP://web:81/MSMQ\\q", "web\\q", "web"),
        ("DIRECT=HTTPS://web:81/MSMQ\\q", "web\\q", "web"),
        (f"PUBLIC={guid_text(orders.identifier)}", "vhost\\orders", "vhost"),
        (f"PRIVATE={own}\\{number}", secret.pathname, "vhost"),
        (f"PRIVATE={own}\\7fff", "", "vhost"),
        (f"PRIVATE={guid_text(b'F' * 16)}\\{number}", "", "far"),
        ("MULTICAST=234.1.1.1:8001", "", ""),
    ):
        found = queries.get_queue_path(world.machine.view, name)
        assert found == queries.QueuePath(0, path, machine), name
    illegal = queries.QueuePath(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME)
    for name in (f"PUBLIC={stranger}", f"PRIVATE={stranger}\\{number}", "nonsense"):
        assert queries.get_queue_path(world.machine.view, name) == illegal


# Outgoing queues and sequences -------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.5-14", "DM-3.1.1.3-03")
def test_a_send_to_elsewhere_makes_an_outgoing_queue(world: World) -> None:
    client = world.client()
    _, first = client.open(A, SEND)
    _, second = client.open(B, SEND)
    private = f"PRIVATE={guid_text(b'F' * 16)}\\0000000A"
    _, other = client.open(private, SEND)
    assert client.open(A, SEND)[1] == first
    records = [world.record(made) for made in (first, second, other)]
    assert [record.label for record in records] == [A, B, private]
    assert [record.pathname for record in records] == [A, B, private]
    # New: another queue manager's for the same name is another one, as is the one that comes after.
    elsewhere = World(msgspec.structs.replace(BIRTH, queue_manager=b"?" * 16))
    records.append(elsewhere.record(elsewhere.client().open(A, SEND)[1]))
    third_handle, third = client.open(C, SEND)
    records.append(world.record(third))
    world.one(commands.CloseQueue(client.request(), third_handle))
    assert world.one(commands.RemoveOutgoingQueue(third)).status == 0
    records.append(world.record(client.open(C, SEND)[1]))
    identifiers = {record.identifier for record in records}
    assert len(identifiers) == 6
    assert not identifiers & {bytes(16), OWN, b"?" * 16}
    # DestinationFormatName is what finds it; nothing is held, locked or under way.
    for queue_id, name in ((first, A), (second, B), (other, private)):
        assert queries.find_queue(world.machine.view, name).queue_id == queue_id
        found = queries.outgoing_queue(world.machine.view, queue_id)
        assert found is not None
        assert found.admin_state is OutgoingAdminState.NORMAL
        assert (found.eod_last_ack, found.eod_first_non_ack) == (None, None)
    assert [state.name for state in OutgoingQueueState] == [
        "INACTIVE",
        "LOCKED",
        "NEED_VALIDATION",
        "WAITING",
        "CONNECTED",
        "DISCONNECTING",
        "DISCONNECTED",
        "ON_HOLD",
    ]


@pytest.mark.spec("DM-3.1.1.2-15")
def test_which_queues_are_active(sender: Sender) -> None:
    orders = sender.create("orders")
    sender.send(1)

    def is_active(queue_id: int) -> bool:
        found = queries.queue_properties(sender.machine.view, queue_id)
        assert found is not None
        return found.is_active

    assert is_active(sender.queue_id), "a message awaits transfer"
    far, elsewhere = sender.c.open("DIRECT=OS:elsewhere\\q", SEND)
    assert is_active(elsewhere), "nothing awaits transfer, but it is open"
    sender.one(commands.CloseQueue(sender.c.request(), far))
    assert not is_active(elsewhere)
    assert not is_active(orders)
    sender.arrive(packet(1))
    assert not is_active(orders), "messages alone make no local queue active"
    handle, _ = sender.c.open("DIRECT=OS:vhost\\orders", PEEK)
    assert is_active(orders)
    sender.one(commands.CloseQueue(sender.c.request(), handle))
    assert not is_active(orders)
    sender.session_ack(*sender.keys())
    assert not is_active(sender.queue_id)


@pytest.mark.spec("DM-3.1.1.4-01")
def test_what_is_known_of_an_outgoing_sequence(sender: Sender) -> None:
    sender.send(3, **TRANSACTIONAL)
    places = [queries.SequencePlace(*row[1:]) for row in sender.assign()]
    sender.order_ack(places[0].sequence_identifier, 1)
    found = queries.outgoing_queue(sender.machine.view, sender.queue_id)
    assert found is not None
    assert (found.eod_last_ack, found.eod_first_non_ack) == (places[0], places[1])
    assert found.eod_last_non_ack == places[2]
    assert found.eod_next_seq == queries.SequencePlace(places[0].sequence_identifier, 4, 3)
    sender.order_ack(places[0].sequence_identifier, 2)
    found = queries.outgoing_queue(sender.machine.view, sender.queue_id)
    assert found is not None
    assert (found.eod_last_ack, found.eod_first_non_ack) == (places[1], places[2])
    assert found.eod_last_non_ack == places[2]


@pytest.mark.spec("DM-3.1.1.4-02")
def test_how_many_were_acknowledged_and_not_read(sender: Sender) -> None:
    sender.send(3, **TRANSACTIONAL, has_positive_journaling=True)
    keys = sender.keys()
    ordinals = [one.message_ordinal for one in sender.positions(sender.queue_id).values()]
    (first, *_) = sender.assign()

    def counts() -> tuple[int, int]:
        found = queries.outgoing_queue(sender.machine.view, sender.queue_id)
        assert found is not None
        return found.eod_no_ack_count, found.eod_no_read_count

    assert counts() == (3, 0)
    sender.session_ack(*keys)
    sender.order_ack(first[1], 2)
    assert counts() == (1, 2)
    received = array("Q", [MessageClass.ACK_RECEIVE])
    sender.one(commands.FinalAcked(array("Q", ordinals[:1]), received))
    assert counts() == (1, 1)


@pytest.mark.spec("DM-3.1.1.2-21", "DM-3.1.1.5-01", "DM-3.1.1.5-02")
def test_what_is_known_of_incoming_sequences(world: World) -> None:
    world.create("one", transactional=True)
    two = world.create("two", transactional=True)
    other = Facts(2, b"O" * 16, "10.9.9.9", ())
    world.arrive(packet(1, to="one", sequence=(SEQUENCE, 1, 0)))
    world.arrive(packet(2, to="two", sequence=(SEQUENCE, 1, 0)))
    raw = packet(3, to="two", sequence=(SEQUENCE, 1, 0), source_queue_manager=b"O" * 16)
    world.arrive(raw, facts=other)
    world.now_ms += 5_000
    for number in (1, 7):
        late = packet(4 + number, to="two", sequence=(SEQUENCE, number, number and number - 1))
        world.arrive(late)
    found = queries.list_incoming_sequences(world.machine.view).items
    assert found[0].last_access_ms == NOW_MS, "when it was accepted"
    assert [one.sender_identifier for one in found] == [PEER, PEER, b"O" * 16]
    assert [one.queue_id for one in found][1:] == [two, two]
    mine = found[1]
    assert (mine.sequence_identifier, mine.sequence_number) == (SEQUENCE, 1)
    assert (mine.reject_count, mine.last_access_ms) == (2, NOW_MS + 5_000)
    assert (
        mine.wire_name.decode("utf-16-le", "ignore")[-3:] == "two" or b"t\0w\0o" in mine.wire_name
    )
    world.now_ms += 1_000
    world.arrive(packet(20, to="two", sequence=(SEQUENCE, 2, 1)))
    after = queries.list_incoming_sequences(world.machine.view, after=mine.stream_id - 1).items[0]
    assert (after.sequence_number, after.reject_count) == (2, 0)
    assert after.last_access_ms == NOW_MS + 6_000, "accepted last"
    page = queries.list_incoming_sequences(world.machine.view, limit=2)
    assert page.next == mine.stream_id
    # Under another of its names the queue has another stream of the same sender.
    other_name = DirectQueueFormatName("OS:vhost.example\\two")
    assert world.arrive(packet(21, to=other_name, sequence=(SEQUENCE, 1, 0))) == [0]
    streams = queries.list_incoming_sequences(world.machine.view).items
    assert [one.sequence_number for one in streams if one.queue_id == two] == [2, 1, 1]
    assert len({(one.sender_identifier, one.wire_name) for one in streams[1:]}) == 3


# Who sends, and what an open permits -------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.12-41")
def test_kinds_of_senders(world: World) -> None:
    kinds = {kind.name: kind.value for kind in SenderIdentifierType}
    assert kinds == {"NONE": 0, "SID": 1, "QUEUE_MANAGER_IDENTIFIER": 2}
    assert Message().sender_identifier_type == SenderIdentifierType.SID
    # What the edge finds of each kind: test_examiner.
    alice = sid_from_text("S-1-5-21-1-2-3-1001")
    for name, sid in (("everybody", EVERYONE), ("anonymous", ANONYMOUS), ("alice", alice)):
        entry = Ace(ACE_ALLOWED, 0, 0x4, sid)
        world.create(name, security=write_descriptor(SecurityDescriptor(dacl=Acl((entry,)))))
    denied = MessageClass.NACK_ACCESS_DENIED
    for number, (sids, expected) in enumerate(
        (
            ((), [0, 0, denied]),
            ((alice,), [0, denied, 0]),
            ((EVERYONE,), [0, denied, denied]),  # a queue manager
        )
    ):
        packets = [
            packet(10 * number + k, to=name)
            for k, name in enumerate(("everybody", "anonymous", "alice"), start=1)
        ]
        assert world.arrive(*packets, facts=Facts(number + 1, PEER, "", sids)) == expected


def test_what_each_access_may_receive(sender: Sender) -> None:
    """Peeks are answered from the state by who holds the handle; apply judges what removes."""
    orders = sender.create("orders")
    sender.arrive(*(packet(number) for number in range(1, 4)))
    sender.send(1)
    client, local = sender.c, "DIRECT=OS:vhost\\orders"
    away = sender.record(sender.queue_id).pathname
    denied = ErrorCode.MQ_ERROR_ACCESS_DENIED
    for access, name, status in (
        (RECEIVE, local, 0),
        (PEEK, local, denied),
        (MOVE, local, denied),
        (SEND, local, denied),
        (PEEK_ADMIN, away, denied),
        (RECEIVE_ADMIN, away, 0),
    ):
        opened = client.open(name, access)
        outcome = client.receive_outcome(opened)
        assert outcome.status == status, access
        client.number += 1
        sender.one(commands.CloseQueue(client.request(), opened[0]))
    for access in (PEEK_ADMIN, RECEIVE_ADMIN):
        opening = commands.OpenQueue(client.request(), local, access, 0, ())
        assert sender.one(opening).status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert len(sender.positions(orders)) == 2
    assert not sender.positions(sender.queue_id)


def test_hardened_security_is_off_until_it_is_set_and_then_nothing_leaves(sender: Sender) -> None:
    found = queries.queue_manager(sender.machine.view)
    assert found is not None
    assert not found.attributes.hardened_security
    sender.send(1)
    assert set_manager(sender, hardened_security=True) == 0
    sender.machine.forget()
    again = queries.queue_manager(sender.machine.view)
    assert again is not None
    assert again.attributes.hardened_security
    locked = queries.outgoing_queue(sender.machine.view, sender.queue_id)
    assert locked is not None
    assert locked.admin_state.name == "LOCKED"
    assert sender.keys(), "what was to be sent waits"
