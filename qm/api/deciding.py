"""Control commands: repeated until their outcome is known, and done once.

A caller names each call (`CALL_ID_KEY` in the metadata) and repeats it under that name, at whatever
node. Name, caller and content give a command its id; the state keeps the last results by it.
"""

import asyncio
from hashlib import sha256
from time import monotonic
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from qm.api.calls import call_id, caller
from qm.api.proposing import REPEAT_FOR_S, RETRY_PAUSE_S, Proposer
from qm.model.commands import Command, Request
from qm.model.control_requests import CONTROL_ID_BYTES
from qm.model.effects import Outcome
from qm.store.cluster import Cluster, Unavailable
from qm.store.codec import encode_command

UNNUMBERED: Final = Request("", 0, 0)
"""The request of a control command, before `Decider` names it."""
_CommandT = TypeVar("_CommandT", bound=Command)


def made_identifier(purpose: str) -> bytes:
    """Return a GUID for what this call makes: 16 bytes, the same when the call is repeated."""
    digest = sha256(f"{caller().name}\0{call_id()}\0{purpose}".encode()).digest()
    return UUID(bytes=digest[:16], version=4).bytes_le


class Decider:
    """See the module."""

    def __init__(self, cluster: Cluster, proposer: Proposer) -> None:
        self._cluster = cluster
        self._proposer = proposer

    async def decide(self, command: Command) -> Outcome:
        """Return the outcome, refusals included, once the state here shows it.

        Raises Unavailable, OutcomeUnknown after REPEAT_FOR_S.
        """
        end = monotonic() + REPEAT_FOR_S
        (outcome,) = await self._proposer.repeat(_named(command))
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


def _named(command: _CommandT) -> _CommandT:
    """Return a command that has a request with its id; others may be done twice without harm."""
    if not hasattr(command, "request"):
        return command
    content = f"{caller().name}\0{call_id()}\0".encode() + encode_command(command)
    control_id = sha256(content).digest()[:CONTROL_ID_BYTES]
    request = msgspec.structs.replace(UNNUMBERED, control_id=control_id)
    return msgspec.structs.replace(command, request=request)
