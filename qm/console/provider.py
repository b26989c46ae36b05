"""An OpenID provider as the console asks it: its description, its keys, tokens for codes.

Every answer is bounded in bytes and time. What it says is kept for a while; a provider that does
not answer is left alone for a moment, so that nobody waits for it in vain twice.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

PROVIDER_MAX_S: Final = 2.5
"""For all that one page asks of it."""
ANSWER_MAX_BYTES: Final = 256 << 10
KEPT_S: Final = 3_600.0
"""Its description and its keys: a key that it withdrew is accepted for as long."""
KEYS_AGAIN_S: Final = 30.0
"""Between fetches of keys because a token names an unknown one."""
SILENT_S: Final = 5.0
"""How long a provider that did not answer is not asked again for its description and keys."""
KEYS_MAX: Final = 64
_CONNECTIONS_MAX: Final = 4
_DESCRIPTION_PATH: Final = "/.well-known/openid-configuration"


class ProviderSilent(Exception):
    """It does not answer, or not as it should; the text says what, for operators."""


class ProviderRefuses(Exception):
    """It gives no token for a code; the text has its reason."""


class Description(msgspec.Struct, frozen=True):
    """What the console needs of a provider's metadata (OpenID Connect Discovery 1.0, 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False
    end_session_endpoint: str = ""
    """Of OpenID Connect RP-Initiated Logout 1.0; empty: it has none."""


class _Keys(msgspec.Struct, frozen=True):
    keys: tuple[dict[str, Any], ...]


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str
    token_type: str


class _Error(msgspec.Struct, frozen=True):
    error: str = ""


class Provider:
    """One provider, asked over TLS."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        secret_file: Path | None,
        ca_file: Path | None,
        now_s: Callable[[], float],
    ) -> None:
        """`now_s`: monotonic seconds. `secret_file`: None for a client without a secret."""
        self._issuer = issuer
        self._client_id = client_id
        self._secret_file = secret_file
        self._ca_file = ca_file
        self._now_s = now_s
        self._http: aiohttp.ClientSession | None = None
        self._in_turn = asyncio.Lock()
        self._description: tuple[Description, float] | None = None
        self._keys: tuple[tuple[dict[str, Any], ...], float] | None = None
        self._silent_until_s = 0.0
        self._silence = ""

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()

    # What is kept for a while

    async def description(self) -> Description:
        """Return its description. Raises ProviderSilent."""
        async with self._in_turn:
            if self._description is None or self._now_s() - self._description[1] > KEPT_S:
                url = self._issuer.rstrip("/") + _DESCRIPTION_PATH
                found = await self._kept(url, Description, self._check)
                self._description = (found, self._now_s())
            return self._description[0]

    def _check(self, found: Description) -> None:
        if found.issuer != self._issuer:
            raise ProviderSilent(f"it says that its issuer is {found.issuer[:200]!r}")
        for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if urlsplit(url).scheme != "https":
                raise ProviderSilent(f"it names an address without TLS: {url[:200]!r}")

    async def keys(self, *, is_one_missing: bool = False) -> tuple[dict[str, Any], ...]:
        """Return its keys. `is_one_missing`: there may be new ones. Raises ProviderSilent."""
        description = await self.description()
        async with self._in_turn:
            kept_s = KEYS_AGAIN_S if is_one_missing else KEPT_S
            if self._keys is None or self._now_s() - self._keys[1] > kept_s:
                found = await self._kept(description.jwks_uri, _Keys)
                self._keys = (found.keys[:KEYS_MAX], self._now_s())
            return self._keys[0]

    async def _kept(
        self, url: str, kind: type[Any], check: Callable[[Any], None] = lambda found: None
    ) -> Any:
        """Fetch what is kept, unless that failed a moment ago. Raises ProviderSilent."""
        if self._now_s() < self._silent_until_s:
            raise ProviderSilent(self._silence)
        try:
            status, answer = await self._ask("GET", url)
            if status != 200:
                raise ProviderSilent(f"{url} answers {status}")
            found = _decoded(answer, kind)
            check(found)
        except ProviderSilent as error:
            self._silent_until_s, self._silence = self._now_s() + SILENT_S, str(error)
            raise
        except asyncio.CancelledError:  # out of time
            self._silent_until_s = self._now_s() + SILENT_S
            self._silence = f"{url} does not answer in time"
            raise
        return found

    # Tokens

    async def id_token(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Return the ID token that a code stands for. Raises ProviderSilent, ProviderRefuses."""
        description = await self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        secret = await asyncio.to_thread(self._secret)
        if not secret:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in description.token_endpoint_auth_methods_supported:
            # RFC 6749 2.3.1 has both parts encoded as in a form first.
            pair = (quote(self._client_id, safe=""), quote(secret, safe=""))
            headers["Authorization"] = aiohttp.encode_basic_auth(*pair, encoding="utf-8")
        else:
            form |= {"client_id": self._client_id, "client_secret": secret}
        status, answer = await self._ask("POST", description.token_endpoint, form, headers)
        if 400 <= status < 500:
            raise ProviderRefuses(error_name(_decoded(answer, _Error).error))
        if status != 200:
            raise ProviderSilent(f"its token endpoint answers {status}")
        tokens = _decoded(answer, _Tokens)
        if tokens.token_type.lower() != "bearer":
            raise ProviderSilent("its tokens are of an unknown type")
        return str(tokens.id_token)

    def _secret(self) -> str:
        if self._secret_file is None:
            return ""
        try:
            return self._secret_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ProviderSilent(f"{self._secret_file} cannot be read: {error}") from None

    # HTTP

    async def _ask(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return status and body of an answer. Raises ProviderSilent."""
        try:
            async with self._session().request(
                method, url, data=form, headers=headers, allow_redirects=False
            ) as answer:
                body = await answer.content.read(ANSWER_MAX_BYTES + 1)
                while len(body) <= ANSWER_MAX_BYTES and not answer.content.at_eof():
                    body += await answer.content.read(ANSWER_MAX_BYTES + 1 - len(body))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderSilent(
                f"{url} does not answer: {error or type(error).__name__}"
            ) from None
        if len(body) > ANSWER_MAX_BYTES:
            raise ProviderSilent(f"{url} answers with more than {ANSWER_MAX_BYTES >> 10} KiB")
        return answer.status, body

    def _session(self) -> aiohttp.ClientSession:
        """Return the HTTP client. Raises OSError."""
        if self._http is None:
            tls = ssl.create_default_context(cafile=self._ca_file)
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, limit=_CONNECTIONS_MAX),
                timeout=aiohttp.ClientTimeout(total=PROVIDER_MAX_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http


def error_name(given: str) -> str:
    """Return an error code of OAuth, or that there is none: it goes into logs and pages."""
    is_code = 0 < len(given) <= 64 and given.isascii() and given.replace("_", "").isalnum()
    return given if is_code else "no reason that can be shown"


def _decoded(answer: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProviderSilent(f"its answer cannot be read: {error}") from None
