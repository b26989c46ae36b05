"""What an entry's data say of one of the messages that it brought: its packet, and who sent it."""

from typing import Final

import msgspec

from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST
from qm.model.values.commands import EdgeBatch, Send
from qm.security.sid import sid_text
from qm.store.codec import decode_entry, packet_spans


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who brought a message; "" for what does not apply."""

    client_id: str = ""
    """Client of the API, or a node on behalf of one of RPC."""
    peer_queue_manager: bytes = b""
    """GUID of the queue manager whose session it came in."""
    peer_address: str = ""
    sender_sid: str = ""
    """SID of the sender, as far as it was proven."""


class CarriedMessages:
    """The messages that one entry brought. Methods raise UnknownCommand."""

    def __init__(self, index: int, data: bytes) -> None:
        self._index: Final = index
        self._data: Final = data
        self._spans: Final = packet_spans(index, data)

    def packet(self, ordinal: int) -> bytes | None:
        """Return the packet of a body, None if apply made it."""
        if ordinal >= min(len(self._spans), BODY_ORDINAL_SYNTHETIC_FIRST):
            return None
        offset, length = self._spans[ordinal]
        return self._data[offset : offset + length]

    def origin(self, ordinal: int) -> Origin | None:
        """Return who brought the message of a body, None if apply made it."""
        for command in decode_entry(self._index, self._data).commands:
            if not isinstance(command, EdgeBatch | Send):
                continue
            k = ordinal - command.first_ordinal
            if isinstance(command, EdgeBatch) and 0 <= k < len(command.facts_of):
                facts = command.facts[command.facts_of[k]]
                return Origin(
                    peer_queue_manager=facts.peer_queue_manager,
                    peer_address=facts.peer_address,
                    sender_sid=_first(facts.sender_sids),
                )
            if isinstance(command, Send) and 0 <= k < len(command.targets):
                sender = _first(command.sender_sids)
                return Origin(client_id=command.request.client_id, sender_sid=sender)
        return None


def _first(sids: tuple[bytes, ...]) -> str:
    return sid_text(sids[0]) if sids else ""
