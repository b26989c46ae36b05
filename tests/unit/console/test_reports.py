"""Reports of drills and audits: which files are shown, and how."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from pathlib import Path

import msgspec
import pytest

from qm.api.gate.identity import Role
from qm.api.gate.operations import NotOffered
from qm.console.page_group import instant_ms
from qm.console.reports import CELL_MAX_CHARS, COLUMNS_MAX, ROWS_MAX, SHOWN_MAX_CHARS, tables_of
from qm.node.config.schema import CONSOLE_PORT, NodeConfig
from qm.node.reports import FOLDERS_MAX, REPORT_MAX_BYTES, WRITTEN_MAX_MS, Reports, written_ms
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.client.world import Clients, clients, run, scenario
from tests.unit.console.world import browser, sign_in

HOSTILE = "<script>alert(1)</script>"
DRILL = {"quorate": "0.1.0", "rounds": {"leader-kill": [{"seed": 1, "holds": True, "rto_ms": 812}]}}


def test_plain_files_of_known_kinds_are_listed_and_read(tmp_path: Path) -> None:
    deep = tmp_path / "2026" / "11" / "28"
    deep.mkdir(parents=True)
    (deep / "report.json").write_text("{}")
    (tmp_path / "old.md").write_text("# Old")
    os.utime(tmp_path / "old.md", (1, 1))
    for name in (".hidden.json", "state.db", "no-ending"):
        (tmp_path / name).write_text("secret")
    below = deep / "too-deep"
    below.mkdir()
    (below / "x.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("/etc/hostname")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / os.fsdecode(b"bad-\xff.txt")).write_text("x")
    reports = Reports(tmp_path)
    assert [one.path for one in reports.listed()] == ["2026/11/28/report.json", "old.md"]
    assert reports.listed()[1].written_ms == 1_000
    assert reports.read("old.md") == b"# Old"
    assert reports.read("2026/11/28/report.json") == b"{}"
    assert FOLDERS_MAX == 3
    for path in (
        "",
        "/etc/hostname",
        "../old.md",
        "2026/../old.md",
        "./old.md",
        "2026//11/28/report.json",
        ".hidden.json",
        "state.db",
        "link.json",
        "folder/hostname.txt",
        "pipe.txt",
        "2026",
        "old.md\0",
        "2026/11/28/too-deep/x.json",
        "x" * 5_000 + ".txt",
    ):
        with pytest.raises(KeyError):
            reports.read(path)


def test_no_time_of_a_file_keeps_the_others(tmp_path: Path) -> None:
    """Whoever writes a file can give it a time before 1970, and after 9999 on some systems."""
    (tmp_path / "report.txt").write_text("x")
    os.utime(tmp_path / "report.txt", (-2_000_000_000, -2_000_000_000))
    (found,) = Reports(tmp_path).listed()
    assert pb.ReportFile(written_ms=found.written_ms).written_ms == 0
    assert written_ms(10**21) == WRITTEN_MAX_MS
    assert instant_ms(WRITTEN_MAX_MS) == "9999-12-31 23:59:59"


def test_what_is_too_large_or_gone_is_said(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * (REPORT_MAX_BYTES + 1))
    with pytest.raises(ValueError, match="longer than 4 MiB"):
        Reports(tmp_path).read("large.txt")
    (tmp_path / "large.txt").write_bytes(b"x" * REPORT_MAX_BYTES)
    assert len(Reports(tmp_path).read("large.txt")) == REPORT_MAX_BYTES
    assert Reports(tmp_path / "none").listed() == []
    with pytest.raises(KeyError):
        Reports(tmp_path / "none").read("x.txt")
    for ask in (Reports(None).listed, lambda: Reports(None).read("x.txt")):
        with pytest.raises(NotOffered, match=r"console\.reports"):
            ask()


def test_reports_in_json_become_tables() -> None:
    facts, rounds = tables_of(json.dumps(DRILL).encode())
    assert list(facts.rows) == [("quorate", "0.1.0")]
    assert rounds.columns == ["name", "seed", "holds", "rto_ms"]
    assert rounds.rows == [["leader-kill", "1", "yes", "812"]]
    (short,) = tables_of(b'{"leader-kill": {"verdict": "pass", "runs": 3}}')
    assert short.rows == [["leader-kill", "pass", "3"]]
    audit = {"cluster": "c", "findings_by_rule": {"lost": 1}, "examples": [{"rule": "lost"}]}
    titles = [table.title for table in tables_of(json.dumps(audit).encode())]
    assert titles == ["", "findings_by_rule", "examples"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"7", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"a": [1, [2]]}'],
)
def test_half_written_and_strange_reports_are_no_tables(content: bytes) -> None:
    assert tables_of(content) == []


def test_tables_are_bounded() -> None:
    row = {f"c{number}": "x" * 300 for number in range(20)}
    (table,) = tables_of(json.dumps({"rows": [row] * 300}).encode())
    assert len(table.rows) == ROWS_MAX
    assert len(table.columns) == COLUMNS_MAX
    assert max(len(cell) for one in table.rows for cell in one) <= CELL_MAX_CHARS + 3


def test_operators_see_reports_and_nothing_in_them_runs() -> None:
    async def work(folder: Path) -> None:
        def change(config: NodeConfig) -> NodeConfig:
            replace = msgspec.structs.replace
            return replace(config, console=replace(config.console, reports=folder))

        (folder / "drill.json").write_text(json.dumps(DRILL | {"name": HOSTILE}))
        (folder / "report.html").write_text(f"<p>{HOSTILE}</p>")
        (folder / "half.json").write_text('{"a": "' + HOSTILE)
        (folder / "long.txt").write_text("y" * (SHOWN_MAX_CHARS + 1))
        (folder / f"{HOSTILE.replace('/', '')}.md").write_text("x")
        async with clients(1, change) as made, browser(made) as found:
            await sign_in(made, found)
            status, text = await found.get("/reports")
            assert status == 200
            assert "drill.json" in text
            assert "<script>alert" not in text
            status, text = await found.get("/reports/show?path=drill.json")
            assert ">leader-kill<" in text
            for name in ("drill.json", "report.html", "half.json"):
                status, text = await found.get(f"/reports/show?path={name}")
                assert status == 200
                assert HOSTILE not in text
                assert "&lt;script&gt;" in text
            _, text = await found.get("/reports/show?path=long.txt")
            assert "Only the beginning is shown" in text
            url = f"https://{found.host}:{CONSOLE_PORT}/reports"
            async with found.session.get(f"{url}/page?path=report.html") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("sandbox; default-src 'none';")
                assert "allow-" not in policy
                assert "script-src" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert HOSTILE in await answer.text()
            async with found.session.get(f"{url}/file?path=report.html") as answer:
                assert answer.content_type == "application/octet-stream"
                assert answer.headers["Content-Disposition"].startswith("attachment")
            for path in ("", "../n1.toml", "none.json", "%00.txt", "/etc/passwd"):
                for page in ("show", "page", "file"):
                    status, text = await found.get(f"/reports/{page}?path={path}")
                    assert status == 400, (page, path)
            assert (await found.get("/reports/page?path=drill.json"))[0] == 400

    with tempfile.TemporaryDirectory() as folder:
        run(work(Path(folder)))


@scenario()
async def test_clients_see_no_reports_and_a_node_without_folder_says_so(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        status, text = await found.get("/reports")
        assert status == 400
        assert "console.reports" in text
    certificate, key = issue(made.tls.authority.parent, "carol", Role.CLIENT, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        await found.get("/sign-in")
        for page in ("reports", "reports/show?path=a.json", "reports/file?path=a.json"):
            assert (await found.get(f"/{page}"))[0] == 403
