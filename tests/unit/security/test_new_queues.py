"""Whose a new queue is, and what its default list grants [MS-MQDMPR 3.1.7.1.3.1], over the API."""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest

from qm.api.gate.identity import Role, principal_sid
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.security.descriptor import SecurityDescriptor, parse_descriptor, write_descriptor
from qm.security.sid import Sid, sid_from_text
from tests.cluster.harness import run
from tests.unit.api.world import world

PATH = r".\private$\orders"
EVERYONE, ANONYMOUS = sid_from_text("S-1-1-0"), sid_from_text("S-1-5-7")
ADMINISTRATORS = sid_from_text("S-1-5-32-544")


async def created(channel: grpc.aio.Channel, path: str, given: bytes = b"") -> SecurityDescriptor:
    """Create a queue and return the descriptor that it has."""
    queues: Any = control_pb2_grpc.QueueControlStub(channel)
    await queues.CreateQueue(pb.CreateQueueRequest(path_name=path, security_descriptor=given))
    kept = await queues.GetAcl(pb.GetAclRequest(queue=pb.QueueName(name=path)))
    return parse_descriptor(kept.security_descriptor)


def grants(descriptor: SecurityDescriptor) -> list[tuple[int, Sid]]:
    assert descriptor.dacl is not None
    return [(entry.mask, entry.sid) for entry in descriptor.dacl.entries]


@pytest.mark.spec(
    "AC-3.10.4.1.26.1-05", "DM-3.1.7.1.3.1-01", "DM-3.1.7.1.3.1-06", "DM-3.1.7.1.3.1-07"
)
def test_a_queue_is_its_creators_and_open_to_what_no_name_is_known_of() -> None:
    async def scenario() -> None:
        async with world(is_secure=True) as made:
            node = await made.leader()
            for name, role in (("alice", Role.CLIENT), ("oscar", Role.OPERATOR)):
                own = principal_sid(name)
                async with made.channel(node, name, role) as channel:
                    new = await created(channel, rf".\private$\{name}")
                    assert new.owner == own, "who calls"
                    # Peers over SRMP have no name here; the machine's own SID is never read.
                    assert grants(new) == [
                        (0x0002_0024, EVERYONE),
                        (0x0000_0004, ANONYMOUS),
                        (0x000F_003F, own),
                        (0x000F_003F, ADMINISTRATORS),
                    ]
                    other = write_descriptor(SecurityDescriptor(owner=principal_sid("bob")))
                    assert (await created(channel, rf".\{name}", other)).owner != own

    run(scenario())
