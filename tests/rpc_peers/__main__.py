"""Run third parties' clients against one node: `python -m tests.rpc_peers PYTHON-WITH-IMPACKET`.

Samba's tests ask for port 135, so this needs root. They run with the system's Python, which has
Debian's python3-samba (`make deps-system`).
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.cluster.harness import run
from tests.rpc_peers import report, samba_programs
from tests.unit.rpc.reading import rpc_world, with_orders

HERE = Path(__file__).parent
IMPACKET = ("impacket_client.py", "impacket_objects.py")
MAPPER_PORT = 135
SYSTEM_PYTHON = "/usr/bin/python3"


async def client(*command: object) -> None:
    """Run a client; it fails if that does."""
    process = await asyncio.create_subprocess_exec(*map(str, command))
    assert await process.wait() == 0, f"{command[1]} failed"


async def main(python: str) -> None:
    async with rpc_world(mapper_port=MAPPER_PORT, require_mic=False, objects=True) as made:
        host = (await made.harness.leader()).host
        async with made.client(await made.leader()) as sender:
            await with_orders(sender, b"one", b"x" * 100_000)
        for name in IMPACKET:
            await client(python, HERE / name, host, MAPPER_PORT)
        with tempfile.TemporaryDirectory() as folder:
            await client(SYSTEM_PYTHON, HERE / "samba_raw_protocol.py", host, folder)
            figures = json.loads((Path(folder) / "raw_protocol.json").read_text(encoding="utf-8"))
            figures |= await samba_programs.check(host, Path(folder))
    report.write("test-rpc", figures | {"impacket_programs_passed_count": len(IMPACKET)})


if __name__ == "__main__":
    run(main(sys.argv[1]))
