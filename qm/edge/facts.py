"""What an edge knows of a message beyond its bytes (DESIGN 1.4): facts, never verdicts.

`qm.edge.security` finds the facts of messages with a SecurityHeader. While the cluster's version is
too old for them, a signature is reported as present and unverified and an encrypted body keeps
Flags.EB without a fact that it was decrypted: apply refuses both.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from qm.model.values.commands import Facts, SignatureFact
from qm.wire.guid import Guid
from qm.wire.packets.user_message import UserMessage


class MessageFacts:
    """The facts of one session's messages; equal ones are one object, so a batch names it once."""

    __slots__ = ("_sealed", "_unverified", "plain")

    def __init__(self, session: int, claimed_guid: Guid, address: str) -> None:
        self.plain: Final = Facts(session, claimed_guid, address, ())
        """Facts of a message without SecurityHeader: anonymous (QB-A28)."""
        self._sealed: Facts | None = None
        self._unverified: Facts | None = None

    @property
    def sealed(self) -> Facts:
        """The same of a message whose body is sealed for the disk."""
        if self._sealed is None:
            self._sealed = msgspec.structs.replace(self.plain, is_sealed=True)
        return self._sealed

    def of_all(self, secured: Mapping[int, UserMessage]) -> dict[int, Facts]:
        """Return the facts of messages that nobody examines, where they are not the plain ones."""
        return {
            k: self._of_unverified()
            for k, message in secured.items()
            if message.security is not None and message.security.signature
        }

    def _of_unverified(self) -> Facts:
        if self._unverified is None:
            self._unverified = msgspec.structs.replace(
                self.plain, signature=SignatureFact.UNVERIFIED
            )
        return self._unverified
