"""Presentation contexts of a connection: which interface its context ids mean [C706 12.6.4.3]."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from qm.rpc.interface import Interface
from qm.rpc.limits import CONTEXTS_PER_CONNECTION_MAX
from qm.rpc.pdu.bind import NDR20, NDR64, Answer, Proposal, Syntax, features_of
from qm.rpc.pdu.codes import FEATURES, ContextResult, RejectReason
from qm.wire.guid import Guid

_KNOWN: Final = (NDR20, NDR64)
"""Transfer syntaxes that mean something here, whether they are served or not."""


class Presentation(msgspec.Struct, frozen=True):
    """An accepted presentation context."""

    interface: Interface
    transfer: Syntax


class Presentations:
    """The accepted contexts of one connection."""

    def __init__(self, interfaces: Mapping[tuple[Guid, int], Interface]) -> None:
        """`interfaces`: what may be bound, by UUID and major version."""
        self._interfaces = interfaces
        self._by_number: dict[int, Presentation] = {}

    def get(self, number: int) -> Presentation | None:
        """Return an accepted context."""
        return self._by_number.get(number)

    def __getitem__(self, number: int) -> Presentation:
        return self._by_number[number]

    def contradicts(self, proposals: Sequence[Proposal]) -> bool:
        """Whether a proposal would change a context that was accepted: a protocol error."""
        return any(self._changes(one) for one in proposals)

    def _changes(self, proposal: Proposal) -> bool:
        known = self._by_number.get(proposal.context_id)
        if known is None:
            return False
        asked, ours = proposal.interface, known.interface.syntax
        others = (one for one in _KNOWN if one != known.transfer)
        return (asked.uuid, asked.major) != (ours.uuid, ours.major) or any(
            one in proposal.transfers for one in others
        )

    def judge(self, proposals: Sequence[Proposal]) -> list[Answer]:
        """Accept what can be accepted of a bind or alter_context, in its order (RP-A5).

        The same interface and syntax are accepted once: clients propose an interface again only
        with another syntax.
        """
        answers: list[Answer] = []
        accepted: set[Syntax] = set()
        for proposal in proposals:
            answer = self._judge(proposal)
            if answer.result == ContextResult.ACCEPTANCE:
                if proposal.interface in accepted:
                    answer = Answer(
                        ContextResult.PROVIDER_REJECTION, RejectReason.TRANSFER_SYNTAXES
                    )
                else:
                    accepted.add(proposal.interface)
                    self._accept(proposal)
            answers.append(answer)
        return answers

    def _accept(self, proposal: Proposal) -> None:
        asked = proposal.interface
        interface = self._interfaces[asked.uuid, asked.major]
        self._by_number[proposal.context_id] = Presentation(interface, NDR20)

    def _judge(self, proposal: Proposal) -> Answer:
        rejection = ContextResult.PROVIDER_REJECTION
        features = features_of(proposal.transfers[0])
        if features is not None:
            return Answer(ContextResult.NEGOTIATE_ACK, features & FEATURES)
        asked = proposal.interface
        interface = self._interfaces.get((asked.uuid, asked.major))
        if interface is None or asked.minor > interface.syntax.minor:
            return Answer(rejection, RejectReason.ABSTRACT_SYNTAX)
        if NDR20 not in proposal.transfers:
            return Answer(rejection, RejectReason.TRANSFER_SYNTAXES)
        known = self._by_number.get(proposal.context_id)
        if known is not None and known.interface is not interface:
            return Answer(rejection, RejectReason.NOT_SPECIFIED)
        if known is None and len(self._by_number) >= CONTEXTS_PER_CONNECTION_MAX:
            return Answer(rejection, RejectReason.LOCAL_LIMIT)
        return Answer(ContextResult.ACCEPTANCE, 0, NDR20)
