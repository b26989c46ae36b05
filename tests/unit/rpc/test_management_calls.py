"""Calls of remote management [MS-MQMR 3.1.4]: who may, what is answered, and when it holds."""

import asyncio
import secrets
import struct
from typing import Any

import pytest

from qm.api.propose import proposer
from qm.node.replica import replicated_store
from qm.pb import control_pb2, control_pb2_grpc, data_pb2
from qm.rpc.client import RpcClient
from qm.rpc.endpoint_mapper import MAPPER, MapIn, port_of_tower, tower_of
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import NIL
from qm.rpc.pdu.bind import (
    NDR20,
    NDR64,
    Bind,
    BindAck,
    Proposal,
    Syntax,
    parse_bind_ack,
    write_bind,
)
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduType
from qm.rpc.pdu.header import fragment_length, parse_pdu
from qm.rpc.remote_management.interface import QMMGMT, ActionIn, InfoIn
from qm.rpc.remote_management.properties import NULL
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.variants import Variant
from qm.wire.enums import VarType
from tests.cluster.harness import HarnessNode, run
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.rpc.reading import MAPPER_PORT, ORDERS, RPC_PORT, RpcWorld, rpc_world, with_orders
from tests.unit.rpc.test_remote_management import MACHINE, SESSION, act, in_world, info, queue

COUNT, BYTES, STATE = 7, 8, 11
AWAY = r"DIRECT=OS:elsewhere.example\private$\q"
NOBODY = r"DIRECT=TCP:127.0.0.97\private$\q"
ILLEGAL, BAD_STUB = 0xC00E0039, 0x6F7
DENIED, UNKNOWN, INVALID, UNAVAILABLE = 0xC00E0025, 0xC00E0003, 0xC00E0006, 0xC00E000B
ACTIONS = ("CONNECT", "DISCONNECT", "TIDY", "PAUSE", "RESUME", "EOD_RESEND")


async def caller_at(node: HarnessNode, user: str = "alice") -> RpcClient:
    client = await RpcClient().connect(node.host, RPC_PORT)
    provider = NtlmClient(user, "pw", "", secrets.token_bytes)
    await client.bind(QMMGMT, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY)
    return client


# Transport and protection ------------------------------------------------------------------


@pytest.mark.spec("MR-2.1-01", "MR-2.2-01", "MR-3.2.4-01")
def test_a_program_finds_the_interface_by_the_mapper_and_stays_on_one_connection() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        node = await world.harness.leader()
        mapper = await RpcClient().connect(node.host, MAPPER_PORT)
        await mapper.bind(MAPPER)
        asked = tower_of(QMMGMT.syntax, 0, "0.0.0.0")
        (tower,) = (await mapper.call(MAPPER, 3, MapIn(None, asked, NIL, 4))).towers.items
        port = port_of_tower(tower.octets)
        assert port == RPC_PORT
        caller = await RpcClient().connect(node.host, port)
        provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
        await caller.bind(
            QMMGMT, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
        )
        for number, wanted in ((COUNT, 1), (STATE, "LOCAL CONNECTION"), (4, "LOCAL")):
            assert await info(caller, queue(ORDERS), number) == (0, [wanted])
        assert await info(caller, MACHINE, 4) == (0, ["CONNECTED"])
        for transfers, result in (
            ((NDR20,), 0), ((NDR64,), 2), ((NDR64, NDR20), 0), ((NDR20, NDR64), 0),
        ):  # fmt: skip
            ack = await bind_ack(node.host, port, QMMGMT.syntax, *transfers)
            assert [one.result for one in ack.answers] == [result]
            assert {one.transfer for one in ack.answers if not one.result} <= {NDR20}

    in_world(scenario)


async def bind_ack(host: str, port: int, interface: Syntax, *transfers: Syntax) -> BindAck:
    """Bind an interface with transfer syntaxes, and return the answer."""
    reader, writer = await asyncio.open_connection(host, port)
    bind = Bind(5840, 5840, 0, (Proposal(0, interface, transfers),))
    writer.write(write_bind(PduType.BIND, 1, bind))
    head = await reader.readexactly(16)
    rest = await reader.readexactly(fragment_length(head) - len(head))
    writer.close()
    return parse_bind_ack(parse_pdu(head + rest))


@pytest.mark.spec("MR-2.2.1.2-02", "MR-2.2.1.2-03", "MR-3.1.4.1-01", "MR-3.1.4.1-02", "MR-3.1.4-04")
def test_what_contradicts_itself_and_what_is_no_method_are_faults() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        caller = await world.caller(QMMGMT)

        async def fault(opnum: int, stub: bytes) -> int:
            with pytest.raises(Fault) as refused:
                await caller.raw_call(QMMGMT, opnum, stub)
            return refused.value.status

        def asked(count: int) -> bytes:
            given = InfoIn(MACHINE, count, [4] * count, [NULL] * count)
            return QMMGMT.operations[0].takes.marshal(given)

        one, action = asked(1), QMMGMT.operations[1].takes.marshal(ActionIn(MACHINE, "TIDY"))
        for opnum, good in ((0, one), (1, action)):
            for kind, tag in ((1, 2), (2, 1), (1, 3), (0, 0), (4, 4), (0xFFFF, 0xFFFF)):
                assert await fault(opnum, struct.pack("<HH", kind, tag) + good[4:]) == BAD_STUB
        # Of as many properties as there are, and with as many values.
        many = await caller.raw_call(QMMGMT, 0, asked(128))
        assert (many[-4:], many[:4]) == (bytes(4), b"\x80\0\0\0")
        for bad in (asked(0), asked(129), asked(1000)):
            assert await fault(0, bad) == BAD_STUB
        for count, properties, values in ((1, 2, 1), (1, 1, 2), (2, 1, 1), (2, 2, 1), (1, 2, 2)):
            given = InfoIn(MACHINE, count, [4] * properties, [NULL] * values)
            assert await fault(0, QMMGMT.operations[0].takes.marshal(given)) == BAD_STUB
        for opnum in (2, 3, 99, 0xFFFF):
            assert await fault(opnum, one) == 0x1C010002
        assert await info(caller, MACHINE, 4) == (0, ["CONNECTED"]), "the connection lives on"

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.1-12")
def test_counts_and_sizes_belong_together_while_messages_come() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"x" * 100)
        caller = await world.caller(QMMGMT)
        _, (_, size) = await info(caller, queue(ORDERS), COUNT, BYTES)
        seen: set[int] = set()

        async def look() -> None:
            while len(seen) < 10:
                status, values = await info(caller, queue(ORDERS), COUNT, BYTES, COUNT, BYTES)
                assert status == 0
                assert values == [values[0], values[0] * size] * 2
                seen.add(values[0])

        async def send() -> None:
            while len(seen) < 10:
                await client.send(ORDERS, *[b"x" * 100] * 3)

        async with asyncio.timeout(20):
            await asyncio.gather(look(), send())

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4-01", "MR-3.1.4-02", "MR-3.1.4-05", "RP-RPCE-3.1.1.5.3.3-01")
def test_stubs_and_levels_are_judged_before_a_method_is_called() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        node = await world.harness.leader()
        caller = await world.caller(QMMGMT)
        good = QMMGMT.operations[0].takes.marshal(InfoIn(MACHINE, 1, [4], [NULL]))
        assert (await caller.raw_call(QMMGMT, 0, good))[-4:] == bytes(4)
        for bad in (
            good[:8] + b"\0\0\0\0" + good[12:],  # no properties
            good[:8] + b"\x81\0\0\0" + good[12:],  # 129 of them
            good[:12] + b"\2\0\0\0" + good[16:],  # counts that differ
        ):
            with pytest.raises(Fault) as refused:
                await caller.raw_call(QMMGMT, 0, bad)
            assert refused.value.status == BAD_STUB
        counted = Variant(VarType.VECTOR_UI4, [7])
        given = QMMGMT.operations[0].takes.marshal(InfoIn(MACHINE, 1, [4], [counted]))
        at = given.index(struct.pack("<I", 1), given.index(struct.pack("<H", 0x1013)))
        without = given[: at + 4] + bytes(4) + given[-4:][:0]
        with pytest.raises(Fault) as refused:
            await caller.raw_call(QMMGMT, 0, without)
        assert refused.value.status == BAD_STUB, "one element, and no pointer to it"
        connected = await RpcClient().connect(node.host, RPC_PORT)
        provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
        await connected.bind(
            QMMGMT, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.CONNECT
        )
        for what in (MACHINE, queue(ORDERS)):
            with pytest.raises(Fault) as low:
                await info(connected, what, 4)
            assert low.value.status == 5
            with pytest.raises(Fault) as low:
                await act(connected, what, "TIDY")
            assert low.value.status == 5
        nobody = await RpcClient().connect(node.host, RPC_PORT)
        await nobody.bind(QMMGMT)
        with pytest.raises(Fault) as low:
            await info(nobody, MACHINE, 4)
        assert low.value.status == 5

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4-03", "MR-3.1.4-06", "MR-3.1.4-07", "MR-3.1.4-08")
def test_who_may_ask_and_act() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await client.send(ORDERS, b"one")
        await client.open(ORDERS + ";later", access=data_pb2.MOVE_ACCESS)
        await client.send(AWAY, b"out")
        bob = await world.caller(QMMGMT, "bob")
        for number in range(1, 7):
            assert await info(bob, MACHINE, number) == (DENIED, [None])
        for what in (MACHINE, queue(ORDERS), queue(AWAY)):
            for action in ACTIONS:
                assert await act(bob, what, action) == DENIED
        assert await info(bob, queue(AWAY), STATE) == (DENIED, [None])
        name = control_pb2.QueueName(name=r".\private$\orders")
        for rights, wanted in (
            (["get_queue_properties"], (0, [1])),
            (["receive_message", "peek_message", "write_message"], (DENIED, [None])),
        ):
            acl = [control_pb2.Ace(principal="bob", rights=rights)]
            await client.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))
            assert await info(bob, queue(ORDERS), COUNT) == wanted
            # Of what belongs to a queue, whoever has the queue's right is told.
            for part in (";JOURNAL", ";later"):
                status, _ = await info(bob, queue(ORDERS + part), COUNT)
                assert status == wanted[0], part
        alice = await world.caller(QMMGMT)
        assert await info(alice, queue(ORDERS), COUNT) == (0, [1]), "an administrator"
        assert await info(alice, MACHINE, 4) == (0, ["CONNECTED"])

    in_world(scenario)


# R_QMMgmtGetInfo ---------------------------------------------------------------------------


@pytest.mark.spec(
    "MR-3.1.4.1-03", "MR-3.1.4.1-04", "MR-3.1.4.1-05", "MR-3.1.4.1-11", "MR-3.1.4.1-14"
)
def test_properties_are_answered_in_the_order_in_which_they_were_asked() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        caller = await world.caller(QMMGMT)
        asked = [STATE, COUNT, 4, COUNT, STATE, 5]
        given = [Variant(VarType.LPWSTR, "x"), Variant(VarType.UI4, 77), *[NULL] * 4]
        found = await caller.call(QMMGMT, 0, InfoIn(queue(ORDERS), len(asked), asked, given))
        assert found.status == 0
        assert [one.value for one in found.values] == [
            *("LOCAL CONNECTION", 2, "LOCAL", 2, "LOCAL CONNECTION", "NO")
        ]
        # It opens no queue: somebody who shares it with nobody is not in its way, nor it in theirs.
        reader = await world.reader()
        handle = await reader.open(share=1)
        assert await info(caller, queue(ORDERS), COUNT) == (0, [2])
        await reader.close(handle)
        for count in range(3, 8):
            await client.send(ORDERS, b"more")
            assert await info(caller, queue(ORDERS), COUNT) == (0, [count])
        assert await reader.open(share=1)

    in_world(scenario)


@pytest.mark.spec(
    "MR-3.1.4.1-06", "MR-3.1.4.1-07", "MR-3.1.4.1-08", "MR-3.1.4.1-09", "MR-3.1.4.1-10"
)
def test_one_property_that_is_none_fails_the_whole_call() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        caller = await world.caller(QMMGMT)
        none = queue(r"DIRECT=OS:QUORATE\private$\none")
        for what, numbers, wanted in (
            (SESSION, (1, 2), INVALID),
            (MACHINE, (4, 7), ILLEGAL),
            (MACHINE, (COUNT,), ILLEGAL),
            (queue(ORDERS), (COUNT, 28, STATE), ILLEGAL),
            (queue(ORDERS), (0,), ILLEGAL),
            (none, (COUNT, STATE), UNKNOWN),
            (queue(r"DIRECT=OS:nowhere.example\private$\q"), (COUNT,), UNKNOWN),
        ):
            assert await info(caller, what, *numbers) == (wanted, [None] * len(numbers))
        # Number 4 is CONNECTED of the machine, and LOCATION of a queue.
        assert await info(caller, MACHINE, 4) == (0, ["CONNECTED"])
        assert await info(caller, queue(ORDERS), 4) == (0, ["LOCAL"])

    in_world(scenario)


# R_QMMgmtAction ----------------------------------------------------------------------------


@pytest.mark.spec("MR-3.1.4-03")
def test_what_fails_is_a_result_with_a_majority_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicated_store, "PROPOSE_WAIT_MS", 2_000)
    monkeypatch.setattr(proposer, "REPEAT_FOR_S", 1.0)
    bad = queue(ORDERS)
    bad.what.value.suffix_and_flags = 1
    none = queue(r"DIRECT=OS:QUORATE\private$\none")

    async def scenario() -> None:
        async with rpc_world(3) as made:
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
                await client.send(AWAY, b"out")
            caller = await caller_at(one)
            for what, number, status in (
                (MACHINE, 99, ILLEGAL),
                (queue(ORDERS), 99, ILLEGAL),
                (queue(AWAY), 99, ILLEGAL),
                (SESSION, COUNT, INVALID),
                (bad, COUNT, INVALID),
                (none, COUNT, UNKNOWN),
            ):
                assert await info(caller, what, number) == (status, [None])
            for what, action, status in (
                (MACHINE, "TIDYING", INVALID),
                (SESSION, "CONNECT", INVALID),
                (queue(ORDERS), "PAUSE", INVALID),
                (bad, "PAUSE", INVALID),
                (none, "PAUSE", UNKNOWN),
            ):
                assert await act(caller, what, action) == status
            await made.harness.kill(leader.name)
            await made.harness.kill(other.name)
            told = await asyncio.gather(
                *(info(caller, what, COUNT) for what in (queue(ORDERS), queue(AWAY))),
                info(caller, MACHINE, 4),
            )
            assert told == [(UNAVAILABLE, [None])] * 3
            done = await asyncio.gather(
                act(caller, MACHINE, "DISCONNECT"), act(caller, queue(AWAY), "PAUSE")
            )
            assert [*done] == [UNAVAILABLE] * 2

    run(scenario())


@pytest.mark.spec(
    "MR-3.1.4.2-01", "MR-3.1.4.2-04", "MR-3.1.4.2-05", "MR-3.1.4.2-16", "MR-3.1.4.2-13"
)
def test_actions_belong_to_an_object_of_their_kind() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        await client.send(AWAY, b"out")
        caller = await world.caller(QMMGMT)
        none = queue(r"DIRECT=OS:QUORATE\private$\none")

        async def states() -> list[Any]:
            return [await info(caller, MACHINE, 4), await info(caller, queue(AWAY), 4, COUNT)]

        before = await states()
        for action in ACTIONS:
            assert await act(caller, SESSION, action) == INVALID
        for action in ACTIONS[:3]:
            for what in (queue(AWAY), queue(ORDERS)):
                assert await act(caller, what, action) == INVALID
        for action in ACTIONS[3:]:
            assert await act(caller, MACHINE, action) == INVALID
            assert await act(caller, none, action) == UNKNOWN
        assert await states() == before
        for action, state in (
            ("PAUSE", True),
            ("PAUSE", True),
            ("RESUME", False),
            ("resume", False),
        ):
            assert await act(caller, queue(AWAY), action) == 0
            _, (told,) = await info(caller, queue(AWAY), STATE)
            assert (told == "ONHOLD") is state
        raw = QMMGMT.operations[1].takes.marshal(ActionIn(MACHINE, "TIDY"))
        counts = struct.pack("<III", 5, 0, 5)
        assert raw.endswith(counts + "TIDY\0".encode("utf-16-le")), "conformant and varying"

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-06", "MR-3.1.4.2-08", "MR-3.1.4.2-09")
def test_what_tidy_and_connect_do_and_the_example_s_pause() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        await client.send(ORDERS, b"kept", b"taken")
        await client.receive(await client.open(ORDERS))
        await client.send(AWAY, b"out")
        caller = await world.caller(QMMGMT)

        async def counts() -> list[Any]:
            local = (await info(caller, queue(ORDERS), COUNT, BYTES, 9, 10))[1]
            return [*local, *(await info(caller, queue(AWAY), COUNT, BYTES))[1]]

        before = await counts()
        assert 0 not in before
        assert await act(caller, MACHINE, "TIDY") == 0
        assert await counts() == before
        for action, told in (("DISCONNECT", "DISCONNECTED"), *[("CONNECT", "CONNECTED")] * 2):
            assert await act(caller, MACHINE, action) == 0
            assert await info(caller, MACHINE, 4) == (0, [told])
        public = "PUBLIC=11223344-5566-7788-99AA-BBCCDDEEFF00"
        assert await info(caller, queue(public), STATE) == (UNKNOWN, [None])
        assert await act(caller, queue(AWAY), "PAUSE") == 0
        assert await info(caller, queue(AWAY), STATE) == (0, ["ONHOLD"])

    in_world(scenario)


@pytest.mark.spec("MR-3.1.4.2-19")
def test_every_action_leaves_an_event() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        await client.send(AWAY, b"out")
        for user, what, action in (
            ("alice", MACHINE, "TIDY"),
            ("alice", queue(AWAY), "PAUSE"),
            ("bob", MACHINE, "DISCONNECT"),
        ):
            await act(await world.caller(QMMGMT, user), what, action)
        stub = control_pb2_grpc.ClusterControlStub(client.channel)

        async def told() -> list[Any]:
            listed = await stub.ListEvents(control_pb2.ListEventsRequest(kinds=["control"]))
            return [one for one in listed.events if one.name == "RemoteManagement"]

        events = await eventually(told, lambda found: len(found) >= 3)
        assert {(one.principal.rpartition("\\")[2], one.text.casefold()) for one in events} == {
            (user, f"{action} of {what} from 127.0.0.1: {status}".casefold())
            for user, action, what, status in (
                ("alice", "TIDY", "the queue manager", "00000000"),
                ("alice", "PAUSE", AWAY, "00000000"),
                ("bob", "DISCONNECT", "the queue manager", "C00E0025"),
            )
        }

    in_world(scenario)


# In a cluster ------------------------------------------------------------------------------


@pytest.mark.spec(
    "MR-3.1.4.1-13", "MR-3.1.4.2-17", "MR-3.1.4.2-18", "MR-3.1.4.2-20", "MR-3.1.4.1-15"
)
def test_every_node_answers_alike_and_actions_hold() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"one")
                await client.send(NOBODY, b"out")
            leader = await made.harness.leader()
            one, other = await made.harness.followers()
            callers = {node.name: await caller_at(node) for node in (leader, one, other)}
            hops = 12, 25

            async def told(name: str) -> list[Any]:
                local = await info(callers[name], queue(ORDERS), COUNT, BYTES, STATE)
                return [local, await info(callers[name], queue(NOBODY), STATE, COUNT)]

            # What only the leader knows is told by all.
            history = {
                name: await eventually(
                    lambda caller=caller: info(caller, queue(NOBODY), *hops),  # type: ignore[misc]
                    lambda found: found[1][1] is not None and found[1][1][0].value,
                )
                for name, caller in callers.items()
            }
            assert {found[0] for found in history.values()} == {0}
            assert await act(callers[one.name], queue(NOBODY), "PAUSE") == 0
            answers = [await told(name) for name in callers]
            assert answers[0] == answers[1] == answers[2]
            assert answers[0][1] == (0, ["ONHOLD", 1])
            assert await act(callers[one.name], MACHINE, "DISCONNECT") == 0
            everywhere = [await info(each, MACHINE, 4) for each in callers.values()]
            assert everywhere == [(0, ["DISCONNECTED"])] * 3
            await made.harness.kill(leader.name)
            await made.harness.leader()

            async def state() -> Any:
                return await info(callers[other.name], queue(NOBODY), STATE)

            assert await eventually(state, lambda found: found[0] == 0) == (0, ["ONHOLD"])
            assert await info(callers[other.name], MACHINE, 4) == (0, ["DISCONNECTED"])
            await made.harness.kill(one.name)
            status, values = await info(callers[other.name], queue(NOBODY), STATE, COUNT)
            assert (status, values) == (UNAVAILABLE, [None, None])
            assert await act(callers[other.name], queue(NOBODY), "RESUME") == UNAVAILABLE
            await made.harness.kill(other.name)
            for node in (leader, one, other):
                await made.harness.restart(node.name)
            again = await caller_at(await made.harness.leader())
            assert (await info(again, queue(NOBODY), STATE)) == (0, ["ONHOLD"])
            # Whom the leader itself has answered does not hear otherwise from the next one.
            assert await act(again, queue(NOBODY), "RESUME") == 0
            assert await act(again, MACHINE, "CONNECT") == 0
            await made.harness.kill((await made.harness.leader()).name)
            last = await caller_at(await made.harness.leader())

            async def connected() -> Any:
                return await info(last, MACHINE, 4)

            assert await eventually(connected, lambda found: found[0] == 0) == (0, ["CONNECTED"])
            assert (await info(last, queue(NOBODY), STATE)) != (0, ["ONHOLD"])

    run(scenario())
