"""Birth, queues, attributes, opens: who may, what is refused, what is remembered."""

from typing import Any

import pytest

from qm.model import queries
from qm.model.machine import Machine, UnknownVersion
from qm.model.state.addressing import NOTIFICATION_QUEUE_NUMBER, ORDER_QUEUE_NUMBER
from qm.model.state.ledger import META_CHAIN
from qm.model.state.tables import MemoryState, Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    QueueAccessType,
    QueueKind,
    QueuePrivacyLevel,
    QueueScope,
    QueueShareMode,
    QueueType,
)
from qm.model.values.limits import (
    APPLY_VERSION,
    VERSION_OF_OPEN_STATUS,
    VERSION_OF_QUEUE_RIGHTS,
)
from qm.model.values.rows import CHAIN_ROW
from qm.names.format_name import PrivateName, format_name_text
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_AUDIT,
    Ace,
    Acl,
    SecurityDescriptor,
    write_descriptor,
)
from qm.security.sid import EVERYONE, sid_from_text
from qm.wire.codes import ErrorCode
from tests.unit.model.world import NOW_S, OWN, ClientInWorld, World, packet, request

ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
ORDERS = "DIRECT=OS:vhost\\orders"
SEND, RECEIVE = QueueAccessType.SEND_ACCESS, QueueAccessType.RECEIVE_ACCESS
PEEK, MOVE = QueueAccessType.PEEK_ACCESS, QueueAccessType.MOVE_ACCESS
NONE, DENY = QueueShareMode.DENY_NONE, QueueShareMode.DENY_RECEIVE


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def creating(path: str, number: int = 1, **attributes: object) -> commands.CreateQueue:
    return commands.CreateQueue(
        request(),
        number.to_bytes(16, "big"),
        number.to_bytes(16, "little"),
        path,
        {name: encode_attribute(value) for name, value in attributes.items()},
        b"",
        (),
    )


def allowing(mask: int, sid: bytes = ALICE) -> bytes:
    return write_descriptor(SecurityDescriptor(dacl=Acl((Ace(ACE_ALLOWED, 0, mask, sid),))))


# The queue manager -------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.3-16", "DM-3.1.3-17", "DM-3.1.1.1-22", "DM-3.1.1.2-18")
def test_birth_makes_the_system_queues_once(world: World) -> None:
    kinds = {
        which: world.record(world.manager_queue(which)).kind
        for which in (
            "system_journal_queue",
            "system_deadletter_queue",
            "system_transactional_deadletter_queue",
            "order_queue",
            "notification_queue",
        )
    }
    assert list(kinds.values()) == [
        QueueKind.SYSTEM_JOURNAL,
        QueueKind.DEADLETTER,
        QueueKind.TRANSACTIONAL_DEADLETTER,
        QueueKind.ORDER,
        QueueKind.NOTIFICATION,
    ]
    again = commands.Provision(b"x" * 16, "other", "", (), bytes(16), 9, b"", b"")
    assert world.one(again).status == ErrorCode.MQ_ERROR_MACHINE_EXISTS
    manager = world.machine.manager
    assert manager is not None
    assert manager.identifier == OWN
    client = world.client()
    for name in (
        "DIRECT=OS:vhost\\private$\\order_queue$",
        "DIRECT=OS:vhost\\private$\\notify_queue$",
        format_name_text(PrivateName(OWN, ORDER_QUEUE_NUMBER)),
        format_name_text(PrivateName(OWN, NOTIFICATION_QUEUE_NUMBER)),
    ):
        for access in (RECEIVE, SEND, PEEK, MOVE):
            opening = commands.OpenQueue(client.request(), name, access, NONE, ())
            assert world.one(opening).status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        refused = (
            ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND,
            ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        )
        # Nor is anything sent to them.
        assert client.send(name).status in refused
    for which in ("order_queue", "notification_queue"):
        assert world.positions(world.manager_queue(which)) == {}
        assert queries.queue_uses(world.machine.view, world.manager_queue(which), ()) == ()
    for which in kinds:
        assert world.record(world.manager_queue(which)).queue_type is QueueType.SYSTEM
    published = world.machine.directory.query(DirectoryObjectType.QUEUE, [])
    assert published.next() == (DirectoryOperationResult.END_OF_DATA, None)


@pytest.mark.spec("DM-3.1.1.1-05", "DM-3.1.1.1-06", "DM-3.1.1.1-07", "DM-3.1.1.1-27")
def test_defaults_of_the_queue_manager(world: World) -> None:
    manager = world.machine.manager
    assert manager is not None
    assert manager.queue_manager_quota == 0x0010_0000
    assert manager.journal_quota == 0xFFFF_FFFF
    assert not manager.foreign_system
    assert not manager.remote_access_server
    assert manager.initialization_retry_timer_duration == 120
    assert manager.clustered
    assert (manager.create_time, manager.modify_time) == (NOW_S, NOW_S)
    for duration_s in (120, 60):
        changes = {"initialization_retry_timer_duration": encode_attribute(duration_s)}
        assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
        world.machine = Machine(world.state)
        again = world.machine.manager
        assert again is not None
        assert again.initialization_retry_timer_duration == duration_s


@pytest.mark.parametrize(
    "command",
    [
        commands.Provision(b"short", "host", "", (), bytes(16), 1, b"", b""),
        commands.Provision(OWN, "", "", (), bytes(16), 1, b"", b""),
        commands.Provision(OWN, "host", "", ("bad name",), bytes(16), 1, b"", b""),
    ],
)
def test_an_impossible_birth(command: commands.Provision) -> None:
    world = World()
    world.state = MemoryState()
    world.machine = Machine(world.state)
    assert world.one(command).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert world.machine.manager is None
    assert world.one(creating(".\\q")).status == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


def test_setting_the_queue_manager(world: World) -> None:
    def change(
        if_version: int | None = None, sids: tuple[bytes, ...] = (), **values: object
    ) -> int:
        changes = {name: encode_attribute(value) for name, value in values.items()}
        command = commands.SetQueueManager(request(), changes, sids, if_version)
        return world.one(command).status

    world.create("orders")
    assert world.arrive(packet(1)) == [0]
    assert change(aliases=("virtual", "10.0.0.9")) == 0
    client = world.client()
    assert client.open("DIRECT=TCP:10.0.0.9\\orders", PEEK)
    assert change(if_version=1, hardened_security=True) == ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT
    assert change(if_version=2, hardened_security=True) == 0
    assert change(aliases=("not a name",)) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert change(no_such_thing=1) == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    assert change(journal_quota="text") == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VT
    assert change(journal_quota=1 << 32) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert change(security=allowing(0x10)) == 0
    assert change(journal_quota=1) == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert change(journal_quota=1, sids=(ALICE,)) == 0


def test_versions_rise_and_an_unknown_one_stops_the_node(world: World) -> None:
    invalid = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert world.one(commands.RaiseApplyVersion(APPLY_VERSION)).status == 0
    assert world.one(commands.RaiseApplyVersion(APPLY_VERSION + 1)).status == invalid
    assert world.one(commands.RaiseApplyVersion(0)).status == invalid
    rows = list(world.state.rows())
    newer = commands.Stamp(world.now_ms, "n", APPLY_VERSION + 1)
    with pytest.raises(UnknownVersion):
        world.machine.apply(commands.CommandBatch(99, newer, (creating(".\\q"),)))
    assert list(world.state.rows()) == rows


# Queues ------------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.3-05")
def test_a_new_queue_is_empty_and_belongs_to_this_queue_manager(world: World) -> None:
    """A public queue's FullPath and DirectoryPath come from the directory (DM-3.1.7.1.3-10)."""
    queue_id = world.create("private$\\inbox")
    record = world.record(queue_id)
    found = queries.queue_properties(world.machine.view, queue_id)
    assert found is not None
    assert not found.is_active
    assert (record.create_time, record.modify_time) == (NOW_S, NOW_S)
    assert (record.full_path, record.directory_path) == ("", "")
    assert record.scope is QueueScope.ENTERPRISE
    assert record.pathname.startswith("vhost\\"), "the host is its QueueManager"
    assert (world.stats(queue_id).total_bytes, world.positions(queue_id)) == (0, {})
    assert queries.list_opens(world.machine.view).items == []
    assert queries.list_incoming_sequences(world.machine.view).items == []
    subqueues = queries.list_queues(world.machine.view, kinds=[QueueKind.SUBQUEUE])
    assert subqueues.items == []


@pytest.mark.spec(
    "DM-3.1.7.1.33-01", "DM-3.1.7.1.3-03", "DM-3.1.7.1.3-06", "DM-3.1.7.1.3-07", "DM-3.1.1.2-04"
)
def test_defaults_of_a_queue(world: World) -> None:
    """Security has its default where callers are known: tests/unit/api/test_control.py."""
    record = world.record(world.create("orders"))
    assert (record.label, record.type, record.multicast_address) == ("", bytes(16), "")
    assert (record.quota, record.journal_quota, record.base_priority) == (
        0xFFFF_FFFF,
        0xFFFF_FFFF,
        0,
    )
    assert (record.journaling, record.authentication, record.transactional) == (False,) * 3
    assert record.privacy_level is QueuePrivacyLevel.OPTIONAL
    assert record.scope is QueueScope.ENTERPRISE
    assert record.queue_type is QueueType.PUBLIC
    assert record.pathname == "vhost\\orders"
    assert record.qualified_pathname == "vhost.example\\orders"
    assert (record.create_time, record.modify_time) == (NOW_S, NOW_S)
    assert world.stats(record.queue_id).total_bytes == 0
    journal = world.record(record.journal_queue)
    assert (journal.kind, journal.parent_queue) == (QueueKind.JOURNAL, record.queue_id)
    assert journal.queue_type is QueueType.SYSTEM
    assert journal.pathname == "vhost\\orders;JOURNAL"
    assert journal.qualified_pathname == "vhost.example\\orders;JOURNAL"
    private = world.record(world.create("private$\\inbox"))
    assert private.queue_type is QueueType.PRIVATE
    assert private.pathname == "vhost\\private$\\inbox"
    assert private.qualified_pathname == "vhost.example\\private$\\inbox"
    dead_letters = world.record(world.manager_queue("system_deadletter_queue"))
    assert dead_letters.queue_type is QueueType.SYSTEM
    _, subqueue = world.client().open(ORDERS + ";later", MOVE)
    later = world.record(subqueue)
    assert later.journal_queue == 0
    assert later.pathname == "vhost\\orders;later"
    assert later.qualified_pathname == "vhost.example\\orders;later"


@pytest.mark.spec("DM-3.1.7.1.3-04", "DM-3.1.7.1.3-13")
def test_attributes_given_at_creation(world: World) -> None:
    given: dict[str, Any] = {
        "label": "a label",
        "type": b"T" * 16,
        "journaling": True,
        "quota": 5,
        "journal_quota": 6,
        "authentication": True,
        "privacy_level": 2,
        "transactional": True,
        "multicast_address": "234.1.1.1:8001",
        "base_priority": -7,
        "security": allowing(0x3F),
    }
    outcome = world.one(creating(".\\orders", **given))
    assert outcome.status == 0
    assert isinstance(outcome.value, int)
    record = world.record(outcome.value)
    assert {name: getattr(record, name) for name in given} == given
    assert record.pathname == "vhost\\orders"
    assert world.record(record.journal_queue).quota == 6
    assert queries.find_by_path(world.machine.view, "vhost\\orders").queue_id == outcome.value
    assert outcome.value in [one.queue_id for one in queries.list_queues(world.machine.view).items]


@pytest.mark.spec("DM-3.1.1.2-11", "MQ-2.3.1.23-01")
@pytest.mark.parametrize(
    ("address", "is_multicast"),
    [
        ("", True),  # NULL
        ("224.0.0.0:1", True),
        ("239.255.255.255:65535", True),
        ("223.255.255.255:8001", False),
        ("240.0.0.0:8001", False),
        ("10.0.0.1:8001", False),
        ("234.1.1.1", False),
        ("234.1.1.1:8001,DIRECT=OS:vhost\\orders", False),
        ("a.group:8001", False),
    ],
)
def test_a_queue_listens_to_multicast_addresses_alone(
    world: World, address: str, is_multicast: bool
) -> None:
    expected = 0 if is_multicast else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert world.one(creating(".\\orders", multicast_address=address)).status == expected
    plain = world.create("plain")
    change = {"multicast_address": encode_attribute(address)}
    assert world.one(commands.SetQueue(request(), plain, change, ())).status == expected
    assert world.record(plain).multicast_address == (address if is_multicast else "")


@pytest.mark.spec("DM-3.1.7.1.3-08", "DM-3.1.1.2-05", "MQ-2.2.18.1.5.1-01")
def test_private_queue_numbers_are_never_used_twice(world: World) -> None:
    numbers = []
    for name in ("a", "b", "a"):
        queue_id = world.create(f"private$\\{name}")
        numbers.append(world.record(queue_id).private_queue_number)
        world.one(commands.DeleteQueue(request(), queue_id, ()))
    assert len(set(numbers)) == 3
    assert min(numbers) >= 16
    together = [world.record(world.create(f"private$\\{name}")) for name in ("c", "d", "e")]
    assert len({*numbers, *(one.private_queue_number for one in together)}) == 6
    for one in together:
        name = format_name_text(PrivateName(OWN, one.private_queue_number))
        assert queries.find_queue(world.machine.view, name).queue_id == one.queue_id
    # It says nothing of queues of other types.
    assert world.record(world.create("public")).private_queue_number == 0


@pytest.mark.spec("DM-3.1.7.1.3-02", "MQ-2.3.1.3-01")
@pytest.mark.parametrize(
    "path",
    [
        *("orders", ".\\", ".\\a b", "elsewhere\\q", ".\\q;sub", ".\\q;JOURNAL"),
        *(".\\system$;JOURNAL", ".\\private$\\", ".\\private$\\q;sub", ".\\private$\\a b"),
        *(f".\\{'q' * 125}", f".\\private$\\{'q' * 125}", ".\\a\\b", ".\\a+b", ".\\a,b", '.\\a"b'),
    ],
)
def test_paths_that_name_no_queue_of_ours(world: World, path: str) -> None:
    before = queries.list_queues(world.machine.view).items
    assert world.one(creating(path)).status == ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert queries.list_queues(world.machine.view).items == before


def test_what_cannot_be_created(world: World) -> None:
    def status(path: str = ".\\q", number: int = 1, **attributes: object) -> int:
        return world.one(creating(path, number, **attributes)).status

    assert status() == 0
    assert status(number=2) == ErrorCode.MQ_ERROR_QUEUE_EXISTS
    assert status("VHOST\\Q", 2) == ErrorCode.MQ_ERROR_QUEUE_EXISTS
    assert status(".\\other") == ErrorCode.MQ_ERROR_QUEUE_EXISTS  # the identifier
    assert status(".\\private$\\q", 2) == 0
    assert status(".\\r", 3, label="x" * 124) == 0
    assert status(".\\s", 4, label="x" * 125) == ErrorCode.MQ_ERROR_LABEL_TOO_LONG
    assert status(".\\s", 4, type=b"") == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE
    assert status(".\\s", 4, privacy_level=9) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert status(".\\s", 4, base_priority=40000) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert status(".\\s", 4, multicast_address="1.2.3.4") == (
        ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    )
    assert status(".\\s", 4, security=b"junk") == ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    many = {f"p{n}": 1 for n in range(129)}
    assert status(".\\s", 4, **many) == ErrorCode.MQ_ERROR_TOO_MANY_PROPERTIES
    closed = {"security": encode_attribute(allowing(0x20))}
    world.one(commands.SetQueueManager(request(), closed, ()))
    assert status(".\\t", 5) == ErrorCode.MQ_ERROR_ACCESS_DENIED


def test_setting_a_queue(world: World) -> None:
    orders = world.create("orders", quota=100)

    def change(
        sids: tuple[bytes, ...] = (), if_version: int | None = None, **values: object
    ) -> int:
        changes = {name: encode_attribute(value) for name, value in values.items()}
        return world.one(commands.SetQueue(request(), orders, changes, sids, if_version)).status

    world.now_ms += 5_000
    assert change(label="new", journal_quota=9) == 0
    record = world.record(orders)
    assert (record.label, record.quota, record.version) == ("new", 100, 2)
    assert record.modify_time == NOW_S + 5
    assert world.record(record.journal_queue).quota == 9
    assert change(transactional=True) == ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED
    assert change(if_version=1, label="x") == ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT
    assert change(label="y", quota=-1) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert world.record(orders).label == "new"
    assert change(security=allowing(0x10)) == 0
    assert change(label="z") == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert change((ALICE,), label="z") == 0
    assert change((ALICE,), security=allowing(0)) == ErrorCode.MQ_ERROR_ACCESS_DENIED
    journal = world.record(orders).journal_queue
    command = commands.SetQueue(request(), journal, {}, ())
    assert world.one(command).status == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION


# Opens -------------------------------------------------------------------------------------


def status_of(client: ClientInWorld, name: str, access: int, share: int = NONE) -> int:
    command = commands.OpenQueue(client.request(), name, access, share, ())
    return client.world.one(command).status


@pytest.mark.spec(
    "DM-3.1.7.1.5-18", "DM-3.1.7.1.5-19", "DM-3.1.7.1.5-20", "DM-3.1.7.1.5-21", "DM-3.1.1.17-04"
)
@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        ((RECEIVE, DENY), (RECEIVE, DENY), False),
        ((RECEIVE, DENY), (PEEK, DENY), False),
        ((RECEIVE, DENY), (RECEIVE, NONE), False),
        ((RECEIVE, DENY), (MOVE, NONE), False),
        ((RECEIVE, DENY), (PEEK, NONE), True),
        ((RECEIVE, DENY), (SEND, NONE), True),
        ((PEEK, DENY), (RECEIVE, NONE), False),
        ((PEEK, DENY), (PEEK, NONE), True),
        ((RECEIVE, NONE), (RECEIVE, DENY), False),
        ((RECEIVE, NONE), (RECEIVE, NONE), True),
        ((SEND, NONE), (RECEIVE, DENY), True),
        ((RECEIVE, NONE), (PEEK, DENY), False),
        ((RECEIVE, NONE), (PEEK, NONE), True),
        ((PEEK, DENY), (RECEIVE, DENY), False),
        ((PEEK, DENY), (PEEK, DENY), True),
        ((PEEK, NONE), (RECEIVE, DENY), True),
        ((PEEK, DENY), (SEND, NONE), True),
        ((MOVE, DENY), (RECEIVE, NONE), False),
        ((MOVE, NONE), (RECEIVE, DENY), False),
    ],
)
def test_sharing(
    world: World, first: tuple[int, int], second: tuple[int, int], is_shared: bool
) -> None:
    world.create("orders")
    one, two = world.client("one"), world.client("two")
    handle, _ = one.open(ORDERS, *first)
    expected = 0 if is_shared else ErrorCode.MQ_ERROR_SHARING_VIOLATION
    assert status_of(two, ORDERS, *second) == expected
    world.one(commands.CloseQueue(one.request(), handle))
    if not is_shared:
        assert status_of(two, ORDERS, *second) == 0


def test_sharing_survives_a_new_leader_and_ends_with_the_client(world: World) -> None:
    world.create("orders")
    one, two = world.client("one"), world.client("two")
    one.open(ORDERS, RECEIVE, DENY)
    world.one(commands.LeaderActivated(2, "n2.1"))
    assert status_of(two, ORDERS, RECEIVE) == ErrorCode.MQ_ERROR_SHARING_VIOLATION
    world.one(commands.CloseClient("one"))
    assert status_of(two, ORDERS, RECEIVE) == 0


@pytest.mark.spec("DM-3.1.7.1.5-20")
def test_a_peek_with_admin_access_denies_receives_too(world: World) -> None:
    """Receives from an outgoing queue: ReceiveAdminAccess counts as ReceiveAccess (DM-A21)."""
    one, two = world.client("one"), world.client("two")
    elsewhere = "DIRECT=TCP:10.0.0.1\\q"
    two.open(elsewhere, SEND)
    peek, receive = QueueAccessType.PEEK_ADMIN_ACCESS, QueueAccessType.RECEIVE_ADMIN_ACCESS
    handle, _ = one.open(elsewhere, peek, DENY)
    assert status_of(two, elsewhere, receive, NONE) == ErrorCode.MQ_ERROR_SHARING_VIOLATION
    assert status_of(two, elsewhere, peek, NONE) == 0
    world.one(commands.CloseQueue(one.request(), handle))
    assert status_of(two, elsewhere, receive, NONE) == 0


@pytest.mark.spec("DM-3.1.7.1.5-09", "DM-3.1.7.1.5-10", "DM-3.1.7.1.5-13")
def test_queues_that_are_not_here(world: World) -> None:
    client = world.client()
    absent = ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    manager = world.machine.manager
    assert manager is not None
    private = format_name_text(PrivateName(manager.identifier, 99))
    assert status_of(client, "DIRECT=OS:vhost\\absent", RECEIVE) == absent
    assert status_of(client, "DIRECT=OS:vhost\\absent", SEND) == absent
    assert status_of(client, private, SEND) == absent
    assert status_of(client, "DIRECT=OS:vhost\\absent;sub", MOVE) == absent
    elsewhere = "DIRECT=TCP:10.0.0.1\\q"
    for access in (RECEIVE, PEEK, MOVE):
        assert status_of(client, elsewhere, access) == absent
    assert status_of(client, elsewhere, SEND) == 0
    world.version = VERSION_OF_OPEN_STATUS - 1
    unsupported = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert status_of(client, "DIRECT=TCP:10.0.0.2\\q", RECEIVE) == unsupported


@pytest.mark.spec(
    "DM-3.1.7.1.5-02", "DM-3.1.7.1.5-03", "DM-3.1.7.1.5-06", "DM-3.1.7.1.5-07", "DM-3.1.7.1.5-08"
)
def test_names_and_modes_that_do_not_go_together(world: World) -> None:
    client = world.client()
    unsupported = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    machine = "MACHINE=00000000-0000-0000-0000-000000000001;JOURNAL"
    several = ORDERS + ",DIRECT=OS:vhost\\other"
    others = [access for access in QueueAccessType if access is not SEND]
    assert len(others) == 5
    for access in others:
        assert status_of(client, several, access) == unsupported
        assert status_of(client, "DIRECT=HTTP://web/MSMQ\\q", access) == unsupported
        assert status_of(client, "DIRECT=HTTPS://web/MSMQ\\q", access) == unsupported
        assert status_of(client, "MULTICAST=234.1.1.1:8001", access) == unsupported
    assert status_of(client, several, SEND, DENY) == ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    assert status_of(client, machine, SEND) == unsupported
    assert status_of(client, "nonsense", SEND) == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME
    assert status_of(client, ORDERS, 9) == ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE


@pytest.mark.spec("DM-3.1.1.2-12")
@pytest.mark.parametrize(
    ("mask", "is_known"),
    [
        (0x0000_003F, True),
        (0x000F_0000, True),
        *((1 << bit, False) for bit in (*range(6, 16), *range(20, 32))),
    ],
)
def test_a_queue_grants_rights_to_queues_alone(world: World, mask: int, is_known: bool) -> None:
    illegal = ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    expected = 0 if is_known else illegal
    audited = write_descriptor(SecurityDescriptor(sacl=Acl((Ace(ACE_AUDIT, 0, mask, ALICE),))))
    for number, security in enumerate((allowing(mask), audited), start=1):
        made = world.one(creating(f".\\q{number}", number, security=security))
        assert made.status == expected
        plain = world.create(f"plain{number}")
        change = {"security": encode_attribute(security)}
        assert world.one(commands.SetQueue(request(), plain, change, ())).status == expected
        assert world.record(plain).security == (security if is_known else b"")
    world.version = VERSION_OF_QUEUE_RIGHTS - 1
    assert world.one(creating(".\\older", 3, security=allowing(mask))).status == 0


def test_access_is_checked_when_a_queue_is_opened(world: World) -> None:
    world.create("orders", security=allowing(0x2, EVERYONE))
    client = world.client()
    denied = ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert status_of(client, ORDERS, PEEK) == 0
    for access in (SEND, RECEIVE, MOVE):
        assert status_of(client, ORDERS, access) == denied
    assert status_of(client, ORDERS + ";JOURNAL", PEEK) == 0
    assert status_of(client, ORDERS + ";JOURNAL", RECEIVE) == denied
    assert status_of(client, ORDERS + ";later", MOVE) == denied
    closed = {"security": encode_attribute(allowing(0x2, EVERYONE))}
    world.one(commands.SetQueueManager(request(), closed, ()))
    dead = "DIRECT=OS:vhost\\SYSTEM$;DEADLETTER"
    assert status_of(client, dead, PEEK) == 0
    assert status_of(client, dead, RECEIVE) == denied
    assert status_of(client, "DIRECT=OS:vhost\\SYSTEM$;JOURNAL", PEEK) == denied


def test_outgoing_queues_are_opened_by_administrators(world: World) -> None:
    client = world.client()
    elsewhere = "DIRECT=TCP:10.0.0.1\\far"
    admin = QueueAccessType.RECEIVE_ADMIN_ACCESS
    assert status_of(client, elsewhere, admin) == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    client.send(elsewhere)
    opened = client.open(elsewhere, admin)
    (result,) = client.receive(opened)
    assert result.status == 0
    assert world.stats(opened[1]).count() == 0


def test_a_purge_of_an_empty_queue_leaves_nothing_to_do(world: World) -> None:
    queue = world.create("orders")
    assert world.one(commands.PurgeQueue(request(), queue, ())).value == 0
    assert world.state.scan(Table.PURGE, b"", b"\xff" * 8, 10) == []


@pytest.mark.parametrize("entries", [0, 3])
def test_a_chain_begins_with_the_entry_that_asks_for_it(world: World, entries: int) -> None:
    """Its first link says what it follows, so that an archive is known to be incomplete."""
    if entries:
        world.one(commands.LeaderActivated(1, "n1.1"))
        for _ in range(entries):
            world.tick()
    world.one(commands.LeaderActivated(2, "n1.1", is_archived=True))
    row = world.state.get(Table.META, META_CHAIN)
    assert row is not None
    assert CHAIN_ROW.unpack(row)[0] == (world.index - 1 if entries else 0)
