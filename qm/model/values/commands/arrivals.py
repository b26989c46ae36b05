"""Messages from other queue managers, as an edge forwards them."""

from enum import IntEnum

import msgspec

from qm.model.values.columns import U32Column
from qm.model.values.commands.declaration import Command, RowsOf, declared


class SignatureFact(IntEnum):
    """What the edge found when it verified a signature; apply decides what follows."""

    ABSENT = 0
    VALID = 1
    INVALID = 2
    UNVERIFIED = 3
    """Present, but this build cannot verify it: nothing is accepted unchecked."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What an edge knows of a message besides its bytes; shared by the messages of a session."""

    session: int
    """The edge's number of the MSMQ session, for late acknowledgements."""
    peer_queue_manager: bytes
    """GUID proven by the session's handshake."""
    peer_address: str
    """Address of the peer, without port (DESIGN section 7)."""
    sender_sids: tuple[bytes, ...]
    """SID of the authenticated sender; empty = anonymous."""
    signature: SignatureFact = SignatureFact.ABSENT
    certificate_digest: bytes = b""
    was_encrypted: bool = False
    decryption_failed: bool = False


@declared(weight=RowsOf("facts_of"), since=1)
class EdgeBatch(Command, frozen=True, gc=False):
    """A run of UserMessages as they arrived, in columns; the raw packets stay unchanged."""

    edge: str
    number: int
    """Number of this batch on the edge's stream."""
    packets: memoryview
    """Raw packets back to back, without trailing SessionHeaders."""
    body_offset: int
    """Offset of `packets` in the entry's data; a body lies at offset + body_offset."""
    offsets: U32Column
    """n + 1 u32 values: packet k is packets[offsets[k]:offsets[k + 1]]."""
    checksums: U32Column
    """n u32 values: crc32 of each packet."""
    facts_of: bytes
    """n values: index into `facts`."""
    facts: tuple[Facts, ...]
    body_index: int
    """Index of the entry."""
    first_ordinal: int
    """Body ordinal of the first packet in the entry; the others follow."""


class TransferVerdict(IntEnum):
    """Results of arrivals, one u16 per message; a MessageClass >= 0x8000 is a refusal."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    IGNORED = 3
    """Counted and acknowledged without effect: an order or final ack that matches nothing."""
    CLOSE_SESSION = 4
    """Cannot be stored now (quota of the queue manager): not acknowledged, the peer resends."""
    NEVER_SENT = 5
    """An order or final ack for something never sent: no honest peer has one."""
    ELSEWHERE = 6
    """From an address that the queue manager which it names is not bound to. A message, or a final
    ack, is not acknowledged, and its session closes: the peer sends it again."""
