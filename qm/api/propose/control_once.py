"""Control commands: repeated until their outcome is known, and done once.

A caller names each call (`CALL_ID_KEY` in the metadata) and repeats it under that name, at any
node. Name, caller and request give a command its id, under which the state keeps the last results.
The request counts, not the command: that may be made from a state which it has changed itself.
"""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from time import monotonic
from typing import Final
from uuid import UUID

import msgspec
from google.protobuf.message import Message

from qm.api.gate.calls import call_id, caller, control_call, is_in_history
from qm.api.propose.proposer import REPEAT_FOR_S, RETRY_PAUSE_S, Proposer
from qm.cluster.cluster import Cluster, Unavailable
from qm.model.clients.control_requests import CONTROL_ID_BYTES, control_result
from qm.model.values.commands import Command, Request
from qm.model.values.effects import Outcome
from qm.model.values.limits import VERSION_OF_EVENTS

UNNUMBERED: Final = Request("", 0, 0)
"""The request of a control command, before `Decider` names it."""


def made_identifier(purpose: str) -> bytes:
    """Return a GUID for what this call creates: 16 bytes, the same when the call is repeated."""
    digest = sha256(f"{caller().name}\0{call_id()}\0{purpose}".encode()).digest()
    return UUID(bytes=digest[:16], version=4).bytes_le


class Decider:
    """Has control commands done once, however often their call is repeated."""

    def __init__(self, cluster: Cluster, proposer: Proposer) -> None:
        self._cluster = cluster
        self._proposer = proposer

    async def once(self, asked: Message, make: Callable[[], Command]) -> Outcome:
        """Execute a request unless it was done before; return the outcome, including refusals.

        `make` returns the command, made from the present state; it may raise. It is not called for
        a repeated call: the first one may have changed the state on which it relies. Returns once
        the state here shows the outcome. Raises Unavailable, OutcomeUnknown after REPEAT_FOR_S.
        """
        control_id = _control_id(asked)
        await self._cluster.read_barrier()
        known = control_result(self._cluster.view.ledger, control_id)
        if known is None:
            call = None
            if self._cluster.view.counters().apply_version >= VERSION_OF_EVENTS:
                call = control_call(self._cluster.node, asked)
            request = msgspec.structs.replace(UNNUMBERED, control_id=control_id, call=call)
            known = await self.decide(msgspec.structs.replace(make(), request=request))
            if call is None:
                return known
        is_in_history()
        return known

    async def decide(self, command: Command) -> Outcome:
        """Like `once`, for a command without a request, which may be done twice without harm."""
        end = monotonic() + REPEAT_FOR_S
        (outcome,) = await self._proposer.repeat(command)
        await self._barrier(end)
        return outcome

    async def _barrier(self, end: float) -> None:
        while True:
            try:
                await self._cluster.read_barrier()
            except Unavailable:
                if monotonic() + RETRY_PAUSE_S >= end:
                    raise
            else:
                return
            await asyncio.sleep(RETRY_PAUSE_S)


def _control_id(asked: Message) -> bytes:
    """Return the id of the command for a request: the same however often it is repeated."""
    name = f"{caller().name}\0{call_id()}\0{asked.DESCRIPTOR.full_name}\0"
    content = name.encode() + asked.SerializeToString(deterministic=True)
    return sha256(content).digest()[:CONTROL_ID_BYTES]
