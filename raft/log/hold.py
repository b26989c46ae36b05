"""Keeps entries of the log readable while a reader needs them."""

from types import TracebackType


class Hold:
    """Keeps the segments of one entry and of all later ones. Also a context manager.

    It may be released in any thread.
    """

    def __init__(self, index: int, holds: "set[Hold]") -> None:
        self.index = index
        self._holds = holds
        holds.add(self)

    def release(self) -> None:
        """Allow the next `compact` to drop them. A second call does nothing."""
        self._holds.discard(self)

    def __enter__(self) -> "Hold":
        """Return this hold."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the entries."""
        self.release()
