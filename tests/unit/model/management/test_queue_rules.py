"""Rules of making and opening queues (3.1.7.1.3, 3.1.7.1.5), each where it could break alone."""

import pytest

from qm.model import queries
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.elements import QueueAccessType, QueueKind, QueueType
from qm.names.format_name import PrivateName, format_name_text
from qm.names.guid import guid_text
from qm.security.descriptor import (
    ACE_ALLOWED,
    ACE_DENIED,
    Ace,
    Acl,
    SecurityDescriptor,
    write_descriptor,
)
from qm.wire.codes import ErrorCode
from tests.unit.model.management.test_administration import (
    ALICE,
    MOVE,
    PEEK,
    RECEIVE,
    SEND,
    creating,
    status_of,
)
from tests.unit.model.test_counters import preset
from tests.unit.model.world import OWN, World, request

ABSENT = ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
UNSUPPORTED = ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
OTHER = "6B29FC40-CA47-1067-B31D-00DD010662DA"
SUFFIXES = ("JOURNAL", "DEADLETTER", "DEADXACT")


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def private(number: int, guid: bytes = OWN) -> str:
    return format_name_text(PrivateName(guid, number))


# Making ------------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.3-13")
@pytest.mark.parametrize("tail", ["orders", "private$\\inbox"])
def test_a_new_queue_of_each_type_is_found_by_all_its_names(world: World, tail: str) -> None:
    of_applications = (QueueKind.APPLICATION,)

    def listed() -> list[int]:
        found = queries.list_queues(world.machine.view, kinds=of_applications)
        return [one.queue_id for one in found.items]

    assert listed() == []
    outcome = world.one(creating(f".\\{tail}", 7))
    assert outcome.status == 0
    queue_id = outcome.value
    assert isinstance(queue_id, int)
    view = world.machine.view
    assert listed() == [queue_id]
    record = world.record(queue_id)
    number = record.private_queue_number
    format_name = private(number) if number else f"PUBLIC={guid_text(record.identifier)}"
    assert queries.find_by_path(view, f"vhost\\{tail}").queue_id == queue_id
    for name in (f"DIRECT=OS:vhost\\{tail}", format_name):
        assert queries.find_queue(view, name).queue_id == queue_id
        for access in (SEND, PEEK, RECEIVE):
            assert world.client(f"{name}{access}").open(name, access)[1] == queue_id
    # A second one of its name is refused, and adds none.
    assert world.one(creating(f".\\{tail}", 8)).status == ErrorCode.MQ_ERROR_QUEUE_EXISTS
    assert listed() == [queue_id]


@pytest.mark.spec("DM-3.1.3-16")
def test_each_system_queue_has_its_names_from_birth(world: World) -> None:
    for suffix, kind, which, is_transactional in (
        ("JOURNAL", QueueKind.SYSTEM_JOURNAL, "system_journal_queue", False),
        ("DEADLETTER", QueueKind.DEADLETTER, "system_deadletter_queue", False),
        (
            "DEADXACT",
            QueueKind.TRANSACTIONAL_DEADLETTER,
            "system_transactional_deadletter_queue",
            True,
        ),
    ):
        own = world.manager_queue(which)
        record = world.record(own)
        assert (record.kind, record.queue_type) == (kind, QueueType.SYSTEM)
        assert record.transactional is is_transactional
        assert record.pathname.casefold() == f"vhost\\system$;{suffix}".casefold()
        assert queries.find_by_path(world.machine.view, record.pathname).queue_id == own
        for name in (
            f"MACHINE={guid_text(OWN)};{suffix}",
            f"DIRECT=OS:vhost\\SYSTEM$;{suffix}",
        ):
            assert queries.find_queue(world.machine.view, name).queue_id == own
            for access in (PEEK, RECEIVE):
                assert world.client(f"{name}{access}").open(name, access)[1] == own


@pytest.mark.spec("DM-3.1.7.1.3-08")
def test_a_number_that_a_private_queue_has_is_not_given_to_another(world: World) -> None:
    kept = [world.record(world.create(f"private$\\{name}")) for name in ("a", "b", "c")]
    numbers = [one.private_queue_number for one in kept]
    assert len({*numbers}) == 3
    # After the last number the first follow again: those in use are passed over.
    preset(world, private_queue_number=0xFFFF_FFFE)
    later = [world.record(world.create(f"private$\\{name}")) for name in ("d", "e", "f")]
    assert later[0].private_queue_number == 0xFFFF_FFFF
    assert len({*numbers, *(one.private_queue_number for one in later)}) == 6
    for one in (*kept, *later):
        name = private(one.private_queue_number)
        assert queries.find_queue(world.machine.view, name).queue_id == one.queue_id


@pytest.mark.spec("DM-3.1.1.2-12")
@pytest.mark.parametrize("kind", [ACE_ALLOWED, ACE_DENIED])
def test_every_entry_of_a_queue_grants_or_denies_rights_to_queues_alone(
    world: World, kind: int
) -> None:
    illegal = ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    good = Ace(ACE_ALLOWED, 0, 0x000F_003F, ALICE)
    for number, (mask, status) in enumerate(
        ((0x0000_0008, 0), (0x0000_0040, illegal), (0x0010_0000, illegal), (0x8000_0000, illegal)),
        start=1,
    ):
        entries = (good, Ace(kind, 0, mask, ALICE))
        security = write_descriptor(SecurityDescriptor(dacl=Acl(entries)))
        # As the queue's creator gives it, and as an attribute.
        given = commands.CreateQueue(
            request(), bytes([number]) * 16, b"j" * 16, f".\\given{number}", {}, security, ()
        )
        assert world.one(given).status == status
        assert world.one(creating(f".\\q{number}", number, security=security)).status == status
        plain = world.create(f"plain{number}")
        change = {"security": encode_attribute(security)}
        assert world.one(commands.SetQueue(request(), plain, change, ())).status == status
        assert world.record(plain).security == (b"" if status else security)


# Opening -----------------------------------------------------------------------------------


@pytest.mark.spec("DM-3.1.7.1.5-09", "DM-3.1.7.1.5-10", "DM-3.1.7.1.5-13")
def test_what_is_not_here_is_opened_for_sending_alone_and_only_elsewhere(world: World) -> None:
    taken = world.record(world.create("private$\\inbox")).private_queue_number
    client = world.client()
    here = (
        r"DIRECT=OS:vhost\absent",
        r"DIRECT=OS:VHOST\absent",
        r"DIRECT=OS:vhost\private$\absent",
        r"DIRECT=OS:vhost.example\absent",
        r"DIRECT=TCP:127.0.0.11\absent",
        private(0x0123),
    )
    elsewhere = (
        r"DIRECT=OS:vhost.elsewhere\absent",
        r"DIRECT=OS:vhosts\absent",
        r"DIRECT=OS:host\absent",
        r"DIRECT=TCP:127.0.0.1\absent",
        r"DIRECT=TCP:127.0.0.112\absent",
        private(0x0123, b"o" * 16),
        private(taken, b"o" * 16),
    )
    others = [access for access in QueueAccessType if access is not SEND]
    assert len(others) == 5
    for name in (*here, *elsewhere, f"PUBLIC={OTHER}", f"MACHINE={OTHER};DEADLETTER"):
        for access in others:
            assert status_of(client, name, access) == ABSENT, (name, access)
    for name in here:
        assert status_of(client, name, SEND) == ABSENT, name
    for name in elsewhere:
        assert status_of(client, name, SEND) == 0, name
        for access in (RECEIVE, PEEK, MOVE):
            assert status_of(client, name, access) == ABSENT, "though there is a way to it now"


@pytest.mark.spec("DM-3.1.7.1.5-07")
def test_no_queue_of_a_machine_is_opened_for_sending(world: World) -> None:
    client = world.client()
    for suffix in SUFFIXES:
        for guid in (guid_text(OWN), OTHER):
            assert status_of(client, f"MACHINE={guid};{suffix}", SEND) == UNSUPPORTED
        for access in (RECEIVE, PEEK):
            assert status_of(client, f"MACHINE={guid_text(OWN)};{suffix}", access) == 0
