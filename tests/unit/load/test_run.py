"""A whole run against a real cluster in one process: MSMQ in, gRPC out, nodes killed, judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from qm.client.errors import Unavailable
from qm.client.message import ReceivedMessage
from qm.load.history import EventKind, read_history
from qm.load.receiver import Mode
from qm.load.run import Plan, Reading, Run
from qm.load.staleness import LOOKS
from qm.load.verdict import Verdict
from qm.load.workload import Target, Workload
from qm.node.config.schema import MSMQ_PORT
from tests.unit.client.world import OTHER, PLAIN, TRANSACTIONAL, Clients, scenario, until

TARGETS = (
    Target(f"DIRECT=OS:{PLAIN}"),
    Target(f"DIRECT=OS:{OTHER}"),
    Target(f"DIRECT=OS:{TRANSACTIONAL}", is_transactional=True),
)
WATCHED = "QUORATE\\private$\\watched"
SETTLE_S = 60.0


def plan(made: Clients, folder: str, first: str, **changes: object) -> Plan:
    """Senders and receivers begin at node `first`."""
    hosts = [endpoint.rpartition(":")[0] for endpoint in made.ordered(first)]
    settings: dict[str, object] = {
        "workload": Workload(targets=TARGETS, seed=3, priorities=(0, 3, 7)),
        "rate_per_s": 150.0,
        "senders": [[(host, MSMQ_PORT) for host in hosts]] * 2,
        "receivers": [
            Reading(PLAIN, Mode.STREAM),
            Reading(PLAIN, Mode.STREAM),
            Reading(OTHER, Mode.TWO_PHASE, return_every=5),
            Reading(TRANSACTIONAL, Mode.TRANSACTION, return_every=3),
        ],
        "endpoints": made.ordered(first),
        "tls": made.tls,
        "reconnect_s": 0.05,
        "history": Path(folder) / "history.jsonl",
    }
    return Plan(**(settings | changes))  # type: ignore[arg-type]


def check(verdict: Verdict) -> None:
    assert verdict.holds, verdict
    assert verdict.sent == verdict.acknowledged == verdict.received > 0
    assert verdict.remaining == verdict.unknown == 0


@scenario(3)
async def test_a_run_over_the_death_of_the_leader_holds_every_kind_of_reader(
    made: Clients,
) -> None:
    follower = (await made.harness.followers())[0]
    senders = [[(follower.host, MSMQ_PORT)]] * 2
    await made.create(WATCHED)
    watched = Target(f"DIRECT=OS:{WATCHED}")
    with TemporaryDirectory() as folder:
        async with Run(plan(made, folder, follower.name, senders=senders, watched=watched)) as run:
            await run.send(1.5)
            run.fault("the leader dies")
            await made.kill_leader()
            await run.send(1.5)
            assert await run.settle(SETTLE_S)
            verdict = await run.verdict()
        assert verdict.holds, verdict
        assert verdict.sent == verdict.acknowledged == verdict.received + verdict.remaining
        events = read_history(Path(folder) / "history.jsonl")
        kinds = {event.kind for event in events}
        assert {EventKind.RETURNED, EventKind.ABORTED, EventKind.COMMITTED} <= kinds
        looks = {(e.client, e.kind) for e in events if e.kind in LOOKS}
        # Each has its own client: a count that fails over does not affect peeks.
        assert len(looks) == len({client for client, _ in looks}) == 3 * len(LOOKS)
        marks = [e.message for e in events if e.kind is EventKind.REMAINING]
        assert len(marks) == verdict.remaining > 0
        assert {name.split("/")[0] for name in marks} == {"marker-1", "marker-2"}
        # The senders' sessions are a follower's: they outlive the leader.
        assert verdict.reconnects == 0
        assert [fault.detail for fault in verdict.faults] == ["the leader dies"]


@scenario(3)
async def test_what_an_abandoned_reader_took_is_not_taken_for_lost(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    readings = [
        Reading(PLAIN, Mode.STREAM),
        *[Reading(OTHER, Mode.TWO_PHASE, return_every=5)] * 6,
        Reading(TRANSACTIONAL, Mode.TRANSACTION, return_every=3),
    ]
    with TemporaryDirectory() as folder:
        async with Run(plan(made, folder, leader, receivers=readings)) as run:
            await run.send(1.0)
            stream = run.receivers[0]
            took = stream._took

            def took_the_last(messages: Sequence[ReceivedMessage]) -> None:
                took(messages)
                raise Unavailable("no node continues the stream")

            stream._took = took_the_last  # type: ignore[method-assign]
            failed = run._reading[0]
            await until(failed.done, lambda: stream.received)
            del stream._took
            await run.abandon()
            assert isinstance(failed.exception(), Unavailable)
            await until(lambda: run.acknowledged == run.sent, lambda: run.acknowledged)
            verdict = await run.verdict()
        assert verdict.holds, verdict
        assert verdict.sent == verdict.received + verdict.remaining


@scenario(3)
async def test_calls_with_transactions_hold_over_the_death_of_the_leader(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    with TemporaryDirectory() as folder:
        async with Run(plan(made, folder, leader, senders=[], callers=2, rate_per_s=60.0)) as run:
            await run.send(1.0)
            await made.kill_leader()
            await run.send(2.0)
            await run.settle(SETTLE_S)
            verdict = await run.verdict()
        assert verdict.holds, verdict
        assert verdict.acknowledged <= verdict.received < verdict.sent  # some were aborted
        assert verdict.torn.count == verdict.remaining == 0


@scenario(3)
async def test_a_run_over_the_death_of_the_senders_node_holds(made: Clients) -> None:
    follower = (await made.harness.followers())[0].name
    with TemporaryDirectory() as folder:
        async with Run(plan(made, folder, follower)) as run:
            links = [sender.link for sender in run.senders]
            await until(lambda: all(link.is_open for link in links), lambda: links[0].sessions)
            host = links[0].address[0]
            (node,) = [node.name for node in made.harness.up if node.host == host]
            await run.send(1.0)
            await made.harness.kill(node)
            await run.send(1.0)
            await made.harness.restart(node)
            await made.kill_leader()
            await run.send(1.0)
            assert await run.settle(SETTLE_S)
            verdict = await run.verdict()
        check(verdict)
        assert verdict.reconnects >= 1
