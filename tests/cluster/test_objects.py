"""Objects over DCOM at nodes as processes, asked for at a node that does not have them."""

import asyncio
import secrets
import signal
from pathlib import Path

import pytest

from qm.node.dev import pids
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.runtime.exporter import node_of
from qm.rpc.dcom.runtime.identifiers import IID_IDISPATCH, IID_IUNKNOWN
from qm.rpc.dcom.runtime.objref import Objref
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.security.ntlm import NtlmClient
from tests.cluster.remote_reader import PASSWORD, USER
from tests.cluster.test_processes import dev_cluster
from tests.cluster.test_remote_readers import add_account, rpc_layout
from tests.unit.rpc.dcom.scripts import clsid

MAPPER_PORT = 11350
RPC = f"[rpc]\nenabled = true\nobjects = true\nmapper_port = {MAPPER_PORT}\nport_base = 2103\n"
COMPLEX_PING = 2
UNKNOWN_EXPORTER = 1910
SCENARIO_S = 240.0


def server(host: str, only_host: str = "") -> Server:
    logon = Logon(lambda: NtlmClient(USER, PASSWORD, "", secrets.token_bytes))
    return Server(host, MAPPER_PORT, logon, only_host)


async def ping(at: Server, number: int, added: list[int]) -> tuple[int, int]:
    resolver = await at.resolver()
    given = [number, 1, len(added), 0, added or None, None]
    found, _, status = await resolver.call(IOBJECTEXPORTER, COMPLEX_PING, given)
    return found, status


@pytest.mark.timeout(320)
def test_any_node_resolves_and_pings_for_the_one_that_has_the_object(tmp_path: Path) -> None:
    async def scenario() -> None:
        layout = rpc_layout(tmp_path, RPC)
        async with dev_cluster(tmp_path) as (_, nodes):
            await add_account(layout, nodes)
            home, other = nodes[0], nodes[1]
            # A balancer would lead the port of the exporter to its node.
            near, far = server(home.host), server(other.host, only_host=home.host)
            try:
                (made,) = await near.create(clsid("MSMQQuery"), IID_IDISPATCH)
                assert node_of(made.oxid) == node_of(made.oid) == 1
                await far.resolve(made.oxid)
                (found,) = await far.query(made.ipid, IID_IUNKNOWN)
                assert isinstance(found, Objref)
                assert found.oid == made.oid
                number, status = await ping(far, 0, [made.oid])
                assert (node_of(number), status) == (1, 0)
                assert await ping(near, number, []) == (number, 0)
                assert pids.send(layout.pid(home.name), signal.SIGKILL)
                with pytest.raises(ComError) as gone:
                    await far.resolve(made.oxid)
                assert gone.value.status == UNKNOWN_EXPORTER
            finally:
                near.close()
                far.close()

    asyncio.run(asyncio.wait_for(scenario(), SCENARIO_S))
