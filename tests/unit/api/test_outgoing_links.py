"""What the leader knows of a link, as callers of its own API and of another node's are told it.

No peer brings a link into all of these states at will: the leader's knowledge is given.
"""

from typing import Any

import pytest

from qm.edge.outgoing.link_report import LinkReport
from qm.edge.outgoing.manager import OutgoingManager
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2
from qm.session import OutgoingState
from qm.session.link import ConnectionHistoryEntry, ConnectionStatus
from tests.cluster.harness import run
from tests.unit.api.test_control import ELSEWHERE, Operator, flag
from tests.unit.api.world import eventually, world

GET = pb.GetOutgoingRequest(queue=pb.QueueName(name=ELSEWHERE))
WORDS = {
    "InProcess": "Establishing",
    "EstablishPacketReceived": "EstablishPacketReceived",
    "Established": "Ready",
    "UnknownFailure": "UnknownFailure",
    "PingFailure": "PingFailure",
    "SocketCreateFailure": "CreateSocketFailure",
    "SocketBindFailure": "BindSocketFailure",
    "SocketConnectFailure": "ConnectSocketFailure",
    "TcpNotEnabled": "TcpNotEnabled",
    "SocketSendFailure": "SendFailure",
    "ConnectionNotReady": "SendNotReady",
    "DnsFailure": "DnsFailure",
    "CertificateValidationFailure": "HttpsCertificateFailure",
    "ConnectionLimitReached": "ConnectionLimitReached",
    "ConnectionRefused": "RefusedByPeer",
    "RoutingDataNotAvailable": "NoDirectoryForRouting",
    "LowResource": "LowMemory",
}
"""The API names a status as PROPID_MGMT_QUEUE_CONNECTION_HISTORY does [MS-MQMQ 2.3.12.25]."""
HISTORY = tuple(
    ConnectionHistoryEntry(
        ConnectionStatus(status), 1_700_000_000 + n, 0xC00E_0001 + n, f"10.0.0.{n}"
    )
    for n, status in enumerate(WORDS)
)


def known(state: OutgoingState) -> LinkReport:
    return LinkReport(
        state=state,
        next_hops=("IP=10.0.0.1", "IPv6=fd00::2"),
        connection_history=HISTORY,
        loaded_count=1,
        eod_no_ack_count=2,
        eod_last_ack_time=1_700_000_003,
        eod_last_ack_count=4,
        eod_resend_interval_s=5,
        eod_resend_count=6,
        eod_resend_time=1_700_000_007,
    )


@pytest.mark.spec("DM-3.1.1.3-03", "DM-3.1.1.3-06", "DM-3.1.1.3-07", "DM-3.1.1.4-02")
def test_every_node_tells_what_the_leader_knows_of_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world(3) as made, made.client(await made.leader()) as client:
            (other, *_) = await made.followers()
            async with made.channel(other) as channel:
                faces = [Operator(client.channel), Operator(channel)]
                await client.open(ELSEWHERE, data_pb2.SEND_ACCESS)
                for state in OutgoingState:
                    report = known(state)
                    monkeypatch.setattr(OutgoingManager, "report", lambda *_, one=report: one)
                    for face in faces:
                        told = await face.outgoing.GetOutgoing(GET)
                        assert pb.OutgoingState.Name(told.state) == state.name
                        check(told)
                        listed = await face.outgoing.ListOutgoing(pb.ListOutgoingRequest())
                        assert list(listed.queues) == [told]
                # These are states of the queue, whatever its link does.
                assert (await faces[0].outgoing.Pause(GET)).state == pb.ON_HOLD
                await faces[0].outgoing.Resume(GET)
                hardened = pb.SetQueueManagerRequest(changes={"hardened_security": flag(True)})
                await faces[0].queues.SetQueueManager(hardened)
                for face in faces:

                    async def look(face: Operator = face) -> Any:
                        return await face.outgoing.GetOutgoing(GET)

                    await eventually(look, lambda told: told.state == pb.LOCKED)

    run(scenario())


def check(told: pb.OutgoingQueue) -> None:
    """Hold what was told against what is known."""
    assert list(told.next_hops) == ["IP=10.0.0.1", "IPv6=fd00::2"]
    assert (told.last_ack_time_s, told.last_ack_count) == (1_700_000_003, 4)
    assert (told.resend_interval_s, told.resend_count) == (5, 6)
    assert told.next_resend_ms == 1_700_000_007_000
    assert list(told.connection_history) == [
        f"2023-11-14T22:13:{20 + n}Z {word} 10.0.0.{n} error 0xc00e{1 + n:04x}"
        for n, word in enumerate(WORDS.values())
    ]
    assert told.last_error == "LowResource 10.0.0.16"
