"""What RocksDB says in words, as errors with names; and nothing that it says too softly."""

import errno
from itertools import islice
from pathlib import Path

import pytest

from qm.model.state.tables import Table
from qm.store.database import (
    DatabaseDamaged,
    DatabaseError,
    DatabaseFull,
    DatabaseInUse,
    database_error,
)
from qm.store.rocks import RocksState, open_database
from raft.log.files import FatalDiskError
from raft.log.segment import is_disk_full, may_pass

LOW, HIGH = b"", b"\xff" * 9


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            (
                "IO error: No space left on device: While appending to file: /d/9.sst: No space"
                " left on device"
            ),
            DatabaseFull,
        ),
        (
            (
                "IO error: DB::Open() failed --- Unable to persist Options file: IO error:"
                " Unable to persist options.: IO error: No space left on device: While"
                " appending to file: /d/OPTIONS-000021.dbtmp: No space left on device"
            ),
            DatabaseFull,
        ),
        ("IO error: While appending to file: /d/000009.sst: Disk quota exceeded", DatabaseFull),
        ("IO error: No space left on device: While fdatasync: /d/9.sst", FatalDiskError),
        ("IO error: While fsync a directory: /d: Input/output error", FatalDiskError),
        ("IO error: While pread offset 5 len 9: /d/9.sst: Input/output error", FatalDiskError),
        (
            (
                "IO error: No such file or directory: While open a file for random read: /d/9.sst:"
                " No such file or directory"
            ),
            DatabaseDamaged,
        ),
        ("Corruption: block checksum mismatch: stored = 1, computed = 2", DatabaseDamaged),
        (
            (
                "IO error: lock hold by current process, acquire time 17 acquiring thread 13:"
                " /d/LOCK: No locks available"
            ),
            DatabaseInUse,
        ),
        (
            "IO error: While lock file: /d/LOCK: Resource temporarily unavailable",
            DatabaseInUse,
        ),
        ("Invalid argument: no such column family", DatabaseError),
    ],
)
def test_a_status_has_a_name(text: str, kind: type[Exception]) -> None:
    error = database_error(Exception(text))
    assert type(error) is kind
    assert text in str(error)


def test_only_a_lack_of_space_may_pass() -> None:
    full = database_error(Exception("IO error: No space left on device: /d/9.sst"))
    failed = database_error(Exception("IO error: While fdatasync: /d/9.sst: Input/output error"))
    assert isinstance(full, OSError)
    assert is_disk_full(full)
    assert isinstance(failed, OSError)
    assert failed.errno == errno.EIO


@pytest.mark.parametrize("words", ["Too many open files", "Too many open files in system"])
def test_a_lack_of_descriptors_is_neither_damage_nor_a_full_disk(words: str) -> None:
    error = database_error(
        Exception(f"IO error: While open a file for appending: /d/9.sst: {words}")
    )
    assert isinstance(error, DatabaseFull)
    assert may_pass(error)
    assert not is_disk_full(error)


def test_a_scan_that_comes_upon_a_damaged_block_does_not_end_as_if_it_had_seen_all(
    tmp_path: Path,
) -> None:
    """What apply reads too little of, it decides otherwise than the other nodes."""
    state = RocksState(open_database(tmp_path / "state"))
    for k in range(2_000):
        state.put(Table.META, b"%05d" % k, b"v" * 500 + b"%05d" % k)
    state.commit(1, 1)
    state.flush()
    state.close()
    table = max((tmp_path / "state").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    for k in range(len(data) // 2, len(data) // 2 + 16):
        data[k] ^= 0xFF
    table.write_bytes(data)
    state = RocksState(open_database(tmp_path / "state", cache_bytes=1 << 20))
    for backward in (False, True):
        with pytest.raises(DatabaseDamaged, match="checksum"):
            state.scan(Table.META, LOW, HIGH, 10_000, backward=backward)
        assert len(state.scan(Table.META, LOW, HIGH, 50, backward=backward)) == 50
    with pytest.raises(DatabaseDamaged):
        state.computed_digest()
    pinned = state.pin()
    with pytest.raises(DatabaseDamaged):
        list(pinned.rows(Table.META))
    assert len([*islice(pinned.rows(Table.META), 50)]) == 50
    pinned.release()
    state.close()


def test_a_scan_finds_what_was_put_and_not_what_lies_beyond_its_bounds(tmp_path: Path) -> None:
    state = RocksState(open_database(tmp_path / "state"))
    for table in (Table.META, Table.QUEUE):
        for k in range(5):
            state.put(table, b"%d" % k, b"")
    state.commit(1, 1)
    for backward in (False, True):
        keys = [key for key, _ in state.scan(Table.META, b"1", b"4", 9, backward=backward)]
        assert sorted(keys) == [b"1", b"2", b"3"]
        assert state.scan(Table.META, b"5", HIGH, 9, backward=backward) == []
    state.close()


def test_a_lack_of_space_while_all_is_rewritten_has_its_name(tmp_path: Path) -> None:
    database = open_database(tmp_path / "db")

    class Full:
        def compact_range(self, *_: object) -> None:
            raise Exception("IO error: No space left on device: While appending to file: /d/9.sst")

        def close(self) -> None:
            """Nothing is open."""

    real, database._rocks = database._rocks, Full()  # type: ignore[assignment]
    with pytest.raises(DatabaseFull):
        database.compact()
    real.close()
