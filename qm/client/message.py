"""Messages as applications see them: one to send, and one that was received.

A received message is its packet; its properties are read from it on demand.
"""

from functools import cached_property
from typing import Final, Protocol

import msgspec

from qm.client.names import format_name_of_wire, format_names_of_list
from qm.pb import data_pb2
from qm.wire.headers.security_header import SENDER_ID_NONE, SENDER_ID_SID
from qm.wire.message_class import MessageClass
from qm.wire.packets.peek import peek_signature_version
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import MessageIdentifier, write_message_identifier

INFINITE_S: Final = 0xFFFF_FFFF
VT_EMPTY: Final = 0
VT_BSTR: Final = 8
VT_LPSTR: Final = 30
VT_BYTES: Final = 0x2011
"""VT_ARRAY | VT_UI1."""
_WAS_ENCRYPTED: Final = 0x0400
_AUTHENTICATED: Final = 0x8000
"""MessageBatch.flags."""
_SENDER_TYPES: Final = {None: None, False: SENDER_ID_NONE, True: SENDER_ID_SID}


class PacketSigner(Protocol):
    """Who signs messages: `qm.client.signing.Signer`."""

    @property
    def certificate(self) -> bytes:
        """X.509, DER."""

    def signed(self, packet: bytes, message: "Message") -> bytes:
        """Return a message's composed packet with its signature."""


class Message(msgspec.Struct, kw_only=True):
    """A message to send. Defaults as in [MS-MQDMPR] 3.1.1.12, except that it is recoverable."""

    body: bytes = b""
    body_type: int = VT_BYTES
    """VARTYPE of the body: 8 is UTF-16 text, 0x2011 bytes."""
    label: str = ""
    """At most 249 UTF-16 code units."""
    priority: int | None = None
    """0 to 7; None: 3, or 0 in transactions."""
    recoverable: bool = True
    time_to_reach_queue_s: int | None = None
    """None: the queue manager's default."""
    time_to_be_received_s: int | None = None
    """Counted from when it was sent; None: infinite."""
    correlation_id: bytes = b""
    """20 bytes, or empty."""
    application_tag: int = 0
    response_queue: str = ""
    """Format name."""
    response_queues: tuple[str, ...] = ()
    """Format names of several response queues."""
    administration_queue: str = ""
    """Format name of the queue for acknowledgments."""
    acknowledgements: int = 0
    """Requested acknowledgments: 1 positive arrival, 2 positive receive, 4 negative arrival,
    8 negative receive.
    """
    dead_letter: bool = False
    """Whether a copy goes to the dead-letter queue if it is not delivered."""
    journal: bool = False
    """Whether a copy goes to the journal when it has been sent."""
    extension: bytes = b""
    trace: bool = False
    message_class: int = 0
    """MessageClass; values other than 0 need `connector_type`."""
    connector_type: bytes = b""
    """GUID of a connector application, 16 raw bytes, or empty."""
    hash_algorithm: int = 0
    """0: the queue manager chooses."""
    encryption_algorithm: int = 0
    """0: the queue manager chooses."""
    application_dead_letter_queue: str = ""
    """Format name; "": the system's."""
    authentication_level: int = 0
    """`qm.client.signing.AuthenticationLevel`: how it is signed; other than 0 needs `signer`."""
    signer: "PacketSigner | None" = None
    """Who signs it: `qm.client.signing.Signer`. Its private key does not leave this process."""
    sender_id: bytes = b""
    """SID for which receivers have the certificate; empty: the caller's at this cluster."""
    names_sender: bool | None = None
    """Whether it names the caller's SID, which proves nothing if it is not signed; None: if it is
    signed.
    """
    privacy_level: int = 0
    """How its body is encrypted on its way: 0 not at all, 1 with 40 bits, 3 with 128, 5 AES."""

    @staticmethod
    def of_text(text: str, **properties: object) -> "Message":
        """Return a message whose body is UTF-16 text, as COM applications send it."""
        return Message(body=text.encode("utf-16-le"), body_type=VT_BSTR, **properties)  # type: ignore[arg-type]

    def properties(self) -> data_pb2.Properties:
        """Return the message as the data plane carries it."""
        return data_pb2.Properties(
            body=self.body,
            body_type=self.body_type,
            label=self.label,
            priority=self.priority,
            delivery=data_pb2.RECOVERABLE if self.recoverable else data_pb2.EXPRESS,
            time_to_reach_queue_s=self.time_to_reach_queue_s,
            time_to_be_received_s=self.time_to_be_received_s,
            correlation_id=self.correlation_id,
            application_tag=self.application_tag,
            response_queue=self.response_queue,
            response_queues=self.response_queues,
            message_class=self.message_class,
            connector_type=self.connector_type,
            administration_queue=self.administration_queue,
            acknowledgements=self.acknowledgements,
            dead_letter=self.dead_letter,
            journal=self.journal,
            extension=self.extension,
            trace=self.trace,
            hash_algorithm=self.hash_algorithm,
            encryption_algorithm=self.encryption_algorithm,
            authentication_level=self.authentication_level,
            sender_certificate=b"" if self.signer is None else self.signer.certificate,
            sender_id=self.sender_id,
            sender_id_type=_SENDER_TYPES[self.names_sender],
            privacy_level=self.privacy_level,
        )


class Sent(msgspec.Struct, frozen=True):
    """The result for one message that was sent."""

    message_id: bytes
    """20 bytes: GUID of the queue manager, then u32; empty in a transaction that has not ended."""
    places: tuple[tuple[int, int], ...]
    """(queue_id, LookupIdentifier) per queue of this cluster that it went to."""


class ReceivedMessage:
    """A message that was received or peeked at."""

    __slots__ = (
        "__dict__",
        "_arrived_time_s",
        "flags",
        "lookup_identifier",
        "number",
        "packet",
        "queue_id",
        "returns",
        "verdict_class",
    )

    def __init__(
        self,
        packet: bytes,
        number: int,
        lookup_identifier: int,
        queue_id: int,
        arrived_time_s: int,
        verdict_class: int,
        flags: int,
        returns: int = 0,
    ) -> None:
        self.packet: Final = packet
        """The whole UserMessage, decrypted."""
        self.number: Final = number
        """Request number whose result this is, unchanged after a restart; 0 for a peek."""
        self.lookup_identifier: Final = lookup_identifier
        self.queue_id: Final = queue_id
        self.verdict_class: Final = verdict_class
        """Why it became a dead letter, as MessageClass; 0 if the packet's own class applies."""
        self.flags: Final = flags
        self.returns: Final = returns
        """How often earlier readers had it and did not take it. 0 in a plain receive, which knows
        nothing of a message that has left its queue."""
        self._arrived_time_s = arrived_time_s

    @cached_property
    def wire(self) -> UserMessage:
        """The packet's values. Raises ProtocolError for a packet that cannot be decoded."""
        return parse_user_message(self.packet, 0, len(self.packet))[0]

    @property
    def body(self) -> bytes:
        """The payload."""
        return self.wire.properties.message_body

    @property
    def body_type(self) -> int:
        """VARTYPE of the body."""
        return self.wire.properties.body_type

    @property
    def text(self) -> str:
        """The body as text. Raises ValueError when its type is not text."""
        kind = self.body_type
        if kind == VT_BSTR:
            return self.body.decode("utf-16-le").rstrip("\0")
        if kind == VT_LPSTR:
            return self.body.rstrip(b"\0").decode("utf-8")
        raise ValueError(f"a body of type 0x{kind:04X} is not text; read `body`")

    @property
    def label(self) -> str:
        """The label."""
        return self.wire.properties.label or ""

    @property
    def message_class(self) -> int:
        """Class of the message, or of the queue manager's report about it."""
        return self.verdict_class or self.wire.properties.message_class

    @property
    def is_normal(self) -> bool:
        """Whether it was sent by an application, not by a queue manager."""
        return self.message_class == MessageClass.NORMAL

    @property
    def priority(self) -> int:
        """0 to 7."""
        return 0 if self.is_transactional else self.wire.priority

    @property
    def is_recoverable(self) -> bool:
        """Whether it was sent to survive a restart of its sender."""
        return self.wire.user_header.is_recoverable

    @property
    def is_transactional(self) -> bool:
        """Whether it was sent in a transaction."""
        return self.wire.transaction is not None

    @property
    def message_id(self) -> bytes:
        """20 bytes: GUID of the sender's queue manager, then u32."""
        header = self.wire.user_header
        return write_message_identifier(
            MessageIdentifier(header.source_queue_manager, header.message_id)
        )

    @property
    def authentication_level(self) -> int:
        """What the queue manager verified of its signature, as MQMSGAUTHENTICATION: 0 nothing, 1, 3
        or 5 a signature of version 1.0, 2.0 or 3.0.
        """
        return peek_signature_version(self.packet) if self.flags & _AUTHENTICATED else 0

    @property
    def was_encrypted(self) -> bool:
        """Whether its body travelled encrypted."""
        return bool(self.flags & _WAS_ENCRYPTED)

    @property
    def sender_certificate(self) -> bytes:
        """X.509 of the sender, as sent; it proves something if `authentication_level` is not 0."""
        return b"" if self.wire.security is None else self.wire.security.sender_cert

    @property
    def sender_id(self) -> bytes:
        """SID of the sender or GUID of its queue manager, as sent; likewise."""
        return b"" if self.wire.security is None else self.wire.security.security_id

    @property
    def correlation_id(self) -> bytes:
        """20 bytes."""
        return self.wire.properties.correlation_id

    @property
    def application_tag(self) -> int:
        """An application's u32."""
        return self.wire.properties.application_tag

    @property
    def extension(self) -> bytes:
        """An application's bytes."""
        return self.wire.properties.extension_data

    @property
    def source_machine(self) -> bytes:
        """GUID of the sender's queue manager, 16 raw bytes."""
        return self.wire.user_header.source_queue_manager

    @property
    def sent_time_s(self) -> int:
        """Epoch seconds, by the sender's clock."""
        return self.wire.user_header.sent_time

    @property
    def arrived_time_s(self) -> int:
        """Epoch seconds, by the cluster's clock."""
        return self._arrived_time_s

    @property
    def destination_queue(self) -> str:
        """Format name that it was sent to, "" if no format name can express it."""
        header = self.wire.user_header
        return format_name_of_wire(header.destination_queue, header, is_destination=True)

    @property
    def response_queue(self) -> str:
        """Format name of the queue for answers, "" if there is none."""
        header = self.wire.user_header
        return format_name_of_wire(header.response_queue, header)

    @property
    def response_queues(self) -> list[str]:
        """Format names of the queues for answers, if there are several."""
        lists = self.wire.multi_queue_format
        return format_names_of_list(lists.response) if lists is not None else []

    @property
    def destination_queues(self) -> list[str]:
        """Format names of all queues that got a copy, if there were several."""
        lists = self.wire.multi_queue_format
        return format_names_of_list(lists.destination) if lists is not None else []

    @property
    def administration_queue(self) -> str:
        """Format name of the queue for acknowledgments, "" if there is none."""
        header = self.wire.user_header
        return format_name_of_wire(header.admin_queue, header)


def messages_of(batch: data_pb2.MessageBatch) -> list[ReceivedMessage]:
    """Return the messages of a batch in columns; it must hold packets."""
    packets, offsets = batch.packets, batch.offsets
    count = max(len(offsets) - 1, 0)
    return [
        ReceivedMessage(*columns)
        for columns in zip(
            [packets[offsets[k] : offsets[k + 1]] for k in range(count)],
            batch.numbers or [0] * count,
            batch.lookup_identifiers,
            batch.queue_ids,
            batch.arrived_times_s,
            batch.message_classes,
            batch.flags,
            batch.returns or [0] * count,
            strict=True,
        )
    ]
