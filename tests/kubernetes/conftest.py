"""A namespace with a release for the whole run; what a failure leaves in it is printed."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.prerequisites import Missing, prerequisites
from tests.kubernetes.programs import ProgramFailed, Programs
from tests.kubernetes.release import Release

NAMESPACE = f"quorate-test-{secrets.token_hex(3)}"
PROGRAMS = Programs(NAMESPACE)
LOG_LINES = 200
DELETE_S = 300.0
# A pod that stops another one's processes needs rights that namespaces otherwise refuse.
PRIVILEGED = "pod-security.kubernetes.io/enforce=privileged"


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    try:
        cluster = prerequisites(PROGRAMS)
    except Missing as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    made = Release(PROGRAMS, cluster, tmp_path_factory.mktemp("release"))
    PROGRAMS.kubectl("create", "namespace", NAMESPACE)
    try:
        PROGRAMS.kubectl("label", "namespace", NAMESPACE, PRIVILEGED)
        made.prepare()
        try:
            made.install()
        except ProgramFailed:
            # Before the namespace is removed, which is before pytest reports the error.
            for title, text in seen(PROGRAMS):
                print(f"--- {title}\n{text}")
            raise
        yield made
    finally:
        PROGRAMS.kubectl(
            "delete", "namespace", NAMESPACE, f"--timeout={DELETE_S:.0f}s", seconds=DELETE_S + 30
        )


@pytest.hookimpl(wrapper=True)
def pytest_exception_interact(report: pytest.CollectReport | pytest.TestReport) -> Any:
    """Show the namespace as it is when a test fails, before anything is cleaned up."""
    report.sections.extend(seen(PROGRAMS))
    return (yield)


def seen(programs: Programs) -> Iterator[tuple[str, str]]:
    """Return what a namespace tells about a failure: its objects, events, and pods' logs."""
    asked = {
        "objects": ("get", "all,pvc,pdb", "--output", "wide"),
        "events": ("get", "events", "--sort-by=.lastTimestamp"),
    }
    for title, question in asked.items():
        yield title, told(programs, *question)
    for name in told(programs, "get", "pods", "--output", "name").split():
        tail = ("--all-containers", f"--tail={LOG_LINES}")
        for title, which in (("", ()), (" before its restart", ("--previous",))):
            text = told(programs, "logs", name, *tail, *which)
            if text and "previous terminated container" not in text:
                yield f"log of {name}{title}", text


def told(programs: Programs, *question: str) -> str:
    try:
        return programs.kubectl(*question)
    except ProgramFailed as error:
        return str(error)
