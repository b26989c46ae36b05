"""Accounts for NTLM: names with the hash of their password, and the SIDs that stand for them."""

import hmac
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from qm.rpc.security.ntlm_keys import KEY_SIZE_BYTES, proof_of, response_key
from qm.rpc.security.provider import AUTHENTICATED_USERS, NETWORK, Identity
from qm.security.guesses import Guesses
from qm.security.sid import Sid

FAILURES_MAX: Final = 5
"""Failed logons of one user from one address within LOCK_WINDOW_S; further ones are refused."""
LOCK_WINDOW_S: Final = 60.0
WATCHED_PAIRS_MAX: Final = 4_096
"""Pairs of user and address whose failures are remembered; the oldest goes first."""


class Account(msgspec.Struct, frozen=True):
    """One account."""

    name: str
    nt_hash: bytes
    """16 bytes, as good as the password: never shown."""
    sids: tuple[Sid, ...]
    """The user's first, then its groups."""
    domain: str = ""
    """Empty for a local account, which any domain is accepted for."""
    is_enabled: bool = True


class AccountSource(Protocol):
    """Where accounts come from; asked at each logon, so that changes take effect at once."""

    def find(self, name: str, domain: str) -> Account | None:
        """Return the account of a name, in any case."""


_NOBODY: Final = Account("", bytes(KEY_SIZE_BYTES), (), is_enabled=False)


class Logons:
    """Judges NTLMv2 responses, and slows down those who guess."""

    def __init__(self, source: AccountSource, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._source = source
        self._failures = Guesses(FAILURES_MAX, LOCK_WINDOW_S, WATCHED_PAIRS_MAX, now)

    def judge(
        self, user: str, domain: str, address: str, challenge: bytes, proof: bytes, blob: bytes
    ) -> tuple[Identity, bytes] | None:
        """Return (identity, response key) of a right response, else None.

        An unknown user costs the same work as a wrong password. The domain counts as sent, then as
        empty (RP-A15).
        """
        key = (user.casefold(), address)
        if self._failures.is_over(key):
            return None
        account = self._source.find(user, domain) or _NOBODY
        found = None
        for candidate in (domain, ""):
            ours = response_key(account.nt_hash, user, candidate)
            if hmac.compare_digest(proof_of(ours, challenge, blob), proof):
                found = ours
        if found is None or not account.is_enabled:
            self._failures.note(key)
            return None
        self._failures.forget(key)
        sids = (*account.sids, AUTHENTICATED_USERS, NETWORK)
        return Identity(account.name, sids), found
