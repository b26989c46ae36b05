"""`qm acl`: access rights to a queue or to the queue manager."""

from collections.abc import Sequence
from typing import Any

import click

from qm.cli.lib.connection import Connection, changing, connected
from qm.cli.lib.names import QueueName
from qm.cli.lib.output import confirm, output_option, show_rows, yes_option

_TYPES = ("allow", "deny")


@click.group()
def acl() -> None:
    """Show and change access lists of queues and of the queue manager."""


@acl.command("get")
@click.argument("queue", default="", type=QueueName())
@click.option(
    "--queue", "named", type=QueueName(), default="", help="The same as QUEUE, as in `qm acl set`."
)
@output_option
@connected
def get_acl(connection: Connection, queue: str, named: str, output: str) -> None:
    """Show the access control list of QUEUE; without QUEUE, the queue manager's."""
    if queue and named:
        raise click.UsageError("give either QUEUE or --queue")
    found = connection.run(lambda wire: _get(wire, queue or named))
    rows = [{"type": "owner", "who": found.owner or found.owner_sid, "sid": found.owner_sid}]
    rows += [
        {
            "type": _TYPES[entry.type],
            "who": entry.principal or entry.sid,
            "sid": entry.sid,
            "mask": f"0x{entry.mask:08x}",
            "rights": list(entry.rights),
        }
        for entry in found.entries
    ]
    show_rows(rows, ("type", "who", "rights"), output)


@acl.command("set")
@click.argument("entries", nargs=-1, metavar="TYPE:WHO:RIGHT[,RIGHT]...")
@click.option(
    "--queue",
    type=QueueName(),
    default="",
    help="Path name or format name; default: the queue manager.",
)
@click.option("--owner", default="", help="A principal, or S-1-...")
@click.option("--add", is_flag=True, help="Keep the existing entries.")
@yes_option
@changing
def set_acl(
    connection: Connection,
    entries: Sequence[str],
    queue: str,
    owner: str,
    add: bool,
    yes: bool,
) -> None:
    """Replace the list, or add to it.

    An entry is allow:WHO:RIGHTS or deny:WHO:RIGHTS; WHO is a principal, Everyone, or S-1-...;
    RIGHTS are names as `qm acl get` prints them, or one hexadecimal mask.
    """
    wanted = [_entry(entry) for entry in entries]
    if not wanted and not owner:
        raise click.UsageError("nothing to change: give entries or --owner")
    if not add and wanted:
        confirm(f"Replace the whole list of {queue or 'the queue manager'}?", yes=yes)

    async def work(wire: Any) -> None:
        from qm.client.values import kept_entry
        from qm.pb import control_pb2

        found = await _get(wire, queue)
        kept = list(map(kept_entry, found.entries)) if add or not wanted else []
        both = kept + wanted
        request = control_pb2.SetAclRequest(
            entries=sorted(both, key=lambda entry: entry.type != control_pb2.DENY),
            owner=owner,
            if_version=found.version,
        )
        if queue:
            request.queue.CopyFrom(await _name(wire, queue))
        await wire.call(lambda stubs: stubs.queues.SetAcl, request)

    connection.run(work)


@acl.command()
@click.argument("entries", nargs=-1, required=True, metavar="TYPE:WHO...")
@click.option(
    "--queue",
    type=QueueName(),
    default="",
    help="Path name or format name; default: the queue manager.",
)
@yes_option
@connected
def remove(connection: Connection, entries: Sequence[str], queue: str, yes: bool) -> None:
    """Remove entries: allow:WHO or deny:WHO, where WHO is as `qm acl get` prints it or its SID."""
    wanted = [_removed(entry) for entry in entries]
    confirm(f"Remove {', '.join(entries)} of {queue or 'the queue manager'}?", yes=yes)

    async def work(wire: Any) -> None:
        from qm.client.values import kept_entry
        from qm.pb import control_pb2

        found = await _get(wire, queue)
        kept = list(found.entries)
        for kind, who in wanted:
            left = [one for one in kept if not _is_of(one, kind, who)]
            if len(left) == len(kept):
                raise click.UsageError(f"there is no entry {kind}:{who}")
            kept = left
        request = control_pb2.SetAclRequest(entries=map(kept_entry, kept), if_version=found.version)
        if queue:
            request.queue.CopyFrom(await _name(wire, queue))
        await wire.call(lambda stubs: stubs.queues.SetAcl, request)

    connection.run(work)


@acl.command()
@click.argument("queue", default="", type=QueueName())
@click.option("--sid", default="", metavar="S-1-...", help="Who asks for access.")
@click.option("--principal", default="", help="The same by name.")
@click.option("--right", multiple=True, help="Only this right; repeat it.")
@output_option
@connected
def explain(
    connection: Connection,
    queue: str,
    sid: str,
    principal: str,
    right: Sequence[str],
    output: str,
) -> None:
    """Show which entry decides what somebody may do with QUEUE, or with the queue manager.

    The directory's groups count: their SIDs stand for the user.
    """
    if bool(sid) == bool(principal):
        raise click.UsageError("give either --sid or --principal")

    async def work(wire: Any) -> tuple[Any, Any]:
        from qm.pb import control_pb2

        request = control_pb2.ExplainAclRequest(who=sid or principal, rights=right)
        if queue:
            request.queue.CopyFrom(await _name(wire, queue))
        reply = await wire.call(lambda stubs: stubs.queues.ExplainAcl, request)
        return await _get(wire, queue), reply

    found, reply = connection.run(work)
    rows = [_explained(one, found.entries) for one in reply.decisions]
    show_rows(rows, ("right", "granted", "decided_by"), output)


def _explained(decision: Any, entries: Sequence[Any]) -> dict[str, Any]:
    decided_by = decision.reason
    if decision.HasField("entry"):
        entry = entries[decision.entry]
        decided_by = f"{_TYPES[entry.type]}:{entry.principal or entry.sid} (entry {decision.entry})"
    return {
        "right": decision.right,
        "granted": decision.is_granted,
        "entry": decision.entry if decision.HasField("entry") else None,
        "decided_by": decided_by,
    }


def _removed(text: str) -> tuple[str, str]:
    kind, found, who = text.partition(":")
    if kind not in _TYPES or not found or not who:
        raise click.UsageError(f"{text!r}: write allow:WHO or deny:WHO")
    return kind, who


def _is_of(entry: Any, kind: str, who: str) -> bool:
    names = (entry.sid.lower(), entry.principal.lower())
    return _TYPES[entry.type] == kind and who.lower() in names


async def _get(wire: Any, queue: str) -> Any:
    from qm.pb import control_pb2

    request = control_pb2.GetAclRequest(queue=await _name(wire, queue) if queue else None)
    return await wire.call(lambda stubs: stubs.queues.GetAcl, request)


async def _name(wire: Any, queue: str) -> Any:
    from qm.cli.queues.queue import queue_name

    return await queue_name(wire, queue)


def _entry(text: str) -> Any:
    from qm.pb import control_pb2

    kind, _, rest = text.partition(":")
    who, colon, rights = rest.rpartition(":")
    if kind not in _TYPES or not colon or not who or not rights:
        raise click.UsageError(f"{text!r}: write allow:WHO:RIGHT,... or deny:WHO:RIGHT,...")
    entry = control_pb2.Ace(type=control_pb2.AceType.Value(kind.upper()))
    if who.upper().startswith("S-1-"):
        entry.sid = who
    else:
        entry.principal = who
    if rights.lower().startswith("0x"):
        try:
            entry.mask = int(rights, 16)
        except ValueError as error:
            raise click.UsageError(f"{rights!r} is not a mask") from error
    else:
        entry.rights.extend(rights.split(","))
    return entry
