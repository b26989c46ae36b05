"""`qm dev`: configurations that it writes."""

from pathlib import Path

from qm.node.config.loading import load
from qm.node.dev.layout import Layout


def urls(layout: Layout) -> list[str]:
    return [load(layout.config(node.name)).archive.url for node in layout.nodes()]


def test_an_archive_is_switched_on_later_and_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.make(2, "127.0.0")
    assert urls(layout) == ["", ""]
    layout.archive_to("")
    assert urls(layout) == [str(tmp_path / "archive")] * 2
    layout.archive_to("s3://bucket/other")
    assert urls(layout) == [str(tmp_path / "archive")] * 2
