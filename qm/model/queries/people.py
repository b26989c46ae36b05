"""Users and other queue managers, as those who verify, sign and encrypt look them up."""

from collections.abc import Callable, Iterator
from typing import Final

from qm.model.queries.view import View
from qm.model.state.directory_rows import (
    attribute,
    certificates_in,
    identifier_of,
    object_row,
    user_row,
    users_with,
    version_of,
)
from qm.model.state.tables import State, Table
from qm.model.values.elements import DirectoryObjectType
from qm.model.values.records import DirectoryObjectRow, decode
from qm.security.directory import DirectoryManager, DirectoryUser
from qm.security.sid import Sid
from qm.wire.guid import Guid
from qm.wire.structures.public_key import MqdsPublicKey, parse_mqds_public_keys
from qm.wire.structures.user_certificate import UserCertificate

USERS_PER_DIGEST_MAX: Final = 16
"""Users that are looked at who registered the same certificate."""
_USER: Final = DirectoryObjectType.USER
_MANAGER: Final = DirectoryObjectType.QUEUE_MANAGER


class ReplicatedDirectory:
    """The `Directory` of `qm.security` over whichever state this node has."""

    def __init__(self, state: Callable[[], State]) -> None:
        """`state`: returns the present one, which a snapshot replaces; what it raises while one
        does, every question here raises.
        """
        self._present = state

    @property
    def _state(self) -> State:
        return self._present()

    @property
    def version(self) -> int:
        """Differs after each change of the directory."""
        return version_of(self._state)

    def user(self, sid: Sid) -> DirectoryUser | None:
        """Return a user, None if it is unknown."""
        row = user_row(self._state, sid)
        return None if row is None else _user(row)

    def users_with(self, digest: bytes) -> tuple[Sid, ...]:
        """Return the SIDs of users who registered a certificate of this digest."""
        found = users_with(self._state, digest, USERS_PER_DIGEST_MAX)
        return tuple(attribute(row.attributes, "security_identifier", b"") for row in found)

    def queue_manager(self, identifier: Guid) -> DirectoryManager | None:
        """Return another queue manager, None if it is unknown."""
        row = object_row(self._state, identifier, _MANAGER)
        return None if row is None else _manager(identifier, row)

    def queue_manager_named(self, name: str) -> DirectoryManager | None:
        """Return another queue manager by its computer or DNS name in any case."""
        identifier = identifier_of(self._state, _MANAGER, name) if name else None
        return None if identifier is None else self.queue_manager(identifier)

    def addresses(self, identifier: Guid) -> tuple[str, ...]:
        """Return the hosts or addresses where another queue manager is, the best first."""
        row = object_row(self._state, identifier, _MANAGER)
        return () if row is None else tuple(attribute(row.attributes, "addresses", ()))


def user_certificates(view: View, sid: Sid) -> tuple[UserCertificate, ...]:
    """Return a user's certificates as registered, none of an unknown user."""
    row = user_row(view.ledger.state, sid)
    return () if row is None else certificates_in(row.attributes)


def internal_digest(view: View, sid: Sid) -> bytes:
    """Return the digest of a user's internal certificate, b"" without one."""
    row = user_row(view.ledger.state, sid)
    found: bytes = b"" if row is None else attribute(row.attributes, "internal_certificate", b"")
    return found


def certificates_after(
    view: View, after: bytes, rows_max: int
) -> tuple[Iterator[tuple[Sid, UserCertificate]], bytes]:
    """Return the certificates of users in the next rows, and where the step after that begins;
    b"" after the last.
    """
    low = after + b"\0" if after else b""
    rows = view.ledger.state.scan(Table.DIRECTORY, low, b"\xff" * 17, rows_max)
    found = (decode(DirectoryObjectRow, row) for _, row in rows)
    certificates = (
        (attribute(row.attributes, "security_identifier", b""), one)
        for row in found
        if row.object_type == _USER
        for one in certificates_in(row.attributes)
    )
    return certificates, rows[-1][0] if len(rows) == rows_max else b""


def _user(row: DirectoryObjectRow) -> DirectoryUser:
    return DirectoryUser(
        attribute(row.attributes, "security_identifier", b""),
        tuple(one.certificate for one in certificates_in(row.attributes)),
        attribute(row.attributes, "name", ""),
    )


def _manager(identifier: Guid, row: DirectoryObjectRow) -> DirectoryManager:
    return DirectoryManager(
        identifier,
        attribute(row.attributes, "computer_name", ""),
        _keys(attribute(row.attributes, "public_encryption_key_list", b"")),
        _keys(attribute(row.attributes, "public_signing_key_list", b"")),
    )


def _keys(encoded: bytes) -> tuple[MqdsPublicKey, ...]:
    return parse_mqds_public_keys(encoded, 0, len(encoded))[0] if encoded else ()
