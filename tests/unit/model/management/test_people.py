"""Other queue managers and users in the directory: look-ups, certificates, groups."""

from __future__ import annotations

import pytest

from qm.model import queries
from qm.model.management import directory as directory_module
from qm.model.management.directory import Filter, Operator
from qm.model.queries import people
from qm.model.state.directory_rows import META_DIRECTORY
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import (
    DirectoryObjectType,
    DirectoryOperationResult,
    QueueAccessType,
)
from qm.model.values.limits import CERTIFICATES_PER_USER_MAX, GROUPS_PER_USER_MAX
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import sid_from_text
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.enums import ProviderType
from qm.wire.structures.public_key import MqdsPublicKey, PublicKeyBlob, write_mqds_public_keys
from qm.wire.structures.user_certificate import (
    UserCertificate,
    certificate_digest,
    write_user_certificates,
)
from tests.unit.model.management.test_directory import write
from tests.unit.model.world import HOST, OWN, World, request

MANAGER, USER, SITE = (
    DirectoryObjectType.QUEUE_MANAGER,
    DirectoryObjectType.USER,
    DirectoryObjectType.SITE,
)
SUCCESS = DirectoryOperationResult.SUCCESS
EXISTS = DirectoryOperationResult.OBJECT_ALREADY_EXISTS
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
BOB = sid_from_text("S-1-5-21-1-2-3-1002")
CLERKS = sid_from_text("S-1-5-21-1-2-3-2001")
KEY = MqdsPublicKey(
    ProviderType.RSA_FULL,
    "Microsoft Enhanced Cryptographic Provider v1.0",
    PublicKeyBlob(1024, 65537, b"\x01" * 127 + b"\x81"),
)


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def directory(world: World) -> people.ReplicatedDirectory:
    return people.ReplicatedDirectory(lambda: world.state)


def register(
    world: World,
    sid: bytes,
    certificate: bytes,
    *,
    sender: bytes = b"",
    is_internal: bool = False,
    is_conditional: bool = False,
    user: bytes = b"",
) -> object:
    outcome = world.one(
        commands.RegisterCertificate(
            *(request(), sid, "alice", user or (sid * 16)[-16:], certificate),
            certificate_digest(certificate),
            *(b"c" * 16, is_internal, is_conditional, (sender,) if sender else ()),
        )
    )
    return outcome.status or outcome.value


def may_send(world: World, sid: bytes) -> bool:
    client = world.client(f"c{world.index}")
    access = QueueAccessType.SEND_ACCESS
    name = "DIRECT=OS:.\\orders"
    opened = world.one(commands.OpenQueue(client.request(), name, access, 0, (sid,)))
    return opened.status != ErrorCode.MQ_ERROR_ACCESS_DENIED


def remove(world: World, sid: bytes, certificate: bytes) -> object:
    digest = certificate_digest(certificate)
    return world.one(commands.RemoveCertificate(request(), sid, digest, ())).value


# Queue managers ----------------------------------------------------------------------------


def test_another_queue_manager_is_found_by_guid_and_by_each_name(world: World) -> None:
    keys = write_mqds_public_keys((KEY,))
    written = write(
        world,
        9,
        MANAGER,
        computer_name="PEER",
        qualified_computer_name="peer.example",
        addresses=("10.0.0.9", "peer.example"),
        public_encryption_key_list=keys,
    )
    assert written is SUCCESS
    guid = b"\x09" * 16
    found = directory(world).queue_manager(guid)
    assert found is not None
    assert (found.name, found.exchange_keys, found.signing_keys) == ("PEER", (KEY,), ())
    assert directory(world).queue_manager_named("peer") == found
    assert directory(world).queue_manager_named("Peer.Example") == found
    assert directory(world).queue_manager_named("") is None
    assert directory(world).addresses(guid) == ("10.0.0.9", "peer.example")
    assert directory(world).queue_manager(b"\x08" * 16) is None


def test_names_of_queue_managers_belong_to_one(world: World) -> None:
    assert write(world, 8, MANAGER, computer_name="eight") is SUCCESS
    assert write(world, 9, MANAGER, computer_name="nine", qualified_computer_name="EIGHT") is EXISTS
    assert write(world, 9, MANAGER, computer_name=HOST) is EXISTS, "our own name"
    own = commands.DirectoryWrite(request(), OWN, MANAGER, {}, ())
    assert world.one(own).value is EXISTS, "our own GUID"
    assert write(world, 8, MANAGER, computer_name="renamed") is SUCCESS
    assert directory(world).queue_manager_named("eight") is None
    assert write(world, 10, MANAGER, computer_name="eight") is SUCCESS


def test_lists_of_queue_managers_begin_with_our_own(world: World) -> None:
    assert write(world, 9, MANAGER, computer_name="PEER") is SUCCESS
    names = [
        found.attributes["computer_name"]
        for found in world.machine.directory.page(MANAGER, [], None, b"", 10)[0]
    ]
    assert names == [HOST, "PEER"]
    wanted = [Filter("computer_name", Operator.EQUALS, "PEER")]
    (found,), following = world.machine.directory.page(MANAGER, wanted, None, b"", 10)
    assert (found.identifier, following) == (b"\x09" * 16, None)


@pytest.mark.parametrize(
    ("rows_max", "objects_max"), [(4_096, 1), (4_096, 3), (3, 10), (7, 7), (2, 2), (4_096, 100)]
)
def test_a_list_is_read_in_pages_each_object_once(
    world: World, monkeypatch: pytest.MonkeyPatch, rows_max: int, objects_max: int
) -> None:
    monkeypatch.setattr(directory_module, "_ROWS_PER_PAGE_MAX", rows_max)
    expected = [HOST]
    for number in range(1, 8):
        assert write(world, number, MANAGER, computer_name=f"m{number}") is SUCCESS
        expected.append(f"m{number}")
    names: list[object] = []
    after: bytes | None = b""
    while after is not None:
        found, after = world.machine.directory.page(MANAGER, [], None, after, objects_max)
        assert len(found) <= max(objects_max, 2), "our own one comes with the first of the rows"
        names += [one.attributes["computer_name"] for one in found]
    assert names == expected


def test_queue_managers_have_bounded_attributes(world: World) -> None:
    refused = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert write(world, 9, MANAGER, computer_name="n" * 256) == refused
    assert write(world, 9, MANAGER, computer_name="a\nb") == refused
    assert write(world, 9, MANAGER, addresses=("",)) == refused
    assert write(world, 9, MANAGER, addresses=("a",) * 17) == refused
    assert write(world, 9, MANAGER, public_encryption_key_list=b"junk") == refused


def test_the_directory_says_when_it_changed(world: World) -> None:
    before = directory(world).version
    assert write(world, 9, MANAGER, computer_name="PEER") is SUCCESS
    middle = directory(world).version
    command = commands.DirectoryWrite(request(), b"\x09" * 16, MANAGER, None, ())
    assert world.one(command).value is SUCCESS
    assert before < middle < directory(world).version
    assert directory(world).queue_manager_named("peer") is None


# Users -------------------------------------------------------------------------------------


def test_certificates_of_a_user_come_and_go_one_by_one(world: World) -> None:
    assert register(world, ALICE, b"first", sender=ALICE) is SUCCESS
    assert register(world, ALICE, b"second") is SUCCESS
    assert register(world, ALICE, b"second") is SUCCESS, "it has that one"
    found = directory(world).user(ALICE)
    assert found is not None
    assert (found.certificates, found.name) == ((b"first", b"second"), "alice")
    assert directory(world).users_with(certificate_digest(b"second")) == (ALICE,)
    assert remove(world, ALICE, b"first") is SUCCESS
    assert remove(world, ALICE, b"first") is NOT_FOUND
    assert remove(world, BOB, b"first") is NOT_FOUND
    assert directory(world).users_with(certificate_digest(b"first")) == ()
    digests = people.user_certificates(world.machine.view, ALICE)
    assert [one.digest for one in digests] == [certificate_digest(b"second")]


@pytest.mark.spec("DM-3.1.1.1-29", "AC-3.2.4.2.1-06", "AC-3.2.4.2.1-07", "AC-3.2.4.2.1-08")
def test_a_user_has_one_internal_certificate(world: World) -> None:
    assert register(world, ALICE, b"external") is SUCCESS
    assert register(world, ALICE, b"old", is_internal=True) is SUCCESS
    kept = register(world, ALICE, b"new", is_internal=True, is_conditional=True)
    assert kept == ErrorCode.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST
    found = directory(world).user(ALICE)
    assert found is not None
    assert found.certificates == (b"external", b"old")
    assert people.internal_digest(world.machine.view, ALICE) == certificate_digest(b"old")
    assert register(world, ALICE, b"new", is_internal=True) is SUCCESS
    found = directory(world).user(ALICE)
    assert found is not None
    assert found.certificates == (b"external", b"new")
    assert people.internal_digest(world.machine.view, ALICE) == certificate_digest(b"new")
    assert directory(world).users_with(certificate_digest(b"old")) == ()
    assert remove(world, ALICE, b"new") is SUCCESS
    assert people.internal_digest(world.machine.view, ALICE) == b""
    # Who may not write the user does not take the one away either.
    assert register(world, ALICE, b"kept", is_internal=True) is SUCCESS
    found = directory(world).user(ALICE)
    clerks_alone_administer(world)
    for is_internal in (True, False):
        newer = register(world, ALICE, b"newer", sender=BOB, is_internal=is_internal)
        assert newer == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert directory(world).user(ALICE) == found
    assert people.internal_digest(world.machine.view, ALICE) == certificate_digest(b"kept")


def clerks_alone_administer(world: World) -> None:
    rights = int(MachineAccess.SET_MACHINE_PROPERTIES)
    dacl = Acl((Ace(ACE_ALLOWED, 0, rights, CLERKS),))
    changes = {"security": encode_attribute(write_descriptor(SecurityDescriptor(dacl=dacl)))}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0


def test_certificates_are_registered_for_oneself_or_by_who_may(world: World) -> None:
    clerks_alone_administer(world)
    assert register(world, ALICE, b"mine", sender=BOB) == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert register(world, ALICE, b"mine", sender=CLERKS) is SUCCESS
    assert register(world, BOB, b"mine", sender=BOB) is SUCCESS


def test_a_new_user_takes_no_object_s_place(world: World) -> None:
    assert register(world, ALICE, b"mine", user=b"u" * 16) is SUCCESS
    assert register(world, BOB, b"mine", user=b"u" * 16) is EXISTS
    assert directory(world).user(ALICE) is not None


def test_certificates_are_bounded(world: World) -> None:
    assert register(world, ALICE, b"") == ErrorCode.MQ_ERROR_INVALID_CERTIFICATE
    assert register(world, ALICE, b"c" * 65536) == ErrorCode.MQ_ERROR_INVALID_CERTIFICATE
    assert register(world, b"sid", b"c") == ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    for number in range(CERTIFICATES_PER_USER_MAX):
        assert register(world, ALICE, b"%d" % number) is SUCCESS
    assert register(world, ALICE, b"more") == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES


def test_nothing_new_is_written_before_its_apply_version() -> None:
    world = World()
    world.version = 5
    refused = ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert write(world, 9, MANAGER, computer_name="PEER") == refused
    assert write(world, 9, USER, groups=(CLERKS,)) == ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    assert write(world, 9, USER, security_identifier=ALICE) is SUCCESS
    assert world.state.get(Table.META, META_DIRECTORY) is None


# Groups ------------------------------------------------------------------------------------


def test_access_is_judged_with_the_groups_of_the_directory(world: World) -> None:
    rights = int(QueueAccess.WRITE_MESSAGE)
    dacl = Acl((Ace(ACE_ALLOWED, 0, rights, CLERKS),))
    queue_id = world.create("orders")
    changes = {"security": encode_attribute(write_descriptor(SecurityDescriptor(dacl=dacl)))}
    assert world.one(commands.SetQueue(request(), queue_id, changes, ())).status == 0
    assert not may_send(world, ALICE)
    user = {"security_identifier": ALICE, "groups": (CLERKS,)}
    assert write(world, 9, USER, **user) is SUCCESS
    assert may_send(world, ALICE)
    assert write(world, 9, USER, groups=()) is SUCCESS
    assert not may_send(world, ALICE)


def test_groups_are_bounded(world: World) -> None:
    refused = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    assert write(world, 9, USER, security_identifier=ALICE, groups=(b"x",)) == refused
    many = (CLERKS,) * (GROUPS_PER_USER_MAX + 1)
    assert write(world, 9, USER, security_identifier=ALICE, groups=many) == refused


# Accounts ----------------------------------------------------------------------------------


def test_accounts_are_found_by_name_and_their_secret_is_never_published(world: World) -> None:
    values = {"security_identifier": ALICE, "groups": (CLERKS,), "sealed_password": b"sealed"}
    assert write(world, 9, USER, account_name="Alice", **values) is SUCCESS
    found = queries.account(world.machine.view, "ALICE")
    assert found == queries.AccountInfo("Alice", "", ALICE, (CLERKS,), b"sealed", False)
    by_name = [Filter("account_name", Operator.EQUALS, "Alice")]
    for page in (
        queries.read_directory(world.machine.view, USER),
        queries.read_directory(world.machine.view, USER, by_name),
        queries.read_directory(world.machine.view, USER, attributes=["sealed_password", "name"]),
    ):
        (shown,) = page.items
        assert "sealed_password" not in shown.attributes
    secret = [Filter("sealed_password", Operator.EQUALS, b"sealed")]
    assert queries.read_directory(world.machine.view, USER, secret).items == []
    assert write(world, 8, USER, security_identifier=BOB, account_name="ALICE") is EXISTS
    assert write(world, 9, USER, account_name="", sealed_password=b"") is SUCCESS
    assert queries.account(world.machine.view, "alice") is None
    assert write(world, 8, USER, security_identifier=BOB, account_name="") is SUCCESS
    assert queries.account(world.machine.view, "") is None
    too_long = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE
    assert write(world, 8, USER, sealed_password=bytes(129)) == too_long


def test_accounts_wait_for_their_apply_version() -> None:
    world = World()
    world.version = 6
    refused = ErrorCode.MQ_ERROR_ILLEGAL_PROPID
    for values in (
        {"account_name": "alice"},
        {"account_domain": "CORP"},
        {"account_disabled": True},
        {"sealed_password": b"x"},
    ):
        assert write(world, 9, USER, security_identifier=ALICE, **values) == refused


def certificate(encoded: bytes) -> UserCertificate:
    return UserCertificate(certificate_digest(encoded), b"c" * 16, encoded)


def test_certificates_of_a_user_have_their_form(world: World) -> None:
    certificates = write_user_certificates((certificate(b"one"), certificate(b"two")))
    refused = ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    user = {"security_identifier": ALICE, "account_name": "alice"}
    assert write(world, 9, USER, certificates=certificates + b"\0", **user) == refused
    assert write(world, 9, USER, certificates=certificates[:-1], **user) == refused
    assert write(world, 9, USER, certificates=certificates, **user) is SUCCESS
