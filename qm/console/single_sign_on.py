"""Signing in through an OpenID provider: the authorization code flow with PKCE, state and nonce.

Each attempt belongs to one browser, by a cookie, and ends with its first answer: a code or state
that was stolen, repeated or brought by another browser signs nobody in.
"""

import asyncio
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from qm.console.id_tokens import Claims, NotBelieved, UnknownKey, principal_in, verified
from qm.console.provider import (
    PROVIDER_MAX_S,
    Provider,
    ProviderRefuses,
    ProviderSilent,
    error_name,
)
from qm.console.sign_ins import Person, Refused, giving_way
from qm.security.guesses import Guesses

BACK_PATH: Final = "/sign-in/provider/back"
"""What the provider must know as the address to return to, below the console's own."""
OUT_PATH: Final = "/sign-in"
"""Where it leads back to from signing out, which it must know as well."""
HINT_MAX_CHARS: Final = 4_096
"""A longer ID token is not kept for signing out: it would not fit into an address."""
SESSION_MAX_S: Final = 3_600.0
"""Then the browser asks the provider anew: what it withdrew ends here within this time."""
ATTEMPT_MAX_S: Final = 600.0
ATTEMPTS_OF_PLACE_MAX: Final = 32
"""Begun and not ended, from one address; the oldest gives way."""
ATTEMPTS_MAX: Final = 1_024
"""Of all; then the oldest of the address that has most of them."""
FAILURES_MAX: Final = 20
"""Failed attempts from one address within FAILURES_WINDOW_S."""
FAILURES_WINDOW_S: Final = 60.0
PLACES_MAX: Final = 4_096
CODE_MAX_CHARS: Final = 4_096
_NOT_BEGUN: Final = (
    "This sign-in was not begun in this browser, was used already, or is older than ten minutes:"
    " begin again."
)
_NOT_BELIEVED: Final = "The provider did not prove who you are, or you have no role here."


class SsoSettings(msgspec.Struct, frozen=True):
    """Which provider, and what its claims are worth."""

    claims: Claims
    secret_file: Path | None
    ca_file: Path | None
    scopes: tuple[str, ...]
    url: str
    """Of this console, as browsers and the provider know it."""


class _Attempt(msgspec.Struct, frozen=True):
    browser: str
    """The cookie of the browser that began it."""
    place: str
    nonce: str
    verifier: str
    valid_until_s: float


class SingleSignOn:
    """Attempts to sign in through one provider, in one node's memory."""

    def __init__(
        self,
        settings: SsoSettings,
        now_s: Callable[[], float],
        secret: Callable[[], str],
        refused: Callable[[str, str], None],
    ) -> None:
        """`secret` makes a new one that cannot be guessed; `refused`: see `PasswordCheck`."""
        claims = settings.claims
        self._settings = settings
        self._now_s = now_s
        self._secret = secret
        self._refused = refused
        self._provider = Provider(
            claims.issuer, claims.client_id, settings.secret_file, settings.ca_file, now_s
        )
        self._attempts: dict[str, _Attempt] = {}
        """By state, the oldest first."""
        self._failures = Guesses(FAILURES_MAX, FAILURES_WINDOW_S, PLACES_MAX, now_s)
        self._told = Guesses(1, FAILURES_WINDOW_S, PLACES_MAX, now_s)
        """Refusals of which one event a minute is enough, by what they are about."""

    @property
    def name(self) -> str:
        """What people may know the provider by."""
        return urlsplit(self._settings.claims.issuer).netloc

    @property
    def url(self) -> str:
        """Of this console; attempts begin there, or the browser's cookie would not come back."""
        return self._settings.url

    async def close(self) -> None:
        """Close connections to the provider."""
        await self._provider.close()

    async def begin(self, place: str) -> tuple[str, str]:
        """Return the provider's address for a new attempt, and the cookie of its browser.

        Raises Refused.
        """
        try:
            async with asyncio.timeout(PROVIDER_MAX_S):
                description = await self._provider.description()
        except (ProviderSilent, TimeoutError) as error:
            raise self._silent(error, place) from None
        owners = {state: one.place for state, one in self._attempts.items()}
        for state in giving_way(owners, place, ATTEMPTS_OF_PLACE_MAX, ATTEMPTS_MAX):
            del self._attempts[state]
        state, browser, nonce, verifier = (self._secret() for _ in range(4))
        self._attempts[state] = _Attempt(
            browser, place, nonce, verifier, self._now_s() + ATTEMPT_MAX_S
        )
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.claims.client_id,
            "redirect_uri": self.url + BACK_PATH,
            "scope": " ".join(dict.fromkeys(("openid", *self._settings.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(description.authorization_endpoint, asked), browser

    async def finish(self, asked: Mapping[str, str], browser: str, place: str) -> Person:
        """Return whom the provider proves with its answer. Raises Refused."""
        if self._failures.is_over(place):
            self._tell_once(place, "too many failures through the provider", place)
            raise Refused("Too many attempts: wait a minute.", 429)
        try:
            async with asyncio.timeout(PROVIDER_MAX_S):
                return await self._person(asked, browser)
        except (ProviderSilent, TimeoutError) as error:
            raise self._silent(error, place) from None
        except ProviderRefuses as error:
            raise self._failed(
                f"The provider refuses: {error}.", f"the provider says {error}", place
            ) from None
        except NotBelieved as error:
            raise self._failed(_NOT_BELIEVED, str(error), place) from None
        except _NotBegun as error:
            raise self._failed(_NOT_BEGUN, str(error), place) from None

    async def _person(self, asked: Mapping[str, str], browser: str) -> Person:
        attempt = self._ended_attempt(asked.get("state", ""), browser)
        description = await self._provider.description()
        issuer = asked.get("iss")
        is_told = description.authorization_response_iss_parameter_supported
        if (issuer is not None or is_told) and issuer != self._settings.claims.issuer:
            raise NotBelieved("the answer is from another provider")  # RFC 9207
        if "error" in asked:
            raise ProviderRefuses(error_name(asked["error"]))
        code = asked.get("code", "")
        if not 0 < len(code) <= CODE_MAX_CHARS:
            raise NotBelieved("the answer has no code")
        token = await self._provider.id_token(code, attempt.verifier, self.url + BACK_PATH)
        expected = self._settings.claims
        try:
            claims = verified(token, await self._provider.keys(), expected, attempt.nonce)
        except UnknownKey:
            keys = await self._provider.keys(is_one_missing=True)
            claims = verified(token, keys, expected, attempt.nonce)
        hint = token if len(token) <= HINT_MAX_CHARS else ""
        return Person(
            principal_in(claims, expected), _always, SESSION_MAX_S, partial(self._way_out, hint)
        )

    async def _way_out(self, hint: str) -> str:
        """Return the address at which the provider ends its own session; "" if it has none, does
        not answer, or names one without TLS. `hint`: the ID token that it gave.
        """
        try:
            async with asyncio.timeout(PROVIDER_MAX_S):
                endpoint = (await self._provider.description()).end_session_endpoint
        except (ProviderSilent, TimeoutError):
            return ""
        if urlsplit(endpoint).scheme != "https":
            return ""
        asked = {
            "client_id": self._settings.claims.client_id,
            "post_logout_redirect_uri": self.url + OUT_PATH,
        }
        return _with_query(endpoint, asked | ({"id_token_hint": hint} if hint else {}))

    def _ended_attempt(self, state: str, browser: str) -> _Attempt:
        """Return the attempt of an answer, which ends. Raises _NotBegun."""
        attempt = self._attempts.get(state)
        if attempt is None:
            raise _NotBegun("a state that is unknown, or was used")
        if not browser or not hmac.compare_digest(attempt.browser.encode(), browser.encode()):
            raise _NotBegun("a state of another browser")
        del self._attempts[state]
        if self._now_s() >= attempt.valid_until_s:
            raise _NotBegun("an attempt that took too long")
        return attempt

    def _silent(self, error: Exception, place: str) -> Refused:
        why = str(error) or f"no answer within {PROVIDER_MAX_S} s"
        self._tell_once(why, f"the provider {self.name} cannot be used: {why}", place)
        return Refused(
            f"The provider {self.name} does not answer as it should: try again, or sign in"
            " another way. The events of the cluster say what is wrong.",
            503,
        )

    def _tell_once(self, about: str, why: str, place: str) -> None:
        if not self._told.is_over(about):
            self._told.note(about)
            self._refused(why, place)

    def _failed(self, text: str, why: str, place: str) -> Refused:
        self._failures.note(place)
        self._refused(why, place)
        return Refused(text, 403)


class _NotBegun(Exception):
    """An answer to nothing that this browser asked."""


def _with_query(endpoint: str, asked: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"


def _always() -> bool:
    return True
