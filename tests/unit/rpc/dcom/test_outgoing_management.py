"""What a program over DCOM sees of messages on their way to another queue manager."""

from __future__ import annotations

import time
from typing import Any

import pytest

from qm.edge.outgoing.manager import OutgoingManager
from qm.node.config.schema import MSMQ_PORT
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.automation.vartypes import ARRAY, VarType
from qm.rpc.remote_management.interface import QMMGMT
from qm.session import OutgoingState
from qm.wire.packets.user_message import parse_user_message
from tests.cluster.harness import free_network, run, until
from tests.unit.api.test_outgoing_links import known as a_link_in
from tests.unit.edge.outgoing.world import Peer
from tests.unit.rpc.dcom.scripts import (
    SEND,
    DcomWorld,
    Late,
    Program,
    dcom_world,
    eventually,
    play,
    pointed,
    slot,
)
from tests.unit.rpc.test_management_values import FOREIGN, XACT
from tests.unit.rpc.test_remote_management import info as told
from tests.unit.rpc.test_remote_management import queue

FAR = r"DIRECT=OS:far.invalid\private$\orders"
EXACT = r".\private$\exact"
OUTGOING = "IMSMQOutgoingQueueManagement"
COUNTS = (
    "EodLastAckTime", "EodLastAckCount", "EodNoReadCount", "EodNoAckCount", "EodResendTime",
    "EodResendInterval", "EodResendCount",
)  # fmt: skip
PLACES = ("EodLastAck", "EodFirstNonAck", "EodLastNonAck", "EodNextSeq")
SINGLE_MESSAGE = Variant(VarType.I4, 3)
DEAD_LETTER = 1
FIRST_RESEND_S = 30
CONNECTED, ON_HOLD = 6, 4
Stage = dict[str, Any]


async def look(management: Late, peer: Peer) -> Stage:
    """Everything that the object tells of its queue, and what the other side has got."""
    raw = await slot(management, OUTGOING, "EodGetSendInfo", "method")
    info = await Late(management.server, pointed(raw)).as_dispatch()
    found: Stage = {name: await info.call("Item", name) for name in COUNTS}
    for name in PLACES:
        place = await info.call("Item", name)
        found[name] = [await place.call("Item", each) for each in ("SeqID", "SeqNo", "PrevNo")]
    found["State"] = await slot(management, OUTGOING, "State")
    found["NextHops"] = await slot(management, OUTGOING, "NextHops")
    found["MessageCount"] = await slot(management, "IMSMQManagement", "MessageCount")
    found["now"] = time.time()
    found["raw"] = list(peer.raw)
    return found


def numbered(raw: bytes) -> tuple[int, int, int]:
    """A message's sequence, its number there and its MessageID."""
    message, _ = parse_user_message(raw, 0, len(raw))
    transaction = message.transaction
    assert transaction is not None
    sequence = transaction.tx_sequence_id.to_int()
    return sequence, transaction.tx_sequence_number, message.user_header.message_id


async def elsewhere(program: Program, name: str) -> Late:
    """Describe a queue of another queue manager."""
    info = await program.create("MSMQQueueInfo")
    await info.put("FormatName", name)
    return info


async def scenario(program: Program, peer: Peer) -> dict[str, Stage]:
    peer.is_order_acking = False
    info = await elsewhere(program, peer.address)
    sender = await info.call("Open", SEND, 0)
    message = await program.create("MSMQMessage")
    await message.put("Journal", DEAD_LETTER)  # its final acknowledgement is waited for
    for _ in range(3):
        await message.call("Send", sender, SINGLE_MESSAGE)
    await until(lambda: len(peer.raw) == 3)
    management = await program.create("MSMQManagement")
    await management.call("Init", FormatName=peer.address)

    async def unacknowledged(count: int) -> bool:
        return bool((await look(management, peer))["EodNoAckCount"] == count)

    found = {}
    await eventually(lambda: unacknowledged(3))
    found["sent"] = await look(management, peer)
    peer.send_order_ack(upto=1)
    await eventually(lambda: unacknowledged(2))
    found["partly"] = await look(management, peer)
    await slot(management, OUTGOING, "EodResend", "method")
    await until(lambda: len(peer.raw) >= 5)
    found["resent"] = await look(management, peer)
    await slot(management, OUTGOING, "Pause", "method")
    found["held"] = await look(management, peer)
    await slot(management, OUTGOING, "Resume", "method")
    found["peer"] = {"host": peer.host, "sequence": numbered(peer.raw[0])[0]}
    return found


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}

    async def main() -> None:
        async with Peer(f"{free_network()}.11", MSMQ_PORT) as peer, dcom_world() as world:
            assert isinstance(world, DcomWorld)
            program = await world.program()
            found.update(await scenario(program, peer))
            program.close()

    run(main())
    return found


@pytest.mark.spec("AC-2.2.4.2-02", "MQ-2.2.5-01", "MQ-2.2.5.1-02")
def test_places_are_those_of_the_sequence_that_the_other_side_has_got(
    stages: dict[str, Stage],
) -> None:
    sequence = stages["peer"]["sequence"]

    def at(number: int) -> list[int]:
        return [sequence, number, number - 1]

    sent, partly = ({name: stages[one][name] for name in PLACES} for one in ("sent", "partly"))
    assert sent == {
        "EodLastAck": [0, 0, 0],
        "EodFirstNonAck": at(1),
        "EodLastNonAck": at(3),
        "EodNextSeq": at(4),
    }
    assert partly == {
        "EodLastAck": at(1),
        "EodFirstNonAck": at(2),
        "EodLastNonAck": at(3),
        "EodNextSeq": at(4),
    }


@pytest.mark.spec("AC-2.2.4.2-02")
def test_counts_and_times_are_those_of_the_transfer(stages: dict[str, Stage]) -> None:
    names = ("EodLastAckCount", "EodNoReadCount", "EodNoAckCount", "EodResendInterval")
    counts = [[stages[one][name] for name in names] for one in ("sent", "partly")]
    assert counts == [[0, 0, 3, FIRST_RESEND_S], [1, 1, 2, FIRST_RESEND_S]]
    assert stages["sent"]["EodLastAckTime"] == 0, "there was none yet"
    partly = stages["partly"]
    assert -5 < partly["now"] - partly["EodLastAckTime"] < 60
    for stage in (stages["sent"], partly):
        assert stage["EodResendCount"] == 0
        assert -60 < stage["EodResendTime"] - stage["now"] <= FIRST_RESEND_S + 5


@pytest.mark.spec("AC-3.5.4.1.6-01")
def test_eod_resend_sends_again_what_was_not_acknowledged_and_nothing_else(
    stages: dict[str, Stage],
) -> None:
    raw = stages["resent"]["raw"]
    assert len(stages["partly"]["raw"]) == 3
    assert [numbered(one) for one in raw[3:]] == [numbered(one) for one in raw[1:3]]
    assert (stages["resent"]["State"], stages["resent"]["EodResendCount"]) == (CONNECTED, 0)
    assert stages["resent"]["now"] - stages["partly"]["now"] < FIRST_RESEND_S, "not by the timer"


@pytest.mark.spec("AC-3.5.4.1.2-01", "AC-2.2.2.19-02", "AC-3.3.4.1.4-01")
def test_where_it_goes_and_how_it_is_connected(stages: dict[str, Stage]) -> None:
    hops = stages["sent"]["NextHops"]
    assert hops.vt == ARRAY | VarType.BSTR
    assert hops.value.items == [f"IP={stages['peer']['host']}"]
    told = ("sent", "partly", "resent", "held")
    assert [stages[one]["State"] for one in told] == [*[CONNECTED] * 3, ON_HOLD]
    assert [stages[one]["MessageCount"] for one in told] == [3] * 4


@pytest.mark.spec("AC-2.2.4.2-02", "AC-3.5.4.1.2-01", "AC-2.2.2.19-02")
def test_what_its_queue_manager_knows_of_a_link_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {
        OutgoingState.DISCONNECTED: 1,
        OutgoingState.WAITING: 2,
        OutgoingState.NEED_VALIDATION: 3,
        OutgoingState.ON_HOLD: 4,
        OutgoingState.INACTIVE: 5,
        OutgoingState.CONNECTED: 6,
        OutgoingState.DISCONNECTING: 7,
    }
    assert {*numbers} == {*OutgoingState}

    async def play_once(program: Program) -> None:
        await (await elsewhere(program, FAR)).call("Open", SEND, 0)
        management = await program.create("MSMQManagement")
        await management.call("Init", FormatName=FAR)
        # No peer brings a link into all of these states at will: what is known of it is given.
        for state, number in numbers.items():
            report = a_link_in(state)
            monkeypatch.setattr(OutgoingManager, "report", lambda *_, one=report: one)
            assert await slot(management, OUTGOING, "State") == number
        hops = await slot(management, OUTGOING, "NextHops")
        assert hops.value.items == ["IP=10.0.0.1", "IPv6=fd00::2"]
        raw = await slot(management, OUTGOING, "EodGetSendInfo", "method")
        told = await Late(program.server, pointed(raw)).as_dispatch()
        names = ("LastAckTime", "LastAckCount", "ResendInterval", "ResendCount", "ResendTime")
        assert [await told.call("Item", f"Eod{name}") for name in names] == [
            *(1_700_000_003, 4, 5, 6, 1_700_000_007)
        ]

    play(play_once)


STATUSES = (
    ("ForeignStatus", FOREIGN, ("YES", "NO", "UNKNOWN")),
    ("TransactionalStatus", XACT, ("YES", "NO", "UNKNOWN")),
)


@pytest.mark.spec("AC-3.3.4.1.5-01", "AC-3.3.4.1.8-01", "MR-2.2.3.2-08", "MR-2.2.3.2-09")
def test_objects_and_remote_management_tell_the_same_of_a_queue() -> None:
    async def main() -> None:
        async with Peer(f"{free_network()}.11", MSMQ_PORT) as peer, dcom_world() as world:
            peer.is_order_acking = False  # what was sent stays in its queue
            assert isinstance(world, DcomWorld)
            program, caller = await world.program(), await world.caller(QMMGMT)
            here, exactly = (
                await program.new_queue(),
                await program.new_queue(EXACT, transactional=True),
            )
            far, far_exactly = await elsewhere(program, FAR), await elsewhere(program, peer.address)
            for info, xact in (
                (here, "NO"),
                (exactly, "YES"),
                (far, "UNKNOWN"),
                (far_exactly, "YES"),
            ):
                target = await info.call("Open", SEND, 0)
                message = await program.create("MSMQMessage")
                await message.call("Send", target, *([SINGLE_MESSAGE] if xact == "YES" else []))
                if info is far_exactly:
                    await until(lambda: len(peer.raw) == 1)
                name = await info.get("FormatName")
                management = await program.create("MSMQManagement")
                await management.call("Init", FormatName=name)
                for (member, number, texts), text in zip(STATUSES, ("NO", xact), strict=True):
                    assert await told(caller, queue(name), number) == (0, [text]), name
                    found = await slot(management, "IMSMQManagement", member)
                    assert texts[found] == text, (name, member)
            program.close()

    run(main())
