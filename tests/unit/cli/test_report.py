"""`qm report`: what the console shows of drills and audits, for a terminal and for scripts."""

from pathlib import Path

import msgspec

from qm.cli.lib.connection import EXIT_REFUSED
from qm.node.config.schema import NodeConfig
from tests.unit.cli.test_nouns import Qm
from tests.unit.client.threaded import threaded_node

DRILL = b"# Drill\n\x1b]0;taken\x07\tend\n"


def test_reports_are_listed_shown_and_saved(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "drill.md").write_bytes(DRILL)

    def change(config: NodeConfig) -> NodeConfig:
        replace = msgspec.structs.replace
        return replace(config, console=replace(config.console, reports=folder))

    with threaded_node(change) as (endpoint, tls):
        qm = Qm(endpoint, tls)
        (listed,) = qm.json("report", "list")
        assert (listed["path"], listed["bytes"]) == ("drill.md", len(DRILL))
        assert listed["written"].endswith("Z")
        text = qm("report", "show", "drill.md").stdout
        assert text.split() == ["#", "Drill", "\\x1b]0;taken\\x07", "end"]
        saved = tmp_path / "saved.md"
        qm("report", "show", "drill.md", "--save", str(saved))
        assert saved.read_bytes() == (folder / "drill.md").read_bytes()
        qm("report", "show", "../drill.md", exit_code=EXIT_REFUSED)
