"""ID tokens of OpenID Connect: whether one may be believed, and whom it names."""

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from qm.api.gate.identity import (
    PRINCIPAL_MAX_CHARS,
    ROLE_GROUPS,
    Principal,
    Role,
    principal_of,
)

ALGORITHMS: Final[Mapping[str, str]] = {"RS256": "RSA", "ES256": "EC"}
"""The signatures that are accepted, and their type of key: never one with a secret, never none."""
RSA_MIN_BITS: Final = 2_048
LEEWAY_S: Final = 30
"""Between the provider's clock and this node's."""
NAME_PREFIX: Final = "oidc:"
"""Of principals, so that no name at a provider is that of a certificate or of a user here."""
TOKEN_MAX_CHARS: Final = 32_768
_REQUIRED: Final = ("iss", "sub", "aud", "exp", "iat")
_KEY_ID: Final = re.compile(r"[\x21-\x7e]{1,256}")


class NotBelieved(Exception):
    """A token proves nothing here; the text says why, for operators."""


class UnknownKey(NotBelieved):
    """It is signed by a key that is not among the known ones; there may be newer ones."""


class Claims(msgspec.Struct, frozen=True):
    """What must hold of a token, and what it says of somebody."""

    issuer: str
    client_id: str
    role_claim: str
    """Its name, or the names on the way to it with dots between."""
    roles: Mapping[str, Role]
    """By value of that claim."""
    name_claim: str = "sub"


def verified(
    token: str, keys: Sequence[Mapping[str, Any]], expected: Claims, nonce: str
) -> Mapping[str, Any]:
    """Return what a token claims. `keys`: JWKs of the provider. Raises NotBelieved."""
    if len(token) > TOKEN_MAX_CHARS:
        raise NotBelieved(f"the ID token has more than {TOKEN_MAX_CHARS} characters")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise NotBelieved(f"the ID token cannot be read: {error}") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or "crit" in header:
        raise NotBelieved(f"its signature is not one of {', '.join(ALGORITHMS)}")
    key = _key(keys, header.get("kid"), algorithm)
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=expected.client_id,
            issuer=expected.issuer,
            leeway=LEEWAY_S,
            options={"require": list(_REQUIRED)},
        )
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise NotBelieved(f"the ID token is refused: {error}") from None
    audience = claims["aud"]
    is_shared = isinstance(audience, list) and len(audience) != 1
    if claims.get("azp", None if is_shared else expected.client_id) != expected.client_id:
        raise NotBelieved("the ID token was made for somebody else")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(
        given.encode("utf-8", "replace"), nonce.encode()
    ):
        raise NotBelieved("the ID token belongs to another sign-in: its nonce is another")
    return claims


def _key(keys: Sequence[Mapping[str, Any]], key_id: object, algorithm: str) -> jwt.PyJWK:
    """Return the key that a token names, or the only one of its kind. Raises NotBelieved."""
    if key_id is not None and not (isinstance(key_id, str) and _KEY_ID.fullmatch(key_id)):
        raise NotBelieved("the ID token names no key")
    usable = [one for one in keys if _is_usable(one, algorithm)]
    found = usable if key_id is None else [one for one in usable if one.get("kid") == key_id]
    if len(found) != 1:
        raise UnknownKey("the ID token is signed by a key that the provider does not publish")
    try:
        key = jwt.PyJWK(dict(found[0]), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise NotBelieved(f"a key of the provider cannot be used: {error}") from None
    public = key.key
    if isinstance(public, RSAPublicKey) and public.key_size < RSA_MIN_BITS:
        raise NotBelieved(f"the provider's key has fewer than {RSA_MIN_BITS} bits")
    return key


def _is_usable(key: Mapping[str, Any], algorithm: str) -> bool:
    return (
        key.get("kty") == ALGORITHMS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and "d" not in key
    )


def principal_in(claims: Mapping[str, Any], expected: Claims) -> Principal:
    """Return whom verified claims name, with the role that they give. Raises NotBelieved."""
    name = claims.get(expected.name_claim)
    longest = PRINCIPAL_MAX_CHARS - len(NAME_PREFIX)
    if not isinstance(name, str) or not 1 <= len(name) <= longest or not name.isprintable():
        raise NotBelieved(
            f"the claim {expected.name_claim!r} is no name of up to {longest} characters"
        )
    if expected.name_claim == "email" and claims.get("email_verified") is not True:
        raise NotBelieved("the provider has not verified the e-mail address")
    given = _values(claims, expected.role_claim)
    found = {expected.roles[value] for value in given if value in expected.roles}
    role = next((role for role in ROLE_GROUPS if role in found), None)
    if role is None:
        raise NotBelieved(
            f"{NAME_PREFIX}{name} has no role: nothing in the claim {expected.role_claim!r} is"
            " among `console.oidc.roles`"
        )
    return principal_of(NAME_PREFIX + name, role)


def _values(claims: Mapping[str, Any], path: str) -> list[str]:
    """Return the texts of a claim, of that very name or at the end of its parts."""
    found: Any = claims
    if path in claims:
        found = claims[path]
    else:
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    several = found if isinstance(found, list) else [found]
    return [one for one in several if isinstance(one, str)]
