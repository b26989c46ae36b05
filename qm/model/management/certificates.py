"""Certificates of users, registered and removed one by one ([MC-MQAC] 3.2.4.2.1).

A user registers for its own SID; who may set properties of the queue manager, for every SID.
"""

from typing import Any, Final

from qm.model.management.directory import Directory
from qm.model.state.directory_rows import (
    attribute,
    certificates_in,
    identifier_of,
    object_row,
)
from qm.model.state.granting import is_granted_on_manager
from qm.model.state.ledger import Ledger
from qm.model.state.people import with_groups
from qm.model.state.tables import Table
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import RegisterCertificate, RemoveCertificate
from qm.model.values.directory_objects import refusal_of
from qm.model.values.effects import Outcome
from qm.model.values.elements import DirectoryObjectType, DirectoryOperationResult
from qm.model.values.limits import (
    CERTIFICATES_PER_USER_MAX,
    DIRECTORY_NAME_MAX_CHARS,
)
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.access_mask import MachineAccess
from qm.wire.codes import ErrorCode
from qm.wire.limits import SENDER_CERT_MAX_BYTES
from qm.wire.structures.user_certificate import (
    DIGEST_SIZE_BYTES,
    UserCertificate,
    write_user_certificates,
)

MQ_OK: Final = 0
INTERNAL_CERTIFICATE: Final = "internal_certificate"
"""Attribute of a user: digest of the one of its certificates that is the internal one. It stands
for InternalCertificateCollection ([MS-MQDMPR] 3.1.1.1), which has at most one of each user."""
_USER: Final = DirectoryObjectType.USER


class Certificates:
    """Applies RegisterCertificate and RemoveCertificate."""

    def __init__(self, ledger: Ledger, directory: Directory) -> None:
        self._ledger = ledger
        self._directory = directory

    def apply_register_certificate(self, command: RegisterCertificate) -> Outcome:
        """Add a certificate; one that the user has already stays as it is."""
        refusal = self._refusal(command.sid, command.sender_sids) or self._flaw(command)
        if refusal:
            return Outcome(refusal)
        identifier, attributes = self._user(command.sid)
        if identifier is None:
            identifier = command.user_identifier
            if self._ledger.state.get(Table.DIRECTORY, identifier) is not None:
                return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_ALREADY_EXISTS)
            attributes = {
                "security_identifier": encode_attribute(command.sid),
                "name": encode_attribute(command.name),
            }
        internal = attribute(attributes, INTERNAL_CERTIFICATE, b"")
        kept = list(certificates_in(attributes))
        if command.is_internal:
            if internal and command.is_conditional:
                return Outcome(ErrorCode.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST)
            kept = [one for one in kept if one.digest != internal]
            internal = command.digest
        if all(one.certificate != command.certificate for one in kept):
            kept.append(UserCertificate(command.digest, command.identifier, command.certificate))
        if len(kept) > CERTIFICATES_PER_USER_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        return self._put(identifier, attributes, kept, internal)

    def apply_remove_certificate(self, command: RemoveCertificate) -> Outcome:
        """Remove certificates; a user who has none of this digest is not found."""
        refusal = self._refusal(command.sid, command.sender_sids)
        if refusal:
            return Outcome(refusal)
        identifier, attributes = self._user(command.sid)
        found = certificates_in(attributes)
        kept = [one for one in found if one.digest != command.digest]
        if identifier is None or len(kept) == len(found):
            return Outcome(MQ_OK, value=DirectoryOperationResult.OBJECT_NOT_FOUND)
        internal = attribute(attributes, INTERNAL_CERTIFICATE, b"")
        return self._put(
            identifier, attributes, kept, b"" if internal == command.digest else internal
        )

    def _refusal(self, sid: bytes, sender_sids: tuple[bytes, ...]) -> int:
        manager = self._ledger.manager
        if manager is None:
            return ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
        access = MachineAccess.SET_MACHINE_PROPERTIES
        sids = with_groups(self._ledger, sender_sids)
        is_granted = sid in sender_sids or is_granted_on_manager(manager, sids, access)
        return MQ_OK if is_granted else ErrorCode.MQ_ERROR_ACCESS_DENIED

    def _user(self, sid: bytes) -> tuple[bytes | None, dict[str, bytes]]:
        state = self._ledger.state
        identifier = identifier_of(state, _USER, sid)
        row = None if identifier is None else object_row(state, identifier, _USER)
        return (None, {}) if row is None else (identifier, dict(row.attributes))

    def _flaw(self, command: RegisterCertificate) -> int:
        """Return the code that refuses the command's values, 0 if they are sound."""
        guids = command.identifier, command.user_identifier
        is_sized = all(len(guid) == GUID_SIZE_BYTES for guid in guids)
        if not is_sized or len(command.digest) != DIGEST_SIZE_BYTES:
            return ErrorCode.MQ_ERROR_INVALID_PARAMETER
        if not 0 < len(command.certificate) <= SENDER_CERT_MAX_BYTES:
            return ErrorCode.MQ_ERROR_INVALID_CERTIFICATE
        if len(command.name) > DIRECTORY_NAME_MAX_CHARS:
            return ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        form = {"security_identifier": command.sid}
        return refusal_of(_USER, form, self._ledger.behaviour)

    def _put(
        self,
        identifier: bytes,
        attributes: dict[str, bytes],
        certificates: list[UserCertificate],
        internal: bytes,
    ) -> Outcome:
        digests = tuple(one.digest for one in certificates)
        changes: dict[str, Any] = {
            "certificates": write_user_certificates(tuple(certificates)),
            "certificate_digest_list": digests,
            INTERNAL_CERTIFICATE: internal,
        }
        encoded = {name: encode_attribute(value) for name, value in changes.items()}
        return self._directory.put(identifier, _USER, attributes | encoded)
