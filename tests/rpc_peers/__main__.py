"""Run third parties' clients against one node: `python -m tests.rpc_peers PYTHON-WITH-IMPACKET`."""

import asyncio
import sys
from pathlib import Path

from tests.cluster.harness import run
from tests.unit.rpc.reading import MAPPER_PORT, rpc_world, with_orders

CLIENTS = [Path(__file__).with_name(f"impacket_{name}.py") for name in ("client", "objects")]


async def main(python: str) -> None:
    async with rpc_world(require_mic=False, objects=True) as made:
        node = await made.harness.leader()
        async with made.client(await made.leader()) as client:
            await with_orders(client, b"one", b"x" * 100_000)
        for each in CLIENTS:
            process = await asyncio.create_subprocess_exec(
                python, str(each), node.host, str(MAPPER_PORT)
            )
            assert await process.wait() == 0, each.name


if __name__ == "__main__":
    run(main(sys.argv[1]))
