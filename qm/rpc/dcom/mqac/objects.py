"""Calls of objects: through their vtables and through IDispatch.

What needs nothing of the cluster is answered at once; the rest runs in a thread. Releasing an
object ends the calls that wait in it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import chain
from typing import Any, Final

from qm.client.mqac.message import MSMQMessage
from qm.client.mqac.transaction import TransactionImpl
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.limits import CALLS_WAITING_PER_CALLER_MAX
from qm.rpc.dcom.mqac.classes import late_bound
from qm.rpc.dcom.mqac.definitions import Method, Parameter, definitions
from qm.rpc.dcom.mqac.enumerator import Enumerator
from qm.rpc.dcom.mqac.exports import Exports
from qm.rpc.dcom.mqac.late_binding import (
    LateCall,
    Table,
    bound,
    failed_invoke,
    invoked,
    table_of,
)
from qm.rpc.dcom.mqac.members import (
    BODY,
    Done,
    Refusal,
    argument_of,
    executed,
    inputs,
    is_immediate,
    outputs,
    prepared,
    status_of,
)
from qm.rpc.dcom.mqac.threads import Threads, Work, WouldWait
from qm.rpc.dcom.mqac.type_library import library
from qm.rpc.dcom.mqac.type_objects import TypeObjects
from qm.rpc.dcom.mqac.values import (
    body_variant,
    pointers_in,
    scalar_of,
    variant_of,
)
from qm.rpc.dcom.mqac.wire import method_at, out_type
from qm.rpc.dcom.runtime.exporter import Owner, Pointer
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IENUMVARIANT, IID_IUNKNOWN, NULL
from qm.rpc.dcom.runtime.objref import BadObjref, CustomRef, Objref, parse_objref
from qm.rpc.interface import Fault
from qm.rpc.ndr.types import Varying
from qm.rpc.pdu.codes import FaultStatus
from qm.rpc.server.call import Call
from qm.wire.codes import ErrorCode
from qm.wire.guid import Guid

ADVISE: Final = "Advise"
BUSY_PAUSE_S: Final = 1.0
Results = list[Any]
Answer = Results | Coroutine[Any, Any, Results]


class Objects:
    """Implements all interfaces of objects."""

    def __init__(self, exports: Exports, types: TypeObjects, threads: Threads) -> None:
        self._exporter = exports.exporter
        self._places = exports.places
        self._pointer = exports.pointer
        self.pointer_to = exports.pointer_to
        self._types = types
        self._threads = threads
        self._waiting: dict[int, set[Work]] = {}
        """Calls that wait, by the object's identity."""
        self._waiting_of: Counter[Owner] = Counter()

    # The vtable ----------------------------------------------------------------------------

    def call_member(self, call: Call, given: list[Any]) -> Answer:
        """Any method of the data."""
        pointer = self._pointer(call, given[0])
        method = method_at(pointer.iid, call.request.opnum)
        wanted = inputs(method)
        self._take_back(call, given[1:])
        try:
            pairs = zip(wanted, given[1:], strict=True)
            values = [self._value(call, method, one, raw) for one, raw in pairs]
            made = prepared(pointer.facet, method, values)
        except Refusal:
            return self._answered(call, pointer, method, Done(Hresult.E_INVALIDARG))
        except ComError as error:
            return self._answered(call, pointer, method, Done(error.status))
        finish = partial(self._answered, call, pointer, method)
        return self._run(call, pointer, method, made, finish)

    def _value(self, call: Call, method: Method, parameter: Parameter, raw: Any) -> Any:
        """Return an argument of the vtable as a Python value. Raises ComError."""
        if parameter.type.startswith("VARIANT") and parameter.type != "VARIANT_BOOL":
            find = partial(self.find, call)
            return argument_of(method, parameter, raw, find)
        if parameter.type == "BSTR":
            return raw or ""
        if parameter.type in ("REFIID", "BOID*") or not isinstance(raw, bytes):
            return raw
        # A sink is its client's object; everything else is one of this node's.
        return _reference(raw) if method.name == ADVISE else self.find(call, raw)

    def _answered(self, call: Call, pointer: Pointer, method: Method, done: Done) -> Results:
        """Return ORPCTHAT, the [out] parameters and the HRESULT."""
        status = status_of(method, done)
        wanted = outputs(method)
        if status & 0x8000_0000:
            return [None, *(out_type(one)[1] for one in wanted), status]
        values = done.result if len(wanted) > 1 else (done.result,)
        try:
            pairs = zip(wanted, values, strict=False)
            results = [self._result(call, pointer, method, one, value) for one, value in pairs]
        except ComError as error:
            return [None, *(out_type(one)[1] for one in wanted), error.status]
        return [None, *results, status]

    def _result(
        self, call: Call, pointer: Pointer, method: Method, parameter: Parameter, value: Any
    ) -> Any:
        kind = parameter.type
        if kind == "BSTR*" or kind in ("IID*", "XACTTRANSINFO*"):
            return value
        if kind == "VARIANT*":
            return self.variant(call, pointer, method.name, value)
        if kind in ("long*", "short*", "VARIANT_BOOL*"):
            return scalar_of(value, kind)
        if kind in ("DWORD*", "ULONG*"):
            return int(value)
        if kind == "LPCONNECTIONPOINT*":
            iid = definitions().named("IConnectionPoint").guid
            points = [self.pointer_to(call, one, iid) for one in value.items]
            return Varying(value.count_max, points)
        return None if value is None else self.pointer_to(call, value, _iid_of(kind))

    # Values --------------------------------------------------------------------------------

    def find(self, call: Call, raw: bytes) -> Any:
        """Return the object of an interface pointer. Raises ComError E_INVALIDARG for a foreign
        one.
        """
        ref = _reference(raw)
        found = None
        if isinstance(ref, Objref):
            found = self._exporter.resolve(ref, self._places.owner(call))
        if found is None:
            raise ComError(Hresult.E_INVALIDARG, "not an object of the caller at this node")
        return found

    def _take_back(self, call: Call, arguments: Iterable[Any]) -> None:
        """Take the references that came with a call's arguments: each is a client's no more."""
        owner = self._places.owner(call)
        for raw in chain.from_iterable(map(pointers_in, arguments)):
            with contextlib.suppress(BadObjref):
                ref = parse_objref(raw)
                if isinstance(ref, Objref):
                    self._exporter.take_back(ref, owner)

    def variant(self, call: Call, pointer: Pointer, name: str, value: Any) -> Variant:
        """Return a result as a variant; `name`: of the member. Raises ComError."""
        if name == BODY and isinstance(pointer.facet, MSMQMessage):
            return body_variant(*pointer.facet.typed_body, value)

        def export(target: Any) -> Variant:
            is_plain = isinstance(target, TransactionImpl | Enumerator)
            vartype = VarType.UNKNOWN if is_plain else VarType.DISPATCH
            iid = IID_IUNKNOWN if is_plain else IID_IDISPATCH
            return Variant(vartype, self.pointer_to(call, target, iid))

        return variant_of(value, export, name)

    # IDispatch -----------------------------------------------------------------------------

    def get_type_info_count(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfoCount: every object has a description."""
        self._pointer(call, given[0])
        return [None, 1, Hresult.S_OK]

    def get_type_info(self, call: Call, given: list[Any]) -> Results:
        """GetTypeInfo: of what late-bound calls through this pointer reach (RP-A71)."""
        this, index, _ = given
        pointer = self._pointer(call, this)
        if index:
            return [None, None, Hresult.DISP_E_BADINDEX]
        _, name = late_bound(pointer.facet, pointer.iid)
        return [None, self._types.info(call, library().named(name)), Hresult.S_OK]

    def get_ids_of_names(self, call: Call, given: list[Any]) -> Results:
        """GetIDsOfNames: a member's name, and names of its parameters."""
        this, riid, names, count, _ = given
        _, table = self._late(self._pointer(call, this))
        if count != len(names):
            raise Fault(FaultStatus.BAD_STUB_DATA)
        if riid != NULL:
            return [None, [-1] * count, Hresult.DISP_E_UNKNOWNINTERFACE]
        numbers = table.numbers([name or "" for name in names])
        is_known = all(number is not None for number in numbers)
        found = [-1 if number is None else number for number in numbers]
        return [None, found, Hresult.S_OK if is_known else Hresult.DISP_E_UNKNOWNNAME]

    def invoke(self, call: Call, given: list[Any]) -> Answer:
        """Invoke."""
        this, dispid, riid, _, flags, arguments, count, indexes, refs = given
        pointer = self._pointer(call, this)
        if count != len(indexes) or count != len(refs):
            raise Fault(FaultStatus.BAD_STUB_DATA)
        late = LateCall(dispid, flags, arguments, indexes, refs)
        self._take_back(call, (*(arguments.values or ()), *refs))
        echoed = [self._echo(call, one) for one in refs]
        if riid != NULL:
            return failed_invoke(late, echoed, Done(Hresult.DISP_E_UNKNOWNINTERFACE))
        facet, table = self._late(pointer)
        try:
            method, values = bound(table, late, partial(self.find, call))
            made = prepared(facet, method, values)
        except Refusal as refusal:
            place = late.place_of(refusal.place)
            return failed_invoke(late, echoed, Done(refusal.status), place)
        except ComError as error:
            return failed_invoke(late, echoed, Done(error.status))

        def finish(done: Done) -> Results:
            try:
                result = self._late_result(call, pointer, method, done)
            except ComError as error:
                return failed_invoke(late, echoed, Done(error.status))
            return invoked(late, echoed, status_of(method, done), result, done.text)

        return self._run(call, pointer, method, made, finish)

    def _late(self, pointer: Pointer) -> tuple[Any, Table]:
        return table_of(pointer.facet, pointer.iid)

    def _late_result(self, call: Call, pointer: Pointer, method: Method, done: Done) -> Variant:
        wanted = outputs(method)
        if done.status & 0x8000_0000 or not wanted:
            return Variant()
        kind, value = wanted[0].type, done.result
        if kind == "VARIANT*":
            return self.variant(call, pointer, method.name, value)
        if kind == "BSTR*":
            return Variant(VarType.BSTR, value)
        if kind == "VARIANT_BOOL*":
            return Variant(VarType.BOOL, 0xFFFF if value else 0)
        if kind == "short*":
            return Variant(VarType.I2, scalar_of(value, kind))
        if kind == "long*":
            return Variant(VarType.I4, scalar_of(value, kind))
        is_unknown = kind == "IUnknown**"
        vartype = VarType.UNKNOWN if is_unknown else VarType.DISPATCH
        iid = IID_IUNKNOWN if is_unknown else IID_IDISPATCH
        return Variant(vartype, None if value is None else self.pointer_to(call, value, iid))

    def _echo(self, call: Call, variant: Variant | None) -> Variant:
        """Return an argument by reference as it goes back: no member here changes one, and an
        interface pointer goes back with references of its own.
        """
        if variant is None:
            return Variant()
        if isinstance(variant.value, bytes):
            try:
                target = self.find(call, variant.value)
                iid = parse_objref(variant.value).iid
                return Variant(variant.vt, self.pointer_to(call, target, iid))
            except (ComError, BadObjref):
                return Variant()
        if isinstance(variant.value, Variant):
            return Variant(variant.vt, self._echo(call, variant.value))
        return variant

    # IEnumVARIANT --------------------------------------------------------------------------

    def enumerate_next(self, call: Call, given: list[Any]) -> Results:
        """Next."""
        this, count = given
        pointer = self._pointer(call, this)
        found = pointer.facet.take(count)
        values = [self.variant(call, pointer, "", one) for one in found]
        status = Hresult.S_OK if len(found) == count else Hresult.S_FALSE
        return [None, Varying(count, values), len(values), status]

    def enumerate_skip(self, call: Call, given: list[Any]) -> Results:
        """Skip."""
        this, count = given
        found = self._pointer(call, this).facet.take(count)
        return [None, Hresult.S_OK if len(found) == count else Hresult.S_FALSE]

    def enumerate_reset(self, call: Call, given: list[Any]) -> Results:
        """Reset."""
        self._pointer(call, given[0]).facet.at = 0
        return [None, Hresult.S_OK]

    def enumerate_clone(self, call: Call, given: list[Any]) -> Results:
        """Clone."""
        facet = self._pointer(call, given[0]).facet
        clone = Enumerator(facet.values, facet.at)
        return [None, self.pointer_to(call, clone, IID_IENUMVARIANT), Hresult.S_OK]

    # Running -------------------------------------------------------------------------------

    def _run(
        self,
        call: Call,
        pointer: Pointer,
        method: Method,
        made: Callable[[], Any],
        finish: Callable[[Done], Results],
    ) -> Answer:
        if is_immediate(pointer.facet, method):
            try:
                return finish(executed(made))
            except WouldWait:
                pass
        return self._waited(call, pointer, made, finish)

    async def _waited(
        self,
        call: Call,
        pointer: Pointer,
        made: Callable[[], Any],
        finish: Callable[[Done], Results],
    ) -> Results:
        owner = pointer.of.owner
        if self._waiting_of[owner] >= CALLS_WAITING_PER_CALLER_MAX:
            raise Fault(FaultStatus.SERVER_TOO_BUSY, f"too many calls of {owner.name} wait")
        work = Work()
        call.on_end = lambda _: work.give_up()
        ended = self.waits(pointer.of.target, work)
        self._waiting_of[owner] += 1
        try:
            done = await self._threads.run(work, partial(executed, made))
        finally:
            ended()
            self._waiting_of[owner] -= 1
            if not self._waiting_of[owner]:
                del self._waiting_of[owner]
            # A call that lasted is a sign of life when it ends (RP-A65).
            pointer.of.seen_at = self._places.now()
        return finish(done)

    def waits(self, target: Any, work: Work) -> Callable[[], None]:
        """Note that something waits in an object; call the result when it has ended."""
        key = id(target)
        self._waiting.setdefault(key, set()).add(work)

        def ended() -> None:
            waiting = self._waiting[key]
            waiting.discard(work)
            if not waiting:
                del self._waiting[key]

        return ended

    def give_up(self, target: Any) -> None:
        """End what waits in an object: it was released."""
        for work in list(self._waiting.get(id(target), ())):
            work.give_up()

    async def run_in_background(self, function: Callable[[], Any]) -> None:
        """Have something done that nobody waits for; its errors are the objects' own, unless the
        cluster does not answer: what is to be aborted stays locked until then.
        """
        while True:
            try:
                done = await self._threads.run(Work(), partial(executed, function))
            except Fault:
                pass  # all threads are taken
            else:
                if done.status != ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE:
                    return
            await asyncio.sleep(BUSY_PAUSE_S)


def _reference(raw: bytes) -> Objref | CustomRef:
    """Return what an OBJREF refers to. Raises ComError RPC_E_INVALID_OBJREF."""
    try:
        return parse_objref(raw)
    except BadObjref as bad:
        raise ComError(Hresult.RPC_E_INVALID_OBJREF, str(bad)) from None


def _iid_of(idl_type: str) -> Guid:
    """Return the IID of a type such as `IMSMQQueue4**`."""
    name = idl_type.rstrip("*")
    if name == "IDispatch":
        return IID_IDISPATCH
    if name == "IUnknown":
        return IID_IUNKNOWN
    return definitions().named(name).guid
