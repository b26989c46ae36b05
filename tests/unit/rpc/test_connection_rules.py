"""Rules of binds, contexts, calls and faults, each where it could be broken alone."""

import struct

import pytest

from qm.rpc.association.connection import Cancelled
from qm.rpc.association.groups import Associations
from qm.rpc.interface import Fault
from qm.rpc.limits import LATE_CALLS_MAX
from qm.rpc.pdu.bind import (
    NDR20,
    NDR64,
    Answer,
    Bind,
    Proposal,
    Syntax,
    parse_bind_ack,
    write_bind,
)
from qm.rpc.pdu.codes import BindNakReason, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, write_pdu
from tests.unit.rpc.dialogue import ECHO, LOCKED, WHOLE, Client, served, status_of, stub_of

FEATURES = bytes.fromhex("2c1cb76c12984045")
UNKNOWN = Syntax(bytes(16), 1)
PROPOSAL = Proposal(0, ECHO.syntax, (NDR20,))


def features(bits: int) -> Syntax:
    """The transfer syntax that proposes features [MS-RPCE 2.2.2.14]."""
    return Syntax(FEATURES + bits.to_bytes(8, "little"), 1)


def proposed(*proposals: Proposal, kind: PduType = PduType.BIND, call_id: int = 1) -> bytes:
    return write_bind(kind, call_id, Bind(5840, 5840, 0, proposals))


def results(pdu: Pdu) -> list[tuple[int, int, bytes]]:
    """(result, reason, the 20 bytes of the transfer syntax) of each element, from the bytes."""
    length = struct.unpack_from("<H", pdu.body, 8)[0]
    at = 10 + length
    at += -at % 4
    count = pdu.body[at]
    found = []
    for k in range(count):
        result, reason = struct.unpack_from("<HH", pdu.body, at + 4 + 24 * k)
        found.append((result, reason, pdu.body[at + 8 + 24 * k : at + 28 + 24 * k]))
    return found


class Held:
    """What a context handle stands for."""

    def __init__(self) -> None:
        self.run_downs = 0

    def run_down(self) -> None:
        self.run_downs += 1


# Binds -------------------------------------------------------------------------------------


@pytest.mark.spec("RP-C706-12.6.4.3-01")
@pytest.mark.parametrize(
    ("transmit", "receive", "agreed"),
    [
        (5840, 5840, 5840),
        (65_535, 65_535, 5840),
        (4280, 5840, 4280),
        (5840, 4280, 4280),
        (4287, 5840, 4280),
        (2047, 5840, 2048),
        (0, 0, 2048),
    ],
)
def test_fragment_sizes_are_the_least_of_both_within_bounds(
    transmit: int, receive: int, agreed: int
) -> None:
    client = Client()
    ack = client.bind(sizes=(transmit, receive))
    assert struct.unpack_from("<HH", ack.body) == (agreed, agreed)
    client.request(2)
    client.connection.respond(client.call(), bytes(3 * 5840))
    lengths = [len(pdu.header) + len(pdu.body) for pdu in client.answers()]
    assert max(lengths) <= agreed


@pytest.mark.spec("RP-C706-12.6.4.10-01", "RP-C706-12.6.4.10-02", "RP-C706-12.6.4.10-03")
@pytest.mark.parametrize("size", [0, 1, 2023, 2024, 2025, 4047, 4048, 4049, 6072])
def test_an_answer_of_any_size_begins_once_and_ends_once(size: int) -> None:
    client = Client()
    client.bind(sizes=(2048, 2048))
    client.request(2)
    answers = client.respond(client.call(), bytes(size))
    room = 2048 - 24
    count = max(-(-size // room), 1)
    assert len(answers) == count
    for number, pdu in enumerate(answers):
        wanted = (1 if number == 0 else 0) | (2 if number == count - 1 else 0)
        left = size - number * room
        assert (pdu.flags, len(pdu.body) - 8) == (wanted, min(left, room))
        assert struct.unpack_from("<I", pdu.body) == (left,)


@pytest.mark.spec("RP-RPCE-3.3.1.5.5-01", "RP-RPCE-3.3.1.5.6-01")
def test_a_bind_is_answered_with_the_port_and_a_result_for_each_element() -> None:
    client = Client()
    ack = client.bind()
    assert ack.body[8:15] == b"\x05\x00" + b"2103\0"
    refused = Client()
    (answer,) = refused.send(
        proposed(Proposal(7, UNKNOWN, (NDR20,)), Proposal(8, ECHO.syntax, (NDR64,)))
    )
    assert answer.kind is PduType.BIND_ACK
    assert results(answer) == [(2, 1, bytes(20)), (2, 2, bytes(20))]
    assert not refused.connection.is_closing
    # It is bound: what is added to it works.
    refused.send(
        proposed(Proposal(9, ECHO.syntax, (NDR20,)), kind=PduType.ALTER_CONTEXT, call_id=2)
    )
    refused.request(3, b"abcd", context_id=9)
    assert stub_of(refused.respond(refused.call(), b"abcd")) == b"abcd"


@pytest.mark.spec("RP-RPCE-3.3.1.5.6-02", "RP-C706-12.6.4.3-04")
@pytest.mark.parametrize("transfers", [(NDR64, NDR20), (NDR20, NDR64), (UNKNOWN, NDR64, NDR20)])
def test_ndr20_is_chosen_wherever_it_stands(transfers: tuple[Syntax, ...]) -> None:
    (answer,) = Client().send(proposed(Proposal(0, ECHO.syntax, transfers)))
    chosen = bytes.fromhex("045d888aeb1cc9119fe808002b104860") + b"\2\0\0\0"
    assert results(answer) == [(0, 0, chosen)]


@pytest.mark.spec(
    "RP-RPCE-2.2.2.14-01", "RP-RPCE-2.2.2.14-02", "RP-RPCE-2.2.2.15-01", "RP-RPCE-2.2.2.4-01"
)
@pytest.mark.parametrize(
    ("bits", "granted"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (6, 2), (0xFFFF, 3), (1 << 63, 0)]
)
def test_features_are_granted_that_were_proposed_and_exist(bits: int, granted: int) -> None:
    (answer,) = Client().send(
        proposed(Proposal(0, ECHO.syntax, (NDR20,)), Proposal(1, ECHO.syntax, (features(bits),)))
    )
    assert results(answer)[1] == (3, granted, bytes(20))
    uuid = features(bits).uuid
    # With another version or another prefix: a transfer syntax that nobody knows.
    changed = [uuid[:at] + bytes((uuid[at] ^ 0x40,)) + uuid[at + 1 :] for at in range(8)]
    others = [Syntax(uuid, 0), Syntax(uuid, 2), Syntax(uuid, 3), Syntax(uuid, 1, 1)]
    for other in (*others, *(Syntax(one, 1) for one in changed)):
        (answer,) = Client().send(proposed(Proposal(0, ECHO.syntax, (other,))))
        assert results(answer) == [(2, 2, bytes(20))], other


@pytest.mark.spec("RP-RPCE-3.3.1.5.7-01", "RP-RPCE-3.3.1.5.7-02", "RP-RPCE-3.3.1.1.1-01")
def test_handles_are_shared_by_the_connections_of_an_association_and_no_others() -> None:
    first = Client()
    number = first.bound().group_id
    second, stranger = Client(first.offered), Client(first.offered)
    assert second.bound(group_id=number).group_id == number
    assert stranger.bound().group_id != number
    held = Held()
    made = first.connection.association
    assert made is not None
    handle = made.open(ECHO, held)
    for connection in (first.connection, second.connection):
        assert connection.association is not None
        assert connection.association.find(ECHO, handle) is held
    assert stranger.connection.association is not None
    with pytest.raises(Fault) as unknown:
        stranger.connection.association.find(ECHO, handle)
    assert unknown.value.status == 0x1C00001A
    refused = Client(first.offered).bind(group_id=number + 77)
    assert (refused.kind, refused.body[:2]) == (PduType.BIND_NAK, b"\0\0")
    # As long as one of them is there.
    first.connection.close()
    assert held.run_downs == 0
    assert second.connection.association is made
    assert made.find(ECHO, handle) is held
    second.connection.close()
    assert held.run_downs == 1


@pytest.mark.spec("RP-RPCE-2.2.2.5-01")
def test_reasons_of_bind_nak_have_their_numbers() -> None:
    assert {reason.name: reason.value for reason in BindNakReason} == {
        "NOT_SPECIFIED": 0,
        "PROTOCOL_VERSION": 4,
        "AUTHENTICATION_TYPE": 8,
        "INVALID_CHECKSUM": 9,
    }
    bind = proposed(Proposal(0, ECHO.syntax, (NDR20,)))
    unknown = write_bind(
        PduType.BIND, 1, Bind(5840, 5840, 0, (PROPOSAL,)), Trailer(68, 5, 1, b"token")
    )
    for raw, reason in (
        (proposed(), b"\0\0"),
        (bytes((4,)) + bind[1:], b"\x04\0"),
        (unknown, b"\x08\0"),
    ):
        (nak,) = Client().send(raw)
        assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, reason)


@pytest.mark.spec("RP-RPCE-3.3.1.5.1-02")
@pytest.mark.parametrize("major", [0, 1, 4, 6, 255])
def test_every_other_version_is_told_which_one_is_spoken(major: int) -> None:
    for body in (b"", b"of a bind that is not read"):
        client = Client()
        raw = write_pdu(PduType.BIND, WHOLE, 7, body)
        (nak,) = client.send(bytes((major,)) + raw[1:])
        assert (nak.kind, nak.call_id) == (PduType.BIND_NAK, 7)
        assert nak.body[:5] == b"\x04\0\x01\x05\0", "reason 4; one version: 5.0"
        assert client.connection.is_closing


@pytest.mark.spec("RP-C706-12.6.4.1-01")
def test_an_alter_before_the_bind_ends_the_connection() -> None:
    client = Client()
    assert client.bind(kind=PduType.ALTER_CONTEXT).kind is PduType.BIND_NAK
    assert client.connection.is_closing
    assert client.send(proposed(Proposal(0, ECHO.syntax, (NDR20,)))) == []


@pytest.mark.spec("RP-RPCE-3.3.1.5.6-05")
def test_an_alter_adds_contexts_to_those_there_are() -> None:
    client = Client()
    client.bound(ECHO)
    added = Proposal(5, ECHO.syntax, (NDR20,))
    (answer,) = client.send(proposed(added, kind=PduType.ALTER_CONTEXT, call_id=2))
    assert parse_bind_ack(answer).answers == (Answer(0, 0, NDR20),)
    for number, context_id in enumerate((0, 5), start=3):
        client.request(number, b"ab", context_id=context_id)
        assert client.call().context_id == context_id
    # The same id for the same interface again is no other context.
    (again,) = client.send(proposed(added, kind=PduType.ALTER_CONTEXT, call_id=9))
    assert parse_bind_ack(again).answers == (Answer(0, 0, NDR20),)
    other = Proposal(5, LOCKED.syntax, (NDR20,))
    (refused,) = client.send(proposed(other, kind=PduType.ALTER_CONTEXT, call_id=10))
    assert status_of([refused]) == 0x1C01000B


# Calls -------------------------------------------------------------------------------------


@pytest.mark.spec("RP-RPCE-3.3.1.1.3-01", "RP-RPCE-3.3.1.5.8-01")
def test_concurrent_calls_are_for_those_who_say_so() -> None:
    assert not Client().bind().flags & PduFlag.CONC_MPX
    client = Client()
    assert client.bind(flags=WHOLE | PduFlag.CONC_MPX).flags & PduFlag.CONC_MPX
    assert client.request(2, b"long") == []
    assert client.request(3, b"short") == []
    long, short = client.events
    client.connection.respond(short, b"3333")  # type: ignore[arg-type]
    assert [pdu.call_id for pdu in client.answers()] == [3]
    client.connection.respond(long, b"2222")  # type: ignore[arg-type]
    assert [pdu.call_id for pdu in client.answers()] == [2]


@pytest.mark.spec("RP-RPCE-2.2.2.6-01")
@pytest.mark.parametrize("hint", [0, 1, 7, 8, 4096, 0xFFFF_FFFF])
def test_no_hint_changes_a_call(hint: int) -> None:
    client = Client()
    client.bound()
    client.request(2, b"abcdefgh", hint=hint)
    call = client.call()
    assert call.stub == b"abcdefgh"
    assert stub_of(client.respond(call, b"12345678")) == b"12345678"


@pytest.mark.spec("RP-C706-12.6.4.9-01")
@pytest.mark.parametrize(
    ("call_id", "context_id", "opnum"), [(3, 0, 0), (2, 5, 0), (2, 0, 2), (2, 0, 0)]
)
@pytest.mark.parametrize("begun", [(0, 0), (5, 2)])
def test_fragments_of_a_call_have_its_number(
    call_id: int, context_id: int, opnum: int, begun: tuple[int, int]
) -> None:
    client = Client()
    client.bound()
    added = Proposal(5, ECHO.syntax, (NDR20,))
    client.send(proposed(added, kind=PduType.ALTER_CONTEXT, call_id=1))
    client.request(2, b"ab", context_id=begun[0], opnum=begun[1], flags=PduFlag.FIRST)
    answers = client.request(call_id, b"cd", context_id=context_id, opnum=opnum, flags=PduFlag.LAST)
    if call_id == 2:
        # What a later fragment says of context and opnum is ignored, as Windows does.
        call = client.call()
        assert (call.stub, call.context_id, call.opnum) == (b"abcd", *begun)
    else:
        assert status_of(answers) == 0x1C01000B
        assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-3.3.3.7.1-01")
def test_what_comes_after_the_end_of_a_connection_is_dropped() -> None:
    client = Client()
    client.bound()
    client.request(2)
    client.request(3)
    results, failure = client.events
    client.connection.close()
    client.connection.respond(results, bytes(20_000))  # type: ignore[arg-type]
    assert client.connection.take_output() == b""
    client.connection.fault(failure, 5)  # type: ignore[arg-type]
    assert client.connection.take_output() == b""
    assert client.connection.calls_in_progress == 0
    assert len(client.offered.associations) == 0


@pytest.mark.spec("RP-RPCE-3.3.3.5.4-01")
def test_a_stub_may_have_four_mebibytes_and_sixty_four_kibibytes() -> None:
    most = 4 * 1024 * 1024 + 64 * 1024
    client = Client()
    client.bound()
    for number, more in ((2, b""), (3, b"x")):
        answers = client.request(number, bytes(4096), flags=PduFlag.FIRST)
        for _ in range(most // 4096 - 2):
            answers += client.request(number, bytes(4096), flags=0)
        answers += client.request(number, bytes(4096), flags=0 if more else PduFlag.LAST)
        assert answers == []
        if more:
            assert status_of(client.request(number, more, flags=PduFlag.LAST)) == 5
            assert client.events == []
        else:
            call = client.call()
            assert len(call.stub) == most
            client.respond(call, b"")


@pytest.mark.spec("RP-RPCE-3.3.3.5.6-01")
def test_late_fragments_are_ignored_for_150_calls() -> None:
    assert LATE_CALLS_MAX == 150
    client = Client()
    client.bound()
    ended = range(2, 2 + LATE_CALLS_MAX)
    for number in ended:
        # Refused at its first fragment: the rest of it comes late.
        refused = client.request(number, context_id=7, flags=PduFlag.FIRST)
        assert status_of(refused) == 0x1C010003
    for number in ended:
        assert client.request(number, context_id=7, flags=0) == []
        assert client.request(number, context_id=7, flags=PduFlag.LAST) == []
    client.request(1000, b"next")
    assert client.call().stub == b"next"
    # What begins again is another call.
    again = Client()
    again.bound()
    again.request(2, context_id=7, flags=PduFlag.FIRST)
    again.request(2, b"again")
    assert again.call().stub == b"again"


@pytest.mark.spec("RP-RPCE-3.3.3.5.6-01")
@pytest.mark.parametrize("ends", ["answered", "faulted", "forgotten", "unknown", "nowhere"])
def test_late_fragments_of_whole_calls_are_ignored_too(ends: str) -> None:
    client = Client()
    client.bound()

    def end(number: int) -> None:
        if ends in ("unknown", "nowhere"):  # an opnum, or a context
            where = {"opnum": 1} if ends == "unknown" else {"context_id": 7}
            assert status_of(client.request(number, b"whole", **where)) in (0x1C010002, 0x1C010003)
            return
        client.request(number, b"whole")
        call = client.call()
        if ends == "answered":
            client.respond(call, b"")
        elif ends == "faulted":
            client.connection.fault(call, 0xC00E0003)
        else:
            client.connection.forget(call)
        client.answers()

    numbers = range(2, 2 + LATE_CALLS_MAX)
    for number in numbers:
        end(number)
    for number in numbers:
        for flags in (0, PduFlag.LAST):
            assert client.request(number, b"late", flags=flags) == []
            assert client.events == []
    # Its number may be used again, by a call in fragments.
    assert client.request(2, b"a", flags=PduFlag.FIRST) == []
    assert client.request(3, b"late", flags=0) == []
    assert client.request(2, b"gain", flags=PduFlag.LAST) == []
    assert client.call().stub == b"again"
    # A number that no call has had is not late.
    assert status_of(client.request(1_000, b"x", flags=PduFlag.LAST)) == 0x1C01000B


@pytest.mark.spec("RP-RPCE-2.2.2.8-01")
def test_a_fault_has_its_fields_where_they_belong() -> None:
    client = Client()
    client.bound()
    added = Proposal(0x0105, ECHO.syntax, (NDR20,))
    client.send(proposed(added, kind=PduType.ALTER_CONTEXT, call_id=2))
    client.request(3, context_id=0x0105)
    client.connection.fault(client.call(), 0xC00E0003)
    (fault,) = client.answers()
    assert len(fault.header) + len(fault.body) == 32
    assert struct.unpack("<IHBBII", fault.body) == (32, 0x0105, 0, 0, 0xC00E0003, 0)


@pytest.mark.spec("RP-C706-12.6.4.6-01")
@pytest.mark.parametrize("has_result", [True, False])
def test_a_cancelled_call_is_answered(has_result: bool) -> None:
    client = Client()
    client.bound()
    client.request(2)
    call = client.call()
    client.send(write_pdu(PduType.CO_CANCEL, WHOLE, 2, b""))
    assert client.events == [Cancelled(2)]
    if has_result:
        assert stub_of(client.respond(call, b"late")) == b"late"
    else:
        client.connection.fault(call, 0x1C00000D)
        assert status_of(client.answers()) == 0x1C00000D
    assert not client.connection.is_closing


@pytest.mark.spec("RP-C706-5.1.6-02")
def test_a_closed_handle_is_unknown() -> None:
    client = Client()
    client.bound()
    association = client.connection.association
    assert association is not None
    held = Held()
    handle = association.open(ECHO, held)
    assert association.close(ECHO, handle) is held
    for use in (association.find, association.close):
        with pytest.raises(Fault) as closed:
            use(ECHO, handle)
        assert closed.value.status == 0x1C00001A
    assert held.run_downs == 0


@pytest.mark.spec("RP-RPCE-2.2.4.15-01", "RP-RPCE-3.3.1.4.1-01")
def test_a_handle_is_closed_by_its_interface_and_association_alone() -> None:
    client, stranger = Client(), Client()
    client.bound()
    stranger.bound()
    mine, other = client.connection.association, stranger.connection.association
    assert mine is not None
    assert other is not None
    held = Held()
    handle = mine.open(ECHO, held)
    for association, interface in ((mine, LOCKED), (other, ECHO), (other, LOCKED)):
        for use in (association.find, association.close):
            with pytest.raises(Fault) as refused:
                use(interface, handle)
            assert refused.value.status == 0x1C00001A
    assert mine.close(ECHO, handle) is held, "it was open all the while"


@pytest.mark.spec("RP-RPCE-3.3.1.5.7-03")
def test_an_association_has_a_number_that_is_not_zero_and_nobody_else_s() -> None:
    numbers = iter((0, 7, 7, 0, 9, 8))
    drawn = Associations(lambda size: next(numbers).to_bytes(size, "little"))
    offered = served(associations=drawn)
    clients = [Client(offered) for _ in range(3)]
    assert [client.bound(group_id=0).group_id for client in clients] == [7, 9, 8]
    assert len({id(client.connection.association) for client in clients}) == 3
