"""Late-bound programs against a node, as a script on another computer would run them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from qm.rpc.client import CALL_TIMEOUT_S
from qm.rpc.dcom.automation.dispatch import (
    DISPID_PROPERTYPUT,
    IDISPATCH,
    Arguments,
    InvokeFlag,
    arguments_of,
)
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.definitions import definitions
from qm.rpc.dcom.mqac.values import MISSING, python_of, variant_of
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, NULL
from qm.rpc.dcom.runtime.objref import Objref, parse_objref, write_objref
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.harness import HarnessNode, run
from tests.unit.rpc.reading import MAPPER_PORT, RpcWorld, rpc_world

OMITTED = Variant(VarType.ERROR, Hresult.DISP_E_PARAMNOTFOUND)
PRIVATE = r".\private$\orders"
RECEIVE, SEND, PEEK = 1, 2, 32
DENY_NONE, DENY_RECEIVE = 0, 1
FAILURE = 0x8000_0000


def clsid(name: str) -> bytes:
    """A coclass's identifier."""
    return next(one.guid for one in definitions().coclasses if one.name == name)


def iid(name: str) -> bytes:
    """An interface's identifier."""
    return definitions().named(name).guid


def pointed(raw: bytes) -> Objref:
    """The reference in a result."""
    found = parse_objref(raw)
    assert isinstance(found, Objref)
    return found


def opnum(interface: str, name: str, kind: str = "method") -> int:
    """Where a method stands in the vtable."""
    return next(
        one.opnum
        for one in definitions().methods(interface)
        if (one.name, one.kind) == (name, kind)
    )


class Program:
    """A program of one user on another computer."""

    def __init__(self, host: str, user: str = "alice", password: str = "pw") -> None:
        logon = Logon(lambda: NtlmClient(user, password, "", secrets.token_bytes) if user else None)
        self.server = Server(host, MAPPER_PORT, logon)

    async def create(self, name: str) -> Late:
        """CreateObject."""
        (ref,) = await self.server.create(clsid(name), IID_IDISPATCH)
        return Late(self.server, ref)

    async def queue_info(self, path: str = PRIVATE) -> Late:
        info = await self.create("MSMQQueueInfo")
        await info.put("PathName", path)
        return info

    async def new_queue(self, path: str = PRIVATE, *, transactional: bool = False) -> Late:
        """Create a queue; what describes it."""
        info = await self.queue_info(path)
        await info.call("Create", transactional)
        return info

    def late(self, variant: Variant) -> Late:
        """The object in a result."""
        assert variant.vt == VarType.DISPATCH
        return Late(self.server, pointed(variant.value))

    async def opened(self, access: int, path: str = PRIVATE, share: int = DENY_NONE) -> Late:
        info = await self.queue_info(path)
        found = await info.call("Open", access, share)
        assert isinstance(found, Late)
        return found

    async def send(self, body: Any, label: str = "", path: str = PRIVATE, *more: Any) -> Late:
        message = await self.create("MSMQMessage")
        await message.put("Body", body)
        await message.put("Label", label)
        await message.call("Send", await self.opened(SEND, path), *more)
        return message

    def close(self) -> None:
        self.server.close()


class Late:
    """An object that is called by name."""

    def __init__(self, server: Server, ref: Objref) -> None:
        self.server = server
        self.ref = ref
        self.numbers: dict[str, int] = {}

    async def number(self, name: str) -> int:
        """GetIDsOfNames."""
        if name not in self.numbers:
            given = [NULL, [name], 1, 0x409]
            found, status = await self.server.call(self.ref.ipid, IDISPATCH, 5, given)
            if status:
                raise ComError(status)
            self.numbers[name] = found[0]
        return self.numbers[name]

    def variant(self, value: Any) -> Variant:
        if isinstance(value, Variant):
            return value
        if isinstance(value, Late):
            return Variant(VarType.DISPATCH, write_objref(value.ref))
        return variant_of(value, lambda _: Variant())

    def python(self, variant: Variant) -> Any:
        found = python_of(variant, lambda raw: Late(self.server, pointed(raw)))
        return None if found is MISSING else found

    async def invoke(
        self, name: str | int, flags: int, arguments: Arguments, timeout_s: float = CALL_TIMEOUT_S
    ) -> list[Any]:
        """Invoke; everything that it gives, the HRESULT last."""
        dispid = name if isinstance(name, int) else await self.number(name)
        given = [dispid, NULL, 0x409, flags, arguments, 0, [], []]
        return await self.server.call(self.ref.ipid, IDISPATCH, 6, given, timeout_s)

    async def _result(self, name: str | int, flags: int, arguments: Arguments) -> Any:
        result, exception, _, _, status = await self.invoke(name, flags, arguments)
        if status == Hresult.DISP_E_EXCEPTION:
            raise ComError(exception.scode, exception.description or "")
        if status & FAILURE:
            raise ComError(status)
        return self.python(result)

    async def get(self, name: str | int) -> Any:
        flags = InvokeFlag.PROPERTYGET | InvokeFlag.METHOD
        return await self._result(name, flags, arguments_of([]))

    async def put(self, name: str | int, value: Any, *, by_reference: bool = False) -> None:
        flag = InvokeFlag.PROPERTYPUTREF if by_reference else InvokeFlag.PROPERTYPUT
        arguments = arguments_of([self.variant(value)], [DISPID_PROPERTYPUT])
        await self._result(name, flag, arguments)

    async def call(self, name: str | int, *values: Any, **named: Any) -> Any:
        """A method, with arguments by place and by name."""
        numbers: list[int] = []
        if named:
            given = [NULL, [name, *named], 1 + len(named), 0x409]
            found, status = await self.server.call(self.ref.ipid, IDISPATCH, 5, given)
            if status:
                raise ComError(status)
            numbers = found[1:]
        variants = [self.variant(one) for one in (*values, *named.values())]
        arguments = Arguments(variants[::-1], numbers[::-1], 0, 0)
        return await self._result(name, InvokeFlag.METHOD, arguments)

    async def by(self, wanted: bytes) -> Objref:
        """Another interface of it."""
        (found,) = await self.server.query(self.ref.ipid, wanted)
        assert isinstance(found, Objref), found
        return found

    async def as_dispatch(self) -> Late:
        """The same object, of which another interface was given."""
        return Late(self.server, await self.by(IID_IDISPATCH))

    async def release(self) -> None:
        await self.server.release(self.ref)


async def slot(late: Late, interface: str, name: str, kind: str = "get", *values: Any) -> Any:
    """Call a slot of an interface of an object; its only result."""
    ref = await late.by(iid(interface))
    served = object_interfaces()[ref.iid]
    given = (ref.ipid, served, opnum(interface, name, kind), values)
    *found, status = await late.server.call(*given)
    if status & FAILURE:
        raise ComError(status)
    return found[0] if found else None


async def eventually(check: Callable[[], Awaitable[bool]], within_s: float = 20.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(within_s):
        while not await check():
            await asyncio.sleep(0.02)


class DcomWorld(RpcWorld):
    """A cluster whose nodes offer objects."""

    async def program(self, user: str = "alice", node: HarnessNode | None = None) -> Program:
        node = node or (await self.harness.leader())
        return Program(node.host, user)


@contextlib.asynccontextmanager
async def dcom_world(count: int = 1, **rpc: Any) -> AsyncIterator[DcomWorld]:
    async with rpc_world(count, objects=True, **rpc) as made:
        yield DcomWorld(made.harness, False)


def play(scenario: Callable[[Program], Awaitable[None]]) -> None:
    """Run a program against a node of its own."""

    async def alone(program: Program, _: DcomWorld) -> None:
        await scenario(program)

    play_in_world(alone)


def play_in_world(scenario: Callable[[Program, DcomWorld], Awaitable[None]]) -> None:
    """The same for one that has more to do with the node than its user could."""

    async def whole() -> None:
        async with dcom_world() as world:
            program = await world.program()
            await scenario(program, world)
            program.close()

    run(whole())
