"""Members of MSMQMessage by the slots and DISPIDs of their rows [MC-MQAC 3.17.4.1]."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from qm.client.signing import new_signer
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.wire.codes import ErrorCode
from tests.conformance.dcom_members import hold, is_kept, is_refused, is_told, ways
from tests.unit.rpc.dcom.scripts import (
    PRIVATE,
    RECEIVE,
    SEND,
    Late,
    Program,
    play,
    pointed,
)

EXACT = r".\private$\exact"
ADMIN = r".\private$\admin"
ACK_REACH_QUEUE = 2
"""MQMSG_CLASS_ACK_REACH_QUEUE, and the flag that asks for it is 1."""
SIG20, SIGNED_SIG20 = 4, 3
"""MQMSG_AUTH_LEVEL_SIG20, and MQMSG_AUTHENTICATED_SIG20, which tells of it."""
SENDER_VERSION = 16
SOON_DAYS = 0.01


def octets(value: bytes) -> Variant:
    return array_of(VarType.UI1, value)


def text(value: str) -> Variant:
    return Variant(VarType.BSTR, value)


async def read(program: Program, path: str = PRIVATE) -> Late:
    """The next message of a queue."""
    found = await (await program.opened(RECEIVE, path)).call("Receive", ReceiveTimeout=5000)
    assert isinstance(found, Late)
    return found


@pytest.mark.spec(
    "AC-3.17.4.1.2-02",
    "AC-3.17.4.1.4-02",
    "AC-3.17.4.1.11-02",
    "AC-3.17.4.1.13-02",
    "AC-3.17.4.1.17-02",
)
def test_numbers_of_a_message_are_put_and_got() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        await is_kept("AC-3.17.4.1.2-02", message, 3, 1)
        await is_kept("AC-3.17.4.1.4-02", message, 4, 2)
        await is_kept("AC-3.17.4.1.11-02", message, 7, 6)
        await is_kept("AC-3.17.4.1.13-02", message, 2, 3)
        await is_kept("AC-3.17.4.1.17-02", message, -7, 0x7FFF_FFFF)
        names = ("PrivLevel", "AuthLevel", "Priority", "Journal", "AppSpecific")
        await hold(message, zip(names, (1, 2, 6, 3, 0x7FFF_FFFF), strict=True))

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.28-02",
    "AC-3.17.4.1.32-02",
    "AC-3.17.4.1.34-02",
    "AC-3.17.4.1.36-03",
    "AC-3.17.4.1.38-03",
)
def test_so_are_its_times_and_its_algorithms() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        await is_kept("AC-3.17.4.1.28-02", message, 5, 10)
        await is_kept("AC-3.17.4.1.32-02", message, 100, 101)
        await is_kept("AC-3.17.4.1.34-02", message, 200, 201)
        await is_kept("AC-3.17.4.1.36-03", message, 0x8003, 0x800C)
        await is_kept("AC-3.17.4.1.38-03", message, 0x6602, 0x6610)
        names = ("MaxTimeToReachQueue", "MaxTimeToReceive", "HashAlgorithm", "EncryptAlgorithm")
        await hold(message, zip(("Ack", *names), (10, 101, 201, 0x800C, 0x6610), strict=True))

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.21-02",
    "AC-3.17.4.1.26-02",
    "AC-3.17.4.1.30-03",
    "AC-3.17.4.1.45-02",
    "AC-3.17.4.1.46-02",
)
def test_so_are_its_body_label_and_sender() -> None:
    async def scenario(program: Program) -> None:
        message = await program.create("MSMQMessage")
        await is_kept("AC-3.17.4.1.21-02", message, octets(b"body"), text("a body"))
        await is_kept("AC-3.17.4.1.26-02", message, octets(b"c" * 20), octets(b"d" * 20))
        await is_kept("AC-3.17.4.1.30-03", message, "label", "another")
        await is_kept("AC-3.17.4.1.45-02", message, octets(b"sid"), octets(b"a sid"))
        await is_kept("AC-3.17.4.1.46-02", message, 1, 0)
        names = ("Body", "CorrelationId", "Label", "SenderId", "SenderIdType")
        values = ("a body", b"d" * 20, "another", b"a sid", 0)
        await hold(message, zip(names, values, strict=True))

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.1-02",
    "AC-3.17.4.1.19-03",
    "AC-3.17.4.1.20-02",
    "AC-3.17.4.1.25-03",
    "AC-3.17.4.1.83-03",
)
def test_an_acknowledgment_and_what_it_is_of_tell_who_they_are() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        admin = await program.new_queue(ADMIN)
        await program.send("before")
        await read(program)
        sent = await program.create("MSMQMessage")
        await sent.put("Body", "body")
        await sent.put("Ack", 1)
        await sent.put("AdminQueueInfo", admin, by_reference=True)
        await sent.call("Send", await program.opened(SEND))
        ack = await read(program, ADMIN)
        found = await read(program)
        application = await program.create("MSMQApplication")
        machine = await application.call("MachineIdOfMachineName", "QUORATE")
        for one, message_class, size in ((ack, ACK_REACH_QUEUE, None), (found, 0, 8)):
            await is_told("AC-3.17.4.1.1-02", one, message_class)
            await is_told("AC-3.17.4.1.19-03", one, machine)
            if size is not None:
                await is_told("AC-3.17.4.1.20-02", one, size)
        identifier = await ack.get("CorrelationId")
        assert any(identifier)
        lookup_ids = set()
        for one in (sent, found):
            await is_told("AC-3.17.4.1.25-03", one, octets(identifier))
            lookup_ids.add(await one.get("LookupId"))
            await is_told("AC-3.17.4.1.83-03", one, text(await one.get("LookupId")))
        (lookup_id,) = lookup_ids
        assert int(lookup_id) > 0

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.40-02",
    "AC-3.17.4.1.41-02",
    "AC-3.17.4.1.50-03",
    "AC-3.17.4.1.67-02",
    "AC-3.17.4.1.82-02",
)
def test_a_message_tells_when_and_where_to_it_was_sent() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await program.new_queue(ADMIN)
        both = r"DIRECT=OS:QUORATE\PRIVATE$\orders,DIRECT=OS:QUORATE\PRIVATE$\admin"
        destination = await program.create("MSMQDestination")
        await destination.put("FormatName", both)
        sent = await program.create("MSMQMessage")
        for row_id in ("AC-3.17.4.1.40-02", "AC-3.17.4.1.41-02"):
            await is_told(row_id, sent, Variant())
        await sent.call("Send", destination)
        await is_told("AC-3.17.4.1.41-02", sent, Variant())
        found = await read(program)
        days = (datetime.now(UTC) - datetime(1899, 12, 30, tzinfo=UTC)) / timedelta(days=1)
        for row_id, one in (
            ("AC-3.17.4.1.40-02", sent),
            ("AC-3.17.4.1.40-02", found),
            ("AC-3.17.4.1.41-02", found),
        ):
            for get in ways(row_id, one):
                time = await get()
                assert time.vt == VarType.DATE, get
                assert abs(time.value - days) < SOON_DAYS, get
        await is_told("AC-3.17.4.1.50-03", found, SENDER_VERSION)
        await is_refused("AC-3.17.4.1.67-02", found)
        for get in ways("AC-3.17.4.1.82-02", found):
            shown = await Late(program.server, pointed(await get())).as_dispatch()
            assert await shown.get("FormatName") == both, get

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.6-03", "AC-3.17.4.1.75-02", "AC-3.17.4.1.84-02")
def test_a_message_tells_whether_it_is_authenticated() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        application = await program.create("MSMQApplication")
        await application.call("RegisterCertificate")
        for level, flag, told in ((0, 0, 0), (SIG20, 1, SIGNED_SIG20)):
            signed = await program.create("MSMQMessage")
            await signed.put("AuthLevel", level)
            await signed.call("Send", await program.opened(SEND))
            found = await read(program)
            await is_told("AC-3.17.4.1.6-03", found, flag)
            await is_told("AC-3.17.4.1.75-02", found, told)
            await is_told("AC-3.17.4.1.84-02", found, -flag)

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.68-03", "AC-3.17.4.1.69-02", "AC-3.17.4.1.85-03", "AC-3.17.4.1.86-02"
)
def test_a_message_tells_its_place_in_a_transaction() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue(EXACT, transactional=True)
        dispenser = await program.create("MSMQTransactionDispenser")
        transaction = await dispenser.call("BeginTransaction")
        for body in ("first", "last"):
            await program.send(body, "", EXACT, transaction)
        await transaction.call("Commit")
        identifiers = set()
        for is_first, is_last in ((1, 0), (0, 1)):
            found = await read(program, EXACT)
            await is_told("AC-3.17.4.1.69-02", found, is_first)
            await is_told("AC-3.17.4.1.85-03", found, -is_first)
            await is_told("AC-3.17.4.1.86-02", found, -is_last)
            assert await found.get("IsLastInTransaction") == is_last
            identifier = await found.get("TransactionId")
            assert identifier[:16] == (await found.get("Id"))[:16]
            await is_told("AC-3.17.4.1.68-03", found, octets(identifier))
            identifiers.add(identifier)
        assert len(identifiers) == 1, "of the transaction, not of the message"
        assert len(identifier) == 20
        assert any(identifier[16:])

    play(scenario)


@pytest.mark.spec(
    "AC-3.17.4.1.88-02", "AC-3.17.4.1.89-03", "AC-3.17.4.1.90-02", "AC-3.17.4.1.91-02"
)
def test_members_about_soap_have_their_slots() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        target = await program.opened(SEND)
        fresh = await program.create("MSMQMessage")
        await is_told("AC-3.17.4.1.88-02", fresh, "")
        await is_told("AC-3.17.4.1.89-03", fresh, octets(b""))
        for row_id, name in (
            ("AC-3.17.4.1.90-02", "SoapHeader"),
            ("AC-3.17.4.1.91-02", "SoapBody"),
        ):
            for place in range(len(ways(row_id, fresh))):
                message = await program.create("MSMQMessage")
                put = ways(row_id, message)[place]
                assert await put("<a/>") is None
                with pytest.raises(ComError) as refused:
                    await message.call("Send", target)
                assert refused.value.status == ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION
                assert f" {name} " in str(refused.value), put
            with pytest.raises(ComError) as unread:
                await fresh.get(name)
            assert unread.value.status == Hresult.DISP_E_MEMBERNOTFOUND

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.49-06", "AC-3.17.4.1.87-06")
def test_with_what_is_attached_a_message_is_signed_when_it_has_no_certificate() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        target = await program.opened(SEND)
        await (await program.create("MSMQApplication")).call("RegisterCertificate")
        keyless = new_signer("alice", 2048, 1).certificate
        for row_id in ("AC-3.17.4.1.49-06", "AC-3.17.4.1.87-06"):
            message = await program.create("MSMQMessage")
            await message.put("AuthLevel", SIG20)
            for attach in ways(row_id, message):
                await message.put("SenderCertificate", keyless)
                assert await attach() is None
                await message.put("SenderCertificate", b"")
                with pytest.raises(ComError) as refused:
                    await message.call("Send", target)
                assert refused.value.status == ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED
                # The internal certificate, which has its key, takes the other one's place.
                assert await attach() is None
                await message.call("Send", target)

    play(scenario)
