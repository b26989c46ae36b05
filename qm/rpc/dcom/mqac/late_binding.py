"""IDispatch's names and arguments [MS-OAUT 3.1.4.3, 3.1.4.4]."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from qm.rpc.dcom.automation.dispatch import (
    DISPID_PROPERTYPUT,
    PUTS,
    Arguments,
    ExceptionInfo,
    InvokeFlag,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.classes import late_bound
from qm.rpc.dcom.mqac.definitions import Method, definitions
from qm.rpc.dcom.mqac.members import BODY, Done, Refusal, argument_of, inputs
from qm.rpc.dcom.mqac.values import MISSING, Find
from qm.wire.guid import Guid

SOURCE: Final = "MSMQ"
"""EXCEPINFO.bstrSource."""


class Table:
    """The members of an interface by name and by DISPID."""

    def __init__(self, methods: Sequence[Method]) -> None:
        self._by_name: dict[str, Method] = {}
        self._by_dispid: dict[int, dict[str, Method]] = {}
        for one in methods:
            self._by_name.setdefault(one.name.casefold(), one)
            self._by_dispid.setdefault(one.dispid, {}).setdefault(one.kind, one)

    def numbers(self, names: Sequence[str]) -> list[int | None]:
        """Return the DISPID of the first name, and the places of its parameters."""
        if not names:
            return []
        member = self._by_name.get(names[0].casefold())
        if member is None:
            return [None] * len(names)
        places = {one.name.casefold(): place for place, one in enumerate(inputs(member))}
        return [member.dispid, *(places.get(name.casefold()) for name in names[1:])]

    def member(self, dispid: int, flags: int) -> Method:
        """Return a member by number and use. Raises ComError DISP_E_MEMBERNOTFOUND."""
        kinds: Mapping[str, Method] = self._by_dispid.get(dispid, {})
        if flags & PUTS:
            wanted = ["put", "putref"] if flags & InvokeFlag.PROPERTYPUT else ["putref", "put"]
        else:
            wanted = ["get", "method"]  # RP-A70
        for kind in wanted:
            if kind in kinds:
                return kinds[kind]
        raise ComError(Hresult.DISP_E_MEMBERNOTFOUND, f"DISPID {dispid}, flags {flags:#x}")


@cache
def _table(name: str) -> Table:
    return Table(definitions().methods(name))


def table_of(facet: Any, iid: Guid) -> tuple[Any, Table]:
    """Return what late-bound calls through an interface reach, and its members."""
    found, name = late_bound(facet, iid)
    return found, _table(name)


class LateCall(msgspec.Struct):
    """What Invoke was given."""

    dispid: int
    flags: int
    arguments: Arguments
    indexes: Sequence[int]
    """Of arguments by reference, among all."""
    references: Sequence[Variant | None]
    places: list[int] = []
    """By [in] parameter: its argument's place among all; -1 for none."""

    def values(self) -> list[Variant | None]:
        """Return all arguments in the order in which they came. Raises ComError."""
        found = list(self.arguments.values or ())
        for index, variant in zip(self.indexes, self.references, strict=True):
            if not 0 <= index < len(found):
                raise ComError(Hresult.DISP_E_PARAMNOTFOUND, f"argument {index}")
            found[index] = variant
        return found

    def place_of(self, parameter: int) -> int:
        """Return the place of a parameter's argument, 0 for one that was left out."""
        return max(self.places[parameter], 0) if parameter < len(self.places) else 0


def bound(table: Table, late: LateCall, find: Find) -> tuple[Method, list[Any]]:
    """Return a member and its arguments in the order of its parameters.

    Raises ComError, Refusal.
    """
    method = table.member(late.dispid, late.flags)
    values = late.values()
    wanted = inputs(method)
    late.places = _places(method, late, len(values), len(wanted))
    found: list[Any] = []
    for number, (parameter, place) in enumerate(zip(wanted, late.places, strict=True)):
        if place < 0:
            found.append(MISSING)
            continue
        try:
            found.append(argument_of(method, parameter, values[place], find))
        except ComError as error:
            is_body = method.name == BODY
            status = error.status if is_body else Hresult.DISP_E_TYPEMISMATCH
            raise Refusal(status, number) from error
    return method, found


def _places(method: Method, late: LateCall, given: int, wanted: int) -> list[int]:
    """Return where each parameter's argument is. Raises ComError, Refusal."""
    names = list(late.arguments.names or ())
    places = [-1] * wanted
    positional = given - len(names)
    if late.flags & PUTS:
        # This name tells the new value [MS-OAUT 2.2.32.1]; properties here have no other arguments.
        if names != [DISPID_PROPERTYPUT]:
            raise Refusal(Hresult.DISP_E_PARAMNOTFOUND, 0)
        if given != 1 or wanted != 1:
            raise ComError(Hresult.DISP_E_BADPARAMCOUNT)
        return [0]
    if positional > wanted:
        raise ComError(Hresult.DISP_E_BADPARAMCOUNT, f"{positional} arguments for {wanted}")
    for k in range(positional):
        places[k] = given - 1 - k
    for at, name in enumerate(names):
        if not 0 <= name < wanted or places[name] >= 0:
            late.places = [at]
            raise Refusal(Hresult.DISP_E_PARAMNOTFOUND, 0)
        places[name] = at
    for parameter, one in enumerate(inputs(method)):
        if places[parameter] < 0 and not one.is_optional:
            raise ComError(Hresult.DISP_E_BADPARAMCOUNT, f"{one.name} is missing")
    return places


def invoked(
    late: LateCall, echoed: list[Variant], status: int, result: Variant, text: str
) -> list[Any]:
    """Return what Invoke answers once a member was called.

    A failure is an exception, for clients that want to know about exceptions.
    """
    if status & 0x8000_0000:
        return failed_member(late, echoed, status, text)
    wants_result = not late.flags & InvokeFlag.NO_RESULT
    return [None, result if wants_result else Variant(), ExceptionInfo(), 0, echoed, status]


def failed_member(late: LateCall, echoed: list[Variant], status: int, text: str) -> list[Any]:
    """Return what Invoke answers when a member failed."""
    if late.flags & InvokeFlag.NO_EXCEPTION:
        return [None, Variant(), ExceptionInfo(), 0, echoed, status]
    exception = ExceptionInfo(status, SOURCE, text or None)
    return [None, Variant(), exception, 0, echoed, Hresult.DISP_E_EXCEPTION]


def failed_invoke(late: LateCall, echoed: list[Variant], done: Done, place: int = 0) -> list[Any]:
    """Return what Invoke answers when no member was called; `place`: of the argument at fault."""
    wants_place = not late.flags & InvokeFlag.NO_ARGUMENT_ERROR
    return [
        None,
        Variant(),
        ExceptionInfo(),
        place if wants_place else 0,
        echoed,
        done.status,
    ]
