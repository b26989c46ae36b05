"""Rules of remote management [MS-MQMR], each where it could be broken alone."""

import asyncio
import re
import secrets
import struct
from typing import Any

import pytest

from qm.names.format_name import PrivateName, format_name_text
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2, control_pb2_grpc, data_pb2
from qm.rpc.client import RpcClient
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import Arm
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_management.interface import QMMGMT, ActionIn, InfoIn, ManagementObject
from qm.rpc.remote_management.properties import NULL
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.variants import Variant
from qm.wire.enums import VarType
from qm.wire.packets.user_message import parse_user_message
from tests.cluster.harness import free_network, run, until
from tests.cluster.messages import batch, create_queue, propose
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.edge.outgoing.world import Peer
from tests.unit.rpc.reading import ORDERS, RPC_PORT, RpcWorld, rpc_world, with_orders
from tests.unit.rpc.test_management_calls import (
    ACTIONS,
    BAD_STUB,
    DENIED,
    ILLEGAL,
    INVALID,
    UNAVAILABLE,
    UNKNOWN,
    caller_at,
)
from tests.unit.rpc.test_management_values import (
    ALL_BYTES,
    AWAY,
    CONNECTED,
    COUNT,
    FAILED,
    FORMATNAME,
    HISTORY,
    LAST_ACK_COUNT,
    LAST_ACK_TIME,
    LOCATION,
    NEXTHOPS,
    NO_ACK,
    NO_READ,
    RESEND_COUNT,
    RESEND_INTERVAL,
    RESEND_TIME,
    SOURCE_INFO,
    STATE,
    TYPE,
    machine_guid,
    send_in_transaction,
    value,
    values,
)
from tests.unit.rpc.test_remote_management import MACHINE, SESSION, act, in_world, info, queue

GUID = "6B29FC40-CA47-1067-B31D-00DD010662DA"
NOWHERE = r"DIRECT=OS:nowhere.example\private$\q"
QUIET = r"DIRECT=OS:quiet.example\private$\q"
NONE = r"DIRECT=OS:QUORATE\private$\none"
EXACT = r"DIRECT=OS:QUORATE\private$\exact"
OTHER = r"DIRECT=OS:QUORATE\private$\other"
NUMBERS = range(1, 28)
VT_NULL, VT_I8 = 1, 20
ROUNDS = 20
GIVEN = (NULL, Variant(VarType.UI4, 7), Variant(VarType.LPWSTR, "seven"))
"""What a request may have in the places of the answers."""


async def answer(
    caller: RpcClient, what: ManagementObject, *numbers: int, given: Variant = NULL
) -> tuple[int, list[Variant]]:
    """Return status and values, with their types."""
    asked = InfoIn(what, len(numbers), list(numbers), [given for _ in numbers])
    found = await caller.call(QMMGMT, 0, asked)
    return found.status, found.values


# Protection and stubs ------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4-05")
def test_calls_need_integrity_and_nothing_less_will_do() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"out")
        node = await world.harness.leader()
        for level in (AuthLevel.CONNECT, AuthLevel.PACKET):
            caller = await RpcClient().connect(node.host, RPC_PORT)
            provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
            await caller.bind(QMMGMT, provider=provider, auth_type=AuthType.NTLM, level=level)
            for what in (MACHINE, queue(ORDERS), queue(AWAY)):
                with pytest.raises(Fault) as low:
                    await info(caller, what, 4)
                assert low.value.status == 5
                with pytest.raises(Fault) as low:
                    await act(caller, what, "PAUSE")
                assert low.value.status == 5
        enough = await RpcClient().connect(node.host, RPC_PORT)
        provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
        await enough.bind(
            QMMGMT, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.INTEGRITY
        )
        assert await info(enough, queue(AWAY), LOCATION) == (0, ["REMOTE"])
        assert await value(enough, queue(AWAY), STATE) != "ONHOLD"
        assert await act(enough, queue(AWAY), "PAUSE") == 0

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-01", "MR-3.1.4-01")
def test_an_action_is_a_string_that_ends_where_it_says() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        head = QMMGMT.operations[1].takes.marshal(ActionIn(MACHINE, "TIDY"))[:8]

        def asking(room: int, offset: int, actual: int, text: str) -> bytes:
            counts = struct.pack("<III", room, offset, actual)
            return head + counts + text.encode("utf-16-le")

        for room in (5, 6, 200):
            assert await caller.raw_call(QMMGMT, 1, asking(room, 0, 5, "TIDY\0")) == bytes(4)
        for bad in (
            asking(4, 0, 5, "TIDY\0"),  # more than there is room for
            asking(6, 1, 5, "TIDY\0"),  # not from the start
            asking(4, 0, 4, "TIDY"),  # without an end
            asking(5, 0, 5, "TI\0Y\0"),  # which ends before
            asking(6, 0, 6, "TIDY\0\0"),
            asking(0, 0, 0, ""),
            asking(5, 0, 5, "TIDY"),
        ):
            with pytest.raises(Fault) as refused:
                await caller.raw_call(QMMGMT, 1, bad)
            assert refused.value.status == BAD_STUB

    in_world(scenario)


@pytest.mark.spec("MR-2.2.1.2-04")
def test_what_stands_in_reserved_is_not_looked_at() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        for reserved in (0, 1, 0x1234_5678, 0xFFFF_FFFF):
            machine, session = (ManagementObject(kind, Arm(kind, reserved)) for kind in (1, 3))
            assert await info(caller, machine, CONNECTED) == (0, ["CONNECTED"])
            assert await act(caller, machine, "TIDY") == 0
            assert await act(caller, machine, "CONNECT") == 0
            assert await info(caller, session, COUNT) == (INVALID, [None])
            assert await act(caller, session, "TIDY") == INVALID

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4-08")
def test_queues_of_the_machine_are_told_to_whom_its_properties_are() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        guid = await machine_guid(world)
        alice, bob = await world.caller(QMMGMT), await world.caller(QMMGMT, "bob")
        every = control_pb2.Ace(principal="Administrators", rights=["machine_generic_all"])
        seeing = ["peek_deadletter_message", "peek_journal_queue_message", "create_queue"]
        for rights, answered in (
            (seeing, (DENIED, [None])),
            (["get_machine_properties"], (0, [0])),
        ):
            his = control_pb2.Ace(principal="bob", rights=rights)
            await client.queues.SetAcl(control_pb2.SetAclRequest(entries=[every, his]))
            for suffix in ("JOURNAL", "DEADLETTER", "DEADXACT"):
                name = f"MACHINE={guid};{suffix}"
                assert await info(bob, queue(name), COUNT) == answered, (rights, suffix)
                assert await info(alice, queue(name), COUNT) == (0, [0])

    in_world(scenario)


# What is refused ---------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4.1-03", "MR-3.1.4.1-07", "MR-3.1.4.1-09", "MR-3.1.4.1-10")
def test_whatever_is_refused_is_told_by_nulls_alone() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"out")
        own = (await world.harness.leader()).cluster.view.ledger.manager
        assert own is not None
        callers = {user: await world.caller(QMMGMT, user) for user in ("alice", "bob")}
        private = format_name_text(PrivateName(own.identifier, 0x0123_4567))
        unknown = (NONE, NOWHERE, private, f"PUBLIC={GUID}", f"PRIVATE={GUID}\\00000010")
        more = (f"MACHINE={GUID};JOURNAL", ORDERS + ";none", NONE + ";JOURNAL")
        for user, what, numbers, wanted in (
            ("alice", SESSION, (COUNT, STATE), INVALID),
            ("alice", ManagementObject(2, Arm(2, None)), (COUNT,), INVALID),
            *(("alice", MACHINE, (6, number), ILLEGAL) for number in (0, 7, 0xFFFF_FFFF)),
            *(
                ("alice", queue(name), (COUNT, number, STATE), ILLEGAL)
                for name in (ORDERS, AWAY)
                for number in (0, 28, 0xFFFF_FFFF)
            ),
            *(("alice", queue(name), (COUNT, STATE), UNKNOWN) for name in (*unknown, *more)),
            ("bob", MACHINE, (CONNECTED, ALL_BYTES), DENIED),
            ("bob", queue(AWAY), (COUNT, STATE), DENIED),
        ):
            for given in GIVEN:
                status, told = await answer(callers[user], what, *numbers, given=given)
                assert status == wanted
                assert [(one.kind, one.value) for one in told] == [(VT_NULL, None)] * len(numbers)
        # And what is answered has nothing of what was given.
        for given in GIVEN:
            told = await values(
                callers["alice"], queue(ORDERS), COUNT, NEXTHOPS, STATE, given=given
            )
            assert told == [
                *(Variant(VarType.UI4, 1), NULL, Variant(VarType.LPWSTR, "LOCAL CONNECTION")),
            ]

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-03", "MR-3.1.4.2-16")
def test_what_is_no_action_or_has_no_queue_changes_nothing() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"out")
        caller = await world.caller(QMMGMT)

        async def seen() -> list[Any]:
            found = [await info(caller, queue(ORDERS), *range(1, 12))]
            found.append(await info(caller, queue(AWAY), *range(2, 9)))
            held = (await info(caller, queue(AWAY), STATE))[1] == ["ONHOLD"]
            return [*found, held, await info(caller, MACHINE, 1, 2, 4, 6)]

        async def is_refused() -> None:
            before = await seen()
            for what in (MACHINE, queue(ORDERS), queue(AWAY)):
                for action in (
                    *("ERASE", "", "PAUSED", "PAUS", " RESUME", "RESUME ", "CONNECTED"),
                    *("DISCONNECTS", "TIDYUP", "EOD", "EOD_RESEND2", "NORMAL", "ON_HOLD"),
                ):
                    assert await act(caller, what, action) == INVALID, action
            for name in (NONE, NOWHERE, f"PUBLIC={GUID}", f"PRIVATE={GUID}\\00000010"):
                for action in ACTIONS[3:]:
                    assert await act(caller, queue(name), action) == UNKNOWN, (name, action)
            assert await seen() == before

        await is_refused()
        assert await act(caller, queue(AWAY), "PAUSE") == 0
        assert await act(caller, MACHINE, "DISCONNECT") == 0
        assert (await seen())[2:] == [True, (0, (await info(caller, MACHINE, 1, 2, 4, 6))[1])]
        assert (await info(caller, MACHINE, CONNECTED))[1] == ["DISCONNECTED"]
        await is_refused()

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-19")
def test_each_action_of_each_result_leaves_its_event() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        await client.send(AWAY, b"out")
        own, session = "the queue manager", "a session"
        acts = (
            *(("alice", MACHINE, own, one, 0) for one in ("DISCONNECT", "CONNECT", "TIDY")),
            *(("alice", queue(AWAY), AWAY, one, 0) for one in ACTIONS[3:]),
            ("alice", MACHINE, own, "ERASE", INVALID),
            ("alice", MACHINE, own, "PAUSE", INVALID),
            ("alice", SESSION, session, "TIDY", INVALID),
            ("alice", queue(ORDERS), ORDERS, "PAUSE", INVALID),
            ("alice", queue(NONE), NONE, "RESUME", UNKNOWN),
            ("alice", queue(NOWHERE), NOWHERE, "EOD_RESEND", UNKNOWN),
            ("bob", queue(AWAY), AWAY, "PAUSE", DENIED),
            ("bob", MACHINE, own, "TIDY", DENIED),
        )
        callers = {user: await world.caller(QMMGMT, user) for user in ("alice", "bob")}
        for user, what, _, action, wanted in acts:
            assert await act(callers[user], what, action) == wanted
        stub = control_pb2_grpc.ClusterControlStub(client.channel)

        async def told() -> list[Any]:
            listed = await stub.ListEvents(control_pb2.ListEventsRequest(kinds=["control"]))
            return [one for one in listed.events if one.name == "RemoteManagement"]

        events = await eventually(told, lambda found: len(found) >= len(acts))
        assert [(one.principal.rpartition("\\")[2], one.text.casefold()) for one in events] == [
            (user, f"{action} of {what} from 127.0.0.1: {status:08X}".casefold())
            for user, _, what, action, status in acts
        ]

    in_world(scenario)


# Nodes -------------------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4.1-13", "MR-3.1.4.2-20")
def test_nodes_tell_alike_what_their_leader_knows_and_act_alike() -> None:
    async def scenario(world: RpcWorld, client: Client, peer: Peer) -> None:
        away = queue(peer.address)
        leader, others = await world.harness.leader(), await world.harness.followers()
        callers = [await caller_at(node) for node in (leader, *others)]

        async def told(number: int) -> Any:
            return await value(callers[0], away, number)

        await with_orders(client, b"one")
        await send_in_transaction(client, peer.address, b"1", b"2", dead_letter=True)
        await eventually(lambda: told(NO_READ), lambda one: one == 2)
        await eventually(lambda: told(NO_ACK), lambda one: one == 0)
        peer.is_order_acking = False
        await send_in_transaction(client, peer.address, b"3")
        await eventually(lambda: told(NO_ACK), lambda one: one == 1)
        await until(lambda: len(peer.raw) == 3)

        async def everything() -> list[Any]:
            return [
                [
                    await answer(each, away, *NUMBERS),
                    await answer(each, queue(ORDERS), *NUMBERS),
                    await answer(each, MACHINE, *range(1, 7)),
                ]
                for each in callers
            ]

        # Seconds may pass between the answers.
        found = await eventually(everything, lambda one: one[0] == one[1] == one[2])
        for (status, properties), _, _ in found:
            assert status == 0
            known = dict(zip(NUMBERS, properties, strict=True))
            assert known[NEXTHOPS] == Variant(VarType.VECTOR_LPWSTR, [f"IP={peer.host}"])
            assert known[HISTORY].value[0].value[:3] == [0, 1, 2]
            assert known[STATE].value == "CONNECTED"
            timed = (LAST_ACK_TIME, LAST_ACK_COUNT, RESEND_TIME, RESEND_INTERVAL)
            assert all(known[number].value > 0 for number in timed)

        async def sent(count: int) -> None:
            await until(lambda: len(peer.raw) == count)

        for count, each in enumerate(callers, start=4):
            assert await act(each, away, "EOD_RESEND") == 0
            await sent(count)
        assert await told(RESEND_COUNT) == 0, "none was due by itself"
        for holder, other in zip(callers, (*callers[1:], callers[0]), strict=True):
            assert await act(holder, away, "PAUSE") == 0
            assert [await value(each, away, STATE) for each in callers] == ["ONHOLD"] * 3
            assert await act(other, away, "RESUME") == 0
            assert "ONHOLD" not in [await value(each, away, STATE) for each in callers]
            assert await act(holder, MACHINE, "DISCONNECT") == 0
            connected = [await value(each, MACHINE, CONNECTED) for each in callers]
            assert connected == ["DISCONNECTED"] * 3
            assert await act(other, MACHINE, "CONNECT") == 0
            connected = [await value(each, MACHINE, CONNECTED) for each in callers]
            assert connected == ["CONNECTED"] * 3
            assert await act(holder, MACHINE, "TIDY") == 0

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world(3) as made,
            made.client(await made.leader()) as client,
        ):
            await scenario(made, client, peer)

    run(main())


@pytest.mark.spec("MR-3.1.4.1-14", "MR-3.1.4.1-15", "MR-3.1.4.1-10")
def test_no_answer_is_older_than_what_a_majority_knows() -> None:
    async def main() -> None:
        async with rpc_world(3) as made:
            leader, (one, other) = await made.leader(), await made.harness.followers()
            async with made.client(leader) as client:
                await with_orders(client)
                await client.send(AWAY, b"out")
                callers = [await caller_at(node) for node in (one, other)]
                for count in range(1, ROUNDS + 1):
                    await client.send(ORDERS, b"more")
                    told = [await info(each, queue(ORDERS), COUNT) for each in callers]
                    assert told == [(0, [count])] * 2
            asked = (
                *((MACHINE, number) for number in (1, 2, 3, CONNECTED, 5, ALL_BYTES)),
                *((queue(name), COUNT) for name in (ORDERS, AWAY, NONE)),
                (queue(ORDERS), LOCATION),
            )
            alone = [(await caller_at(other), *each) for each in asked]
            await made.harness.kill(one.name)
            await made.harness.kill(leader.name)
            found = await asyncio.gather(*(answer(*each, given=GIVEN[1]) for each in alone))
            assert found == [(UNAVAILABLE, [NULL])] * len(asked)

    run(main())


# Values ------------------------------------------------------------------------------------


@pytest.mark.spec("MR-2.2.3.2-34")
def test_what_ends_a_try_to_connect_is_told_by_its_number() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        for name, number in (
            (r"DIRECT=OS:nobody.invalid\private$\q", FAILED + 8),  # no address
            (rf"DIRECT=TCP:{free_network()}.13\private$\q", FAILED + 4),  # nobody listens
        ):
            await client.send(name, b"out")

            async def failures(name: str = name) -> list[int]:
                told = await value(caller, queue(name), HISTORY)
                statuses = told[0].value if told else []
                return [status for status in statuses if status >= FAILED]

            assert {*await eventually(failures, bool)} == {number}

    in_world(scenario)


@pytest.mark.spec("MR-2.2.3.2-30", "MR-2.2.3.2-32")
def test_a_stream_is_told_of_the_queue_that_it_leads_to_alone() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        node = await world.harness.leader()
        for name in ("exact", "other"):
            await create_queue(node, name, transactional=True)
        caller = await world.caller(QMMGMT)

        async def columns(name: str) -> list[list[Any]]:
            (found,) = await values(caller, queue(name), SOURCE_INFO)
            assert [one.kind for one in found.value] == [
                *(0x101F, 0x1048, 0x1015, 0x1013, 0x1003, 0x1013),
            ]
            return [list(one.value) for one in found.value]

        await propose(node, batch("exact", [1], 1, sequence=(9, 1, 0)))
        assert [len(one) for one in await columns(EXACT)] == [1] * 6
        assert await columns(OTHER) == [[]] * 6
        await propose(node, batch("other", [2], 2, sequence=(10, 1, 0)))
        for name, sequence in ((EXACT, 9), (OTHER, 10)):
            formats, _, sequences, numbers, _, rejects = await columns(name)
            assert [one.casefold() for one in formats] == [name.casefold()]
            assert (sequences, numbers, rejects) == ([sequence], [1], [0])

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.1-16", "MR-3.1.4.1-17")
def test_queues_of_the_machine_and_parts_of_queues_are_told_apart_by_their_suffixes() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await client.send(ORDERS, *[b"x" * 100] * 3)
        await client.receive(await client.open(ORDERS), 2)
        caller, guid = await world.caller(QMMGMT), await machine_guid(world)
        host = world.harness["n1"].host
        for suffix in ("JOURNAL", "DEADLETTER", "DEADXACT"):
            own = f"MACHINE={guid};{suffix}"
            names = (
                own,
                rf"DIRECT=OS:QUORATE\SYSTEM$;{suffix}",
                rf"DIRECT=TCP:{host}\system$;{suffix}",
            )
            for name in names:
                path, format_name, kind, where, count = (
                    one.value for one in await values(caller, queue(name), 1, 2, 3, 4, 7)
                )
                assert path.casefold() == rf"QUORATE\system$;{suffix}".casefold()
                assert format_name.casefold() == own.casefold()
                assert (kind, where, count) == ("MACHINE", "LOCAL", 0)
        whole = await value(caller, queue(ORDERS), FORMATNAME)
        for name in (ORDERS, rf"DIRECT=TCP:{host}\private$\orders"):
            told = await values(caller, queue(name + ";JOURNAL"), FORMATNAME, TYPE, LOCATION, COUNT)
            assert [one.value for one in told] == [whole + ";JOURNAL", "MACHINE", "LOCAL", 2]
            assert await value(caller, queue(name), COUNT) == 1

    in_world(scenario)


@pytest.mark.spec("MR-2.2.3.1-08", "MR-2.2.3.1-09")
def test_the_machine_tells_its_version_and_the_bytes_of_all_queues() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        caller = await world.caller(QMMGMT)
        version, size = await values(caller, MACHINE, 5, ALL_BYTES)
        assert (version.kind, (size.kind, size.value)) == (VarType.LPWSTR, (VT_I8, 0))
        assert re.fullmatch(r"Quorate\D* \d+", version.value)
        changes = {"queue_manager_version": control_pb2.Value(text="9.8.7")}
        await client.queues.SetQueueManager(control_pb2.SetQueueManagerRequest(changes=changes))
        assert await value(caller, MACHINE, 5) == "Quorate 9.8.7"
        await create(client, journaling=True)
        await create(client, r".\private$\other")
        await client.send(ORDERS, *[b"x" * 100] * 2)
        await client.send(OTHER, b"x" * 100)
        (size,) = await values(caller, MACHINE, ALL_BYTES)
        assert (size.kind, size.value) == (VT_I8, 3 * await value(caller, queue(OTHER), 8))
        await client.receive(await client.open(ORDERS), 2)
        (again,) = await values(caller, MACHINE, ALL_BYTES)
        assert again == size, "what is in journals counts, too"

    in_world(scenario)


# Sending again -----------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4.2-14", "MR-3.1.4.2-15")
def test_what_has_no_sequence_is_not_sent_again() -> None:
    async def scenario(world: RpcWorld, client: Client, peer: Peer) -> None:
        caller = await world.caller(QMMGMT)

        def bodies() -> list[bytes]:
            return [
                parse_user_message(raw, 0, len(raw))[0].properties.message_body for raw in peer.raw
            ]

        await client.send(AWAY, b"out")
        await client.open(QUIET, data_pb2.SEND_ACCESS)
        for name in (AWAY, QUIET):
            assert await act(caller, queue(name), "EOD_RESEND") == 0, name
        peer.is_acknowledging = peer.is_order_acking = False
        await client.send(peer.address, b"1")
        await until(lambda: bodies() == [b"1"])
        assert await act(caller, queue(peer.address), "EOD_RESEND") == 0
        await send_in_transaction(client, peer.address, b"2", b"3")
        await until(lambda: bodies() == [b"1", b"2", b"3"])
        assert await act(caller, queue(peer.address), "EOD_RESEND") == 0
        await until(lambda: bodies() == [b"1", b"2", b"3", b"2", b"3"])
        await client.send(peer.address, b"4")
        await until(lambda: bodies() == [b"1", b"2", b"3", b"2", b"3", b"4"])

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world() as made,
            made.client(await made.leader()) as client,
        ):
            await scenario(made, client, peer)

    run(main())
