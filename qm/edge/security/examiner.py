"""What is known about a message before it is examined, and what its examination means as facts.

Called in the event loop alone. Caches of [MS-MQQB] 3.1.1.3 hold what was looked up: senders'
certificates that the directory knows, and session keys that were unwrapped. They are empty after a
start, and emptied when directory or keys change.
"""

from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from qm.edge.limits import (
    EXCHANGE_KEYS_MAX_COUNT,
    SIGNING_KEYS_MAX_COUNT,
    SYMMETRIC_KEY_LIFETIME_S,
    SYMMETRIC_KEYS_MAX_COUNT,
    USER_CERTIFICATE_LIFETIME_S,
    USER_CERTIFICATES_MAX_COUNT,
)
from qm.edge.security.aged_cache import AgedCache
from qm.edge.security.examination import Finding, Subject, is_reduced
from qm.model.values.commands import Facts, SignatureFact
from qm.security.body_ciphers import SessionKey
from qm.security.directory import Directory
from qm.security.own_keys import OwnKeys
from qm.security.providers import Provider
from qm.security.session_keys import UnusableKey, public_key
from qm.security.sid import EVERYONE, Sid, parse_sid
from qm.security.signatures import is_usable
from qm.wire.errors import ProtocolError
from qm.wire.guid import Guid
from qm.wire.headers.security_header import (
    SENDER_ID_NONE,
    SENDER_ID_QUEUE_MANAGER,
    SENDER_ID_SID,
    SecurityHeader,
    parse_provider_info,
)
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.user_certificate import certificate_digest

_RSA_TYPES: Final = frozenset({1, 2, 12, 24})
"""PROV_RSA_FULL, PROV_RSA_SIG, PROV_RSA_SCHANNEL, PROV_RSA_AES."""
_PROVIDERS: Final[dict[int, Provider]] = {int(provider): provider for provider in Provider}


class KeysSealed(Exception):
    """This node cannot open what another node can."""


class Signer(msgspec.Struct, frozen=True, gc=False):
    """Who may have signed a message."""

    signature: SignatureFact
    """What a signature of theirs is worth."""
    public_keys: tuple[RSAPublicKey, ...] = ()
    sids: tuple[Sid, ...] = ()
    valid_from_s: float = 0.0
    valid_until_s: float = float("inf")
    """Epoch seconds."""
    is_provider_unknown: bool = False


_NOBODY: Final = Signer(SignatureFact.ABSENT)
_FALSE: Final = Signer(SignatureFact.INVALID)
_FOREIGN: Final = Signer(SignatureFact.UNVERIFIED, is_provider_unknown=True)
"""Its certificate, or its provider, is not for RSA."""

CertificateKey = tuple[bytes, bytes]
"""Certificate and SecurityID, as in the packet."""
SymmetricKeyPlace = tuple[Provider, int, Guid, bytes]
"""CryptoServiceProvider, CryptoAlgorithm, RemoteQMGuid, EncryptedSymmetricKey (3.1.1.3.3)."""


class Question(msgspec.Struct, frozen=True, gc=False):
    """A message to be examined, with what its facts need besides."""

    subject: Subject
    signer: Signer
    place: SymmetricKeyPlace | None
    """Where its session key is cached."""


class Examiner:
    """Prepares examinations and reads their findings."""

    def __init__(self, directory: Directory, keys: OwnKeys) -> None:
        self._directory = directory
        self._keys = keys
        self._versions = (directory.version, keys.version)
        self.user_certificates: Final = AgedCache[CertificateKey, Signer](
            USER_CERTIFICATES_MAX_COUNT, USER_CERTIFICATE_LIFETIME_S
        )
        self.symmetric_keys: Final = AgedCache[SymmetricKeyPlace, SessionKey](
            SYMMETRIC_KEYS_MAX_COUNT, SYMMETRIC_KEY_LIFETIME_S
        )

    def question(self, raw: bytes, message: UserMessage, now: float) -> Question:
        """Return what there is to examine of a message with a SecurityHeader.

        `now`: monotonic seconds. Raises KeysSealed.
        """
        self._renew()
        security = message.security
        assert security is not None, "a message without SecurityHeader"
        signer = self._signer(message, security, now)
        subject = Subject(
            raw, message, security, public_keys=signer.public_keys, signature=signer.signature
        )
        if not security.is_body_encrypted:
            return Question(subject, signer, None)
        return self._encrypted(subject, signer)

    def _renew(self) -> None:
        versions = (self._directory.version, self._keys.version)
        if versions != self._versions:
            self._versions = versions
            self.user_certificates.clear()
            self.symmetric_keys.clear()

    def _encrypted(self, subject: Subject, signer: Signer) -> Question:
        message = subject.message
        provider = _PROVIDERS.get(message.properties.privacy_level)
        if provider is None:  # the text's answer to an undefined level is BAD_ENCRYPTION
            return Question(subject, signer, None)
        place = (
            provider,
            message.properties.encryption_algorithm,
            message.user_header.source_queue_manager,
            subject.security.encryption_key,
        )
        known = self.symmetric_keys.get(place)
        exchange_keys: tuple[RSAPrivateKey, ...] = ()
        if known is None:
            if self._keys.is_sealed:
                raise KeysSealed("this node has not unsealed the queue manager's keys")
            exchange_keys = tuple(self._keys.exchange_keys(provider)[:EXCHANGE_KEYS_MAX_COUNT])
        subject = msgspec.structs.replace(
            subject, provider=provider, session_key=known, exchange_keys=exchange_keys
        )
        return Question(subject, signer, place)

    # Who signed ------------------------------------------------------------------------------

    def _signer(self, message: UserMessage, security: SecurityHeader, now: float) -> Signer:
        lists = message.multi_queue_format
        if not security.signature and not (lists is not None and lists.signature):
            return _NOBODY
        if _is_foreign(security):
            return _FOREIGN
        if security.sender_id_type == SENDER_ID_QUEUE_MANAGER:
            return self._manager(message, security)
        key = (security.sender_cert, security.security_id)
        known = self.user_certificates.get(key)
        if known is not None:
            return known
        found = _of_certificate(security.sender_cert)
        if not found.public_keys:
            return found
        if security.sender_id_type == SENDER_ID_NONE:
            if not self._is_registered(security.sender_cert):
                return msgspec.structs.replace(found, signature=SignatureFact.STRANGER)
        else:
            user = self._directory.user(security.security_id)
            if user is None or security.sender_cert not in user.certificates:
                return _FALSE
            found = msgspec.structs.replace(found, sids=(security.security_id,))
        self.user_certificates.put(key, found, now)
        return found

    def _is_registered(self, certificate: bytes) -> bool:
        """Whether anyone registered a certificate (QB-A55)."""
        for sid in self._directory.users_with(certificate_digest(certificate)):
            user = self._directory.user(sid)
            if user is not None and certificate in user.certificates:
                return True
        return False

    def _manager(self, message: UserMessage, security: SecurityHeader) -> Signer:
        """QB-A57: a queue manager signs with one of the keys that the directory has of it, and only
        what it sends itself. It counts as Everyone.
        """
        source = message.user_header.source_queue_manager
        manager = self._directory.queue_manager(source) if security.security_id == source else None
        if manager is None:
            return _FALSE
        keys = []
        for published in manager.signing_keys[:SIGNING_KEYS_MAX_COUNT]:
            try:
                keys.append(public_key(published.key))
            except UnusableKey:
                continue
        return Signer(SignatureFact.VALID, tuple(keys), (EVERYONE,))

    # What it means -------------------------------------------------------------------------

    def facts(
        self, question: Question, finding: Finding, plain: Facts, now: float, now_s: int
    ) -> Facts:
        """Return the facts of an examined message, and cache its session key.

        `plain`: those of its session; `now_s`: cluster time, epoch seconds.
        """
        subject, signer = question.subject, question.signer
        security, provider = subject.security, subject.provider
        key = finding.session_key
        if key is not None and question.place is not None and subject.session_key is None:
            self.symmetric_keys.put(question.place, key, now)
        if finding.signature is SignatureFact.ABSENT and not subject.is_encrypted:
            claimed = _claimed_sid(security)
            return msgspec.structs.replace(plain, claimed_sid=claimed) if claimed else plain
        lacks_keys = provider is not None and not subject.exchange_keys
        is_keyless = lacks_keys and subject.session_key is None
        is_matching = bool(finding.signature_version)
        is_signed = finding.signature is not SignatureFact.ABSENT
        return msgspec.structs.replace(
            plain,
            sender_sids=signer.sids if is_matching else (),
            signature=finding.signature,
            certificate_digest=(
                certificate_digest(security.sender_cert)
                if is_signed and security.sender_cert
                else b""
            ),
            was_encrypted=finding.was_encrypted,
            decryption_failed=finding.decryption_failed,
            claimed_sid=b"" if is_signed else _claimed_sid(security),
            signature_version=finding.signature_version,
            hash_algorithm=subject.message.properties.hash_algorithm if is_matching else 0,
            is_key_reduced=key is not None and provider is not None and is_reduced(key, provider),
            is_provider_unknown=(
                is_keyless if finding.decryption_failed else signer.is_provider_unknown
            ),
            is_certificate_expired=(
                is_matching and not signer.valid_from_s <= now_s <= signer.valid_until_s
            ),
        )


def _is_foreign(security: SecurityHeader) -> bool:
    """Whether another provider made the signature than one of those for RSA (MQ-A34, QB-A59)."""
    raw = security.provider_info
    if not raw or security.is_default_provider:
        return False
    try:
        info, _ = parse_provider_info(raw, 0, len(raw))
    except ProtocolError:
        return True
    return info.provider_type not in _RSA_TYPES


def _claimed_sid(security: SecurityHeader) -> bytes:
    """Return the SID that a message names, b"" for anything else."""
    sid = security.security_id
    if security.sender_id_type != SENDER_ID_SID:
        return b""
    try:
        _, end = parse_sid(sid, 0, len(sid), "SecurityHeader.SecurityID")
    except ProtocolError:
        return b""
    return sid if end == len(sid) else b""


def _of_certificate(certificate: bytes) -> Signer:
    """Return whose signature a certificate verifies, with VALID, or why none."""
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        key = parsed.public_key()
        begin, end = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    except UnsupportedAlgorithm:
        return _FOREIGN
    except (ValueError, x509.InvalidVersion):
        return _FALSE
    if not isinstance(key, RSAPublicKey):
        return _FOREIGN
    if not is_usable(key):
        return _FALSE
    return Signer(
        SignatureFact.VALID,
        (key,),
        valid_from_s=begin.timestamp(),
        valid_until_s=end.timestamp(),
    )
