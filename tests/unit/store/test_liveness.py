"""Rows of bodies that are referenced."""

from types import SimpleNamespace
from typing import Any

import pytest

from qm.model.state.tables import Table
from qm.store.liveness import Liveness


class Rows:
    """Rows in memory, after entry 1."""

    def __init__(self) -> None:
        self.applied = SimpleNamespace(index=1)
        self.rows: dict[tuple[Table, bytes], bytes] = {}

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self.rows.get((table, key))

    def put(self, table: Table, key: bytes, row: bytes) -> None:
        self.rows[table, key] = row

    def delete(self, table: Table, key: bytes) -> None:
        self.rows.pop((table, key), None)


@pytest.mark.parametrize(("count", "size"), [(1, 1), (8, 1), (9, 2), (16, 2), (300, 38)])
def test_a_row_has_a_bit_for_each_body(count: int, size: int) -> None:
    rows: Any = Rows()
    liveness = Liveness(rows)
    liveness.retain(2, range(count))
    liveness.flush()
    ((table, _),) = rows.rows
    assert table is Table.BODY_LIVE
    (row,) = rows.rows.values()
    assert row == size.to_bytes(2, "little") + ((1 << count) - 1).to_bytes(size, "little")
    # A second reference is a bit of the other bitmap, which is as long as it must be.
    liveness.retain(2, [0])
    liveness.flush()
    assert rows.get(Table.BODY_LIVE, next(iter(rows.rows))[1]) == row + b"\1"
