"""Audits in the archive as reports: listed and shown beside those in the folder."""

import asyncio
import json
import tempfile
from pathlib import Path

import msgspec
import pytest

from qm.api.gate.operations import NotOffered
from qm.archive.audit_reports import AuditReports
from qm.node.audits import AUDITS_MAX, Shelf
from qm.node.config.schema import NodeConfig
from qm.node.reports import REPORT_MAX_BYTES
from tests.unit.client.world import clients, run
from tests.unit.console.world import browser, sign_in

CLUSTER = bytes(range(16))
HOSTILE = "<script>alert(1)</script>"
SILENT = "s3://bucket/archive?endpoint_override=127.0.0.1:1&scheme=http"


def put_audit(archive: Path, name: str, *, cluster: bytes = CLUSTER, is_whole: bool = True) -> Path:
    folder = archive / cluster.hex() / "audit" / name
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"findings_by_rule": {"message_twice": 2}}))
    (folder / "report.html").write_text(f"<p>{HOSTILE}</p>")
    (folder / "state.parquet").write_text("x")
    if is_whole:
        (folder / "audited.json").write_text("{}")
    return folder


def paths(shelf: Shelf) -> list[str]:
    found = asyncio.run(shelf.listed())
    assert not found.missing
    return sorted(one.path for one in found.files)


def test_whole_audits_are_listed_beside_the_folder(tmp_path: Path) -> None:
    archive, folder = tmp_path / "archive", tmp_path / "reports"
    folder.mkdir()
    (folder / "drill.json").write_text("{}")
    put_audit(archive, "0001-0009")
    put_audit(archive, "0010-0019", is_whole=False)
    put_audit(archive, "notes")
    put_audit(archive, "0001-0002", cluster=bytes(16))
    audits = [f"archive:0001-0009/{name}" for name in ("report.html", "summary.json")]
    assert paths(Shelf(folder, str(archive), CLUSTER)) == [*audits, "drill.json"]
    assert paths(Shelf(folder, f"file://{archive}", CLUSTER)) == [*audits, "drill.json"]
    assert paths(Shelf(None, str(archive), CLUSTER)) == audits
    assert paths(Shelf(folder, "", CLUSTER)) == ["drill.json"]
    assert paths(Shelf(None, str(tmp_path / "none"), CLUSTER)) == []
    with pytest.raises(NotOffered, match=r"console\.reports"):
        asyncio.run(Shelf(None, "", CLUSTER).listed())


def test_the_newest_audits_are_listed(tmp_path: Path) -> None:
    for number in range(AUDITS_MAX + 3):
        put_audit(tmp_path, f"{number:04}-{number:04}")
    found = paths(Shelf(None, str(tmp_path), CLUSTER))
    assert len(found) == 2 * AUDITS_MAX
    assert found[0].startswith("archive:0003-")


def test_nothing_else_of_an_archive_is_read(tmp_path: Path) -> None:
    folder = put_audit(tmp_path, "0001-0009")
    (tmp_path / "secret").write_text("secret")
    (folder / "metrics.prom").symlink_to(tmp_path / "secret")
    shelf = Shelf(None, str(tmp_path), CLUSTER)
    assert b"message_twice" in asyncio.run(shelf.read("archive:0001-0009/summary.json"))
    for path in (
        "archive:0001-0009/metrics.prom",
        "archive:0001-0009/audited.json",
        "archive:0001-0009/state.parquet",
        "archive:../audit/0001-0009/summary.json",
        "archive:0001-0009/../0001-0009/summary.json",
        "archive:0002-0003/summary.json",
        "archive:",
        "drill.json",
    ):
        with pytest.raises(KeyError):
            asyncio.run(shelf.read(path))
    (folder / "report.html").write_bytes(bytes(REPORT_MAX_BYTES + 1))
    with pytest.raises(ValueError, match="longer than 4 MiB"):
        asyncio.run(shelf.read("archive:0001-0009/report.html"))


def test_what_a_store_holds_is_listed_and_read(tmp_path: Path) -> None:
    put_audit(tmp_path, "0001-0009")
    found = AuditReports(f"file://{tmp_path}", CLUSTER.hex())
    assert found.folders() == ["0001-0009"]
    (file,) = found.files(["0001-0009", "0002-0003"], ["summary.json", "none.json"])
    summary = tmp_path / CLUSTER.hex() / "audit" / "0001-0009" / "summary.json"
    assert (file.name, file.size_bytes) == ("summary.json", summary.stat().st_size)
    assert file.written_ms > 0
    assert found.read("0001-0009", "summary.json", 5) == b'{"fin'
    assert AuditReports(f"file://{tmp_path}", "other").folders() == []


def test_a_silent_archive_keeps_no_other_report(tmp_path: Path) -> None:
    (tmp_path / "drill.json").write_text("{}")

    async def scenario() -> None:
        shelf = Shelf(tmp_path, SILENT, CLUSTER)
        for _ in range(2):
            found = await shelf.listed()
            assert [one.path for one in found.files] == ["drill.json"]
            assert "archive" in found.missing
        assert await shelf.read("drill.json") == b"{}"
        with pytest.raises(NotOffered):
            await shelf.read("archive:0001-0009/summary.json")

    asyncio.run(scenario())


def test_operators_see_audits_of_the_archive_in_the_console() -> None:
    async def work(folder: Path) -> None:
        def change(config: NodeConfig) -> NodeConfig:
            replace = msgspec.structs.replace
            return replace(config, archive=replace(config.archive, url=str(folder)))

        async with clients(1, change) as made, browser(made) as found:
            await sign_in(made, found)
            leader = await made.harness.leader()
            put_audit(folder, "0001-0009", cluster=leader.cluster.config.cluster)
            status, text = await found.get("/reports")
            assert status == 200
            assert "archive:0001-0009/summary.json" in text
            status, text = await found.get("/reports/show?path=archive:0001-0009/summary.json")
            assert ">message_twice<" in text
            status, text = await found.get("/reports/show?path=archive:0001-0009/report.html")
            assert status == 200
            assert HOSTILE not in text

    with tempfile.TemporaryDirectory() as folder:
        run(work(Path(folder)))
