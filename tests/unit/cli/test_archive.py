"""`qm audit` and `qm compact` as far as they need no Spark: what is there, and what was found."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from qm.archive.manifest import MANIFEST_NAME, range_folder
from qm.cli.main import main
from qm.store.signing import Signer
from spark.archive.base import BASE_NAME
from spark.archive.store import ArchiveStore
from spark.archive.summary import AUDITED_NAME, REPORT_NAME, SUMMARY_NAME, Audited, Summary, hashes

CLUSTER = "ab" * 16
EXIT_FOUND, EXIT_DAMAGED, EXIT_PARTIAL = 1, 2, 4


def qm(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == exit_code, (arguments, result.output)
    return result


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """An archive of two nodes that was audited twice; its only base is damaged."""
    store = ArchiveStore(str(tmp_path / "archive"))
    for node, last in (("n1.1", 10), ("n1.1", 20), ("n2.3", 10)):
        store.write(f"{range_folder(CLUSTER, node, last - 9, last)}/{MANIFEST_NAME}", b"{}")
    store.write(f"{range_folder(CLUSTER, 'n2.3', 11, 20)}/entries.parquet", b"no manifest yet")
    store.write(f"{CLUSTER}/base/{10:020}/{BASE_NAME}", b"{")
    _audited(store, 1, 10)
    _audited(
        store,
        11,
        20,
        findings_by_rule={"chain_broken": 1},
        examples=[
            {
                "rule": "chain_broken", "group": 1, "index": 14, "node": None, "subject": "entry",
                "detail": "the entry before it is missing", "evidence": "{}",
            }
        ],
    )  # fmt: skip
    return store.url


def _audited(
    store: ArchiveStore, first: int, last: int, signer: Signer | None = None, **found: object
) -> str:
    summary = Summary(cluster=CLUSTER, first=first, last=last, nodes=["n1.1"], **found)  # type: ignore[arg-type]
    folder = f"{CLUSTER}/audit/{first:020}-{last:020}"
    store.write(f"{folder}/{SUMMARY_NAME}", msgspec.json.encode(summary))
    store.write(f"{folder}/{REPORT_NAME}", f"<p>{summary.findings_total} findings".encode())
    written = [f"{folder}/{SUMMARY_NAME}", f"{folder}/{REPORT_NAME}"]
    files = hashes(store, folder, written)
    done = Audited(CLUSTER, first, last, folder, summary.findings_total, files=files)
    store.write_signed(f"{folder}/{AUDITED_NAME}", msgspec.json.encode(done), signer)
    return folder


def test_status_says_how_far_nodes_and_audits_are(archive: str) -> None:
    shown = qm("audit", "status", "--archive", archive, "-o", "json", exit_code=EXIT_FOUND)
    found = json.loads(shown.stdout)
    assert found["exported"] == {
        "n1.1": {"ranges": 2, "last": 20},
        "n2.3": {"ranges": 1, "last": 10},
    }
    assert (found["audited"], found["audits"], found["findings"]) == (20, 2, 1)
    assert found["bases"] == []
    assert "base.json" in found["problems"][0]


def test_report_shows_the_newest_audit_or_the_one_asked_for(archive: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    newest = qm("audit", "report", "--archive", archive, "--html", str(page), exit_code=EXIT_FOUND)
    assert "11 to 20" in newest.output
    assert "the entry before it is missing" in newest.output
    assert page.read_text() == "<p>1 findings"
    older = qm("audit", "report", "--archive", archive, "--last", "10", "-o", "json")
    assert json.loads(older.stdout)["findings_by_rule"] == {}
    missing = qm("audit", "report", "--archive", archive, "--last", "7", exit_code=EXIT_DAMAGED)
    assert "audits that end at 10, 20" in missing.output


@pytest.mark.parametrize("noun", ["audit", "compact"])
def test_without_spark_a_run_says_how_to_install_it(
    noun: str, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its packages is the first that is missed."""
    monkeypatch.delitem(sys.modules, "spark.engine", raising=False)
    for name in ("py4j", "py4j.protocol", "pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    failed = qm(noun, "run", "--archive", archive, exit_code=EXIT_DAMAGED)
    assert "pip install 'quorate[spark]'" in failed.output


def test_an_archive_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    failed = qm("audit", "status", "--archive", str(tmp_path), exit_code=EXIT_DAMAGED)
    assert "holds none" in failed.output
    failed = qm("audit", "status", "--archive", "nowhere://x/y", exit_code=EXIT_DAMAGED)
    assert "not an archive that this machine can reach" in failed.output


def test_a_report_names_what_was_not_archived(tmp_path: Path) -> None:
    store = ArchiveStore(str(tmp_path / "archive"))
    store.write(f"{range_folder(CLUSTER, 'n1.1', 8, 20)}/{MANIFEST_NAME}", b"{}")
    _audited(store, 8, 20, begun_after=7, is_partial=True)
    shown = qm("audit", "report", "--archive", store.url, exit_code=EXIT_PARTIAL)
    assert "8 to 20" in shown.output
    assert "1 to 7" in shown.output


def test_an_audit_counts_that_a_named_key_signed_where_it_was_written(tmp_path: Path) -> None:
    """Whoever may write to the archive would have the next audit pass over what it added."""
    signer, forger = Signer(bytes(32)), Signer(bytes(31) + b"\1")
    store = ArchiveStore(str(tmp_path / "archive"))
    store.write(f"{range_folder(CLUSTER, 'n1.1', 1, 9)}/{MANIFEST_NAME}", b"{}")
    folder = _audited(store, 1, 9, signer)
    _audited(store, 10, 1 << 60, forger)
    _audited(store, 10, 1 << 61)
    asking = ["--archive", store.url, "--signer", signer.public]
    shown = qm("audit", "status", *asking, "-o", "json")
    assert json.loads(shown.stdout)["audited"] == 9
    root = Path(store.url)
    shutil.copytree(root / folder, root / CLUSTER / "audit" / "copy")
    shown = qm("audit", "status", *asking, "-o", "json")
    assert json.loads(shown.stdout)["audits"] == 1
    qm("audit", "report", *asking)
    for name in (SUMMARY_NAME, REPORT_NAME):
        before = (root / folder / name).read_bytes()
        (root / folder / name).write_bytes(before + b" ")
        page = str(tmp_path / "page.html")
        failed = qm("audit", "report", *asking, "--html", page, exit_code=EXIT_DAMAGED)
        assert "was changed after the audit" in failed.output
        (root / folder / name).write_bytes(before)
