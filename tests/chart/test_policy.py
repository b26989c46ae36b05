"""The policy scan: what it finds in the rendered objects is fixed, or listed with a reason."""

import json
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest
import yaml

from tests.chart.rendering import EXAMPLES, ROOT, TLS, everything, example, render

CHECKOV: Final = ROOT / "build" / "checkov" / "bin" / "checkov"
"""In an environment of its own: it wants other versions of what the product uses."""
SCAN_S: Final = 240.0


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """Findings that stay."""

    check: str
    kinds: list[str]
    reason: str

    def covers(self, check: str, kind: str) -> bool:
        return check == self.check and (kind in self.kinds or "*" in self.kinds)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str, str]]:
    """(check, its name, kind of the object) of everything that the scan finds."""
    assert CHECKOV.exists(), "`make test-chart` installs the policy scan"
    folder: Path = tmp_path_factory.mktemp("rendered")
    every = {path.stem: example(path) for path in EXAMPLES}
    for name, values in {**every, "everything": everything(), "defaults": TLS}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(render(values)))
    done = subprocess.run(
        [
            *(str(CHECKOV), "--directory", str(folder), "--framework", "kubernetes"),
            *("--output", "json", "--soft-fail", "--skip-download", "--quiet", "--compact"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=SCAN_S,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 1000, report["summary"]
    return {
        (found["check_id"], found["check_name"], found["resource"].partition(".")[0])
        for found in report["results"]["failed_checks"]
    }


@pytest.fixture(scope="module")
def kept() -> list[Kept]:
    text = Path(__file__).with_name("policy.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), list[Kept])


def test_every_finding_is_fixed_or_has_a_reason(
    findings: set[tuple[str, str, str]], kept: list[Kept]
) -> None:
    open_findings = [
        (check, name, kind)
        for check, name, kind in sorted(findings)
        if not any(entry.covers(check, kind) for entry in kept)
    ]
    assert open_findings == []


def test_every_reason_is_still_needed(
    findings: set[tuple[str, str, str]], kept: list[Kept]
) -> None:
    for entry in kept:
        for kind in entry.kinds:
            assert any(
                check == entry.check and kind in ("*", found) for check, _, found in findings
            ), (entry.check, kind)
