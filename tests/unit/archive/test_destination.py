"""Files at a destination are there whole or not at all."""

from pathlib import Path

import pytest
from pyarrow import fs

from qm.archive.destination import (
    Destination,
    DestinationError,
    FolderDestination,
    RemoteDestination,
    open_destination,
)


@pytest.fixture(params=["folder", "url", "remote"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    root = tmp_path / "archive"
    if request.param == "folder":
        return open_destination(str(root))
    if request.param == "url":
        return open_destination(f"file://{root}")
    return RemoteDestination(fs.LocalFileSystem(), str(root))


def test_files_and_folders(destination: Destination, tmp_path: Path) -> None:
    assert destination.folders("a") == []
    assert destination.read("a/b/file") is None
    destination.write("a/b/file", b"one")
    destination.write("a/c/file", memoryview(b"two"))
    destination.write("a/b/file", b"three")
    assert destination.read("a/b/file") == b"three"
    assert (tmp_path / "archive/a/c/file").read_bytes() == b"two"
    assert destination.folders("a") == ["b", "c"]
    destination.remove_folder("a/b")
    destination.remove_folder("a/b")
    assert destination.folders("a") == ["c"]
    assert [path.name for path in (tmp_path / "archive/a/c").iterdir()] == ["file"]


def test_what_cannot_be_written_is_said(destination: Destination, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(b"a file")
    with pytest.raises(DestinationError, match="archive"):
        destination.write("a/file", b"")


def test_a_folder_needs_no_scheme(tmp_path: Path) -> None:
    assert isinstance(open_destination(str(tmp_path)), FolderDestination)


def test_a_scheme_that_nobody_knows_says_what_to_install() -> None:
    with pytest.raises(DestinationError, match=r"archive\.url 'nosuch://x': .*nosuch"):
        open_destination("nosuch://x")
