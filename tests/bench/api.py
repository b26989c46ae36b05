"""Speed of the data plane: `python -m tests.bench.api`. Three processes, fsync on a quorum.

Prints JSON and writes it to build/bench-api.json. Callers speak raw gRPC and decode nothing beyond
the columns; 1 KiB recoverable messages; CPU is of all node processes together.

send_msgs_per_s                 8 sessions, 100 messages per call
send_cpu_us_per_msg
receive_msgs_per_s              one stream at the leader, credit 512, ranges confirmed with credit
receive_cpu_us_per_msg
receive_follower_msgs_per_s     the same through a follower
receive_committed_msgs_per_s    each confirmation committed before the next credit
scrub_mib_per_s                 read back and checked by the slowest node, which reads nothing else
send_while_scrubbed_ratio       sends, by those before, while all nodes read back without a rest
wait_p50_ms, wait_p99_ms        from a Send's call to the answer of the Receive that waited for it
"""

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from qm.node.dev import pids
from qm.node.dev.layout import DevNode, Layout
from qm.pb import control_pb2, control_pb2_grpc, data_pb2, data_pb2_grpc
from tests.cluster.test_processes import dev_cluster, leader_of

MESSAGES = 40_000
SESSIONS = 8
PER_SEND = 100
CREDIT = 512
WAITS = 300
PACKET_BYTES = 1024
BODY = bytes(PACKET_BYTES - 188)
QUEUE = ".\\private$\\bench"
FORMAT_NAME = "DIRECT=OS:QUORATE\\private$\\bench"
MESSAGE_MAX_BYTES = 16 << 20
LOOK_EVERY_S = 0.02
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(layout: Layout, nodes: Sequence[DevNode]) -> float:
    """Return user and system time of all node processes."""
    ticks = 0
    for node in nodes:
        pid = pids.running(layout.pid(node.name))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


class Session:
    """One client's session at one node."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self.data: Any = data_pb2_grpc.DataStub(channel)
        self.client_id = client_id
        self.number = 0

    async def open(self, access: Any) -> data_pb2.OpenQueueReply:
        await self.data.OpenSession(data_pb2.OpenSessionRequest(client_id=self.client_id))
        reply: data_pb2.OpenQueueReply = await self.data.OpenQueue(
            data_pb2.OpenQueueRequest(request=self.next(), queue=FORMAT_NAME, access=access)
        )
        return reply

    def next(self, count: int = 1) -> data_pb2.RequestNumber:
        first = self.number + 1
        self.number += count
        return data_pb2.RequestNumber(
            client_id=self.client_id, number=first, confirmed_upto=first - 1
        )

    async def send(self, count: int) -> None:
        properties = data_pb2.Properties(body=BODY, delivery=data_pb2.RECOVERABLE)
        message = data_pb2.OutgoingMessage(targets=[FORMAT_NAME], properties=properties)
        request = data_pb2.SendRequest(request=self.next(count), messages=[message] * count)
        reply = await self.data.Send(request)
        assert all(result.status == 0 for result in reply.results)


async def fill(session: Session, count: int) -> None:
    await session.open(data_pb2.SEND_ACCESS)
    for _ in range(0, count, PER_SEND):
        await session.send(PER_SEND)


async def drain(session: Session, count: int, *, commits: bool) -> None:
    """Receive by a stream, confirming each batch as a range."""
    queue = await session.open(data_pb2.RECEIVE_ACCESS)
    call = session.data.StreamReceive()
    opening = data_pb2.StreamOpen(
        client_id=session.client_id, handle=queue.handle, commit_confirms=commits
    )
    await call.write(data_pb2.StreamRequest(open=opening))

    async def grant(wanted: int) -> None:
        credit = data_pb2.StreamCredit(first_number=session.next(wanted).number, count=wanted)
        await call.write(data_pb2.StreamRequest(credit=credit))

    await grant(CREDIT)
    left = owed = count
    async for reply in call:
        numbers = reply.messages.numbers
        if numbers:
            left -= len(numbers)
            confirm = data_pb2.StreamConfirm(confirmed_upto=numbers[-1])
            await call.write(data_pb2.StreamRequest(confirm=confirm))
            owed = len(numbers)
            if commits:
                continue
        if left <= 0:
            break
        if numbers or reply.confirmed_upto:
            await grant(owed)
    await call.done_writing()
    async for _ in call:
        pass


async def wait_for_each(sender: Session, receiver: Session, count: int) -> list[float]:
    """Return how long messages took to a reader that waits, milliseconds."""
    await sender.open(data_pb2.SEND_ACCESS)
    queue = await receiver.open(data_pb2.RECEIVE_ACCESS)
    taken = []
    for _ in range(count):
        request = data_pb2.ReceiveRequest(
            request=receiver.next(), handle=queue.handle, timeout_ms=60_000
        )
        waiting = asyncio.ensure_future(receiver.data.Receive(request))
        await asyncio.sleep(0.005)  # the reader is in line by then
        began = time.perf_counter()
        await sender.send(1)
        await waiting
        taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)


async def scrubbed(cluster: Any) -> float:
    """Have every node read back what it stores; return the MiB a second of the slowest."""
    begun = await cluster.StartScrub(control_pb2.ScrubRequest())
    waiting = {node.node: node.rounds for node in begun.nodes}
    sizes = {node.node: node.live_bytes for node in begun.nodes}
    rates: list[float] = []
    began = time.perf_counter()
    while waiting:
        await asyncio.sleep(LOOK_EVERY_S)
        for node in (await cluster.GetScrub(control_pb2.ScrubRequest())).nodes:
            if node.rounds > waiting.get(node.node, node.rounds):
                del waiting[node.node]
                rates.append(sizes[node.node] / (time.perf_counter() - began) / (1 << 20))
    return min(rates)


async def keep_scrubbing(cluster: Any) -> None:
    while True:
        await scrubbed(cluster)


async def send_beside(work: Any, channel: grpc.aio.Channel, name: str, count: int) -> float:
    """Return messages a second of a load beside which other work runs."""
    beside = asyncio.create_task(work)
    began = time.perf_counter()
    await asyncio.gather(
        *(fill(Session(channel, f"{name}-s{k}"), count // SESSIONS) for k in range(SESSIONS))
    )
    took = time.perf_counter() - began
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)
    return count / took


async def measure(folder: Path, messages: int) -> dict[str, float]:
    async with dev_cluster(folder) as (layout, nodes):
        leader = await leader_of(nodes)
        follower = next(node for node in nodes if node is not leader)

        def dial(node: DevNode) -> grpc.aio.Channel:
            pki = layout.pki
            credentials = grpc.ssl_channel_credentials(
                (pki / "authority.pem").read_bytes(),
                (pki / "admin.key").read_bytes(),
                (pki / "admin.pem").read_bytes(),
            )
            options = (
                ("grpc.max_receive_message_length", MESSAGE_MAX_BYTES),
                ("grpc.use_local_subchannel_pool", 1),
            )
            return grpc.aio.secure_channel(node.api, credentials, options=options)

        found: dict[str, float] = {}
        async with dial(leader) as here, dial(follower) as there:
            control: Any = control_pb2_grpc.QueueControlStub(here)
            await control.CreateQueue(control_pb2.CreateQueueRequest(path_name=QUEUE))
            for name, channel, commits in (
                ("receive", here, False),
                ("receive_follower", there, False),
                ("receive_committed", here, True),
            ):
                before, began = cpu_s(layout, nodes), time.perf_counter()
                share = messages // SESSIONS
                await asyncio.gather(
                    *(fill(Session(here, f"{name}-s{k}"), share) for k in range(SESSIONS))
                )
                took = time.perf_counter() - began
                found["send_msgs_per_s"] = messages / took
                found["send_cpu_us_per_msg"] = (cpu_s(layout, nodes) - before) / messages * 1e6
                before, began = cpu_s(layout, nodes), time.perf_counter()
                await drain(Session(channel, f"{name}-r"), messages, commits=commits)
                took = time.perf_counter() - began
                found[f"{name}_msgs_per_s"] = messages / took
                if name == "receive":
                    used = cpu_s(layout, nodes) - before
                    found["receive_cpu_us_per_msg"] = used / messages * 1e6
            cluster: Any = control_pb2_grpc.ClusterControlStub(here)
            found["scrub_mib_per_s"] = await scrubbed(cluster)
            alone = await send_beside(asyncio.sleep(0), here, "alone", messages)
            beside = await send_beside(keep_scrubbing(cluster), here, "scrubbed", messages)
            found["send_while_scrubbed_ratio"] = beside / alone
            await drain(Session(here, "emptied"), 2 * messages, commits=False)
            times = await wait_for_each(Session(there, "wait-s"), Session(here, "wait-r"), WAITS)
            found["wait_p50_ms"] = statistics.median(times)
            found["wait_p99_ms"] = times[int(len(times) * 0.99)]
        return {name: round(value, 2) for name, value in found.items()}


def main() -> int:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
        found = uvloop.run(measure(Path(folder), messages))
    report = {"machine": platform.platform(), "cpus": os.cpu_count(), "messages": messages} | found
    Path("build").mkdir(exist_ok=True)
    Path("build/bench-api.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
