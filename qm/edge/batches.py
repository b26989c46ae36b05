"""Turns runs of packets into the numbered batches that a leader gets (DESIGN section 7).

Arrivals wait as items, in their order, and keep their raw bytes as they were read. A batch is a few
items; its payload is encoded when it is sent, and encoded again when it is sent again without the
items of sessions that have closed since.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from typing_extensions import override

from qm.edge.facts import MessageFacts
from qm.edge.limits import (
    ACK_ITEMS_MAX_COUNT,
    BATCH_FACTS_MAX_COUNT,
    BATCH_MAX_COUNT,
    BATCH_SOFT_MAX_BYTES,
    CUT_MAX_COUNT,
)
from qm.model.values.columns import IntArray
from qm.model.values.commands import EdgeBatch, Facts, FinalAcked, OrderAcked
from qm.session import CloseReason
from qm.store.codec import encode_command
from qm.wire.guid import Guid

_NO_PACKETS: Final = memoryview(b"")


class IntakeOwner(Protocol):
    """The session of an intake, as the intake calls it; none of these may raise."""

    __slots__ = ()

    def commit(self, upto: int) -> None:
        """Every arrival up to a position has a durable verdict: `Session.commit`, then write."""

    def close(self, reason: CloseReason, detail: str) -> None:
        """End the session, which also closes the intake."""

    def hold(self, is_held: bool) -> None:
        """Stop reading from the peer, or go on."""

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> bool:
        """Send late packets; return False if that is impossible."""


class Intake(Protocol):
    """The session of an item: `qm.edge.relay.session_intake.SessionIntake` as batches use it."""

    @property
    def is_open(self) -> bool:
        """False once the session is gone."""

    @property
    def facts(self) -> MessageFacts:
        """What is known of the session's messages."""

    @property
    def owner(self) -> IntakeOwner:
        """The session."""

    def settle(self, upto: int, log_index: int) -> None:
        """Commit every position up to `upto`, by the entry at `log_index`."""

    def keep_open(self, position: int) -> None:
        """The command of an OrderAck must be applied again before it is settled."""

    def complete(self, position: int) -> None:
        """An OrderAck's command that was to be applied again has been, and is settled."""


class PacketRun:
    """Consecutive packets of one session, each found sound; at least one."""

    __slots__ = (
        "block",
        "checksums",
        "intake",
        "is_sealed",
        "last_position",
        "offsets",
        "other_facts",
    )

    def __init__(
        self,
        intake: Intake,
        last_position: int,
        block: bytes,
        offsets: list[int],
        checksums: list[int],
        other_facts: dict[int, Facts],
        *,
        is_sealed: bool = False,
    ) -> None:
        self.intake = intake
        self.last_position = last_position
        """The session's position of the last packet."""
        self.block = block
        self.offsets = offsets
        """n + 1 boundaries in `block`, which may extend beyond the last."""
        self.checksums = checksums
        """n values."""
        self.other_facts = other_facts
        """k -> facts of packet k, where they differ from those of the run."""
        self.is_sealed = is_sealed
        """Whether the bodies of the others are sealed."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.checksums)

    @property
    def size_bytes(self) -> int:
        """Total size of the packets."""
        return self.offsets[-1]

    @property
    def facts(self) -> Facts:
        """The facts of its packets but for `other_facts`."""
        known = self.intake.facts
        return known.sealed if self.is_sealed else known.plain

    @property
    def facts_count(self) -> int:
        """Number of different facts in it."""
        return 1 + len(set(self.other_facts.values())) if self.other_facts else 1


class AckItem:
    """An OrderAck or FinalAck for this queue manager: one position, one row of a command."""

    __slots__ = ("intake", "last_position", "number", "subject")

    count = 1
    size_bytes = 64
    """Approximate memory that it holds; its packet is gone."""
    facts_count = 0

    def __init__(self, intake: Intake, last_position: int, subject: int, number: int) -> None:
        self.intake = intake
        self.last_position = last_position
        self.subject = subject
        """Id of the sequence, or ordinal of the message."""
        self.number = number
        """Last number received in the sequence, or MessageClass of the final ack."""

    @property
    def queue_manager(self) -> Guid:
        """GUID that the peer claims."""
        return self.intake.facts.plain.peer_queue_manager

    @property
    def address(self) -> str:
        """Address of the peer, without port."""
        return self.intake.facts.plain.peer_address

    @property
    def key(self) -> tuple[int, Guid, str]:
        """What it is about, and who sent it."""
        return self.subject, self.queue_manager, self.address

    @property
    def text(self) -> str:
        """For log lines."""
        raise NotImplementedError


class OrderAckItem(AckItem):
    """[MS-MQQB] 2.2.4."""

    __slots__ = ()

    @property
    @override
    def text(self) -> str:
        return f"OrderAck: sequence {self.subject:#x} up to {self.number}"


class FinalAckItem(AckItem):
    """[MS-MQQB] 2.2.5."""

    __slots__ = ()

    @property
    @override
    def text(self) -> str:
        return f"FinalAck: message {self.subject}, class {self.number:#06x}"


Item = PacketRun | AckItem


class Batch:
    """Items that are sent together: runs, or acknowledgements of one kind."""

    __slots__ = ("arrived_at", "items", "number", "size_bytes")

    def __init__(self, number: int, items: list[Item], arrived_at: float) -> None:
        self.number = number
        self.items = items
        self.arrived_at = arrived_at
        """Monotonic seconds, not later than the first arrival in it."""
        self.size_bytes = sum(item.size_bytes for item in items)

    @property
    def ack_items(self) -> list[AckItem]:
        """The items, if they are acknowledgements."""
        return [item for item in self.items if isinstance(item, AckItem)]

    def intake_at(self, number: int) -> Intake:
        """Return the intake of the message with this number in the batch, from 0 on."""
        for item in self.items:
            number -= item.count
            if number < 0:
                return item.intake
        raise IndexError("beyond the batch")

    def drop_closed(self) -> None:
        """Drop the items of closed sessions: their peers send them again elsewhere."""
        self.items = [item for item in self.items if item.intake.is_open]
        self.size_bytes = sum(item.size_bytes for item in self.items)

    def payload(self, edge: str) -> bytes:
        """Return the encoded command."""
        ack_items = self.ack_items
        if ack_items:
            return encode_command(_acknowledged(ack_items))
        runs = [item for item in self.items if isinstance(item, PacketRun)]
        blocks = [memoryview(run.block)[: run.size_bytes] for run in runs]
        return encode_command(edge_batch(edge, self.number, runs), blocks)


def cut(waiting: deque[Item]) -> list[Item]:
    """Take the items of the next batch, all of one kind; `waiting` is not empty.

    Each session's items keep their order. The order of different sessions does not matter, so that
    a few acknowledgements in between do not split everything else into small batches.
    """
    first = waiting.popleft()
    taken, kind = [first], type(first)
    count_max = BATCH_MAX_COUNT if kind is PacketRun else ACK_ITEMS_MAX_COUNT
    count, size, facts = first.count, first.size_bytes, first.facts_count
    passed: list[Item] = []
    intakes_passed: set[Intake] = set()
    for _ in range(min(len(waiting), CUT_MAX_COUNT)):
        item = waiting[0]
        if type(item) is not kind or item.intake in intakes_passed:
            intakes_passed.add(item.intake)
            passed.append(waiting.popleft())
            continue
        count += item.count
        size += item.size_bytes
        facts += item.facts_count
        if count > count_max or size > BATCH_SOFT_MAX_BYTES or facts > BATCH_FACTS_MAX_COUNT:
            break
        taken.append(waiting.popleft())
    waiting.extendleft(reversed(passed))
    return taken


def _acknowledged(ack_items: Sequence[AckItem]) -> OrderAcked | FinalAcked:
    """Return the command for the items."""
    if isinstance(ack_items[0], FinalAckItem):
        return FinalAcked(
            array("Q", [item.subject for item in ack_items]),
            array("Q", [item.number for item in ack_items]),
            b"".join(item.queue_manager for item in ack_items),
            tuple(item.address for item in ack_items),
        )
    furthest = _furthest(ack_items)
    return OrderAcked(
        array("Q", [subject for subject, _, _ in furthest]),
        array("Q", furthest.values()),
        b"".join(queue_manager for _, queue_manager, _ in furthest),
        tuple(address for _, _, address in furthest),
    )


def _furthest(ack_items: Sequence[AckItem]) -> dict[tuple[int, Guid, str], int]:
    """Return the highest number of each sequence and peer: OrderAcks are cumulative, but only those
    of the right peer count.
    """
    furthest: dict[tuple[int, Guid, str], int] = {}
    for item in ack_items:
        furthest[item.key] = max(item.number, furthest.get(item.key, 0))
    return furthest


def ack_verdicts(ack_items: Sequence[AckItem], verdicts: IntArray) -> list[int]:
    """Return the verdict of each item, of the command that they share.

    An OrderAck with a lower number than another has none of its own: it took effect with that one.
    """
    if isinstance(ack_items[0], FinalAckItem):
        return verdicts.tolist()
    furthest = _furthest(ack_items)
    of = dict(zip(furthest, verdicts, strict=True))
    return [of[item.key] if item.number == furthest[item.key] else 0 for item in ack_items]


def edge_batch(edge: str, number: int, runs: Sequence[PacketRun]) -> EdgeBatch:
    """Return the command that carries the runs' packets, without the packets."""
    offsets, checksums = array("I", (0,)), array("I")
    numbers: dict[Facts, int] = {}
    facts_of = bytearray()
    base = 0
    for run in runs:
        offsets.extend([base + offset for offset in run.offsets[1:]] if base else run.offsets[1:])
        checksums.extend(run.checksums)
        base += run.size_bytes
        plain = numbers.setdefault(run.facts, len(numbers))
        facts_at = len(facts_of)
        facts_of += bytes((plain,)) * run.count
        for k, facts in run.other_facts.items():
            facts_of[facts_at + k] = numbers.setdefault(facts, len(numbers))
    # The places of the packets are set when the entry is read.
    return EdgeBatch(
        edge, number, _NO_PACKETS, 0, offsets, checksums, bytes(facts_of), tuple(numbers), 0, 0
    )
