"""Which of several states of one node is the current one, also where the file that says it is
damaged.
"""

from pathlib import Path

import pytest

from qm.store.generation import current_generation, folder_name, switch_to
from raft.log.disk import DiskDirectory
from raft.replica import StartRefused


def folder_with(tmp_path: Path, *generations: int) -> DiskDirectory:
    directory = DiskDirectory(tmp_path / "store")
    for generation in generations:
        (tmp_path / "store" / folder_name(generation)).mkdir()
    if generations:
        switch_to(directory, generations[0])
    return directory


def test_an_empty_folder_gets_a_first_generation(tmp_path: Path) -> None:
    directory = folder_with(tmp_path)
    assert current_generation(directory) == current_generation(directory) == 1


def test_the_file_tells_which_of_two_is_current(tmp_path: Path) -> None:
    assert current_generation(folder_with(tmp_path, 4, 5)) == 4


@pytest.mark.parametrize("bit", range(16))
def test_a_flipped_bit_gives_no_other_state(tmp_path: Path, bit: int) -> None:
    """Another number would be a new, empty state, and the real one a leftover."""
    directory = folder_with(tmp_path, 1)
    path = tmp_path / "store" / "CURRENT"
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    assert current_generation(directory) == 1
    assert path.read_bytes() in (b"1\n", bytes(data))


@pytest.mark.parametrize("is_removed", [True, False])
def test_what_cannot_be_told_is_refused_and_stays(tmp_path: Path, is_removed: bool) -> None:
    directory = folder_with(tmp_path, 4, 5)
    path = tmp_path / "store" / "CURRENT"
    if is_removed:
        path.unlink()
    else:
        path.write_bytes(b"6\n")
    with pytest.raises(StartRefused, match="CURRENT"):
        current_generation(directory)
    assert directory.folders() == [folder_name(4), folder_name(5)]


def test_a_lost_file_is_made_again_for_a_single_state(tmp_path: Path) -> None:
    directory = folder_with(tmp_path, 7)
    (tmp_path / "store" / "CURRENT").unlink()
    assert current_generation(directory) == 7
    assert (tmp_path / "store" / "CURRENT").read_bytes() == b"7\n"
