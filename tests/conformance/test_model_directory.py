"""Objects of the embedded directory and what is published of them [MS-MQDMPR 3.1.1, 3.1.7.1]."""

from __future__ import annotations

import json
from enum import Enum

import msgspec
import pytest

from qm.client.mqac import constants
from qm.model import queries
from qm.model.machine import Machine
from qm.model.management.directory import DirectoryObject, Filter, Operator
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.directory_objects import OBJECT_ATTRIBUTES
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    DirectoryServerType,
    QueueAccessType,
)
from qm.model.values.limits import VERSION_OF_AUDITED_RIGHTS
from qm.model.values.records import OutgoingPosition, Queue, QueueManager, encode
from qm.model.values.rows import QUEUE_KEY
from qm.names.guid import guid_from_text, guid_text
from qm.rpc.dcom.hresults import OR_INVALID_OID, OR_INVALID_OXID, OR_INVALID_SET, Hresult
from qm.rpc.mgmt import INSUFFICIENT_BUFFER, UNKNOWN_AUTHENTICATION
from qm.rpc.pdu.codes import FaultStatus
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_AUDIT,
    ACE_DENIED,
    Ace,
    Acl,
    SecurityDescriptor,
    write_descriptor,
)
from qm.security.sid import EVERYONE, sid_from_text, sid_text
from qm.wire.access_mask import (
    ConnectedNetworkAccess,
    EnterpriseAccess,
    MachineAccess,
    SiteAccess,
)
from qm.wire.codes import ErrorCode, is_vendor_code
from qm.wire.enums import ProviderType
from qm.wire.structures.public_key import (
    MqdsPublicKey,
    PublicKeyBlob,
    write_mqds_public_keys,
)
from tests.conformance.catalogue import REPOSITORY
from tests.unit.model.management.test_directory import write
from tests.unit.model.world import HOST, OWN, World, request

CODES = REPOSITORY / "tests" / "data" / "spec" / "errors.json"
SUCCESS = DirectoryOperationResult.SUCCESS
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
Type = DirectoryObjectType


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def read(world: World, kind: DirectoryObjectType, identifier: bytes) -> DirectoryObject | None:
    wanted = [Filter("identifier", Operator.EQUALS, identifier)]
    return world.machine.directory.read(kind, wanted)[1]


def allowing(mask: int, kind: int = ACE_ALLOWED) -> bytes:
    return write_descriptor(SecurityDescriptor(dacl=Acl((Ace(kind, 0, mask, EVERYONE),))))


def auditing(mask: int, granted: int) -> bytes:
    everything = Acl((Ace(ACE_ALLOWED, 0, granted, EVERYONE),))
    is_audit = Acl((Ace(ACE_AUDIT, 0, mask, EVERYONE),))
    return write_descriptor(SecurityDescriptor(dacl=everything, sacl=is_audit))


def set_manager(world: World, **values: object) -> int:
    changes = {name: encode_attribute(value) for name, value in values.items()}
    return world.one(commands.SetQueueManager(request(), changes, ())).status


# Objects -----------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.1-09", "DM-3.1.7.1.3-10")
def test_the_directory_says_where_an_object_stands(world: World) -> None:
    manager = read(world, Type.QUEUE_MANAGER, OWN)
    assert manager is not None
    realm = guid_text(bytes(16))
    assert manager.attributes["full_path"] == f"CN=msmq,CN={HOST},DC={realm}"
    # Only the directory says it.
    assert set_manager(world, full_path="CN=elsewhere") == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    record = world.record(world.create("orders"))
    assert record.full_path == f"CN=orders,CN=msmq,CN={HOST},DC={realm}"
    assert record.directory_path == f"raft://{realm}/{guid_text(record.identifier)}"
    found = read(world, Type.QUEUE, record.identifier)
    assert found is not None
    assert found.attributes["full_path"] == record.full_path
    private = world.record(world.create("private$\\secret"))
    assert (private.full_path, private.directory_path) == ("", "")


@pytest.mark.spec("DM-3.1.7.1.3-11", "DM-3.1.7.1.4-04")
def test_a_queue_and_its_object_come_and_go_together(world: World) -> None:
    first = world.create("orders")
    identifier = world.record(first).identifier
    again = commands.CreateQueue(request(), identifier, b"j" * 16, ".\\other", {}, b"", ())
    assert world.one(again).status == ErrorCode.MQ_ERROR_QUEUE_EXISTS
    other = queries.find_by_path(world.machine.view, f"{HOST}\\other")
    assert other.status == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, "its object could not be created"
    # Queue and object are one: what is refused for the one is refused for both, by its status.
    stranger = (sid_from_text("S-1-5-21-1-2-3-1001"),)
    closed = world.create("closed", write_descriptor(SecurityDescriptor(dacl=Acl(()))))
    assert world.one(commands.DeleteQueue(request(), closed, stranger)).status == (
        ErrorCode.MQ_ERROR_ACCESS_DENIED
    )
    assert read(world, Type.QUEUE, world.record(closed).identifier) is not None
    assert queries.find_by_path(world.machine.view, f"{HOST}\\closed").queue_id == closed
    assert world.one(commands.DeleteQueue(request(), first, ())).status == 0
    assert read(world, Type.QUEUE, identifier) is None
    private = world.create("private$\\secret")
    assert world.one(commands.DeleteQueue(request(), private, ())).status == 0
    assert queries.find_by_path(world.machine.view, f"{HOST}\\private$\\secret").status == (
        ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
    )


@pytest.mark.spec("DM-3.1.1.1-12")
def test_roles_of_a_directory_server(world: World) -> None:
    assert [kind.name for kind in DirectoryServerType] == [
        "STANDALONE",
        "BACKUP_SITE_CONTROLLER",
        "PRIMARY_SITE_CONTROLLER",
        "PRIMARY_ENTERPRISE_CONTROLLER",
    ]
    found = read(world, Type.QUEUE_MANAGER, OWN)
    assert found is not None
    assert not found.attributes["directory_server"]
    for attribute, value in (("directory_server_type", 2), ("directory_server", True)):
        refused = set_manager(world, **{attribute: value})
        assert refused == ErrorCode.MQ_ERROR_ILLEGAL_PROPID, "the one has no meaning without both"
    assert read(world, Type.QUEUE_MANAGER, OWN) == found


@pytest.mark.spec("DM-3.1.1.1-10", "DM-3.1.1.1-11")
def test_lists_of_a_new_queue_manager_are_empty(world: World) -> None:
    found = read(world, Type.QUEUE_MANAGER, OWN)
    assert found is not None
    for name in (
        "site_identifier_list",
        "out_routing_server_identifier_list",
        "in_routing_server_identifier_list",
        "connected_network_identifier_list",
    ):
        assert found.attributes[name] == ()


@pytest.mark.spec(
    "DM-3.1.1.6-01", "DM-3.1.1.7-02", "DM-3.1.1.8-03", "DM-3.1.1.9-01", "DM-3.1.7.1.18-02"
)
def test_attributes_of_objects(world: World) -> None:
    values: dict[DirectoryObjectType, dict[str, object]] = {
        Type.ENTERPRISE: {
            "name": "us",
            "weakened_security": True,
            "non_ldap_capable_queue_manager_notification": False,
            "default_time_to_live": 90,
            "old_directory": False,
            "security": allowing(EnterpriseAccess.ENTERPRISE_GENERIC_ALL),
        },
        Type.SITE: {
            "name": "North",
            "primary_site_controller": "psc",
            "intra_site_replication_interval": 2,
            "inter_site_replication_interval": 10,
            "full_path": "CN=North",
            "foreign_site": False,
            "public_signing_key_list": b"",
            "migrated_from_msmq10": False,
            "security": allowing(SiteAccess.SITE_GENERIC_ALL),
        },
        Type.ROUTING_LINK: {
            "description": "slow",
            "full_path": "CN=link",
            "actual_cost": 5,
            "site1_identifier": b"1" * 16,
            "site2_identifier": b"2" * 16,
            "site_gate_identifier_list": (OWN,),
        },
        Type.CONNECTED_NETWORK: {
            "name": "lan",
            "security": allowing(ConnectedNetworkAccess.CN_GENERIC_ALL),
        },
    }
    for number, (kind, attributes) in enumerate(values.items(), start=1):
        assert set(attributes) == set(OBJECT_ATTRIBUTES[kind])
        assert write(world, number, kind, **attributes) is SUCCESS
        found = read(world, kind, bytes([number]) * 16)
        assert found is not None
        identity = {"identifier": bytes([number]) * 16}
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(attributes))
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(found.attributes)) == plain | identity
        # What is not given is not there.
        first = next(iter(attributes))
        other = attributes[first] if kind is Type.ROUTING_LINK else f"other {number}"
        assert write(world, 100 + number, kind, **{first: other}) is SUCCESS
        bare = read(world, kind, bytes([100 + number]) * 16)
        assert bare is not None
        assert set(bare.attributes) == {first, "identifier"}


@pytest.mark.spec("DM-3.1.1.8-01")
@pytest.mark.parametrize(
    ("cost", "is_legal"), [(0, False), (1, True), (999_999, True), (1_000_000, False), (-5, False)]
)
def test_cost_of_a_routing_link(world: World, cost: int, is_legal: bool) -> None:
    said = write(world, 1, Type.ROUTING_LINK, actual_cost=cost)
    assert said == (SUCCESS if is_legal else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)


def test_the_enterprise_says_how_long_a_message_may_take(world: World) -> None:
    assert queries.default_time_to_reach_queue(world.machine.view) == 0x54600
    write(world, 1, Type.ENTERPRISE, default_time_to_live=60)
    assert queries.default_time_to_reach_queue(world.machine.view) == 0x54600, "it has no name"
    write(world, 2, Type.ENTERPRISE, name="Corp", default_time_to_live=90)
    assert queries.default_time_to_reach_queue(world.machine.view) == 90
    for unusable in (0, -1, 1 << 32):
        write(world, 2, Type.ENTERPRISE, default_time_to_live=unusable)
        assert queries.default_time_to_reach_queue(world.machine.view) == 0x54600


# Rights ------------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1.1-14", "DM-3.1.1.6-01", "DM-3.1.1.7-02", "DM-3.1.1.9-01")
@pytest.mark.parametrize(
    ("kind", "rights"),
    [
        (Type.QUEUE_MANAGER, 0x000F_00F7),  # MQQMACCESSMASK
        (Type.ENTERPRISE, 0x000F_0037),  # MQENTACCESSMASK
        (Type.SITE, 0x000F_0037),  # MQSITEACCESSMASK
        (Type.CONNECTED_NETWORK, 0x000F_0031),  # MQCNACCESSMASK
    ],
)
def test_a_descriptor_speaks_of_rights_that_exist(
    world: World, kind: DirectoryObjectType, rights: int
) -> None:
    illegal = ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    for mask in (1 << bit for bit in range(28)):
        if kind is Type.QUEUE_MANAGER:
            status: object = set_manager(
                world, security=allowing(mask | MachineAccess.MACHINE_GENERIC_ALL)
            )
            status = SUCCESS if status == 0 else status
        else:
            status = write(world, 1, kind, security=allowing(mask))
        is_legal = bool(mask & rights)
        assert status == (SUCCESS if is_legal else illegal), hex(mask)
    # Whether it is granted, denied or audited.
    for mask in (0x8, 0x100, 0x10_0000):
        for security in (allowing(mask, ACE_DENIED), auditing(mask, rights)):
            if kind is Type.QUEUE_MANAGER:
                assert set_manager(world, security=security) == illegal
            else:
                assert write(world, 1, kind, security=security) == illegal
    if kind is Type.QUEUE_MANAGER:
        assert set_manager(world, security=auditing(rights, rights)) == 0
    else:
        assert write(world, 1, kind, security=auditing(rights, rights)) == SUCCESS


def test_an_older_cluster_looks_at_no_audit_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", VERSION_OF_AUDITED_RIGHTS - 1)
    older = World()
    security = auditing(0x100, int(MachineAccess.MACHINE_GENERIC_ALL))
    assert set_manager(older, security=security) == 0
    assert write(older, 1, Type.SITE, security=auditing(0x100, 0x10)) == SUCCESS


@pytest.mark.spec("DM-3.1.1.1-13")
def test_public_keys_of_a_queue_manager(world: World) -> None:
    found = read(world, Type.QUEUE_MANAGER, OWN)
    assert found is not None
    assert found.attributes["public_encryption_key_list"] == b""
    assert found.attributes["public_signing_key_list"] == b""
    key = PublicKeyBlob(1024, 65_537, bytes([*range(127), 0x80]))
    advanced = "Microsoft Enhanced RSA and AES Cryptographic Provider"
    keys = write_mqds_public_keys((MqdsPublicKey(ProviderType.RSA_AES, advanced, key),))
    for name in ("public_encryption_key_list", "public_signing_key_list"):
        illegal = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        for damaged in (b"\x01", keys + b"\0", keys[:-1], keys[:4] + b"\2" + keys[5:]):
            assert set_manager(world, **{name: damaged}) == illegal
        assert set_manager(world, **{name: keys}) == 0
        kept = read(world, Type.QUEUE_MANAGER, OWN)
        assert kept is not None
        assert kept.attributes[name] == keys
        assert set_manager(world, **{name: write_mqds_public_keys(())}) == 0
    assert set_manager(world, sealed_private_keys=b"sealed") == 0
    published = read(world, Type.QUEUE_MANAGER, OWN)
    assert published is not None
    assert "sealed_private_keys" not in published.attributes


# What survives -----------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.1-04", "DM-3.1.1.3-01")
def test_nothing_volatile_is_stored_and_nothing_of_outgoing_queues_published(world: World) -> None:
    volatile = {"active", "next_hops", "state", "connection_history", "dispatch_collection"}
    volatile |= {"directory_offline", "throttled", "queue_manager_state", "send_in_progress"}
    for kind in (Queue, QueueManager, OutgoingPosition):
        assert not volatile & {field.name for field in msgspec.structs.fields(kind)}
    _, made = world.client().open("DIRECT=OS:far\\q", QueueAccessType.SEND_ACCESS)
    before = world.record(made)
    world.machine.forget()
    properties = queries.queue_properties(world.machine.view, made)
    assert properties is not None
    assert properties.attributes == before
    assert before.pathname == "DIRECT=OS:far\\q"
    assert not before.multicast
    # Multicast is in the row, for when such names are served.
    key = QUEUE_KEY.pack(made)
    world.state.put(Table.QUEUE, key, encode(msgspec.structs.replace(before, multicast=True)))
    world.machine = Machine(world.state)
    kept = queries.queue_properties(world.machine.view, made)
    assert kept is not None
    assert kept.attributes.multicast
    assert world.machine.directory.read(Type.QUEUE, [])[0] is NOT_FOUND


@pytest.mark.spec("DM-2-01")
def test_identifiers_have_the_layout_of_data_types(world: World) -> None:
    """GUID: three little-endian integers and eight bytes; SID: revision, count, big-endian
    authority, little-endian sub-authorities.
    """
    text = "00112233-4455-6677-8899-AABBCCDDEEFF"
    raw = bytes.fromhex("33221100554477668899aabbccddeeff")
    assert guid_from_text(text) == raw
    outcome = world.one(commands.CreateQueue(request(), raw, b"j" * 16, ".\\orders", {}, b"", ()))
    assert queries.find_queue(world.machine.view, f"PUBLIC={text}").queue_id == outcome.value
    assert guid_text(raw) == text
    alice = bytes.fromhex("01050000000000051500000001000000020000000300000000000102")
    assert sid_from_text("S-1-5-21-1-2-3-33619968") == alice
    assert sid_text(alice) == "S-1-5-21-1-2-3-33619968"
    assert EVERYONE == bytes.fromhex("010100000000000100000000")
    owned = write_descriptor(SecurityDescriptor(owner=alice, dacl=Acl(())))
    queue_id = world.create("owned", security=owned)
    assert alice in world.record(queue_id).security
    rows = [key for table, key, _ in world.state.rows() if table == Table.QUEUE_NAME]
    assert any(key.endswith(raw) for key in rows)


@pytest.mark.spec("DM-1.8-01", "DM-1.8-02")
def test_no_code_is_of_our_own_making() -> None:
    """Names and numbers of [MS-ERREF] 2.1 and [MS-MQMQ] 2.4; Win32 codes as [MS-ERREF] 2.2 has
    them, E_INVALIDARG being 87 ERROR_INVALID_PARAMETER in its facility.
    """
    published = json.loads(CODES.read_text())
    general = {
        "E_NOTIMPL": 0x80004001,
        "E_NOINTERFACE": 0x80004002,
        "E_POINTER": 0x80004003,
        "E_INVALIDARG": 0x80070057,
        "OLE_E_BLANK": 0x80040007,
        "XACT_E_NOTSUPPORTED": 0x8004D00F,
        "CONNECT_E_NOCONNECTION": 0x80040200,
        "CONNECT_E_ADVISELIMIT": 0x80040201,
        "CONNECT_E_CANNOTCONNECT": 0x80040202,
    }
    assert {one.name: one.value for one in ErrorCode} == {
        name: int(value, 16) for name, value in published.items()
    }
    found = {
        name: value
        for name, value in vars(constants).items()
        if isinstance(value, int) and not isinstance(value, Enum) and value & 0x8000_0000
    }
    assert found == general | {"INFINITE": 0xFFFF_FFFF}
    # What the objects' own methods return of Win32, and what resolvers do.
    in_facility = {one.name: one & 0xFFFF for one in Hresult if one >> 16 == 0x8007}
    assert in_facility == {"E_ACCESSDENIED": 5, "E_OUTOFMEMORY": 14, "E_INVALIDARG": 87}
    assert (OR_INVALID_OXID, OR_INVALID_OID, OR_INVALID_SET) == (1910, 1911, 1912)
    # What calls fault with; the rest of them are statuses of DCE/RPC, which have a facility.
    faults = {one.name: one.value for one in FaultStatus if one < 0x1_0000}
    assert faults == {
        "ACCESS_DENIED": 5,
        "SERVER_UNAVAILABLE": 1722,
        "CALL_FAILED": 1726,
        "ENTRY_NOT_ALLOWED": 1752,
        "CANNOT_SUPPORT": 1764,
        "BAD_STUB_DATA": 1783,
        "SECURITY_PACKAGE": 1825,
    }
    assert {one >> 16 for one in FaultStatus if one.name not in faults} == {0x1C00, 0x1C01}
    assert (INSUFFICIENT_BUFFER, UNKNOWN_AUTHENTICATION) == (122, 1747)
    assert not any(is_vendor_code(code) for code in Hresult)
    assert not any(is_vendor_code(code) for code in (*ErrorCode, *general.values()))
    assert is_vendor_code(0xC00E_0001 | 0x2000_0000)


@pytest.mark.spec("DM-3.1.3-01")
def test_provisioning_happens_once(world: World) -> None:
    before = queries.queue_manager(world.machine.view)
    again = commands.Provision(b"x" * 16, "other", "", (), bytes(16), 9, b"", b"")
    assert world.one(again).status == ErrorCode.MQ_ERROR_MACHINE_EXISTS
    world.one(commands.LeaderActivated(2, "n2"))
    after = queries.queue_manager(world.machine.view)
    assert before is not None
    assert after is not None
    assert after.attributes == before.attributes, "a new leader initializes nothing anew"
    assert after.counters.epoch == before.counters.epoch + 1


@pytest.mark.spec("DM-3.1.7.1.5-11")
def test_a_public_name_that_the_directory_does_not_know(world: World) -> None:
    client = world.client()
    unknown = f"PUBLIC={guid_text(b'?' * 16)}"
    opening = commands.OpenQueue(client.request(), unknown, QueueAccessType.SEND_ACCESS, 0, ())
    unsupported = 0xC00E0020
    assert world.one(opening).status == unsupported
    assert client.send(unknown).status == unsupported
    # It is asked for the GUID of each.
    orders = world.create("orders")
    known = f"PUBLIC={guid_text(world.record(orders).identifier)}"
    assert client.open(known, QueueAccessType.SEND_ACCESS)[1] == orders
    several = f"{known},{unknown}"
    opening = commands.OpenQueue(client.request(), several, QueueAccessType.SEND_ACCESS, 0, ())
    assert world.one(opening).status == unsupported
    assert client.send(known).status == 0
    assert len(world.positions(orders)) == 1
