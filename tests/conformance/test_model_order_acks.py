"""Order acknowledgements as what they are: messages of the receiving queue manager [MS-MQMQ 1.1].

How they are numbered, timed and carried has tests of its own (tests/unit/edge/outgoing/acks).
"""

from __future__ import annotations

import pytest

from qm.cluster.relay import SessionFacts
from qm.model.values.commands import Facts, TransferVerdict
from tests.unit.edge.outgoing.world import PEER_GUID, SendingCluster, run, settled, until
from tests.unit.model.world import OWN, packet

HOST = "127.0.0.48"
SEQUENCE = 9 << 32 | 5


@pytest.mark.spec("MQ-1.1-10")
@pytest.mark.parametrize("is_prompt", [False, True])
def test_what_reaches_a_transactional_queue_is_told_by_a_message(is_prompt: bool) -> None:
    async def scenario() -> None:
        async with SendingCluster(1801, has_prompt_acks=is_prompt) as cluster:
            world = cluster.world
            world.create("plain")
            world.create("exact", transactional=True)
            cluster.hub.session("n3", SessionFacts(7, PEER_GUID, HOST, 1_000))
            seen = Facts(1, PEER_GUID, HOST, ())
            for raw, is_told in (
                (packet(1, to="plain", source_queue_manager=PEER_GUID), False),
                (
                    packet(
                        2, to="exact", sequence=(SEQUENCE, 1, 0), source_queue_manager=PEER_GUID
                    ),
                    True,
                ),
            ):
                assert world.arrive(raw, facts=seen) == [TransferVerdict.ACCEPTED]
                await settled()
                cluster.advance(11)
                if is_told:
                    await until(lambda: cluster.hub.late)
                await settled()
                assert len(cluster.hub.late_messages()) == is_told
            (told,) = cluster.hub.late_messages()
            assert told.user_header.source_queue_manager == OWN
            assert told.properties.message_class == 0x00FF
            assert told.properties.message_body[:16] == (
                (5).to_bytes(4, "little")
                + (9).to_bytes(4, "little")
                + (1).to_bytes(4, "little")
                + bytes(4)
            )

    run(scenario())
