"""What clients saw, one JSON line per event: the only evidence for a verdict.

The demo, load generators, drills and the simulator use the same record (DESIGN section 9,
contract 10). Senders use MSMQ, receivers the data plane; servers' own counters never appear.
"""

from enum import Enum
from pathlib import Path

import msgspec


class EventKind(Enum):
    """What happened at a client."""

    SENT = "sent"
    """The last byte of the message was handed to the socket, or the call was made."""
    ACKNOWLEDGED = "acknowledged"
    """SessionAck (and OrderAck for transactional), or a successful reply: must not be lost now."""
    RECEIVED = "received"
    """A destructive read returned it to the application."""
    PEEKED = "peeked"
    """A peek at the last message of a queue that has no readers; `message` is empty if there was
    none."""
    COUNTED = "counted"
    """The number of messages in such a queue: `number`."""
    REMAINING = "remaining"
    """The message was in its queue, or in the dead-letter queue, after the load had ended."""
    RETURNED = "returned"
    """A two-phase read was rejected: it is in the queue again."""
    COMMITTED = "committed"
    """The transaction of earlier events committed; `outcome_of` names it."""
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The commit of a transaction got no answer: it may or may not have taken effect."""
    ADVANCED = "advanced"
    """AckSequenceNumber advanced; `number` is how many sent messages it does not cover."""
    FINAL = "final"
    """A FinalAck reported the message's fate; `detail` is the MessageClass in hexadecimal."""
    RECONNECTED = "reconnected"
    FAULT = "fault"
    """Written by the runner: a fault begins; `detail` names it."""
    HEALED = "healed"
    """Written by the runner: the fault `detail` has ended."""
    ELECTED = "elected"
    """Written by the runner: the node `detail` was seen to lead."""


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a history."""

    time_ns: int
    """Monotonic clock of the machine, the same for all clients on it."""
    client: str
    kind: EventKind
    queue: str = ""
    message: str = ""
    """The workload's name for the message, carried in its body; unique in the run."""
    delivery: str = ""
    """"express", "recoverable" or "transactional"."""
    priority: int = 3
    number: int = 0
    """Counts the client's messages to a queue from 1; defines the order of transactional
    streams."""
    transaction: str = ""
    lookup_identifier: int = 0
    detail: str = ""
    began_ns: int = 0
    """When a look was requested; `time_ns` is when its answer arrived."""
    address: str = ""
    """Address at which a reconnected sender is now."""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(HistoryEvent)


class HistoryWriter:
    """Appends events to a file; buffered, so that recording does not slow what it records."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=1 << 16)

    def write(self, event: HistoryEvent) -> None:
        """Append one event."""
        self._file.write(_ENCODER.encode(event) + b"\n")

    def flush(self) -> None:
        """Pass everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def read_history(path: Path) -> list[HistoryEvent]:
    """Return the events of a file. An incomplete last line of a killed client is skipped."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    return [_DECODER.decode(line) for line in lines[:-1] if line]
