"""Both states behave alike, and RocksDB's keeps batches whole across restarts."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qm.model.state.tables import MemoryState, State, Table
from qm.store import rocks as rocks_module
from qm.store.digest import MODULUS, row_hash
from qm.store.rocks import RocksState, open_database

TABLES = [Table.QUEUE, Table.POSITION, Table.BLOB]
keys = st.binary(min_size=1, max_size=3)
operations = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(TABLES), keys, st.binary(max_size=4)),
    st.tuples(st.just("delete"), st.sampled_from(TABLES), keys, st.none()),
    st.tuples(st.just("get"), st.sampled_from(TABLES), keys, st.none()),
    st.tuples(st.just("add"), st.sampled_from(TABLES), st.sets(keys), st.binary(max_size=4)),
    st.tuples(st.just("drop"), st.sampled_from(TABLES), keys, st.none()),
    st.tuples(st.just("get many"), st.sampled_from(TABLES), st.sets(keys), st.none()),
    st.tuples(st.just("scan"), st.sampled_from(TABLES), keys, st.integers(1, 5)),
    st.tuples(st.just("back"), st.sampled_from(TABLES), keys, st.integers(1, 5)),
    st.tuples(st.just("commit"), st.none(), st.none(), st.none()),
    st.tuples(st.just("reopen"), st.none(), st.none(), st.none()),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


def do(state: State, what: str, table: Table, key: Any, extra: object) -> object:
    if what == "add":
        assert isinstance(extra, bytes)
        state.put_rows(table, {one: extra for one in key if state.get(table, one) is None})
    elif what == "drop":
        state.delete_rows(table, [one for one, _ in state.scan(table, key, b"\xff" * 4, 3)])
    elif what == "get many":
        return state.get_rows(table, sorted(key))
    elif what == "put":
        assert isinstance(extra, bytes)
        state.put(table, key, extra)
    elif what == "delete":
        state.delete(table, key)
    elif what == "get":
        return state.get(table, key)
    else:
        assert isinstance(extra, int)
        return state.scan(table, key, b"\xff\xff\xff\xff", extra, backward=what == "back")
    return None


@given(st.lists(operations, max_size=40), st.sampled_from([rocks_module.ROW_CACHE_BYTES, 500]))
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_they_agree(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[object, ...]], cache_bytes: int
) -> None:
    with mock.patch.object(rocks_module, "ROW_CACHE_BYTES", cache_bytes):
        agree(tmp_path_factory, plan)


def agree(tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[object, ...]]) -> None:
    path = tmp_path_factory.mktemp("rocks")
    memory, rocks, index = MemoryState(), RocksState(open_database(path)), 0
    for what, table, key, extra in plan:
        if what in ("commit", "reopen"):
            index += 1
            rocks.commit(index, 1)
            if what == "reopen":
                rocks.flush()
                rocks.close()
                rocks = RocksState(open_database(path))
            continue
        assert isinstance(what, str)
        assert isinstance(table, Table)
        assert do(rocks, what, table, key, extra) == do(memory, what, table, key, extra)
    rocks.commit(index + 1, 1)
    logical = [(bytes((t,)) + k, v) for t, k, v in memory.rows() if t < Table.LOCAL_FIRST]
    assert [row for row in rocks.rows() if row[0][0] < Table.LOCAL_FIRST] == logical
    expected = sum(row_hash(key, value) for key, value in logical) % MODULUS
    assert rocks.applied.digest == rocks.computed_digest() == expected
    assert rocks.applied.index == index + 1
    rocks.close()


def test_rows_that_are_new_enter_the_digest(path: Path) -> None:
    rocks = RocksState(open_database(path))
    rocks.put_rows(Table.POSITION, {b"a": b"1", b"b": b"2"})
    rocks.delete(Table.POSITION, b"b")
    rocks.commit(1, 1)
    assert rocks.applied.digest == row_hash(b"\x05a", b"1") == rocks.computed_digest()
    rocks.put(Table.POSITION, b"a", b"3")
    rocks.commit(2, 1)
    assert rocks.applied.digest == row_hash(b"\x05a", b"3")
    rocks.close()


def test_what_was_flushed_survives_and_the_rest_is_a_prefix(path: Path) -> None:
    rocks = RocksState(open_database(path))
    rocks.put(Table.QUEUE, b"k", b"1")
    rocks.commit(7, 2)
    rocks.flush()
    rocks.put(Table.QUEUE, b"k", b"2")
    rocks.commit(8, 2)
    copy = path.parent / "crashed"
    rocks.checkpoint(copy)
    rocks.close()
    again = RocksState(open_database(copy))
    assert again.applied.index in (7, 8)
    assert again.get(Table.QUEUE, b"k") == (b"1" if again.applied.index == 7 else b"2")
    again.close()


def test_liveness_counts_references(path: Path) -> None:
    rocks = RocksState(open_database(path))
    rocks.retain_bodies(5, [0, 3, 9])
    rocks.retain_body(5, 3)
    rocks.commit(5, 1)
    assert list(rocks.liveness.live(0, 10)) == [(5, [0, 3, 9])]
    rocks.release_body(5, 3)
    rocks.release_body(5, 0)
    rocks.commit(6, 1)
    assert list(rocks.liveness.live(0, 10)) == [(5, [3, 9])]
    rocks.release_body(5, 3)
    rocks.release_body(5, 9)
    rocks.commit(7, 1)
    assert list(rocks.liveness.live(0, 10)) == []
    assert [key for key, _ in rocks.rows()] == [bytes((Table.APPLIED,))]
    rocks.close()


def test_rows_that_are_deleted_and_not_committed_yet_are_passed_over(path: Path) -> None:
    rocks = RocksState(open_database(path))
    rocks.put_rows(Table.QUEUE, {bytes((key,)): b"1" for key in range(10)})
    rocks.commit(1, 1)
    rocks.delete_rows(Table.QUEUE, [b"\0", b"\1", b"\2", b"\7"])
    rocks.delete(Table.QUEUE, b"\3")

    def found(limit: int, *, backward: bool = False) -> list[int]:
        rows = rocks.scan(Table.QUEUE, b"\0", b"\xff", limit, backward=backward)
        return [key[0] for key, _ in rows]

    assert found(3) == [4, 5, 6]
    assert found(3, backward=True) == [9, 8, 6]
    assert found(9) == [4, 5, 6, 8, 9]
    rocks.close()
