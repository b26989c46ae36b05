"""`qm bundle`: the data that a support case needs, in one file."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.member_call import list_members, wire_to, wire_to_endpoint
from qm.cli.lib.output import output_option, show_one

if TYPE_CHECKING:
    from qm.client.calls import Calls

NODE_TIMEOUT_S: Final = 10.0
"""Time for one answer of one node: bundles are needed when something hangs."""
LISTED_MAX: Final = 1_000
"""Limit for each of queues, outgoing queues and clients."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@output_option
@connected
def bundle(connection: Connection, file: Path | None, output: str) -> None:
    """Collect state, configuration, metrics, events and log lines of all nodes into FILE.

    A tar.gz, named after the time if FILE is not given. It contains no messages, keys or passwords,
    but names of queues, hosts and principals: review it before you pass it on. Nodes that do not
    answer are listed in it. Exit code 1: some did not.
    """
    path = file or Path(f"quorate-bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise click.UsageError(f"{path} already exists")
    parts, failures = connection.run(lambda wire: _collect(connection, wire))
    manifest = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "endpoints": list(connection.endpoints),
        "failures": failures,
    }
    _write(path, {"bundle.json": _json(manifest), **parts})
    show_one({"file": str(path), "size_bytes": path.stat().st_size, "failures": failures}, output)
    if failures:
        raise click.exceptions.Exit(1)


async def _collect(connection: Connection, wire: Calls) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return files by name, and the reasons why some are missing."""
    failures: dict[str, str] = {}
    parts = await _cluster_parts(wire, failures)
    nodes = await _nodes(connection, wire, failures)
    found = await asyncio.gather(*(_node_parts(name, own, failures) for name, own in nodes.items()))
    for each in found:
        parts |= each
    return parts, failures


async def _nodes(connection: Connection, wire: Calls, failures: dict[str, str]) -> dict[str, Calls]:
    """Return a connection to each member, by name; to each endpoint if no node lists the
    members.
    """
    members = await _answer("members", list_members(wire), failures)
    if members is None:
        return {endpoint: wire_to_endpoint(connection, endpoint) for endpoint in wire.endpoints}
    return {member.name: wire_to(connection, member) for member in members}


async def _cluster_parts(wire: Calls, failures: dict[str, str]) -> dict[str, bytes]:
    from qm.pb import control_pb2 as pb

    calls: dict[str, Awaitable[Any]] = {
        "status": wire.call(lambda s: s.cluster.GetStatus, pb.GetStatusRequest()),
        "events": wire.call(
            lambda s: s.cluster.ListEvents, pb.ListEventsRequest(limit=LISTED_MAX, latest=True)
        ),
        "queue-manager": wire.call(lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()),
        "queues": wire.call(
            lambda s: s.queues.ListQueues,
            pb.ListQueuesRequest(kinds=pb.QueueKind.values(), page_size=LISTED_MAX),
        ),
        "outgoing": wire.call(
            lambda s: s.outgoing.ListOutgoing, pb.ListOutgoingRequest(page_size=LISTED_MAX)
        ),
        "clients": wire.call(
            lambda s: s.clients.ListClients, pb.ListClientsRequest(page_size=LISTED_MAX)
        ),
        "transactions": wire.call(
            lambda s: s.clients.ListTransactions, pb.ListTransactionsRequest(page_size=LISTED_MAX)
        ),
    }
    replies = await asyncio.gather(*(_answer(name, call, failures) for name, call in calls.items()))
    return {
        f"cluster/{name}.json": _message_json(reply)
        for name, reply in zip(calls, replies, strict=True)
        if reply is not None
    }


async def _node_parts(name: str, wire: Calls, failures: dict[str, str]) -> dict[str, bytes]:
    """Return one node's files: its own description, metrics, log lines and events."""
    from qm.pb import control_pb2 as pb

    parts: dict[str, bytes] = {}
    try:
        call = wire.call(
            lambda s: s.nodes.GetDiagnostics, pb.GetDiagnosticsRequest(), deadline_s=NODE_TIMEOUT_S
        )
        found = await _answer(name, call, failures)
        if found is None:
            return {}
        parts = {
            "node.json": _json(
                {
                    "node": found.node,
                    "version": found.version,
                    "platform": dict(found.platform),
                    "started_ms": found.started_ms,
                    "memory_bytes": found.memory_bytes,
                    "threads": found.threads,
                    "open_files": found.open_files,
                }
            ),
            "configuration.json": found.configuration.encode() + b"\n",
            "metrics.prom": found.metrics,
            "log.jsonl": "".join(f"{line}\n" for line in found.log_lines).encode(),
        }
        events = await _answer(f"{name} events", _events(wire), failures)
        if events is not None:
            parts["events.jsonl"] = events
    finally:
        await wire.close()
    return {f"nodes/{name}/{file}": data for file, data in parts.items()}


async def _events(wire: Calls) -> bytes:
    """Return the node's events as lines of JSON."""
    from google.protobuf import json_format

    from qm.pb import control_pb2

    lines = [
        json_format.MessageToJson(event, indent=None, preserving_proto_field_name=True)
        async for event in wire.stubs().nodes.StreamEvents(
            control_pb2.StreamEventsRequest(), timeout=NODE_TIMEOUT_S
        )
    ]
    return "".join(f"{line}\n" for line in lines).encode()


async def _answer(name: str, call: Awaitable[Any], failures: dict[str, str]) -> Any:
    """Return an answer; None if there is none, with the reason in `failures`."""
    from grpc import aio

    from qm.client.errors import ClientError

    try:
        return await asyncio.wait_for(call, 2 * NODE_TIMEOUT_S)
    except (ClientError, TimeoutError, aio.AioRpcError) as error:
        failures[name] = str(error) or "it did not answer in time"
        return None


def _message_json(message: Any) -> bytes:
    from google.protobuf import json_format

    text: str = json_format.MessageToJson(message, preserving_proto_field_name=True)
    return text.encode() + b"\n"


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _write(path: Path, parts: dict[str, bytes]) -> None:
    """Write the archive; the folder in it has the archive's name."""
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    with tarfile.open(path, "x:gz") as archive:
        for name, data in sorted(parts.items()):
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
            archive.addfile(info, io.BytesIO(data))
