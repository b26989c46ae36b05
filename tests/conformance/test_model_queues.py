"""The queue manager, its queues and who has them open [MS-MQDMPR 3.1.1.1, 3.1.1.2, 3.1.1.16]."""

from __future__ import annotations

from array import array
from hashlib import md5
from typing import Any

import msgspec
import pytest

from qm.model import queries
from qm.model.clients.opens import is_open
from qm.model.machine import Machine
from qm.model.management.directory import Filter, Operator
from qm.model.state.ledger import META_QUEUE_MANAGER
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    OperatingSystemType,
    QueueAccessType,
    QueueScope,
    QueueShareMode,
)
from qm.model.values.limits import (
    OPEN_QUEUES_PER_CLIENT_MAX,
    TARGETS_PER_SEND_MAX,
    VERSION_OF_MULTIPLE_OPEN,
    VERSION_OF_USER_FORMS,
)
from qm.model.values.records import QueueManager, encode
from qm.names.format_name import PublicName, format_name_text
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import EVERYONE, sid_from_text
from qm.wire.codes import ErrorCode
from qm.wire.structures.user_certificate import (
    UserCertificate,
    certificate_digest,
    write_user_certificates,
)
from tests.unit.model.test_delivery import Sender
from tests.unit.model.world import HOST, NOW_S, OWN, ClientInWorld, World, packet, request

SEND, RECEIVE = QueueAccessType.SEND_ACCESS, QueueAccessType.RECEIVE_ACCESS
NONE, DENY = QueueShareMode.DENY_NONE, QueueShareMode.DENY_RECEIVE
ORDERS = "DIRECT=OS:vhost\\orders"
ALICE, BOB = (sid_from_text(f"S-1-5-21-1-2-3-{number}") for number in (1001, 1002))


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def manager_of(world: World) -> QueueManager:
    manager = world.machine.manager
    assert manager is not None
    return manager


def set_manager(world: World, **values: object) -> int:
    changes = {name: encode_attribute(value) for name, value in values.items()}
    return world.one(commands.SetQueueManager(request(), changes, ())).status


def set_queue(world: World, queue_id: int, **values: object) -> int:
    changes = {name: encode_attribute(value) for name, value in values.items()}
    return world.one(commands.SetQueue(request(), queue_id, changes, ())).status


def in_directory(world: World, identifier: bytes) -> dict[str, Any] | None:
    wanted = [Filter("identifier", Operator.EQUALS, identifier)]
    _, found = world.machine.directory.read(DirectoryObjectType.QUEUE, wanted)
    return None if found is None else found.attributes


# The queue manager -------------------------------------------------------------------------


@pytest.mark.spec(
    "DM-3.1.1.1-01", "DM-3.1.1.1-02", "DM-3.1.1.1-03", "DM-3.1.1.1-08", "DM-3.1.1.1-15"
)
def test_a_new_queue_manager(world: World) -> None:
    manager = manager_of(world)
    assert (manager.computer_name, manager.qualified_computer_name) == (HOST, f"{HOST}.example")
    assert manager.queue_manager_version == ""
    assert manager.operating_system_type is OperatingSystemType.FOREIGN
    assert [kind.name for kind in OperatingSystemType] == [
        "FOREIGN",
        "WIN95",
        "WIN_CLIENT",
        "WIN_SERVER",
        "WIN_ENT",
        "OTHER",
    ]
    assert not manager.supporting_server
    assert manager.clustered
    # It is never anything else: nodes are members of a cluster, and nobody sets it.
    assert set_manager(world, clustered=False) == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    wanted = [Filter("identifier", Operator.EQUALS, OWN)]
    _, found = world.machine.directory.read(DirectoryObjectType.QUEUE_MANAGER, wanted)
    assert found is not None
    assert found.attributes["clustered"]
    assert found.attributes["computer_name"] == HOST
    assert found.attributes["qualified_computer_name"] == f"{HOST}.example"


@pytest.mark.spec("DM-3.1.1.1-04", "DM-3.1.4.12-01", "DM-3.1.4.13-01", "DM-3.1.1-02")
def test_changes_of_the_queue_manager_last(world: World) -> None:
    assert (manager_of(world).create_time, manager_of(world).modify_time) == (NOW_S, NOW_S)
    assert manager_of(world).connection_active
    world.now_ms += 7_000
    assert set_manager(world, connection_active=False, hardened_security=True) == 0
    assert not manager_of(world).connection_active
    assert (manager_of(world).create_time, manager_of(world).modify_time) == (NOW_S, NOW_S + 7)
    before = manager_of(world)
    world.machine = Machine(world.state)
    assert msgspec.structs.asdict(manager_of(world)) == msgspec.structs.asdict(before)
    assert manager_of(world).hardened_security
    world.now_ms += 5_000
    keys = commands.SetManagerKeys(request(), b"sealed", b"", b"", 1, 60_000, ())
    assert world.one(keys).status == 0
    assert (manager_of(world).create_time, manager_of(world).modify_time) == (NOW_S, NOW_S + 12)
    assert set_manager(world, connection_active=True) == 0
    assert manager_of(world).connection_active


@pytest.mark.spec("DM-3.1.1.1-06")
def test_one_quota_is_for_all_journals_of_the_system() -> None:
    """Here for two of three copies, each of which goes to another of its queues."""
    sender = Sender(forgets=False)
    assert set_manager(sender, journal_quota=1) == 0
    stores = ["system_deadletter_queue", "system_journal_queue"]
    stores.append("system_transactional_deadletter_queue")
    raw: dict[str, Any] = {"body": bytes(250)}
    sender.send(1, **raw, has_negative_journaling=True)
    sender.send(1, **raw, has_positive_journaling=True)
    sender.send(1, **raw, has_negative_journaling=True, sequence=(1, 1, 0))
    sizes = {one.stored_size_bytes for one in sender.positions(sender.queue_id).values()}
    assert max(sizes) * 2 <= 1024 < min(sizes) * 3
    dead, done, exact = sender.keys()
    for command in (
        commands.TransferFailed(sender.queue_id, array("Q", [dead]), 0x8000),
        commands.TransferAcked(sender.queue_id, array("Q", [done])),
        commands.TransferFailed(sender.queue_id, array("Q", [exact]), 0x8000),
    ):
        assert sender.one(command).status == 0
    assert sender.keys() == []
    assert [len(sender.ordinals(store)) for store in stores] == [1, 1, 0]
    kept = [sender.positions(sender.manager_queue(store)).values() for store in stores]
    size = sum(one.stored_size_bytes for positions in kept for one in positions)
    assert sender.counters().journal_bytes == size


@pytest.mark.spec("DM-3.1.1.1-05", "DM-3.1.1.1-06")
def test_quotas_of_the_queue_manager_count_kilobytes_of_all_its_queues(world: World) -> None:
    names = ("one", "two", "three")
    for name in names:
        world.create(name)
    asking: dict[str, Any] = {"has_negative_journaling": True, "time_to_be_received": 60}
    packets = [packet(n, to=to, body=bytes(700), **asking) for n, to in enumerate(names, start=1)]
    assert 768 < len(packets[0]) <= 1024
    assert set_manager(world, queue_manager_quota=2) == 0
    assert world.arrive(*packets) == [0, 0, TransferVerdict.CLOSE_SESSION]
    # The journals of the system share theirs: of two dead letters there is room for one.
    assert set_manager(world, queue_manager_quota=100, journal_quota=1) == 0
    world.tick(60_000)
    dead = world.positions(world.manager_queue("system_deadletter_queue"))
    assert [one.message_ordinal for one in dead.values()] == [1]
    assert world.counters().total_bytes == world.counters().journal_bytes == len(packets[0])


@pytest.mark.spec("DM-3.1.1.1-17")
def test_what_the_queue_manager_is_part_of_lasts(world: World) -> None:
    names = ("directory_server_list", "directory_integrated")
    protocols = ("srmp_http_support", "srmp_pgm_support")

    def values() -> list[object]:
        return [getattr(manager_of(world), name) for name in (*names, *protocols)]

    assert values() == [(), True, False, False]
    assert set_manager(world, directory_integrated=False) == 0
    world.machine = Machine(world.state)
    assert values() == [(), False, False, False]
    # Whatever they are once they can be set, they are in the row that a restart reads.
    told = msgspec.structs.replace(
        manager_of(world),
        directory_server_list=("dc1", "dc2"),
        srmp_http_support=True,
        srmp_pgm_support=True,
    )
    world.state.put(Table.META, META_QUEUE_MANAGER, encode(told))
    world.machine = Machine(world.state)
    assert set_manager(world, directory_integrated=True) == 0
    world.machine = Machine(world.state)
    assert values() == [("dc1", "dc2"), True, True, True]


@pytest.mark.spec("DM-3.1.1-05")
def test_identifiers_never_change(world: World) -> None:
    orders = world.create("orders")
    identifier = world.record(orders).identifier
    unknown = ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    assert set_manager(world, identifier=b"x" * 16) == unknown
    assert set_queue(world, orders, identifier=b"x" * 16) == unknown
    _, outgoing = world.client().open("DIRECT=OS:far\\q", SEND)
    away = world.record(outgoing).identifier
    assert set_queue(world, outgoing, identifier=b"x" * 16) != 0
    for number, (kind, attribute, value, other) in enumerate(
        (
            (DirectoryObjectType.ENTERPRISE, "name", "n", "m"),
            (DirectoryObjectType.SITE, "name", "n", "m"),
            (DirectoryObjectType.ROUTING_LINK, "actual_cost", 1, 2),
            (DirectoryObjectType.CONNECTED_NETWORK, "name", "n", "m"),
            (DirectoryObjectType.USER, "security_identifier", ALICE, BOB),
        ),
        start=1,
    ):
        own = bytes([number]) * 16

        def write(values: dict[str, Any], own: bytes = own, kind: Any = kind) -> int:
            encoded = {name: encode_attribute(one) for name, one in values.items()}
            return world.one(commands.DirectoryWrite(request(), own, kind, encoded, ())).status

        assert write({attribute: value}) == 0
        assert write({"identifier": b"x" * 16, attribute: other}) == unknown
        assert write({attribute: other}) == 0
        _, found = world.machine.directory.read(kind, [])
        assert found is not None
        assert (found.identifier, found.attributes[attribute]) == (own, other)
        assert found.attributes["identifier"] == own
    assert manager_of(world).identifier == OWN
    assert world.record(orders).identifier == identifier
    assert world.record(outgoing).identifier == away


# Queues ------------------------------------------------------------------------------------

PUBLISHED = {
    "label",
    "create_time",
    "modify_time",
    "type",
    "pathname",
    "qualified_pathname",
    "private_queue_number",
    "journaling",
    "quota",
    "journal_quota",
    "authentication",
    "privacy_level",
    "transactional",
    "multicast_address",
    "security",
    "base_priority",
    "full_path",
    "directory_path",
}


@pytest.mark.spec("DM-3.1.1.2-01", "DM-3.1.1-03", "DM-3.1.1.2-02", "DM-3.1.1.2-14")
def test_attributes_are_published_or_kept(world: World) -> None:
    public, private = world.create("orders"), world.create("private$\\inbox")
    world.now_ms += 3_000
    dacl = Acl((Ace(ACE_ALLOWED, 0, 0x000F_003E, EVERYONE),))
    given: dict[str, Any] = {
        "label": "new",
        "type": b"T" * 16,
        "journaling": True,
        "quota": 77,
        "journal_quota": 78,
        "authentication": True,
        "privacy_level": 2,
        "multicast_address": "234.1.1.1:8001",
        "base_priority": -5,
        "security": write_descriptor(SecurityDescriptor(dacl=dacl)),
    }
    for queue_id in (public, private):
        assert set_queue(world, queue_id, **given) == 0
    kept = {queue_id: world.record(queue_id) for queue_id in (public, private)}
    world.machine = Machine(world.state)
    for queue_id, record in kept.items():
        assert world.record(queue_id) == record
        assert {name: getattr(record, name) for name in given} == given
        assert (record.create_time, record.modify_time) == (NOW_S, NOW_S + 3)
        assert record.scope is QueueScope.ENTERPRISE
    for queue_id in kept:
        refused = set_queue(world, queue_id, scope=int(QueueScope.SITE))
        assert refused == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
        assert world.record(queue_id).scope is QueueScope.ENTERPRISE
    published = in_directory(world, kept[public].identifier)
    assert published is not None
    assert "scope" not in published
    assert {name: published[name] for name in PUBLISHED} == {
        name: getattr(kept[public], name) for name in PUBLISHED
    }
    assert in_directory(world, kept[private].identifier) is None


@pytest.mark.spec("DM-3.1.1.2-02")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label", "new"),
        ("type", b"T" * 16),
        ("quota", 5),
        ("journal_quota", 5),
        ("journaling", True),
        ("authentication", True),
        ("privacy_level", 2),
        ("base_priority", 3),
        ("multicast_address", "234.1.1.1:8001"),
        ("security", write_descriptor(SecurityDescriptor(dacl=None))),
    ],
)
def test_every_change_of_a_queue_notes_when_it_was_made(
    world: World, name: str, value: object
) -> None:
    orders = world.create("orders")
    world.now_ms += 3_999
    assert set_queue(world, orders, **{name: value}) == 0
    record = world.record(orders)
    assert getattr(record, name) == value
    assert (record.create_time, record.modify_time) == (NOW_S, NOW_S + 3)


def test_a_subqueue_is_no_object_of_its_own(world: World) -> None:
    world.create("orders")
    world.client().open(ORDERS + ";later", QueueAccessType.MOVE_ACCESS)
    query = world.machine.directory.query(DirectoryObjectType.QUEUE, [])
    assert query.next()[0] is DirectoryOperationResult.SUCCESS
    assert query.next()[0] is DirectoryOperationResult.END_OF_DATA


@pytest.mark.spec("DM-3.1.1.15-01")
def test_users(world: World) -> None:
    def write(number: int, **values: object) -> int:
        attributes = {name: encode_attribute(value) for name, value in values.items()}
        user = DirectoryObjectType.USER
        command = commands.DirectoryWrite(request(), bytes([number]) * 16, user, attributes, ())
        return world.one(command).status

    alice, bob = ALICE, BOB
    encoded = (b"one certificate", b"another")
    digests = tuple(certificate_digest(certificate) for certificate in encoded)
    assert digests == tuple(md5(one, usedforsecurity=False).digest() for one in encoded)
    certificates = write_user_certificates(
        tuple(
            UserCertificate(digest, bytes(16), certificate)
            for digest, certificate in zip(digests, encoded, strict=True)
        )
    )
    given = {"certificate_digest_list": digests, "certificates": certificates}
    assert write(1, security_identifier=alice, **given) == 0
    size = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE
    assert write(2, security_identifier=bob, certificate_digest_list=(b"short",)) == size
    value = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    for damaged in (
        {"security_identifier": b"bob"},
        {"security_identifier": bob + b"\0"},
        {"security_identifier": bob, "certificates": certificates[:-1]},
        {"security_identifier": bob, "certificates": certificates + b"\0"},
    ):
        assert write(2, **damaged) == value
    wanted = [Filter("security_identifier", Operator.EQUALS, alice)]
    _, found = world.machine.directory.read(DirectoryObjectType.USER, wanted)
    assert found is not None
    assert list(found.attributes["certificate_digest_list"]) == list(digests)
    assert found.attributes["certificates"] == certificates
    query = world.machine.directory.query(DirectoryObjectType.USER, [])
    assert [query.next()[1] is None for _ in range(2)] == [False, True], "one user is there"
    world.version = VERSION_OF_USER_FORMS - 1
    assert write(3, security_identifier=b"older") == 0


@pytest.mark.spec("DM-3.1.7.1.3-01", "DM-3.1.1.2-03")
def test_what_is_not_given_at_creation_is_the_default(world: World) -> None:
    given = world.create("given", label="l", quota=5, type=b"T" * 16)
    plain = world.create("plain")
    one, two = world.record(given), world.record(plain)
    differing = {
        name for name in msgspec.structs.asdict(one) if getattr(one, name) != getattr(two, name)
    }
    assert differing == {
        "queue_id",
        "identifier",
        "pathname",
        "qualified_pathname",
        "journal_queue",
        "label",
        "quota",
        "type",  # and nothing that would follow from it
        "full_path",
        "directory_path",
    }
    assert (two.label, two.quota) == ("", 0xFFFF_FFFF)
    for kind in (b"T" * 16, bytes(16), b"\xff" * 16):
        assert set_queue(world, plain, type=kind) == 0
        changed = world.record(plain)
        assert changed.type == kind
        noted = {"type": kind, "version": changed.version, "modify_time": changed.modify_time}
        assert changed == msgspec.structs.replace(two, **noted)
        assert world.arrive(packet(kind[0] + 1, to="plain")) == [0]
    # The directory is not skipped.
    assert in_directory(world, one.identifier) is not None


@pytest.mark.spec("DM-3.1.1.2-10")
def test_transactional_queues(world: World) -> None:
    strict, plain = world.create("strict", transactional=True), world.create("plain")
    assert (world.record(strict).transactional, world.record(plain).transactional) == (True, False)
    client = world.client()
    usage = ErrorCode.MQ_ERROR_TRANSACTION_USAGE
    transaction = client.begin("t")
    assert client.send("DIRECT=OS:vhost\\strict").status == usage
    assert client.send("DIRECT=OS:vhost\\plain", transaction=transaction).status == usage
    assert client.send("DIRECT=OS:vhost\\strict", transaction=transaction).status == 0
    assert client.send("DIRECT=OS:vhost\\plain").status == 0
    assert set_queue(world, plain, transactional=True) == ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED


# Opens -------------------------------------------------------------------------------------


def opens(world: World) -> int:
    return len([row for row in world.state.rows() if row[0] == Table.OPEN])


def status_of(client: ClientInWorld, name: str, access: int, share: int = NONE) -> int:
    command = commands.OpenQueue(client.request(), name, access, share, ())
    return client.world.one(command).status


@pytest.mark.spec("DM-3.1.1.16-01", "DM-3.1.7.1.5-22", "DM-3.1.7.1.6-05")
def test_open_and_close(world: World) -> None:
    orders = world.create("orders")
    one, two = world.client("one"), world.client("two")
    assert opens(world) == 0
    opened = [client.open(ORDERS, RECEIVE) for client in (one, one, two)]
    assert {queue_id for _, queue_id in opened} == {orders}
    handles = [handle for handle, _ in opened]
    assert len(set(handles)) == 3
    listed = {found.handle: found for found in all_opens(world)}
    assert [listed[handle].client_id for handle in handles] == ["one", "one", "two"]
    for found in listed.values():
        assert (found.queue_id, found.format_name) == (orders, ORDERS)
        assert (found.access, found.share_mode) == (RECEIVE, NONE)
    assert status_of(two, ORDERS, RECEIVE, DENY) == ErrorCode.MQ_ERROR_SHARING_VIOLATION
    world.arrive(packet(1))
    assert len(one.receive(opened[0])) == 1
    for client, handle in zip((one, one, two), handles, strict=True):
        assert world.one(commands.CloseQueue(client.request(), handle)).status == 0
    assert opens(world) == 0
    assert one.receive_outcome(opened[0]).status == ErrorCode.MQ_ERROR_INVALID_HANDLE
    handle, _ = two.open(ORDERS, RECEIVE, DENY)
    assert handle not in handles
    (found,) = all_opens(world)
    assert (found.handle, found.share_mode) == (handle, DENY)


def all_opens(world: World) -> list[queries.OpenInfo]:
    return queries.list_opens(world.machine.view).items


@pytest.mark.spec(
    "DM-3.1.1.16-03", "DM-3.1.1.16-04", "DM-3.1.7.1.5-04", "DM-3.1.7.1.5-05", "DM-3.1.7.1.6-01"
)
def test_several_queues_are_open_together(world: World) -> None:
    orders, other = world.create("orders"), world.create("other")
    client = world.client()
    far = "DIRECT=TCP:10.0.0.1\\far"
    name = f"{ORDERS},{far},DIRECT=OS:vhost\\other"
    expanded = f"{ORDERS},DIRECT=OS:vhost\\other,{far}"
    alone, _ = client.open(ORDERS, SEND)
    assert len(all_opens(world)) == 1
    world.one(commands.CloseQueue(client.request(), alone))
    handle, queue_id = client.open(name, SEND)
    assert queue_id == 0
    around, *inside = all_opens(world)
    assert (around.handle, around.queue_id, around.format_name) == (handle, 0, expanded)
    assert (around.access, around.share_mode) == (SEND, NONE)
    outgoing = queries.find_queue(world.machine.view, far).queue_id
    assert {one.format_name: one.queue_id for one in inside} == {
        ORDERS: orders,
        "DIRECT=OS:vhost\\other": other,
        far: outgoing,
    }
    assert {(one.access, one.share_mode, one.client_id) for one in inside} == {
        (SEND, NONE, client.client_id)
    }
    assert len({one.handle for one in (around, *inside)}) == 4
    assert all(is_open(world.state, one.queue_id) for one in inside)
    closing = commands.CloseQueue(client.request(), inside[0].handle)
    assert world.one(closing).status == ErrorCode.MQ_ERROR_INVALID_HANDLE
    assert client.receive_outcome((handle, 0)).status == ErrorCode.MQ_ERROR_ACCESS_DENIED
    again, _ = client.open(name, SEND)
    for one in (handle, again):
        assert world.one(commands.CloseQueue(client.request(), one)).status == 0
    assert opens(world) == 0
    assert not is_open(world.state, orders)


@pytest.mark.spec("DM-3.1.7.1.5-05")
def test_the_first_of_several_queues_that_fails_leaves_none_open(world: World) -> None:
    world.create("orders")
    world.create("closed", security=write_descriptor(SecurityDescriptor(dacl=Acl(()))))
    client = world.client()
    several = "{},DIRECT=OS:vhost\\{}".format
    denied, absent = ErrorCode.MQ_ERROR_ACCESS_DENIED, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    assert status_of(client, several(ORDERS, "closed"), SEND) == denied
    assert status_of(client, several(ORDERS, "absent"), SEND) == absent
    assert status_of(client, several(several(ORDERS, "zz"), "closed"), SEND) == denied
    assert opens(world) == 0


def test_several_queues_end_with_their_client_and_count_against_its_limit(world: World) -> None:
    client = world.client()
    names = [f"DIRECT=TCP:10.0.0.1\\{n}" for n in range(TARGETS_PER_SEND_MAX)]
    full = ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert status_of(client, ",".join([*names, "DIRECT=TCP:10.0.0.1\\more"]), SEND) == full
    for _ in range(OPEN_QUEUES_PER_CLIENT_MAX // (TARGETS_PER_SEND_MAX + 1)):
        assert status_of(client, ",".join(names), SEND) == 0
    assert status_of(client, ",".join(names), SEND) == full
    world.one(commands.CloseClient(client.client_id))
    assert opens(world) == 0
    world.version = VERSION_OF_MULTIPLE_OPEN - 1
    unsupported = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert status_of(world.client("other"), ",".join(names[:2]), SEND) == unsupported


def test_a_public_queue_and_its_object_never_disagree(world: World) -> None:
    identifier = world.record(world.create("orders")).identifier
    client = world.client()
    public = format_name_text(PublicName(identifier))
    assert status_of(client, public, SEND) == 0
    world.one(commands.DeleteQueue(request(), client.open(public, RECEIVE)[1], ()))
    assert status_of(client, public, SEND) == (ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION)
    assert status_of(client, "DIRECT=OS:vhost\\orders", SEND) == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    found, _ = world.machine.directory.read(DirectoryObjectType.QUEUE, [])
    assert found is DirectoryOperationResult.OBJECT_NOT_FOUND
