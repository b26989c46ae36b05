"""Rules of calls: fragments, objects, limits, and who gives them up; each as it could be broken."""

import struct

import pytest

from qm.rpc.association.connection import Cancelled, Orphaned
from qm.rpc.interface import Interface
from qm.rpc.pdu.bind import NDR20, NDR64, Proposal
from qm.rpc.pdu.codes import PduFlag, PduType
from qm.rpc.pdu.header import write_pdu
from tests.unit.rpc.dialogue import ECHO, WHOLE, Client, status_of, stub_of
from tests.unit.rpc.test_connection_rules import UNKNOWN, features, proposed, results


@pytest.mark.spec("RP-RPCE-2.2.2.2-01")
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("ends", ["answer", "long answer", "fault"])
def test_a_call_with_maybe_gets_neither_answer_nor_fault(parts: int, ends: str) -> None:
    client = Client()
    client.bound()
    maybe = 0x40  # PFC_MAYBE
    if parts == 1:
        client.request(2, b"abcd", flags=WHOLE | maybe)
    else:
        assert client.request(2, b"ab", flags=PduFlag.FIRST | maybe) == []
        client.request(2, b"cd", flags=PduFlag.LAST | maybe)
    call = client.call()
    assert call.stub == b"abcd"
    if ends == "fault":
        client.connection.fault(call, 5)
    else:
        client.connection.respond(call, bytes(20_000 if ends == "long answer" else 4))
    assert client.answers() == []
    assert client.connection.calls_in_progress == 0
    # The next one, without the flag, is answered.
    client.request(3, b"efgh")
    assert stub_of(client.respond(client.call(), b"told")) == b"told"


@pytest.mark.spec("RP-C706-12.6.4.9-02")
@pytest.mark.parametrize("uuid", [bytes(range(16)), b"\xff" * 16])
def test_an_object_stands_between_the_head_and_the_stub(uuid: bytes) -> None:
    client = Client()
    client.bound()
    head = struct.pack("<IHH", 4, 0, 2)

    def send(flags: int, body: bytes, call_id: int) -> None:
        assert client.send(write_pdu(PduType.REQUEST, flags, call_id, head + body)) == []

    send(3 | 0x80, uuid + b"abcd", 2)
    call = client.call()
    assert (call.object_uuid, call.stub) == (uuid, b"abcd")
    client.respond(call, b"")
    # Without the flag those bytes are parameters.
    send(3, uuid + b"abcd", 3)
    call = client.call()
    assert (call.object_uuid, call.stub) == (None, uuid + b"abcd")
    client.respond(call, b"")
    send(1 | 0x80, uuid + b"ab", 4)
    send(2 | 0x80, uuid + b"cd", 4)
    call = client.call()
    assert (call.object_uuid, call.opnum, call.stub) == (uuid, 2, b"abcd")
    short = write_pdu(PduType.REQUEST, 3 | 0x80, 5, head + uuid[:15])
    assert status_of(client.send(short)) == 0x1C01000B


@pytest.mark.spec("RP-OUR-limits-02")
def test_calls_that_have_ended_are_not_in_flight() -> None:
    most = 4096
    client = Client()
    client.bound()
    for number in range(most + 10):
        assert client.request(number) == []
        if number < 10:
            client.respond(client.call(), b"")
    assert status_of(client.request(5000)) == 0x1C010014
    assert client.connection.calls_in_progress == most
    first = client.events[0]
    client.connection.respond(first, b"")  # type: ignore[arg-type]
    client.answers()
    assert client.request(5001) == []
    assert status_of(client.request(5002)) == 0x1C010014
    assert not client.connection.is_closing
    # Of each connection, though they be of one association.
    other = Client(client.offered)
    assert client.connection.association is not None
    other.bound(group_id=client.connection.association.number)
    assert other.request(2, b"abcd") == []
    assert other.call().stub == b"abcd"


@pytest.mark.spec("RP-OUR-limits-02")
def test_what_ended_calls_had_is_there_for_others() -> None:
    """However many were made: what all connections share is given back."""
    client = Client()
    client.bound()
    for begin in range(0, 6 * 4096, 4096):
        for number in range(begin, begin + 4096):
            assert client.request(number) == []
        for call in client.events:
            client.connection.forget(call)  # type: ignore[arg-type]
        client.events = []
    assert client.connection.calls_in_progress == 0


@pytest.mark.spec("RP-C706-12.6.4.7-02")
def test_a_context_that_was_refused_is_unknown() -> None:
    client = Client()
    proposals = (
        Proposal(0, UNKNOWN, (NDR20,)),
        Proposal(1, ECHO.syntax, (NDR64,)),
        Proposal(2, ECHO.syntax, (features(3),)),
        Proposal(3, ECHO.syntax, (NDR20,)),
    )
    (ack,) = client.send(proposed(*proposals))
    assert [one[0] for one in results(ack)] == [2, 2, 3, 0]
    for number in (0, 1, 2, 4, 0xFFFF):
        assert status_of(client.request(number + 2, context_id=number)) == 0x1C010003, number
    assert client.events == []
    client.request(0x2_0000, b"abcd", context_id=3)
    assert client.call().stub == b"abcd"


@pytest.mark.spec("RP-RPCE-3.3.1.5.6-03")
def test_the_interface_is_judged_before_its_transfer_syntaxes() -> None:
    unknown = Interface("unknown", UNKNOWN, {})
    for transfers in ((NDR64,), (NDR20,), (NDR64, NDR20), (UNKNOWN,)):
        assert results(Client().bind(unknown, transfers=transfers)) == [(2, 1, bytes(20))]
    for transfers in ((NDR64,), (UNKNOWN,), (UNKNOWN, NDR64)):
        assert results(Client().bind(ECHO, transfers=transfers)) == [(2, 2, bytes(20))]


@pytest.mark.spec("RP-C706-12.6.4.9-04")
@pytest.mark.parametrize("is_multiplexed", [False, True])
@pytest.mark.parametrize("call_id", [2, 3])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_call_cannot_begin_inside_another(is_multiplexed: bool, call_id: int, parts: int) -> None:
    for flags in (PduFlag.FIRST, WHOLE):
        client = Client()
        client.bind(flags=WHOLE | (PduFlag.CONC_MPX if is_multiplexed else 0))
        client.request(2, b"ab", flags=PduFlag.FIRST)
        if parts == 2:
            client.request(2, b"cd", flags=0)
        assert status_of(client.request(call_id, b"ef", flags=flags)) == 0x1C01000B
        assert client.connection.is_closing
        assert client.events == []


@pytest.mark.spec("RP-C706-12.6.4.6-02")
@pytest.mark.parametrize("kind", [PduType.CO_CANCEL, PduType.ORPHANED])
@pytest.mark.parametrize("named", ["never sent", "half received", "answered"])
def test_who_gives_up_a_call_that_is_not_there_is_not_heard(kind: PduType, named: str) -> None:
    client = Client()
    client.bound()
    client.request(2)
    client.respond(client.call(), b"")
    client.request(3, b"goes on")
    running = client.call()
    client.request(4, b"ab", flags=PduFlag.FIRST)
    number = {"never sent": 77, "half received": 4, "answered": 2}[named]
    assert client.send(write_pdu(kind, WHOLE, number, b"")) == []
    assert client.events == []
    assert not client.connection.is_closing
    client.request(4, b"cd", flags=PduFlag.LAST)
    assert client.call().stub == b"abcd"
    assert stub_of(client.respond(running, b"told")) == b"told"
    client.request(5)
    running = client.call()
    client.send(write_pdu(kind, WHOLE, 5, b""))
    assert client.events == [Cancelled(5) if kind is PduType.CO_CANCEL else Orphaned(5)]
    # Nor is it heard while nothing else goes on.
    idle = Client()
    idle.bound()
    for call_id in (0, 2, 0xFFFF_FFFF):
        assert idle.send(write_pdu(kind, WHOLE, call_id, b"")) == []
    assert idle.events == []
    assert not idle.connection.is_closing
    assert idle.request(2, b"abcd") == []
    assert idle.call().stub == b"abcd"
