from __future__ import annotations

from pathlib import Path

import pytest

from qm.client.memory import Memory, MemoryDamaged, Opened

OPENED = Opened("DIRECT=OS:QUORATE\\q", 0, 1, 1, 77, 5, True)


def test_what_is_remembered_is_there_for_the_next_process(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    memory.set_opened("c/1", [OPENED])
    memory.begin_send("c", 7, b"seven")
    memory.begin_send("c", 5, b"five")
    again = Memory(tmp_path / "memory")
    assert again.opened("c/1") == [OPENED]
    assert list(again.sends("c").items()) == [(5, b"five"), (7, b"seven")]


def test_what_has_ended_is_forgotten(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    memory.set_opened("c/1", [OPENED])
    memory.begin_send("c", 7, b"seven")
    memory.end_send("c", 7)
    memory.forget("c/1")
    again = Memory(tmp_path / "memory")
    assert not again.opened("c/1")
    assert not again.sends("c")


def test_without_a_file_nothing_is_kept_and_nothing_fails() -> None:
    memory = Memory()
    memory.begin_send("c", 1, b"one")
    assert not memory.is_kept
    assert not memory.sends("c")


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1, "what": 2}', b"\xff"])
def test_a_file_of_somebody_else_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(MemoryDamaged, match="notes"):
        Memory(path)
    assert path.read_bytes() == content
