"""Checks that envelopes are plausible. Those that are not are counted and dropped (DESIGN 1.7)."""

from raft.types import (
    Append,
    AppendReply,
    EntryKind,
    Envelope,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    SnapshotReply,
    Vote,
)

NUMBER_MAX = (1 << 63) - 1
"""Limit of terms, indexes and other numbers: one can be added everywhere within 64 bits."""


def is_wellformed(envelope: Envelope) -> bool:
    """Return whether the numbers of an envelope fit together."""
    body, term = envelope.body, envelope.term
    if not 0 <= term < NUMBER_MAX:
        return False
    if term == 0 and not isinstance(body, PreVoteReply | ReadRequest | ReadReply):
        return False  # term 0 has no leader and no votes
    if isinstance(body, Append):
        return _is_append_wellformed(body, term)
    if isinstance(body, PreVote | Vote):
        return body.last_term <= term and _is_position(body.last_index, body.last_term)
    if isinstance(body, InstallSnapshot):
        meta = body.meta
        if meta.index == 0 or meta.term > term or meta.size_bytes < 0:
            return False
        return _is_position(meta.index, meta.term)
    numbers = _numbers(body)
    return not numbers or (min(numbers) >= 0 and max(numbers) < NUMBER_MAX)


def _numbers(body: object) -> tuple[int, ...]:
    match body:
        case AppendReply(match, _, hint, hint_term, applied, context, rejected):
            return match, hint, hint_term, applied, context, rejected
        case Heartbeat(first, second) | HeartbeatReply(first, second) | ReadReply(first, second):
            return first, second
        case SnapshotReply(number) | ReadRequest(number):
            return (number,)
        case _:
            return ()


def _is_append_wellformed(body: Append, term: int) -> bool:
    if not _is_position(body.prev_index, body.prev_term) or body.prev_term > term:
        return False
    if not (0 <= body.commit < NUMBER_MAX and 0 <= body.read_context < NUMBER_MAX):
        return False
    index, before = body.prev_index, body.prev_term
    for entry in body.entries:
        index += 1
        if entry.index != index or not before <= entry.term <= term or entry.term == 0:
            return False
        if entry.kind not in _KINDS:
            return False
        before = entry.term
    return index < NUMBER_MAX


_KINDS = frozenset(EntryKind)


def _is_position(index: int, term: int) -> bool:
    """Return whether the two fit together: index 0, and no other, has term 0."""
    return 0 <= index < NUMBER_MAX and 0 <= term < NUMBER_MAX and (index == 0) == (term == 0)
