"""`qm drill`: failover drills with a verdict from what clients saw."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qm.cli.drill_targets import Choice, acts_on_others, chosen, target_options
from qm.cli.output import confirm, yes_option

if TYPE_CHECKING:
    from qm.drill.runner import Round
    from qm.drill.scenario import Scenario
    from qm.drill.target import Target


@click.group()
def drill() -> None:
    """Failover drills: faults under load, judged from what clients saw."""


@drill.command("list")
def list_scenarios() -> None:
    """List the scenarios, and which kinds of target can run each."""
    from qm.drill.reasons import REASONS, refusals
    from qm.drill.scenarios import SCENARIOS

    for scenario in SCENARIOS.values():
        where = (kind if not refusals(kind, scenario.needs) else "-" for kind in REASONS)
        columns = " ".join(f"{kind:10}" for kind in where)
        click.echo(f"{scenario.name:20} {columns} {scenario.text}")


@drill.command()
@click.argument("names", nargs=-1)
@click.option(
    "--target", default="dev", show_default=True, metavar="dev|netns|FILE.toml|kubernetes",
    help="Processes here; on network namespaces; a cluster on the machines of a file; a release.",
)  # fmt: skip
@yes_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first round.")
@click.option("--rate", type=click.IntRange(1), default=400, show_default=True, help="Per sender.")
@click.option("--short", is_flag=True, help="The short list.")
@click.option(
    "-f", "--folder", type=click.Path(path_type=Path, file_okay=False), default="build/drill",
    show_default=True, help="Cluster, histories and report.",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), default="build/drills.json",
    show_default=True,
)  # fmt: skip
@target_options
def run(
    names: tuple[str, ...],
    target: str,
    yes: bool,
    rounds: int,
    seed: int,
    rate: int,
    short: bool,
    folder: Path,
    report: Path,
    **options: Any,
) -> None:
    """Run scenarios by NAME, or all that the target can do.

    Exit code: 0 all passed; 1 one failed, or could not be carried out; 2 wrong usage, or the target
    cannot do it.
    """
    from qm.drill.scenarios import SCENARIOS
    from qm.drill.target import Refused

    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise click.UsageError(f"no scenario {unknown[0]!r}: see `qm drill list`")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    choice = Choice(target=target, folder=folder, **options)
    try:
        with chosen(choice) as drilled:
            wanted = [SCENARIOS[name] for name in names] or [
                scenario
                for scenario in SCENARIOS.values()
                if scenario.needs <= drilled.abilities and (scenario.is_short or not short)
            ]
            if acts_on_others(choice):
                told = ", ".join(scenario.name for scenario in wanted)
                confirm(f"Make the nodes of {target} fail ({told})?", yes=yes)
            done = asyncio.run(_run(drilled, wanted, rounds, seed, rate))
    except Refused as error:
        raise click.UsageError(str(error)) from error
    passed = _report(done, folder, report)
    sys.exit(0 if passed and len(done) == len(wanted) else 1)


async def _run(
    target: "Target", scenarios: "list[Scenario]", rounds: int, seed: int, rate: int
) -> "dict[str, list[Round]]":
    from qm.client.errors import ClientError
    from qm.drill.reasons import refusal
    from qm.drill.runner import Settings, missing, run_round
    from qm.drill.target import Refused, TargetFailed

    for scenario in scenarios:
        lacks = missing(target, scenario)
        if lacks:
            raise Refused(f"{scenario.name}: {refusal(target.name, lacks[0])}")
    done: dict[str, list[Round]] = {}
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await target.up()
        for scenario in scenarios:
            for turn in range(rounds):
                settings = Settings(seed + turn, rate)
                click.echo(f"{scenario.name:22} seed {settings.seed:<6} ", nl=False)
                try:
                    one = await run_round(target, scenario, settings, lambda _: None)
                except (TargetFailed, ClientError) as error:
                    click.echo(f"NOT CARRIED OUT: {error}")
                    done.pop(scenario.name, None)
                    await target.up()
                    break
                done.setdefault(scenario.name, []).append(one)
                verdict = one.verdict
                click.echo(
                    f"{'pass' if one.holds else 'FAIL'}  sent {verdict.sent:>7,}"
                    f"  lost {verdict.lost.count}  duplicated {verdict.duplicated.count}"
                    f"  disordered {verdict.out_of_order.count}  torn {verdict.torn.count}"
                    f"  gap {one.gap_ms:,.0f} ms"
                    + ("" if one.is_settled else "  not settled in time")
                    + (f"  {one.wrong}" if one.wrong else "")
                )
    finally:
        await target.down()
    return done


def _report(done: "dict[str, list[Round]]", folder: Path, report: Path) -> bool:
    """Write JSON and the page; return whether everything passed."""
    import msgspec

    from qm.drill.report import report_html
    from qm.drill.runner import result_of

    results = {name: msgspec.to_builtins(result_of(rounds)) for name, rounds in done.items()}
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page = folder / "report.html"
    page.write_text(report_html(done), encoding="utf-8")
    click.echo(f"report: {page}, {report}")
    return all(result["verdict"] == "pass" for result in results.values())
