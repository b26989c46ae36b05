"""What an edge knows of a message beyond its bytes (DESIGN 1.4): facts, never verdicts.

Verification and decryption are to be added here: `MessageFacts.of` sees every message that has a
SecurityHeader. Today nothing is verified and nothing decrypted. A signature is reported as present
and unverified, which apply refuses; an encrypted body keeps Flags.EB without a fact that it was
decrypted, which apply refuses, too.
"""

from typing import Final

import msgspec

from qm.model.values.commands import Facts, SignatureFact
from qm.wire.guid import Guid
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.user_message import UserMessage


class MessageFacts:
    """The facts of one session's messages; equal ones are one object, so a batch names it once."""

    __slots__ = ("_unverified", "plain")

    def __init__(self, session: int, claimed_guid: Guid, address: str) -> None:
        self.plain: Final = Facts(session, claimed_guid, address, ())
        """Facts of a message without SecurityHeader: anonymous (QB-A28)."""
        self._unverified: Facts | None = None

    def of(self, message: UserMessage) -> Facts:
        """Return the facts of a parsed message."""
        if message.security is None or not _is_signed(message.security):
            return self.plain
        if self._unverified is None:
            self._unverified = msgspec.structs.replace(
                self.plain, signature=SignatureFact.UNVERIFIED
            )
        return self._unverified


def _is_signed(security: SecurityHeader) -> bool:
    return bool(security.signature)
