"""What a read asks for [MS-MQRR 3.1.4.7]: actions, and which parameters go together."""

from typing import Final

from qm.model.values.commands import Selector, SelectorKind
from qm.rpc.remote_read.interface import StartIn, StartOut
from qm.rpc.remote_read.opened import OpenedQueue
from qm.wire.codes import ErrorCode

ACCESS_RECEIVE, ACCESS_PEEK, ACCESS_MOVE = 1, 0x20, 4
RECEIVE, PEEK_CURRENT, PEEK_NEXT = 0, 0x8000_0000, 0x8000_0001
LOOKUP_PEEK: Final = (0x4000_0010, 0x4000_0011, 0x4000_0012)
LOOKUP_RECEIVE: Final = (0x4000_0020, 0x4000_0021, 0x4000_0022)
"""Current, next, previous."""
ACK: Final = 2
NO_TRANSACTION: Final = bytes(16)
KEY_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
SEQUENCE_MASK: Final = 0x00FF_FFFF_FFFF_FFFF
ACK_CLASSES: Final = (0, 0xC004)
INVALID_HANDLE_NT: Final = 0xC000_0008
ACCESS_DENIED_NT: Final = 0xC000_0022
INVALID_PARAMETER_NT: Final = 0xC000_000D
NOT_FOUND_NT: Final = 0xC000_0225
NO_DTC: Final = 0xC00E_004C
UNKNOWN_TRANSACTION: Final = 0xC00E_0051
MESSAGE_LOCKED: Final = 0xC00E_009C


def refusal(opened: OpenedQueue, given: StartIn) -> int:
    """Return why the parameters cannot be, or 0: first their combination, then the access."""
    is_lookup = given.action in LOOKUP_PEEK or given.action in LOOKUP_RECEIVE
    is_known = is_lookup or given.action in (RECEIVE, PEEK_CURRENT, PEEK_NEXT)
    has_wrong_place = (given.cursor or given.timeout_ms) if is_lookup else given.lookup
    if not is_known or has_wrong_place or (given.action == PEEK_NEXT and not given.cursor):
        return ErrorCode.MQ_ERROR_INVALID_PARAMETER
    if is_lookup and not given.lookup and not _is_next(given.action):
        return ErrorCode.MQ_ERROR_INVALID_PARAMETER
    is_destructive = given.action == RECEIVE or given.action in LOOKUP_RECEIVE
    if is_destructive and not opened.may_receive:
        return ErrorCode.MQ_ERROR_ACCESS_DENIED
    return 0


def _is_next(action: int) -> bool:
    return action in (LOOKUP_PEEK[1], LOOKUP_RECEIVE[1])


def selector_of(given: StartIn) -> Selector:
    """Return what a read without a cursor wants; ends of the queue by 0 and FF.. (RP-A43)."""
    if given.action in (RECEIVE, PEEK_CURRENT, PEEK_NEXT):
        return Selector(SelectorKind.FIRST)
    if given.action in (LOOKUP_PEEK[0], LOOKUP_RECEIVE[0]):
        return Selector(SelectorKind.EXACT, given.lookup)
    if _is_next(given.action):
        if not given.lookup:
            return Selector(SelectorKind.FIRST)
        return Selector(SelectorKind.SEEK_NEXT, given.lookup)
    if given.lookup == KEY_MAX:
        return Selector(SelectorKind.SEEK_LAST)
    return Selector(SelectorKind.SEEK_PREVIOUS, given.lookup)


def failed(status: int) -> StartOut:
    """Return an answer without a message."""
    return StartOut(0, 0, 0, None, status)
