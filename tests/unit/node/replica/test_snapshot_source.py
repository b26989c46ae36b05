"""Pictures for followers are made outside the loop, and released when not fetched."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from qm.model.values import commands
from qm.node.platform import Workers
from qm.node.replica.snapshot_source import Pictures
from qm.store.database import DatabaseDamaged, DatabaseFull
from qm.store.snapshot import SnapshotDamaged, SourceUnreadable, unpack
from raft.log.disk import DiskDirectory
from raft.log.files import FatalDiskError
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

BOUND_S = 20.0
MESSAGES = 30


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "node")
    made.put(setup_commands())
    made.put([arrivals(*(packet(number) for number in range(1, MESSAGES + 1)))])
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, f"not within {BOUND_S} s"


def pinned(node: Node) -> list[Path]:
    return list((node.path / "store" / "pinned").glob("*"))


def test_a_small_state_s_picture_is_there_at_once(node: Node) -> None:
    made = Pictures(wait_s=BOUND_S).ask(node.store)
    assert made is not None
    index, source = made
    assert index == node.store.applied_index()
    source.close()
    assert not pinned(node)


def test_a_picture_is_of_the_first_question(node: Node, tmp_path: Path) -> None:
    pictures = Pictures(wait_s=0.0)
    made = pictures.ask(node.store)
    first, term = node.store.applied.index, node.store.applied.term
    node.put([receive(2, MESSAGES), commands.Confirm("c", MESSAGES + 1)])
    end = time.monotonic() + BOUND_S
    while made is None:
        assert time.monotonic() < end
        made = pictures.ask(node.store)
    index, source = made
    assert index == first < node.store.applied.index
    stream = tmp_path / "stream"
    stream.write_bytes(source.read(0, source.size_bytes()))
    source.close()
    folder = DiskDirectory(tmp_path)
    with stream.open("rb") as file:
        unpack(file, folder, tmp_path / "copy", index, term)
    with stream.open("rb") as file, pytest.raises(SnapshotDamaged):
        unpack(file, folder, tmp_path / "other", index + 1, term)


def test_a_picture_that_nobody_takes_is_let_go(node: Node) -> None:
    pictures = Pictures(wait_s=0.0, kept_s=0.0)
    pictures.ask(node.store)
    until(lambda: not pinned(node))
    pictures = Pictures(wait_s=0.0)
    pictures.ask(node.store)
    pictures.drop()
    assert not pinned(node)
    pictures.drop()


class EarlyDrop(Workers):
    """Drops what was made while `begin` has not yet returned."""

    def __init__(self) -> None:
        self.dropping: threading.Thread | None = None

    @override
    def begin(self, job: Callable[[], None]) -> Callable[[float | None], bool]:
        job()
        assert self.dropping is not None
        self.dropping.join(0.05)
        return lambda _: True

    @override
    def later(self, after_s: float, job: Callable[[], None]) -> Callable[[], None]:
        self.dropping = threading.Thread(target=job)
        self.dropping.start()
        return lambda: None


def test_a_picture_may_be_dropped_before_its_maker_knows_of_it(node: Node) -> None:
    workers = EarlyDrop()
    made = Pictures(wait_s=0.0, kept_s=0.0, workers=workers).ask(node.store)
    assert workers.dropping is not None
    workers.dropping.join(BOUND_S)
    if made is not None:
        made[1].close()
    assert not pinned(node)


def failing(error: Exception) -> Callable[..., None]:
    """Return what raises it."""

    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [DatabaseFull("no space"), SourceUnreadable("entry 3")])
def test_one_that_failed_is_made_anew(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pictures = Pictures(wait_s=BOUND_S)
    with monkeypatch.context() as broken:
        broken.setattr("qm.store.snapshot.StoreSnapshot.__init__", failing(error))
        assert pictures.ask(node.store) is None
    assert not pinned(node)
    made = pictures.ask(node.store)
    assert made is not None
    made[1].close()


@pytest.mark.parametrize("error", [DatabaseDamaged("a block"), FatalDiskError("a read")])
def test_a_state_that_cannot_be_trusted_is_no_failure_to_try_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pictures = Pictures(wait_s=BOUND_S)
    monkeypatch.setattr("qm.store.snapshot.StoreSnapshot.__init__", failing(error))
    with pytest.raises(type(error)):
        pictures.ask(node.store)
    assert not pinned(node)
