"""Speed and memory of objects over DCOM, for `python -m tests.bench.rpc`. All in one process."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import VarType
from qm.rpc.dcom.mqac.wire import object_interfaces
from qm.rpc.dcom.runtime.objref import Objref, parse_objref, write_objref
from tests.unit.rpc.dcom.scripts import (
    OMITTED,
    RECEIVE,
    SEND,
    Late,
    Program,
    clsid,
    dcom_world,
    iid,
)

ACTIVATIONS = 300
MESSAGES = 300
OBJECTS = 10_000
CLIENTS = 100
_SEND, _RECEIVE = 54, 20
"""Slots of IMSMQMessage4::Send and IMSMQQueue4::Receive."""


async def early(program: Program, late: Late, name: str) -> Objref:
    """An interface of an object."""
    (found,) = await program.server.query(late.ref.ipid, iid(name))
    assert isinstance(found, Objref)
    return found


async def activations(program: Program) -> float:
    began = time.perf_counter()
    for _ in range(ACTIVATIONS):
        await program.create("MSMQMessage")
    return ACTIVATIONS / (time.perf_counter() - began)


async def late_bound(program: Program) -> tuple[float, float]:
    """Sends and receives per second by IDispatch."""
    message, target = await program.create("MSMQMessage"), await program.opened(SEND)
    await message.put("Body", b"x" * 1024)
    began = time.perf_counter()
    for _ in range(MESSAGES):
        await message.call("Send", target)
    sent = MESSAGES / (time.perf_counter() - began)
    queue = await program.opened(RECEIVE)
    began = time.perf_counter()
    for _ in range(MESSAGES):
        await queue.call("Receive", 0, False, True, 1000)
    return sent, MESSAGES / (time.perf_counter() - began)


async def early_bound(program: Program) -> tuple[float, float]:
    """The same through the vtable."""
    server = program.server
    message, target = await program.create("MSMQMessage"), await program.opened(SEND)
    await message.put("Body", b"x" * 1024)
    ref, pointer = await early(program, message, "IMSMQMessage4"), write_objref(target.ref)
    interface = object_interfaces()[ref.iid]
    began = time.perf_counter()
    for _ in range(MESSAGES):
        assert await server.call(ref.ipid, interface, _SEND, [pointer, OMITTED]) == [0]
    sent = MESSAGES / (time.perf_counter() - began)
    ref = await early(program, await program.opened(RECEIVE), "IMSMQQueue4")
    interface = object_interfaces()[ref.iid]
    given = [OMITTED, OMITTED, OMITTED, Variant(VarType.I4, 1000), OMITTED]
    began = time.perf_counter()
    for _ in range(MESSAGES):
        found, status = await server.call(ref.ipid, interface, _RECEIVE, given)
        assert status == 0
        parse_objref(found)
    return sent, MESSAGES / (time.perf_counter() - began)


async def memory_of_objects(program: Program) -> float:
    """KiB of an object that is held, node's and client's side."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    held = []
    for _ in range(OBJECTS):
        held += await program.server.create(clsid("MSMQMessage"), iid("IMSMQMessage4"))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(held) / 1024


async def idle_clients(host: str) -> float:
    """KiB of a client with one object, node's and client's side."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    programs = [Program(host) for _ in range(CLIENTS)]
    await asyncio.gather(*(one.create("MSMQQueueInfo") for one in programs))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for one in programs:
        one.close()
    return (after - before) / CLIENTS / 1024


async def objects() -> dict[str, float]:
    """All keys."""
    async with dcom_world() as world:
        node = await world.harness.leader()
        program = await world.program()
        await (await program.queue_info()).call("Create")
        await program.create("MSMQMessage")
        report = {"dcom_activations_per_s": round(await activations(program))}
        sent, received = await late_bound(program)
        report |= {"dcom_sends_per_s_late": round(sent)}
        report |= {"dcom_receives_per_s_late": round(received)}
        sent, received = await early_bound(program)
        report |= {"dcom_sends_per_s_early": round(sent)}
        report |= {"dcom_receives_per_s_early": round(received)}
        found: dict[str, float] = dict(report)
        found["dcom_object_kib"] = round(await memory_of_objects(program), 2)
        found["dcom_idle_client_kib"] = round(await idle_clients(node.host), 1)
        program.close()
        return found
