"""ID tokens: which are believed, and whom they name."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.warnings import InsecureKeyLengthWarning

from qm.api.gate.identity import Role
from qm.console.id_tokens import (
    LEEWAY_S,
    TOKEN_MAX_CHARS,
    Claims,
    NotBelieved,
    UnknownKey,
    principal_in,
    verified,
)
from tests.unit.console.oidc import ec_key, jwk_of, rsa_key

RSA, EC = rsa_key(), ec_key()
KEYS = [jwk_of("r", RSA), jwk_of("e", EC)]
ISSUER, CLIENT, NONCE = "https://id.example.org", "quorate", "n-0S6_WzA2Mj"
EXPECTED = Claims(ISSUER, CLIENT, "realm_access.roles", {"qa": Role.ADMIN, "qc": Role.CLIENT})


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"iss": ISSUER, "aud": CLIENT, "sub": "alice", "iat": now, "exp": now + 60}
    found = {**made, "nonce": NONCE, "realm_access": {"roles": ["qc", "qa", 7]}, **changes}
    return {name: value for name, value in found.items() if value is not None}


def token(given: dict[str, Any], key: str | None = "r", **headers: Any) -> str:
    names = headers if key is None else {"kid": key, **headers}
    return jwt.encode(given, EC if key == "e" else RSA, "ES256" if key == "e" else "RS256", names)


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def by_secret(algorithm: str, secret: bytes) -> str:
    """A token whose signature is an HMAC, which no library makes with a public key."""
    text = f"{part({'alg': algorithm, 'kid': 'r', 'typ': 'JWT'})}.{part(claims())}"
    code = hmac.digest(secret, text.encode(), sha256)
    return f"{text}.{urlsafe_b64encode(code).rstrip(b'=').decode()}"


@pytest.mark.parametrize("kid", ["r", "e"])
def test_a_sound_token_is_believed(kid: str) -> None:
    assert verified(token(claims(), kid), KEYS, EXPECTED, NONCE)["sub"] == "alice"
    assert verified(token(claims(aud=[CLIENT])), KEYS, EXPECTED, NONCE)
    assert verified(token(claims(aud=[CLIENT, "x"], azp=CLIENT)), KEYS, EXPECTED, NONCE)
    assert verified(token(claims(), None), KEYS, EXPECTED, NONCE)  # the only one of its kind
    almost = int(time.time()) - LEEWAY_S // 2
    assert verified(token(claims(exp=almost)), KEYS, EXPECTED, NONCE)


LATE = int(time.time()) - LEEWAY_S - 5
HOSTILE: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example.org"},
    "an issuer that is alike": {"iss": ISSUER + "/"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "another"},
    "no audience": {"aud": None},
    "audiences of others": {"aud": ["another", "third"]},
    "several audiences without a party": {"aud": [CLIENT, "another"]},
    "another party": {"azp": "another"},
    "another party among audiences": {"aud": [CLIENT, "another"], "azp": "another"},
    "another nonce": {"nonce": "replayed"},
    "no nonce": {"nonce": None},
    "a nonce that is no text": {"nonce": [NONCE]},
    "a nonce that has no encoding": {"nonce": "\ud800"},
    "a nonce in another script": {"nonce": "\u043d" + NONCE[1:]},
    "it has expired": {"exp": LATE},
    "it never expires": {"exp": None},
    "an end that is no number": {"exp": "never"},
    "it is from the future": {"iat": int(time.time()) + 3_600},
    "it holds later": {"nbf": int(time.time()) + 3_600},
    "nobody": {"sub": None},
    "a subject that is no text": {"sub": {"a": 1}},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_token_must_not_say(changes: dict[str, Any]) -> None:
    for kid in ("r", "e"):
        with pytest.raises(NotBelieved):
            verified(token(claims(**changes), kid), KEYS, EXPECTED, NONCE)


def test_no_signature_and_none_with_a_secret_is_believed() -> None:
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    unsigned = [
        f"{part({'alg': alg, 'kid': 'r'})}.{part(claims())}.{end}"
        for alg in ("none", "None", "NONE", "", None, ["RS256"], 7)
        for end in ("", "AA")
    ]
    secret = [by_secret("HS256", key) for key in (pem, der, b"", json.dumps(KEYS[0]).encode())]
    secret += [by_secret("RS256", pem), by_secret("ES256", pem)]
    for one in unsigned + secret:
        with pytest.raises(NotBelieved):
            verified(one, KEYS, EXPECTED, NONCE)
    oct_key = {"kty": "oct", "kid": "r", "k": urlsafe_b64encode(pem).decode()}
    for one in secret:
        with pytest.raises(NotBelieved):
            verified(one, [oct_key], EXPECTED, NONCE)


def test_a_changed_token_or_another_key_is_not_believed() -> None:
    head, body, end = token(claims()).split(".")
    other = part(claims(sub="mallory"))
    mixed = token(claims(), "e").split(".")[2]
    key = jwt.encode(claims(), rsa_key(), "RS256", {"kid": "r"})
    ps256 = jwt.encode(claims(), RSA, "PS256", {"kid": "r"})
    own = jwt.encode(claims(), EC, "ES256", {"kid": "e", "jwk": jwk_of("e", EC), "crit": ["x"]})
    for bad in (
        f"{head}.{other}.{end}",
        f"{head}.{body}.{mixed}",
        f"{head}.{body}",
        key,
        ps256,
        own,
    ):
        with pytest.raises(NotBelieved):
            verified(bad, KEYS, EXPECTED, NONCE)
    for garbage in ("", "..", "a.b.c", "é.é.é", "x" * (TOKEN_MAX_CHARS + 1), "\0.\0.\0"):
        with pytest.raises(NotBelieved):
            verified(garbage, KEYS, EXPECTED, NONCE)


def test_keys_are_found_by_name_and_must_be_fit() -> None:
    for kid in ("unknown", "../r", "r' OR 1=1"):
        with pytest.raises(NotBelieved):
            verified(token(claims(), "r", kid=kid), KEYS, EXPECTED, NONCE)
    with pytest.raises(UnknownKey):
        verified(token(claims(), "r", kid="new"), KEYS, EXPECTED, NONCE)
    with pytest.raises(UnknownKey):  # which of two?
        verified(token(claims(), None), [*KEYS, jwk_of("r2", rsa_key())], EXPECTED, NONCE)
    for change in ({"use": "enc"}, {"alg": "RS512"}, {"kty": "EC"}, {"n": "AA"}, {"n": 7}):
        with pytest.raises(NotBelieved):
            verified(token(claims()), [KEYS[0] | change], EXPECTED, NONCE)
    small = rsa_key(1024)
    with pytest.warns(InsecureKeyLengthWarning):
        weak = jwt.encode(claims(), small, "RS256", {"kid": "s"})
    with pytest.raises(NotBelieved, match="bits"):
        verified(weak, [jwk_of("s", small)], EXPECTED, NONCE)


def test_claims_name_a_principal_and_give_the_highest_role() -> None:
    found = principal_in(claims(), EXPECTED)
    assert (found.name, found.role) == ("oidc:alice", Role.ADMIN)
    only = {"realm_access": {"roles": "qc"}}
    assert principal_in(claims(**only), EXPECTED).role is Role.CLIENT
    whole = Claims(ISSUER, CLIENT, "https://x/roles", {"qa": Role.OPERATOR})
    assert principal_in(claims(**{"https://x/roles": ["qa"]}), whole).role is Role.OPERATOR


@pytest.mark.parametrize(
    "changes",
    [
        {"realm_access": None},
        {"realm_access": "qa"},
        {"realm_access": {"roles": {"qa": True}}},
        {"realm_access": {"roles": ["QA", "qa ", None, ["qa"]]}},
        {"realm_access": ["roles", "qa"]},
    ],
)
def test_without_a_role_nobody_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(NotBelieved, match="no role"):
        principal_in(claims(**changes), EXPECTED)


def test_names_are_short_texts_and_addresses_verified() -> None:
    for sub in ("", "x" * 60, "a\nb", "a\u202eb", 7, None):
        with pytest.raises(NotBelieved):
            principal_in(claims(sub=sub), EXPECTED)
    mail = Claims(ISSUER, CLIENT, "realm_access.roles", EXPECTED.roles, "email")
    address = {"email": "a@example.org"}
    for verified_ in (None, False, "true", 1):
        with pytest.raises(NotBelieved):
            principal_in(claims(**address, email_verified=verified_), mail)
    found = principal_in(claims(**address, email_verified=True), mail)
    assert found.name == "oidc:a@example.org"
