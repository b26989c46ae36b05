"""An OpenID provider for tests: a server with TLS, keys, codes and PKCE, and its lies."""

from __future__ import annotations

import asyncio
import contextlib
import html
import secrets
import ssl
import tempfile
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from qm.api.gate.identity import Role
from qm.node.upkeep.pki import create_authority, issue

CLIENT_ID, CLIENT_SECRET = "quorate", "a secret: with %41 & more"
LOGIN_PAGE = (
    "<!doctype html><title>Provider</title><form method=post action=/login>"
    "<input type=hidden name=asked value='{}'><button>Log in</button></form>"
)


class Provider:
    """One provider. Attributes are what a test may change while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = create_authority(folder, "authority of a provider")
        self.files = issue(folder, "provider", Role.NODE, ["localhost"])
        self.secret_file = folder / "client-secret"
        self.secret_file.write_text(CLIENT_SECRET + "\n")
        self.issuer = ""
        self.keys: dict[str, Any] = {"first": rsa_key(), "second": ec_key()}
        self.key_id = "first"
        self.claims: dict[str, Any] = {"sub": "248289761001", "roles": ["staff", "queue-admins"]}
        self.described: dict[str, Any] = {}
        """Changes of the description."""
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.checks_codes = True
        self.shows_page = False
        self.delay_s = 0.0
        self.status = 200
        self.error = ""
        self.asked: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}

    def signed(self, claims: dict[str, Any]) -> str:
        algorithm = "RS256" if self.key_id == "first" else "ES256"
        headers = {"kid": self.key_id}
        return jwt.encode(claims, self.keys[self.key_id], algorithm, headers)

    def id_claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        made = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce}
        return {**made, **self.claims}

    async def _description(self, _: web.Request) -> web.StreamResponse:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
        }
        return web.json_response(found | self.described, status=self.status)

    async def _keys(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"keys": [jwk_of(name, key) for name, key in self.keys.items()]})

    async def _authorize(self, request: web.Request) -> web.StreamResponse:
        if self.shows_page:
            text = LOGIN_PAGE.format(request.query_string.replace("&", "&amp;"))
            return web.Response(text=text, content_type="text/html")
        return self._back(dict(request.query))

    async def _login(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        asked = dict(request.rel_url.with_query(str(form["asked"])).query)
        return self._back(asked)

    async def _end(self, request: web.Request) -> web.StreamResponse:
        """End a session, as the console asks for it."""
        asked = request.query
        jwt.decode(asked["id_token_hint"], options={"verify_signature": False})
        back = html.escape(asked["post_logout_redirect_uri"])
        text = f"<!doctype html><title>Provider</title><h1>Ended</h1><a href='{back}'>Back</a>"
        return web.Response(text=text, content_type="text/html")

    def _back(self, asked: dict[str, str]) -> web.StreamResponse:
        if asked["client_id"] != CLIENT_ID or "openid" not in asked["scope"].split():
            return web.Response(status=400, text="another client")
        answer = {"state": asked["state"]}
        if self.error:
            answer["error"] = self.error
        else:
            answer["code"] = secrets.token_urlsafe()
            self.codes[answer["code"]] = asked
        location = f"{asked['redirect_uri']}?{urlencode(answer)}"
        return web.Response(status=302, headers={"Location": location})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = dict(await request.post())
        asked = self.codes.get(str(form["code"]), {})
        if self.checks_codes:
            self.codes.pop(str(form["code"]), None)
            challenge = sha256(str(form["code_verifier"]).encode()).digest()
            proof = urlsafe_b64encode(challenge).rstrip(b"=").decode()
            kind, _, pair = request.headers.get("Authorization", "").partition(" ")
            name, _, secret = b64decode(pair).decode().partition(":")
            if kind != "Basic" or (unquote(name), unquote(secret)) != (CLIENT_ID, CLIENT_SECRET):
                return web.json_response({"error": "invalid_client"}, status=401)
            if proof != asked.get("code_challenge") or asked["code_challenge_method"] != "S256":
                return web.json_response({"error": "invalid_grant"}, status=400)
            if form["redirect_uri"] != asked["redirect_uri"]:
                return web.json_response({"error": "invalid_grant"}, status=400)
        token = self.sign(self.id_claims(asked["nonce"]))
        answer = {"access_token": "unused", "token_type": "Bearer", "id_token": token}
        return web.json_response(answer)

    @web.middleware
    async def _delayed(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(request.path)
        await asyncio.sleep(self.delay_s)
        answer = await handler(request)
        assert isinstance(answer, web.StreamResponse)
        return answer

    async def start(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._delayed])
        app.add_routes(
            [
                web.get("/.well-known/openid-configuration", self._description),
                web.get("/keys", self._keys),
                web.get("/authorize", self._authorize),
                web.post("/login", self._login),
                web.post("/token", self._token),
                web.get("/end", self._end),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self.files)
        port = int(self.issuer.rpartition(":")[2]) if self.issuer else 0
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        self.issuer = f"https://localhost:{runner.addresses[0][1]}"
        return runner


@contextlib.asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """A provider that runs."""
    with tempfile.TemporaryDirectory() as folder:
        made = Provider(Path(folder))
        runner = await made.start()
        try:
            yield made
        finally:
            await runner.cleanup()


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk_of(name: str, key: Any) -> dict[str, Any]:
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
