"""The replicated state for readers: it changes only between their calls, and never by them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from typing_extensions import override

from qm.model.state.tables import State, Table


class ReadState(State):
    """A read-only `qm.model.state.tables.State`. After an install it reads the new store."""

    def __init__(self, current: Callable[[], State]) -> None:
        """`current` returns the state in force, or raises Unavailable."""
        self._current = current

    @override
    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._current().get(table, key)

    @override
    def get_rows(self, table: Table, keys: Iterable[bytes]) -> list[bytes | None]:
        return self._current().get_rows(table, keys)

    @override
    def scan(
        self, table: Table, low: bytes, high: bytes, limit: int, *, backward: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return self._current().scan(table, low, high, limit, backward=backward)

    @override
    def put(self, table: Table, key: bytes, value: bytes) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def put_rows(self, table: Table, rows: Mapping[bytes, bytes]) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def delete(self, table: Table, key: bytes) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def delete_rows(self, table: Table, keys: Sequence[bytes]) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def retain_body(self, index: int, ordinal: int) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def retain_bodies(self, index: int, ordinals: Sequence[int]) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def release_body(self, index: int, ordinal: int) -> NoReturn:
        """Refuse."""
        raise ReadOnly

    @override
    def release_bodies(self, bodies: Iterable[tuple[int, int]]) -> NoReturn:
        """Refuse."""
        raise ReadOnly


class ReadOnly(TypeError):
    """Only commands change the state."""
