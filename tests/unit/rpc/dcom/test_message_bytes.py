"""Bytes of a message's security over DCOM, and what Send is given [MC-MQAC 3.17.4.1]."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qm.rpc.dcom.automation.dispatch import InvokeFlag, arguments_of
from qm.rpc.dcom.automation.variant import Variant, array_of
from qm.rpc.dcom.automation.vartypes import BYTES, VarType
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.objref import write_objref
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    play,
    slot,
)

NAMES = ("SenderCertificate", "SenderId", "Signature", "DestinationSymmetricKey")
NEWEST = "IMSMQMessage4"


async def bytes_of(message: Late, name: str) -> bytes:
    """A property that is an array of bytes, by slot and by name."""
    found = await slot(message, NEWEST, name)
    by_name, *_ = await message.invoke(name, InvokeFlag.PROPERTYGET, arguments_of([]))
    assert (found.vt, by_name.vt) == (BYTES, BYTES)
    assert found.value.items == by_name.value.items
    return bytes(found.value.items)


@pytest.mark.spec(
    "AC-3.17.4.1.43-01", "AC-3.17.4.1.44-01", "AC-3.17.4.1.45-01", "AC-3.17.4.1.56-01",
    "AC-3.17.4.1.58-01",
)  # fmt: skip
def test_certificate_sender_signature_and_key_are_bytes() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        message = await program.create("MSMQMessage")
        for name in NAMES:
            assert await bytes_of(message, name) == b""
            await slot(message, NEWEST, name, "put", array_of(VarType.UI1, name.encode()))
            for wrong in (Variant(VarType.BSTR, "der"), Variant(VarType.I4, 7)):
                with pytest.raises(ComError) as refused:
                    await slot(message, NEWEST, name, "put", wrong)
                assert refused.value.status == 0x8007_0057
        assert [await bytes_of(message, name) for name in NAMES] == [*map(str.encode, NAMES)]
        application = await program.create("MSMQApplication")
        await application.call("RegisterCertificate")
        signed = await program.create("MSMQMessage")
        await signed.put("AuthLevel", 4)
        await signed.call("Send", await program.opened(SEND))
        found = await (await program.opened(RECEIVE)).call("Receive", ReceiveTimeout=1000)
        certificate, sender, signature, key = [await bytes_of(found, name) for name in NAMES]
        public = x509.load_der_x509_certificate(certificate).public_key()
        assert isinstance(public, RSAPublicKey)
        assert len(signature) == public.key_size // 8
        assert (sender[:1], len(sender)) == (b"\1", 8 + 4 * sender[1]), "a SID"
        assert key == b""

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.48-01")
def test_send_takes_queues_and_destinations_alone() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue()
        message = await program.create("MSMQMessage")
        await message.put("MsgClass", 1)  # refused, too, but later
        for given in (None, write_objref(info.ref)):
            with pytest.raises(ComError) as refused:
                await slot(message, NEWEST, "Send", "method", given, OMITTED)
            assert refused.value.status == 0x8007_0057
        with pytest.raises(ComError) as refused:
            await message.call("Send", Variant(VarType.DISPATCH, None))
        assert refused.value.status == 0x8007_0057
        message = await program.create("MSMQMessage")
        destination = await program.create("MSMQDestination")
        await destination.put("FormatName", await info.get("FormatName"))
        for target in (destination, await program.opened(SEND)):
            await slot(message, NEWEST, "Send", "method", write_objref(target.ref), OMITTED)
        queue = await program.opened(RECEIVE)
        for _ in range(2):
            assert isinstance(await queue.call("Receive", ReceiveTimeout=1000), Late)

    play(scenario)
