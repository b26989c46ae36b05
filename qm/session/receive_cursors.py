"""Counts of what has arrived, been committed and been acknowledged [MS-MQQB 3.1.1.4, 3.1.5.8].

Three cursors, each a count of UserMessages since the session began: acked <= durable <= wire. Each
has a twin that counts recoverable messages only. They do not wrap; `session_headers` reduces them
to u16 (QB-A7).
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from qm.session.errors import SessionMisuse
from qm.session.events import KIND_EXPRESS
from qm.session.limits import SERIAL_SPAN_COUNT
from qm.wire.headers.session_header import SessionHeader
from qm.wire.limits import RECOVERABLE_ACK_FLAGS_COUNT

_U16: Final = SERIAL_SPAN_COUNT - 1


class ReceiveCursors:
    """The receiving half of a session's counters."""

    __slots__ = (
        "_runs",
        "acked",
        "acked_recoverable",
        "durable",
        "durable_recoverable",
        "uncommitted_bytes",
        "wire",
        "wire_recoverable",
    )

    def __init__(self) -> None:
        # Everything is zero at session initialization (3.1.3.2).
        self.wire = 0
        self.wire_recoverable = 0
        self.durable = 0
        self.durable_recoverable = 0
        self.acked = 0
        self.acked_recoverable = 0
        self.uncommitted_bytes = 0
        self._runs: deque[tuple[int, bytes, int]] = deque()

    @property
    def unacked(self) -> int:
        """UnackedReceivedMsgCount: messages that may be acknowledged and are not yet."""
        return self.durable - self.acked

    @property
    def unacked_recoverable(self) -> int:
        """Recoverable messages that the next acknowledgement has to name."""
        return self.durable_recoverable - self.acked_recoverable

    @property
    def uncommitted(self) -> int:
        """Messages handed out and not committed."""
        return self.wire - self.durable

    def is_above(self, max_bytes: int, max_count: int) -> bool:
        """Whether the uncommitted arrivals exceed either bound."""
        return self.uncommitted_bytes > max_bytes or self.wire - self.durable > max_count

    def arrived(self, kinds: bytes, size_bytes: int) -> int:
        """Count a run of arrivals, one kind each, once (QB-A16); return the first position."""
        first = self.wire + 1
        self.wire += len(kinds)
        self.wire_recoverable += len(kinds) - kinds.count(KIND_EXPRESS)
        self.uncommitted_bytes += size_bytes
        self._runs.append((self.wire, kinds, size_bytes))
        return first

    def commit(self, upto: int) -> bool:
        """Move the durable cursor to position `upto`; return whether it moved."""
        if upto > self.wire:
            raise SessionMisuse(f"commit up to {upto}, but only {self.wire} messages have arrived")
        if upto <= self.durable:
            return False
        while self._runs:
            last, kinds, size_bytes = self._runs[0]
            fresh = kinds[self.durable - last :]
            if last > upto:
                fresh = fresh[: upto - self.durable]
            self.durable_recoverable += len(fresh) - fresh.count(KIND_EXPRESS)
            self.durable += len(fresh)
            if last > upto:
                break
            self.uncommitted_bytes -= size_bytes
            self._runs.popleft()
            if last == upto:
                break
        return True

    def mismatch(self, header: SessionHeader) -> str | None:
        """Return how the peer's counts differ from what arrived, or None [MS-MQQB 3.1.5.5.5]."""
        sent, recoverable = header.user_msg_sequence_number, header.recoverable_msg_seq_number
        wire, wire_recoverable = self.wire & _U16, self.wire_recoverable & _U16
        if sent == wire and recoverable == wire_recoverable:
            return None
        return (
            f"the peer counts {sent} messages, {recoverable} of them recoverable; "
            f"{wire} and {wire_recoverable} have arrived"
        )

    def session_headers(
        self, sent: int, sent_recoverable: int, window_size: int
    ) -> Iterator[SessionHeader]:
        """Acknowledge everything durable; usually one header, more for many recoverables.

        `sent` and `sent_recoverable` are what this side has sent, unwrapped; `window_size` is the
        one to announce. The cursors move as the headers are taken, so take all of them.
        """
        while True:
            base, flags = self._name_recoverables()
            yield SessionHeader(
                self.durable & _U16,
                base,
                flags,
                sent & _U16,
                sent_recoverable & _U16,
                window_size,
            )
            if self.acked_recoverable == self.durable_recoverable:
                break
        self.acked = self.durable

    def _name_recoverables(self) -> tuple[int, int]:
        """Return base and flags for the next recoverables, at most 32, and count them as acked.

        Base 0 means "nothing to report", so a first number that wraps to 0 is named as bit 1 of its
        predecessor, which is acknowledged already (QB-A7).
        """
        count = min(self.unacked_recoverable, RECOVERABLE_ACK_FLAGS_COUNT)
        if not count:
            return 0, 0
        base = (self.acked_recoverable + 1) & _U16
        if base:
            self.acked_recoverable += count
            return base, (1 << count) - 1
        count = min(count, RECOVERABLE_ACK_FLAGS_COUNT - 1)
        self.acked_recoverable += count
        return _U16, (1 << count + 1) - 1
