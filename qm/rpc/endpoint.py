"""The RPC endpoint of a node: which interfaces stand on which port, from its settings."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from qm.edge.tcp.listeners import bind
from qm.observe.metrics import Metrics
from qm.rpc.association.connection import Served
from qm.rpc.association.groups import Associations
from qm.rpc.association.shared import Shared
from qm.rpc.endpoint_mapper import MAPPER, EndpointMapper, Registration
from qm.rpc.interface import Interface
from qm.rpc.mgmt import MGMT, Mgmt
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security.provider import Providers
from qm.rpc.server.ports import Port, RpcPorts
from qm.rpc.server.rpc_metrics import RpcMetrics
from qm.wire.guid import Guid


class RpcSettings(msgspec.Struct, frozen=True):
    """Where a node serves RPC."""

    addresses: Sequence[str]
    """Literal addresses to listen on."""
    mapper_port: int
    """135, unless something else has it."""
    port: int
    """Of remote read and remote management."""


class RpcAccess(msgspec.Struct, frozen=True):
    """Who may call what, where it is not as the interfaces have it."""

    levels: Mapping[Guid, AuthLevel] = {}
    """Least protection, by interface."""
    anonymous: frozenset[Guid] = frozenset()
    """Interfaces that may be called without logging on."""


class ObjectImplementations(msgspec.Struct, frozen=True):
    """What objects over DCOM need: `qm.rpc.dcom.service.Dcom` has it."""

    on_mapper_port: Mapping[Interface, object] = {}
    on_port: Mapping[Interface, object] = {}


AS_DECLARED: Final = RpcAccess()
NO_OBJECTS: Final = ObjectImplementations()


class RpcEndpoint:
    """All RPC ports of a node. Create, start and stop it in the node's event loop."""

    def __init__(
        self,
        settings: RpcSettings,
        implementations: Mapping[Interface, object],
        providers: Providers,
        metrics: Metrics,
        access: RpcAccess = AS_DECLARED,
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
        objects: ObjectImplementations = NO_OBJECTS,
        principal: Callable[[], str] = str,
    ) -> None:
        """`implementations`: of the interfaces that stand on `settings.port`, beside `objects`,
        which the mapper does not tell. `principal`: the name that clients ask tickets for.
        """
        self._settings = settings
        self._interfaces = list(implementations)
        associations: Final = Associations(secrets.token_bytes)
        self._associations = associations
        shared: Final = Shared()
        named = partial(_name_for, providers, principal)
        mapper = {MAPPER: EndpointMapper(self._registered), **objects.on_mapper_port}
        self._ports = RpcPorts(
            settings.addresses,
            [
                _port(settings.mapper_port, mapper, providers, associations, shared, access, named),
                _port(
                    settings.port,
                    {**implementations, **objects.on_port},
                    providers,
                    associations,
                    shared,
                    access,
                    named,
                ),
            ],
            RpcMetrics(metrics, asyncio.get_running_loop().time),
            bind,
        )

    def _registered(self) -> Sequence[Registration]:
        """Return what the mapper knows: everything on the port, as long as it is open."""
        (_, port), *_ = self.endpoints(self._settings.port)
        return [Registration(one, port) for one in (*self._interfaces, MGMT)]

    def endpoints(self, number: int) -> list[tuple[str, int]]:
        """Return addresses and ports, as bound, of the port that was configured as `number`."""
        return self._ports.endpoints(number)

    async def start(self) -> None:
        """Listen. Raises OSError that names the address."""
        await self._ports.start()

    async def stop(self) -> None:
        """End waits with an answer, run handles down, close the ports."""
        await self._ports.stop()


def _name_for(providers: Providers, principal: Callable[[], str], auth_type: int) -> str | None:
    """Return the name that clients ask tickets for; None for a provider that is not offered."""
    is_offered = providers.begin(auth_type, AuthLevel.CONNECT, "") is not None
    return principal() if is_offered else None


def _port(
    number: int,
    implementations: Mapping[Interface, object],
    providers: Providers,
    associations: Associations,
    shared: Shared,
    access: RpcAccess,
    named: Callable[[int], str | None],
) -> Port:
    interfaces = [*implementations, MGMT]
    objects = {one.syntax.uuid: each for one, each in implementations.items()}
    objects[MGMT.syntax.uuid] = Mgmt(partial(list, interfaces), named)
    served = Served(
        {(one.syntax.uuid, one.syntax.major): one for one in interfaces},
        providers,
        associations,
        shared,
        access.levels,
        access.anonymous,
    )
    return Port(number, served, objects)
