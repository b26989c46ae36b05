"""Hostile, broken and greedy peers: each gets its outcome and its metric, others notice nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from struct import pack_into
from typing import Any, cast

import msgspec
import pytest

from qm.edge.relay import relay
from qm.edge.tcp import connection, context
from qm.model.values import commands
from qm.model.values.limits import APPLY_VERSION
from qm.names.guid import guid_text
from qm.session import CloseReason, SessionConfig
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    parse_establish_connection,
)
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import parse_user_message, write_user_message
from tests.unit.edge.test_arrivals import (
    final_ack_of,
    order_ack_of,
    sent_transactionally,
    with_security,
)
from tests.unit.edge.world import (
    ADDRESS,
    HANDSHAKE,
    HANDSHAKE_ANSWER_BYTES,
    OTHER,
    OWN,
    PEER,
    lines_of,
    packet,
    run,
    until,
    world,
)

ACK = SessionHeader(0, 0, 0, 0, 0, 64)
MESSAGE = packet(1)


def ack(**fields: int) -> bytes:
    return write_packet(SessionAck(msgspec.structs.replace(ACK, **fields)))


def patched(raw: bytes, at: int, data: bytes) -> bytes:
    return raw[:at] + data + raw[at + len(data) :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "malformed_packet"),
        (bytes(100), "malformed_packet"),
        (MESSAGE, "unexpected_packet"),
        (ack(), "unexpected_packet"),
        (write_packet(ConnectionParameters(500, 20_000, 64)), "unexpected_packet"),
        (patched(MESSAGE, 8, b"\xff\xff\xff\x7f"), "malformed_packet"),
    ],
    ids=["http", "zeros", "message", "ack", "parameters", "oversize"],
)
def test_before_the_handshake(data: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            raw = await w.raw()
            raw.write(data)
            assert await raw.read_to_end() == b""
            await w.closed(reason)
            (line,) = lines_of(caplog, f"closed:{reason}")
            assert (line["reason"], line["peer"]) == (reason, ADDRESS)
            assert w.metric("quorate_sessions", role="acceptor") == 0
            assert w.consensus.batches == 0
            await w.is_unharmed(queue)

    run(scenario())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (EstablishConnection(PEER, OTHER), "wrong_queue_manager"),
        (EstablishConnection(PEER, OWN, is_refused=True), "refused_by_peer"),
    ],
)
def test_a_refused_handshake_is_answered(request_: EstablishConnection, reason: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            raw = await w.raw()
            raw.write(write_packet(request_))
            answer, _ = parse_establish_connection(await raw.read_to_end(), 0, 572)
            assert answer.is_refused
            await w.closed(reason)

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-17", "MQ-2.2.19.2-19", "QB-3.1.5.1.3-01")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10\0\0\0XXXX" + bytes(112), "malformed_packet"),
        (patched(MESSAGE, 8, b"\x01\0\x40\0"), "malformed_packet"),
        (patched(MESSAGE, 8, b"\x10\0\0\0"), "malformed_packet"),
        (patched(MESSAGE, 60, b"\xff\xff\xff\xff"), "malformed_packet"),
        (patched(MESSAGE, 61, bytes((MESSAGE[61] & ~0x1C | 0x04,))), "malformed_packet"),
        (patched(MESSAGE, 61, bytes((MESSAGE[61] & ~0xE0 | 0x20,))), "malformed_packet"),
        (patched(MESSAGE, 61, bytes((MESSAGE[61] & ~0xE0 | 0x80,))), "malformed_packet"),
        (patched(MESSAGE, 64, b"\xfe\xff"), "malformed_packet"),
        (patched(MESSAGE, len(MESSAGE) - 60 + 33, b"\xff\xff"), "malformed_packet"),
        (ack(ack_sequence_number=1, user_msg_sequence_number=2), "false_acknowledgement"),
        (ack(user_msg_sequence_number=3), "count_mismatch"),
        (ack(user_msg_sequence_number=2, recoverable_msg_seq_number=2), "count_mismatch"),
        (HANDSHAKE, "unexpected_packet"),
    ],
    ids=[
        "no packet", "oversize", "undersize", "flags",
        "a destination of type 1", "an administration queue of type 1", "and of type 4",
        "name beyond the packet", "body beyond the packet",
        "acks what was not sent", "wrong count", "wrong recoverable count", "another handshake",
    ],
)  # fmt: skip
def test_in_the_middle_of_a_session(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes before it is delivered; what comes after it is not."""

    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            honest = await w.peer(OTHER)
            raw = await w.raw(is_open=True)
            raw.write(packet(1) + packet(2) + data + packet(3))
            await raw.read_to_end()
            await w.closed(reason)
            (line,) = lines_of(caplog, f"closed:{reason}")
            assert (line["reason"], line["peer"]) == (reason, ADDRESS)
            await until(lambda: w.consensus.ids(queue) == [1, 2], lambda: w.consensus.ids(queue))
            honest.send(packet(4, source_queue_manager=OTHER))
            await honest.acknowledged(4)
            assert w.consensus.ids(queue) == [1, 2, 4]
            assert honest.closed is None

    run(scenario())


@pytest.mark.spec("QB-3.1.5.1.3-01")
def test_what_is_no_packet_closes_behind_messages_that_are_examined_too() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            queue = w.consensus.create("orders")
            raw = await w.raw(is_open=True)
            sealed = SecurityHeader(is_body_encrypted=True, encryption_key=b"key")
            broken = patched(MESSAGE, 64, b"\xfe\xff")
            raw.write(packet(1) + with_security(packet(2), sealed) + broken + packet(3))
            await raw.read_to_end()
            await w.closed("malformed_packet")
            await until(lambda: w.consensus.ids(queue) == [1], lambda: w.consensus.ids(queue))
            await w.is_unharmed(queue)

    run(scenario())


@pytest.mark.spec("MQ-2.2.20.4-09")
@pytest.mark.parametrize("said", [1, 4])
def test_a_message_with_a_wrong_count_arrives_and_ends_its_session(said: int) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            raw = await w.raw(is_open=True)
            message, _ = parse_user_message(packet(3), 0, len(packet(3)))
            counts = msgspec.structs.replace(ACK, user_msg_sequence_number=said)
            third = write_user_message(msgspec.structs.replace(message, session=counts))
            raw.write(packet(1) + packet(2) + third + packet(4))
            await raw.read_to_end()
            await w.closed("count_mismatch")
            await until(lambda: w.consensus.ids(queue) == [1, 2, 3], lambda: w.consensus.ids(queue))
            await w.is_unharmed(queue)

    run(scenario())


@pytest.mark.spec("QB-3.1.5.9-01")
def test_a_session_is_closed_without_a_packet_and_ends_with_its_transport() -> None:
    async def scenario() -> None:
        async with world() as w:
            raw = await w.raw(is_open=True)
            await until(lambda: w.metric("quorate_sessions", role="acceptor") == 1)
            w.consensus.set_manager(connection_active=False)
            assert await raw.read_to_end() == b""
            await w.closed("stopped")
            w.consensus.set_manager(connection_active=True)
            await until(lambda: w.edge.is_ready and w.edge.endpoints)
            peer = await w.peer()
            peer.transport.close()
            await w.closed("disconnected")
            assert w.metric("quorate_sessions", role="acceptor") == 0

    run(scenario())


def test_forged_session_acks_end_their_session_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            honest = await w.peer(OTHER)
            for count in range(1, 4):
                raw = await w.raw(is_open=True)
                raw.write(ack(ack_sequence_number=count))
                assert await raw.read_to_end() == b""
                await w.closed("false_acknowledgement", count)
            (line,) = lines_of(caplog, "closed:false_acknowledgement")
            assert (line["reason"], line["peer"]) == ("false_acknowledgement", ADDRESS)
            honest.send(packet(1, source_queue_manager=OTHER))
            await honest.acknowledged(1)
            assert w.consensus.ids(queue) == [1]

    run(scenario())


@pytest.mark.parametrize(
    ("forge", "text"),
    [
        (lambda sequence, _: order_ack_of(sequence + 1, 1), "OrderAck: sequence {:#x} up to 1"),
        (lambda sequence, _: order_ack_of(sequence << 1, 1), "OrderAck"),
        (lambda sequence, ordinal: final_ack_of(sequence, ordinal + 1, OWN), "FinalAck: message 2"),
        (lambda sequence, ordinal: final_ack_of(sequence, ordinal, OTHER), "FinalAck: message 0"),
    ],
    ids=["no such sequence", "of no time", "no such message", "not ours"],
)
def test_forged_order_and_final_acks_are_counted_and_change_nothing(
    forge: Callable[[int, int], bytes], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with world() as w:
            sent, sequence, ordinal = sent_transactionally(w.consensus, is_journaled=True)
            before = w.consensus.positions(sent)
            forger, honest = await w.peer(PEER), await w.peer(OTHER)
            for count in range(1, 4):
                forger.send(forge(sequence, ordinal), first_token=count)
                await forger.acknowledged(*range(1, count + 1))
            verdict = "acknowledgement_never_sent"
            assert w.metric("quorate_messages_arrived_total", verdict=verdict) == 3
            (line,) = lines_of(caplog, "never_sent")
            assert line["acknowledgement"].startswith(text.format(sequence + 1))
            assert (line["peer"], line["queue_manager"]) == (ADDRESS, guid_text(PEER))
            assert w.consensus.positions(sent) == before
            assert forger.closed is None
            honest.send(order_ack_of(sequence, 1), first_token=1)
            honest.send(final_ack_of(sequence, ordinal, OWN), first_token=2)
            await honest.acknowledged(1, 2)
            assert w.consensus.positions(sent) == []
            honest.send(order_ack_of(sequence, 1), first_token=3)
            await honest.acknowledged(1, 2, 3)
            name = "quorate_messages_arrived_total"
            assert w.metric(name, verdict="acknowledgement") == 3

    run(scenario())


def test_an_order_ack_beyond_what_was_sent_settles_what_was_sent_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            sent, sequence, _ = sent_transactionally(w.consensus, count=2)
            peer = await w.peer()
            peer.send(order_ack_of(sequence, 1), order_ack_of(sequence, 99), first_token=1)
            await peer.acknowledged(1, 2)
            assert w.consensus.positions(sent) == []
            name = "quorate_messages_arrived_total"
            assert w.metric(name, verdict="acknowledgement") == 1
            assert w.metric(name, verdict="acknowledgement_never_sent") == 1
            (line,) = lines_of(caplog, "never_sent")
            assert line["acknowledgement"] == f"OrderAck: sequence {sequence:#x} up to 99"
            # A repeated acknowledgement is not a forgery: acknowledgements may be lost.
            peer.send(order_ack_of(sequence, 2), first_token=3)
            await peer.acknowledged(1, 2, 3)

    run(scenario())


def test_fuzzed_streams_harm_nobody() -> None:
    async def scenario() -> None:
        chance = random.Random(5)
        async with world() as w:
            queue = w.consensus.create("orders")
            honest = await w.peer(OTHER)
            sent = []
            for round_ in range(150):
                stream = bytearray(HANDSHAKE)
                for number in range(chance.randrange(1, 6)):
                    sequence = (1, number + 1, number) if chance.random() < 0.3 else None
                    stream += packet(round_ * 10 + number, sequence=sequence)
                for _ in range(chance.randrange(1, 5)):
                    at = chance.randrange(len(HANDSHAKE) if chance.random() < 0.7 else 0,
                                          len(stream) - 4)  # fmt: skip
                    pack_into("<I", stream, at, chance.choice((0, 1, 0xFFFFFFFF, 0x400000, at)))
                raw = await w.raw()
                cut = chance.randrange(len(stream))
                raw.write(bytes(stream[:cut]))
                raw.write(bytes(stream[cut:]))
                sent.append(1_000_000 + round_)
                honest.send(packet(sent[-1], source_queue_manager=OTHER))
                await honest.acknowledged(*sent)
                raw.writer.close()
            assert honest.closed is None
            kept = [number for number in w.consensus.ids(queue) if number >= 1_000_000]
            assert kept == sent
            w.consensus.messages(queue)  # everything stored can be read

    run(scenario())


# Time --------------------------------------------------------------------------------------


def test_a_handshake_that_does_not_go_on_ends() -> None:
    async def scenario() -> None:
        config = SessionConfig(initialization_timeout_ms=50)
        async with world(session=config) as w:
            for data in (b"", HANDSHAKE[:40], HANDSHAKE[:572]):
                raw = await w.raw()
                raw.write(data)
                await raw.read_to_end()
            await w.closed("initialization_timeout", 3)
            await until(lambda: w.metric("quorate_connections") == 0)

    run(scenario())


def test_an_idle_session_ends_and_a_busy_one_does_not() -> None:
    async def scenario() -> None:
        async with world(session=SessionConfig(cleanup_timeout_ms=200)) as w:
            w.consensus.create("orders")
            idle, busy = await w.peer(OTHER), await w.peer()
            number = 0
            while not idle.is_gone:
                number += 1
                busy.send(packet(number))
                await busy.acknowledged(*range(1, number + 1))
            await w.closed("idle")
            assert not busy.is_gone

    run(scenario())


def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WRITE_STALL_MAX_S", 0.1)

    async def scenario() -> None:
        async with world(session=SessionConfig(window_size=0x4000)) as w:
            queue = w.consensus.create("orders")
            raw = await w.raw()
            raw.write(write_packet(EstablishConnection(PEER, OWN)))
            raw.write(write_packet(ConnectionParameters(500, 20_000, 0x4000)))
            await raw.reader.readexactly(HANDSHAKE_ANSWER_BYTES)
            cast("asyncio.Transport", raw.writer.transport).pause_reading()
            (stream,) = w.consensus.streams
            await until(lambda: stream.sessions)
            large = [packet(number, body=bytes(2 << 20)) for number in range(1, 17)]
            w.consensus.send_late(range(16), large)
            await w.closed("limit")
            await until(lambda: w.metric("quorate_connections") == 0)
            assert [is_delivered for _, is_delivered in w.consensus.late] == [False] * 16
            await w.is_unharmed(queue)

    monkeypatch.setattr(connection, "LINGER_MAX_S", 0.1)
    run(scenario())


# Quantity ----------------------------------------------------------------------------------


def test_a_full_queue_manager_closes_the_session_and_keeps_what_lies_before() -> None:
    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            w.consensus.set_manager(queue_manager_quota=1)
            peer = await w.peer()
            small, large = packet(1), packet(2, body=bytes(2000))
            peer.send(small, large, packet(3))
            await w.closed("queue_manager_quota")
            await until(lambda: peer.is_gone)
            assert w.consensus.ids(queue)[0] == 1
            w.consensus.set_manager(queue_manager_quota=1000)
            again = await w.peer()
            again.send(small, large, packet(3))
            await again.acknowledged(1, 2, 3)
            assert sorted(w.consensus.ids(queue)) == [1, 2, 3]

    run(scenario())


@pytest.mark.parametrize("limit", ["sessions_max", "sessions_per_address_max"])
def test_connections_beyond_a_limit_are_closed_at_once(
    limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        limits: dict[str, Any] = {limit: 2}
        async with world(**limits) as w:
            queue = w.consensus.create("orders")
            first, _ = await w.peer(), await w.raw()
            third = await w.raw()
            assert await third.read_to_end() == b""
            assert w.metric("quorate_connections_refused_total", reason=limit) == 1
            (line,) = lines_of(caplog, f"refused:{limit}")
            assert (line["reason"], line["peer"]) == (limit, ADDRESS)
            first.transport.close()
            await until(lambda: w.metric("quorate_connections") == 1)
            await w.is_unharmed(queue)

    run(scenario())


@pytest.mark.spec("QB-2.2.1-06", "QB-3.1.5.3.1-02")
def test_sessions_of_one_queue_manager_are_limited_after_the_handshake() -> None:
    async def scenario() -> None:
        async with world(sessions_per_queue_manager_max=1) as w:
            queue = w.consensus.create("orders")
            first = await w.peer()
            second = await w.stranger()
            await until(lambda: second.closed, lambda: second.is_open)
            assert second.closed is not None
            assert second.closed.reason is CloseReason.REFUSED_BY_PEER
            await w.closed("not_admitted")
            await w.is_unharmed(queue)
            first.transport.close()
            await w.closed("disconnected")
            assert (await w.peer()).is_open

    run(scenario())


def test_handshakes_that_race_for_the_last_place_do_not_both_get_it() -> None:
    async def scenario() -> None:
        async with world(sessions_per_queue_manager_max=1) as w:
            raws = [await w.raw(), await w.raw()]
            for raw in raws:
                raw.write(HANDSHAKE[:572])
            for raw in raws:
                await raw.reader.readexactly(572)
            for raw in raws:
                raw.write(HANDSHAKE[572:])
            await w.closed("limit")
            assert w.metric("quorate_sessions", role="acceptor") == 1

    run(scenario())


def test_incomplete_packets_of_all_peers_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context, "INCOMPLETE_MAX_BYTES", 1 << 20)

    async def scenario() -> None:
        async with world() as w:
            queue = w.consensus.create("orders")
            part = packet(1, body=bytes(500_000))[:400_000]
            for _ in range(3):
                raw = await w.raw(is_open=True)
                raw.write(part)
            await w.closed("limit")
            await w.is_unharmed(queue)
            # What the closed one had kept is free again.
            peer = await w.peer()
            peer.send(packet(7, body=bytes(200_000)))
            await peer.acknowledged(7)

    run(scenario())


def test_parts_that_are_never_completed_keep_nobody_from_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They fill the bound, and end one after the other as an honest peer needs room."""
    monkeypatch.setattr(context, "INCOMPLETE_MAX_BYTES", 1 << 20)

    async def scenario() -> None:
        async with world() as w:
            w.consensus.create("orders")
            peer = await w.peer()
            part = packet(1, body=bytes(300_000))[:260_000]
            for _ in range(4):
                raw = await w.raw(is_open=True)
                raw.write(part)
            await until(lambda: w.edge._context.incomplete.size_bytes == 4 * len(part))
            for number in range(1, 4):
                peer.send(packet(number, body=bytes(600_000)))
                await peer.acknowledged(*range(1, number + 1))

    run(scenario())


def test_what_waits_for_the_leader_is_bounded_and_peers_feel_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "HELD_MAX_BYTES", 1 << 20)

    async def scenario() -> None:
        async with world(session=SessionConfig(window_size=0x4000)) as w:
            queue = w.consensus.create("orders")
            w.consensus.has_no_room = True
            config = SessionConfig(window_size=0x4000)
            peers = [await w.peer(bytes([n]) * 16, config) for n in range(1, 9)]
            for n, peer in enumerate(peers, start=1):
                peer.send(*[
                    packet(k, body=bytes(4096), source_queue_manager=bytes([n]) * 16)
                    for k in range(1, 1001)
                ])  # fmt: skip
            await until(lambda: w.metric("quorate_edge_reading_held_total") == 1)
            late = await w.peer(OTHER)  # a session that comes now is held, too
            late.send(packet(1, source_queue_manager=OTHER))
            assert w.edge.held_bytes <= (1 << 20) + 8 * (256 << 10)
            w.consensus.has_no_room = False
            w.consensus.elect("n1")
            for peer in peers:
                await peer.acknowledged(*range(1, 1001))
            await late.acknowledged(1)
            assert len(w.consensus.ids(queue)) == 8001

    run(scenario())
