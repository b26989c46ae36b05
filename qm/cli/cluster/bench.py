"""`qm bench`: throughput and latency of this cluster's MSMQ endpoint, measured from here."""

from __future__ import annotations

import csv
import sys
import tempfile
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import output_option, show_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qm.load.run import Plan
    from qm.load.verdict import Verdict

SETTLE_WAIT_S: Final = 60.0
UNLIMITED_RATE: Final = 20_000
"""Rate of a sender without `--rate`: its unacknowledged messages limit it."""
UNLIMITED_BACKLOG: Final = 1_000
BAR_MAX_CHARS: Final = 40


@click.command()
@click.option("--seconds", type=click.IntRange(2, 3600), default=10, show_default=True)
@click.option("--senders", type=click.IntRange(1, 256), default=4, show_default=True)
@click.option(
    "--rate", type=click.IntRange(1), help="Messages/s of all senders; default: the maximum."
)
@click.option(
    "--size",
    type=click.IntRange(64, 1 << 20),
    default=1024,
    show_default=True,
    help="Size of a body in bytes.",
)
@click.option(
    "--transactional", is_flag=True, help="Send transactional instead of recoverable messages."
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    help="Member that senders connect to, instead of all in turn; repeatable.",
)
@click.option("--msmq-port", type=click.IntRange(1, 65_535), default=1801, show_default=True)
@click.option(
    "--csv",
    "table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write how many messages took how long, as a table.",
)
@output_option
@connected
def bench(connection: Connection, output: str, table: Path | None, **options: Any) -> None:
    """Send for a while as MSMQ queue managers do, receive everything, and check the result.

    A queue is created and deleted again. Without --rate senders keep thousands of messages in
    flight, and latencies are those of an overload: use half of that rate to see normal latencies.
    The load itself takes a processor. Exit code 1: a message was lost, duplicated or out of order.

    A transactional message counts as acknowledged with its OrderAck, which leaves behind the last
    message in flight, or else once in 20 ms for each sequence: under a steady load the half of that
    is in its median, besides the commit.
    """
    if table is not None:
        _open_table(table, "a").close()  # before the load: what cannot be written is told at once
    verdict = connection.run(lambda wire: _bench(wire, connection, **options))
    counts = _histogram(verdict)
    row = _row(verdict)
    if output == "table":
        show_one(row, output)
        for line in ("acknowledged within", *_bars(counts)):
            click.echo(line)
    else:
        show_one(row | {"histogram": counts}, output)
    if table is not None:
        _write_table(table, counts)
    if not verdict.holds:
        sys.exit(1)


async def _bench(
    wire: Any, connection: Connection, *, seconds: int, nodes: tuple[str, ...], **options: Any
) -> Verdict:
    from qm.load.run import Run
    from qm.pb import control_pb2

    reply = await wire.call(
        lambda stubs: stubs.cluster.ListMembers, control_pb2.ListMembersRequest()
    )
    hosts = {member.name: member.host for member in reply.members if member.is_reachable}
    missing = set(nodes) - hosts.keys()
    if missing:
        raise click.UsageError(f"--node: {', '.join(missing)} is not a reachable member")
    queue = await _make_queue(wire, is_transactional=options["transactional"])
    try:
        with tempfile.TemporaryDirectory(prefix="quorate-bench-") as folder:
            addresses = [hosts[name] for name in (nodes or sorted(hosts))]
            plan = _plan(connection, queue, addresses, Path(folder), **options)
            async with Run(plan) as run:
                await run.send(seconds)
                await run.settle(SETTLE_WAIT_S)
                return await run.verdict()
    finally:
        name = control_pb2.QueueName(name=queue)
        request = control_pb2.DeleteQueueRequest(queue=name)
        await wire.call(lambda stubs: stubs.queues.DeleteQueue, request)


async def _make_queue(wire: Any, *, is_transactional: bool) -> str:
    """Create a queue; return its format name."""
    from qm.pb import control_pb2

    manager = await wire.call(
        lambda stubs: stubs.queues.GetQueueManager, control_pb2.GetQueueManagerRequest()
    )
    name = f"{manager.computer_name}\\private$\\bench-{uuid.uuid4().hex[:12]}"
    attributes = {"transactional": control_pb2.Value(flag=is_transactional)}
    request = control_pb2.CreateQueueRequest(path_name=name, attributes=attributes)
    await wire.call(lambda stubs: stubs.queues.CreateQueue, request)
    return f"DIRECT=OS:{name}"


def _plan(
    connection: Connection,
    queue: str,
    addresses: list[str],
    folder: Path,
    *,
    senders: int,
    rate: int | None,
    size: int,
    transactional: bool,
    msmq_port: int,
) -> Plan:
    from qm.load.receiver import Mode
    from qm.load.run import BACKLOG_MAX_COUNT, Plan, Reading
    from qm.load.workload import Target, Workload

    turns = [
        addresses[k % len(addresses) :] + addresses[: k % len(addresses)] for k in range(senders)
    ]
    return Plan(
        workload=Workload(
            targets=(Target(queue, is_transactional=transactional),),
            express_share=0,
            body_bytes=(size, size),
            transaction_messages=(1, 1),
        ),
        rate_per_s=UNLIMITED_RATE if rate is None else rate / senders,
        senders=[[(host, msmq_port) for host in turn] for turn in turns],
        receivers=[Reading(queue, Mode.STREAM)],
        endpoints=connection.endpoints,
        tls=connection.tls(),
        history=folder / "history.jsonl",
        backlog_max=UNLIMITED_BACKLOG if rate is None else BACKLOG_MAX_COUNT,
    )


def _row(verdict: Verdict) -> dict[str, Any]:
    # The first second is for connecting, the last ones for settling.
    whole = [each for each in verdict.seconds if each.sent][1:-1] or verdict.seconds
    count = max(len(whole), 1)
    return {
        "holds": verdict.holds,
        "sent": verdict.sent,
        "acknowledged": verdict.acknowledged,
        "received": verdict.received,
        "lost": verdict.lost.count,
        "duplicated": verdict.duplicated.count,
        "out_of_order": verdict.out_of_order.count,
        "acknowledged_per_s": round(sum(each.acknowledged for each in whole) / count),
        "received_per_s": round(sum(each.received for each in whole) / count),
        "acknowledged_p50_ms": verdict.acknowledgement.p50_ms,
        "acknowledged_p99_ms": verdict.acknowledgement.p99_ms,
        "delivered_p50_ms": verdict.delivery.p50_ms,
        "delivered_p99_ms": verdict.delivery.p99_ms,
        "longest_gap_ms": verdict.longest_gap_ms,
    }


def _histogram(verdict: Verdict) -> list[dict[str, Any]]:
    """Return how many messages took how long to be acknowledged, and to be received."""
    acknowledged = dict(verdict.acknowledgement.histogram)
    delivered = dict(verdict.delivery.histogram)
    return [
        {
            "upto_ms": limit,
            "acknowledged": acknowledged.get(limit, 0),
            "delivered": delivered.get(limit, 0),
        }
        for limit in sorted(acknowledged | delivered)
    ]


def _bars(counts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the acknowledgements as lines of text."""
    most = max((row["acknowledged"] for row in counts), default=0) or 1
    return [
        f"{row['upto_ms']:>8g} ms {row['acknowledged']:>9,} "
        + "#" * -(-row["acknowledged"] * BAR_MAX_CHARS // most)
        for row in counts
    ]


def _write_table(path: Path, counts: Sequence[dict[str, Any]]) -> None:
    """Write the rows. Raises ClickException."""
    with _open_table(path, "w") as file:
        writer = csv.DictWriter(file, ("upto_ms", "acknowledged", "delivered"))
        writer.writeheader()
        writer.writerows(counts)


def _open_table(path: Path, mode: str) -> IO[str]:
    """Open the file. Raises ClickException."""
    try:
        return path.open(mode, encoding="utf-8", newline="")
    except OSError as error:
        raise click.ClickException(f"--csv: {error.strerror}: {path}") from None
