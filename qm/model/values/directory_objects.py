"""Objects of the embedded directory: their classes' attributes, with types and permitted values.

Names are those of [MS-MQDMPR] 3.1.1.1 and 3.1.1.6 to 3.1.1.15. Ours are `addresses`, `name`,
`groups` and the attributes of accounts: they say where a queue manager is, what people call a user,
to which groups it belongs, and how it logs on by RPC.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from qm.model.values.attributes import Attribute, audits_only, descriptor_of, public_keys
from qm.model.values.elements import DirectoryObjectType
from qm.model.values.limits import (
    ADDRESSES_PER_MANAGER_MAX,
    CERTIFICATES_PER_USER_MAX,
    DIRECTORY_NAME_MAX_CHARS,
    GROUPS_PER_USER_MAX,
    SEALED_PASSWORD_MAX_BYTES,
    VERSION_OF_ACCOUNTS,
    VERSION_OF_AUDITED_RIGHTS,
    VERSION_OF_PEOPLE,
    VERSION_OF_USER_FORMS,
)
from qm.security.sid import parse_sid
from qm.wire.access_mask import ConnectedNetworkAccess, EnterpriseAccess, SiteAccess
from qm.wire.codes import ErrorCode
from qm.wire.errors import ProtocolError
from qm.wire.limits import SENDER_CERT_MAX_BYTES
from qm.wire.structures.user_certificate import DIGEST_SIZE_BYTES, parse_user_certificates

SEALED_PASSWORD: Final = "sealed_password"
"""Attribute of a user: the NT hash of its password, sealed; never published, empty for none."""
_GUIDS: Final = tuple[bytes, ...]
_SIDS: Final = tuple[bytes, ...]
_TEXTS: Final = tuple[str, ...]


def password_label(sid: bytes) -> bytes:
    """Return what the seal of a user's password is bound to."""
    return b"quorate account password\0" + sid


def _digests(value: Any) -> int:
    """CertificateDigestList: the MD5 of each certificate (3.1.1.15)."""
    is_sound = all(len(digest) == DIGEST_SIZE_BYTES for digest in value)
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE


def _name(value: Any) -> int:
    is_sound = len(value) <= DIRECTORY_NAME_MAX_CHARS and (value.isprintable() or not value)
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _addresses(value: Any) -> int:
    is_sound = len(value) <= ADDRESSES_PER_MANAGER_MAX and all(
        0 < len(one) <= DIRECTORY_NAME_MAX_CHARS and one.isprintable() for one in value
    )
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _groups(value: Any) -> int:
    try:
        is_sound = len(value) <= GROUPS_PER_USER_MAX and all(
            parse_sid(sid, 0, len(sid), "Groups")[1] == len(sid) for sid in value
        )
    except ProtocolError:
        is_sound = False
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _sealed(value: Any) -> int:
    is_sound = len(value) <= SEALED_PASSWORD_MAX_BYTES
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE


_ATTRIBUTES: Final[Mapping[DirectoryObjectType, Mapping[str, Attribute]]] = {
    DirectoryObjectType.ENTERPRISE: {
        "name": Attribute(str),
        "weakened_security": Attribute(bool),
        "non_ldap_capable_queue_manager_notification": Attribute(bool),
        "default_time_to_live": Attribute(int),
        "old_directory": Attribute(bool),
        "security": Attribute(bytes, descriptor_of(EnterpriseAccess)),
    },
    DirectoryObjectType.SITE: {
        "name": Attribute(str),
        "primary_site_controller": Attribute(str),
        "intra_site_replication_interval": Attribute(int),
        "inter_site_replication_interval": Attribute(int),
        "full_path": Attribute(str),
        "foreign_site": Attribute(bool),
        "public_signing_key_list": Attribute(bytes),
        "migrated_from_msmq10": Attribute(bool),
        "security": Attribute(bytes, descriptor_of(SiteAccess)),
    },
    DirectoryObjectType.ROUTING_LINK: {
        "description": Attribute(str),
        "full_path": Attribute(str),
        "actual_cost": Attribute(int),
        "site1_identifier": Attribute(bytes),
        "site2_identifier": Attribute(bytes),
        "site_gate_identifier_list": Attribute(_GUIDS),
    },
    DirectoryObjectType.CONNECTED_NETWORK: {
        "name": Attribute(str),
        "security": Attribute(bytes, descriptor_of(ConnectedNetworkAccess)),
    },
    DirectoryObjectType.USER: {
        "security_identifier": Attribute(bytes),
        "certificate_digest_list": Attribute(_GUIDS, _digests),
        "certificates": Attribute(bytes),
    },
}
_ATTRIBUTES_OF_PEOPLE: Final[Mapping[DirectoryObjectType, Mapping[str, Attribute]]] = {
    DirectoryObjectType.QUEUE_MANAGER: {
        "computer_name": Attribute(str, _name),
        "qualified_computer_name": Attribute(str, _name),
        "addresses": Attribute(_TEXTS, _addresses),
        "foreign_system": Attribute(bool),
        "public_encryption_key_list": Attribute(bytes, public_keys),
        "public_signing_key_list": Attribute(bytes, public_keys),
    },
    DirectoryObjectType.USER: {
        **_ATTRIBUTES[DirectoryObjectType.USER],
        "name": Attribute(str, _name),
        "groups": Attribute(_SIDS, _groups),
        "account_name": Attribute(str, _name, since=VERSION_OF_ACCOUNTS),
        "account_domain": Attribute(str, _name, since=VERSION_OF_ACCOUNTS),
        "account_disabled": Attribute(bool, since=VERSION_OF_ACCOUNTS),
        SEALED_PASSWORD: Attribute(bytes, _sealed, since=VERSION_OF_ACCOUNTS),
    },
}
OBJECT_ATTRIBUTES: Final[Mapping[DirectoryObjectType, Mapping[str, Attribute]]] = {
    **_ATTRIBUTES,
    **_ATTRIBUTES_OF_PEOPLE,
}
"""Writable attributes, by their names in the specification, per class of object."""
INDEXED: Final[Mapping[DirectoryObjectType, tuple[str, ...]]] = {
    DirectoryObjectType.ENTERPRISE: ("name",),
    DirectoryObjectType.SITE: ("name",),
    DirectoryObjectType.CONNECTED_NETWORK: ("name",),
    DirectoryObjectType.USER: ("security_identifier", "account_name"),
    DirectoryObjectType.QUEUE_MANAGER: ("computer_name", "qualified_computer_name"),
}
"""Attributes by which an object is found; no two objects of a class share a value of them."""


_RIGHTS: Final = MappingProxyType(
    {
        DirectoryObjectType.ENTERPRISE: EnterpriseAccess,
        DirectoryObjectType.SITE: SiteAccess,
        DirectoryObjectType.CONNECTED_NETWORK: ConnectedNetworkAccess,
    }
)


def writable(object_type: int, behaviour: int) -> Mapping[str, Attribute] | None:
    """Return what may be written of an object at this apply version, None if nothing."""
    if object_type not in tuple(DirectoryObjectType):
        return None
    known = OBJECT_ATTRIBUTES if behaviour >= VERSION_OF_PEOPLE else _ATTRIBUTES
    return known.get(DirectoryObjectType(object_type))


def refusal_of(object_type: DirectoryObjectType, values: dict[str, Any], behaviour: int) -> int:
    """Return 0, or the code that refuses attributes whose types and checks are right."""
    if not 1 <= values.get("actual_cost", 1) <= _COST_MAX:
        return ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    if object_type is DirectoryObjectType.USER and behaviour >= VERSION_OF_USER_FORMS:
        is_limited = behaviour >= VERSION_OF_PEOPLE
        if not _is_user(values) or (is_limited and not _fits(values.get("certificates"))):
            return ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    rights = _RIGHTS.get(object_type)
    if rights is None or behaviour < VERSION_OF_AUDITED_RIGHTS:
        return 0
    is_sound = audits_only(rights, values.get("security", b""))
    return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR


def _is_user(values: dict[str, Any]) -> bool:
    """Whether a user's attributes have the forms of 3.1.1.15: a SID and an MQUSERSIGNCERTS."""
    try:
        for name, parse in _FORMS_OF_USER.items():
            value = values.get(name)
            if value is not None and parse(value) != len(value):
                return False
    except ProtocolError:
        return False
    return True


def _fits(certificates: bytes | None) -> bool:
    """Whether a sound MQUSERSIGNCERTS is within the limits of the state."""
    if certificates is None:
        return True
    found, _ = parse_user_certificates(certificates, 0, len(certificates))
    longest = max((len(one.certificate) for one in found), default=0)
    return len(found) <= CERTIFICATES_PER_USER_MAX and longest <= SENDER_CERT_MAX_BYTES


_COST_MAX: Final = 999_999
_FORMS_OF_USER: Final[Mapping[str, Callable[[bytes], int]]] = {
    "security_identifier": lambda value: parse_sid(value, 0, len(value), "SecurityIdentifier")[1],
    "certificates": lambda value: parse_user_certificates(value, 0, len(value))[1],
}
"""Each returns where the form ends."""
