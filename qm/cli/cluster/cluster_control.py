"""The verbs of `qm cluster` for a running cluster."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from qm.cli.cluster.prestop import DRAIN_ANSWER_S
from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import complete_nodes
from qm.cli.lib.output import confirm, output_option, show_one, show_rows, yes_option

SCRUB_COLUMNS = ("node", "live_bytes", "done_bytes", "rounds", "damage_found", "damage_left")
MEMBER_COLUMNS = ("name", "role", "leader", "reachable", "applied_index", "host", "version")


@click.command()
@output_option
@connected
def status(connection: Connection, output: str) -> None:
    """Show the leader, the log's position and the members. Exit code 1: there is no leader."""
    found = connection.run(get_status)
    show_one(status_row(found), output)
    if not found.leader:
        sys.exit(1)


@click.command()
@output_option
@connected
def members(connection: Connection, output: str) -> None:
    """List the members."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.ListMembersRequest()
        return await wire.call(lambda stubs: stubs.cluster.ListMembers, request)

    _show_members(connection.run(work), output)


@click.command()
@click.option(
    "--to",
    default="",
    shell_complete=complete_nodes,
    help="A member; default: the one closest to the leader's log.",
)
@output_option
@changing
def transfer(connection: Connection, to: str, output: str) -> None:
    """Hand leadership over; clients lose nothing."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        leader = (await get_status(wire)).leader  # the call is repeated if there is no answer
        request = control_pb2.TransferLeadershipRequest(to=to, leader="" if to else leader)
        return await wire.call(lambda stubs: stubs.cluster.TransferLeadership, request)

    reply = connection.run(work)
    show_one({"leader": reply.leader, "term": reply.term}, output)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@yes_option
@output_option
@changing
def drain(connection: Connection, node: str, yes: bool, output: str) -> None:
    """Make NODE accept no new sessions and hand over leadership, before it is stopped."""
    confirm(f"Drain {node}?", yes=yes)
    show_one(_drained(connection, node, "Drain"), output)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@output_option
@changing
def undrain(connection: Connection, node: str, output: str) -> None:
    """Make NODE serve again."""
    show_one(_drained(connection, node, "Undrain"), output)


@click.group()
def scrub() -> None:
    """Show what the nodes have read back and checked of their disks, or have them do it now."""


@scrub.command("status")
@click.argument("node", default="")
@output_option
@connected
def scrub_status(connection: Connection, node: str, output: str) -> None:
    """Show how far NODE, or every node, is. Exit code 1: something is damaged."""
    _show_scrub(connection, "GetScrub", node, output)


@scrub.command("start")
@click.argument("node", default="")
@output_option
@connected
def scrub_start(connection: Connection, node: str, output: str) -> None:
    """Have NODE, or every node, read everything back now, 64 MiB a second."""
    _show_scrub(connection, "StartScrub", node, output)


@click.command("can-stop")
@click.argument("node", shell_complete=complete_nodes)
@output_option
@connected
def can_stop(connection: Connection, node: str, output: str) -> None:
    """Show whether NODE can be stopped without losing the quorum. Exit code 1: no."""
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.CanStopRequest(node=node)
        return await wire.call(lambda stubs: stubs.cluster.CanStop, request)

    reply = connection.run(work)
    show_one({"can_stop": reply.can_stop, "reason": reply.reason}, output)
    if not reply.can_stop:
        sys.exit(1)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@click.option("--host", required=True, help="Host under which the other nodes reach it.")
@output_option
@changing
def add(connection: Connection, node: str, host: str, output: str) -> None:
    """Add NODE as a learner, before `qm node join` is run there."""
    from qm.pb import control_pb2

    place = control_pb2.MemberPlace(host=host)
    request = control_pb2.AddMemberRequest(name=node, place=place)
    _changed(connection, "AddMember", request, output)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@yes_option
@output_option
@changing
def remove(connection: Connection, node: str, yes: bool, output: str) -> None:
    """Remove NODE from the cluster for good."""
    from qm.pb import control_pb2

    confirm(f"Remove {node} from the cluster?", yes=yes)
    _changed(connection, "RemoveMember", control_pb2.RemoveMemberRequest(name=node), output)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@output_option
@changing
def promote(connection: Connection, node: str, output: str) -> None:
    """Make NODE, a learner, a voter."""
    from qm.pb import control_pb2

    _changed(connection, "PromoteMember", control_pb2.PromoteMemberRequest(name=node), output)


@click.command()
@click.argument("node", shell_complete=complete_nodes)
@click.option("--host", default="", help="Default: its previous host.")
@yes_option
@output_option
@changing
def replace(connection: Connection, node: str, host: str, yes: bool, output: str) -> None:
    """Let NODE return after it lost its disk: its old identity is removed."""
    from qm.pb import control_pb2

    confirm(f"Give up what is on the disk of {node}?", yes=yes)
    place = control_pb2.MemberPlace(host=host) if host else None

    async def work(wire: Any) -> Any:
        found = await wire.call(
            lambda stubs: stubs.cluster.ListMembers, control_pb2.ListMembersRequest()
        )
        ids = {member.name: member.raft_id for member in found.members}
        request = control_pb2.ReplaceMemberRequest(name=node, place=place)
        if node in ids:  # otherwise the cluster reports its members
            request.lost_incarnation = int(ids[node].rpartition(".")[2])
        return await wire.call(lambda stubs: stubs.cluster.ReplaceMember, request)

    _show_members(connection.run(work), output)


COMMANDS: Sequence[click.Command] = (
    *(status, members, transfer, drain, undrain, scrub, can_stop),
    *(add, remove, promote, replace),
)


async def get_status(wire: Any) -> Any:
    """Return the ClusterStatus of the node that answers."""
    from qm.pb import control_pb2

    return await wire.call(lambda stubs: stubs.cluster.GetStatus, control_pb2.GetStatusRequest())


def status_row(found: Any) -> dict[str, Any]:
    """Return a ClusterStatus for output."""
    from qm.names.guid import guid_text

    return {
        "computer_name": found.computer_name,
        "queue_manager": guid_text(found.queue_manager) if found.queue_manager else "",
        "node": found.node,
        "leader": found.leader,
        "term": found.term,
        "epoch": found.epoch,
        "apply_version": found.apply_version,
        "commit_index": found.commit_index,
        "applied_index": found.applied_index,
        "message_bytes": found.message_bytes,
        "journal_bytes": found.journal_bytes,
        "disk_free_bytes": found.disk_free_bytes,
        "disk_total_bytes": found.disk_total_bytes,
        "alarms": list(found.alarms),
        "draining": found.is_draining,
        "members": [_member_row(member) for member in found.members],
    }


def _drained(connection: Connection, node: str, method: str) -> dict[str, Any]:
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.DrainRequest(node=node)
        return await wire.call(
            lambda stubs: getattr(stubs.cluster, method), request, wait_s=DRAIN_ANSWER_S
        )

    reply = connection.run(work)
    return {"sessions": reply.sessions, "leader": reply.is_leader}


def _show_scrub(connection: Connection, method: str, node: str, output: str) -> None:
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        request = control_pb2.ScrubRequest(node=node)
        return await wire.call(lambda stubs: getattr(stubs.cluster, method), request)

    nodes = connection.run(work).nodes
    show_rows(map(_scrub_row, nodes), SCRUB_COLUMNS, output)
    if any(one.damage_left for one in nodes):
        sys.exit(1)


def _scrub_row(found: Any) -> dict[str, Any]:
    return {
        "node": found.node,
        "reachable": found.is_reachable,
        "live_bytes": found.live_bytes,
        "done_bytes": found.done_bytes,
        "asked": found.is_asked,
        "rounds": found.rounds,
        "ended_ms": found.ended_ms,
        "damage_found": found.damage_found,
        "damage_left": found.damage_left,
        "damaged": list(found.damaged),
    }


def _changed(connection: Connection, method: str, request: Any, output: str) -> None:
    async def work(wire: Any) -> Any:
        return await wire.call(lambda stubs: getattr(stubs.cluster, method), request)

    _show_members(connection.run(work), output)


def _show_members(reply: Any, output: str) -> None:
    show_rows(map(_member_row, reply.members), MEMBER_COLUMNS, output)


def _member_row(member: Any) -> dict[str, Any]:
    from qm.pb import control_pb2

    return {
        "name": member.name,
        "raft_id": member.raft_id,
        "role": control_pb2.MemberRole.Name(member.role).lower(),
        "leader": member.is_leader,
        "reachable": member.is_reachable,
        "applied_index": member.applied_index,
        "host": member.host,
        "api_port": member.api_port,
        "version": member.version,
        "clock_offset_ms": member.clock_offset_ms,
    }
