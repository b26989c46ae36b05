"""Addresses of the cluster's nodes: replicated, so that a node learns of one that joins."""

from typing import Final

from qm.model.state.events import Events
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.commands import SetMember
from qm.model.values.effects import Outcome
from qm.model.values.elements import EventKind
from qm.model.values.limits import MEMBER_NAME_MAX_BYTES, MEMBERS_MAX
from qm.model.values.records import MemberAddress
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
META_MEMBER: Final = b"member/"
"""Precedes the name, in META."""
META_MEMBER_END: Final = b"member0"


class Members:
    """Applies SetMember."""

    def __init__(self, ledger: Ledger, events: Events) -> None:
        self._ledger = ledger
        self._events = events

    def apply_set_member(self, command: SetMember) -> Outcome:
        """Store where a node can be reached, or forget it."""
        name = command.node.encode()
        if not 1 <= len(name) <= MEMBER_NAME_MAX_BYTES:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        state, key = self._ledger.state, META_MEMBER + name
        before = self._ledger.record(Table.META, key, MemberAddress)
        if not command.host:
            state.delete(Table.META, key)
            if before is not None:
                self._note("left", command.node, f"{command.node} left the cluster")
            return Outcome(MQ_OK)
        known = state.scan(Table.META, META_MEMBER, META_MEMBER_END, MEMBERS_MAX)
        if len(known) == MEMBERS_MAX and before is None:
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES)
        ports = (command.raft_port, command.relay_port, command.api_port)
        address = MemberAddress(command.host, *ports)
        self._ledger.put_record(Table.META, key, address)
        if before is None:
            self._note("joined", command.node, f"{command.node} joined at {command.host}")
        elif before != address:
            self._note("moved", command.node, f"{command.node} is at {command.host} from now on")
        return Outcome(MQ_OK)

    def _note(self, name: str, node: str, text: str) -> None:
        self._events.add(EventKind.MEMBER, name, text, node=node)
