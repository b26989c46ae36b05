"""Queues that a command is about to bring messages to, for readers that wait at the leader.

A reader that tries while a message is being proposed has its try in the same entry behind it, or in
the next one, and need not wait until the message is applied. The message may still be refused.
"""

from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from qm.model.queries import View
from qm.model.state.addressing import sent_name
from qm.model.values.columns import U32
from qm.names.errors import QueueNameError
from qm.names.format_name import FormatName, parse_format_name
from qm.names.guid import GUID_SIZE_BYTES
from qm.node.relay.disk_admission import is_edge_batch, is_send
from qm.store.codec import Inspected
from qm.wire.packets.peek import HEAD, peek_destination, peek_head

ANNOUNCED_MAX: Final = 8
"""Messages of a command, and commands of a call, that are looked at: of more, readers hear when
they are applied."""
NAMES_KEPT_MAX: Final = 1_024
_NAMED_MIN_BYTES: Final = HEAD.size + GUID_SIZE_BYTES
"""Of a packet that holds its destination."""


def queues_of(command: Inspected, view: View) -> Iterator[int]:
    """Yield the queues that a command's messages name, of those that are here."""
    manager = view.ledger.manager
    if manager is None:
        return
    if is_send(command):
        names = [target.format_name for target in command.message.targets[:ANNOUNCED_MAX]]
    elif is_edge_batch(command):
        names = [sent_name(key, manager.identifier) for key in _destinations(command)]
    else:
        return
    for text in names:
        name = _parsed(text)
        found = 0 if name is None else view.registry.format_name(name)
        if found > 0:
            yield found


def _destinations(command: Inspected) -> Iterator[bytes]:
    """Yield destinations as the first packets of a batch have them."""
    packets, offsets = command.payload, array(U32, command.message.offsets)
    for begin, end in pairwise(offsets[: ANNOUNCED_MAX + 1]):
        at = command.blob_at + begin
        if end - begin >= _NAMED_MIN_BYTES:
            key = peek_destination(packets, at, peek_head(packets, at))
            if len(key) > 1:
                yield key


@lru_cache(NAMES_KEPT_MAX)
def _parsed(text: str) -> FormatName | None:
    try:
        return parse_format_name(text)
    except QueueNameError:
        return None
