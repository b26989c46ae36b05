"""`qm rpc` against a node."""

import asyncio

from click.testing import CliRunner, Result

from qm.cli.main import main
from tests.cluster.harness import run
from tests.unit.api.world import Client
from tests.unit.rpc.reading import MAPPER_PORT, ORDERS, RpcWorld, rpc_world, with_orders


def test_a_node_is_asked_as_windows_would_ask_it() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        (node,) = world.harness.nodes.values()
        where = ["--to", node.host, "--mapper-port", str(MAPPER_PORT)]
        alice = ["--user", "alice", "--password", "pw"]

        async def qm(*words: str) -> Result:
            return await asyncio.to_thread(CliRunner().invoke, main, ["rpc", *words, *where])

        ping = await qm("ping")
        assert ping.exit_code == 0, ping.output
        assert "1a9134dd-7b39-45ba-ad88-44d01ca47f28 1.0 RemoteRead" in ping.output
        assert (await qm("map")).output.startswith("RemoteRead\t")
        assert (await qm("open", ORDERS, *alice)).output == "opened and closed\n"
        assert (await qm("receive", ORDERS, "--peek", *alice)).stdout_bytes == b"one"
        for body in (b"one", b"two"):
            assert (await qm("receive", ORDERS, "--ntlm", *alice)).stdout_bytes == body
        empty = await qm("receive", ORDERS, "--timeout", "10", *alice)
        assert (empty.exit_code, "C00E001B" in empty.output) == (1, True)
        denied = await qm("receive", ORDERS, "--user", "alice", "--password", "no")
        assert (denied.exit_code, denied.output) == (
            1,
            "Error: logging on failed: fault 00000721\n",
        )
        assert (await qm("open", ORDERS)).exit_code == 1
        assert (await qm("open", "nonsense=")).exit_code == 2

    async def main_() -> None:
        async with rpc_world() as made, made.client(await made.leader()) as client:
            await scenario(made, client)

    run(main_())
