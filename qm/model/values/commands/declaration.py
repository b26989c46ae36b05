"""What is said of a command beside its fields: how much it touches and since when it exists."""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec

POSITIONS_PER_MOVE: Final = 2
"""One here, one there."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """What an entry of the log has the state machine do; each kind is `declared`."""


CommandT = TypeVar("CommandT", bound=Command)


# Weights: how many positions a command may touch (DESIGN 1.6). They decide where an entry ends,
# never what comes of it; `qm.node.replica.entry_weight` works them out.


class Fixed(msgspec.Struct, frozen=True):
    """The same always; 1 also for what touches none."""

    positions: int


class ValueOf(msgspec.Struct, frozen=True):
    """The value of a field."""

    field: str


class RowsOf(msgspec.Struct, frozen=True):
    """One for each row of a column, or part of a sequence."""

    field: str


class AtMostQueued(msgspec.Struct, frozen=True):
    """The value of a field, but no more than a queue holds: readers ask for more than there is."""

    field: str
    queue: str
    """Names the field with the queue's id."""


class OfTransaction(msgspec.Struct, frozen=True):
    """What a transaction has done so far."""

    field: str
    """Names the field with its identifier."""


class OfClient(msgspec.Struct, frozen=True):
    """What a client holds: unconfirmed results become dead letters, what it borrowed goes back."""

    field: str
    """Names the field with its id."""


Weight: TypeAlias = Fixed | ValueOf | RowsOf | AtMostQueued | OfTransaction | OfClient


class Declaration(msgspec.Struct, frozen=True):
    """Of one kind of command."""

    kind: type[Command]
    op: str
    """Its field in `Command` of command.proto; `apply_<op>` is its handler."""
    weight: Weight
    since: int
    """The apply version from which on it may be in the log."""


DECLARATIONS: Final[dict[type[Command], Declaration]] = {}
"""Of every kind of command."""


def declared(*, weight: Weight, since: int) -> Callable[[type[CommandT]], type[CommandT]]:
    """Declare a command."""

    def enter(kind: type[CommandT]) -> type[CommandT]:
        DECLARATIONS[kind] = Declaration(kind, _op(kind), weight, since)
        return kind

    return enter


def _op(kind: type[Command]) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
