"""Requests on their way in: fragments of one call put together, and what is known of past calls.

One call of a connection is received at a time; those received before may still be in progress.
"""

from collections import deque
from collections.abc import Set

import msgspec

from qm.rpc.association.security import SecurityContext
from qm.rpc.interface import Interface, Operation
from qm.rpc.limits import LATE_CALLS_MAX, STUB_MAX_BYTES
from qm.rpc.pdu.call import RequestPart
from qm.rpc.pdu.codes import PduFlag
from qm.rpc.pdu.header import Pdu
from qm.rpc.security.provider import Identity
from qm.wire.guid import Guid


class IncomingCall(msgspec.Struct, eq=False):
    """A whole request that may be executed."""

    call_id: int
    context_id: int
    interface: Interface
    opnum: int
    operation: Operation
    object_uuid: Guid | None
    stub: bytes
    """Its parameters; nothing once they are read, as it may wait for long."""
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


class Partial:
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

    @property
    def ids(self) -> tuple[int, int]:
        """Its call id and context id."""
        return self.call_id, self.context_id

    @property
    def has_begun(self) -> bool:
        """Whether a fragment of it was taken."""
        return bool(self.parts)

    @property
    def is_maybe(self) -> bool:
        """Whether PFC_MAYBE was set: it is not answered."""
        return bool(self.flags & PduFlag.MAYBE)


class Reassembly:
    """The call that a connection is sending."""

    def __init__(self) -> None:
        self.partial: Partial | None = None
        """None while no call is half received."""
        self._last_call_id = -1
        self._ended: deque[int] = deque(maxlen=LATE_CALLS_MAX)

    def is_late(self, pdu: Pdu) -> bool:
        """Whether a fragment belongs to a call that has ended [MS-RPCE 3.3.3.5.6]."""
        if pdu.is_first or pdu.call_id == self.receiving:
            return False
        return pdu.call_id in self._ended

    def begin(
        self,
        pdu: Pdu,
        head: RequestPart,
        security: SecurityContext | None,
        in_progress: Set[int],
    ) -> Partial:
        """Begin a call with its first fragment, before its signature is checked.

        Raises OutOfOrder.
        """
        if not pdu.is_first:
            raise OutOfOrder("a fragment of no call")
        if pdu.call_id in in_progress:
            raise OutOfOrder("a call with the number of one that is in progress")
        if pdu.call_id < self._last_call_id and self._last_call_id in in_progress:
            raise OutOfOrder("a call with a lower number than one in progress")  # RP-A4
        self._last_call_id = pdu.call_id
        self.partial = Partial(pdu, head, security)
        return self.partial

    def add(self, stub: bytes) -> bool:
        """Add a fragment's stub; False if the call has become too large and was dropped."""
        partial = self.partial
        assert partial is not None
        partial.size += len(stub)
        if partial.size > STUB_MAX_BYTES:
            self.drop()
            return False
        partial.parts.append(stub)
        return True

    def drop(self) -> None:
        """Forget the call that is being received; the rest of it is ignored."""
        if self.partial is not None:
            self.ignore(self.partial.call_id)
            self.partial = None

    def ignore(self, call_id: int) -> None:
        """Ignore the fragments of a call but its first."""
        self._ended.append(call_id)

    def take(self) -> bytes:
        """Return the stub of the call that is whole."""
        partial, self.partial = self.partial, None
        assert partial is not None
        return partial.parts[0] if len(partial.parts) == 1 else b"".join(partial.parts)

    @property
    def received_bytes(self) -> int:
        """Size of the fragments of the call that is being received."""
        return 0 if self.partial is None else self.partial.size

    @property
    def receiving(self) -> int | None:
        """Number of the call that is being received."""
        return None if self.partial is None else self.partial.call_id
