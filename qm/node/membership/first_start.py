"""`qm cluster init` and `qm node join` with a node's configuration, certificate and keys."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from qm.model.values.commands import Provision
from qm.node.config.addresses import AddressBook
from qm.node.config.loading import ConfigError, load
from qm.node.config.schema import MemberSection, NodeConfig
from qm.node.config.tls import peer_files
from qm.node.membership.birth import create_sealing_key, provision, sealing_key
from qm.node.membership.join import JoinRefused, Say, Steps
from qm.node.relay.channels import Channels
from qm.store.sealing import SealingError
from raft.transport.metrics import TransportMetrics
from raft.transport.tls import TlsError, TlsIdentity


async def init_cluster(path: Path, computer_name: str, dns_name: str, say: Say) -> None:
    """Make the members in a configuration a cluster and a queue manager.

    Reports each step to `say`. Raises JoinRefused.
    """
    config = _load(path)
    command, key = birth_of(config, computer_name, dns_name)
    async with open_steps(config, say) as steps:
        cluster = await steps.init(command, key)
    say(f"cluster {cluster.hex()} is born: queue manager {computer_name}")


async def join_cluster(path: Path, say: Say) -> None:
    """Make the running node of a configuration a voter of its seeds' cluster.

    Reports each step to `say`. Raises JoinRefused.
    """
    config = _load(path)
    async with open_steps(config, say) as steps:
        await steps.join(known_key(config, say))


async def leave_cluster(path: Path, say: Say) -> None:
    """Remove the node of a configuration from its cluster for good, whether it runs or not.

    Raises JoinRefused.
    """
    async with open_steps(_load(path), say) as steps:
        await steps.leave()


def birth_of(config: NodeConfig, computer_name: str, dns_name: str) -> tuple[Provision, bytes]:
    """Return the command that makes the queue manager, and the key that seals its private keys,
    created if there is none. Slow. Raises JoinRefused.
    """
    try:
        key = create_sealing_key(config.storage, config.data)
    except (SealingError, OSError) as error:
        raise JoinRefused(str(error)) from error
    hosts = (member.host for member in config.members)
    aliases = tuple(dict.fromkeys((*config.msmq.aliases, *hosts)))
    return provision(computer_name, dns_name or computer_name.lower(), aliases, key), key


def known_key(config: NodeConfig, say: Say) -> bytes:
    """Return the key that opens private keys; if it cannot be had, report why and return none."""
    try:
        return sealing_key(config.storage, config.data)
    except SealingError as error:
        say(f"the node will not open private keys: {error}")
        return b""


def _load(path: Path) -> NodeConfig:
    try:
        return load(path)
    except ConfigError as error:
        raise JoinRefused(str(error)) from error


@contextlib.asynccontextmanager
async def open_steps(config: NodeConfig, say: Say) -> AsyncIterator[Steps]:
    """Yield the steps with a node's certificate and addresses. Raises JoinRefused."""
    try:
        identity = TlsIdentity(peer_files(config.tls), TransportMetrics())
    except TlsError as error:
        raise JoinRefused(str(error)) from error
    own = MemberSection(
        name=config.name,
        host=config.host,
        raft_port=config.raft.port,
        relay_port=config.raft.relay_port,
    )
    channels = Channels(identity, AddressBook((*config.members, own)).relay_of)
    try:
        yield Steps(config, channels, say)
    finally:
        await channels.close()
