"""`qm node prestop`: prepares a node to be stopped on purpose."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qm.cli.lib.connection import Connection

if TYPE_CHECKING:
    from qm.node.config.schema import NodeConfig

ANSWER_S: Final = 5.0
"""Time for the node to answer at all."""
DRAIN_ANSWER_S: Final = 30.0
"""Time for a node to answer that it drains: it ends its sessions and hands over, 10 s each."""
TRANSFER_S: Final = 5.0
"""Time for another node to lead, after the draining one has begun to hand over."""
ASK_EVERY_S: Final = 0.5
_EVERYWHERE: Final = ("0.0.0.0", "::")


class NotReady(Exception):
    """The node may be stopped, but not without a gap; the text says why."""


def connection_of(config: "NodeConfig") -> Connection:
    """Return a connection to this machine's node with its own certificate."""
    from qm.node.config.addresses import host_and_port

    listen = config.api.listen or config.bind
    host = config.host if listen in ("", *_EVERYWHERE) else listen
    endpoint = host_and_port(host, config.api.port)
    if config.api.insecure:
        return Connection((endpoint,), connect_s=ANSWER_S)
    tls = config.tls
    return Connection(
        (endpoint,), tls.authority, tls.certificate, tls.key, config.name, connect_s=ANSWER_S
    )


async def make_ready(wire: Any, name: str, drain_s: float) -> None:
    """Wait until the others can do without a node, for `drain_s` at most, and drain it.

    Raises NotReady when it is drained although they cannot, or still leads; and what calls raise.
    """
    reason = await _wait_until_it_can_stop(wire, name, drain_s)
    still_leads = await _drain(wire, name)
    if reason:
        raise NotReady(f"{name} is drained although the others cannot do without it: {reason}")
    if still_leads:
        raise NotReady(
            f"{name} is drained but still leads: no node took over within {TRANSFER_S} s"
        )


async def _wait_until_it_can_stop(wire: Any, name: str, wait_s: float) -> str:
    """Return why it cannot stop, empty if it can."""
    from qm.pb import control_pb2

    request = control_pb2.CanStopRequest(node=name)
    clock = asyncio.get_running_loop().time
    end = clock() + wait_s
    while True:
        reply = await wire.call(lambda stubs: stubs.cluster.CanStop, request, deadline_s=ANSWER_S)
        if reply.can_stop:
            return ""
        if clock() >= end:
            return str(reply.reason)
        await asyncio.sleep(ASK_EVERY_S)


async def _drain(wire: Any, name: str) -> bool:
    """Drain; return whether it still leads."""
    from qm.pb import control_pb2

    request = control_pb2.DrainRequest(node=name)
    clock = asyncio.get_running_loop().time
    end = clock() + TRANSFER_S
    while True:
        reply = await wire.call(
            lambda stubs: stubs.cluster.Drain, request, wait_s=DRAIN_ANSWER_S, deadline_s=ANSWER_S
        )
        if not reply.is_leader or clock() >= end:
            return bool(reply.is_leader)
        await asyncio.sleep(ASK_EVERY_S)


async def leave(wire: Any, config: "NodeConfig", say: Callable[[str], None]) -> None:
    """Drain a node and remove it from the cluster. Raises NotReady, and what calls raise."""
    from qm.node.membership.first_start import open_steps
    from qm.node.membership.join import JoinRefused

    await _drain(wire, config.name)
    try:
        async with open_steps(config, say) as steps:
            await steps.leave()
    except JoinRefused as error:
        raise NotReady(str(error)) from error


async def _is_scaled_away(config: "NodeConfig", say: Callable[[str], None]) -> bool:
    from qm.node.leader.kubernetes import ApiServerRefused, is_scaled_away

    try:
        return await is_scaled_away(config.kubernetes, config.name)
    except ApiServerRefused as error:
        say(f"{config.name} stays a member: it is not known whether it will come back: {error}")
        return False


def prestop_node(path: Path, drain_s: float, say: Callable[[str], None]) -> None:
    """Make the node of a configuration ready to stop. Raises NotReady, ConfigError."""
    from qm.node.config.loading import load

    config = load(path)

    async def work(wire: Any) -> NotReady | None:
        try:
            if await _is_scaled_away(config, say):
                await leave(wire, config, say)
            else:
                await make_ready(wire, config.name, drain_s)
        except NotReady as error:
            return error
        return None

    if (error := connection_of(config).run(work)) is not None:
        raise error
