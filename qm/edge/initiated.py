"""What peers send back over sessions that this node opened to deliver its own messages.

A session carries messages both ways [MS-MQQB 3.1.1.3], so such arrivals join the flow of those on
accepted ones. The leader knows these sessions already: they are not announced to it.
"""

from collections.abc import Sequence
from typing import Protocol

from qm.edge.flow import Arrival, Flow
from qm.edge.relay import Relay
from qm.session import CloseReason
from qm.wire.guid import Guid


class Port(Protocol):
    """The session, as whoever opened it shows it here."""

    def commit(self, upto: int) -> None:
        """Every arrival up to this position has its verdict, durably (`Session.commit`)."""

    def close(self, reason: CloseReason, detail: str) -> None:
        """End the session."""


class InitiatedSession:
    """One such session."""

    def __init__(self, relay: Relay, queue_manager: Guid, address: str, port: Port) -> None:
        self._port = port
        self._flow: Flow = relay.open_flow(self, queue_manager, address, is_announced=False)

    def arrived(self, event: Arrival) -> None:
        """These came, in order; `Port.commit` is called for them."""
        self._flow.arrived(event)

    def closed(self) -> None:
        """The session is gone; the port is not called any more."""
        self._flow.close(())

    # FlowOwner

    def commit(self, upto: int) -> None:
        """See FlowOwner."""
        self._port.commit(upto)

    def close(self, reason: CloseReason, detail: str) -> None:
        """See FlowOwner."""
        self._port.close(reason, detail)

    def hold(self, is_held: bool) -> None:
        """See FlowOwner. What such sessions read is little, and bounded by their windows."""
        del is_held

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> bool:
        """See FlowOwner."""
        del tokens, packets
        return False


class InitiatedSessions:
    """Opens a flow for each."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def open(self, queue_manager: Guid, address: str, port: Port) -> InitiatedSession:
        """A session with a peer is open; its GUID is a claim unless we expected it."""
        return InitiatedSession(self._relay, queue_manager, address, port)
