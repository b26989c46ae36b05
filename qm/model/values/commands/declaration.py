"""Declaration of a command beside its fields: its weight, and since when it exists."""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import msgspec

POSITIONS_PER_MOVE: Final = 2
"""One position in the source and one in the target."""
SEND_COSTS_POSITIONS: Final = 48
"""A client's message takes the processor as long as so many of a lane that takes runs: it is parsed
and judged alone, and may be acknowledged."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """Something that an entry of the log makes the state machine do; each kind is `declared`."""


CommandT = TypeVar("CommandT", bound=Command)


# Weights: how many positions a command may touch (DESIGN 1.6). They decide where an entry ends,
# never its result; `qm.node.replica.entry_weight` computes them.


class Fixed(msgspec.Struct, frozen=True):
    """A constant; 1 also for commands that touch no position."""

    positions: int


class ValueOf(msgspec.Struct, frozen=True):
    """The value of a field."""

    field: str


class RowsOf(msgspec.Struct, frozen=True):
    """So much for each row of a column, or element of a sequence."""

    field: str
    each: int = 1


class AtMostQueued(msgspec.Struct, frozen=True):
    """The value of a field, but at most the queue's length: readers may ask for more."""

    field: str
    queue: str
    """Name of the field with the queue's id."""


class OfTransaction(msgspec.Struct, frozen=True):
    """The number of operations of a transaction so far."""

    field: str
    """Name of the field with its identifier."""


class OfClient(msgspec.Struct, frozen=True):
    """What a client holds: unconfirmed results become dead letters, borrowed messages return."""

    field: str
    """Name of the field with its id."""


Weight: TypeAlias = Fixed | ValueOf | RowsOf | AtMostQueued | OfTransaction | OfClient


class Declaration(msgspec.Struct, frozen=True):
    """Declaration of one kind of command."""

    kind: type[Command]
    op: str
    """Name of its field in `Command` of command.proto; `apply_<op>` is its handler."""
    weight: Weight
    since: int
    """First apply version with which it may be in the log."""


DECLARATIONS: Final[dict[type[Command], Declaration]] = {}
"""Declarations of all kinds of commands."""


def declared(*, weight: Weight, since: int) -> Callable[[type[CommandT]], type[CommandT]]:
    """Return a decorator that declares a class as a command."""

    def enter(kind: type[CommandT]) -> type[CommandT]:
        DECLARATIONS[kind] = Declaration(kind, _op(kind), weight, since)
        return kind

    return enter


def _op(kind: type[Command]) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")
