"""What remote readers may name, and stubs that name nothing [MS-MQRR 2.2.3, 3.1.4]."""

import secrets
import struct
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2, data_pb2
from qm.rpc.client import RpcClient
from qm.rpc.interface import Fault
from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.bind import NDR20, NDR64, Bind, Proposal, Syntax
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduType
from qm.rpc.pdu.header import Pdu
from qm.rpc.queue_formats import WireFormat, format_of, text_of
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import free_network, run, until
from tests.unit.api.test_data import create
from tests.unit.api.world import Client, eventually
from tests.unit.edge.outgoing.world import Peer
from tests.unit.rpc.reading import (
    ORDERS,
    PEEK_CURRENT,
    RPC_PORT,
    RemoteReader,
    RpcWorld,
    body,
    message,
    rpc_world,
    with_orders,
)
from tests.unit.rpc.test_management_calls import bind_ack
from tests.unit.rpc.test_management_values import machine_guid
from tests.unit.rpc.test_read_opens import INVALID, UNKNOWN, at_level
from tests.unit.rpc.test_remote_read import in_world, mqrr_queue
from tests.unit.rpc.vectors import vector

PUBLIC = r"DIRECT=OS:QUORATE\public"
BAD_STUB, NO_COORDINATOR = 0x6F7, 0xC00E004C
SUFFIXES = (1, 2, 3)
"""Of journals and of both dead-letter queues, without the flag 80."""


async def format_name(client: Client, path: str) -> str:
    """Return the public or private format name of a queue."""
    found: control_pb2.Queue = await client.queues.GetQueue(
        control_pb2.GetQueueRequest(queue=control_pb2.QueueName(name=path))
    )
    return found.format_name


async def first(reader: RemoteReader, name: str) -> bytes:
    """Return the body of the first message of a queue, b"" if it is empty."""
    handle = await reader.open(name, 0x20)
    found = await reader.start(handle, PEEK_CURRENT)
    await reader.close(handle)
    return b"" if found.sections is None else body(found)


async def refused(reader: RemoteReader, wire: WireFormat) -> int:
    """Return the status of the fault with which opening a structure ends."""
    given = mqrr.OpenIn(wire, 1, 0, bytes(16), 1, 6, 1, 7601, 1)
    with pytest.raises(Fault) as fault:
        await reader.call(2, given)
    return fault.value.status


# Names -------------------------------------------------------------------------------------


@pytest.mark.spec("RR-2.2.3-01", "RR-2.2.3-06")
def test_each_kind_of_name_opens_its_queue_and_its_journal() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        reader = await world.reader()
        for name, path, text in (
            (ORDERS, r".\private$\orders", b"private"),
            (PUBLIC, r".\public", b"public"),
        ):
            await create(client, path, journaling=True)
            later = await client.open(name + ";later", access=data_pb2.MOVE_ACCESS)
            await client.send(name, text + b" journal", text + b" later", text)
            source = await client.open(name)
            await client.receive(source)
            (seen,) = (await client.peek(source)).messages.properties
            await client.data.Move(
                data_pb2.MoveRequest(
                    request=client.next(),
                    source_queue_id=source.queue_id,
                    lookup_identifier=seen.lookup_identifier,
                    target_queue_id=later.queue_id,
                )
            )
            other = await format_name(client, path)
            assert other.startswith(text.decode().upper() + "=")
            for own in (name, other):
                parsed: Any = parse_format_name(own)
                kinds = {"DIRECT": 3, "PRIVATE": 2, "PUBLIC": 1}
                assert format_of(parsed).kind == kinds[own.partition("=")[0]]
                assert await first(reader, own) == text
                assert await first(reader, own + ";JOURNAL") == text + b" journal"
            assert await first(reader, name + ";later") == text + b" later"
        unknown: Any = parse_format_name("PUBLIC=11223344-5566-7788-99AA-BBCCDDEEFF00")
        assert await refused(reader, format_of(unknown)) == UNKNOWN, "a name, but of no queue"

    in_world(scenario)


@pytest.mark.spec("RR-2.2.3-01", "RR-2.2.3-07")
def test_the_suffix_chooses_among_the_queues_of_the_machine() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, r".\private$\exact", transactional=True)
        await create(client)
        exact = r"DIRECT=OS:QUORATE\private$\exact"
        await client.send(ORDERS, b"dead", dead_letter=True, time_to_be_received_s=1)
        transaction = secrets.token_bytes(16)
        begin = data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
        await client.data.BeginTransaction(begin)
        more = {"dead_letter": True, "time_to_be_received_s": 1}
        await client.send(exact, b"exactly dead", transaction=transaction, **more)
        end = data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
        await client.data.CommitTransaction(end)
        guid = await machine_guid(world)
        reader = await world.reader()
        for suffix, text in (("DEADLETTER", b"dead"), ("DEADXACT", b"exactly dead")):
            name = f"MACHINE={guid};{suffix}"

            async def seen(name: str = name) -> bytes:
                return await first(reader, name)

            assert await eventually(seen, bool) == text
        assert await first(reader, f"MACHINE={guid};JOURNAL") == b"", "nothing has left"

    in_world(scenario)


@pytest.mark.spec("RR-2.2.3-07")
def test_the_journal_of_the_machine_holds_what_has_left_it() -> None:
    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            rpc_world() as world,
            world.client(await world.leader()) as client,
        ):
            guid = await machine_guid(world)
            names = (f"MACHINE={guid};JOURNAL", r"DIRECT=OS:QUORATE\SYSTEM$;JOURNAL")
            reader = await world.reader()
            await client.send(peer.address, b"1", b"2", journal=True)
            await client.send(peer.address, b"3")
            await until(lambda: len(peer.raw) == 3)
            for text in (b"1", b"2"):
                for name in names:

                    async def seen(name: str = name) -> bytes:
                        return await first(reader, name)

                    assert await eventually(seen, bool) == text
                handle = await reader.open(names[0])
                found = await reader.start(handle)
                assert (found.status, body(found)) == (0, text)
                assert guid_text(message(found).user_header.source_queue_manager) == guid
                assert await reader.end(handle) == 0
                await reader.close(handle)
            assert [await first(reader, name) for name in names] == [b"", b""], "3 asked for none"

    run(main())


@pytest.mark.spec("RR-2.2.3-08")
def test_a_suffix_of_the_wrong_kind_is_an_invalid_parameter() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client, journaling=True)
        guid = await machine_guid(world)
        reader = await world.reader()
        await create(client, r".\public", journaling=True)
        names = [await format_name(client, path) for path in (r".\private$\orders", r".\public")]
        for name in (ORDERS, *names, f"MACHINE={guid};DEADXACT"):
            parsed: Any = parse_format_name(name)
            for suffix in (*SUFFIXES, 0x80, 0x84, 0x85, 0x8F):
                wire = format_of(parsed)
                wire.suffix_and_flags = suffix
                assert await refused(reader, wire) == INVALID, (name, suffix)
        later: Any = parse_format_name(ORDERS + ";later")
        wire = format_of(later)
        wire.suffix_and_flags |= 0x80
        assert await refused(reader, wire) == INVALID
        parsed = parse_format_name(ORDERS)
        wire = format_of(parsed)
        wire.suffix_and_flags = 0x81
        assert text_of(wire).casefold() == (ORDERS + ";JOURNAL").casefold()
        handle = (await reader.call(2, mqrr.OpenIn(wire, 1, 0, bytes(16), 1, 6, 1, 7601, 1))).handle
        assert await reader.close(handle) == 0, "with the flag it is the journal"

    in_world(scenario)


# Stubs and levels --------------------------------------------------------------------------


class TwoSyntaxes(RpcClient):
    """A client that proposes its interface with several transfer syntaxes."""

    def __init__(self, transfers: tuple[Syntax, ...]) -> None:
        super().__init__()
        self._transfers = transfers

    @override
    async def _exchange(self, kind: PduType, bind: Bind, token: bytes, flags: int) -> Pdu:
        proposals = tuple(Proposal(0, one.interface, self._transfers) for one in bind.proposals)
        bind = msgspec.structs.replace(bind, proposals=proposals)
        return await super()._exchange(kind, bind, token, flags)


@pytest.mark.spec("RR-2.2-01")
def test_of_two_transfer_syntaxes_the_older_is_taken_wherever_it_stands() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await create(client)
        node = await world.harness.leader()
        for transfers in ((NDR20, NDR64), (NDR64, NDR20), (NDR20,)):
            ack = await bind_ack(node.host, RPC_PORT, REMOTE_READ.syntax, *transfers)
            (answer,) = ack.answers
            assert (answer.result, answer.transfer) == (0, NDR20)
            two = await TwoSyntaxes(transfers).connect(node.host, RPC_PORT)
            provider = NtlmClient("alice", "pw", "", secrets.token_bytes)
            level = AuthLevel.PRIVACY
            await two.bind(REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=level)
            reader = RemoteReader(two)
            await client.send(ORDERS, b"one")
            assert await reader.receive(await reader.open()) == b"one", "it works"
            # So do calls that say in their verification trailer which syntax was agreed.
            for transfer in (NDR20, NDR64):
                said = b"".join(
                    one.uuid + struct.pack("<HH", one.major, one.minor)
                    for one in (REMOTE_READ.syntax, transfer)
                )
                stub = bytes.fromhex("8ae3137102f43671") + struct.pack("<HH", 0x4002, 40) + said
                if transfer == NDR20:
                    port = await two.raw_call(REMOTE_READ, 0, stub)
                    assert port == struct.pack("<I", RPC_PORT)
                else:
                    with pytest.raises(Fault) as fault:
                        await two.raw_call(REMOTE_READ, 0, stub)
                    assert fault.value.status == 5

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4-01", "RR-3.1.4-02", "RR-3.1.4.9-01", "RR-3.1.4.12-01", "RR-3.1.4.2-05")
def test_stubs_that_say_too_little_or_contradict_themselves_are_faults() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()

        async def fault(opnum: int, stub: bytes) -> int:
            with pytest.raises(Fault) as bad:
                await reader.client.raw_call(REMOTE_READ, opnum, stub)
            return bad.value.status

        handle = await reader.open()
        assert (await reader.start(handle)).status == 0
        end = REMOTE_READ.operations[9].takes.marshal(mqrr.EndIn(handle, 2, reader.requests))
        for ack in (0, 3, 0x0001_0002, 0xFFFF_FFFF):
            for opnum in (9, 15):
                stub = end[:20] + struct.pack("<I", ack) + end[24:]
                assert await fault(opnum, stub) == BAD_STUB, ack
        # Every method: its parameters without their last byte, and none at all.
        move = mqrr.MoveIn(handle, 1, 1, bytes(16))
        for opnum, values in (
            (2, mqrr.OpenIn(mqrr_queue(), 1, 0, bytes(16), 1, 6, 1, 7601, 1)),
            (3, mqrr.Handle(handle)),
            (4, mqrr.Handle(handle)),
            (5, mqrr.CursorIn(handle, 1)),
            (6, mqrr.Handle(handle)),
            (7, reader.start_values(handle)),
            (8, mqrr.RequestIn(handle, 1)),
            (9, mqrr.EndIn(handle, 2, 1)),
            (10, move),
            (11, mqrr.OpenIn(mqrr_queue(), 4, 0, bytes(16), 1, 6, 1, 7601, 1)),
            (12, mqrr.EnlistIn(bytes(16), 1, b"x", mqrr_queue())),
            (13, reader.start_values(handle)),
            (14, mqrr.AcknowledgeIn(handle, 1, 0)),
            (15, mqrr.EndIn(handle, 2, 1)),
        ):
            stub = REMOTE_READ.operations[opnum].takes.marshal(values)
            for cut in (stub[:-1], b""):
                assert await fault(opnum, cut) == BAD_STUB, opnum
        token = bytes(131_073)
        for size, given in ((1, b""), (0, b"x"), (len(token), token)):
            enlist = mqrr.EnlistIn(bytes(16), size, given, mqrr_queue())
            stub = REMOTE_READ.operations[12].takes.marshal(enlist)
            assert await fault(12, stub) == BAD_STUB
        enlist = mqrr.EnlistIn(bytes(16), 131_072, bytes(131_072), mqrr_queue())
        assert (await reader.call(12, enlist)).status == NO_COORDINATOR, "as long as it may be"
        # A union's tag that is not its kind; a direct name without its text is one without a name.
        opened = vector("mqrr_openqueue_request_direct")
        assert await fault(2, opened[:4] + b"\1" + opened[5:]) == BAD_STUB
        # A name with more than there is room for, one that begins behind its beginning, one whose
        # NUL is not its end, and one without it: by both methods that open.
        room, offset, count = struct.unpack_from("<III", opened, 12)
        assert (room, offset) == (count, 0)
        text, rest = opened[24 : 24 + 2 * count], opened[80:]
        for bounds, wrong in (
            ((count - 1, 0, count), text),
            ((count, 1, count - 1), text[2:]),
            ((count, 0, count), text[:4] + bytes(2) + text[6:]),
            ((count, 0, count), text[:-2] + b"x\0"),
        ):
            padded = wrong + bytes(-len(wrong) % 4)
            stub = opened[:12] + struct.pack("<III", *bounds) + padded + rest
            for opnum in (2, 11):
                assert await fault(opnum, stub) == BAD_STUB, bounds
        assert await reader.end(handle, request=1) == 0, "nothing has touched what is lent"

    in_world(scenario)


@pytest.mark.spec("RR-3.1.4-02", "RR-2.2.6-01")
def test_a_section_without_bytes_has_none() -> None:
    results = REMOTE_READ.operations[7].gives
    whole = mqrr.StartOut(1, 2, 1, [mqrr.Section(0, 4, 4, b"data")], 0)
    stub = results.marshal(whole)
    assert results.unmarshal(stub)[0] == whole
    at = stub.index(struct.pack("<II", 4, 4)) + 8
    assert stub[at : at + 4] != bytes(4), "a pointer"
    assert stub[at - 12 : at] == bytes.fromhex("0000 0000 04000000 04000000"), "a type and a gap"
    assert results.unmarshal(stub[: at - 10] + b"\xee\xee" + stub[at - 8 :])[0] == whole
    with pytest.raises(BadStub):
        results.unmarshal(stub[:at] + bytes(4) + stub[at + 4 :])


@pytest.mark.spec("RR-5.1-01", "RR-3.1.4.2-17")
def test_every_method_is_refused_below_its_level() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        for level in (AuthLevel.CONNECT, AuthLevel.PACKET, AuthLevel.INTEGRITY):
            low = await at_level(world, level)
            for opnum in REMOTE_READ.operations:
                with pytest.raises(Fault) as fault:
                    await low.client.raw_call(REMOTE_READ, opnum, b"")
                assert fault.value.status == 5, (level, opnum)
        # Who does not log on at all has no level.
        for opnum in REMOTE_READ.operations:
            nobody = await RpcClient().connect((await world.harness.leader()).host, RPC_PORT)
            await nobody.bind(REMOTE_READ)
            with pytest.raises(Fault) as fault:
                await nobody.raw_call(REMOTE_READ, opnum, b"")
            assert fault.value.status == 5, opnum
            nobody.close()

    in_world(scenario)
