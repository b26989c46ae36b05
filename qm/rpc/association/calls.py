"""Requests on their way in: fragments of one call put together, and what is known of past calls.

One call of a connection is received at a time; those received before may still be in progress.
"""

from collections import deque

import msgspec

from qm.rpc.association.security import SecurityContext
from qm.rpc.interface import Interface, Operation
from qm.rpc.limits import LATE_CALLS_MAX, STUB_MAX_BYTES
from qm.rpc.pdu.call import RequestPart
from qm.rpc.pdu.codes import PduFlag
from qm.rpc.pdu.header import Pdu
from qm.rpc.security.provider import Identity
from qm.wire.guid import Guid


class IncomingCall(msgspec.Struct, frozen=True, eq=False):
    """A whole request that may be executed."""

    call_id: int
    context_id: int
    interface: Interface
    opnum: int
    operation: Operation
    object_uuid: Guid | None
    stub: bytes
    order: str
    """Byte order of the stub, "<" or ">"."""
    drep: bytes
    minor: int
    identity: Identity
    security: SecurityContext | None
    is_maybe: bool
    """It is executed and not answered."""


class OutOfOrder(Exception):
    """Fragments that do not belong together: a protocol error."""


class _Partial:
    """A call of which fragments are missing."""

    __slots__ = (
        "call_id",
        "context_id",
        "flags",
        "object_uuid",
        "opnum",
        "parts",
        "security",
        "size",
    )

    def __init__(self, pdu: Pdu, head: RequestPart, security: SecurityContext | None) -> None:
        self.call_id = pdu.call_id
        self.context_id = head.context_id
        self.opnum = head.opnum
        self.object_uuid = head.object_uuid
        self.security = security
        self.flags = pdu.flags
        self.parts: list[bytes] = []
        self.size = 0


class Reassembly:
    """The call that a connection is sending."""

    def __init__(self) -> None:
        self._partial: _Partial | None = None
        self._last_call_id = -1
        self._dropped: deque[int] = deque(maxlen=LATE_CALLS_MAX)

    def is_late(self, pdu: Pdu) -> bool:
        """Whether a fragment belongs to a call that ended before it was whole."""
        return not pdu.is_first and pdu.call_id in self._dropped

    def begin_or_continue(
        self,
        pdu: Pdu,
        head: RequestPart,
        security: SecurityContext | None,
        in_progress: frozenset[int],
    ) -> None:
        """Check that a fragment may come now, before its signature is. Raises OutOfOrder."""
        partial = self._partial
        if not pdu.is_first:
            if partial is None:
                raise OutOfOrder("a fragment of no call")
            if (
                pdu.call_id != partial.call_id
                or head.context_id != partial.context_id
                or head.opnum != partial.opnum
                or security is not partial.security
            ):
                raise OutOfOrder("a fragment that differs from the first of its call")
            return
        if partial is not None:
            raise OutOfOrder("a call begins while another is being received")
        if pdu.call_id in in_progress:
            raise OutOfOrder("a call with the number of one that is in progress")
        if pdu.call_id < self._last_call_id and self._last_call_id in in_progress:
            raise OutOfOrder("a call with a lower number than one in progress")  # RP-A4
        self._last_call_id = pdu.call_id
        self._partial = _Partial(pdu, head, security)

    def add(self, stub: bytes) -> bool:
        """Add a fragment's stub; False if the call has become too large and was dropped."""
        partial = self._partial
        assert partial is not None
        partial.size += len(stub)
        if partial.size > STUB_MAX_BYTES:
            self.drop()
            return False
        partial.parts.append(stub)
        return True

    def drop(self) -> None:
        """Forget the call that is being received; the rest of it is ignored."""
        if self._partial is not None:
            self._dropped.append(self._partial.call_id)
            self._partial = None

    def ignore(self, call_id: int) -> None:
        """Ignore what else comes of a call that was refused at its first fragment."""
        self.drop()
        self._dropped.append(call_id)

    def take(self) -> tuple[bytes, bool, Guid | None]:
        """Return (stub, whether PFC_MAYBE was set, object UUID) of the call that is whole."""
        partial, self._partial = self._partial, None
        assert partial is not None
        stub = partial.parts[0] if len(partial.parts) == 1 else b"".join(partial.parts)
        return stub, bool(partial.flags & PduFlag.MAYBE), partial.object_uuid

    @property
    def received_bytes(self) -> int:
        """Size of the fragments of the call that is being received."""
        return 0 if self._partial is None else self._partial.size

    @property
    def receiving(self) -> int | None:
        """Number of the call that is being received."""
        return None if self._partial is None else self._partial.call_id
