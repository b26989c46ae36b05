"""Rows of the embedded directory: where an object is found, and reading users from them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from qm.model.state.ledger import Ledger
from qm.model.state.tables import State, Table
from qm.model.values.attributes import encode_attribute
from qm.model.values.directory_objects import INDEXED
from qm.model.values.elements import DirectoryObjectType
from qm.model.values.limits import VERSION_OF_PEOPLE
from qm.model.values.records import DirectoryObjectRow, decode
from qm.security.sid import Sid
from qm.wire.structures.user_certificate import UserCertificate, parse_user_certificates

META_DIRECTORY: Final = b"directory"
"""Key of the usn of the last change; only once something was written at VERSION_OF_PEOPLE."""
_MAY_BE_NAMELESS: Final = (DirectoryObjectType.QUEUE_MANAGER, DirectoryObjectType.USER)
"""Classes whose objects may have an empty text for a name, by which they are not found."""
_BY_DIGEST: Final = b"\xc0"
_USN_BYTES: Final = 8


def index_key(object_type: DirectoryObjectType, value: Any) -> bytes:
    """Return the key of an indexed attribute's value; texts are found in any case."""
    folded = value.lower() if isinstance(value, str) else value
    return bytes((object_type,)) + encode_attribute(folded)


def digest_key(digest: bytes, identifier: bytes = b"") -> bytes:
    """Return the key under which a user is found by a certificate of its."""
    return _BY_DIGEST + digest + identifier


def decoded(value: bytes) -> Any:
    """Return the value of an attribute from its stored form."""
    return msgspec.msgpack.decode(value)


def attribute(attributes: Mapping[str, bytes], name: str, default: Any) -> Any:
    """Return the value of an object's attribute."""
    found = attributes.get(name)
    return default if found is None else decoded(found)


def certificates_in(attributes: Mapping[str, bytes]) -> tuple[UserCertificate, ...]:
    """Return the certificates of a user as stored."""
    encoded = attribute(attributes, "certificates", b"")
    return parse_user_certificates(encoded, 0, len(encoded))[0] if encoded else ()


def identifier_of(state: State, object_type: DirectoryObjectType, value: Any) -> bytes | None:
    """Return the GUID of the object whose indexed attribute has this value, None if none has."""
    return state.get(Table.DIRECTORY_INDEX, index_key(object_type, value))


def object_row(
    state: State, identifier: bytes, object_type: DirectoryObjectType
) -> DirectoryObjectRow | None:
    """Return an object of this class, None if there is none."""
    row = state.get(Table.DIRECTORY, identifier)
    found = None if row is None else decode(DirectoryObjectRow, row)
    return found if found is not None and found.object_type == object_type else None


def user_row(state: State, sid: Sid) -> DirectoryObjectRow | None:
    """Return the user of a SID, None if it is unknown."""
    identifier = identifier_of(state, DirectoryObjectType.USER, sid)
    if identifier is None:
        return None
    return object_row(state, identifier, DirectoryObjectType.USER)


def account_row(state: State, name: str) -> DirectoryObjectRow | None:
    """Return the user who has the account of this name, in any case; None if nobody has."""
    identifier = identifier_of(state, DirectoryObjectType.USER, name) if name else None
    if identifier is None:
        return None
    return object_row(state, identifier, DirectoryObjectType.USER)


def users_with(state: State, digest: bytes, users_max: int) -> Iterator[DirectoryObjectRow]:
    """Yield users with a certificate of this digest, at most `users_max`."""
    low, high = digest_key(digest), digest_key(digest, b"\xff" * 17)
    for key, _ in state.scan(Table.DIRECTORY_INDEX, low, high, users_max):
        found = object_row(state, key[len(low) :], DirectoryObjectType.USER)
        if found is not None:
            yield found


def is_taken(state: State, identifier: bytes, row: DirectoryObjectRow) -> bool:
    """Whether another object has a value that this one would be found by."""
    found = (state.get(Table.DIRECTORY_INDEX, key) for key in _own_keys(row))
    return any(one not in (None, identifier) for one in found)


def put_object(ledger: Ledger, identifier: bytes, row: DirectoryObjectRow | None) -> None:
    """Write an object with its index, or remove both; caches of what it says are dropped."""
    state = ledger.state
    has_digests = ledger.behaviour >= VERSION_OF_PEOPLE
    old = ledger.record(Table.DIRECTORY, identifier, DirectoryObjectRow)
    before = _keys(identifier, old, has_digests)
    after = _keys(identifier, row, has_digests)
    for key in sorted(before - after):
        state.delete(Table.DIRECTORY_INDEX, key)
    for key in sorted(after):
        state.put(Table.DIRECTORY_INDEX, key, identifier)
    if row is None:
        state.delete(Table.DIRECTORY, identifier)
    else:
        ledger.put_record(Table.DIRECTORY, identifier, row)
    ledger.counters.directory_object_count += (row is not None) - (old is not None)
    if has_digests:
        usn = ledger.counters.usn.to_bytes(_USN_BYTES, "big")
        state.put(Table.META, META_DIRECTORY, usn)
    ledger.forget_groups()


def version_of(state: State) -> int:
    """Return a number that differs after each change of the directory."""
    return int.from_bytes(state.get(Table.META, META_DIRECTORY) or b"", "big")


def _keys(identifier: bytes, row: DirectoryObjectRow | None, has_digests: bool) -> set[bytes]:
    if row is None:
        return set()
    certificates = certificates_in(row.attributes) if has_digests else ()
    return _own_keys(row) | {digest_key(one.digest, identifier) for one in certificates}


def _own_keys(row: DirectoryObjectRow) -> set[bytes]:
    """Return the index keys of an object that no other may have."""
    kind = DirectoryObjectType(row.object_type)
    values = (attribute(row.attributes, name, None) for name in INDEXED.get(kind, ()))
    return {
        index_key(kind, value)
        for value in values
        if value is not None and (value != "" or kind not in _MAY_BE_NAMELESS)
    }
