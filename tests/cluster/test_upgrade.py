"""A rolling upgrade to a build with a newer apply version: real processes of two builds."""

import asyncio
from pathlib import Path

import pytest

from qm.drill.runner import Settings, run_round
from qm.drill.scenarios.catalogue import SCENARIOS
from qm.drill.targets.process_target import ProcessTarget
from tests.cluster.harness import until

pytestmark = pytest.mark.timeout(900)
"""A drill waits as long as a busy machine makes it."""

NETWORK = "127.0.43"
RATE_PER_S = 50.0


def quiet(text: str) -> None:
    del text


def test_builds_mix_until_all_are_new_and_then_the_old_one_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        target = ProcessTarget("dev", tmp_path, NETWORK, quiet)
        try:
            settings = Settings(1, RATE_PER_S)
            upgraded = await run_round(
                target, SCENARIOS["rolling-upgrade"], settings, lambda _: None
            )
            assert upgraded.holds, upgraded
            log = tmp_path / "cluster" / "n1.log"
            await target.stop("n1")
            await target.change_build("n1", is_other=False)
            await target.start("n1")
            await until(lambda: "start the build that wrote it" in log.read_text(), log.read_text)
            await target.change_build("n1", is_other=True)
            await target.kill("n1")
            await target.heal()
        finally:
            await target.down()

    # As the command does: uvloop forks where gRPC's threads run.
    asyncio.run(scenario())
