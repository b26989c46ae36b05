"""Queue managers and users of the directory as documents: for YAML files, and to compare.

A document has what people write; what the directory makes of it (GUIDs of certificates, digests) is
left out, so that two directories with the same people give the same documents.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import click
import msgspec

Document = dict[str, Any]
_PEM: Final = "CERTIFICATE"


class Noun(msgspec.Struct, frozen=True):
    """A class of objects, and how its documents look."""

    name: str
    object_class: str
    key: str
    """Field of a document that says which object it is."""
    columns: tuple[str, ...]
    """Shown in tables."""
    shown: Callable[[bytes, Mapping[str, Any]], Document]
    """Identifier and attributes of the directory -> document."""
    values: Callable[[Document], dict[str, Any]]
    """Document -> attributes. Raises click.UsageError."""


def plain(value: Any) -> Any:
    """Return a Value as its Python type."""
    kind = value.WhichOneof("kind")
    found: Any = getattr(value, kind) if kind else None
    return list(found.items) if kind in ("texts", "datas") else found


def wire_value(value: Any) -> Any:
    """Return a Python value as a Value."""
    from qm.pb import control_pb2

    match value:
        case bool():
            return control_pb2.Value(flag=value)
        case str():
            return control_pb2.Value(text=value)
        case bytes():
            return control_pb2.Value(data=value)
        case [bytes(), *_]:
            return control_pb2.Value(datas=control_pb2.DataList(items=value))
    return control_pb2.Value(texts=control_pb2.TextList(items=value))


# Queue managers ----------------------------------------------------------------------------


def _manager_shown(identifier: bytes, attributes: Mapping[str, Any]) -> Document:
    from qm.names.guid import guid_text

    return {
        "identifier": guid_text(identifier),
        "name": attributes.get("computer_name", ""),
        "dns_name": attributes.get("qualified_computer_name", ""),
        "addresses": attributes.get("addresses") or [],
        "encryption_keys": _keys_shown(attributes.get("public_encryption_key_list", b"")),
        "signing_keys": _keys_shown(attributes.get("public_signing_key_list", b"")),
    }


def _manager_values(document: Document) -> dict[str, Any]:
    return {
        "computer_name": _text(document, "name"),
        "qualified_computer_name": _text(document, "dns_name"),
        "addresses": _texts(document, "addresses"),
        "public_encryption_key_list": _keys(document, "encryption_keys", is_exchange=True),
        "public_signing_key_list": _keys(document, "signing_keys", is_exchange=False),
    }


def _keys_shown(encoded: bytes) -> list[dict[str, str]]:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from qm.security.session_keys import UnusableKey, public_key
    from qm.wire.structures.public_key import parse_mqds_public_keys, write_public_key_blob

    shown = []
    for one in parse_mqds_public_keys(encoded, 0, len(encoded))[0] if encoded else ():
        try:
            spki = public_key(one.key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            text = spki.decode()
        except UnusableKey:
            text = b64encode(write_public_key_blob(one.key)).decode()
        shown.append({"provider": one.provider_name, "key": text})
    return shown


def _keys(document: Document, field: str, *, is_exchange: bool) -> bytes:
    from qm.wire.structures.public_key import write_mqds_public_keys

    given = document.get(field) or []
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise click.UsageError(f"{field}: a list of `provider` and `key`")
    keys = tuple(_key(one, field, is_exchange) for one in given)
    return write_mqds_public_keys(keys) if keys else b""


def _key(given: Document, field: str, is_exchange: bool) -> Any:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    from qm.security.providers import provider_named
    from qm.security.session_keys import public_key_blob
    from qm.wire.enums import ProviderType, PublicKeyAlgorithm
    from qm.wire.errors import ProtocolError
    from qm.wire.structures.public_key import MqdsPublicKey, parse_public_key_blob

    name, text = _text(given, "provider"), _text(given, "key")
    provider = provider_named(name)
    kind = ProviderType.RSA_FULL if provider is None else provider.provider_type
    algorithm = PublicKeyAlgorithm.RSA_KEYX if is_exchange else PublicKeyAlgorithm.RSA_SIGN
    try:
        if "BEGIN" not in text:
            raw = b64decode(text, validate=True)
            blob, end = parse_public_key_blob(raw, 0, len(raw))
            if end != len(raw):
                raise ValueError("bytes follow the key")
            return MqdsPublicKey(kind, name, blob)
        key = load_pem_public_key(text.encode())
        if not isinstance(key, RSAPublicKey):
            raise ValueError("it is not an RSA key")
        return MqdsPublicKey(kind, name, public_key_blob(key, algorithm))
    except (ValueError, ProtocolError) as error:
        raise click.UsageError(f"{field}: the key of {name!r} cannot be read: {error}") from None


MANAGERS: Final = Noun(
    "manager",
    "queue_manager",
    "identifier",
    ("identifier", "name", "dns_name", "addresses"),
    _manager_shown,
    _manager_values,
)


# Users -------------------------------------------------------------------------------------


def _user_shown(_identifier: bytes, attributes: Mapping[str, Any]) -> Document:
    from qm.security.sid import sid_text
    from qm.wire.structures.user_certificate import parse_user_certificates

    encoded = attributes.get("certificates", b"")
    found = parse_user_certificates(encoded, 0, len(encoded))[0] if encoded else ()
    return {
        "sid": sid_text(attributes["security_identifier"]),
        "name": attributes.get("name", ""),
        "groups": [sid_text(sid) for sid in attributes.get("groups") or []],
        "certificates": [pem_text(one.certificate) for one in found],
    }


def _user_values(document: Document) -> dict[str, Any]:
    from qm.wire.structures.user_certificate import (
        UserCertificate,
        certificate_digest,
        write_user_certificates,
    )

    found = [der_of(text) for text in _texts(document, "certificates")]
    certificates = tuple(
        UserCertificate(certificate_digest(one), uuid4().bytes_le, one) for one in found
    )
    return {
        "security_identifier": sid(_text(document, "sid")),
        "name": _text(document, "name"),
        "groups": [sid(text) for text in _texts(document, "groups")],
        "certificates": write_user_certificates(certificates),
        "certificate_digest_list": [one.digest for one in certificates],
    }


def sid(text: str) -> bytes:
    """Return a SID from its text. Raises click.UsageError."""
    from qm.security.sid import sid_from_text
    from qm.wire.errors import ValueOutOfRange

    try:
        return sid_from_text(text)
    except ValueOutOfRange as error:
        raise click.UsageError(str(error)) from None


def pem_text(certificate: bytes) -> str:
    """Return a certificate in DER as PEM."""
    encoded = b64encode(certificate).decode()
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    return "\n".join([f"-----BEGIN {_PEM}-----", *lines, f"-----END {_PEM}-----", ""])


def der_of(text: str) -> bytes:
    """Return the certificate of a PEM text as DER. Raises click.UsageError."""
    body = text.partition(f"-----BEGIN {_PEM}-----")[2].partition(f"-----END {_PEM}-----")[0]
    try:
        found = b64decode("".join(body.split()), validate=True)
    except ValueError:
        found = b""
    if not found:
        raise click.UsageError("a certificate in PEM is needed: -----BEGIN CERTIFICATE----- ...")
    return found


USERS: Final = Noun("user", "user", "sid", ("sid", "name", "groups"), _user_shown, _user_values)


# Documents in files ------------------------------------------------------------------------


def read_documents(noun: Noun, text: str) -> dict[str, Document]:
    """Return the documents of a YAML file by their keys. Raises click.UsageError."""
    import yaml

    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise click.UsageError(f"this is not YAML: {error}") from None
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise click.UsageError(f"a list of {noun.name}s is needed, as `export` writes it")
    documents = {_text(one, noun.key).lower(): completed(noun, one) for one in given}
    if len(documents) != len(given):
        raise click.UsageError(f"two {noun.name}s have the same {noun.key}")
    return documents


def completed(noun: Noun, given: Document) -> Document:
    """Return a document in the form in which `shown` writes it. Raises click.UsageError."""
    if noun is USERS:
        return noun.shown(b"", noun.values(given))
    from qm.names.guid import guid_from_text

    identifier = guid_from_text(_text(given, noun.key).strip("{}"))
    if identifier is None:
        raise click.UsageError(f"{given[noun.key]!r} is not a GUID")
    return noun.shown(identifier, noun.values(given))


def _text(document: Document, field: str) -> str:
    value = document.get(field) or ""
    if not isinstance(value, str):
        raise click.UsageError(f"{field}: a text is needed instead of {value!r}")
    return value


def _texts(document: Document, field: str) -> Sequence[str]:
    value = document.get(field) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise click.UsageError(f"{field}: a list of texts is needed instead of {value!r}")
    return value
