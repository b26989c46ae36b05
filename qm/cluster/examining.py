"""Examination of messages that came over no session; `qm.edge.security` does it for the API."""

from typing import NamedTuple, Protocol

from qm.model.values.commands import Facts


class Examined(NamedTuple):
    """What became of a packet."""

    packet: bytes
    """With its body in clear, and what its signature was verified as."""
    facts: Facts
    """What was found, for apply to judge."""


class Examining(Protocol):
    """Verifies signatures and decrypts bodies."""

    async def examine(self, packet: bytes, sender: str) -> Examined:
        """Examine a sound packet. `sender`: whose ration of failures and session keys it uses up.

        Raises Unavailable while this node cannot: another one may.
        """
