"""Speed of remote reads: `python -m tests.bench.rpc`. One node and its readers in one process.

Prints JSON and writes it to build/bench-rpc.json. Sealed NTLM connections, two-phase reads, each
acknowledged; readers share the process, and so the core, with the node, except those "apart".

rpc_*_receives_per_s, grpc_*_receives_per_s by readers and bytes of a body
apart_receives_per_s                        of ten readers of 1 KiB, in a process of their own
apart_node_cpu_us, apart_reader_cpu_us      processor time of each for a receive with its
                                            acknowledgement; apart_entries: of the log, for one
wait_p50_ms                                 from a Send's answer to that of the read that waited,
                                            0 if that came first; wait_from_send_p50_ms: from its
                                            call
idle_reader_kib                             memory of a reader that waits, node's and client's side
idle_core_percent, idle_2000_core_percent   of a core, while nobody waits, and while 2,000 reads
                                            wait on 40 connections; the difference is what they
                                            cost: waiting_2000_core_percent
dcom_activations_per_s                      objects made, one after another
dcom_late_*, dcom_early_*                   of one program, 1 KiB, by IDispatch, by the vtable:
                                            sends_per_s, receives_per_s; send_cpu_ms,
                                            receive_cpu_ms of node and client together
dcom_object_kib, dcom_idle_client_kib       memory, node's and client's side: of 10,000 objects,
                                            of 100 clients with an account and an object each
"""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from qm.rpc.remote_read.interface import REMOTE_READ
from tests.bench.rpc_load import Reading, ReadingSeen
from tests.bench.rpc_objects import objects
from tests.cluster.harness import HarnessNode, until
from tests.unit.api.world import Client, bodies
from tests.unit.rpc.reading import (
    INFINITE,
    ORDERS,
    RPC_PORT,
    RemoteReader,
    RpcWorld,
    rpc_world,
    with_orders,
)

RECEIVES = 1_000
WAITS = 100
IDLE = 2_000
IDLE_PER_CONNECTION = 50
IDLE_S = 10.0


async def fill(world: RpcWorld, count: int, size: int) -> None:
    body = bytes(size)
    per_call = max(1, min(100, (1 << 20) // max(size, 1)))
    # A session of its own: on a slow machine one would end while others are measured.
    async with world.client(await world.leader()) as client:
        while count > 0:
            await client.send(ORDERS, *[body] * min(per_call, count))
            count -= per_call


async def over_rpc(world: RpcWorld, readers: int, size: int, count: int) -> float:
    await fill(world, count, size)
    made = [await world.reader() for _ in range(readers)]
    handles = [await reader.open() for reader in made]

    async def read(reader: RemoteReader, handle: bytes) -> None:
        for _ in range(count // readers):
            assert (await reader.start(handle)).status == 0
            assert await reader.end(handle) == 0

    began = time.perf_counter()
    await asyncio.gather(*map(read, made, handles))
    took = time.perf_counter() - began
    for reader, handle in zip(made, handles, strict=True):
        await reader.close(handle)
        reader.client.close()
    return count / took


async def apart(world: RpcWorld, node: HarnessNode, readers: int, count: int) -> dict[str, float]:
    await fill(world, count, 1024)
    work = Reading(node.host, RPC_PORT, "alice", "pw", readers, count // readers)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.rpc_load", msgspec.json.encode(work).decode()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    cpu_s, index = time.process_time(), node.cluster.driver.applied_index
    process.stdin.write(b"begin\n")
    seen = msgspec.json.decode(await process.stdout.readline(), type=ReadingSeen)
    cpu_s = time.process_time() - cpu_s
    index = node.cluster.driver.applied_index - index
    assert await process.wait() == 0
    return {
        "apart_receives_per_s": round(count / (seen.ended_s - seen.began_s)),
        "apart_node_cpu_us": round(cpu_s / count * 1e6),
        "apart_reader_cpu_us": round(seen.cpu_s / count * 1e6),
        "apart_entries": round(index / count, 2),
    }


async def over_grpc(world: RpcWorld, readers: int, size: int, count: int) -> float:
    await fill(world, count, size)

    async def read() -> None:
        async with world.client(await world.leader()) as mine:
            queue = await mine.open(ORDERS)
            for _ in range(count // readers):
                assert bodies(await mine.receive(queue))
                mine.confirmed_upto = mine.number

    began = time.perf_counter()
    await asyncio.gather(*(read() for _ in range(readers)))
    return count / (time.perf_counter() - began)


async def waits(world: RpcWorld, client: Client) -> dict[str, float]:
    reader = await world.reader()
    handle = await reader.open()
    from_answer_s, from_call_s = [], []
    for _ in range(WAITS):
        waiting = asyncio.ensure_future(reader.start(handle, timeout_ms=INFINITE))
        await asyncio.sleep(0.005)
        called = time.perf_counter()
        await client.send(ORDERS, b"x")
        began = time.perf_counter()
        assert (await waiting).status == 0
        came = time.perf_counter()
        from_answer_s.append(came - began)
        from_call_s.append(came - called)
        assert await reader.end(handle) == 0
    reader.client.close()
    return {
        "wait_p50_ms": round(statistics.median(from_answer_s) * 1000, 2),
        "wait_from_send_p50_ms": round(statistics.median(from_call_s) * 1000, 2),
    }


def rss_kib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def core_percent() -> float:
    """Return the part of a core that this process takes while nobody calls."""
    began = time.process_time()
    await asyncio.sleep(IDLE_S)
    return 100 * (time.process_time() - began) / IDLE_S


async def idle(world: RpcWorld, node: HarnessNode) -> dict[str, float]:
    lines = node.service.api.data.waits
    nobody = await core_percent()
    before = rss_kib()
    tasks = []
    readers = []
    for _ in range(IDLE // IDLE_PER_CONNECTION):
        reader = await world.reader()
        readers.append(reader)
        handle = await reader.open()
        for _ in range(IDLE_PER_CONNECTION):
            values = reader.start_values(handle, timeout_ms=INFINITE)
            tasks.append(asyncio.ensure_future(reader.client.call(REMOTE_READ, 7, values, 3600)))
    await until(lambda: lines._count == IDLE)
    grown = rss_kib() - before
    waiting = await core_percent()
    for reader in readers:
        reader.client.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "idle_reader_kib": round(grown / IDLE, 2),
        "idle_core_percent": round(nobody, 2),
        "idle_2000_core_percent": round(waiting, 2),
        "waiting_2000_core_percent": round(waiting - nobody, 2),
    }


async def main() -> None:
    report: dict[str, Any] = {}
    async with rpc_world() as world:
        node = await world.harness.leader()
        async with world.client(await world.leader()) as client:
            await with_orders(client)
        for readers, size in ((1, 1024), (10, 1024), (1, 65_536), (10, 65_536)):
            count = RECEIVES if size == 1024 else RECEIVES // 4
            name = f"{readers}_readers_{size}_bytes_receives_per_s"
            report[f"rpc_{name}"] = round(await over_rpc(world, readers, size, count))
            report[f"grpc_{name}"] = round(await over_grpc(world, readers, size, count))
        report |= await apart(world, node, 10, RECEIVES)
        async with world.client(await world.leader()) as client:
            report |= await waits(world, client)
        report |= await idle(world, node)
    report |= await objects()
    text = json.dumps(report, indent=2)
    print(text)
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-rpc.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    uvloop.run(main())
