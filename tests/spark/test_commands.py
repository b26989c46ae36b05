"""The jobs as operators start them: processes with exit codes, and what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pyspark
import yaml
from pyspark.sql import SparkSession

from qm.store.backup import verify_backup
from spark.archive.store import ArchiveStore
from spark.audit import AuditOptions, run_audit
from spark.main import EXIT_BROKEN_OFF, main
from tests.spark.archives import NODES, operation
from tests.spark.files import CLUSTER, write_archive
from tests.spark.logs import KEPT, traffic

EXIT_FOUND = 1


ROOT = Path(__file__).parents[2]


def test_the_example_for_a_spark_cluster_gives_the_job_what_it_understands() -> None:
    example = yaml.safe_load((ROOT / "deploy" / "spark" / "audit.yaml").read_text())
    template = example["spec"]["template"]
    assert template["sparkVersion"] == pyspark.__version__
    name, *arguments = template["arguments"]
    command = main.get_command(click.Context(main), name)
    assert command is not None
    command.make_context(name, arguments)
    program = Path(template["mainApplicationFile"].removeprefix("local://"))
    assert (ROOT / program.relative_to(program.parents[1])).exists()


def run(*command: str, exit_code: int = 0) -> tuple[Any, str]:
    """Run a command to its end; return its JSON and what it logged."""
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr[-4000:]
    assert done.stdout, done.stderr[-4000:]
    return json.loads(done.stdout), done.stderr


def test_a_machine_without_java_is_no_finding(tmp_path: Path) -> None:
    log, root = traffic(tmp_path / "node"), tmp_path / "archive"
    write_archive(root, log.archive, 0, log.archive.index)
    done = subprocess.run(
        [sys.executable, "-m", "qm", "audit", "run", "--archive", str(root)],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_BROKEN_OFF, done.stderr[-4000:]
    assert "Is Java 17 or newer on the path" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_audit_without_anything_new_needs_no_java(spark: SparkSession, tmp_path: Path) -> None:
    log, root = traffic(tmp_path / "node"), tmp_path / "archive"
    write_archive(root, log.archive, 0, log.archive.index)
    last = run_audit(spark, ArchiveStore(str(root)), AuditOptions(CLUSTER)).last
    done = subprocess.run(
        [sys.executable, "-m", "spark", "audit", "--archive", str(root)],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert (said["first"], said["last"], said["findings_by_rule"]) == (last + 1, last, {})


def test_audit_and_compaction_from_the_command_line(tmp_path: Path) -> None:
    log, root = traffic(tmp_path / "node"), tmp_path / "archive"
    log.archive.entry(operation("received", 99))
    write_archive(root, log.archive, 0, log.archive.index - 1, log.archive.index)
    upto = str(log.archive.index - 1)
    summary, logged = run(
        "qm", "audit", "run", "--archive", str(root), "--memory-mib", "512", "-o", "json",
        "--metrics-file", str(tmp_path / "audit.prom"), exit_code=EXIT_FOUND,
    )  # fmt: skip
    assert summary["findings_by_rule"] == {"message_twice": 1}
    assert [said["marks"] for said in summary["replays"]] == [1]
    assert "audit: replay" in logged, "stages have names"
    (listed,) = root.glob(f"{CLUSTER}/audit/*/metrics.prom")
    assert "quorate_audit_findings_all 1.0" in listed.read_text()
    assert (tmp_path / "audit.prom").read_text() == listed.read_text()
    done, _ = run(
        "spark", "compact", "--archive", str(root), "--upto", upto, "--master", "local[1]",
        "--memory-mib", "512", "--drop-old",
    )  # fmt: skip
    assert (done["index"], done["messages"]) == (int(upto), KEPT)
    assert len(done["dropped"]) == len(NODES)
    assert verify_backup(root / done["folder"]).digest == log.digest.hex()
