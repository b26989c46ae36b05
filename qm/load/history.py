"""What clients saw, one JSON line per event: the only evidence that a verdict may rest on.

The same record serves the demo, load generators, drills and the simulator (DESIGN section 9,
contract 10). Senders speak MSMQ, receivers the data plane; servers' own counters never appear.
"""

from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

HISTORY_VERSION: Final = 1


class EventKind(Enum):
    """What happened at a client."""

    SENT = "sent"
    """The last byte of the message was handed to the socket, or the call was made."""
    ACKNOWLEDGED = "acknowledged"
    """SessionAck (and OrderAck for transactional), or a successful reply: never lost from here."""
    RECEIVED = "received"
    """A destructive read returned it to the application."""
    PEEKED = "peeked"
    """A look at the last message of a queue from which nobody takes any; `message` is empty if
    there was none."""
    COUNTED = "counted"
    """Such a queue was asked how many messages it holds: `number`."""
    REMAINING = "remaining"
    """Seen in its queue, or in the dead-letter queue, after the load had ended."""
    RETURNED = "returned"
    """A two-phase read was rejected: it is in the queue again."""
    COMMITTED = "committed"
    """The transaction of earlier events committed; `outcome_of` names it."""
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """No answer to the commit of a transaction: it may or may not have happened."""
    ADVANCED = "advanced"
    """AckSequenceNumber moved; `number` counts the messages sent that it has not reached."""
    FINAL = "final"
    """A FinalAck said what became of the message; `detail` is the MessageClass in hexadecimal."""
    RECONNECTED = "reconnected"
    FAULT = "fault"
    """Written by the runner: a fault begins; `detail` names it."""
    HEALED = "healed"
    """Written by the runner: `detail` is over."""
    ELECTED = "elected"
    """Written by the runner: it saw that the node `detail` leads now."""


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    time_ns: int
    """Monotonic clock of the machine, the same for all clients on it."""
    client: str
    kind: EventKind
    queue: str = ""
    message: str = ""
    """The workload's own name of the message, carried in its body; unique in the run."""
    delivery: str = ""
    """"express", "recoverable" or "transactional"."""
    priority: int = 3
    number: int = 0
    """Counts the client's messages to a queue from 1; order of transactional streams is by it."""
    transaction: str = ""
    lookup_identifier: int = 0
    detail: str = ""
    began_ns: int = 0
    """When a look was asked for; `time_ns` is when its answer came."""
    address: str = ""
    """Where a sender that reconnected is now."""


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
        """Hand everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def read_history(path: Path) -> list[HistoryEvent]:
    """Return the events of a file. A torn last line, of a killed client, is left out."""
    data = path.read_bytes()
    lines = data.split(b"\n")
    return [_DECODER.decode(line) for line in lines[:-1] if line]
