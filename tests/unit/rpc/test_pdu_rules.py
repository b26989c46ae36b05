"""Rules of PDUs and their protection, each where it could be broken alone."""

import struct

import pytest

from qm.rpc.interface import Fault
from qm.rpc.limits import CALLS_PER_CONNECTION_MAX, CONTEXTS_PER_CONNECTION_MAX
from qm.rpc.pdu.bind import NDR20, NDR64, Answer, Bind, Proposal, Syntax, parse_bind_ack, write_bind
from qm.rpc.pdu.call import request_head, verify_trailer
from qm.rpc.pdu.codes import AuthLevel, AuthType, BindNakReason, FaultStatus, PduFlag, PduType
from qm.rpc.pdu.header import (
    MalformedPdu,
    Pdu,
    Trailer,
    WrongVersion,
    parse_pdu,
    write_header,
    write_pdu,
    write_trailer,
)
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.provider import Buffers
from qm.rpc.security.providers import OfferedProviders
from tests.unit.rpc.dialogue import ECHO, LOCKED, WHOLE, Client, associations, status_of, stub_of
from tests.unit.rpc.test_security import FILETIME, TARGET, World, counting
from tests.unit.rpc.test_security_contexts import NTLM, Secured, bound, logon

ACCESS_DENIED, SECURITY_PACKAGE, PROTOCOL_ERROR = 5, 0x721, 0x1C01000B
SIGNATURE_SIZE = 16


def request(
    client: Secured,
    who: NtlmClient,
    stub: bytes,
    pad: int = 0,
    reserved: bytes = b"\0",
    **changes: bytes,
) -> bytes:
    """A request under `who`, at integrity; changes go into what was signed."""
    head = request_head(0, 0, len(stub))
    trailer = write_trailer(NTLM, AuthLevel.INTEGRITY, pad, 1)
    trailer = trailer[:3] + reserved + trailer[4:]
    body = stub + b"\xee" * pad
    length = 24 + len(body) + 8 + SIGNATURE_SIZE
    header = write_header(PduType.REQUEST, WHOLE, 5, length, SIGNATURE_SIZE)
    buffers = Buffers(header + head, body, trailer)
    body, token = who.protect(AuthLevel.INTEGRITY, buffers, signs_header=True)
    parts = {"header": header, "head": head, "body": body, "trailer": trailer, "token": token}
    return b"".join((parts | changes).values())


def verified(who: NtlmClient, pdu: Pdu) -> bytes:
    """The stub of a protected answer, whose signature holds."""
    assert pdu.trailer is not None
    head, body = pdu.body[:8], pdu.body[8:]
    buffers = Buffers(pdu.header + head, body, pdu.trailer.raw)
    body = who.unprotect(AuthLevel.INTEGRITY, buffers, pdu.trailer.token, signs_header=True)
    return body[: len(body) - pdu.trailer.pad_length]


# Headers -----------------------------------------------------------------------------------


@pytest.mark.spec("RP-C706-12.6.3-01", "RP-RPCE-2.2.2.1-01", "RP-RPCE-2.2.2.11-01")
def test_a_pdu_begins_with_sixteen_bytes_and_ends_with_its_token() -> None:
    assert {one.name: int(one) for one in PduType} == {
        "REQUEST": 0,
        "RESPONSE": 2,
        "FAULT": 3,
        "BIND": 11,
        "BIND_ACK": 12,
        "BIND_NAK": 13,
        "ALTER_CONTEXT": 14,
        "ALTER_CONTEXT_RESPONSE": 15,
        "AUTH3": 16,
        "SHUTDOWN": 17,
        "CO_CANCEL": 18,
        "ORPHANED": 19,
    }
    assert (PduFlag.FIRST, PduFlag.LAST, PduFlag.PENDING_CANCEL) == (1, 2, 4)
    assert (PduFlag.CONC_MPX, PduFlag.DID_NOT_EXECUTE) == (0x10, 0x20)
    assert (PduFlag.MAYBE, PduFlag.OBJECT_UUID) == (0x40, 0x80)
    raw = write_pdu(PduType.REQUEST, 3, 0x01020304, b"body", Trailer(10, 5, 0x0102_0307, b"token"))
    assert raw[:4] == bytes((5, 0, 0, 3))
    assert raw[4:8] == b"\x10\0\0\0", "little-endian, ASCII, IEEE"
    assert struct.unpack("<HHI", raw[8:16]) == (len(raw), 5, 0x01020304)
    assert raw[-13:-5] == bytes((10, 5, 0, 0)) + b"\7\3\2\1"
    assert raw[-5:] == b"token"
    client = bound()
    who = client.logged_on()
    client.send(request(client, who, b"abcd"))
    answer = client.connection
    answer.respond(client.call(), b"0123456789")
    written = answer.take_output()
    assert struct.unpack("<HH", written[8:12]) == (len(written), SIGNATURE_SIZE)
    kind, level, pad, reserved, number = struct.unpack("<BBBBI", written[-24:-16])
    assert (kind, level, reserved, number) == (NTLM, AuthLevel.INTEGRITY, 0, 1)
    assert (len(written) - 24 - 24) - pad == 10
    # All of it in its place, in both directions.
    head = bytes.fromhex("0501021310000000") + struct.pack("<HHI", 20, 0, 0x8102_0304)
    flags = WHOLE | PduFlag.CONC_MPX
    assert write_pdu(PduType.RESPONSE, flags, 0x8102_0304, b"body", minor=1) == head + b"body"
    whole = parse_pdu(head + b"body")
    assert (whole.kind, whole.flags, whole.minor) == (PduType.RESPONSE, flags, 1)
    assert (whole.call_id, whole.header, whole.body) == (0x8102_0304, head, b"body")
    with pytest.raises(WrongVersion):
        parse_pdu(b"\4" + head[1:] + b"body")
    for size in (19, 21):
        with pytest.raises(MalformedPdu):
            parse_pdu(head[:8] + bytes((size,)) + head[9:] + b"body")
    # Read as written: type, level, padding, whatever is reserved, number.
    rest = struct.pack("<HHI", 41, 5, 9) + b"bodybodybody" + bytes.fromhex("0a05049907010203")
    found = parse_pdu(raw[:8] + rest + b"token").trailer
    assert found is not None
    assert (found.auth_type, found.level, found.pad_length) == (10, 5, 4)
    assert (found.context_id, found.token) == (0x03020107, b"token")
    # Its number is in the client's byte order, as all numbers are.
    other = struct.pack(">4B4sHHI", 5, 0, 0, 3, bytes(4), 41, 5, 9) + rest[8:] + b"token"
    found = parse_pdu(other).trailer
    assert found is not None
    assert (found.auth_type, found.level, found.pad_length) == (10, 5, 4)
    assert (found.context_id, found.token) == (0x07010203, b"token")


@pytest.mark.spec("RP-RPCE-3.3.1.5.1-01")
@pytest.mark.parametrize("minor", [0, 1])
def test_both_versions_are_spoken_as_the_client_speaks(minor: int) -> None:
    client = Client()
    proposal = Proposal(0, ECHO.syntax, (NDR20,))
    bind = bytearray(write_bind(PduType.BIND, 1, Bind(5840, 5840, 0, (proposal,))))
    bind[1] = minor
    (ack,) = client.send(bytes(bind))
    assert (ack.kind, ack.header[:2]) == (PduType.BIND_ACK, bytes((5, minor)))
    called = bytearray(write_pdu(PduType.REQUEST, WHOLE, 2, request_head(0, 0, 0)))
    called[1] = minor
    assert client.send(bytes(called)) == []
    (answer,) = client.respond(client.call(), b"")
    assert answer.header[:2] == bytes((5, minor))

    def refused(kind: PduType, body: bytes, call_id: int) -> bytes:
        raw = bytearray(write_pdu(kind, WHOLE, call_id, body))
        raw[1] = minor
        (found,) = client.send(bytes(raw))
        assert found.kind in (PduType.FAULT, PduType.BIND_NAK)
        return found.header[:2]

    # Faults of calls that nobody serves, of methods, and of what is no order of PDUs.
    assert refused(PduType.REQUEST, request_head(0, 99, 0), 3) == bytes((5, minor))
    assert refused(PduType.REQUEST, request_head(7, 0, 0), 4) == bytes((5, minor))
    called[12] = 5
    client.send(bytes(called))
    client.connection.fault(client.call(), 0xC00E0003)
    (fault,) = client.answers()
    assert fault.header[:2] == bytes((5, minor))
    assert refused(PduType.ALTER_CONTEXT, bytes(12), 6) == bytes((5, minor))
    for kind in (PduType.BIND, PduType.ALTER_CONTEXT):
        client = Client()
        assert refused(kind, bytes(12), 1) == bytes((5, minor)), "bind_nak"


@pytest.mark.spec("RP-RPCE-2.2.2.3-01", "RP-RPCE-2.2.2.3-02")
def test_one_flag_means_header_signing_in_binds_and_a_pending_cancel_in_calls() -> None:
    assert int(PduFlag.SUPPORT_HEADER_SIGN) == 0x04
    for flags in (0, 0x04):
        client = Client()
        ack = client.bind(flags=WHOLE | flags)
        assert ack.flags & 0x04 == flags
        assert client.connection.signs_header is bool(flags)
        alter = client.bind(ECHO, kind=PduType.ALTER_CONTEXT)
        assert not alter.flags & 0x04
        assert client.connection.signs_header is bool(flags), "what was agreed stays"
        alter = client.bind(ECHO, kind=PduType.ALTER_CONTEXT, flags=WHOLE | 0x04)
        assert alter.flags & 0x04
        assert client.connection.signs_header
        client.request(2, b"abcd", flags=WHOLE | 0x04)
        (answer,) = client.respond(client.call(), b"abcd")
        assert not answer.flags & 0x04


@pytest.mark.spec("RP-RPCE-2.2.2.8-02", "RP-C706-12.6.4.7-01", "RP-RPCE-3.3.1.5.2.2-06")
def test_a_fault_has_its_status_and_neither_token_nor_more() -> None:
    assert (FaultStatus.OPERATION_RANGE, FaultStatus.UNKNOWN_INTERFACE) == (0x1C010002, 0x1C010003)
    assert (FaultStatus.PROTOCOL_ERROR, FaultStatus.CONTEXT_MISMATCH) == (0x1C01000B, 0x1C00001A)
    assert (FaultStatus.CANCELLED, FaultStatus.SERVER_TOO_BUSY) == (0x1C00000D, 0x1C010014)
    client = bound()
    who = client.logged_on()
    client.send(request(client, who, b"abcd"))
    client.connection.fault(client.call(), 0xC00E0003)
    (fault,) = client.answers()
    assert fault.kind is PduType.FAULT
    assert struct.unpack_from("<H", fault.header, 10) == (0,), "auth_length"
    hint, context, cancels, flags, status, reserved = struct.unpack("<IHBBII", fault.body[:16])
    del hint
    assert (context, cancels, flags, status, reserved) == (0, 0, 0, 0xC00E0003, 0)
    plain = Client()
    plain.bound()
    assert status_of(plain.request(2, opnum=99)) == 0x1C010002
    assert status_of(plain.request(3, context_id=9)) == 0x1C010003
    association = plain.connection.association
    assert association is not None
    with pytest.raises(Fault) as mismatch:
        association.find(ECHO, bytes(range(16)))
    assert mismatch.value.status == 0x1C00001A
    for number in range(4, 4 + CALLS_PER_CONNECTION_MAX):
        assert plain.request(number) == []
    assert status_of(plain.request(10_000)) == 0x1C010014
    assert status_of(plain.send(write_pdu(PduType.RESPONSE, WHOLE, 7, bytes(8)))) == 0x1C01000B


@pytest.mark.spec("RP-C706-12.6.4.4-01", "RP-C706-12.6.4.1-03")
def test_a_bind_ack_is_laid_out_as_the_text_has_it() -> None:
    client = Client()
    ack = client.bind(ECHO, LOCKED, sizes=(4280, 4280))
    transmit, receive, group, length = struct.unpack_from("<HHIH", ack.body)
    assert (transmit, receive) == (4280, 4280)
    told = parse_bind_ack(ack)
    assert group == told.group_id != 0
    assert (told.address, [one.result for one in told.answers]) == ("2103", [0, 0])
    address = ack.body[10 : 10 + length]
    assert address == b"2103\0"
    at = 10 + length
    at += -(at + 16) % 4
    assert ack.body[at : at + 4] == b"\2\0\0\0"
    assert len(ack.body) == at + 4 + 2 * 24
    for k in range(2):
        result = ack.body[at + 4 + 24 * k : at + 28 + 24 * k]
        assert result == bytes(4) + NDR20.uuid + struct.pack("<I", 2)
    # What an alter_context says of sizes and of the group changes nothing.
    altered = client.bind(ECHO, kind=PduType.ALTER_CONTEXT, sizes=(2048, 2048), group_id=group + 1)
    assert altered.kind is PduType.ALTER_CONTEXT_RESPONSE
    assert struct.unpack_from("<HHIH", altered.body) == (4280, 4280, group, 0)
    assert altered.body[10:16] == b"\0\0" + b"\1\0\0\0", "two bytes of padding, one result"
    assert altered.body[16:] == bytes(4) + NDR20.uuid + struct.pack("<I", 2)
    client.request(2, b"abcd")
    answers = client.respond(client.call(), bytes(4200))
    assert [len(pdu.header) + len(pdu.body) > 2048 for pdu in answers] == [True]
    # Nor do larger ones.
    altered = client.bind(ECHO, kind=PduType.ALTER_CONTEXT, sizes=(5840, 5840))
    assert struct.unpack_from("<HHIH", altered.body) == (4280, 4280, group, 0)
    client.request(3, b"abcd")
    answers = client.respond(client.call(), bytes(5000))
    assert [len(pdu.header) + len(pdu.body) for pdu in answers] == [4280, 24 + 5000 - 4256]


@pytest.mark.spec("RP-RPCE-2.2.4.12-01", "RP-RPCE-2.2.5.1-01")
def test_ndr_is_known_by_its_name_and_version() -> None:
    assert NDR20.raw == bytes.fromhex("045d888aeb1cc9119fe808002b104860") + b"\2\0\0\0"
    for other in (Syntax(NDR20.uuid, 1), Syntax(NDR20.uuid, 2, 1), Syntax(NDR20.uuid, 3)):
        answers = parse_bind_ack(Client().bind(transfers=(other,))).answers
        assert answers == (Answer(2, 2),), other
    assert NDR64.raw == bytes.fromhex("33057171babe37498319b5dbef9ccc36") + b"\1\0\0\0"
    assert parse_bind_ack(Client().bind(transfers=(NDR64,))).answers == (Answer(2, 2),)


# Calls -------------------------------------------------------------------------------------


@pytest.mark.spec("RP-RPCE-3.3.3.5.2-01", "RP-RPCE-3.3.3.5.2-02")
def test_call_numbers_rise_and_may_begin_at_zero() -> None:
    client = Client()
    client.bound()
    for number in (0, 5, 9):
        assert client.request(number) == []
        client.respond(client.call(), b"")
    assert client.request(8) == [], "none is in progress that it could be mistaken for"
    client.respond(client.call(), b"")
    assert client.request(20) == []
    assert status_of(client.request(19)) == PROTOCOL_ERROR
    assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-3.3.3.4.2-01")
def test_a_shutdown_is_not_obeyed() -> None:
    client = Client()
    client.bound()
    assert client.send(write_pdu(PduType.SHUTDOWN, WHOLE, 7, b"")) == []
    assert not client.connection.is_closing
    assert client.request(8) == []
    assert stub_of(client.respond(client.call(), b"abcd")) == b"abcd"


@pytest.mark.spec("RP-RPCE-3.3.3.5.5-01")
def test_more_presentation_contexts_than_the_limit_are_refused_one_by_one() -> None:
    client = Client()
    client.bound()
    results: list[Answer] = []
    for number in range(1, CONTEXTS_PER_CONNECTION_MAX + 8):
        bind = Bind(5840, 5840, 0, (Proposal(number, ECHO.syntax, (NDR20,)),))
        (answer,) = client.send(write_bind(PduType.ALTER_CONTEXT, 1, bind))
        results += parse_bind_ack(answer).answers
    refused = [one for one in results if one.result]
    assert {(one.result, one.reason) for one in refused} == {(2, 3)}
    assert len(results) - len(refused) == CONTEXTS_PER_CONNECTION_MAX - 1
    assert client.request(2, context_id=CONTEXTS_PER_CONNECTION_MAX - 1) == []
    assert client.call()


@pytest.mark.spec("RP-RPCE-3.3.1.5.3-01")
def test_features_are_negotiated_in_the_first_bind_alone() -> None:
    features = Syntax(bytes.fromhex("2c1cb76c12984045") + (3).to_bytes(8, "little"), 1)
    client = Client()
    client.bound()
    proposal = Proposal(1, ECHO.syntax, (features,))
    (answer,) = client.send(write_bind(PduType.ALTER_CONTEXT, 1, Bind(5840, 5840, 0, (proposal,))))
    (told,) = parse_bind_ack(answer).answers
    assert told.result in (2, 3)
    # No effect: fragments of calls are not taken out of order as with multiplexing.
    client.request(2, b"ab", flags=PduFlag.FIRST)
    (fault,) = client.request(3, b"cd", flags=PduFlag.LAST)
    assert (status_of([fault]), fault.call_id) == (PROTOCOL_ERROR, 2), "of the call that is broken"
    # In the first bind they are negotiated: what is known of them. Nothing changes them later, nor
    # what flags say of multiplexing.
    first = Client()
    bind = Bind(5840, 5840, 0, (Proposal(0, ECHO.syntax, (NDR20,)), proposal))
    (answer,) = first.send(write_bind(PduType.BIND, 1, bind))
    assert [(one.result, one.reason) for one in parse_bind_ack(answer).answers] == [(0, 0), (3, 3)]
    again = write_bind(
        PduType.ALTER_CONTEXT, 2, Bind(5840, 5840, 0, (proposal,)), flags=WHOLE | PduFlag.CONC_MPX
    )
    (answer,) = first.send(again)
    assert not answer.flags & PduFlag.CONC_MPX
    first.request(3, b"ab", flags=PduFlag.FIRST)
    (fault,) = first.request(4, b"cd", flags=PduFlag.LAST)
    assert (status_of([fault]), fault.call_id) == (PROTOCOL_ERROR, 3)


@pytest.mark.spec(
    "RP-RPCE-2.2.2.13-01",
    "RP-RPCE-2.2.2.13.1-01",
    "RP-RPCE-2.2.2.13.3-01",
    "RP-RPCE-2.2.2.13-03",
)
def test_a_verification_trailer_agrees_with_its_request() -> None:
    magic = bytes.fromhex("8ae3137102f43671")
    head = (0, b"\x10\0\0\0", 7, 1, 3)

    def agrees(*commands: tuple[int, bytes], gap: bytes = b"") -> bool:
        stub = b"stub" + gap + magic
        for kind, value in commands:
            stub += struct.pack("<HH", kind, len(value)) + value
        return verify_trailer(
            stub, 4, signs_header=True, interface=ECHO.syntax, transfer=NDR20, pdu_head=head
        )

    def header2(*values: object) -> bytes:
        kind, drep, call, context, opnum = values or head
        return struct.pack("<B3x4sIHH", kind, drep, call, context, opnum)

    last, must = 0x4000, 0x8000
    assert agrees((3 | last, header2()))
    wrong = (3 | last, header2(2, *head[1:]))
    for gap in (b"", bytes(4), b"junk"):
        assert not agrees(wrong, gap=gap)
        assert not agrees(wrong, gap=gap + b"x" + magic[:7])
        assert not agrees(wrong, gap=gap + magic[4:] + magic[:4])
    for size in (1, 2, 3, 5, 7):
        # It is none that does not begin at a multiple of four: whatever follows is passed over.
        assert agrees(wrong, gap=bytes(size))
        # Nor does what looks like one hide the one that does.
        assert not agrees(wrong, gap=bytes(size) + magic + bytes(-size % 4))
        assert agrees((3 | last, header2()), gap=bytes(size) + magic + bytes(-size % 4))
    assert agrees((3 | last | must, header2()))
    for k, other in enumerate((2, b"\0\0\0\0", 8, 0, 4)):
        changed = [*head]
        changed[k] = other
        assert not agrees((3 | last, header2(*changed))), k
    # One that is not known may be passed over, unless it must be understood.
    assert agrees((0x77, b"abcd"), (3 | last, header2()))
    assert not agrees((0x77 | must, b"abcd"), (3 | last, header2()))
    # What stands behind the last one is not looked at.
    assert agrees((3 | last, header2()), (3, header2(2, *head[1:])))
    # Without a trailer, whatever follows the parameters is passed over.
    assert verify_trailer(
        b"stub" + b"junk" * 5,
        4,
        signs_header=True,
        interface=ECHO.syntax,
        transfer=NDR20,
        pdu_head=head,
    )


# Security contexts -------------------------------------------------------------------------


def offered() -> OfferedProviders:
    return OfferedProviders(lambda: TARGET, World().logons, counting(), lambda: FILETIME)


@pytest.mark.spec("RP-RPCE-2.2.1.1.7-01")
def test_types_of_authentication_that_are_offered() -> None:
    kerberos = logon()
    with_keytab = OfferedProviders(
        lambda: TARGET,
        World().logons,
        counting(),
        lambda: FILETIME,
        lambda *_: kerberos,  # type: ignore[arg-type]
    )
    assert (AuthType.SPNEGO, AuthType.NTLM, AuthType.KERBEROS) == (9, 10, 16)
    for providers, known in ((offered(), {9, 10}), (with_keytab, {9, 10, 16})):
        found = {
            number
            for number in range(256)
            if providers.begin(number, AuthLevel.PRIVACY, "10.0.0.9") is not None
        }
        assert found == known
    for number in (14, 68, 255):
        client = Secured()
        nak = client.leg(b"token", kind=PduType.BIND, auth_type=number)
        assert nak.kind is PduType.BIND_NAK
        assert struct.unpack_from("<H", nak.body) == (BindNakReason.AUTHENTICATION_TYPE,)


@pytest.mark.spec("RP-RPCE-2.2.1.1.8-01", "RP-RPCE-3.1.1.1.1-01")
def test_levels_of_protection_and_contexts_by_their_number() -> None:
    assert [one.name for one in AuthLevel] == [
        *("DEFAULT", "NONE", "CONNECT", "CALL", "PACKET", "INTEGRITY", "PRIVACY")
    ]
    assert [int(one) for one in AuthLevel] == list(range(7))
    for level in range(2, 7):
        answer = bound().leg(logon().step(b""), level=level)
        assert answer.kind is PduType.ALTER_CONTEXT_RESPONSE
    for level in (0, 1, 7, 255):
        assert status_of([bound().leg(logon().step(b""), level=level)]) == ACCESS_DENIED
    # Of one connection, and of one number, type and level there.
    client, other = bound(), bound()
    who = client.logged_on()
    raw = request(client, who, b"abcd")
    assert status_of(other.send(raw)) == ACCESS_DENIED
    for change in (
        write_trailer(NTLM, AuthLevel.INTEGRITY, 0, 2),
        write_trailer(NTLM, AuthLevel.PACKET, 0, 1),
        write_trailer(AuthType.SPNEGO, AuthLevel.INTEGRITY, 0, 1),
    ):
        client = bound()
        who = client.logged_on()
        assert status_of(client.send(request(client, who, b"abcd", trailer=change))) == (
            ACCESS_DENIED
        )
        assert client.events == []


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.1-03", "RP-RPCE-3.3.1.5.2.1-04", "RP-RPCE-3.3.1.5.4-02")
def test_a_context_is_named_in_answers_and_used_when_it_is_complete() -> None:
    client, who = Secured(), logon()
    answer = client.leg(who.step(b""), 77, kind=PduType.BIND, level=AuthLevel.PRIVACY)
    assert answer.kind is PduType.BIND_ACK
    assert answer.trailer is not None
    told = (answer.trailer.auth_type, answer.trailer.level, answer.trailer.context_id)
    assert told == (NTLM, AuthLevel.PRIVACY, 77)
    early = write_pdu(
        PduType.REQUEST, WHOLE, 2, request_head(0, 0, 0), Trailer(NTLM, 6, 77, bytes(16))
    )
    assert status_of(client.send(early)) == PROTOCOL_ERROR
    assert client.connection.is_closing
    assert client.events == []
    client = bound()
    client.logged_on()
    unknown = write_pdu(
        PduType.REQUEST, WHOLE, 2, request_head(0, 0, 0), Trailer(NTLM, 5, 78, bytes(16))
    )
    assert status_of(client.send(unknown)) == ACCESS_DENIED
    assert client.events == []


@pytest.mark.spec("RP-RPCE-2.2.2.10-01", "RP-RPCE-2.2.2.10-02")
def test_padding_of_an_auth3_may_be_anything() -> None:
    assert int(PduType.AUTH3) == 16
    for padding in (bytes(4), b"\xff" * 4, b"abcd"):
        client, who = bound(), logon()
        answer = client.leg(who.step(b""))
        assert answer.trailer is not None
        token = who.step(answer.trailer.token)
        head = write_trailer(NTLM, AuthLevel.INTEGRITY, 0, 1)
        length = 16 + len(padding) + len(head) + len(token)
        header = write_header(PduType.AUTH3, WHOLE, 1, length, len(token))
        assert client.send(header + padding + head + token) == []
        assert client.send(request(client, who, b"abcd")) == []
        assert client.call().identity.name == "alice"


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-01", "RP-RPCE-2.2.2.11-03", "RP-RPCE-2.2.2.11-05")
def test_a_signature_covers_header_body_padding_and_trailer() -> None:
    def flipped(raw: bytes, at: int) -> bytes:
        return raw[:at] + bytes((raw[at] ^ 1,)) + raw[at + 1 :]

    for pad in (0, 4):
        client = bound()
        who = client.logged_on()
        assert client.send(request(client, who, b"abcd", pad)) == []
        call = client.call()
        assert call.stub == b"abcd", "without its padding"
        # The same of an answer, of any length.
        (answer,) = client.respond(call, b"0123456789"[pad:])
        assert verified(who, answer) == b"0123456789"[pad:]
        assert answer.trailer is not None
        assert answer.trailer.raw[3] == 0, "reserved"
    # A reserved byte that is not 0 is signed like the others, and says nothing.
    client = bound()
    who = client.logged_on()
    assert client.send(request(client, who, b"abcd", 4, reserved=b"\x7f")) == []
    assert client.call().stub == b"abcd"
    size = len(request(client, who, b"abcd", 4))
    changed = {
        "flags": 3,
        "call_id": 12,
        "hint": 16,
        "stub": 25,
        "padding": 30,
        "trailer's padding": size - 16 - 6,
        "trailer's reserved byte": size - 16 - 5,
        "token": size - 1,
    }
    for name, at in changed.items():
        client = bound()
        who = client.logged_on()
        raw = flipped(request(client, who, b"abcd", 4), at)
        if name == "flags":
            raw = raw[:3] + bytes((WHOLE | PduFlag.MAYBE,)) + raw[4:]
        assert status_of(client.send(raw)) == SECURITY_PACKAGE, name
        assert client.events == []


@pytest.mark.spec("RP-RPCE-2.2.2.11-04", "RP-RPCE-2.2.2.12-01", "RP-RPCE-3.3.1.5.2.2-09")
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 20_000])
def test_answers_are_padded_signed_and_verified(size: int) -> None:
    client = bound()
    who = client.logged_on()
    # Where the trailer of a request begins is the client's choice.
    for given in range(3, 20):
        assert client.send(request(client, who, b"abcd" * 5, pad=given)) == []
        call = client.call()
        assert call.stub == b"abcd" * 5
        client.connection.forget(call)
    assert client.send(request(client, who, b"abcd")) == []
    answers = client.respond(client.call(), bytes(size))
    stubs = []
    for pdu in answers:
        (length, token_length) = struct.unpack_from("<HH", pdu.header, 8)
        assert token_length == SIGNATURE_SIZE
        assert pdu.trailer is not None
        assert length == 16 + len(pdu.body) + 8 + SIGNATURE_SIZE
        assert (len(pdu.body) - 8) % 16 == 0, "the trailer begins at a multiple of 16"
        stubs.append(verified(who, pdu))
    assert b"".join(stubs) == bytes(size)
    assert (len(answers) > 1) is (size > 5840)


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-08", "RP-RPCE-3.3.1.5.4-01", "RP-RPCE-3.3.1.5.4-03")
def test_every_fragment_has_a_number_of_its_context() -> None:
    client = bound()
    first, second = client.logged_on(1), client.logged_on(2)
    for part, flags in ((b"ab", PduFlag.FIRST), (b"cd", 0), (b"ef", PduFlag.LAST)):
        assert client.signed(first, part, flags=flags) == []
    call = client.call()
    assert call.stub == b"abcdef"

    def numbers(answers: list[Pdu]) -> list[int]:
        tokens = [pdu.trailer.token for pdu in answers if pdu.trailer is not None]
        return [int.from_bytes(token[12:], "little") for token in tokens]

    assert numbers(client.respond(call, bytes(12_000))) == [0, 1, 2]
    # The other one's numbers have not moved, nor does a number come twice.
    assert client.signed(second, b"gh", flags=WHOLE, named=2) == []
    assert numbers(client.respond(client.call(), b"")) == [0]
    assert client.signed(first, b"ij", flags=WHOLE) == []
    assert numbers(client.respond(client.call(), b"")) == [3]
    assert int.from_bytes(first._keys().sign(b"next")[12:], "little") == 4, "four were sent"
    again = bound()
    who = again.logged_on()
    raw = request(again, who, b"abcd")
    assert again.send(raw) == []
    again.respond(again.call(), b"")
    assert status_of(again.send(raw)) == SECURITY_PACKAGE


@pytest.mark.spec("RP-OUR-vip-03")
def test_an_association_of_another_node_is_not_joined() -> None:
    first = Client()
    number = first.bound().group_id
    offers = first.offered
    other = Client(type(offers)(offers.interfaces, offers.providers, associations()))
    for _ in range(2):  # numbers that the first node has not given
        there = Client(other.offered).bound().group_id
    assert there != number
    assert Client(other.offered).bound(group_id=there).group_id == there
    for node, foreign in ((first.offered, there), (other.offered, 0xFFFF_FFFF)):
        refused = Client(node)
        nak = refused.bind(group_id=foreign)
        assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, b"\0\0")
        assert refused.connection.is_closing
        assert refused.connection.association is None
    assert len(offers.associations) == 1, "nor is another one begun"
