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
    """Present, but not verified: nothing is accepted unchecked."""
    STRANGER = 4
    """It matches, but its sender names no SID and nobody registered its certificate."""


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What an edge knows of a message besides its bytes; shared by the messages of a session."""

    session: int
    """The edge's number of the MSMQ session, for late acknowledgements."""
    peer_queue_manager: bytes
    """GUID proven by the session's handshake."""
    peer_address: str
    """Address of the peer, without port (DESIGN section 7)."""
    sender_sids: tuple[bytes, ...]
    """SID of the authenticated sender, without groups; empty = anonymous."""
    signature: SignatureFact = SignatureFact.ABSENT
    certificate_digest: bytes = b""
    """MD5 of the sender's certificate, by which the directory knows it."""
    was_encrypted: bool = False
    """The body arrived encrypted and was decrypted."""
    decryption_failed: bool = False
    claimed_sid: bytes = b""
    """SID that an unsigned message names: a claim, nothing more."""
    signature_version: int = 0
    """`qm.security.signature_input.SignatureVersion` of a signature that matches."""
    hash_algorithm: int = 0
    """The hash of a signature that matches; apply knows which ones are accepted."""
    is_key_reduced: bool = False
    """The body's key is one of 128 bits of which only 40 are random (RC2, Enhanced provider)."""
    is_provider_unknown: bool = False
    """Signature or encryption need a provider that this queue manager does not have."""
    is_certificate_expired: bool = False
    """The sender's certificate was not valid when the message arrived."""
    is_sealed: bool = False
    """The body is sealed for the disk: a seal follows the packet (`qm.security.body_seals`)."""


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
