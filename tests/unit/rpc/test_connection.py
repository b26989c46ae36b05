"""Connections of DCE/RPC: binds, calls, fragments, faults, associations."""

import random
import struct

import pytest

from qm.rpc.association.connection import Cancelled, Orphaned
from qm.rpc.interface import Fault, Interface
from qm.rpc.limits import BIND_MAX_BYTES, CALLS_PER_CONNECTION_MAX, STUB_MAX_BYTES
from qm.rpc.pdu.bind import (
    NDR20,
    NDR64,
    Answer,
    Bind,
    Proposal,
    Syntax,
    parse_bind_ack,
    swapped_uuid,
    write_bind,
)
from qm.rpc.pdu.call import parse_fault
from qm.rpc.pdu.codes import PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, write_header, write_pdu, write_trailer
from tests.unit.rpc.dialogue import (
    ECHO,
    LOCKED,
    WHOLE,
    Client,
    associations,
    served,
    status_of,
    stub_of,
)
from tests.unit.rpc.vectors import vector

PROPOSAL = Proposal(0, ECHO.syntax, (NDR20,))
NO_BINDS = (
    *(PduType.REQUEST, PduType.ALTER_CONTEXT, PduType.AUTH3),
    *(PduType.CO_CANCEL, PduType.ORPHANED, PduType.SHUTDOWN),
)
OF_SERVERS = (
    *(PduType.RESPONSE, PduType.FAULT, PduType.BIND_ACK, PduType.BIND_NAK),
    PduType.ALTER_CONTEXT_RESPONSE,
)


@pytest.mark.spec(
    "RP-C706-12.6.4.3-01",
    "RP-RPCE-3.3.1.5.5-01",
    "RP-RPCE-3.3.1.5.6-01",
    "RP-RPCE-3.3.1.5.6-02",
    "RP-RPCE-3.3.1.5.7-03",
)
def test_a_bind_is_answered_with_sizes_group_port_and_results() -> None:
    client = Client()
    ack = client.bound(ECHO, LOCKED)
    assert (ack.fragment_max, ack.address) == (5840, "2103")
    numbers = {Client(client.offered).bound(ECHO).group_id for _ in range(5)}
    assert len({ack.group_id, *numbers} - {0}) == 6
    assert [one.result for one in ack.answers] == [0, 0]


@pytest.mark.parametrize(
    ("sizes", "agreed"),
    [((0, 5840), 2048), ((3199, 5840), 3192), ((0xFFFF, 0xFFFF), 5840), ((4096, 2100), 2096)],
)
def test_fragment_sizes_are_agreed_within_bounds(sizes: tuple[int, int], agreed: int) -> None:
    assert parse_bind_ack(Client().bind(sizes=sizes)).fragment_max == agreed


@pytest.mark.spec(
    "RP-RPCE-2.2.2.14-01",
    "RP-RPCE-2.2.2.14-02",
    "RP-RPCE-2.2.2.15-01",
    "RP-RPCE-2.2.5.1-01",
    "RP-RPCE-2.2.2.4-01",
)
def test_a_windows_client_gets_ndr20_and_its_features() -> None:
    interfaces = {(ECHO.syntax.uuid, 1): ECHO}
    remote_read = bytes.fromhex("dd34911a397bba45ad8844d01ca47f28")
    interfaces[remote_read, 1] = ECHO
    client = Client(served(interfaces=interfaces))
    (answer,) = client.send(vector("pdu_bind_three_contexts"))
    answers = parse_bind_ack(answer).answers
    assert [(one.result, one.reason) for one in answers] == [(0, 0), (2, 2), (3, 3)]


@pytest.mark.spec("RP-RPCE-3.3.1.5.6-03", "RP-RPCE-3.3.1.5.6-04", "RP-C706-12.6.4.3-04")
def test_contexts_that_are_not_served_are_refused_one_by_one() -> None:
    syntax = LOCKED.syntax
    newer = type(LOCKED)("newer", type(syntax)(syntax.uuid, 1, 3), {})
    older = type(LOCKED)("older", type(syntax)(syntax.uuid, 1, 0), {})
    unknown = type(LOCKED)("unknown", type(syntax)(bytes(16), 1), {})
    ack = Client().bound(newer, unknown, older)
    refused = Answer(2, 1)
    assert ack.answers[:2] == (refused, refused)
    assert ack.answers[2].result == 0
    for major in (0, 2, 3):
        another = type(LOCKED)("another", type(syntax)(syntax.uuid, major, 0), {})
        assert Client().bound(another).answers == (refused,)
    other = parse_bind_ack(Client().bind(transfers=(NDR64,)))
    assert other.answers == (Answer(2, 2),)


@pytest.mark.spec("RP-RPCE-3.3.1.5.7-01", "RP-RPCE-3.3.1.5.7-02", "RP-RPCE-3.3.1.1.1-01")
def test_an_association_is_joined_from_its_address_alone() -> None:
    first = Client()
    number = first.bound().group_id
    assert Client(first.offered).bound(group_id=number).group_id == number
    elsewhere = Client(first.offered, "10.0.0.10").bind(group_id=number)
    unknown = Client(first.offered).bind(group_id=number + 1)
    assert (elsewhere.kind, unknown.kind) == (PduType.BIND_NAK, PduType.BIND_NAK)


@pytest.mark.spec("RP-RPCE-2.2.2.2-01", "RP-RPCE-3.3.1.1.3-01")
def test_a_call_with_maybe_is_executed_and_not_answered() -> None:
    client = Client()
    answer = client.bind(flags=WHOLE | PduFlag.CONC_MPX)
    assert answer.flags & PduFlag.CONC_MPX
    client.request(flags=WHOLE | PduFlag.MAYBE)
    assert client.respond(client.call(), b"abcd") == []
    assert client.connection.calls_in_progress == 0


@pytest.mark.spec("RP-RPCE-3.3.1.5.8-01")
def test_answers_may_come_in_any_order() -> None:
    client = Client()
    client.bound()
    client.request(2, b"one")
    client.request(3, b"two")
    one, two = client.events
    client.connection.respond(two, b"2222")  # type: ignore[arg-type]
    client.connection.respond(one, b"1111")  # type: ignore[arg-type]
    assert [pdu.call_id for pdu in client.answers()] == [3, 2]


@pytest.mark.spec(
    "RP-C706-12.6.4.9-01", "RP-C706-12.6.4.9-03", "RP-C706-12.6.4.9-04", "RP-RPCE-2.2.2.6-01"
)
def test_fragments_of_one_call_are_put_together() -> None:
    client = Client()
    client.bound()
    client.request(2, b"abcd", flags=PduFlag.FIRST, hint=0xFFFF_FFFF)
    client.request(2, b"efgh", flags=0, hint=0)
    client.request(2, b"i", flags=PduFlag.LAST)
    assert client.call().stub == b"abcdefghi"
    assert status_of(client.request(9, b"x", flags=0)) == 0x1C01000B
    assert client.connection.is_closing
    for flags in (0, PduFlag.LAST):
        late = Client()
        late.bound()
        assert status_of(late.request(9, b"x", flags=flags)) == 0x1C01000B
        assert late.connection.is_closing
        assert late.events == []
        # Nor where calls are multiplexed, whose fragments may come between each other.
        mixed = Client()
        mixed.bind(flags=WHOLE | PduFlag.CONC_MPX)
        assert status_of(mixed.request(9, b"x", flags=flags)) == 0x1C01000B
        assert mixed.connection.is_closing
        assert mixed.events == []
    other = Client()
    other.bound()
    other.request(2, flags=PduFlag.FIRST)
    assert status_of(other.request(3, flags=PduFlag.FIRST)) == 0x1C01000B


@pytest.mark.spec("RP-RPCE-3.3.3.5.4-01", "RP-RPCE-3.3.3.5.6-01")
def test_a_stub_beyond_the_limit_is_refused_and_its_rest_ignored() -> None:
    client = Client()
    client.bound()
    part = bytes(5800)
    answers = client.request(2, part, flags=PduFlag.FIRST)
    for _ in range(STUB_MAX_BYTES // len(part) + 1):
        answers = client.request(2, part, flags=0)
        if answers:
            break
    assert status_of(answers) == 5
    assert client.request(2, part, flags=PduFlag.LAST) == []
    client.request(3, b"next")
    assert client.call().stub == b"next"


@pytest.mark.spec(
    "RP-C706-12.6.4.10-01",
    "RP-C706-12.6.4.10-02",
    "RP-C706-12.6.4.10-03",
    "RP-C706-12.6.4.10-04",
)
def test_a_long_answer_is_cut_as_in_the_vector() -> None:
    client = Client()
    client.bound()
    client.request(7)
    stub = bytes((1, 2, 3, 4)) * 3000
    client.connection.respond(client.call(), stub)
    assert client.connection.take_output() == vector("pdu_response_fragments")


@pytest.mark.spec("RP-C706-12.6.4.7-02", "RP-C706-12.6.4.7-03", "RP-RPCE-2.2.2.8-01")
def test_calls_of_unknown_contexts_and_opnums_fault() -> None:
    client = Client()
    client.bound()
    assert status_of(client.request(2, context_id=5)) == 0x1C010003
    assert status_of(client.request(3, opnum=1)) == 0x1C010002
    assert not client.connection.is_closing
    client.request(4)
    client.connection.fault(client.call(), 0xC00E0003)
    (fault,) = client.answers()
    assert fault.header[8:10] == b"\x20\0"


def test_the_faults_of_the_guide_are_written_byte_by_byte() -> None:
    client = Client()
    client.bound()
    client.request(2)
    client.connection.fault(client.call(), 0x1C00001A)
    fault = bytearray(client.connection.take_output())
    assert fault[16] == len(fault)  # the vector leaves alloc_hint 0; Windows tells the size
    fault[16] = 0
    assert fault == vector("pdu_fault")


@pytest.mark.spec("RP-RPCE-2.2.1.1.8-03")
def test_a_call_below_its_level_never_reaches_the_method() -> None:
    client = Client()
    client.bound(LOCKED)
    assert status_of(client.request(2)) == 5
    assert client.events == []
    assert client.connection.refusals


@pytest.mark.spec("RP-OUR-limits-02")
def test_calls_in_progress_are_limited() -> None:
    client = Client()
    client.bound()
    assert CALLS_PER_CONNECTION_MAX == 4_096  # of one machine's programs, on one connection
    for number in range(CALLS_PER_CONNECTION_MAX):
        assert client.request(2 + number) == []
    assert status_of(client.request(10_000)) == 0x1C010014


@pytest.mark.spec(
    "RP-C706-12.6.4.1-01",
    "RP-C706-12.6.4.1-02",
    "RP-C706-12.6.4.1-04",
    "RP-C706-12.6.4.3-02",
    "RP-C706-12.6.4.3-03",
)
def test_binds_and_alters_come_in_order() -> None:
    early = Client()
    assert early.bind(kind=PduType.ALTER_CONTEXT).kind is PduType.BIND_NAK
    twice = Client()
    first = twice.bound(ECHO)
    altered = parse_bind_ack(twice.bind(ECHO, LOCKED, kind=PduType.ALTER_CONTEXT, sizes=(0, 0)))
    assert (altered.fragment_max, altered.group_id) == (first.fragment_max, first.group_id)
    assert altered.address == ""
    # The bind's sizes, whichever they were and whatever an alter_context wants, in both places.
    small = Client()
    bound = parse_bind_ack(small.bind(ECHO, sizes=(4096, 3000)))
    answer = small.bind(ECHO, LOCKED, kind=PduType.ALTER_CONTEXT, sizes=(2048, 5840))
    assert bound.fragment_max == 3000
    head = struct.pack("<HHIH", 3000, 3000, bound.group_id, 0)
    assert answer.body[: len(head)] == head, "and no secondary address, not even its NUL"
    assert twice.bind().kind is PduType.BIND_NAK
    assert twice.connection.is_closing
    assert Client().bind(transfers=()).kind is PduType.BIND_NAK
    none = Client()
    raw = write_pdu(PduType.BIND, WHOLE, 1, struct.pack("<HHIBBH", 5840, 5840, 0, 0, 0, 0))
    (nak,) = none.send(raw)
    assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, b"\0\0")
    empty = Client()
    empty.bound()
    raw = write_pdu(PduType.ALTER_CONTEXT, WHOLE, 2, struct.pack("<HHIBBH", 0, 0, 0, 0, 0, 0))
    assert status_of(empty.send(raw)) == 0x1C01000B
    assert empty.connection.is_closing


@pytest.mark.spec("RP-RPCE-3.3.1.5.6-05")
@pytest.mark.parametrize(("interface", "transfers"), [(LOCKED, (NDR20,)), (ECHO, (NDR20, NDR64))])
def test_a_context_id_stays_with_its_interface_and_syntax(
    interface: Interface, transfers: tuple[Syntax, ...]
) -> None:
    client = Client()
    client.bound(ECHO)
    changed = client.bind(interface, kind=PduType.ALTER_CONTEXT, transfers=transfers)
    assert status_of([changed]) == 0x1C01000B
    assert changed.flags & PduFlag.DID_NOT_EXECUTE
    assert client.connection.is_closing


def test_the_same_interface_and_syntax_are_accepted_once_in_a_bind() -> None:
    client = Client()
    assert client.bound(ECHO, ECHO, LOCKED).answers == (
        Answer(0, 0, NDR20),
        Answer(2, 2),
        Answer(0, 0, NDR20),
    )
    other = Syntax(bytes(16), 1)  # means nothing here: refused, and changes nothing
    again = client.bind(ECHO, kind=PduType.ALTER_CONTEXT, transfers=(other,))
    assert parse_bind_ack(again).answers == (Answer(2, 2),)
    client.request(2)
    assert client.call().interface is ECHO


@pytest.mark.spec("RP-C706-12.6.4.9-04")
@pytest.mark.parametrize("is_multiplexed", [False, True])
def test_a_call_that_comes_between_fragments_ends_the_connection(is_multiplexed: bool) -> None:
    """By the number of the call that is being received, unless calls are multiplexed."""
    for flags in (PduFlag.FIRST, PduFlag.LAST):
        client = Client()
        client.bind(LOCKED, ECHO, flags=WHOLE | (PduFlag.CONC_MPX if is_multiplexed else 0))
        client.request(2, b"a", context_id=1, flags=PduFlag.FIRST)
        (fault,) = client.request(3, b"b", context_id=1, flags=flags)
        assert parse_fault(fault) == 0x1C01000B
        found = fault.call_id, int.from_bytes(fault.body[4:6], "little")
        assert found == ((3, 0) if is_multiplexed else (2, 1))
        assert client.connection.is_closing


def test_context_and_opnum_of_later_fragments_say_nothing() -> None:
    client = Client()
    client.bound(ECHO, LOCKED)
    client.request(2, b"a", opnum=2, flags=PduFlag.FIRST)
    client.request(2, b"b", opnum=9, context_id=77, flags=PduFlag.LAST)
    call = client.call()
    assert (call.interface, call.opnum, call.stub) == (ECHO, 2, b"ab")


def test_fragments_of_a_call_to_an_unknown_context_are_ignored() -> None:
    client = Client()
    client.bound()
    assert status_of(client.request(2, context_id=5, flags=PduFlag.FIRST)) == 0x1C010003
    assert client.request(2, context_id=5, flags=PduFlag.LAST) == []
    client.request(3, b"next")
    assert client.call().stub == b"next"


@pytest.mark.spec("RP-RPCE-2.2.2.11-02")
def test_padding_cannot_reach_into_the_head_of_a_pdu() -> None:
    bind = write_bind(PduType.BIND, 1, Bind(5840, 5840, 0, (Proposal(0, ECHO.syntax, (NDR20,)),)))
    body, token = bind[16:], b"token123"

    def padded(pad: int) -> list[Pdu]:
        length = 16 + len(body) + 8 + len(token)
        header = write_header(PduType.BIND, WHOLE, 1, length, len(token))
        return Client().send(header + body + write_trailer(10, 5, pad, 1) + token)

    (fits,), (too_long,) = padded(len(body) - 8), padded(len(body) - 7)
    assert (fits.kind, fits.body[0]) == (PduType.BIND_NAK, 8)  # read, and no provider is offered
    assert (too_long.kind, too_long.body[0]) == (PduType.BIND_NAK, 4)


@pytest.mark.spec("RP-C706-12.6.4.6-01", "RP-C706-12.6.4.6-02", "RP-RPCE-3.3.1.5.10-01")
def test_cancels_and_orphans_reach_their_call_alone() -> None:
    client = Client()
    client.bound()
    client.request(2)
    call = client.call()
    assert client.send(write_pdu(PduType.CO_CANCEL, WHOLE, 77, b"")) == []
    client.send(write_pdu(PduType.CO_CANCEL, WHOLE, 2, b""))
    client.send(write_pdu(PduType.ORPHANED, WHOLE, 2, b""))
    assert client.events == [Cancelled(2), Orphaned(2)]
    client.connection.forget(call)
    assert client.respond(call, b"late") == []
    client.events = []
    client.request(3, b"a", flags=PduFlag.FIRST)
    client.send(write_pdu(PduType.ORPHANED, WHOLE, 3, b""))  # half received: ignored
    client.request(3, b"b", flags=PduFlag.LAST)
    assert client.call().stub == b"ab"
    assert not client.connection.is_closing


@pytest.mark.spec(
    "RP-C706-12.6.3-03", "RP-C706-12.6.3-04", "RP-C706-12.6.4.9-02", "RP-C706-14.2.2-01"
)
def test_big_endian_clients_are_read_and_answered_in_little_endian() -> None:
    client = Client()
    syntax = swapped_uuid(ECHO.syntax.uuid) + struct.pack(">I", 1)
    ndr = swapped_uuid(bytes.fromhex("045d888aeb1cc9119fe808002b104860")) + struct.pack(">I", 2)
    body = struct.pack(">HHIBBH", 5840, 5840, 0, 1, 0, 0) + struct.pack(">HBB", 4, 1, 0)
    body += syntax + ndr
    head = struct.pack(">4B4sHHI", 5, 0, 11, 3, bytes(4), 16 + len(body), 0, 9)
    (ack,) = client.send(head + body)
    assert (ack.order, ack.call_id, parse_bind_ack(ack).answers[0].result) == ("<", 9, 0)
    body = struct.pack(">IHH", 0, 4, 2) + bytes(range(16)) + b"\0\0\0\x07"
    head = struct.pack(">4B4sHHI", 5, 0, 0, 0x83, bytes(4), 16 + len(body), 0, 10)
    client.send(head + body)
    call = client.call()
    assert (call.opnum, call.order, call.stub) == (2, ">", b"\0\0\0\x07")
    assert call.object_uuid == swapped_uuid(bytes(range(16)))
    (answer,) = client.respond(call, b"abcd")
    assert (answer.header[4:8], answer.header[12:]) == (b"\x10\0\0\0", b"\x0a\0\0\0")
    assert answer.body == struct.pack("<IHBB", 4, 4, 0, 0) + b"abcd"
    body = struct.pack(">IHH", 0, 4, 99)
    (fault,) = client.send(struct.pack(">4B4sHHI", 5, 0, 0, 3, bytes(4), 24, 0, 11) + body)
    assert (fault.header[4:8], fault.call_id) == (b"\x10\0\0\0", 11)
    assert parse_fault(fault) == 0x1C010002


@pytest.mark.spec(
    "RP-RPCE-3.3.1.5.1-02",
    "RP-RPCE-2.2.1.1.6-01",
    "RP-RPCE-2.2.2.5-01",
    "RP-RPCE-2.2.2.9-01",
    "RP-RPCE-2.2.1.1.2-01",
)
def test_another_version_is_refused_as_in_the_vector() -> None:
    client = Client()
    raw = bytearray(vector("pdu_bind_three_contexts"))
    raw[0] = 4
    client.connection.receive(bytes(raw))
    assert client.connection.take_output() == vector("pdu_bind_nak")
    assert client.connection.is_closing
    for refused in (b"", raw[16:24] + bytes(4)):
        nak = Client().send(write_pdu(PduType.BIND, WHOLE, 0x01020304, bytes(refused)))[0]
        assert (nak.kind, nak.flags, nak.call_id) == (PduType.BIND_NAK, WHOLE, 0x01020304)
        assert nak.header[4:12] == b"\x10\0\0\0" + struct.pack("<HH", 24, 0)
        assert nak.body[:5] == b"\0\0\1\5\0"
    # Whatever is refused, and in whichever byte order it came.
    bind = write_bind(PduType.BIND, 0x01020304, Bind(5840, 5840, 7, (PROPOSAL,)))
    unknown = Trailer(99, 5, 1, b"token")
    for whole in (
        bind,  # of an association that is not there
        write_bind(PduType.BIND, 0x01020304, Bind(5840, 5840, 0, (PROPOSAL,)), unknown),
        *(write_pdu(kind, WHOLE, 0x01020304, bytes(8)) for kind in NO_BINDS),
        write_header(PduType.BIND, WHOLE, 0x01020304, 15),
        write_header(PduType.BIND, WHOLE, 0x01020304, 0xFFFF),
        struct.pack(">4B4sHHI", 5, 0, 11, 3, bytes(4), 24, 0, 0x01020304) + bytes(8),
        struct.pack(">4B4sHHI", 5, 0, 11, 3, bytes(4), 15, 0, 0x01020304),
        struct.pack(">4B4sHHI", 5, 0, 11, 3, bytes(4), 0xFFFF, 0, 0x01020304),
        struct.pack(">4B4sHHI", 4, 0, 11, 3, bytes(4), 16, 0, 0x01020304),
    ):
        refused_client = Client()
        (nak,) = refused_client.send(whole)
        assert (nak.kind, nak.flags, nak.call_id) == (PduType.BIND_NAK, WHOLE, 0x01020304)
        assert nak.header[4:12] == b"\x10\0\0\0" + struct.pack("<HH", 24, 0)
        assert nak.body[2:5] == b"\1\5\0"
        assert refused_client.connection.is_closing


@pytest.mark.spec("RP-RPCE-2.2.1.1.7-02", "RP-RPCE-3.3.3.5.3-01")
def test_a_provider_that_is_not_offered_is_refused() -> None:
    for auth_type in (0, 1, 68, 255):
        trailer = Trailer(auth_type, 6, 1, b"token")
        nak = Client().bind(trailer=trailer)
        assert (nak.kind, nak.body[0]) == (PduType.BIND_NAK, 8)
    client = Client()
    client.bound()
    assert status_of([client.bind(trailer=trailer, kind=PduType.ALTER_CONTEXT)]) == 5
    client.request(3, b"fine")
    assert client.call().stub == b"fine"


@pytest.mark.spec(
    "RP-C706-12.6.3-02",
    "RP-C706-12.6.3-05",
    "RP-RPCE-2.2.2.1-02",
    "RP-RPCE-2.2.2.11-02",
    "RP-RPCE-3.3.3.5.7-01",
)
@pytest.mark.parametrize(
    "head",
    [
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\0\0\0", 0, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\0\0\0", 15, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\0\0\0", 5841, 0, 2),
        # PDUs with tokens may be longer: a bind, an alter_context, an auth3, but no other.
        struct.pack("<4B4sHHI", 5, 0, 11, 3, b"\x10\0\0\0", BIND_MAX_BYTES + 1, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 14, 3, b"\x10\0\0\0", BIND_MAX_BYTES + 1, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 16, 3, b"\x10\0\0\0", BIND_MAX_BYTES + 1, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 18, 3, b"\x10\0\0\0", 5841, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 19, 3, b"\x10\0\0\0", 5841, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 99, 3, b"\x10\0\0\0", 16, 0, 2),
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\0\0\0", 24, 1, 2) + bytes(8),
        struct.pack("<4B4sHHI", 5, 0, 18, 3, b"\x10\0\0\0", 24, 1, 2) + bytes(8),
        struct.pack("<4B4sHHI", 5, 0, 18, 3, b"\x10\0\0\0", 24, 9, 2) + bytes(8),
        struct.pack("<4B4sHHI", 5, 0, 18, 3, b"\x10\0\0\0", 24, 0xFFFF, 2) + bytes(8),
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\0\0\0", 33, 1, 2)
        + bytes(8) + b"\x0a\x06\x09\0\0\0\0\0\0",
        struct.pack("<4B4sHHI", 5, 0, 0, 3, b"\x10\x01\0\0", 16, 0, 2),
    ],
)  # fmt: skip
def test_what_cannot_be_a_pdu_ends_the_connection(head: bytes) -> None:
    client = Client()
    client.bound()
    assert status_of(client.send(head)) == 0x1C01000B
    assert client.connection.is_closing
    early = Client()
    (nak,) = early.send(head)
    assert nak.kind is PduType.BIND_NAK
    assert early.connection.is_closing
    assert early.connection.association is None


@pytest.mark.spec("RP-RPCE-3.3.3.5.7-01")
def test_what_cannot_be_now_ends_the_connection() -> None:
    for kind in NO_BINDS:
        early = Client()
        (nak,) = early.send(write_pdu(kind, WHOLE, 2, bytes(8)))
        assert (nak.kind, nak.call_id) == (PduType.BIND_NAK, 2), kind
        assert early.connection.is_closing
    for kind in OF_SERVERS:
        client = Client()
        client.bound()
        assert status_of(client.send(write_pdu(kind, WHOLE, 2, bytes(24)))) == 0x1C01000B, kind
        assert client.connection.is_closing
    client = Client()
    client.bound()
    big = struct.pack(">4B4sHHI", 5, 0, 0, 3, bytes(4), 5841, 0, 0x01020304)
    (fault,) = client.send(big)
    assert (parse_fault(fault), fault.call_id) == (0x1C01000B, 0x01020304)


@pytest.mark.spec("RP-OUR-limits-01")
def test_no_mutation_of_pdus_raises_anything() -> None:
    chance = random.Random(7)
    bind = vector("pdu_bind_three_contexts")
    sealed = vector("pdu_request_sealed")
    for at in range(len(bind)):
        for value in (0, 0xFF, bind[at] ^ 1 << chance.randrange(8)):
            client = Client()
            client.connection.receive(bind[:at] + bytes((value,)) + bind[at + 1 :])
            client.connection.receive(sealed)
    for at in range(len(sealed)):
        client = Client()
        client.bound()
        client.connection.receive(sealed[:at] + bytes((chance.randrange(256),)) + sealed[at + 1 :])
    for _ in range(200):
        client = Client()
        client.connection.receive(chance.randbytes(chance.randrange(200)))


class Held:
    """Counts its rundowns."""

    def __init__(self) -> None:
        self.run_downs = 0

    def run_down(self) -> None:
        self.run_downs += 1


@pytest.mark.spec(
    "RP-RPCE-3.3.3.4.1-01",
    "RP-RPCE-3.3.1.4.1-01",
    "RP-RPCE-2.2.4.15-01",
    "RP-C706-5.1.6-02",
    "RP-C706-5.1.6-01",
)
def test_handles_belong_to_association_and_interface_until_the_last_connection_ends() -> None:
    held = Held()
    first = Client()
    number = first.bound().group_id
    second = Client(first.offered)
    second.bound(group_id=number)
    association = first.connection.association
    assert association is not None
    handle = association.open(ECHO, held)
    assert association.find(ECHO, handle) is held
    others = [Held() for _ in range(3)]
    for one in others[:2]:
        association.open(ECHO, one)
    association.open(LOCKED, others[2])
    stranger = Client(first.offered)
    stranger.bound()
    assert stranger.connection.association is not None
    for other, interface, raw in (
        (stranger.connection.association, ECHO, handle),
        (association, LOCKED, handle),
        (association, ECHO, bytes(16)),
    ):
        with pytest.raises(Fault) as caught:
            other.find(interface, raw)
        assert caught.value.status == 0x1C00001A
    first.connection.close()
    assert held.run_downs == 0  # a connection of it is left
    second.request(5)
    call = second.call()
    second.connection.close()
    assert held.run_downs == 0  # a call of it goes on
    second.connection.respond(call, b"")
    assert [one.run_downs for one in (held, *others)] == [1] * 4
    assert len(first.offered.associations) == 1


def test_closed_handles_are_unknown() -> None:
    association = associations().join(0, "10.0.0.1")
    assert association is not None
    handle = association.open(ECHO, Held())
    association.close(ECHO, handle)
    with pytest.raises(Fault):
        association.close(ECHO, handle)


def test_the_stub_of_an_answer_survives_its_fragments() -> None:
    client = Client()
    client.bind(sizes=(2048, 2048))
    client.request(2)
    stub = random.Random(1).randbytes(9001)
    assert stub_of(client.respond(client.call(), stub)) == stub
