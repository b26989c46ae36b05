"""The audit of what real nodes exported while their leader died: clean, and its totals are those
that the clients wrote down.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from qm.load.verdict import Verdict
from spark.archive.store import ArchiveStore
from spark.audit import AuditOptions, run_audit
from tests.cluster.archives import QUEUES, archived_load
from tests.cluster.harness import run


def test_a_drill_with_a_kill_audits_clean(spark: SparkSession, tmp_path: Path) -> None:
    verdicts: list[Verdict] = []

    async def scenario() -> None:
        verdicts.append(await archived_load(tmp_path / "archive", tmp_path))

    run(scenario())
    (verdict,) = verdicts
    assert verdict.holds, verdict
    store = ArchiveStore(str(tmp_path / "archive"))
    (cluster,) = {path.name for path in (tmp_path / "archive").iterdir()}
    summary = run_audit(spark, store, AuditOptions(cluster))
    assert summary.findings_by_rule == {}, summary.examples
    assert summary.nodes == ["n1.1", "n2.1", "n3.1"]
    (said,) = summary.replays
    assert said.problem == ""
    assert said.marks >= 2, "a replay of the log gives the state that nodes told"
    flow = {row["queue"]: row for row in summary.flow}
    received = sum(flow[queue]["received"] for queue in QUEUES)
    assert received == verdict.received == verdict.sent
