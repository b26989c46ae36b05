"""Acknowledgements are taken from the peers that the messages went to."""

from array import array

import pytest

from qm.model.queries import claims_that_hold
from qm.model.state.outgoing_queues import claims_of, peers_of
from qm.model.values import commands
from qm.model.values.commands import TransferVerdict
from qm.model.values.elements import BindingMode
from qm.model.values.limits import (
    ALARM_PEER_ELSEWHERE,
    TRANSFER_PEERS_MAX,
    VERSION_OF_FINAL_CLAIMS,
)
from qm.names.guid import guid_text
from qm.wire.message_class import MessageClass
from tests.unit.model.test_delivery import JOURNALED, TRANSACTIONAL, Sender

FAR, ADDRESS = b"FAR!" * 4, "10.9.8.7"
ACCEPTED, ELSEWHERE = TransferVerdict.ACCEPTED, TransferVerdict.ELSEWHERE
IGNORED = TransferVerdict.IGNORED
OFFENDER = (b"S" * 16, "10.0.0.66")


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def sender(request: pytest.FixtureRequest) -> Sender:
    """A sender of one message to FAR."""
    made = Sender(forgets=request.param)
    bind(made)
    made.send(1, **TRANSACTIONAL, **JOURNALED)
    opened(made, FAR, ADDRESS)
    made.assign()
    return made


def bind(sender: Sender, *pins: str) -> None:
    command = commands.SetBindings(BindingMode.BIND, 60_000, (), pins)
    assert sender.one(command).status == 0


def opened(sender: Sender, queue_manager: bytes, address: str) -> int:
    return sender.one(commands.TransferOpened(sender.queue_id, queue_manager, address)).status


def order_ack(sender: Sender, *peers: tuple[bytes, str]) -> list[int]:
    count = len(peers)
    command = commands.OrderAcked(
        array("Q", [7 << 32 | 1] * count),
        array("Q", [1] * count),
        b"".join(guid for guid, _ in peers),
        tuple(address for _, address in peers),
    )
    verdicts = sender.one(command).verdicts
    assert verdicts is not None
    return verdicts.tolist()


def final_acks(sender: Sender, *peers: tuple[bytes, str]) -> commands.FinalAcked:
    (position,) = sender.positions(sender.queue_id).values()
    count = len(peers)
    return commands.FinalAcked(
        array("Q", [position.message_ordinal] * count),
        array("Q", [MessageClass.ACK_RECEIVE] * count),
        b"".join(guid for guid, _ in peers),
        tuple(address for _, address in peers),
    )


def final_ack(sender: Sender, *peers: tuple[bytes, str]) -> list[int]:
    verdicts = sender.one(final_acks(sender, *peers)).verdicts
    assert verdicts is not None
    return verdicts.tolist()


def test_nobody_else_acknowledges_an_order(sender: Sender) -> None:
    sender.session_ack(*sender.keys())
    assert order_ack(sender, OFFENDER, (FAR, "10.0.0.66")) == [ELSEWHERE, ELSEWHERE]
    assert order_ack(sender) == []
    applied = sender.apply(commands.OrderAcked(array("Q", [7 << 32 | 1]), array("Q", [1])))
    assert applied.alarms == [ALARM_PEER_ELSEWHERE], "and an edge that does not say who, neither"
    assert sender.keys()
    assert order_ack(sender, OFFENDER, (FAR, ADDRESS)) == [ELSEWHERE, ACCEPTED]
    assert final_ack(sender, (FAR, ADDRESS)) == [ACCEPTED]
    assert not sender.keys()


def test_nobody_else_ends_a_message(sender: Sender) -> None:
    assert final_ack(sender, OFFENDER, (FAR, "10.0.0.66")) == [ELSEWHERE, IGNORED]
    assert sender.keys()
    assert final_ack(sender, (FAR, ADDRESS)) == [ACCEPTED]
    assert not claims_of(sender.state, 0, 10)


def test_one_claim_is_kept_of_a_message_until_it_can_be_believed(sender: Sender) -> None:
    """The peer says it once, and its session goes on; what others claim they keep."""
    applied = sender.apply(final_acks(sender, (FAR, "10.0.0.66")))
    assert applied.alarms == [ALARM_PEER_ELSEWHERE]
    assert final_ack(sender, (FAR, "10.0.0.66"), (FAR, "10.0.0.99")) == [IGNORED, ELSEWHERE]
    look = claims_that_hold(sender.machine.view, 0)
    assert look == ([], 0)
    bind(sender, f"{guid_text(FAR)} 10.0.0.66")
    ((ordinal, claim),), _ = claims_that_hold(sender.machine.view, 0)
    repeated = commands.FinalAcked(
        *(array("Q", [ordinal]), array("Q", [claim.message_class])),
        *(claim.queue_manager, (claim.address,)),
    )
    assert sender.one(repeated).verdicts == array("H", [ACCEPTED])
    assert not sender.keys()
    assert not claims_of(sender.state, 0, 10)
    assert claims_that_hold(sender.machine.view, 0) == ([], 0)


def test_a_claim_goes_with_its_message(sender: Sender) -> None:
    assert final_ack(sender, (FAR, "10.0.0.66")) == [IGNORED]
    assert claims_of(sender.state, 0, 10)
    failed = commands.TransferFailed(
        sender.queue_id, array("Q", sender.keys()), MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER
    )
    assert sender.one(failed).status == 0
    assert not claims_of(sender.state, 0, 10)


def test_an_older_cluster_keeps_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.model.world.APPLY_VERSION", VERSION_OF_FINAL_CLAIMS - 1)
    older = Sender(forgets=False)
    bind(older)
    older.send(1, **TRANSACTIONAL, **JOURNALED)
    opened(older, FAR, ADDRESS)
    older.assign()
    assert final_ack(older, (FAR, "10.0.0.66")) == [ELSEWHERE]
    assert not claims_of(older.state, 0, 10)


def test_a_peer_may_answer_from_where_it_is_pinned(sender: Sender) -> None:
    bind(sender, f"{guid_text(FAR)} 10.0.0.64/28", f"{guid_text(b'S' * 16)} 10.0.0.64/28")
    assert final_ack(sender, OFFENDER) == [ELSEWHERE], "nothing was sent to that queue manager"
    assert final_ack(sender, (FAR, "10.0.0.70")) == [ACCEPTED]


def test_a_queue_that_sent_nothing_yet_asks_nobody() -> None:
    sender = Sender(forgets=False)
    bind(sender)
    sender.send(1, **TRANSACTIONAL, **JOURNALED)
    sender.assign()
    assert final_ack(sender, OFFENDER) == [ACCEPTED]


def test_the_last_peers_of_a_queue_are_known(sender: Sender) -> None:
    for place in range(TRANSFER_PEERS_MAX):
        assert opened(sender, FAR, f"10.9.8.{place}") == 0
    assert opened(sender, FAR, "10.9.8.0") == 0
    peers = [address for _, address in peers_of(sender.state, sender.queue_id)]
    assert len(peers) == len(set(peers)) == TRANSFER_PEERS_MAX
    assert peers[0] == "10.9.8.0"
    assert opened(sender, b"short", ADDRESS)
    assert opened(sender, FAR, "x" * 100)
    assert sender.one(commands.TransferOpened(999, FAR, ADDRESS)).status
