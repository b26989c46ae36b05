"""IEnumVARIANT: values one after another [MS-OAUT 3.3]."""

from typing import Any, Final


class Enumerator:
    """Over values that are fixed when it is made."""

    def __init__(self, values: tuple[Any, ...], begin: int = 0) -> None:
        self.values: Final = values
        self.at = begin

    def take(self, count: int) -> tuple[Any, ...]:
        """Return the next values, at most so many."""
        found = self.values[self.at : self.at + count]
        self.at += len(found)
        return found
