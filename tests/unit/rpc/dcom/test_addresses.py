"""Programs that call from several addresses: computers with two, or behind several balancers."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from typing_extensions import override

from qm.rpc.client import RpcClient
from qm.rpc.dcom import service
from qm.rpc.dcom.client import Logon, Server
from qm.rpc.dcom.hresults import ComError
from qm.rpc.dcom.mqac import callers
from qm.rpc.dcom.runtime.objref import Bindings
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.security.ntlm import NtlmClient
from qm.wire.codes import ErrorCode
from qm.wire.guid import Guid
from tests.cluster.harness import run
from tests.unit.rpc.dcom.scripts import RECEIVE, Program, dcom_world
from tests.unit.rpc.reading import MAPPER_PORT, RPC_PORT

SECOND = "127.9.9.9"


class TwoAddresses(Server):
    """Has objects made from one address, and calls them from another."""

    def __init__(self, host: str) -> None:
        self.host = host
        logon = Logon(self._provider)
        super().__init__(host, MAPPER_PORT, logon)

    @staticmethod
    def _provider() -> NtlmClient:
        return NtlmClient("alice", "pw", "", secrets.token_bytes)

    @override
    async def reach(self, bindings: Bindings, ipid_rem_unknown: Guid) -> None:
        self.ipid_rem_unknown = ipid_rem_unknown
        if self._objects is not None:
            return
        client = RpcClient()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: client, self.host, RPC_PORT, local_addr=(SECOND, 0))
        await client.bind(
            IREMUNKNOWN,
            provider=self._provider(),
            auth_type=AuthType.NTLM,
            level=AuthLevel.PRIVACY,
        )
        self._objects = client


def test_objects_outlive_what_was_made_from_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "IDLE_MAX_S", 0.2)
    monkeypatch.setattr(service, "SWEEP_EVERY_S", 0.1)

    async def scenario() -> None:
        async with dcom_world() as world:
            node = await world.harness.leader()
            program = Program(node.host)
            program.server = TwoAddresses(node.host)
            info = await program.new_queue()
            queue = await info.call("Open", RECEIVE, 0)
            await info.release()
            await asyncio.sleep(1)
            with pytest.raises(ComError) as nothing:
                await queue.call("Receive", ReceiveTimeout=0)
            assert nothing.value.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
            program.close()

    run(scenario())
