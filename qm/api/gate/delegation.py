"""Calls that the console of this process makes for the people who signed in to it.

The console calls the API as every program does, with its node's certificate, and says for whom.
Only it can: the word of this process goes with it, which nobody else knows.
"""

import hmac
import secrets
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from qm.api.gate.identity import Principal, Role, principal_of
from qm.security.sid import sid_from_text, sid_text

WORD_KEY: Final = "quorate-console-word"
"""Metadata: the secret of the process."""
FOR_KEY: Final = "quorate-console-for"
"""Metadata: role, SID and name of who signed in, `role:sid:name`, percent-encoded."""
_WORD_BYTES: Final = 32


class Delegation:
    """Knows the word of this process."""

    def __init__(self) -> None:
        self._word = secrets.token_hex(_WORD_BYTES)

    def metadata(self, who: Principal) -> tuple[tuple[str, str], ...]:
        """Return what the console adds to its calls for somebody."""
        text = f"{who.role.value}:{sid_text(who.sids[0])}:{who.name}"
        return ((WORD_KEY, self._word), (FOR_KEY, quote(text, safe=":")))

    def acting(self, caller: Principal, given: Iterable[tuple[str, str | bytes]]) -> Principal:
        """Return for whom a node calls: itself, or who signed in to this process's console."""
        if caller.role is not Role.NODE:
            return caller
        metadata = dict(given)
        word, who = metadata.get(WORD_KEY, ""), metadata.get(FOR_KEY, "")
        if not isinstance(word, str) or not isinstance(who, str) or not who:
            return caller
        if not hmac.compare_digest(word.encode(), self._word.encode()):
            return caller
        role, sid, name = unquote(who).split(":", 2)
        return principal_of(name, Role(role), sid_from_text(sid))
