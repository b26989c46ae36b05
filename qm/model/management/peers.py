"""What administrators have forgotten of other queue managers."""

from typing import Final

from qm.model.arrivals.duplicates import Duplicates
from qm.model.state.bindings import Bindings
from qm.model.state.granting import is_granted_on_manager
from qm.model.state.ledger import Ledger
from qm.model.state.people import with_groups
from qm.model.values.commands import ForgetPeer
from qm.model.values.effects import Outcome
from qm.model.values.limits import POSITIONS_PER_ENTRY_MAX
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.access_mask import MachineAccess
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0


class Peers:
    """Applies ForgetPeer."""

    def __init__(self, ledger: Ledger, duplicates: Duplicates, bindings: Bindings) -> None:
        self._ledger = ledger
        self._duplicates = duplicates
        self._bindings = bindings

    def apply_forget_peer(self, command: ForgetPeer) -> Outcome:
        """Forget a step; the value says whether there is more."""
        manager = self._ledger.manager
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        access = MachineAccess.SET_MACHINE_PROPERTIES
        sids = with_groups(self._ledger, command.sender_sids)
        if not is_granted_on_manager(manager, sids, access):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        is_peer = len(command.queue_manager) == GUID_SIZE_BYTES
        if not is_peer or not 1 <= command.count <= POSITIONS_PER_ENTRY_MAX:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        self._bindings.unbind(command.queue_manager)
        if command.is_address_only:
            return Outcome(MQ_OK, value=False)
        is_left = self._duplicates.forget_source(command.queue_manager, command.count)
        return Outcome(MQ_OK, value=is_left)
