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
USERS = [f"user{number}" for number in range(CLIENTS)]
_SEND, _RECEIVE = 54, 20
"""Slots of IMSMQMessage4::Send and IMSMQQueue4::Receive."""


async def early(program: Program, late: Late, name: str) -> Objref:
    """An interface of an object."""
    (found,) = await program.server.query(late.ref.ipid, iid(name))
    assert isinstance(found, Objref)
    return found


class Meter:
    """Calls, and how long they took."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    @property
    def per_s(self) -> int:
        """Calls in a second."""
        return round(MESSAGES / (time.perf_counter() - self._began))

    @property
    def cpu_ms(self) -> float:
        """Processor time of a call, of all sides."""
        return round((time.process_time() - self._cpu_began) * 1000 / MESSAGES, 2)


async def activations(program: Program) -> float:
    began = time.perf_counter()
    for _ in range(ACTIVATIONS):
        await program.create("MSMQMessage")
    return ACTIVATIONS / (time.perf_counter() - began)


async def late_bound(program: Program) -> dict[str, float]:
    """Sends and receives by IDispatch."""
    message, target = await program.create("MSMQMessage"), await program.opened(SEND)
    await message.put("Body", b"x" * 1024)
    meter = Meter()
    for _ in range(MESSAGES):
        await message.call("Send", target)
    found = {"dcom_late_sends_per_s": meter.per_s, "dcom_late_send_cpu_ms": meter.cpu_ms}
    queue = await program.opened(RECEIVE)
    meter = Meter()
    for _ in range(MESSAGES):
        await queue.call("Receive", 0, False, True, 1000)
    return found | {
        "dcom_late_receives_per_s": meter.per_s,
        "dcom_late_receive_cpu_ms": meter.cpu_ms,
    }


async def early_bound(program: Program) -> dict[str, float]:
    """The same through the vtable."""
    server = program.server
    message, target = await program.create("MSMQMessage"), await program.opened(SEND)
    await message.put("Body", b"x" * 1024)
    ref, pointer = await early(program, message, "IMSMQMessage4"), write_objref(target.ref)
    interface = object_interfaces()[ref.iid]
    meter = Meter()
    for _ in range(MESSAGES):
        assert await server.call(ref.ipid, interface, _SEND, [pointer, OMITTED]) == [0]
    made = {"dcom_early_sends_per_s": meter.per_s, "dcom_early_send_cpu_ms": meter.cpu_ms}
    ref = await early(program, await program.opened(RECEIVE), "IMSMQQueue4")
    interface = object_interfaces()[ref.iid]
    given = [OMITTED, OMITTED, OMITTED, Variant(VarType.I4, 1000), OMITTED]
    meter = Meter()
    for _ in range(MESSAGES):
        found, status = await server.call(ref.ipid, interface, _RECEIVE, given)
        assert status == 0
        parse_objref(found)
    return made | {
        "dcom_early_receives_per_s": meter.per_s,
        "dcom_early_receive_cpu_ms": meter.cpu_ms,
    }


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
    """KiB of a client with one object and an account of its own, node's and client's side."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    programs = [Program(host, user) for user in USERS]
    await asyncio.gather(*(one.create("MSMQQueueInfo") for one in programs))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for one in programs:
        one.close()
    return (after - before) / CLIENTS / 1024


async def objects() -> dict[str, float]:
    """All keys."""
    async with dcom_world(users=USERS) as world:
        node = await world.harness.leader()
        program = await world.program()
        await (await program.queue_info()).call("Create")
        await program.create("MSMQMessage")
        found: dict[str, float] = {"dcom_activations_per_s": round(await activations(program))}
        found |= await late_bound(program)
        found |= await early_bound(program)
        found["dcom_object_kib"] = round(await memory_of_objects(program), 2)
        found["dcom_idle_client_kib"] = round(await idle_clients(node.host), 1)
        program.close()
        return found
