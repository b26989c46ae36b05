"""Client sessions, sends and reads."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any
from zlib import crc32

import msgspec

from qm.model.values.commands.arrivals import Facts
from qm.model.values.commands.declaration import (
    POSITIONS_PER_MOVE,
    SEND_COSTS_POSITIONS,
    AtMostQueued,
    Command,
    Fixed,
    OfClient,
    RowsOf,
    ValueOf,
    declared,
)
from qm.model.values.commands.entry import Request


class SelectorKind(IntEnum):
    """How a read finds its position; apply resolves it."""

    FIRST = 0
    AFTER = 1
    EXACT = 2
    SEEK_PREVIOUS = 3
    SEEK_NEXT = 4
    SEEK_LAST = 5


class Selector(msgspec.Struct, frozen=True, gc=False):
    """All kinds except FIRST and SEEK_LAST use `lookup_identifier`."""

    kind: SelectorKind = SelectorKind.FIRST
    lookup_identifier: int = 0


class Target(msgspec.Struct, frozen=True, gc=False):
    """One destination of a send."""

    format_name: str
    """Format name given by the application; the leader has already resolved distribution lists."""
    packet_bytes: int
    """Length of the target's own packet, which names it."""
    checksum: int
    """CRC-32 of that packet."""
    is_sealed: bool = False
    """See `Facts.is_sealed`; the seal counts as part of the packet."""


@declared(weight=RowsOf("targets", each=SEND_COSTS_POSITIONS), since=1)
class Send(Command, frozen=True, gc=False):
    """Enqueue a client's message: one raw packet per target, whose MessageID apply assigns.

    The packets lie back to back; that of target k is body `first_ordinal` + k of the entry.
    """

    request: Request
    packets: memoryview
    body_index: int
    body_offset: int
    first_ordinal: int
    targets: tuple[Target, ...]
    sender_sids: tuple[bytes, ...]
    transaction: bytes | None = None
    application_deadletter_queue: str = ""
    """Format name, "" for the system's; it stays with the sender [MS-MQDMPR 3.1.1.12]."""
    allow_peek_when_locked: bool = False
    """AllowPeekWhenLocked (3.1.1.12): a property of the queue's message, in no packet."""
    replaced_handle: int = 0
    """Handle of a queue open for receiving, 0 = none: if the send succeeds, the message there from
    which this one was made ends in the same apply, or with the transaction. Needs one target."""
    replaced_lookup_identifier: int = 0
    facts: tuple[Facts, ...] = ()
    """What the node that took it found in the targets' packets, one per target; empty if nothing
    was to be examined."""

    @classmethod
    def of(
        cls,
        request: Request,
        copies: Sequence[tuple[str, bytes]],
        sender_sids: tuple[bytes, ...] = (),
        **others: Any,
    ) -> "Send":
        """Return the command for (format name, packet) pairs, without a place in an entry."""
        return cls(
            request,
            memoryview(b"".join(packet for _, packet in copies)),
            0,
            0,
            0,
            tuple(Target(name, len(packet), crc32(packet)) for name, packet in copies),
            sender_sids,
            **others,
        )


@declared(weight=AtMostQueued("count", queue="queue_id"), since=1)
class ReceiveRun(Command, frozen=True, gc=False):
    """Destructive reads number `first_request` ... + count - 1 of one client on one queue.

    Credit k of a stream is request number k. Numbers that find no message get no result and stay
    open; the others get the message as their committed result.
    """

    client_id: str
    handle: int
    queue_id: int
    first_request: int
    count: int
    confirmed_upto: int
    selector: Selector = Selector()
    transaction: bytes | None = None
    is_two_phase: bool = False
    allow_peek_when_locked: bool = False
    """Messages locked by a transaction stay visible to peeks ([MC-MQAC] 3.11.4.1.33)."""
    session_epoch: int = 0
    """See `Request.session_epoch`."""


@declared(weight=ValueOf("count"), since=1)
class CancelRequests(Command, frozen=True, gc=False):
    """Timeout or cancellation as a committed result: cancelled, or the message if it came first."""

    client_id: str
    first_request: int
    count: int
    status: int
    """MQ_ERROR code with which a cancelled number is answered."""
    session_epoch: int = 0
    """See `Request.session_epoch`."""


@declared(weight=Fixed(1), since=1)
class Confirm(Command, frozen=True, gc=False):
    """The client holds every result up to this number."""

    client_id: str
    confirmed_upto: int
    session_epoch: int = 0
    """See `Request.session_epoch`."""


@declared(weight=Fixed(1), since=1)
class ReadEnd(Command, frozen=True, gc=False):
    """Second phase of a two-phase read ([MS-MQDMPR] 3.1.7.1.12)."""

    request: Request
    queue_id: int
    lookup_identifier: int
    delete: bool
    reason: int = 0x4000
    """MessageClass: ACK_RECEIVE, or RECEIVE_REJECTED 0xC004."""


@declared(weight=Fixed(POSITIONS_PER_MOVE), since=1)
class Move(Command, frozen=True, gc=False):
    """Move a position to another queue or subqueue ([MS-MQDMPR] 3.1.7.1.16)."""

    request: Request
    source_queue_id: int
    lookup_identifier: int
    target_queue_id: int
    sender_sids: tuple[bytes, ...]
    transaction: bytes | None = None


@declared(weight=Fixed(1), since=1)
class OpenClient(Command, frozen=True, gc=False):
    """Begin or resume a client's session."""

    client_id: str
    principal: str
    lease_ms: int
    instance: bytes = b""
    """Random bytes of the opener; other bytes take the session over. b"": an older client."""
    address: str = ""
    """Address from which it calls."""
    main_client_id: str = ""
    """Another session of this opener, to which this one belongs; "" = none."""
    main_session_epoch: int = 0
    """Epoch of that session when it was opened: an opener fenced there is fenced here."""


@declared(weight=Fixed(1), since=1)
class RenewClients(Command, frozen=True, gc=False):
    """Keep leases alive."""

    client_ids: tuple[str, ...]
    lease_ms: int


@declared(weight=OfClient("client_id"), since=1)
class CloseClient(Command, frozen=True, gc=False):
    """End a client's session: locks released, transactions aborted, results dead-lettered."""

    client_id: str
    session_epoch: int = 0
    """See `Request.session_epoch`."""


@declared(weight=Fixed(1), since=1)
class OpenQueue(Command, frozen=True, gc=False):
    """Open with access and share mode; replicated and leased ([MS-MQDMPR] 3.1.7.1.5)."""

    request: Request
    format_name: str
    access: int
    """QueueAccessType."""
    share_mode: int
    """QueueShareMode."""
    sender_sids: tuple[bytes, ...]


@declared(weight=Fixed(1), since=1)
class CloseQueue(Command, frozen=True, gc=False):
    """Close a handle."""

    request: Request
    handle: int
