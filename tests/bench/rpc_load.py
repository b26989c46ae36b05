"""Remote readers in a process of their own: `python -m tests.bench.rpc_load SPEC`.

Writes "ready" once all have their queue open, begins when a line comes, and reports as JSON.
"""

import asyncio
import resource
import secrets
import sys
import time

import msgspec
import uvloop

from qm.rpc.client import RpcClient
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.unit.rpc.reading import RemoteReader


class Reading(msgspec.Struct, frozen=True):
    """Readers of one queue, each of which takes `count` messages and accepts every one."""

    host: str
    port: int
    user: str
    password: str
    readers: int
    count: int


class ReadingSeen(msgspec.Struct):
    """When they began and ended, monotonic, which all processes share."""

    began_s: float
    ended_s: float
    cpu_s: float
    """Of this process in between."""


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def connected(work: Reading) -> RemoteReader:
    client = await RpcClient().connect(work.host, work.port)
    provider = NtlmClient(work.user, work.password, "", secrets.token_bytes)
    await client.bind(
        REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
    )
    return RemoteReader(client)


async def read(work: Reading) -> ReadingSeen:
    readers = [await connected(work) for _ in range(work.readers)]
    handles = [await reader.open() for reader in readers]

    async def take(reader: RemoteReader, handle: bytes) -> None:
        for _ in range(work.count):
            assert (await reader.start(handle)).status == 0
            assert await reader.end(handle) == 0

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    await asyncio.gather(*map(take, readers, handles))
    seen = ReadingSeen(began_s, time.monotonic(), cpu_s() - began_cpu_s)
    for reader, handle in zip(readers, handles, strict=True):
        await reader.close(handle)
        reader.client.close()
    return seen


if __name__ == "__main__":
    specified = msgspec.json.decode(sys.argv[1], type=Reading)
    sys.stdout.write(msgspec.json.encode(uvloop.run(read(specified))).decode() + "\n")
