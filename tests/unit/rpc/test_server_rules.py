"""Rules of the RPC ports on real sockets, each where it could be broken alone."""

import asyncio
import logging
import secrets
import struct

import pytest
from typing_extensions import override

from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.endpoint_mapper import MAPPER, MapIn, port_of_tower, tower_of
from qm.rpc.interface import Fault
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.types import NIL, Nothing
from qm.rpc.pdu.bind import NDR20, NDR64, Bind, Proposal, Syntax, parse_bind_ack, write_bind
from qm.rpc.pdu.call import parse_fault, request_head
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, fragment_length, parse_pdu, write_pdu
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.security.provider import Provider
from qm.rpc.security.spnego import SpnegoAcceptor, SpnegoClient
from tests.unit.rpc.dialogue import WHOLE, Client, served
from tests.unit.rpc.test_server import (
    PROBE,
    Changing,
    Listening,
    Octets,
    World,
    in_world,
    logon,
    until,
)
from tests.unit.rpc.vectors import vector

VERIFICATION = bytes.fromhex("8ae3137102f43671")
"""What a verification trailer begins with [MS-RPCE 2.2.2.13]."""
LISTENING = struct.pack("<II", 0, 1)
"""What mgmt answers to is_server_listening."""


@pytest.mark.spec("RP-RPCE-2.2.1.3-01", "RP-RPCE-2.1.1.1-01", "RP-RPCE-2.2.1.3-02")
def test_mgmt_is_at_every_port() -> None:
    async def test(world: World) -> None:
        for number, other in ((0, MAPPER), (1, PROBE)):
            client = await RpcClient().connect("127.0.0.1", world.port(number))
            world.clients.append(client)
            await client.bind(MGMT)
            assert (await client.call(MGMT, 2, Nothing())).is_listening == 1
            found = (await client.call(MGMT, 0, Nothing())).vector
            assert found is not None
            ids = [(one.uuid, one.major, one.minor) for one in found.ids if one is not None]
            mgmt = bytes.fromhex("80bda8af8a7dc911bef408002b102989")
            major = 3 if other is MAPPER else 1
            assert sorted(ids) == sorted([(mgmt, 1, 0), (other.syntax.uuid, major, 0)])

    in_world(test)


@pytest.mark.spec(
    "RP-C706-12.6.4.10-04",
    "RP-RPCE-3.3.1.5.2.2-05",
    "RP-RPCE-3.3.1.5.2.2-02",
    "RP-RPCE-3.3.1.5.2.2-09",
)
@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
def test_answers_are_protected_like_their_calls_and_no_larger_than_the_client_takes(
    level: AuthLevel,
) -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.bind(
            PROBE, MGMT, provider=logon(AuthType.NTLM), auth_type=AuthType.NTLM, level=level
        )
        received = bytearray()
        take = client.data_received

        def noted(data: bytes) -> None:
            received.extend(data)
            take(data)

        client.data_received = noted  # type: ignore[method-assign]
        plain = b"\1\0\0\0"  # the end of what mgmt answers: it is listening
        if level is AuthLevel.PRIVACY:  # the least that the probe takes
            plain = bytes(range(256)) * 200
            assert (await client.call(PROBE, 0, Octets(plain))).octets == plain
        else:
            assert (await client.call(MGMT, 2, Nothing())).is_listening == 1
        lengths, is_clear = [], False
        while received:
            lengths.append(fragment_length(received))
            answer = parse_pdu(bytes(received[: lengths[-1]]))
            assert answer.trailer is not None
            told = (answer.trailer.auth_type, answer.trailer.level, answer.trailer.context_id)
            assert told == (AuthType.NTLM, level, 1), "as in the bind"
            is_clear |= plain[:64] in answer.body
            del received[: lengths[-1]]
        assert is_clear is (level is AuthLevel.INTEGRITY)
        assert max(lengths) <= 5840
        assert min(lengths[:-1], default=5840) > 5840 - 64, "all but the last are full"

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-03", "RP-RPCE-3.3.1.5.2.2-04")
@pytest.mark.parametrize("flaw", ["body", "signature", "replayed", "left out"])
def test_a_request_that_does_not_verify_is_refused_and_ends_the_connection(flaw: str) -> None:
    async def test(world: World) -> None:
        client = await world.bound()
        real = client._transport
        assert real is not None
        sent: list[bytes] = []

        def change(raw: bytes) -> bytes:
            sent.append(raw)
            if flaw == "body":
                return raw[:30] + bytes((raw[30] ^ 1,)) + raw[31:]
            if flaw == "signature":
                return raw[:-1] + bytes((raw[-1] ^ 1,))
            return sent[0] if flaw == "replayed" else raw

        client._transport = Changing(real, change)  # type: ignore[assignment]
        if flaw == "replayed":
            assert (await client.call(PROBE, 1, Nothing())).octets == b"alice"
        if flaw == "left out":  # a sequence number is used up, as by a request that is lost
            client._provider.keys.sign(b"lost")  # type: ignore[union-attr]
        refusal: list[BaseException] = []
        try:
            await client.call(PROBE, 2, Nothing())
        except (Fault, RpcFailed) as error:
            refusal.append(error)
        assert refusal
        if isinstance(refusal[0], Fault):
            # Without a stub the byte that is changed says which security context: there is none.
            assert refusal[0].status == (5 if flaw == "body" else 0x721)
        else:
            assert flaw == "replayed", "its number is answered already: the connection ends"
        assert world.probe.waiting == [], "the method does not run"
        await until(lambda: client._transport is None)

    in_world(test)


@pytest.mark.spec("RP-OUR-auth-01")
def test_no_secret_is_told_in_logs_metrics_or_errors(caplog: pytest.LogCaptureFixture) -> None:
    secrets_told = ("S3cret!", "w0rse-S3cret", nt_hash("S3cret!").hex(), nt_hash("w0rse-S3cret"))
    keys: list[bytes] = []
    tokens: list[bytes] = []

    def noted(size: int) -> bytes:
        keys.append(secrets.token_bytes(size))
        return keys[-1]

    class Noting(NtlmClient):
        def step(self, token: bytes) -> bytes:
            tokens.append(super().step(token))
            return tokens[-1]

    async def test(world: World) -> None:
        texts = []
        with caplog.at_level(logging.DEBUG):
            client = await world.bound()
            for password in ("S3cret!", "w0rse-S3cret"):
                other = await world.client()
                provider = Noting("alice", password, "", noted)
                level, kind = AuthLevel.PRIVACY, AuthType.NTLM
                await other.bind(PROBE, provider=provider, auth_type=kind, level=level)
                with pytest.raises(Fault) as ended:
                    await other.call(PROBE, 3, Nothing())
                texts.append(str(ended.value))
            with pytest.raises(Fault) as crashed:
                await client.call(PROBE, 3, Nothing())
            texts.append(str(crashed.value))
            wrong = await world.bound(password="w0rse-S3cret")
            with pytest.raises(Fault) as refused:
                await wrong.call(PROBE, 1, Nothing())
            texts.append(str(refused.value))
            with pytest.raises(RpcFailed) as failed:
                await world.bound(AuthType.SPNEGO, "w0rse-S3cret")
            texts.append(str(failed.value))
        for metric in world.metrics.registry.collect():
            texts += [str(sample) for sample in metric.samples]
        texts += [str(vars(record)) + str(record.exc_text or "") for record in caplog.records]
        assert any("alice" in text for text in texts), "the refusal is told, by the user's name"
        for text in texts:
            for secret in secrets_told:
                assert (secret if isinstance(secret, str) else secret.hex()) not in text
            assert "NTLMSSP" not in text
            for raw in (*keys, *tokens, *(token[-32:] for token in tokens)):
                assert raw.hex() not in text.casefold()
                assert repr(raw)[2:-1] not in text

    in_world(test)


@pytest.mark.spec("RP-OUR-auth-01")
@pytest.mark.parametrize("kind", [AuthType.NTLM, AuthType.SPNEGO])
@pytest.mark.parametrize("flaw", ["no message", "cut short", "wrong MIC"])
def test_what_is_wrong_with_a_token_is_told_without_it(
    flaw: str, kind: AuthType, caplog: pytest.LogCaptureFixture
) -> None:
    tokens: list[bytes] = []

    class Flawed(NtlmClient):
        def step(self, token: bytes) -> bytes:
            made = super().step(token)
            if flaw == "no message":
                made = secrets.token_bytes(64)
            elif token and flaw == "cut short":
                made = made[:60]
            elif token:
                made = made[:72] + bytes((made[72] ^ 1,)) + made[73:]
            tokens.append(made)
            return made

    async def test(world: World) -> None:
        ntlm = Flawed("alice", "S3cret!", "", secrets.token_bytes)
        provider = ntlm if kind is AuthType.NTLM else SpnegoClient(ntlm)
        client = await world.client()

        async def called() -> None:
            await client.bind(PROBE, provider=provider, auth_type=kind, level=AuthLevel.PRIVACY)
            await client.call(PROBE, 1, Nothing())

        with caplog.at_level(logging.DEBUG), pytest.raises((Fault, RpcFailed)) as refused:
            await called()
        texts = [str(vars(record)) + str(record.exc_text or "") for record in caplog.records]
        assert any("refused an RPC client" in text for text in texts)
        texts.append(str(refused.value))
        for text in texts:
            for token in tokens:
                for part in (token[:16], token[-16:]):
                    assert part.hex() not in text.casefold()
                    assert repr(part)[2:-1] not in text

    in_world(test)


class OnlyUnknown:
    """Offers SPNEGO without any mechanism."""

    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        return SpnegoAcceptor({})


@pytest.mark.spec("RP-SPNG-3.2.5-03")
def test_without_a_common_mechanism_there_is_no_context() -> None:
    client = Client(served(providers=OnlyUnknown()))
    token = vector("spnego_1_init")
    nak = client.bind(trailer=Trailer(int(AuthType.SPNEGO), int(AuthLevel.PRIVACY), 1, token))
    assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, b"\0\0")
    assert client.connection.is_closing
    assert client.connection.refusals == ["no mechanism in common"]
    plain = Client(served(providers=OnlyUnknown()))
    assert parse_bind_ack(plain.bind()).answers[0].result == 0


@pytest.mark.spec("RP-RPCE-2.2.2.13.2-01")
@pytest.mark.parametrize("signs_header", [True, False])
def test_a_trailer_may_say_what_the_bind_has_said_of_signing(signs_header: bool) -> None:
    async def test(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port(1))

        async def answer() -> Pdu:
            head = await reader.readexactly(16)
            rest = await reader.readexactly(struct.unpack_from("<H", head, 8)[0] - 16)
            return parse_pdu(head + rest)

        flags = WHOLE | (PduFlag.SUPPORT_HEADER_SIGN if signs_header else 0)
        bind = Bind(5840, 5840, 0, (Proposal(5, MGMT.syntax, (NDR20,)),))
        writer.write(write_bind(PduType.BIND, 1, bind, flags=flags))
        assert (await answer()).kind is PduType.BIND_ACK
        for bits, is_right in ((0, True), (1, signs_header), (0xFFFF_FFFF, signs_header)):
            stub = VERIFICATION + struct.pack("<HHI", 0x4001, 4, bits)
            writer.write(write_pdu(PduType.REQUEST, WHOLE, 9, request_head(5, 2, 0) + stub))
            found = await answer()
            if is_right:
                assert (found.kind, found.body[8:]) == (PduType.RESPONSE, LISTENING), bits
            else:
                assert (found.kind, parse_fault(found)) == (PduType.FAULT, 5), bits
        writer.close()

    in_world(test)


@pytest.mark.spec("RP-RPCE-2.2.2.13.1-02")
def test_a_verification_command_that_must_be_understood_is() -> None:
    async def test(world: World) -> None:
        client = await world.client()
        await client.bind(MGMT)
        magic = bytes.fromhex("8ae3137102f43671")
        # 0x4000: the last one. 5 is no command that anybody knows.
        skipped = magic + struct.pack("<HH", 0x4005, 0)
        known = await client.raw_call(MGMT, 2, skipped)
        assert known == await client.raw_call(MGMT, 2, b"")
        for stub in (
            magic + struct.pack("<HH", 0xC005, 0),
            magic + struct.pack("<HHHH", 0x8005, 0, 0x4006, 0),
        ):
            with pytest.raises(Fault) as refused:
                await client.raw_call(MGMT, 2, stub)
            assert refused.value.status == 5
        assert (await client.call(MGMT, 2, Nothing())).is_listening == 1

    in_world(test)


@pytest.mark.spec(
    "RP-RPCE-2.2.2.13-02",
    "RP-RPCE-2.2.2.13-03",
    "RP-RPCE-2.2.2.13.2-01",
    "RP-RPCE-2.2.2.13.3-01",
    "RP-RPCE-2.2.2.13.4-01",
)
def test_what_a_verification_trailer_says_of_a_call_is_compared_with_it() -> None:
    """By the bytes of a whole exchange: interface 1 of two, call 9, and no signing of headers."""

    async def test(world: World) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port(1))

        async def answer() -> Pdu:
            head = await reader.readexactly(16)
            rest = await reader.readexactly(struct.unpack_from("<H", head, 8)[0] - 16)
            return parse_pdu(head + rest)

        asked = (PROBE.syntax, MGMT.syntax)
        proposals = tuple(Proposal(4 + k, one, (NDR20,)) for k, one in enumerate(asked))
        bind = Bind(5840, 5840, 0, proposals)
        writer.write(write_bind(PduType.BIND, 1, bind))
        assert (await answer()).kind is PduType.BIND_ACK
        mgmt, ndr20 = MGMT.syntax.raw, NDR20.raw
        header2 = (0, b"\x10\0\0\0", 9, 5, 2)

        def command(number: int, value: bytes) -> bytes:
            return VERIFICATION + struct.pack("<HH", number | 0x4000, len(value)) + value

        def head(*values: object) -> bytes:
            return command(3, struct.pack("<B3x4sIHH", *values))

        agreeing = (
            b"",
            b"junk" * 5,
            bytes(3),
            b"junk" + command(2, mgmt + ndr20),
            command(1, b"\0\0\0\0"),
            command(1, b"\xfe\xff\xff\xff"),
            head(*header2),
        )
        disagreeing = (
            command(1, b"\1\0\0\0"),
            command(1, b"\0\0\0"),
            command(1, bytes(8)),
            command(2, PROBE.syntax.raw + ndr20),
            command(2, mgmt + NDR64.raw),
            command(2, mgmt + ndr20[:-1] + b"\1"),
            command(2, mgmt),
            head(2, *header2[1:]),
            head(0, bytes(4), *header2[2:]),
            head(*header2[:2], 8, 5, 2),
            head(*header2[:2], 9, 4, 2),
            head(*header2[:2], 9, 5, 0),
        )
        for stub in (*agreeing, *disagreeing):
            writer.write(write_pdu(PduType.REQUEST, WHOLE, 9, request_head(5, 2, 0) + stub))
            found = await answer()
            if stub in agreeing:
                assert (found.kind, found.body[8:]) == (PduType.RESPONSE, LISTENING), stub
            else:
                assert (found.kind, parse_fault(found)) == (PduType.FAULT, 5), stub
        writer.close()

    in_world(test)


@pytest.mark.spec("RP-RPCE-2.2.1.2.1-01", "RP-RPCE-2.2.1.2.5-03", "RP-RPCE-2.2.4.14-01")
def test_the_mapper_s_refusals_are_faults() -> None:
    async def test(world: World) -> None:
        client = await RpcClient().connect("127.0.0.1", world.port(0))
        world.clients.append(client)
        await client.bind(MAPPER)
        for opnum in (0, 1, 5, 6):
            for stub in (b"", b"\xff" * 40):
                with pytest.raises(Fault) as refused:
                    await client.raw_call(MAPPER, opnum, stub)
                assert refused.value.status == 0x6D8, opnum
        asked = vector("epm_ept_map_request")
        for most, is_within in ((500, True), (501, False), (1 << 31, False)):
            stub = asked[:-4] + struct.pack("<I", most)
            if is_within:
                answer = await client.raw_call(MAPPER, 3, stub)
                assert struct.unpack_from("<II", answer, 20) == (0, most)
            else:
                with pytest.raises(Fault) as bad:
                    await client.raw_call(MAPPER, 3, stub)
                assert bad.value.status == 0x6F7

    in_world(test)


@pytest.mark.spec("RP-RPCE-2.2.4.14-01")
def test_what_may_be_asked_of_each_port_ends_at_its_range() -> None:
    async def test(world: World) -> None:
        client = await RpcClient().connect("127.0.0.1", world.port(0))
        world.clients.append(client)
        await client.bind(MAPPER, MGMT)
        for interface, opnum, head, most in (
            (MAPPER, 2, struct.pack("<4I20x", 0, 0, 0, 1), 500),
            (MAPPER, 3, vector("epm_ept_map_request")[:-4], 500),
            (MGMT, 1, b"", 50),
            (MGMT, 4, struct.pack("<I", AuthType.NTLM), 4_096),
        ):
            assert await client.raw_call(interface, opnum, head + struct.pack("<I", most))
            for beyond in (most + 1, 1 << 31):
                with pytest.raises(Fault) as bad:
                    await client.raw_call(interface, opnum, head + struct.pack("<I", beyond))
                assert bad.value.status == 0x6F7, (opnum, beyond)

    in_world(test)


@pytest.mark.spec("RP-C706-12.6.4.6-01", "RP-RPCE-3.3.1.5.10-01")
@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_call_is_told_of_its_end(is_awaited: bool) -> None:
    async def test(world: World) -> None:
        client = await world.bound()
        waiting = asyncio.ensure_future(client.call(PROBE, 2, Nothing()))
        await until(lambda: bool(world.probe.waiting))
        (call,) = world.probe.waiting
        kind = PduType.CO_CANCEL if is_awaited else PduType.ORPHANED
        client._write(write_pdu(kind, WHOLE, call.request.call_id, b""))
        await until(lambda: world.probe.ends == [is_awaited])
        assert call.is_open is is_awaited
        if is_awaited:
            call.fail(0x1C00000D)
            with pytest.raises(Fault) as cancelled:
                await waiting
            assert cancelled.value.status == 0x1C00000D
        else:
            call.answer(Octets(b"for nobody"))
        assert (await client.call(PROBE, 1, Nothing())).octets == b"alice"
        assert waiting.done() is is_awaited, "what nobody waits for is not sent"
        waiting.cancel()

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.1.1.5.2-01")
def test_a_stub_that_cannot_be_read_is_a_fault_of_its_call_alone() -> None:
    async def test(world: World) -> None:
        client = await world.bound(AuthType.NTLM)
        # A count without its bytes, a count that is cut, and none at all.
        for stub in (struct.pack("<I", 5) + b"abc", b"\5\0\0", b"", b"\xff" * 64):
            with pytest.raises(Fault) as bad:
                await client.raw_call(PROBE, 0, stub)
            assert bad.value.status == 0x6F7, stub
            assert (await client.call(PROBE, 0, Octets(b"good"))).octets == b"good"

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.3.1.5.7-01", "RP-RPCE-3.3.1.5.5-01")
def test_connections_of_an_address_join_whichever_port_they_come_from() -> None:
    async def test(world: World) -> None:
        first = await world.client()
        await first.bind(MGMT)
        second = await world.client()
        await second.bind(MGMT, group_id=first.group_id)
        assert second.group_id == first.group_id != 0
        for number in (0, 1):
            port = world.port(number)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            proposal = Proposal(0, MGMT.syntax, (NDR20,))
            writer.write(write_bind(PduType.BIND, 1, Bind(5840, 5840, first.group_id, (proposal,))))
            ack = await reader.readexactly(60)
            assert ack[2] == PduType.BIND_ACK
            assert struct.unpack_from("<I", ack, 20) == (first.group_id,)
            text = str(port).encode() + b"\0"
            assert ack[24 : 26 + len(text)] == struct.pack("<H", len(text)) + text
            writer.close()

    in_world(test)


class Heard(Listening):
    """A client that keeps what it writes, too."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes] = []

    @override
    def _write(self, raw: bytes) -> None:
        self.said.append(raw)
        super()._write(raw)


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.1-02")
def test_ntlm_takes_a_bind_its_answer_and_an_auth3() -> None:
    async def test(world: World) -> None:
        client = Heard()
        await world.bind(client)
        assert (await client.call(PROBE, 1, Nothing())).octets == b"alice"
        said = [parse_pdu(raw) for raw in client.said]
        assert [pdu.kind for pdu in said] == [PduType.BIND, PduType.AUTH3, PduType.REQUEST]
        length = fragment_length(client.heard)
        told = parse_pdu(bytes(client.heard[:length]))
        assert told.kind is PduType.BIND_ACK
        for pdu, number in ((said[0], 1), (told, 2), (said[1], 3)):
            assert pdu.trailer is not None
            assert pdu.trailer.token[:12] == b"NTLMSSP\0" + bytes((number, 0, 0, 0))
        # Nothing between the answer to the bind and that to the call.
        assert parse_pdu(bytes(client.heard[length:])).kind is PduType.RESPONSE

    in_world(test)


@pytest.mark.spec("RP-OUR-limits-03")
def test_connections_are_counted_by_address_while_they_last() -> None:
    async def begin(world: World, address: str) -> tuple[bytes, asyncio.StreamWriter]:
        """What a bind is answered with; nothing where the connection is closed at once."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", world.port(1), local_addr=(address, 0)
        )
        bind = Bind(5840, 5840, 0, (Proposal(0, MGMT.syntax, (NDR20,)),))
        try:
            writer.write(write_bind(PduType.BIND, 1, bind))
            return await reader.read(3), writer
        except OSError:
            return b"", writer

    async def test(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("qm.rpc.server.ports.CONNECTIONS_PER_ADDRESS_MAX", 2)
            bound = b"\5\0\x0c"
            writers: list[asyncio.StreamWriter] = []
            for address, told in (
                *(("127.0.0.1", bound), ("127.0.0.1", bound), ("127.0.0.1", b"")),
                *(("127.0.0.2", bound), ("127.0.0.2", bound), ("127.0.0.2", b"")),
                ("127.0.0.1", b""),
            ):
                found, writer = await begin(world, address)
                assert found == told
                writers.append(writer)
            writers[0].close()
            left = world.endpoint._ports._connections
            await until(lambda: len(left) == 3)
            for told in (bound, b""):
                found, writer = await begin(world, "127.0.0.1")
                assert found == told
                writers.append(writer)
            for writer in writers:
                writer.close()

    in_world(test)


@pytest.mark.spec("RP-RPCE-3.3.3.3.1.4-01", "RP-OUR-vip-01")
def test_the_map_ends_with_what_it_tells() -> None:
    async def test(world: World) -> None:
        mapper = await RpcClient().connect("127.0.0.1", world.port(0))
        world.clients.append(mapper)
        await mapper.bind(MAPPER)
        ports = [world.port(0), world.port(1)]
        for syntax, is_told in (
            (PROBE.syntax, True),
            (MGMT.syntax, True),
            (MAPPER.syntax, False),
            (Syntax(bytes(range(16)), 1), False),
        ):
            asked = MapIn(None, tower_of(syntax, 0, "0.0.0.0"), NIL, 4)
            found = await mapper.call(MAPPER, 3, asked)
            assert [port_of_tower(one.octets) for one in found.towers.items] == (
                [ports[1]] if is_told else []
            )
        await world.endpoint.stop()
        await until(lambda: mapper._transport is None)
        for port in ports:
            with pytest.raises(RpcFailed):
                await RpcClient().connect("127.0.0.1", port)

    in_world(test)
