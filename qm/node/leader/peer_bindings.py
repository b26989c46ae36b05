"""Keeps the replicated rules of bindings as this node's configuration says, while it leads.

Apply decides by replicated rules alone. All nodes shall have the same configuration; where they
differ, the rules change with the leader. Host names are looked up here, since apply must not.
"""

import logging
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final

from qm.cluster.cluster import Cluster
from qm.edge.outgoing import Resolver
from qm.model.queries import binding_policy
from qm.model.values.commands import SetBindings
from qm.model.values.elements import BindingMode
from qm.model.values.limits import VERSION_OF_BINDINGS
from qm.model.values.records import BindingPolicy
from qm.names.guid import guid_text
from qm.node.config.addresses import peer_hosts
from qm.node.config.schema import NodeConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 10.0


class PeerBindings:
    """The leader's part; repeated by `qm.node.leader.leader_tasks`."""

    def __init__(self, config: NodeConfig, cluster: Cluster, resolver: Resolver) -> None:
        msmq = config.msmq
        self._mode = BindingMode[msmq.binding.upper()]
        self._silence_ms = msmq.binding_silence_s * 1000
        self._shared = tuple(sorted({str(ip_network(text)) for text in msmq.binding_shared}))
        self._hosts = peer_hosts(config)
        self._cluster = cluster
        self._resolver = resolver

    async def look(self) -> None:
        """Change the rules if they are not what the configuration says."""
        view = self._cluster.view
        if view.counters().apply_version < VERSION_OF_BINDINGS:
            return
        known = binding_policy(view)
        wanted = BindingPolicy(self._mode, self._silence_ms, self._shared, await self._pins(known))
        if wanted == known or (known is None and self._mode is BindingMode.OFF):
            return
        command = SetBindings(wanted.mode, wanted.silence_ms, wanted.shared, wanted.pins)
        (outcome,) = await self._cluster.propose(command)
        if outcome.status:
            raise RuntimeError(f"the rules of `msmq.binding` are refused: {outcome.status:#x}")
        logger.info(
            "GUIDs of queue managers are bound to addresses: %s, %d pins",
            self._mode.name.lower(),
            len(wanted.pins),
        )

    async def _pins(self, known: BindingPolicy | None) -> tuple[str, ...]:
        """Return the pins that `peers` means now."""
        pins: set[str] = set()
        for guid, hosts in self._hosts.items():
            text = guid_text(guid)
            for host in hosts:
                networks = await self._networks(host)
                if networks:
                    pins.update(f"{text} {network}" for network in networks)
                elif known is not None:  # no answer now: what it was stays
                    pins.update(pin for pin in known.pins if pin.startswith(f"{text} "))
        return tuple(sorted(pins))

    async def _networks(self, host: str) -> Sequence[str]:
        """Return the networks that an address, a network or a host name stands for."""
        try:
            return [str(ip_network(host))]
        except ValueError:
            pass
        try:
            found = await self._resolver.addresses(host)
        except OSError as error:
            logger.warning("`peers`: %s has no address: %s", host, error)
            return []
        return [str(ip_network(address.partition("%")[0])) for address in found]
