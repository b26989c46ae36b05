"""Clients' transactions ([MS-MQDMPR] 3.1.4)."""

from qm.model.values.commands.declaration import Command, Fixed, OfTransaction, declared
from qm.model.values.commands.entry import Request


@declared(weight=Fixed(1), since=1)
class TxBegin(Command, frozen=True, gc=False):
    """Create Transaction ([MS-MQDMPR] 3.1.7.1.8); SinglePhase is known from the start (DM-A25)."""

    request: Request
    transaction: bytes
    is_single_phase: bool
    coordinator: str
    timeout_ms: int


@declared(weight=Fixed(1), since=1)
class TxPrepare(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.3."""

    request: Request
    transaction: bytes


@declared(weight=OfTransaction("transaction"), since=1)
class TxCommit(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.4."""

    request: Request
    transaction: bytes


@declared(weight=OfTransaction("transaction"), since=1)
class TxAbort(Command, frozen=True, gc=False):
    """[MS-MQDMPR] 3.1.4.5."""

    request: Request
    transaction: bytes
