"""MSMQCollection [MC-MQAC 3.15]: named values, as management calls return them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from qm.client.errors import MqError
from qm.wire.codes import ErrorCode


class MSMQCollection:
    """Its contents are fixed when it is made; one that an application makes is empty.

    Values are str, int, datetime, or collections.
    """

    def __init__(self, values: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._values = dict(values)

    @property
    def Count(self) -> int:
        """Number of values."""
        return len(self._values)

    def Item(self, Index: str) -> Any:
        """Return the value with this name. Raises MQ_ERROR_INVALID_PARAMETER if there is none."""
        if Index not in self._values:
            raise MqError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER,
                f"there is no {Index!r}; there are {', '.join(self._values) or 'no values'}",
            )
        return self._values[Index]

    def names(self) -> list[str]:
        """Return the names that Item takes, in order."""
        return list(self._values)

    def __iter__(self) -> Iterator[Any]:
        """Return the values [_NewEnum]."""
        return iter(self._values.values())
