"""Damaged bodies are found wherever they lie, and restored from what other members give."""

import errno
from pathlib import Path
from typing import Any

import pytest

from qm.model.values import commands
from qm.store.bodies.body_places import BodyDamaged, BodyPlace
from qm.store.bodies.body_scan import START, Copy, CopyCheck, Cursor, KnownBody, page
from raft.log.disk import DiskFile
from tests.unit.model.world import PEER, packet
from tests.unit.store.full_rocks import NO_SPACE
from tests.unit.store.test_full_disk import bodies_in
from tests.unit.store.test_store import Node, arrivals, receive, setup_commands

COUNT = 120
PER_ENTRY = 4


def filled(path: Path) -> Node:
    """A node whose older bodies are in blob files and the newer ones in the log."""
    node = Node(path)
    node.put(setup_commands())
    for n in range(1, COUNT, PER_ENTRY):
        node.put([arrivals(*(body(k) for k in range(n, n + PER_ENTRY)))])
    node.compact()
    node.compact()
    assert 0 < sum(is_moved(node, known.place) for known in all_bodies(node)) < COUNT
    return node


def body(n: int) -> bytes:
    return packet(n, body=n.to_bytes(4, "big") * 400)


def all_bodies(node: Node, rows_max: int = 1_000) -> list[KnownBody]:
    found: list[KnownBody] = []
    cursor: Cursor | None = START
    while cursor is not None:
        cursor, more = page(node.store.state, cursor, rows_max)
        found += more
    return found


def is_moved(node: Node, place: BodyPlace) -> bool:
    return not node.store.bodies.is_logged(place.index)


def blob_folder(node: Node) -> Path:
    return node.path / "store" / "g-00000001" / "blobs"


def spoil_blob(node: Node, place: BodyPlace) -> None:
    found = node.store.bodies.copy_place(place)
    assert found is not None
    name, offset = found
    with (blob_folder(node) / name).open("r+b") as file:
        file.seek(offset + place.length // 2)
        byte = file.read(1)[0]
        file.seek(offset + place.length // 2)
        file.write(bytes([byte ^ 4]))


def spoil_log(node: Node, place: BodyPlace) -> None:
    segment = node.log._contents.segment_of(place.index)
    offset, _ = segment.table.place(place.index)
    at = offset + 64 + place.offset + place.length // 2
    segment.file.pwrite(bytes([segment.file.pread(1, at)[0] ^ 4]), at)


def found_in_blobs(node: Node) -> list[BodyPlace]:
    bodies = node.store.bodies
    copies = []
    for known in all_bodies(node):
        where = bodies.copy_place(known.place)
        if where is not None:
            copies.append(Copy(*where, known.place))
    return CopyCheck(bodies.blob_directory, copies).run()


def sync(node: Node) -> None:
    bodies = node.store.bodies
    work = bodies.begin_sync()
    work.run()
    bodies.end_sync(work)


def moved_ones(node: Node) -> list[BodyPlace]:
    return [known.place for known in all_bodies(node) if is_moved(node, known.place)]


@pytest.mark.parametrize("rows_max", [1, 7, COUNT, 1_000])
def test_a_scan_finds_each_body_with_its_message(tmp_path: Path, rows_max: int) -> None:
    node = filled(tmp_path / "n")
    (applied,) = node.put([receive(2, 10)])  # they are now in the client's results
    assert applied.outcomes[0].status == 0
    found = all_bodies(node, rows_max)
    assert sorted(known.message_ordinal for known in found) == [*range(1, COUNT + 1)]
    assert {known.source_queue_manager for known in found} == {PEER}
    for known in found:
        assert node.store.bodies.read(known.place) == body(known.message_ordinal)
    node.close()


def test_a_damaged_copy_in_a_blob_file_is_found_and_restored(tmp_path: Path) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    assert found_in_blobs(node) == []
    victim = moved_ones(node)[5]
    whole = bodies.read(victim)
    spoil_blob(node, victim)
    assert found_in_blobs(node) == [victim]
    assert bodies.is_damaged(victim)
    with pytest.raises(BodyDamaged) as caught:
        bodies.read(victim)
    assert caught.value.place == victim
    assert [*bodies.suspects] == [(victim.index, victim.ordinal)]
    assert bodies.restore(victim.index, {victim.ordinal: whole})
    assert bodies.read(victim) == whole
    sync(node)
    node.store.flush()
    node = node.reopen()
    assert bodies_in(node) == COUNT
    assert found_in_blobs(node) == []
    assert node.store.verify()
    node.close()


def test_neighbours_of_a_restored_body_are_copied_as_they_are(tmp_path: Path) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    index = moved_ones(node)[0].index
    mates = [place for place in moved_ones(node) if place.index == index]
    assert len(mates) == PER_ENTRY
    packets = {place.ordinal: bodies.read(place) for place in mates}
    for place in mates[:3]:
        spoil_blob(node, place)
    assert bodies.restore(index, {mates[1].ordinal: packets[mates[1].ordinal]})
    assert [bodies.is_damaged(place) for place in mates] == [True, False, True, False]
    assert not bodies.restore(index, packets), "the copy before this one has no row yet"
    sync(node)
    assert bodies.restore(index, packets)
    sync(node)
    assert bodies_in(node) == COUNT
    node.close()


def test_files_without_live_bodies_go_after_a_restore(tmp_path: Path) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    before = bodies.live_bytes
    packets: dict[int, dict[int, bytes]] = {}
    for place in moved_ones(node):
        packets.setdefault(place.index, {})[place.ordinal] = bodies.read(place)
    names = {path.name for path in blob_folder(node).iterdir()}
    bodies._blobs.begin_file()
    for index, whole in packets.items():
        assert bodies.restore(index, whole)
    sync(node)
    assert bodies.live_bytes == before
    node.store.flush()
    bodies.settle()
    assert names.isdisjoint(path.name for path in blob_folder(node).iterdir())
    assert bodies_in(node) == COUNT
    node.close()


def test_a_body_that_is_no_longer_needed_is_not_restored(tmp_path: Path) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    (applied,) = node.put([receive(2, PER_ENTRY)])
    assert applied.outcomes[0].status == 0
    victims = [known.place for known in all_bodies(node) if known.message_ordinal <= PER_ENTRY]
    whole = {place.ordinal: bodies.read(place) for place in victims}
    node.put([commands.Confirm("c", 1 + PER_ENTRY)])
    assert not bodies.is_damaged(victims[0])
    assert not bodies.restore(victims[0].index, whole)
    node.close()


def test_a_damaged_entry_in_the_log_is_not_moved_and_not_dropped(tmp_path: Path) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    victim = next(known.place for known in all_bodies(node) if not is_moved(node, known.place))
    mates = [known.place for known in all_bodies(node) if known.place.index == victim.index]
    whole = {place.ordinal: bodies.read(place) for place in mates}
    spoil_log(node, victim)
    for n in range(1_000, 1_100):
        node.put([arrivals(body(n))])
    node.compact()
    assert bodies.is_logged(victim.index)
    assert not bodies.move_ahead(node.store.applied_index())
    assert (victim.index, 0) in bodies.suspects
    assert not bodies.restore(victim.index, {victim.ordinal: whole[victim.ordinal]}), "not all"
    assert bodies.restore(victim.index, whole)
    assert bodies.read(victim) == whole[victim.ordinal]
    sync(node)
    node.compact()
    assert not bodies.is_logged(victim.index)
    assert bodies_in(node) == COUNT + 100
    node.close()


def test_a_file_that_is_gone_or_unreadable_is_damage_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    victims = moved_ones(node)
    whole = bodies.read(victims[0])

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "a bad sector")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "pread", fail)
        assert found_in_blobs(node) == victims
        with pytest.raises(BodyDamaged):
            bodies.read(victims[0])
        bodies._blobs.begin_file()
        assert bodies._blobs.empty_sparse(2.0) == 0, "what cannot be read stays where it is"
    node.close()
    for path in blob_folder(node).iterdir():
        path.unlink()
    node = Node(node.path)
    with pytest.raises(BodyDamaged):
        node.store.bodies.read(victims[0])
    assert found_in_blobs(node) == victims
    assert node.store.bodies.restore(victims[0].index, {victims[0].ordinal: whole})
    assert node.store.bodies.read(victims[0]) == whole
    sync(node)
    node.close()


def test_a_full_disk_while_a_body_is_restored_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = filled(tmp_path / "n")
    bodies = node.store.bodies
    victim = moved_ones(node)[0]
    whole = bodies.read(victim)
    spoil_blob(node, victim)

    def full(self: Any, *_: object) -> None:
        raise OSError(errno.ENOSPC, NO_SPACE)

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "pwritev", full)
        with pytest.raises(OSError, match="No space"):
            bodies.restore(victim.index, {victim.ordinal: whole})
    assert bodies.is_damaged(victim)
    assert bodies.restore(victim.index, {victim.ordinal: whole})
    sync(node)
    assert not bodies.is_damaged(victim)
    node.close()
