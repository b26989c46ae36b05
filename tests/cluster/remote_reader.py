"""A remote reader as a process, as a Windows queue manager reads for a program.

    python -m tests.cluster.remote_reader PORT HOST...

It opens the queue at the first host that lets it, reads and acknowledges, and goes on to the next
host when its connection or its handle is gone. It prints a line for each message: `taken BODY`, or
`doubtful BODY` when the acknowledgement had no answer: a Windows queue manager has given the
message to its program by then.
"""

import asyncio
import secrets
import sys
from itertools import cycle

from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.interface import Fault
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from tests.unit.rpc.reading import RemoteReader, body

WAIT_MS = 2_000
CONNECT_S = 5.0
PAUSE_S = 0.2
TIMED_OUT = 0xC00E001B
USER, PASSWORD = "alice", "S3cret!"


async def opened(host: str, port: int) -> tuple[RemoteReader, bytes]:
    """Open the queue at a node. Raises RpcFailed, Fault, TimeoutError."""
    async with asyncio.timeout(CONNECT_S):
        client = await RpcClient().connect(host, port)
        try:
            provider = NtlmClient(USER, PASSWORD, "", secrets.token_bytes)
            await client.bind(
                REMOTE_READ, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
            )
            reader = RemoteReader(client)
            return reader, await reader.open()
        except BaseException:
            client.close()
            raise


async def read(reader: RemoteReader, handle: bytes) -> None:
    """Read until the connection or the handle is gone. Raises RpcFailed, Fault."""
    while True:
        found = await reader.start(handle, timeout_ms=WAIT_MS)
        if found.status == TIMED_OUT:
            continue
        if found.status:
            raise Fault(found.status)
        text = body(found).decode()
        try:
            status = await reader.end(handle)
        except (RpcFailed, Fault):
            print("doubtful", text, flush=True)
            raise
        print("doubtful" if status else "taken", text, flush=True)


async def main(port: int, hosts: list[str]) -> None:
    for host in cycle(hosts):
        try:
            reader, handle = await opened(host, port)
        except (RpcFailed, Fault, TimeoutError, ValueError):
            await asyncio.sleep(PAUSE_S)
            continue
        print("opened", host, flush=True)
        try:
            await read(reader, handle)
        except (RpcFailed, Fault) as error:
            print("ended", host, error, flush=True)
        finally:
            reader.client.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
