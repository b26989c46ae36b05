"""MSMQDestination over DCOM [MC-MQAC 3.12.4.1]."""

from __future__ import annotations

from typing import Any

import pytest

from qm.rpc.dcom.hresults import ComError
from tests.unit.rpc.dcom.scripts import PRIVATE, Late, Program, play, slot

NAME = "IMSMQDestination"


async def refused(destination: Late, name: str, kind: str, *values: Any) -> int:
    with pytest.raises(ComError) as raised:
        await slot(destination, NAME, name, kind, *values)
    return raised.value.status


@pytest.mark.spec(
    "AC-3.12.4.1.4-01", "AC-3.12.4.1.5-01", "AC-3.12.4.1.12-01", "AC-3.12.4.1.13-01",
    "AC-3.12.4.1.14-01",
)  # fmt: skip
def test_what_is_not_implemented() -> None:
    async def scenario(program: Program) -> None:
        await program.new_queue()
        destination = await program.create("MSMQDestination")
        for _ in range(2):
            for name in ("IADs", "Destinations", "Properties"):
                assert await refused(destination, name, "get") == 0x8000_4001
            for name in ("IADs", "Destinations"):
                assert await refused(destination, name, "putref", None) == 0x8000_4001
            await destination.put("PathName", PRIVATE)
            await destination.call("Open")

    play(scenario)


@pytest.mark.spec("AC-3.12.4.1.6-01", "AC-3.12.1-01")
def test_a_directory_path_is_null_unless_it_was_put_last() -> None:
    async def scenario(program: Program) -> None:
        info = await program.new_queue(r"QUORATE\shown")
        path, format_name = await info.get("ADsPath"), await info.get("FormatName")
        destination = await program.create("MSMQDestination")
        assert await slot(destination, NAME, "ADsPath") is None
        for put, value in (("FormatName", format_name), ("PathName", r"QUORATE\shown")):
            await slot(destination, NAME, "ADsPath", "put", path)
            assert await slot(destination, NAME, "ADsPath") == path
            assert await slot(destination, NAME, "FormatName") == format_name
            await slot(destination, NAME, put, "put", value)
            assert await slot(destination, NAME, "ADsPath") is None
            assert await slot(destination, NAME, put) == value

    play(scenario)
