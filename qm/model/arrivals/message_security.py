"""How messages are judged by their signatures, bodies and senders ([MS-MQQB] 3.1.5.8.3).

Edges report facts; the policy that decides what they are worth is replicated (`SecurityPolicy`).
QB-A58: a queue's own demands are refused by the classes of bad signatures and bad encryption.
"""

from typing import Final

from qm.model.state.granting import is_granted_on_queue
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.people import groups_of
from qm.model.state.tables import Table
from qm.model.values.commands import Facts, SetSecurityPolicy, SignatureFact, TransferVerdict
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueuePrivacyLevel, SealedBodies
from qm.model.values.limits import VERSION_OF_MESSAGE_SECURITY, VERSION_OF_SEALED_BODIES
from qm.model.values.records import SecurityPolicy
from qm.security.sid import EVERYONE
from qm.wire.access_mask import QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.message_class import MessageClass

MQ_OK: Final = 0
META_SECURITY: Final = b"security"
"""In META, once a SetSecurityPolicy was applied."""
HASHES_MAX: Final = 16
_ACCEPTED: Final = int(TransferVerdict.ACCEPTED)
_DEFAULT: Final = SecurityPolicy()
_BAD: Final = frozenset({SignatureFact.INVALID, SignatureFact.UNVERIFIED})


class MessageSecurity:
    """Judges facts by the policy in the state."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: SecurityPolicy | None = None

    def forget(self) -> None:
        """Drop everything derived; only rows remain."""
        self._known = None

    def apply_set_security_policy(self, command: SetSecurityPolicy) -> Outcome:
        """Follow the leader's configuration from now on."""
        is_sealing_known = self._ledger.behaviour >= VERSION_OF_SEALED_BODIES
        sealed_bodies = command.sealed_bodies if is_sealing_known else int(SealedBodies.NONE)
        if len(command.hash_algorithms) > HASHES_MAX or sealed_bodies > max(SealedBodies):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        policy = SecurityPolicy(
            command.trusts_sender_id,
            command.hash_algorithms,
            command.accepts_strangers,
            command.refuses_reduced_keys,
            command.accepts_expired,
            sealed_bodies,
        )
        self._ledger.put_record(Table.META, META_SECURITY, policy)
        self.forget()
        self._ledger.version += 1
        return Outcome(MQ_OK)

    @property
    def _policy(self) -> SecurityPolicy:
        if self._known is None:
            found = self._ledger.record(Table.META, META_SECURITY, SecurityPolicy)
            self._known = _DEFAULT if found is None else found
        return self._known

    @property
    def _is_judged(self) -> bool:
        return self._ledger.behaviour >= VERSION_OF_MESSAGE_SECURITY

    def is_authenticated(self, facts: Facts) -> bool:
        """Whether a message that was not refused has a signature that counts."""
        if facts.signature is SignatureFact.VALID:
            return True
        is_stranger = facts.signature is SignatureFact.STRANGER
        return is_stranger and self._is_judged and self._policy.accepts_strangers

    def signature(self, queue: QueueInHand, facts: Facts) -> int:
        """Return whether a queue takes a message that is signed like this, or not at all."""
        if self._is_judged and facts.decryption_failed:
            return _ACCEPTED  # what it was signed over is unknown; `privacy` refuses it
        if self._is_judged and facts.is_provider_unknown and facts.signature in _BAD:
            return MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER  # QB-A59
        is_bad = facts.signature in _BAD or self._is_weak(facts)
        is_missing = queue.record.authentication and not self.is_authenticated(facts)
        return MessageClass.NACK_BAD_SIGNATURE if is_bad or is_missing else _ACCEPTED

    def _is_weak(self, facts: Facts) -> bool:
        """Whether a signature that matches does not count: by its hash, or its certificate."""
        if not facts.hash_algorithm or not self._is_judged:
            return False
        is_expired = facts.is_certificate_expired and not self._policy.accepts_expired
        return is_expired or facts.hash_algorithm not in self._policy.hash_algorithms

    def privacy(self, queue: QueueInHand, facts: Facts, *, is_encrypted: bool) -> int:
        """Return whether a queue takes a body protected like this (3.1.1.2 PrivacyLevel).

        `is_encrypted`: the packet still has Flags.EB. The edge decrypts what it can and reports it;
        EB means that it could not, also because the header's PrivacyLevel is undefined (MQ-A38).
        """
        level = queue.record.privacy_level
        is_sealed = is_encrypted and not facts.was_encrypted
        if self._is_judged:
            if facts.decryption_failed and facts.is_provider_unknown:
                return MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER
            is_reduced = facts.is_key_reduced and self._policy.refuses_reduced_keys
        else:
            is_reduced = False
        is_bad = is_sealed or facts.decryption_failed or is_reduced
        is_unwanted = facts.was_encrypted and level is QueuePrivacyLevel.NONE
        is_missing = not facts.was_encrypted and level is QueuePrivacyLevel.BODY
        if is_bad or is_unwanted or is_missing:
            return MessageClass.NACK_BAD_ENCRYPTION
        return _ACCEPTED

    def access(self, queue: QueueInHand, facts: Facts) -> int:
        """Return whether a sender may write to a queue."""
        sids = self._identity(facts)
        is_granted = is_granted_on_queue(queue, sids, QueueAccess.WRITE_MESSAGE)
        return _ACCEPTED if is_granted else MessageClass.NACK_ACCESS_DENIED

    def _identity(self, facts: Facts) -> tuple[bytes, ...]:
        """Return the SIDs that a sender stands for: what its signature proved, or the SID that it
        claims where the deployment trusts such claims.
        """
        if not self._is_judged:
            return facts.sender_sids
        sids = facts.sender_sids
        if not sids and facts.claimed_sid and self._policy.trusts_sender_id:
            sids = (facts.claimed_sid,)
        if not sids or sids == (EVERYONE,):
            return sids
        groups = [group for sid in sids for group in groups_of(self._ledger, sid)]
        return tuple(dict.fromkeys((*sids, *groups)))
