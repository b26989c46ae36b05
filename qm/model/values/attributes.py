"""Attributes that commands set by name: their names, types and permitted values.

Names are the specification's ([MS-MQDMPR] 3.1.1.1, 3.1.1.2) in snake case, as in `records`; values
travel as canonical msgpack. A refusal is the MQ_ERROR code of the property rules.
"""

import functools
import operator
from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Any, Final

import msgspec

from qm.model.values.elements import PoisonAction, QueuePrivacyLevel
from qm.model.values.limits import (
    PROPERTIES_PER_CALL_MAX,
    QUEUE_LABEL_MAX_CHARS,
    RETRY_DELAY_MAX_MS,
    VERSION_OF_RETURNS,
)
from qm.names.alias import LocalAliases
from qm.names.errors import QueueNameError
from qm.names.format_name import MulticastName, parse_format_name
from qm.security.descriptor import parse_descriptor
from qm.wire.access_mask import (
    GENERIC_ALL,
    GENERIC_EXECUTE,
    GENERIC_READ,
    GENERIC_WRITE,
    MachineAccess,
)
from qm.wire.codes import ErrorCode
from qm.wire.errors import ProtocolError
from qm.wire.structures.public_key import parse_mqds_public_keys

U32_MAX: Final = 0xFFFF_FFFF
GENERIC_RIGHTS: Final = GENERIC_READ | GENERIC_WRITE | GENERIC_EXECUTE | GENERIC_ALL
_MULTICAST_PREFIX: Final = "MULTICAST="

Check = Callable[[Any], int]


def _anything(_value: Any) -> int:
    return 0


def _u32(value: Any) -> int:
    return 0 if 0 <= value <= U32_MAX else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _i16(value: Any) -> int:
    return 0 if -0x8000 <= value <= 0x7FFF else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _label(value: Any) -> int:
    is_short = len(value.encode("utf-16-le")) // 2 <= QUEUE_LABEL_MAX_CHARS
    return 0 if is_short else ErrorCode.MQ_ERROR_LABEL_TOO_LONG


def _guid(value: Any) -> int:
    return 0 if len(value) == 16 else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_SIZE


def _privacy(value: Any) -> int:
    is_known = value in tuple(QueuePrivacyLevel)
    return 0 if is_known else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _retry_delay(value: Any) -> int:
    is_known = 0 <= value <= RETRY_DELAY_MAX_MS
    return 0 if is_known else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _poison_action(value: Any) -> int:
    is_known = value in tuple(PoisonAction)
    return 0 if is_known else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _multicast(value: Any) -> int:
    if value == "":
        return 0
    try:
        is_address = isinstance(parse_format_name(_MULTICAST_PREFIX + value), MulticastName)
    except QueueNameError:
        is_address = False
    return 0 if is_address else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _descriptor(value: Any) -> int:
    try:
        parse_descriptor(value)
    except ProtocolError:
        return ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    return 0


def audits_only(rights: type[IntFlag], security: bytes) -> bool:
    """Whether the audit entries of a sound descriptor, if it has any, name only these rights."""
    sacl = parse_descriptor(security).sacl if security else None
    known = _bits_of(rights)
    return sacl is None or not any(entry.mask & ~known for entry in sacl.entries)


def _bits_of(rights: type[IntFlag]) -> int:
    return int(functools.reduce(operator.or_, rights)) | GENERIC_RIGHTS


def descriptor_of(rights: type[IntFlag]) -> Check:
    """Return the check of a descriptor whose entries grant and deny only these rights."""
    known = _bits_of(rights)

    def check(value: Any) -> int:
        try:
            dacl = parse_descriptor(value).dacl
        except ProtocolError:
            return ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
        is_sound = dacl is None or not any(entry.mask & ~known for entry in dacl.entries)
        return 0 if is_sound else ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR

    return check


def public_keys(value: Any) -> int:
    """MQDSPUBLICKEYS ([MS-MQMQ] 2.2.2); empty: no keys yet."""
    try:
        _, end = parse_mqds_public_keys(value, 0, len(value)) if value else ((), 0)
    except ProtocolError:
        return ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    return 0 if end == len(value) else ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def _aliases(value: Any) -> int:
    try:
        LocalAliases(value)
    except QueueNameError:
        return ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    return 0


class Attribute(msgspec.Struct, frozen=True):
    """Type and check of one attribute."""

    kind: Any
    """Python type of the value."""
    check: Check = _anything
    """Returns 0 or the error code of the refusal."""
    is_immutable: bool = False
    """Whether it is given at creation and never changed."""
    since: int = 1
    """Apply version from which on it exists."""


_STRINGS: Final = tuple[str, ...]
_GUIDS: Final = tuple[bytes, ...]

QUEUE_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "label": Attribute(str, _label),
    "type": Attribute(bytes, _guid),
    "journaling": Attribute(bool),
    "quota": Attribute(int, _u32),
    "journal_quota": Attribute(int, _u32),
    "authentication": Attribute(bool),
    "privacy_level": Attribute(int, _privacy),
    "transactional": Attribute(bool, is_immutable=True),
    "multicast_address": Attribute(str, _multicast),
    "base_priority": Attribute(int, _i16),
    "security": Attribute(bytes, _descriptor),
    "max_deliveries": Attribute(int, _u32, since=VERSION_OF_RETURNS),
    "retry_delay_ms": Attribute(int, _retry_delay, since=VERSION_OF_RETURNS),
    "poison_action": Attribute(int, _poison_action, since=VERSION_OF_RETURNS),
}
QUEUE_MANAGER_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    "aliases": Attribute(_STRINGS, _aliases),
    "queue_manager_quota": Attribute(int, _u32),
    "journal_quota": Attribute(int, _u32),
    "queue_manager_version": Attribute(str),
    "operating_system_version": Attribute(str),
    "foreign_system": Attribute(bool),
    "site_identifier_list": Attribute(_GUIDS),
    "out_routing_server_identifier_list": Attribute(_GUIDS),
    "in_routing_server_identifier_list": Attribute(_GUIDS),
    "connected_network_identifier_list": Attribute(_GUIDS),
    "public_encryption_key_list": Attribute(bytes, public_keys),
    "public_signing_key_list": Attribute(bytes, public_keys),
    "sealed_private_keys": Attribute(bytes),
    "security": Attribute(bytes, descriptor_of(MachineAccess)),
    "hardened_security": Attribute(bool),
    "connection_active": Attribute(bool),
    "send_insecure_nacks": Attribute(bool),
    "duplicate_horizon_ms": Attribute(int, _u32),
    "result_retention_ms": Attribute(int, _u32),
    "transaction_retention_ms": Attribute(int, _u32),
    "copy_to_deadletter_on_quota": Attribute(bool),
    "initialization_retry_timer_duration": Attribute(int, _u32),
    "directory_integrated": Attribute(bool),
}


def decode_attributes(
    known: Mapping[str, Attribute], given: Mapping[str, bytes], behaviour: int, *, is_change: bool
) -> tuple[dict[str, Any], int]:
    """Return the values by name, or the error code of the first refusal in the order of names."""
    if len(given) > PROPERTIES_PER_CALL_MAX:
        return {}, ErrorCode.MQ_ERROR_TOO_MANY_PROPERTIES
    values: dict[str, Any] = {}
    for name in sorted(given):
        attribute = known.get(name)
        if attribute is None or attribute.since > behaviour:
            return {}, ErrorCode.MQ_ERROR_ILLEGAL_PROPID
        if is_change and attribute.is_immutable:
            return {}, ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED
        try:
            value = msgspec.msgpack.decode(given[name], type=attribute.kind)
        except msgspec.DecodeError:
            return {}, ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VT
        refusal = attribute.check(value)
        if refusal:
            return {}, refusal
        values[name] = value
    return values, 0


def encode_attribute(value: Any) -> bytes:
    """Return a value in the form that commands carry."""
    return msgspec.msgpack.encode(value)
