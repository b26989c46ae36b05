"""Properties of messages as a program over DCOM gets them [MC-MQAC 3.17.4.1]."""

from __future__ import annotations

import time

import pytest

from qm.rpc.dcom.automation.variant import array_of
from qm.rpc.dcom.automation.vartypes import BYTES, VarType
from tests.unit.rpc.dcom.scripts import PRIVATE, RECEIVE, SEND, Late, Program, play, slot

MESSAGE = "IMSMQMessage4"
DAY_1970 = 25_569


async def seconds_of(message: Late, name: str) -> float:
    """A date in seconds since 1970, as UTC."""
    found = await slot(message, MESSAGE, name)
    assert found.vt == VarType.DATE
    return float(found.value - DAY_1970) * 86_400


@pytest.mark.spec("AC-3.17.4.1.40-01", "AC-3.17.4.1.41-01")
def test_times_are_dates_of_utc() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        await program.send("body")
        queue = await program.opened(RECEIVE)
        before = await slot(await program.create("MSMQMessage"), MESSAGE, "ArrivedTime")
        assert before.vt == VarType.EMPTY
        message = await queue.call("Receive", ReceiveTimeout=1000)
        sent = await seconds_of(message, "SentTime")
        arrived = await seconds_of(message, "ArrivedTime")
        assert abs(sent - time.time()) < 300
        assert abs(arrived - sent) < 60

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.30-02", "AC-3.17.4.1.51-01", "AC-3.17.4.1.52-01")
def test_what_is_empty_is_an_empty_text_and_extensions_are_bytes() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        sender, queue = await program.opened(SEND, PRIVATE), await program.opened(RECEIVE)
        for extension in (b"", b"\x00\x01\xff"):
            message = await program.create("MSMQMessage")
            assert await slot(message, MESSAGE, "Label") == ""
            given = array_of(VarType.UI1, extension)
            await slot(message, MESSAGE, "Extension", "put", given)
            await message.call("Send", sender)
            found = await queue.call("Receive", ReceiveTimeout=1000)
            for each in (message, found):
                assert await slot(each, MESSAGE, "Label") == ""
                told = await slot(each, MESSAGE, "Extension")
                assert (told.vt, told.value.items) == (BYTES, extension)

    play(scenario)


@pytest.mark.spec("AC-3.17.4.1.17-01", "AC-3.17.4.1.18-01")
def test_tags_are_longs_of_any_bits() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        sender, queue = await program.opened(SEND, PRIVATE), await program.opened(RECEIVE)
        for tag in (0, 1, -1, 0x7FFF_FFFF, -0x8000_0000):
            message = await program.create("MSMQMessage")
            assert await slot(message, MESSAGE, "AppSpecific") == 0
            await slot(message, MESSAGE, "AppSpecific", "put", tag)
            assert await slot(message, MESSAGE, "AppSpecific") == tag
            await message.call("Send", sender)
            found = await queue.call("Receive", ReceiveTimeout=1000)
            assert await slot(found, MESSAGE, "AppSpecific") == tag

    play(scenario)
