"""This node's RPC endpoint for Windows programs, from its configuration."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qm.api.data.service import Data
from qm.api.gate.operations import Operations
from qm.cluster.cluster import Cluster
from qm.edge.tcp.listeners import bind
from qm.node.config.schema import NodeConfig
from qm.node.membership.manager_keys import NodeKeys
from qm.node.relay.exporters import number_of
from qm.observe.metrics import Metrics
from qm.rpc.cluster_accounts import AccountsInTurn, ClusterAccounts
from qm.rpc.dcom.runtime.relayed import OtherNodes, Question, Unanswered
from qm.rpc.endpoint import (
    NO_OBJECTS,
    ObjectImplementations,
    RpcAccess,
    RpcEndpoint,
    RpcSettings,
)
from qm.rpc.path_names import QMCOMM, PathNames
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_management.senders import Senders
from qm.rpc.remote_management.service import Audit, RemoteManagement
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.remote_read.messages import ReadPorts, ReadSettings
from qm.rpc.remote_read.service import FINISH_MAX_S, RemoteRead
from qm.rpc.security.accounts import AccountSource, Logons
from qm.rpc.security.kerberos import KerberosMissing, Keytab
from qm.rpc.security.ntlm import NtlmClient, NtlmTarget
from qm.rpc.security.providers import OfferedProviders
from qm.rpc.users_file import UsersFile
from qm.store.sealing import SealingError

if TYPE_CHECKING:
    from qm.rpc.dcom.client import Logon
    from qm.rpc.dcom.mqac.callers import Channels
    from qm.rpc.dcom.service import Dcom

logger: Final = logging.getLogger(__name__)

PORT_STEP_COUNT: Final = 11
"""Between the ports of two nodes, as MSMQ itself steps when a port is taken [MS-MQRR 3.1.4.1]."""
_FILETIME_OF_EPOCH: Final = 116_444_736_000_000_000
_NS_PER_TICK: Final = 100
_S_PER_MINUTE: Final = 60
_PORT_MAX: Final = 65_535


class WindowsEndpoint:
    """The RPC ports, if the configuration wants them."""

    def __init__(
        self,
        config: NodeConfig,
        cluster: Cluster,
        data: Data,
        operations: Operations,
        keys: NodeKeys,
        audit: Audit,
        metrics: Metrics,
        channels: "Channels",
        others: OtherNodes,
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
    ) -> None:
        """`channels`: of the node's API, for objects. `others`: who has those of other nodes."""
        self._config = config
        self._cluster = cluster
        self._keys = keys
        ports = ReadPorts(cluster, data.proposer, data.sessions, data.waits, data.bodies)
        reading = ReadSettings(
            config.rpc.return_after_minutes * _S_PER_MINUTE, config.rpc.trailing_headers
        )
        self._remote_read = RemoteRead(ports, metrics, self._port, reading)
        senders = Senders(cluster, metrics)
        self._management = RemoteManagement(cluster, data.proposer, operations, audit, senders)
        self._metrics = metrics
        self._bind = bind
        self._channels = channels
        self._others = others
        self._dcom: Dcom | None = None
        self.rpc: RpcEndpoint | None = None
        """None while it is off or stopped."""

    async def start(self) -> None:
        """Open the ports. Raises OSError that names the address."""
        rpc = self._config.rpc
        if not rpc.enabled:
            return
        settings = RpcSettings(await self._addresses(), rpc.mapper_port, port_of(self._config))
        accounts = self._accounts()
        providers = OfferedProviders(
            self._target,
            Logons(accounts, time.monotonic),
            secrets.token_bytes,
            lambda: time.time_ns() // _NS_PER_TICK + _FILETIME_OF_EPOCH,
            None if rpc.keytab is None else _keytab(rpc.keytab, accounts).acceptor,
        )
        level = AuthLevel.INTEGRITY if rpc.level == "integrity" else AuthLevel.PRIVACY
        access = RpcAccess(
            {REMOTE_READ.syntax.uuid: level},
            frozenset((REMOTE_READ.syntax.uuid,)) if rpc.anonymous_receive else frozenset(),
        )
        if rpc.objects:
            self._dcom = self._new_dcom()
        implementations = {
            REMOTE_READ: self._remote_read,
            QMMGMT: self._management,
            QMCOMM: PathNames(self._cluster),
        }
        endpoint = RpcEndpoint(
            settings,
            implementations,
            providers,
            self._metrics,
            access,
            self._bind,
            NO_OBJECTS
            if self._dcom is None
            else ObjectImplementations(self._dcom.on_mapper_port, self._dcom.on_port),
            lambda: f"HOST/{self._target().dns_name}",
        )
        await endpoint.start()
        self.rpc = endpoint
        if self._dcom is not None:
            self._dcom.start()

    def _new_dcom(self) -> "Dcom":
        from qm.rpc.dcom.service import Dcom, DcomSettings  # loads the client of the API

        rpc = self._config.rpc
        node = number_of(self._config.name)
        settings = DcomSettings(
            node, rpc.names, self._sink_logon(), rpc.sink_port, rpc.keytab is not None
        )
        return Dcom(settings, self._channels, self._port, self._metrics, self._others)

    async def ask_exporter(self, question: Question) -> bytes:
        """Answer for another node, about objects here. Raises Unanswered, BadStub."""
        if self._dcom is None:
            raise Unanswered("this node has no objects; see `objects` in [rpc]")
        return await self._dcom.resolver.answer(question)

    def _sink_logon(self) -> "Logon":
        """Return how sinks of programs are called. Raises OSError."""
        from qm.rpc.dcom.client import Logon

        rpc = self._config.rpc
        if not rpc.sink_user or rpc.sink_password_file is None:
            return Logon(lambda: None)
        domain, _, user = rpc.sink_user.rpartition("\\")
        password = rpc.sink_password_file.read_text(encoding="utf-8").rstrip("\r\n")
        return Logon(lambda: NtlmClient(user, password, domain, secrets.token_bytes))

    def _accounts(self) -> AccountSource:
        """Return the cluster's accounts, and behind them those of this node's file."""
        ours = ClusterAccounts(self._cluster, self._opened)
        return AccountsInTurn((ours, UsersFile(self._config.rpc.users_file)))

    def _opened(self, sealed: bytes, label: bytes) -> bytes | None:
        try:
            return self._keys.opened(sealed, label)
        except SealingError as error:
            logger.warning("an account cannot be used here: %s", error)
            return None

    def _port(self) -> int:
        return 0 if self.rpc is None else port_of(self._config)

    def _target(self) -> NtlmTarget:
        """Return who this cluster says it is; before its birth, this node's name."""
        manager = self._cluster.view.ledger.manager
        computer = self._config.name if manager is None else manager.computer_name
        dns_name = "" if manager is None else manager.qualified_computer_name
        return NtlmTarget(computer.upper(), dns_name or computer, self._config.rpc.require_mic)

    async def _addresses(self) -> tuple[str, ...]:
        config = self._config
        loop = asyncio.get_running_loop()
        found: dict[str, None] = {}
        for host in config.rpc.listen or (config.bind or config.host,):
            infos = await loop.getaddrinfo(host, config.rpc.mapper_port, type=socket.SOCK_STREAM)
            found |= {str(info[4][0]): None for info in infos}
        return tuple(found)

    async def abort(self) -> None:
        """Close the ports at once; leases end what readers hold."""
        self._remote_read.leave()
        await self._stop(0)

    async def stop(self) -> None:
        """End what waits, return what is lent, close the ports."""
        await self._stop(FINISH_MAX_S)

    async def _stop(self, within_s: float) -> None:
        if self.rpc is not None:
            endpoint, self.rpc = self.rpc, None
            await endpoint.stop()
            if self._dcom is not None:
                dcom, self._dcom = self._dcom, None
                await dcom.stop(within_s)
            await self._remote_read.stop(within_s)


def _keytab(path: Path, accounts: AccountSource) -> Keytab:
    """Return the keys by which tickets are taken. Raises OSError."""
    try:
        return Keytab(path, accounts)
    except KerberosMissing as error:
        raise OSError(str(error)) from error


def port_of(config: NodeConfig) -> int:
    """Return the port of a node's interfaces."""
    ordinal = number_of(config.name) if config.rpc.port_by_ordinal else 0
    return min(config.rpc.port_base + PORT_STEP_COUNT * ordinal, _PORT_MAX)
