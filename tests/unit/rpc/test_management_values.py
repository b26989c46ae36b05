"""Values of remote management [MS-MQMR 2.2.3]: of the machine, of local and of outgoing queues."""

import secrets
import struct
import time
from typing import Any

import msgspec
import pytest

from qm.api.gate.operations import Link
from qm.model.queries import find_by_format_name, outgoing_queue
from qm.model.values.elements import OutgoingAdminState, OutgoingQueueState
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2, data_pb2
from qm.rpc.client import RpcClient
from qm.rpc.ndr.types import Arm
from qm.rpc.queue_formats import format_of
from qm.rpc.remote_management.interface import QMMGMT, InfoIn, ManagementObject
from qm.rpc.remote_management.properties import NULL, outgoing_property
from qm.rpc.variants import Variant
from qm.wire.enums import VarType
from qm.wire.message_class import MessageClass
from tests.cluster.harness import free_network, run, until
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.edge.outgoing.world import Peer
from tests.unit.rpc.reading import ORDERS, RpcWorld, rpc_world, with_orders
from tests.unit.rpc.test_remote_management import MACHINE, act, in_world, info, queue

PATHNAME, FORMATNAME, TYPE, LOCATION, XACT, FOREIGN, COUNT, BYTES = range(1, 9)
JOURNAL_COUNT, JOURNAL_BYTES, STATE, NEXTHOPS = range(9, 13)
LAST_ACK, LAST_ACK_TIME, LAST_ACK_COUNT, FIRST_NON_ACK, LAST_NON_ACK, NEXT_SEQ = range(13, 19)
NO_READ, NO_ACK, RESEND_TIME, RESEND_INTERVAL, RESEND_COUNT = range(19, 24)
SOURCE_INFO, HISTORY, SUBQUEUE_COUNT, SUBQUEUE_NAMES = range(24, 28)
ACTIVE, PRIVATE_QUEUES, DIRECTORY, CONNECTED, VERSION, ALL_BYTES = range(1, 7)
AWAY = r"DIRECT=OS:elsewhere.example\private$\q"
PLACE = struct.Struct("<QII")
NO_PLACE = (0, 0, 0)
RECOVERY_S = 60.0
HISTORY_AGE_MAX_S = 900
"""How long ago the module's fixture may have begun."""
FAILED = 0x8000_0000
FIRST_RESEND_S = 30
SENT = 99
"""Beside the properties: packets that the other side has got."""


async def values(
    caller: RpcClient, what: ManagementObject, *numbers: int, given: Variant = NULL
) -> list[Variant]:
    """Return properties with their types."""
    asked = InfoIn(what, len(numbers), list(numbers), [given for _ in numbers])
    found = await caller.call(QMMGMT, 0, asked)
    assert found.status == 0, hex(found.status)
    assert len(found.values) == len(numbers)
    return list(found.values)


async def value(caller: RpcClient, what: ManagementObject, number: int) -> Any:
    (found,) = await values(caller, what, number)
    return found.value


async def machine_guid(world: RpcWorld) -> str:
    manager = (await world.harness.leader()).cluster.view.ledger.manager
    assert manager is not None
    return guid_text(manager.identifier)


# The machine -------------------------------------------------------------------------------


@pytest.mark.spec("MR-2.2.3.1-01", "MR-2.2.3.1-03", "MR-2.2.3.1-05", "MR-2.2.3.1-09")
@pytest.mark.spec("MR-2.2.3.1-10")
def test_the_machine_tells_what_is_in_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        everything = range(1, 7)
        empty = await values(caller, MACHINE, *everything)
        assert (empty[1].kind, empty[1].value) == (0x101F, [])
        for number in (0, 7):
            assert (await info(caller, MACHINE, number))[0] == 0xC00E0039
        await create(client, journaling=True)
        await create(client, r".\public")
        await create(client, r".\private$\emptied")
        await client.send(ORDERS, b"kept", b"taken")
        await client.receive(await client.open(ORDERS))
        await client.open(ORDERS + ";later", access=data_pb2.MOVE_ACCESS)
        await client.send(AWAY, b"out")
        active, private, size = (
            one.value for one in await values(caller, MACHINE, ACTIVE, PRIVATE_QUEUES, ALL_BYTES)
        )
        assert len(active) == 2, "what is open or holds messages, but no journal, no subqueue"
        for name in active:
            assert (await value(caller, queue(name), FORMATNAME)).casefold() == name.casefold()
        assert sorted(private) == [r"QUORATE\private$\emptied", r"QUORATE\private$\orders"]
        parts = [
            await value(caller, queue(name), number)
            for name, number in ((ORDERS, BYTES), (ORDERS, JOURNAL_BYTES), (AWAY, BYTES))
        ]
        assert 0 not in parts
        assert size == sum(parts)

    in_world(scenario)


@pytest.mark.spec("MR-2.2.3.1-06", "MR-2.2.3.1-07", "MR-2.2.3.1-08")
def test_the_machine_tells_what_it_is() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        told = await values(caller, MACHINE, *range(1, 7))
        kinds = [one.kind for one in told]
        assert kinds == [0x101F, 0x101F, VarType.NULL, VarType.LPWSTR, VarType.LPWSTR, VarType.I8]
        assert told[CONNECTED - 1].value == "CONNECTED"
        assert "Quorate" in told[VERSION - 1].value
        assert await act(caller, MACHINE, "DISCONNECT") == 0
        assert await value(caller, MACHINE, CONNECTED) == "DISCONNECTED"

    in_world(scenario)


# Local queues ------------------------------------------------------------------------------


Told = dict[str, dict[int, Variant]]


@pytest.fixture(scope="module")
def local() -> Told:
    """Every property of local queues, by names of all kinds."""
    found: Told = {}

    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await create(client, r".\public", transactional=True)
        await client.send(ORDERS, b"one", b"two")
        later = await client.open(ORDERS + ";later", access=data_pb2.MOVE_ACCESS)
        source = await client.open(ORDERS)
        (seen,) = (await client.peek(source)).messages.properties
        await client.data.Move(
            data_pb2.MoveRequest(
                request=client.next(),
                source_queue_id=source.queue_id,
                lookup_identifier=seen.lookup_identifier,
                target_queue_id=later.queue_id,
            )
        )
        await client.receive(source)
        guid = await machine_guid(world)
        caller = await world.caller(QMMGMT)
        names = {
            "public": await value(caller, queue(r"DIRECT=OS:QUORATE\public"), FORMATNAME),
            "private": await value(caller, queue(ORDERS), FORMATNAME),
            "direct": ORDERS,
            "address": rf"DIRECT=TCP:{world.harness['n1'].host}\private$\orders",
            "later": ORDERS + ";later",
            "journal": ORDERS + ";JOURNAL",
            "machine journal": f"MACHINE={guid};JOURNAL",
            "dead letters": f"MACHINE={guid};DEADLETTER",
            "transactional dead letters": f"MACHINE={guid};DEADXACT",
            "by system path": r"DIRECT=OS:QUORATE\SYSTEM$;DEADXACT",
        }
        for what, name in names.items():
            told = await values(caller, queue(name), *range(1, 28))
            found[what] = dict(zip(range(1, 28), told, strict=True))
            own = found[what][FORMATNAME].value
            assert await value(caller, queue(own), FORMATNAME) == own
            opened = await client.open(own, access=data_pb2.PEEK_ACCESS)
            inside = (await client.peek(opened)).messages.properties
            assert len(inside) == (told[COUNT - 1].value > 0), "it is the queue that is opened"
        for number in (0, 28):
            assert (await info(caller, queue(ORDERS), number))[0] == 0xC00E0039

    in_world(scenario)
    return found


def column(told: Told, number: int) -> dict[str, Any]:
    return {what: properties[number].value for what, properties in told.items()}


@pytest.mark.spec("MR-2.2.3.2-01", "MR-2.2.3.2-04", "MR-2.2.3.2-05", "MR-2.2.3.2-06")
@pytest.mark.spec("MR-2.2.1.5-01")
def test_every_name_of_a_queue_says_what_it_is(local: Told) -> None:
    kinds = column(local, TYPE)
    assert kinds.pop("public") == "PUBLIC"
    private = {kinds.pop(what) for what in ("private", "direct", "address", "later")}
    assert private == {"PRIVATE"}
    assert {*kinds.values()} == {"MACHINE"}
    names = column(local, FORMATNAME)
    assert names["public"].startswith("PUBLIC=")
    assert names["private"].startswith("PRIVATE=")
    assert names["dead letters"].endswith(";DEADLETTER")
    assert names["by system path"] == names["transactional dead letters"]
    kinds_of_all = {one.kind for told in local.values() for one in told.values()}
    assert kinds_of_all == {VarType.NULL, VarType.LPWSTR, VarType.UI4, 0x101F, 0x100C}


@pytest.mark.spec("MR-2.2.3.2-07", "MR-2.2.3.2-08", "MR-2.2.3.2-09", "MR-2.2.3.2-14")
def test_local_queues_are_here_and_say_whether_they_are_transactional(local: Told) -> None:
    assert {*column(local, LOCATION).values()} == {"LOCAL"}
    assert {*column(local, FOREIGN).values()} == {"NO"}
    assert {*column(local, STATE).values()} == {"LOCAL CONNECTION"}
    transactional = {what for what, value in column(local, XACT).items() if value == "YES"}
    assert transactional == {"public", "transactional dead letters", "by system path"}
    assert {*column(local, XACT).values()} == {"YES", "NO"}


@pytest.mark.spec("MR-2.2.3.2-19", "MR-2.2.3.2-36", "MR-3.1.4.1-16", "MR-3.1.4.1-17")
def test_what_only_outgoing_queues_have_is_null(local: Told) -> None:
    for told in local.values():
        nulls = (NEXTHOPS, HISTORY, *range(LAST_ACK, RESEND_COUNT + 1))
        assert {told[number].kind for number in nulls} == {VarType.NULL}
    counts = column(local, COUNT)
    assert {what: counts[what] for what in ("direct", "later", "journal")} == {
        "direct": 0,
        "later": 1,
        "journal": 1,
    }
    assert local["later"][BYTES].value > 0
    assert local["later"][LOCATION].value == "LOCAL"
    assert local["journal"][BYTES].value == local["direct"][JOURNAL_BYTES].value > 0


@pytest.mark.spec("MR-2.2.1.5-02", "MR-2.2.1.5-03", "MR-2.2.1.2-04", "MR-2.2.1.2-05")
@pytest.mark.spec("MR-2.2.2.1-01")
def test_a_queue_is_one_object_under_each_of_its_names() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"out")
        caller = await world.caller(QMMGMT)
        host = world.harness["n1"].host
        names = (
            ORDERS,
            r"DIRECT=OS:quorate\PRIVATE$\ORDERS",
            rf"DIRECT=TCP:{host}\private$\orders",
        )
        told = [await values(caller, queue(name), FORMATNAME, COUNT, LOCATION) for name in names]
        assert told[0] == told[1] == told[2]
        assert await value(caller, queue(AWAY), LOCATION) == "REMOTE"
        # What stands in the place of another kind's arm is not looked at.
        assert (await info(caller, ManagementObject(1, Arm(1, 77)), CONNECTED))[1] == ["CONNECTED"]
        for kind, reserved in ((1, 0), (1, 0xFFFF_FFFF)):
            assert (await info(caller, ManagementObject(kind, Arm(kind, reserved)), 4))[0] == 0
        for nothing in (ManagementObject(2, Arm(2, None)), ManagementObject(3, Arm(3, 0))):
            assert await info(caller, nothing, COUNT) == (0xC00E0006, [None])
            assert await act(caller, nothing, "PAUSE") == 0xC00E0006
        sent = QMMGMT.operations[0].takes.marshal(InfoIn(queue(ORDERS), 1, [COUNT], [NULL]))
        assert sent[:4] == b"\2\0\2\0", "two bytes each: the kind, and that of its arm"

    in_world(scenario)


@pytest.mark.spec("MR-2.2.1.3-01")
def test_a_group_s_name_is_of_an_outgoing_queue_or_of_none() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        parsed: Any = parse_format_name("MULTICAST=239.0.0.1:1801")
        group = ManagementObject(2, Arm(2, format_of(parsed)))
        caller = await world.caller(QMMGMT)
        assert await info(caller, group, COUNT) == (0xC00E0003, [None])
        assert await act(caller, group, "PAUSE") == 0xC00E0003

    in_world(scenario)


@pytest.mark.spec(
    "MR-2.2.3.2-11", "MR-2.2.3.2-12", "MR-2.2.3.2-13", "MR-2.2.3.2-35", "MR-3.1.4.1-12"
)
def test_what_is_in_a_queue_its_journal_and_its_subqueues() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        asked = (COUNT, BYTES, JOURNAL_COUNT, JOURNAL_BYTES, SUBQUEUE_COUNT, SUBQUEUE_NAMES)
        await create(client)
        told = await values(caller, queue(ORDERS), *asked)
        assert [one.kind for one in told] == [*[VarType.UI4] * 5, VarType.VECTOR_LPWSTR]
        assert [one.value for one in told] == [0, 0, 0, 0, 0, []]
        name = control_pb2.QueueName(name=r".\private$\orders")

        async def journaling(is_on: bool) -> None:
            changes = {"journaling": control_pb2.Value(flag=is_on)}
            await client.queues.SetQueue(control_pb2.SetQueueRequest(queue=name, changes=changes))

        await journaling(True)
        opened = await client.open(ORDERS)
        await client.send(ORDERS, *[b"x" * 100] * 5)
        await client.receive(opened, 2)
        for short in ("later", "sooner"):
            await client.open(f"{ORDERS};{short}", access=data_pb2.MOVE_ACCESS)
        await create(client, r".\private$\other")
        other = r"DIRECT=OS:QUORATE\private$\other;third"
        await client.open(other, access=data_pb2.MOVE_ACCESS)
        count, size, journal_count, journal_size, subqueues, names = (
            one.value for one in await values(caller, queue(ORDERS), *asked)
        )
        assert (count, journal_count, subqueues) == (3, 2, 2)
        assert sorted(names) == ["later", "sooner"]
        assert size * 2 == journal_size * 3 > 600
        # What is in the journal stays there, and is still counted [MS-MQMR 3.1.4.1].
        await journaling(False)
        await client.receive(opened)
        told = [one.value for one in await values(caller, queue(ORDERS), *asked)]
        assert told[:4] == [2, size * 2 // 3, 2, 0]
        assert await value(caller, queue(ORDERS + ";JOURNAL"), BYTES) == journal_size
        # What waits for another queue manager has no journal, whatever waits.
        await client.send(AWAY, b"out")
        away = [one.value for one in await values(caller, queue(AWAY), *asked)]
        assert away[0] == 1
        assert away[2:4] == [0, 0]

    in_world(scenario)


# Outgoing queues ---------------------------------------------------------------------------


async def send_in_transaction(
    client: Client, name: str, *bodies: bytes, **properties: bool
) -> None:
    transaction = secrets.token_bytes(16)
    await client.data.BeginTransaction(
        data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
    )
    await client.send(name, *bodies, transaction=transaction, **properties)
    await client.data.CommitTransaction(
        data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
    )


@pytest.fixture(scope="module")
def outgoing() -> Told:
    """Properties of outgoing queues, while the other side acknowledges, does not, and is gone."""
    found: Told = {}

    async def scenario(world: RpcWorld, client: Client, peer: Peer) -> None:
        caller = await world.caller(QMMGMT)

        async def keep(stage: str, what: str = peer.address) -> None:
            told = await values(caller, queue(what), *range(1, 28))
            found[stage] = dict(zip(range(1, 28), told, strict=True))
            found[stage][SENT] = Variant(VarType.UI4, len(peer.raw))

        async def told(number: int) -> Any:
            return await value(caller, queue(peer.address), number)

        async def failures() -> list[int]:
            return [status for status in (await told(HISTORY))[0].value if status >= FAILED]

        async def resent(sent: int) -> None:
            assert await act(caller, queue(peer.address), "EOD_RESEND") == 0
            if sent:
                await until(lambda: len(peer.raw) >= sent)

        await client.send(AWAY, b"out")
        await keep("plain", AWAY)
        # They wait for their final acknowledgements, and keep the sequence alive.
        await send_in_transaction(client, peer.address, b"1", b"2", dead_letter=True)
        await eventually(lambda: told(NO_READ), lambda one: one == 2)
        # Their session acknowledgements may come behind their order acknowledgements.
        await eventually(lambda: told(NO_ACK), lambda one: one == 0)
        await keep("acknowledged")
        await resent(0)
        await keep("nothing resent")
        peer.is_order_acking = False
        await send_in_transaction(client, peer.address, b"3", b"4")
        await eventually(lambda: told(NO_ACK), lambda one: one == 2)
        await keep("waiting")
        await resent(6)
        await keep("resent")
        peer.send_order_ack(upto=1)
        await eventually(lambda: told(NO_ACK), lambda one: one == 1)
        await keep("partly")
        await peer.shut()
        await eventually(failures, bool)
        await eventually(lambda: told(STATE), lambda one: one != "CONNECTED")
        await keep("gone")
        assert await act(caller, queue(peer.address), "PAUSE") == 0
        await send_in_transaction(client, peer.address, b"5", b"6")
        await keep("paused")
        peer.is_order_acking = True
        await peer.open()
        assert await act(caller, queue(peer.address), "RESUME") == 0
        await eventually(lambda: told(COUNT), lambda one: one == 2, RECOVERY_S)
        for message in peer.taken[:2]:
            peer.send_final_ack(message, MessageClass.ACK_RECEIVE)
        await eventually(lambda: told(COUNT), lambda one: one == 0)
        await keep("back")
        assert peer.bodies == [1, 2, 3, 4, 5, 6]

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world() as made,
            made.client(await made.leader()) as client,
        ):
            await scenario(made, client, peer)
            found["acknowledged"][0] = Variant(VarType.LPWSTR, peer.host)

    run(main())
    return found


def place(told: dict[int, Variant], number: int) -> tuple[int, int, int] | None:
    """Return sequence, number and the one before."""
    raw = told[number].value
    if raw is None:
        assert told[number].kind is VarType.NULL
        return None
    assert (told[number].kind, len(raw)) == (VarType.BLOB, 16)
    sequence, own, previous = PLACE.unpack(raw)
    return sequence, own, previous


@pytest.mark.spec("MR-2.2.3.2-15", "MR-2.2.3.2-16", "MR-2.2.3.2-18", "MR-2.2.3.2-03")
@pytest.mark.spec("MQ-2.3.12.12-01")
def test_an_outgoing_queue_tells_its_state_and_where_it_goes(outgoing: Told) -> None:
    states = column(outgoing, STATE)
    assert (states["acknowledged"], states["paused"]) == ("CONNECTED", "ONHOLD")
    assert {states["gone"], states["plain"]} <= {
        *("INACTIVE", "WAITING", "NEED VALIDATION", "DISCONNECTED", "DISCONNECTING")
    }
    hops = outgoing["acknowledged"][NEXTHOPS]
    host = outgoing["acknowledged"][0].value
    assert (hops.kind, hops.value) == (VarType.VECTOR_LPWSTR, [f"IP={host}"])
    assert outgoing["paused"][NEXTHOPS].kind is VarType.NULL
    assert {told[PATHNAME].kind for told in outgoing.values()} == {VarType.NULL}
    assert {*column(outgoing, LOCATION).values()} == {"REMOTE"}


@pytest.mark.spec("MR-2.2.3.2-05", "MR-2.2.3.2-07", "MR-2.2.3.2-08", "MR-2.2.3.2-09")
def test_outgoing_queues_are_elsewhere_and_may_not_be_known(outgoing: Told) -> None:
    assert {*column(outgoing, TYPE).values()} == {"PRIVATE"}
    assert {*column(outgoing, LOCATION).values()} == {"REMOTE"}
    assert {*column(outgoing, FOREIGN).values()} == {"NO"}
    assert {outgoing["plain"][XACT].value} == {"UNKNOWN"}
    assert {told[XACT].value for what, told in outgoing.items() if what != "plain"} == {"YES"}


@pytest.mark.spec("MR-2.2.3.2-20", "MR-2.2.3.2-21", "MR-2.2.3.2-24", "MR-2.2.3.2-25")
@pytest.mark.spec("MR-2.2.3.2-27")
def test_places_of_a_sequence_are_blobs_of_three_numbers(outgoing: Told) -> None:
    sequence, *last = place(outgoing["acknowledged"], LAST_ACK) or NO_PLACE
    assert last == [2, 1]
    assert place(outgoing["acknowledged"], NEXT_SEQ) == (sequence, 3, 2)
    for stage in ("acknowledged", "back", "plain"):
        assert place(outgoing[stage], FIRST_NON_ACK) is None
        assert place(outgoing[stage], LAST_NON_ACK) is None
        assert outgoing[stage][NO_ACK].value == 0
    waiting = outgoing["waiting"]
    assert place(waiting, LAST_ACK) is None, "a sequence of which nothing is acknowledged"
    newer, *first = place(waiting, FIRST_NON_ACK) or NO_PLACE
    assert newer > sequence
    assert first == [1, 0]
    assert place(waiting, LAST_NON_ACK) == (newer, 2, 1)
    assert place(waiting, NEXT_SEQ) == (newer, 3, 2)
    assert (waiting[NO_ACK].kind, waiting[NO_ACK].value) == (VarType.UI4, 2)
    partly = outgoing["partly"]
    assert place(partly, LAST_ACK) == (newer, 1, 0)
    assert place(partly, FIRST_NON_ACK) == place(partly, LAST_NON_ACK) == (newer, 2, 1)
    assert partly[NO_ACK].value == 1
    assert place(outgoing["back"], LAST_ACK) == (newer, 4, 3)


@pytest.mark.spec("MR-2.2.3.2-22", "MR-2.2.3.2-23", "MR-2.2.3.2-28", "MR-2.2.3.2-29")
@pytest.mark.spec("MR-2.2.3.2-37")
def test_times_and_counts_of_acknowledgements_and_resends(outgoing: Told) -> None:
    told = outgoing["acknowledged"]
    assert told[LAST_ACK_TIME].kind is VarType.I4
    assert abs(told[LAST_ACK_TIME].value - time.time()) < 600
    assert told[LAST_ACK_COUNT].kind is VarType.UI4
    assert 1 <= told[LAST_ACK_COUNT].value <= 2
    assert outgoing["partly"][LAST_ACK_COUNT].value > told[LAST_ACK_COUNT].value
    assert outgoing["back"][LAST_ACK_COUNT].value >= 1
    assert (told[RESEND_TIME].kind, told[RESEND_TIME].value) == (VarType.I4, 0)
    assert (told[RESEND_INTERVAL].kind, told[RESEND_COUNT].kind) == (VarType.UI4, VarType.UI4)
    waiting = outgoing["waiting"]
    due_s = waiting[RESEND_TIME].value - told[LAST_ACK_TIME].value
    assert 0 < due_s <= waiting[RESEND_INTERVAL].value + 60, "in seconds of the same clock"
    assert waiting[RESEND_INTERVAL].value == FIRST_RESEND_S, "in seconds, too"
    for number in range(LAST_ACK, RESEND_COUNT + 1):
        assert outgoing["plain"][number].value in (None, 0), number


@pytest.mark.spec("MR-2.2.3.2-26", "MR-3.1.4.2-11", "MR-3.1.4.2-14", "MR-3.1.4.2-15")
@pytest.mark.spec("MQ-2.3.12-02")
def test_what_waits_is_sent_again_when_it_is_asked_for_and_in_order(outgoing: Told) -> None:
    sent = column(outgoing, SENT)
    assert sent["acknowledged"] == sent["nothing resent"] == 2
    assert (sent["waiting"], sent["resent"]) == (4, 6)
    assert outgoing["waiting"][RESEND_TIME].value > time.time() - 60, "none was due by itself"
    assert outgoing["paused"][COUNT].value == 5
    for stage, unread in (("acknowledged", 2), ("waiting", 2), ("partly", 2), ("back", 0)):
        told = outgoing[stage][NO_READ]
        assert (told.kind, told.value) == (VarType.UI4, unread), stage


@pytest.mark.spec("MQ-2.3.12-01", "MQ-2.3.12-02")
def test_what_order_acknowledgements_left_is_told_as_it_is(outgoing: Told) -> None:
    stages = [outgoing[one] for one in ("acknowledged", "partly", "back")]
    counts = [told[LAST_ACK_COUNT].value for told in stages]
    assert 0 < counts[0] < counts[1]
    assert counts[2] >= 1, "a new session counts anew"
    times = [told[LAST_ACK_TIME].value for told in stages]
    assert time.time() - 600 < times[0] <= times[1] <= times[2] <= time.time() + 1
    waiting = outgoing["waiting"]
    assert waiting[RESEND_INTERVAL].value == FIRST_RESEND_S
    assert 0 < waiting[RESEND_TIME].value - times[0] <= FIRST_RESEND_S + 60


@pytest.mark.spec("MR-2.2.3.2-33", "MR-2.2.3.2-34", "MQ-2.3.12.25-01", "MQ-2.3.12.25-02")
@pytest.mark.spec("MQ-2.3.12.25-03")
def test_a_connection_has_a_history_of_four_columns(outgoing: Told) -> None:
    host = outgoing["acknowledged"][0].value
    for stage in ("acknowledged", "gone", "back"):
        told = outgoing[stage][HISTORY]
        assert told.kind is VarType.VECTOR_VARIANT
        assert [one.kind for one in told.value] == [
            *(VarType.VECTOR_UI4, VarType.VECTOR_I4, VarType.VECTOR_I4, VarType.VECTOR_VARIANT)
        ]
        statuses, times, errors, addresses = (one.value for one in told.value)
        assert len(statuses) == len(times) == len(errors) == len(addresses)
        assert times == sorted(times)
        assert int(time.time()) - HISTORY_AGE_MAX_S < times[0] <= times[-1] <= int(time.time()) + 1
        assert {*statuses} <= {0, 1, 2, *range(FAILED, FAILED + 14)}
        for status, error in zip(statuses, errors, strict=True):
            assert (status >= FAILED) is (error != 0)
        assert {tuple(one.value) for one in addresses} == {(host,)}
    begun = outgoing["acknowledged"][HISTORY].value[0].value
    assert begun[:3] == [0, 1, 2], "begun, answered, ready"
    gone = outgoing["gone"][HISTORY].value[0].value
    assert {status for status in gone if status >= FAILED} == {FAILED + 4}, "no socket connects"


@pytest.mark.spec("MR-2.2.3.2-15", "MR-2.2.3.2-17")
def test_a_locked_queue_is_told_as_inactive() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await client.send(AWAY, b"out")
        view = (await world.harness.leader()).cluster.view
        known = outgoing_queue(view, find_by_format_name(view, AWAY).queue_id)
        assert known is not None
        told = {one: outgoing_property(known, Link(one), STATE).value for one in OutgoingQueueState}
        assert told == {
            OutgoingQueueState.INACTIVE: "INACTIVE",
            OutgoingQueueState.LOCKED: "INACTIVE",
            OutgoingQueueState.NEED_VALIDATION: "NEED VALIDATION",
            OutgoingQueueState.WAITING: "WAITING",
            OutgoingQueueState.CONNECTED: "CONNECTED",
            OutgoingQueueState.DISCONNECTING: "DISCONNECTING",
            OutgoingQueueState.DISCONNECTED: "DISCONNECTED",
            OutgoingQueueState.ON_HOLD: "ONHOLD",
        }
        locked = msgspec.structs.replace(known, admin_state=OutgoingAdminState.LOCKED)
        assert outgoing_property(locked, None, STATE).value == "INACTIVE"

    in_world(scenario)


@pytest.mark.spec("MR-2.2.3.2-30", "MR-2.2.3.2-31", "MR-2.2.3.2-32", "MQ-2.3.12.24-01")
def test_streams_into_a_queue_are_six_columns() -> None:
    async def main() -> None:
        async with (
            rpc_world() as sending,
            rpc_world() as made,
            made.client(await made.leader()) as client,
            sending.client(await sending.leader()) as sender,
        ):
            await create(client, transactional=True)
            caller = await made.caller(QMMGMT)

            async def told() -> list[Variant]:
                (found,) = await values(caller, queue(ORDERS), SOURCE_INFO)
                assert found.kind is VarType.VECTOR_VARIANT
                assert [one.kind for one in found.value] == [
                    *(VarType.VECTOR_LPWSTR, VarType.VECTOR_CLSID, VarType.VECTOR_UI8),
                    *(VarType.VECTOR_UI4, VarType.VECTOR_I4, VarType.VECTOR_UI4),
                ]
                return list(found.value)

            assert [list(one.value) for one in await told()] == [[]] * 6
            host = made.harness["n1"].host
            names = [rf"DIRECT=TCP:{host}\private$\orders", rf"DIRECT=OS:{host}\private$\orders"]
            for name, bodies in zip(names, ([b"1", b"2", b"3"], [b"4"]), strict=True):
                await send_in_transaction(sender, name, *bodies)
            columns = await eventually(told, lambda one: sorted(one[3].value) == [1, 3])
            formats, senders, sequences, numbers, times, rejects = (one.value for one in columns)
            assert sorted(name.casefold() for name in formats) == sorted(
                name.casefold() for name in names
            )
            manager = sending.harness["n1"].cluster.view.ledger.manager
            assert manager is not None
            assert senders == [manager.identifier] * 2
            assert len({*sequences}) == 2
            assert numbers[0 if "TCP" in formats[0].upper() else 1] == 3
            assert all(abs(one - time.time()) < 600 for one in times)
            assert rejects == [0, 0]

    run(main())
