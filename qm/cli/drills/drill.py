"""`qm drill`: failover drills, judged from what clients saw."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qm.cli.drills.drill_targets import Choice, acts_on_others, chosen, target_options
from qm.cli.lib.names import complete_scenarios
from qm.cli.lib.output import confirm, output_option, show_rows, yes_option

if TYPE_CHECKING:
    from qm.drill.scenarios.scenario import Scenario
    from qm.drill.targets.target import Target

ROUNDS_FILE: Final = "rounds.jsonl"
"""File in the folder of a run."""


@click.group()
def drill() -> None:
    """Failover drills: faults under load, judged from what clients saw."""


@drill.command("list")
@output_option
def list_scenarios(output: str) -> None:
    """List the scenarios, and the kinds of target that can run each."""
    from qm.drill.scenarios.catalogue import SCENARIOS
    from qm.drill.targets.reasons import REASONS, refusals

    rows = [
        {"name": scenario.name}
        | {kind: not refusals(kind, scenario.needs) for kind in REASONS}
        | {"text": scenario.text}
        for scenario in SCENARIOS.values()
    ]
    show_rows(rows, ("name", *REASONS, "text"), output)


@drill.command()
@click.argument("names", nargs=-1, shell_complete=complete_scenarios)
@click.option(
    "--target", default="dev", show_default=True, metavar="dev|netns|FILE.toml|kubernetes",
    help="Processes here; in network namespaces; a cluster on the machines of a file; a release.",
)  # fmt: skip
@yes_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the first round.")
@click.option("--rate", type=click.IntRange(1), default=400, show_default=True, help="Per sender.")
@click.option("--short", is_flag=True, help="Run only the short list.")
@click.option(
    "--resume", is_flag=True,
    help="Keep the rounds in the folder's rounds.jsonl, except scenarios that failed since, and run"
    " the rest.",
)  # fmt: skip
@click.option(
    "--minutes", type=click.FloatRange(0.1), default=float("inf"),
    help="Start no round after that; --resume continues.",
)  # fmt: skip
@click.option(
    "-f", "--folder", type=click.Path(path_type=Path, file_okay=False), default="build/drill",
    show_default=True, help="Folder for cluster, histories and report.",
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
    resume: bool,
    minutes: float,
    folder: Path,
    report: Path,
    **options: Any,
) -> None:
    """Run scenarios by NAME, or all that the target supports.

    Exit code: 0 all passed; 1 one failed, or could not be carried out; 2 wrong usage, or the target
    cannot do it.
    """
    from qm.cli.drills.drill_run import Done, resumed, run_turns, write_report
    from qm.drill.report.rounds_file import RoundsFile
    from qm.drill.scenarios.catalogue import SCENARIOS
    from qm.drill.soak import Turn
    from qm.drill.targets.ability import Refused
    from qm.drill.targets.target import TargetFailed

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
            _require(drilled, wanted)
            turns = [Turn(scenario, seed + turn) for scenario in wanted for turn in range(rounds)]
            file = RoundsFile(folder / ROUNDS_FILE, drilled.name, rate)
            if not resume:
                file.clear()
            done = resumed(file) if resume else Done()
            asyncio.run(run_turns(drilled, turns, rate, file, done, for_s=minutes * 60))
            write_report(done, drilled.name, rate, folder, report, merges=resume)
    except Refused as error:
        raise click.UsageError(str(error)) from error
    except TargetFailed as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if done.holds else 1)


def _require(target: "Target", scenarios: "list[Scenario]") -> None:
    """Raise Refused unless the target supports all scenarios."""
    from qm.drill.runner import missing
    from qm.drill.targets.ability import Refused
    from qm.drill.targets.reasons import refusal

    for scenario in scenarios:
        lacks = missing(target, scenario)
        if lacks:
            raise Refused(f"{scenario.name}: {refusal(target.name, lacks[0])}")


@drill.command()
@click.option("--minutes", type=click.FloatRange(0.1), default=60.0, show_default=True)
@click.option(
    "--target", default="dev", show_default=True, metavar="dev|netns",
    help="Processes here; in network namespaces.",
)  # fmt: skip
@click.option("--network", default="127.0.14", show_default=True, help="As for `run`.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the scenarios.")
@click.option("--rate", type=click.IntRange(1), default=400, show_default=True, help="Per sender.")
@click.option(
    "-f", "--folder", type=click.Path(path_type=Path, file_okay=False), default="build/soak",
    show_default=True, help="Folder for cluster, histories and report.",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), default="build/soak.json",
    show_default=True,
)  # fmt: skip
def soak(
    minutes: float,
    target: str,
    network: str,
    seed: int,
    rate: int,
    folder: Path,
    report: Path,
) -> None:
    """Run random scenarios on one cluster under load, until the time is over.

    The same seed chooses the same scenarios. Exit codes as for `run`.
    """
    from qm.cli.drills.drill_run import Done, run_turns, write_report
    from qm.drill.report.rounds_file import RoundsFile
    from qm.drill.scenarios.catalogue import SCENARIOS
    from qm.drill.soak import random_turns
    from qm.drill.targets.ability import Refused
    from qm.drill.targets.target import TargetFailed

    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    choice = Choice(target=target, folder=folder, network=network, other_build=None)
    if acts_on_others(choice):
        raise click.UsageError("a soak needs a cluster of its own: --target dev or netns")
    try:
        with chosen(choice) as drilled:
            able = [s for s in SCENARIOS.values() if s.needs <= drilled.abilities]
            turns = random_turns(able, seed, minutes * 60)
            file, done = RoundsFile(folder / ROUNDS_FILE, drilled.name, rate), Done()
            file.clear()
            asyncio.run(run_turns(drilled, turns, rate, file, done))
            write_report(done, drilled.name, rate, folder, report)
    except Refused as error:
        raise click.UsageError(str(error)) from error
    except TargetFailed as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if done.holds else 1)
