"""The embedded directory: writes, reads, filters, order."""

import pytest

from qm.model import queries
from qm.model.machine import Machine
from qm.model.management.directory import Filter, Operator, SortKey
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import DirectoryObjectType, DirectoryOperationResult, QueueType
from qm.names.format_name import PublicName, format_name_text
from qm.security.sid import EVERYONE
from qm.wire.codes import ErrorCode
from tests.unit.model.world import OWN, World, request

SITE, USER = DirectoryObjectType.SITE, DirectoryObjectType.USER
SUCCESS = DirectoryOperationResult.SUCCESS
EXISTS = DirectoryOperationResult.OBJECT_ALREADY_EXISTS
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def write(world: World, number: int, object_type: int, **attributes: object) -> object:
    outcome = world.one(
        commands.DirectoryWrite(
            request(),
            bytes([number]) * 16,
            object_type,
            {name: encode_attribute(value) for name, value in attributes.items()},
            (),
        )
    )
    return outcome.value if outcome.status == 0 else outcome.status


def delete(world: World, number: int) -> object:
    command = commands.DirectoryWrite(request(), bytes([number]) * 16, SITE, None, ())
    return world.one(command).value


@pytest.mark.spec("DM-3.1.1.7-01", "DM-3.1.7.1.24-01", "DM-3.1.1.17-01")
def test_objects_are_created_changed_and_deleted(world: World) -> None:
    assert write(world, 1, SITE, name="North", foreign_site=False) is SUCCESS
    assert write(world, 2, SITE, name="NORTH") is EXISTS
    assert write(world, 1, USER, security_identifier=EVERYONE) is EXISTS
    assert write(world, 1, SITE, foreign_site=True) is SUCCESS
    _, found = world.machine.directory.read(SITE, [])
    assert found is not None
    assert found.attributes == {"name": "North", "foreign_site": True, "identifier": b"\1" * 16}
    assert write(world, 1, SITE, name="South") is SUCCESS
    assert write(world, 2, SITE, name="north") is SUCCESS
    assert write(world, 2, SITE, name="SOUTH") is EXISTS
    assert delete(world, 1) is SUCCESS
    assert delete(world, 1) is NOT_FOUND
    assert write(world, 3, SITE, name="South") is SUCCESS
    query = world.machine.directory.query(SITE, [])
    ends = [query.next()[0] for _ in range(4)]
    assert ends == [SUCCESS, SUCCESS, *2 * [DirectoryOperationResult.END_OF_DATA]]
    assert world.machine.directory.read(USER, [])[0] is NOT_FOUND
    assert [result.name for result in DirectoryOperationResult] == [
        "SUCCESS",
        "GENERIC_ERROR",
        "DIRECTORY_NOT_CONNECTED",
        "OBJECT_NOT_FOUND",
        "ATTRIBUTE_NOT_FOUND",
        "END_OF_DATA",
        "OBJECT_ALREADY_EXISTS",
    ]


def test_only_objects_that_are_there_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qm.model.management.directory.OBJECTS_MAX", 2)
    for number in (1, 2, 1):
        assert write(world, number, SITE, name=f"{number}") is SUCCESS
    assert write(world, 3, SITE, name="3") == ErrorCode.MQ_ERROR_DS_IS_FULL
    assert delete(world, 1) is SUCCESS
    assert write(world, 3, SITE, name="3") is SUCCESS


def test_what_cannot_be_written(world: World) -> None:
    link = DirectoryObjectType.ROUTING_LINK
    assert write(world, 1, SITE, colour="red") == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    assert write(world, 1, SITE, name=7) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VT
    assert write(world, 1, link, actual_cost=0) == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert write(world, 1, link, actual_cost=999_999) is SUCCESS
    assert write(world, 1, 99, name="x") == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    queue = DirectoryObjectType.QUEUE
    assert write(world, 1, queue, label="x") == ErrorCode.MQ_ERROR_INVALID_PARAMETER


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        (Operator.EQUALS, "b", [2]),
        (Operator.EQUALS, "", []),
        (Operator.NOT_EQUALS, "b", [1, 3]),
        (Operator.GREATER_THAN, "a", [2, 3]),
        (Operator.LESS_THAN_OR_EQUAL, "b", [1, 2]),
    ],
)
def test_a_page_has_what_satisfies_the_filter_by_index_or_without(
    world: World, operator: Operator, value: str, expected: list[int]
) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        write(world, number, SITE, name=name)
    found, after = world.machine.directory.page(
        SITE, [Filter("name", operator, value)], None, b"", 10
    )
    assert [one.identifier[0] for one in found] == expected
    assert after is None


@pytest.mark.spec("DM-3.1.7.1.20-01", "DM-3.1.7.1.20-03")
def test_a_read_returns_the_first_that_satisfies_every_filter(world: World) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        write(world, number, SITE, name=name, inter_site_replication_interval=number * 10)
    directory = world.machine.directory
    status, found = directory.read(
        SITE,
        [
            Filter("inter_site_replication_interval", Operator.GREATER_THAN, 10),
            Filter("name", Operator.NOT_EQUALS, "c"),
        ],
        ["name"],
    )
    assert status is SUCCESS
    assert found is not None
    assert (found.identifier, found.attributes) == (b"\2" * 16, {"name": "b"})
    for filters, first in (
        ([], 1),
        ([Filter("inter_site_replication_interval", Operator.GREATER_THAN, 10)], 2),
        ([Filter("name", Operator.EQUALS, "c")], 3),
    ):
        _, one = directory.read(SITE, filters)
        assert one is not None
        assert (one.identifier, one.object_type) == (bytes([first]) * 16, SITE)
    assert directory.read(DirectoryObjectType.USER, []) == (NOT_FOUND, None)
    assert directory.read(SITE, [Filter("name", Operator.EQUALS, "z")]) == (NOT_FOUND, None)
    assert directory.read(SITE, [Filter("absent", Operator.EQUALS, 1)]) == (NOT_FOUND, None)


@pytest.mark.spec("DM-3.1.7.1.20-03")
def test_a_page_holds_the_wanted_attributes_alone(world: World) -> None:
    for number, name in enumerate(("a", "b"), start=1):
        write(world, number, SITE, name=name, inter_site_replication_interval=number * 10)
    world.create("orders", label="l")
    by_name = [Filter("name", Operator.EQUALS, "b")]
    by_value = [Filter("inter_site_replication_interval", Operator.GREATER_THAN, 10)]
    queue, manager = DirectoryObjectType.QUEUE, DirectoryObjectType.QUEUE_MANAGER
    for object_type, filters, wanted, found in (
        (SITE, [], ["name"], [{"name": "a"}, {"name": "b"}]),
        (SITE, by_name, ["inter_site_replication_interval"],
         [{"inter_site_replication_interval": 20}]),
        (SITE, by_value, ["name"], [{"name": "b"}]),
        (queue, [], ["label", "quota"], [{"label": "l", "quota": 0xFFFF_FFFF}]),
        (manager, [], ["computer_name"], [{"computer_name": "vhost"}]),
    ):  # fmt: skip
        view = world.machine.view
        page = queries.read_directory(view, object_type, filters, attributes=wanted)
        assert [one.attributes for one in page.items] == found


@pytest.mark.spec("DM-3.1.7.1.20-02")
@pytest.mark.parametrize(
    ("operator", "found"),
    [
        (Operator.EQUALS, [2]),
        (Operator.NOT_EQUALS, [1, 3]),
        (Operator.LESS_THAN, [1]),
        (Operator.GREATER_THAN, [3]),
        (Operator.LESS_THAN_OR_EQUAL, [1, 2]),
        (Operator.GREATER_THAN_OR_EQUAL, [2, 3]),
    ],
)
def test_operators(world: World, operator: Operator, found: list[int]) -> None:
    for number in (1, 2, 3):
        write(world, number, SITE, intra_site_replication_interval=number)
    query = world.machine.directory.query(
        SITE, [Filter("intra_site_replication_interval", operator, 2)]
    )
    results = []
    while (item := query.next()[1]) is not None:
        results.append(item.identifier[0])
    assert results == found
    # An attribute that an index leads to is no exception, nor are pages.
    for number in (1, 2, 3):
        write(world, number, SITE, name=f"site {number}", foreign_site=number == 2)
    for attribute, wanted in (("name", "site 2"), ("intra_site_replication_interval", 2)):
        filters = [Filter(attribute, operator, wanted)]
        page = queries.read_directory(world.machine.view, SITE, filters, limit=9)
        assert [one.identifier[0] for one in page.items] == found
        first = found[0]
        _, one = world.machine.directory.read(SITE, filters)
        assert one is not None
        assert one.identifier[0] == first
        both = [*filters, Filter("foreign_site", Operator.EQUALS, True)]
        page = queries.read_directory(world.machine.view, SITE, both, limit=9)
        assert [each.identifier[0] for each in page.items] == [n for n in found if n == 2]
    assert not operator.holds("text", 2) or operator is Operator.NOT_EQUALS


@pytest.mark.spec("DM-3.1.7.1.21-01", "DM-3.1.7.1.21-02", "DM-3.1.7.1.22-01", "DM-3.1.7.1.23-01")
def test_a_query_is_frozen_and_sorted(world: World) -> None:
    for number, (name, interval) in enumerate((("b", 1), ("a", 1), ("c", 2)), start=1):
        write(world, number, SITE, name=name, intra_site_replication_interval=interval)
    sort = [
        SortKey("name", 1),
        SortKey("intra_site_replication_interval", 2, is_ascending=False),
        SortKey("full_path", 0),
    ]
    query = world.machine.directory.query(SITE, [], ["name"], sort)
    write(world, 9, SITE, name="later")
    names = []
    while (item := query.next()[1]) is not None:
        assert set(item.attributes) == {"name"}
        names.append(item.attributes["name"])
    assert names == ["c", "a", "b"]
    by_interval = [SortKey("name", 0), SortKey("intra_site_replication_interval", 1)]
    filters = [
        Filter("intra_site_replication_interval", Operator.LESS_THAN, 3),
        Filter("name", Operator.NOT_EQUALS, "c"),
    ]
    query = world.machine.directory.query(
        SITE, filters, ["name", "intra_site_replication_interval"], by_interval
    )
    found = [query.next()[1] for _ in range(3)]
    assert [one and one.attributes["name"] for one in found] == ["b", "a", None]
    assert query.next() == (DirectoryOperationResult.END_OF_DATA, None)
    ended = world.machine.directory.query(SITE, [])
    assert ended.next()[0] is SUCCESS
    ended.end()
    assert ended.next() == (DirectoryOperationResult.END_OF_DATA, None), "its objects are let go"


@pytest.mark.spec("DM-3.1.7.1.3-09", "DM-3.1.1.2-17", "DM-3.1.1-06")
def test_public_queues_and_the_queue_manager_are_objects(world: World) -> None:
    queue = DirectoryObjectType.QUEUE
    assert [kind.name for kind in QueueType] == ["PRIVATE", "PUBLIC", "SYSTEM", "CONNECTOR"]
    orders = world.create("orders", label="the orders")
    secret = world.create("private$\\secret")
    dead = world.manager_queue("system_deadletter_queue")
    world.machine = Machine(world.state)
    directory = world.machine.directory
    types = [world.record(one).queue_type for one in (orders, secret, dead)]
    assert types == [QueueType.PUBLIC, QueueType.PRIVATE, QueueType.SYSTEM]
    query = directory.query(queue, [])
    _, found = query.next()
    assert found is not None
    # The object's GUID is the queue's Identifier: by it the queue is opened.
    assert found.identifier == world.record(orders).identifier != bytes(16)
    name = format_name_text(PublicName(found.identifier))
    assert queries.find_queue(world.machine.view, name).queue_id == orders
    assert found.attributes["label"] == "the orders"
    assert found.attributes["pathname"] == "vhost\\orders"
    assert query.next()[0] is DirectoryOperationResult.END_OF_DATA
    _, manager = directory.read(
        DirectoryObjectType.QUEUE_MANAGER, [Filter("identifier", Operator.EQUALS, OWN)]
    )
    assert manager is not None
    assert manager.attributes["computer_name"] == "vhost"
    world.one(commands.DeleteQueue(request(), orders, ()))
    assert directory.read(queue, [])[0] is NOT_FOUND


@pytest.mark.spec("DM-3.1.7.1.21-01", "DM-3.1.7.1.22-01")
def test_a_read_in_steps_finds_what_a_query_finds(world: World) -> None:
    written = (("a", 10), ("b", 20), ("c", 30), ("d", 40))
    for number, (name, interval) in enumerate(written, start=1):
        write(world, number, SITE, name=name, inter_site_replication_interval=interval)
    write(world, 9, USER, security_identifier=EVERYONE)
    directory = world.machine.directory
    above = Filter("inter_site_replication_interval", Operator.GREATER_THAN, 10)
    below = Filter("inter_site_replication_interval", Operator.LESS_THAN, 40)
    named = Filter("name", Operator.EQUALS, "b")
    absent = Filter("foreign_site", Operator.EQUALS, True)
    for filters, found in (
        ([], ["a", "b", "c", "d"]),
        ([above], ["b", "c", "d"]),
        ([above, below], ["b", "c"]),
        ([named], ["b"]),
        ([named, above], ["b"]),
        ([named, Filter(above.attribute, Operator.GREATER_THAN, 20)], []),
        ([absent], []),
    ):
        query = directory.query(SITE, filters, ["name"])
        for name in found:
            status, item = query.next()
            assert (status, item and item.attributes) == (SUCCESS, {"name": name})
        assert query.next() == (DirectoryOperationResult.END_OF_DATA, None)
        for objects_max in (1, 2, 10):
            told: list[dict[str, object]] = []
            after = b""
            for _ in range(6):
                page, following = directory.page(SITE, filters, ["name"], after, objects_max)
                assert len(page) <= objects_max
                told += [one.attributes for one in page]
                if following is None:
                    break
                after = following
            else:
                raise AssertionError("a read without an end")
            assert told == [{"name": name} for name in found]


ATTRIBUTES: dict[DirectoryObjectType, dict[str, object]] = {
    SITE: {
        "name": "North",
        "primary_site_controller": "pole",
        "intra_site_replication_interval": 5,
        "inter_site_replication_interval": 6,
        "full_path": "CN=North",
        "foreign_site": True,
        "public_signing_key_list": b"keys",
        "migrated_from_msmq10": True,
    },
    DirectoryObjectType.ENTERPRISE: {
        "name": "Works",
        "weakened_security": True,
        "non_ldap_capable_queue_manager_notification": True,
        "default_time_to_live": 7,
        "old_directory": True,
    },
    DirectoryObjectType.ROUTING_LINK: {
        "description": "a link",
        "full_path": "CN=link",
        "actual_cost": 8,
        "site1_identifier": b"1" * 16,
        "site2_identifier": b"2" * 16,
        "site_gate_identifier_list": [b"g" * 16],
    },
    DirectoryObjectType.CONNECTED_NETWORK: {"name": "net"},
}


@pytest.mark.spec("DM-3.1.7.1.24-01")
@pytest.mark.parametrize("object_type", ATTRIBUTES)
def test_a_write_keeps_each_attribute_that_it_lists_and_no_other(
    world: World, object_type: DirectoryObjectType
) -> None:
    given = ATTRIBUTES[object_type]
    assert write(world, 1, object_type, **given) is SUCCESS
    whole = given | {"identifier": b"\1" * 16}

    def kept() -> dict[str, object]:
        _, found = Machine(world.state).directory.read(object_type, [])
        assert found is not None
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.attributes.items()
        }

    assert kept() == whole
    others: dict[type, object] = {
        int: 77,
        str: "other",
        bool: False,
        bytes: b"3" * 16,
        list: [b"h" * 16, b"i" * 16],
    }
    for name, value in given.items():
        whole[name] = others[type(value)]
        assert write(world, 1, object_type, **{name: whole[name]}) is SUCCESS
        assert kept() == whole, name
