"""`qm check`: checks with an exit code, for scripts, probes and tests of an installation."""

import asyncio
import http.client
import secrets
import sys
import time
import uuid
from typing import Any, Final

import click
from typing_extensions import override

from qm.cli.cluster.conditions import (
    CHECKS,
    LIMITS,
    METRICS,
    Facts,
    Limits,
    NodeFacts,
    judged,
    nagios_text,
)
from qm.cli.lib.connection import Connection, connected, exiting
from qm.cli.lib.output import output_option, show_rows
from qm.cli.lib.pages import all_pages
from qm.cli.lib.text import printable

PROBE_TIMEOUT_S: Final = 2.0
NODE_S: Final = 2.0
"""How long one node may take to say how it is."""
_BODY_MAX_BYTES: Final = 4096
_OK: Final = 200


class _Checks(click.Group):
    """`qm check` alone means `qm check all`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["all", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Checks)
def check() -> None:
    """Check whether all is well; `all` unless another check is named."""


@check.command("all")
@click.option("--only", "only", type=click.Choice(CHECKS), multiple=True, help="Repeatable.")
@click.option(
    "--limit",
    "given",
    metavar="CHECK=WARNING:CRITICAL",
    multiple=True,
    help="Other limits, such as dead_letters=10:100; repeatable.",
)
@output_option
@connected
def all_checks(
    connection: Connection, only: tuple[str, ...], given: tuple[str, ...], output: str
) -> None:
    """Judge quorum, disk, certificate, quota, dead letters, oldest message, outgoing, archive and
    replica lag, for people and for Nagios.

    Exit code 0: all is well, 1: a warning, 2: critical, also when no node answers.
    """
    limits = dict(LIMITS) | dict(map(_limits, given))
    facts = exiting(lambda: asyncio.run(_facts(connection)))
    findings = judged(facts, only or CHECKS, limits)
    if output == "table":
        status = facts.of_cluster()
        for line in nagios_text("" if status is None else status.computer_name, findings):
            click.echo(printable(line))
    else:
        rows = [
            {
                "check": one.check,
                "level": one.level.name.lower(),
                "text": one.text,
                "value": one.value,
                "unit": one.unit,
            }
            for one in findings
        ]
        show_rows(rows, (), output)
    sys.exit(max(one.level for one in findings))


def _limits(text: str) -> tuple[str, Limits]:
    name, _, values = text.partition("=")
    warning, _, critical = values.partition(":")
    if name not in LIMITS:
        raise click.UsageError(f"{name!r} has no limits; these have: {', '.join(LIMITS)}")
    try:
        return name, Limits(float(warning), float(critical), LIMITS[name].is_floor)
    except ValueError:
        raise click.UsageError(f"{text!r} is not CHECK=WARNING:CRITICAL, two numbers") from None


async def _facts(connection: Connection) -> Facts:
    """Ask every endpoint at once, and one that answered for outgoing queues."""
    from qm.client.calls import Calls

    wires = [
        Calls((endpoint,), connection.tls(), connection.connect_s)
        for endpoint in connection.endpoints
    ]
    try:
        nodes = await asyncio.gather(*map(_node_facts, wires))
        outgoing: list[Any] = []
        for wire, node in zip(wires, nodes, strict=True):
            if node.status is not None and node.status.leader:
                outgoing = await _outgoing_queues(wire)
                break
        return Facts(tuple(nodes), tuple(outgoing))
    finally:
        for wire in wires:
            await wire.close()


async def _node_facts(wire: Any) -> NodeFacts:
    from qm.client.errors import Unavailable
    from qm.pb import control_pb2 as pb

    endpoint = wire.endpoint
    try:
        status = await wire.call(
            lambda stubs: stubs.cluster.GetStatus, pb.GetStatusRequest(), deadline_s=NODE_S
        )
        found = await wire.call(
            lambda stubs: stubs.nodes.GetDiagnostics, pb.GetDiagnosticsRequest(), deadline_s=NODE_S
        )
    except Unavailable as error:
        return NodeFacts(endpoint, str(error))
    return NodeFacts(endpoint, "", status, _metrics(found.metrics.decode("utf-8", "replace")))


def _metrics(text: str) -> dict[str, dict[str, float]]:
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        if family.name in METRICS:
            values = found.setdefault(family.name, {})
            for sample in family.samples:
                values[", ".join(sample.labels.values())] = sample.value
    return found


async def _outgoing_queues(wire: Any) -> list[Any]:
    from qm.client.errors import Unavailable
    from qm.pb import control_pb2 as pb

    try:
        return await all_pages(
            wire,
            lambda stubs: stubs.outgoing.ListOutgoing,
            lambda token: pb.ListOutgoingRequest(page_size=1_000, page_token=token),
            "queues",
        )
    except Unavailable:
        return []


@check.command()
@output_option
@connected
def cluster(connection: Connection, output: str) -> None:
    """Check every endpoint. Exit code 1: something needs attention."""
    rows = []
    for endpoint in connection.endpoints:
        found = connection.at(endpoint).run_each(_health)
        if isinstance(found, str):
            found = {"node": "", "leader": "", "applied_index": None, "problems": [found]}
        rows.append({"endpoint": endpoint} | found)
    show_rows(rows, ("endpoint", "node", "leader", "applied_index", "problems"), output)
    if any(row["problems"] for row in rows):
        sys.exit(1)


async def _health(wire: Any) -> dict[str, Any]:
    from qm.pb import control_pb2

    found = await wire.call(
        lambda stubs: stubs.cluster.GetStatus, control_pb2.GetStatusRequest(), deadline_s=2.0
    )
    problems = list(found.alarms)
    if not found.leader:
        problems.append("there is no leader")
    if found.is_draining:
        problems.append("draining")
    problems += [f"{m.name} is not reachable" for m in found.members if not m.is_reachable]
    return {
        "node": found.node,
        "leader": found.leader,
        "applied_index": found.applied_index,
        "problems": problems,
    }


@check.command()
@click.option(
    "--http",
    "address",
    envvar="QM_HTTP",
    metavar="HOST:PORT",
    default="127.0.0.1:1814",
    show_default=True,
    help="HTTP endpoint of a node.  [env: QM_HTTP]",
)
def ready(address: str) -> None:
    """Ask a node whether it is ready for clients and peers. Exit code 1: no, or no answer."""
    try:
        connection = http.client.HTTPConnection(address, timeout=PROBE_TIMEOUT_S)
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        text = response.read(_BODY_MAX_BYTES).decode("utf-8", "replace").strip()
        is_ready = response.status == _OK
    except (OSError, http.client.HTTPException) as error:
        is_ready, text = False, f"{address} does not answer: {error}"
    click.echo(text, err=not is_ready)
    if not is_ready:
        sys.exit(1)


@check.command("send-receive")
@click.option(
    "--msmq", "host", metavar="HOST", required=True, help="Host of the cluster's MSMQ endpoint."
)
@click.option(
    "--seconds",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Time until the message must have arrived.",
)
@connected
def send_receive(connection: Connection, host: str, seconds: int) -> None:
    """Send a message by MSMQ to HOST and receive it by the API, in a queue made for it.

    Exit code 1: it did not arrive.
    """
    took_ms = connection.run_client(lambda client: _through(client, host, seconds))
    if took_ms is None:
        raise click.ClickException(
            f"a message that was sent to {host}:1801 did not arrive within {seconds} s: is that"
            " this cluster's address, and is the port open?"
        )
    click.echo(f"sent to {host} by MSMQ and received by the API after {took_ms} ms")


async def _through(client: Any, host: str, seconds: int) -> int | None:
    """Send and receive; return how long it took, ms, None if nothing arrived."""
    from qm.pb import control_pb2

    wire = client.wire
    manager = await wire.call(
        lambda stubs: stubs.queues.GetQueueManager, control_pb2.GetQueueManagerRequest()
    )
    path = f"{manager.computer_name}\\private$\\quorate-check-{secrets.token_hex(4)}"
    request = control_pb2.CreateQueueRequest(path_name=path)
    await wire.call(lambda stubs: stubs.queues.CreateQueue, request)
    try:
        return await _send_and_receive(client, path, host, seconds)
    finally:
        queue = control_pb2.QueueName(name=path)
        await wire.call(
            lambda stubs: stubs.queues.DeleteQueue, control_pb2.DeleteQueueRequest(queue=queue)
        )


async def _send_and_receive(client: Any, path: str, host: str, seconds: int) -> int | None:
    from qm.load.sender import RecordingSender
    from qm.load.workload import Delivery, Planned, Target

    body = secrets.token_bytes(16)
    sender = RecordingSender(
        "check",
        uuid.uuid4().bytes_le,
        [(host, 1801)],
        [Target(f"DIRECT=OS:{path}")],
        lambda event: None,
        reconnect_s=1.0,
    )
    queue = await client.open_queue(path)
    begun = time.monotonic()
    sender.link.start()
    try:
        sender.add([Planned("check", 0, Delivery.RECOVERABLE, 3, 1, body)])
        message = await queue.receive(timeout_s=seconds)
    finally:
        await sender.link.stop()
        await queue.close()
    if message is None or message.body != body:
        return None
    return round((time.monotonic() - begun) * 1000)
