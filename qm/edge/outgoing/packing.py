"""Makes packets for the keys that a table dispatched [MS-MQQB 3.1.7.1.1 to 3.1.7.1.3].

A transactional message that is skipped must have ended, durably, before its successors are sent:
they would move the receiver's number past it, and a later leader that does not skip it could never
send it. So a skipped message ends the run.
"""

from collections.abc import Sequence

import msgspec

from qm.cluster.cluster import Cluster
from qm.edge.outgoing import rows
from qm.edge.outgoing.encrypting import BodyEncryption, EncryptionFailed
from qm.edge.outgoing.packets import Addressing, plain_packet, transactional_packet
from qm.model.values.rows import Position
from qm.names.format_name import FormatName
from qm.session import OutgoingTable
from qm.store.bodies.body_places import BodyDamaged, BodyPlace
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.guid import Guid
from qm.wire.packets.peek import is_traced, peek_head
from qm.wire.packets.report import report_queue
from qm.wire.packets.user_message import parse_user_message


class Packed(msgspec.Struct):
    """The results for dispatched keys; those that are in no field must be dispatched again."""

    keys: list[int]
    packets: list[bytes]
    """One per key."""
    has_transactional: bool = False
    expired: list[int] = []
    """Keys whose TimeToReachQueue or TimeToBeReceived is over."""
    unsendable: list[int] = []
    """Keys of which no packet can be made."""
    unencryptable: list[int] = []
    """Keys whose bodies cannot be encrypted for their destination [MS-MQQB 3.1.7.1.5.1]."""
    encryption_error: str = ""
    """Why not."""
    gone: list[int] = []
    """Keys no longer in the queue, or not to be sent."""
    traced: list[tuple[int, Guid]] = []
    """MessageIDs whose sending is to be reported, with their report queues."""
    damage: str = ""
    """Why the next key's body cannot be read on this node."""
    damaged: tuple[int, BodyPlace] | None = None
    """That key, and its body."""


class Packer:
    """Makes the packets of one outgoing queue."""

    def __init__(
        self,
        cluster: Cluster,
        queue_id: int,
        name: FormatName,
        own_guid: Guid,
        encryption: BodyEncryption,
    ) -> None:
        self._cluster = cluster
        self._queue_id = queue_id
        self._name = name
        self._addressing = Addressing(name, own_guid)
        self._encryption = encryption

    def pack(
        self, keys: Sequence[int], table: OutgoingTable, watermark: int, size_bytes: int
    ) -> Packed:
        """Return packets for dispatched keys; the last one may exceed `size_bytes`."""
        packed = Packed([], [])
        ready: list[tuple[int, Position]] = []
        state, now_ms = self._cluster.state, self._cluster.now_ms()
        for key in keys:
            position = rows.sendable(state, self._queue_id, key, watermark)
            if position is None:
                packed.gone.append(key)
                table.remove(key)
            elif position.deadline_ms and position.deadline_ms <= now_ms:
                packed.expired.append(key)
            else:
                ready.append((key, position))
        if packed.expired:
            return packed
        transactional = [key for key, position in ready if rows.is_transactional(position)]
        previous = dict(zip(transactional, table.previous_numbers(transactional), strict=True))
        packed.has_transactional = bool(transactional)
        for key, position in ready:
            try:
                packet = self._packet(key, position, previous.get(key))
            except (ProtocolError, ValueOutOfRange):
                packed.unsendable.append(key)
                break
            except EncryptionFailed as error:
                packed.unencryptable.append(key)
                packed.encryption_error = str(error)
                break
            except (BodyDamaged, KeyError) as error:
                packed.damage, packed.damaged = str(error), (key, _place_of(position))
                break
            packed.keys.append(key)
            packed.packets.append(packet)
            if is_traced(peek_head(packet, 0)):
                packed.traced += _report_wanted(packet)
            size_bytes -= len(packet)
            if size_bytes <= 0:
                break
        return packed

    def is_readable(self, place: BodyPlace) -> bool:
        """Whether a body can be read on this node."""
        try:
            self._cluster.read_body(place)
        except (BodyDamaged, KeyError):
            return False
        return True

    def _packet(self, key: int, position: Position, previous_number: int | None) -> bytes:
        stored = self._addressing.addressed(self._cluster.read_body(_place_of(position)))
        stored = self._encryption.leaving(stored, self._name)
        if previous_number is None:
            return plain_packet(stored, position)
        row = rows.numbers(self._cluster.state, self._queue_id, key)
        assert row is not None, "a transactional position without its numbers"
        return transactional_packet(stored, position, row, previous_number)


def _place_of(position: Position) -> BodyPlace:
    return BodyPlace(
        position.body_index,
        position.body_offset,
        position.body_length,
        position.body_ordinal,
        position.body_crc32,
    )


def _report_wanted(packet: bytes) -> list[tuple[int, Guid]]:
    """Return MessageID and report queue of a traced packet; nothing if it names none."""
    message, _ = parse_user_message(packet, 0, len(packet))
    wanted = report_queue(message.is_traced, message.debug)
    return [] if wanted is None else [(message.user_header.message_id, wanted)]
