"""The queue manager's own key pairs ([MS-MQDMPR] 3.1.1.1, 3.1.3), in generations.

The state has public keys and the sealed ring of private ones. Senders go on using a public key that
they looked up before, so that a replaced one is accepted for a time.
"""

from typing import Final

from qm.model.state.granting import is_granted_on_manager
from qm.model.state.ledger import Ledger
from qm.model.state.people import with_groups
from qm.model.state.tables import Table
from qm.model.values.commands import SetManagerKeys
from qm.model.values.effects import Outcome
from qm.model.values.limits import (
    KEY_GENERATIONS_MAX,
    PUBLIC_KEY_LIST_MAX_BYTES,
    SEALED_KEYS_MAX_BYTES,
)
from qm.model.values.records import ManagerKeys
from qm.wire.access_mask import MachineAccess
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
META_KEYS: Final = b"keys"
"""In META, once a SetManagerKeys was applied."""


class Keys:
    """Applies SetManagerKeys."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def apply_set_manager_keys(self, command: SetManagerKeys) -> Outcome:
        """Publish the keys of the present generation, or replace them by those of the next one."""
        ledger, manager = self._ledger, self._ledger.manager
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        sids = with_groups(ledger, command.sender_sids)
        access = MachineAccess.SET_MACHINE_PROPERTIES | MachineAccess.CHANGE_MACHINE_PERMISSIONS
        if not is_granted_on_manager(manager, sids, access):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        if (
            len(command.sealed_private_keys) > SEALED_KEYS_MAX_BYTES
            or len(command.exchange_keys) > PUBLIC_KEY_LIST_MAX_BYTES
            or len(command.signing_keys) > PUBLIC_KEY_LIST_MAX_BYTES
        ):
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        known = ledger.record(Table.META, META_KEYS, ManagerKeys) or ManagerKeys()
        if command.generation not in (known.generation, known.generation + 1):
            return Outcome(ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT, value=known.generation)
        if command.generation > known.generation:
            known = self._replaced(known, command.accepted_ms)
        ledger.put_record(Table.META, META_KEYS, known)
        manager.sealed_private_keys = command.sealed_private_keys
        manager.public_encryption_key_list = command.exchange_keys
        manager.public_signing_key_list = command.signing_keys
        manager.modify_time = ledger.now_ms // 1000
        manager.version += 1
        ledger.put_manager(manager)
        return Outcome(MQ_OK, value=known.generation)

    def _replaced(self, known: ManagerKeys, accepted_ms: int) -> ManagerKeys:
        """Return the next generation, and which ones are still accepted."""
        now = self._ledger.now_ms
        still = [(number, until) for number, until in known.replaced if until > now]
        kept = [(known.generation, now + accepted_ms), *still][: KEY_GENERATIONS_MAX - 1]
        return ManagerKeys(known.generation + 1, now, tuple(kept))
