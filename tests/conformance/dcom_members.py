"""Members that rows number, called on objects of a real node: in each interface that a row names by
the place in its vtable, and by the row's DISPID through the same pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from qm.client.mqac.constants import E_NOTIMPL
from qm.rpc.dcom.automation.dispatch import DISPID_PROPERTYPUT, Arguments, InvokeFlag
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import NULL
from tests.conformance.dcom_rows import Slot, read, rows
from tests.unit.rpc.dcom.scripts import FAILURE, Late, iid

_FLAGS = {
    "method": InvokeFlag.METHOD,
    "get": InvokeFlag.PROPERTYGET,
    "put": InvokeFlag.PROPERTYPUT,
    "putref": InvokeFlag.PROPERTYPUTREF,
}
_TYPES = {
    "BSTR": VarType.BSTR,
    "long": VarType.I4,
    "HRESULT": VarType.I4,
    "short": VarType.I2,
    "VARIANT_BOOL": VarType.BOOL,
    "IUnknown": VarType.UNKNOWN,
}
"""As Invoke has them; what is neither here nor a VARIANT is an object."""
_ENGLISH = 0x409


def _type(idl: str) -> int | None:
    """Of which type Invoke has a value; None for any."""
    plain = idl.rstrip("*")
    return None if plain == "VARIANT" else _TYPES.get(plain, VarType.DISPATCH)


@dataclass(frozen=True)
class Way:
    """How a member is called."""

    late: Late
    interface: str
    opnum: int
    slot: Slot
    dispid: int | None
    """None for the place in the vtable."""

    async def __call__(self, *given: Any) -> Any:
        """Call it with arguments as a vtable carries them; its result as a vtable gives it, None if
        it has none. Raises ComError.
        """
        ref = await self.late.by(iid(self.interface))
        served = object_interfaces()[ref.iid]
        if self.dispid is None:
            *found, status = await self.late.server.call(ref.ipid, served, self.opnum, given)
            if status & FAILURE:
                raise ComError(status)
            return found[0] if found else None
        said = [one for one in self.slot.arguments if not one.is_out]
        names = [one.name for one in said] if self.slot.kind == "method" else []
        asked = [NULL, [self.slot.name, *names], 1 + len(names), _ENGLISH]
        numbers, status = await self.late.server.call(ref.ipid, served, 5, asked)
        assert (numbers, status) == ([self.dispid, *range(len(names))], 0), self
        values = [_variant(one.type, value) for one, value in zip(said, given, strict=True)]
        puts = [DISPID_PROPERTYPUT] if self.slot.kind.startswith("put") else []
        arguments = Arguments(values[::-1], puts, 0, 0)
        use = [self.dispid, NULL, _ENGLISH, _FLAGS[self.slot.kind], arguments, 0, [], []]
        result, exception, *_, status = await self.late.server.call(ref.ipid, served, 6, use)
        if status == Hresult.DISP_E_EXCEPTION:
            raise ComError(exception.scode)
        if status & FAILURE:
            raise ComError(status)
        return self._result(result)

    def _result(self, result: Variant) -> Any:
        outs = [one.type for one in self.slot.arguments if one.is_out]
        if not outs:
            assert result.vt == VarType.EMPTY, self
            return None
        wanted = _type(outs[0])
        if wanted is None:
            return result
        assert result.vt == wanted, self
        return -(result.value // 0xFFFF) if wanted == VarType.BOOL else result.value


def _variant(idl: str, value: Any) -> Variant:
    if isinstance(value, Variant):
        return value
    vt = _type(idl)
    assert vt is not None, idl
    return Variant(vt, value)


def ways(row_id: str, late: Late, *kinds: str) -> list[Way]:
    """Every way to call the member of a row on an object; `kinds`: in these uses alone."""
    row = read(rows()[row_id]["text"])
    found = []
    for place in rows()[row_id]["wire"]:
        interface, number = place.split("#")
        digits = re.search(r"\d*$", interface)
        slot = row.slot(int(digits[0] or 1) if digits else 1, int(number))
        if kinds and slot.kind not in kinds:
            continue
        found.append(Way(late, interface, int(number), slot, None))
        if row.dispid not in (None, "none"):
            found.append(Way(late, interface, int(number), slot, int(str(row.dispid), 0)))
    assert found, row_id
    return found


async def is_kept(row_id: str, late: Late, *values: Any) -> None:
    """What is put in any way is got in any way; the last of the values stays."""
    puts, gets = ways(row_id, late, "put"), ways(row_id, late, "get")
    for place, put in enumerate(puts):
        for value in values:
            await put(value)
            get = gets[(place + 1) % len(gets)]
            assert await get() == value, (put, get)
    await is_told(row_id, late, values[-1])


async def is_told(row_id: str, late: Late, value: Any) -> None:
    """A property is the same in every way."""
    for get in ways(row_id, late, "get"):
        assert await get() == value, get


async def is_refused(row_id: str, late: Late, *given: Any, status: int = E_NOTIMPL) -> None:
    """A member fails with a status in every way; `given`: what is put, or its arguments."""
    for way in ways(row_id, late):
        taken = [] if way.slot.kind == "get" else given
        with pytest.raises(ComError) as refused:
            await way(*taken)
        assert refused.value.status == status, way


async def hold(late: Late, values: Iterable[tuple[str, Any]]) -> None:
    """Properties of these names hold these values: none is another one under a wrong name."""
    for name, value in values:
        assert await late.get(name) == value, name
