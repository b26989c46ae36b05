"""Runs drills one after another: progress, a line for each round, a summary, the report."""

import asyncio
import contextlib
import math
import os
import platform
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from qm.client.errors import ClientError, Unavailable
from qm.drill.report.report import merge_results, report_html, report_json
from qm.drill.report.rounds_file import RoundsFile
from qm.drill.runner import Round, Settings, result_of, run_round
from qm.drill.soak import Turn
from qm.drill.targets.target import NodeEnded, Target, TargetFailed
from qm.load.run import Run

PROGRESS_EVERY_S: Final = 0.5
NOT_CARRIED_OUT: Final = "not carried out"


class Done(msgspec.Struct):
    """Results of all turns."""

    rounds: dict[str, list[Round]] = {}
    failed: dict[str, str] = {}
    """Scenarios in which a node exited on its own or gave an impossible answer, with its
    message."""
    not_carried_out: dict[str, str] = {}
    """Scenarios that the target could not carry out, and why: nothing is proven."""

    builds: set[str] = set()
    """Builds that rounds ran on; more than one if a run was resumed."""
    is_interrupted: bool = False
    """Whether SIGINT, SIGTERM or the clock ended the run before all turns."""

    @property
    def holds(self) -> bool:
        """Whether there were rounds and all of them passed."""
        every = [one for several in self.rounds.values() for one in several]
        is_whole = bool(every) and not (self.failed or self.not_carried_out or self.is_interrupted)
        return is_whole and all(one.holds for one in every)


def resumed(file: RoundsFile) -> Done:
    """Return the results of an earlier run that still count."""
    done = Done()
    for entry in file.standing():
        assert entry.round is not None
        done.rounds.setdefault(entry.scenario, []).append(entry.round)
        done.builds.add(entry.build)
    return done


async def run_turns(
    target: Target,
    turns: Iterable[Turn],
    rate_per_s: float,
    file: RoundsFile,
    done: Done,
    *,
    for_s: float = math.inf,
) -> None:
    """Run turns on a fresh cluster, which is stopped at the end. Raises TargetFailed.

    `done` collects the results; turns that it already has are not run again, and none begins after
    `for_s`. After a turn without a verdict the cluster is recreated, and further turns of that
    scenario are skipped.
    """
    end = time.monotonic() + for_s
    known = {(one.scenario, one.seed) for several in done.rounds.values() for one in several}
    done.builds.add(file.build)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await target.up()
        for turn in turns:
            name = turn.scenario.name
            is_hopeless = name in done.failed or name in done.not_carried_out
            if is_hopeless or (name, turn.seed) in known:
                continue
            if time.monotonic() > end:
                done.is_interrupted = True
                click.echo("the time is over; --resume continues with the remaining rounds")
                break
            head = f"{name:22} seed {turn.seed:<6} "
            try:
                async with _progress(head) as shown:
                    one = await run_round(
                        target, turn.scenario, Settings(turn.seed, rate_per_s), shown.append
                    )
            except (TargetFailed, ClientError) as error:
                if _proves_a_failure(error):
                    done.failed[name] = str(error)
                    file.failed(name, turn.seed, str(error))
                    click.echo(f"{head}FAIL  {error}")
                else:
                    done.not_carried_out[name] = str(error)
                    click.echo(f"{head}NOT CARRIED OUT: {error}")
                await target.up()
                continue
            done.rounds.setdefault(name, []).append(one)
            file.judged(one)
            click.echo(head + _line(one))
    except asyncio.CancelledError:
        task.uncancel()
        done.is_interrupted = True
        click.echo("interrupted: the unfinished round does not count")
    finally:
        await target.down()


def write_report(
    done: Done, target: str, rate_per_s: float, folder: Path, path: Path, *, merges: bool = False
) -> None:
    """Print the summary; write a short form to `path`, all of it to report.json and report.html.

    `merges`: other entries of `path` stay.
    """
    results = {name: result_of(rounds) for name, rounds in done.rounds.items()}
    short = {
        name: {**msgspec.to_builtins(result), "target": target} for name, result in results.items()
    }
    for verdict, reasons in (("FAIL", done.failed), (NOT_CARRIED_OUT, done.not_carried_out)):
        for name, reason in reasons.items():
            short[name] = {**short.get(name, {"runs": 0}), "verdict": verdict, "why": reason}
    seeds = sorted({one.seed for several in done.rounds.values() for one in several})
    about = {
        "quorate": ", ".join(sorted(done.builds)),
        "target": target,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": ", ".join(map(str, seeds)),
        "rate_per_sender_msgs_per_s": rate_per_s,
        "machine": f"{platform.platform()}, {os.cpu_count()} processors",
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    if not merges:
        path.unlink(missing_ok=True)
    merge_results(path, short)
    (folder / "report.json").write_bytes(report_json(done.rounds, about))
    page = folder / "report.html"
    page.write_text(report_html(done.rounds, about), encoding="utf-8")
    _summary(done)
    click.echo(f"report: {page}, {path}")


def _proves_a_failure(error: TargetFailed | ClientError) -> bool:
    """Whether an error proves a failure: a node that does not answer may just be slow."""
    return isinstance(error, NodeEnded | ClientError) and not isinstance(error, Unavailable)


def _line(one: Round) -> str:
    verdict = one.verdict
    return (
        f"{'pass' if one.holds else 'FAIL'}  sent {verdict.sent:>7,}"
        f"  lost {verdict.lost.count}  duplicated {verdict.duplicated.count}"
        f"  disordered {verdict.out_of_order.count}  torn {verdict.torn.count}"
        f"  stale {verdict.stale.count}"
        f"  gap {one.gap_ms:,.0f} ms"
        + ("" if one.is_settled else "  not settled in time")
        + (f"  {one.wrong}" if one.wrong else "")
    )


def _summary(done: Done) -> None:
    """Print a line for each scenario."""
    click.echo(
        f"\n{'scenario':22} {'rounds':>6} {'lost':>6} {'doubled':>8} {'RTO ms':>14}  verdict"
    )
    for name, several in done.rounds.items():
        result = result_of(several)
        gap = f"{result.gap_median_ms:,.0f} .. {result.gap_p99_ms:,.0f}"
        click.echo(
            f"{name:22} {result.runs:>6} {result.lost:>6} {result.duplicated:>8} {gap:>14}"
            f"  {result.verdict}"
        )
    for name, reason in done.failed.items():
        click.echo(f"{name:22} FAIL: {reason}")
    for name, reason in done.not_carried_out.items():
        click.echo(f"{name:22} {NOT_CARRIED_OUT}: {reason}")


@contextlib.asynccontextmanager
async def _progress(head: str) -> AsyncIterator[list[Run]]:
    """Show a round's progress on a terminal; the caller appends its run."""
    runs: list[Run] = []
    showing = asyncio.create_task(_show(head, runs)) if sys.stdout.isatty() else None
    try:
        yield runs
    finally:
        if showing is not None:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
            click.echo("\r\x1b[K", nl=False)


async def _show(head: str, runs: list[Run]) -> None:
    while True:
        seen = "".join(
            f"sent {run.sent:,}  acknowledged {run.acknowledged:,}  received {run.received:,}"
            for run in runs
        )
        click.echo(f"\r\x1b[K{head}{seen or 'preparing'}", nl=False)
        await asyncio.sleep(PROGRESS_EVERY_S)
