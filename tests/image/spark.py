"""The image of audits, built on the program's and started on a small archive.

`make test-image-spark` runs it as the chart's jobs do, and as Spark on Kubernetes starts a driver
and an executor; what is missing is the scheduler between these two. Needs what `make test-image`
needs. Prints JSON and writes it to build/test-image-spark.json. Exit code 1: something does not
hold, `broken` says what.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml

from tests.image.buildah import Store
from tests.image.building import (
    EPOCH_S,
    IMAGE,
    IMAGE_SPARK,
    base,
    build,
    build_with_spark,
    copy_context,
)
from tests.image.compose import ROOT
from tests.image.machine import EXIT_STATUS_UNAVAILABLE, FOLDER, missing_here
from tests.spark.archives import operation
from tests.spark.files import write_archive
from tests.spark.logs import KEPT, traffic

OUTPUT: Final = Path("build") / "test-image-spark.json"
APPLICATION: Final = ROOT / "deploy" / "spark" / "audit.yaml"
JOB_S: Final = 900.0
USER: Final = 10001
EXIT_FOUND: Final = 1
CONFIGURATION: Final = "/opt/spark/conf"
"""Where Spark on Kubernetes mounts it."""
CLOSED_PORT: Final = 9
"""Discard; nothing answers there."""
_HOST: Final = "audit"
_LOCAL: Final = ("--cores", "1", "--memory-mib", "512", "-o", "json")


class Jobs:
    """Runs commands in a container of the image, which is thrown away after each."""

    def __init__(self, store: Store, archive: Path, scratch: Path) -> None:
        self._store = store
        self._mounts = [
            (archive, "/archive", False),
            (scratch / "tmp", "/tmp", False),
            (scratch / "conf", CONFIGURATION, True),
        ]
        self.written: list[str] = []

    def run(self, *argv: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Return exit status, standard output and standard error."""
        # As in a pod, whose own name is in its hosts file; Java wants to resolve it.
        container = self._store.create(IMAGE_SPARK, {_HOST: "127.0.0.1"})
        try:
            inside = self._store.run_argv(
                container,
                argv,
                user=str(USER),
                hostname=_HOST,
                environment=environment,
                mounts=self._mounts,
            )
            done = subprocess.run(
                inside, capture_output=True, text=True, check=False, timeout=JOB_S
            )
            self.written += self._store.written(container, EPOCH_S)
        finally:
            self._store.remove(container)
        return done.returncode, done.stdout, done.stderr


def main() -> int:
    """Do everything; return the exit code."""
    if missing := missing_here():
        print(f"test-image-spark needs {missing}; see `make deps-system`", file=sys.stderr)
        return EXIT_STATUS_UNAVAILABLE
    store = Store(FOLDER)
    report: dict[str, Any] = {}
    broken: list[str] = []
    copy_context(FOLDER)
    if not store.digest(IMAGE):
        build(store, FOLDER, base(store, FOLDER))
    started = time.monotonic()
    build_with_spark(store, FOLDER)
    report["build_s"] = round(time.monotonic() - started, 1)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        _use(store, Path(name), report, broken)
    report["load_average"] = round(os.getloadavg()[0], 1)
    report["broken"] = broken
    OUTPUT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))
    return 1 if broken else 0


def _use(store: Store, folder: Path, report: dict[str, Any], broken: list[str]) -> None:
    """Audit an archive with one finding, compact it, and start what a Spark cluster starts."""
    folder.chmod(0o755)
    archive, scratch = folder / "archive", folder / "scratch"
    for made in ("tmp", "conf"):
        (scratch / made).mkdir(parents=True)
    log = traffic(folder / "node")
    log.archive.entry(operation("received", 99))  # of a message that was received already
    write_archive(archive, log.archive, 0, log.archive.index - 1, log.archive.index)
    for path in (archive, scratch / "tmp", *archive.rglob("*")):
        os.chown(path, USER, USER)
    jobs = Jobs(store, archive, scratch)
    started = time.monotonic()
    status, said, logged = jobs.run("qm", "audit", "run", "--archive", "/archive", *_LOCAL)
    report["audit_s"] = round(time.monotonic() - started, 1)
    report["audit_exit_status"] = status
    found = _answer(said).get("findings_by_rule")
    if status != EXIT_FOUND or found != {"message_twice": 1}:
        broken.append(f"audit: {status} {said} {logged[-2000:]}")
    _compact(jobs, log.archive.index - 1, report, broken)
    for audited in archive.glob("*/audit"):
        shutil.rmtree(audited)  # so that the next one begins where the first one did
    _drive(jobs, scratch, report, broken)
    _execute(jobs, report, broken)
    report["written_outside_volumes"] = [
        name for name in jobs.written if not name.startswith("etc/")
    ]
    if report["written_outside_volumes"]:
        broken.append("a container wrote outside its volumes")


def _compact(jobs: Jobs, upto: int, report: dict[str, Any], broken: list[str]) -> None:
    command = ("qm", "compact", "run", "--archive", "/archive", "--upto", str(upto), *_LOCAL)
    status, said, logged = jobs.run(*command)
    report["compact_exit_status"] = status
    if status != 0 or _answer(said).get("messages") != KEPT:
        broken.append(f"compact: {status} {said} {logged[-2000:]}")


def _answer(said: str) -> dict[str, Any]:
    """Return what a command says as JSON; empty if it said something else."""
    with contextlib.suppress(ValueError):
        return dict(json.loads(said))
    return {}


def _drive(jobs: Jobs, scratch: Path, report: dict[str, Any], broken: list[str]) -> None:
    """Start the example's application as its driver's pod does, with tasks in the driver."""
    job = yaml.safe_load(APPLICATION.read_text(encoding="utf-8"))["spec"]["template"]
    properties = scratch / "conf" / "spark.properties"
    properties.write_text("spark.master=local[1]\nspark.driver.memory=512m\n", encoding="utf-8")
    arguments = [*job["arguments"][:-1], "/archive"]
    status, said, logged = jobs.run(
        *(
            "/opt/entrypoint.sh",
            "driver",
            "--properties-file",
            f"{CONFIGURATION}/{properties.name}",
        ),
        *("--class", "org.apache.spark.deploy.PythonRunner", job["mainApplicationFile"]),
        *arguments,
        environment={"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"},
    )
    report["driver_exit_status"] = status
    if status != EXIT_FOUND or '"message_twice": 1' not in said:
        broken.append(f"driver: {status} {said[-2000:]} {logged[-2000:]}")


def _execute(jobs: Jobs, report: dict[str, Any], broken: list[str]) -> None:
    """Start an executor of a driver that is gone: it must look for that one, and end."""
    environment = {
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{CLOSED_PORT}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-test",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
    }
    status, said, logged = jobs.run("/opt/entrypoint.sh", "executor", environment=environment)
    text = said + logged
    report["executor_exit_status"] = status
    is_one = "KubernetesExecutorBackend" in text and f"127.0.0.1:{CLOSED_PORT}" in text
    if status == 0 or not is_one:
        broken.append(f"executor: {status} {text[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
