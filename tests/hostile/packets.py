"""Packets that no honest queue manager would send, and honest ones to begin with."""

from __future__ import annotations

from functools import cache
from random import Random
from struct import pack_into

import msgspec

from qm.wire.guid import Guid
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import write_packet
from qm.wire.packets.ping import Ping, write_ping
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, QueueName
from tests.fuzz.corpus import full_message, seeds

U16_MAX, U32_MAX = 0xFFFF, 0xFFFF_FFFF
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFE, U16_MAX)
EDGES_32 = (*EDGES, 0x1_0000, 0x40_0000, 0x40_0001, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, U32_MAX)
_CHANGES_MAX = 4
_PACKETS_MAX_BYTES = 1 << 16
EVERY_ACK = 0x0F
"""MessagePropertiesHeader.Flags: all four acknowledgements are wanted."""


def direct(name: str) -> DirectQueueFormatName:
    r"""Return the name of a queue, written as `OS:host\queue`."""
    return DirectQueueFormatName(name)


def message(
    source: Guid,
    destination: QueueName,
    number: int,
    *,
    body: bytes = b"x",
    label: str | None = None,
    admin: QueueName | None = None,
    to_live_s: int = U32_MAX,
    to_reach_s: int = U32_MAX,
    sent_time_s: int = 0,
    transaction: TransactionHeader | None = None,
    is_recoverable: bool = False,
) -> bytes:
    """Return a message's packet; with `admin`, every acknowledgement is wanted there."""
    header = UserHeader(
        source,
        destination,
        message_id=number & U32_MAX,
        sent_time=sent_time_s,
        time_to_be_received=to_live_s,
        admin_queue=admin,
        response_queue=admin,
        is_recoverable=is_recoverable or transaction is not None,
    )
    properties = MessagePropertiesHeader(body, label, flags=EVERY_ACK if admin is not None else 0)
    return write_packet(
        UserMessage(
            header,
            properties,
            transaction,
            priority=0 if transaction is not None else 3,
            time_to_reach_queue=to_reach_s,
        )
    )


def numbered(time_stamp: int, ordinal: int, number: int, previous: int) -> TransactionHeader:
    """Return the header of a transaction of one message with these sequence numbers."""
    return TransactionHeader(
        TxSequenceId(time_stamp=time_stamp, ordinal=ordinal),
        number,
        previous,
        1,
        True,
        True,
        True,
    )


def handshake(guid: Guid, server: Guid = bytes(16)) -> bytes:
    """Return the first packet of a session."""
    return write_packet(EstablishConnection(guid, server))


def parameters(window: int = 64) -> bytes:
    """Return the second packet of a session."""
    return write_packet(ConnectionParameters(500, 20_000, window))


def acknowledgement(chance: Random) -> bytes:
    """Return a SessionAck with counters near their ends, or anywhere."""
    ack, base, sent, recoverable, window = (chance.choice(EDGES) for _ in range(5))
    flags = chance.choice((0, 1, U32_MAX, chance.getrandbits(32)))
    session = SessionHeader(ack, base, flags, sent, recoverable, max(window, 1))
    return write_packet(SessionAck(session))


@cache
def corpus() -> tuple[bytes, ...]:
    """Return packets of every kind to begin with."""
    return tuple(raw for _, raw in seeds())


def aimed(chance: Random, queues: list[str]) -> bytes:
    """Return the message with every header, addressed to one of these queues."""
    whole = full_message()
    header = msgspec.structs.replace(
        whole.user_header,
        source_queue_manager=chance.randbytes(16),
        destination_queue=direct(chance.choice(queues)),
        message_id=chance.getrandbits(32),
        sent_time=chance.choice(EDGES_32),
        time_to_be_received=chance.choice(EDGES_32),
        hop_count=chance.randrange(32),
    )
    has_all = chance.random() < 0.5
    return write_packet(
        msgspec.structs.replace(
            whole,
            user_header=header,
            transaction=whole.transaction if chance.random() < 0.5 else None,
            security=whole.security if chance.random() < 0.5 else None,
            soap=whole.soap if has_all else None,
            multi_queue_format=whole.multi_queue_format if has_all else None,
            session=None,
            time_to_reach_queue=chance.choice(EDGES_32),
        )
    )


def mutated(chance: Random, raw: bytes) -> bytes:
    """Return a packet with a few changes that know what packets are made of: fields of 16 and 32
    bits at their edges, chunks dropped or doubled, single bits; most keep a sound BaseHeader.
    """
    data = bytearray(raw)
    for _ in range(chance.randint(1, _CHANGES_MAX)):
        _change(chance, data)
    del data[_PACKETS_MAX_BYTES:]
    if len(data) >= 16 and chance.random() < 0.8:
        data[0] = 0x10
        data[4:8] = b"LIOR"
        size = len(data) - (16 if data[2] & 0x18 == 0x10 else 0)
        pack_into("<I", data, 8, max(size, 0))
    return bytes(data)


def _change(chance: Random, data: bytearray) -> None:
    if len(data) < 8:
        data += chance.randbytes(8)
    at = chance.randrange(len(data) - 4)
    match chance.randrange(6):
        case 0:
            pack_into("<I", data, at & ~3, chance.choice(EDGES_32))
        case 1:
            pack_into("<H", data, at & ~1, chance.choice(EDGES))
        case 2:
            data[at] ^= 1 << chance.randrange(8)
        case 3:
            del data[at : at + chance.choice((1, 2, 4, 16, 64))]
        case 4:
            data[at:at] = data[at : at + chance.choice((4, 16, 64, 512))]
        case _:
            data[at : at + 4] = chance.randbytes(4)


def ping(chance: Random) -> bytes:
    """Return a ping, or something near one."""
    sound = write_ping(Ping(chance.getrandbits(32), chance.randbytes(16)))
    match chance.randrange(4):
        case 0:
            return sound
        case 1:
            return sound + chance.randbytes(chance.choice((1, 8, 1_400)))
        case 2:
            return sound[: chance.randrange(len(sound))]
        case _:
            return mutated(chance, sound)
