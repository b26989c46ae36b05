"""Members that come and go under load, on hosts of their own. Needs root."""

from pathlib import Path

import pytest

from tests.drills.hosts import drilled, hosts, run

pytestmark = pytest.mark.timeout(900)
"""A drill waits as long as a busy machine makes it."""


def test_a_cluster_grows_to_five_shrinks_back_and_replaces_a_dead_member(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosts(tmp_path) as target:
            before = [node.name for node in target.nodes]
            grown = await drilled(target, "grow-and-shrink")
            assert grown.holds, grown
            assert [node.name for node in target.nodes] == before
            replaced = await drilled(target, "replace-member")
            assert replaced.holds, replaced
            after = {node.name for node in target.nodes}
            assert len(after) == len(before)
            assert len(after - set(before)) == 1

    run(scenario)
