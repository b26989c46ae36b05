"""Signed and encrypted messages of peers, from the socket to the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from qm.edge.edge_metrics import EdgeMetrics
from qm.edge.security import allowances, verification
from qm.edge.security.examination import Finding, Subject, examine
from qm.model.values import commands
from qm.model.values.commands import Facts
from qm.model.values.limits import APPLY_VERSION, VERSION_OF_MESSAGE_SECURITY
from qm.model.values.rows import PositionFlag
from qm.observe.metrics import Metrics
from qm.security.sid import sid_from_text
from qm.wire.headers.security_header import SENDER_ID_SID, SecurityHeader
from qm.wire.packets.user_message import UserMessage
from tests.unit.edge.security.people import (
    ALICE,
    Keys,
    Table,
    certificate,
    encrypted,
    plain,
    private_key,
    signed,
    written,
)
from tests.unit.edge.world import OTHER, World, packet, run, until
from tests.unit.edge.world import world as edge_world

LONG = 70_000
OWN_KEY = private_key(1024)


@asynccontextmanager
async def world(*, version: int = APPLY_VERSION) -> AsyncIterator[tuple[World, Keys]]:
    """An edge that knows Alice and has keys."""
    directory, keys = Table(), Keys(ADVANCED=OWN_KEY)
    directory.register(ALICE, certificate())
    async with edge_world(directory=directory, keys=keys) as w:
        w.consensus.one(commands.RaiseApplyVersion(version))
        yield w, keys


def altered(message: UserMessage) -> bytes:
    return written(replace(message, properties=replace(message.properties, application_tag=77)))


class Gate:
    """Lets examinations in threads wait until a test opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.waiting = 0
        monkeypatch.setattr(verification, "examine", self._examine)

    def _examine(self, subject: Subject) -> Finding:
        if threading.current_thread() is not threading.main_thread():
            self.waiting += 1
            assert self.open.wait(20)
        return examine(subject)


def test_signed_and_encrypted_messages_keep_their_order_and_are_stored_in_clear() -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders", authentication=False)
            peer = await w.peer()
            peer.send(
                packet(1),
                written(signed(plain(2))),
                packet(3),
                written(encrypted(signed(plain(4)), OWN_KEY)),
                written(encrypted(plain(5), OWN_KEY)),
                packet(6),
            )
            await peer.acknowledged(1, 2, 3, 4, 5, 6)
            assert w.consensus.ids(queue) == [1, 2, 3, 4, 5, 6]
            flags = [PositionFlag(one.flags) for _, one in w.consensus.positions(queue)]
            both = PositionFlag.AUTHENTICATED | PositionFlag.WAS_ENCRYPTED
            assert [flag & both for flag in flags] == [
                PositionFlag(0),
                PositionFlag.AUTHENTICATED,
                PositionFlag(0),
                both,
                PositionFlag.WAS_ENCRYPTED,
                PositionFlag(0),
            ]
            assert w.metric("quorate_signatures_total", result="valid") == 2
            assert w.metric("quorate_encrypted_bodies_total", result="decrypted") == 2
            assert w.metric("quorate_examination_seconds_total") > 0

    run(scenario())


def test_what_cannot_be_verified_or_decrypted_is_refused_by_its_class() -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders")
            peer = await w.peer()
            garbled = encrypted(plain(3), OWN_KEY)
            blob = SecurityHeader(is_body_encrypted=True, encryption_key=bytes(140))
            peer.send(
                packet(1),
                altered(signed(plain(2))),
                written(replace(garbled, security=blob)),
                packet(4),
            )
            await peer.acknowledged(1, 2, 3, 4)
            assert w.consensus.ids(queue) == [1, 4]
            for verdict in ("nack_bad_signature", "nack_bad_encryption"):
                assert w.metric("quorate_messages_arrived_total", verdict=verdict) == 1

    run(scenario())


def test_a_long_examination_holds_its_own_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            gate = Gate(monkeypatch)
            queue = w.consensus.create("orders")
            slow, quick = await w.peer(), await w.peer(OTHER)
            slow.send(packet(1), written(signed(plain(2, bytes(LONG)))), packet(3))
            slow.send(packet(4))
            await until(lambda: gate.waiting)
            quick.send(packet(51, source_queue_manager=OTHER))
            await quick.acknowledged(51)
            assert not {2, 3, 4} & set(w.consensus.ids(queue))
            assert w.edge.held_bytes > LONG
            gate.open.set()
            await slow.acknowledged(1, 2, 3, 4)
            assert [n for n in w.consensus.ids(queue) if n != 51] == [1, 2, 3, 4]
            assert w.edge.held_bytes == 0

    run(scenario())


def test_a_session_that_ends_meanwhile_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            gate = Gate(monkeypatch)
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(written(signed(plain(1, bytes(LONG)))), packet(2))
            await until(lambda: gate.waiting)
            peer.transport.abort()
            await until(lambda: not w.edge.connection_count)
            gate.open.set()
            await w.is_unharmed(queue)
            assert w.edge.held_bytes == 0

    run(scenario())


def test_draining_waits_for_examinations(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            gate = Gate(monkeypatch)
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(written(signed(plain(1, bytes(LONG)))))
            await until(lambda: gate.waiting)
            draining = asyncio.ensure_future(w.edge.drain(20))
            await asyncio.sleep(0)
            assert not draining.done()
            gate.open.set()
            await draining
            assert w.consensus.ids(queue) == [1]

    run(scenario())


def test_an_unsound_packet_behind_an_examined_one_ends_the_session() -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders")
            raw = await w.raw(is_open=True)
            unsound = bytearray(packet(3))
            unsound[60:64] = b"\xff\xff\xff\xff"  # UserHeader.Flags
            raw.write(written(signed(plain(1))) + packet(2) + bytes(unsound))
            await w.closed("malformed_packet")
            await until(lambda: w.consensus.ids(queue) == [1, 2])

    run(scenario())


def test_who_sends_only_bad_signatures_waits_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowances, "FAILURES_BURST_COUNT", 5.0)

    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders")
            bad, good = await w.peer(), await w.peer(OTHER)
            bad.send(*[altered(signed(plain(number))) for number in range(1, 21)])
            good.send(packet(51, source_queue_manager=OTHER))
            await good.acknowledged(51)
            assert len(bad.acked) < 20
            assert w.metric("quorate_examinations_rationed_total") > 0
            await bad.acknowledged(*range(1, 21))
            assert w.consensus.ids(queue) == [51]

    run(scenario())


def test_a_node_without_sealing_key_leaves_encrypted_messages_to_others() -> None:
    async def scenario() -> None:
        async with world() as (w, keys):
            keys.is_sealed = True
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(written(encrypted(plain(1), OWN_KEY)))
            await w.closed("stopped")
            assert peer.acked == []
            assert w.consensus.ids(queue) == []

    run(scenario())


def test_a_cluster_of_an_older_version_gets_no_facts_that_it_does_not_know() -> None:
    async def scenario() -> None:
        async with world(version=VERSION_OF_MESSAGE_SECURITY - 1) as (w, _):
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(written(signed(plain(1))), written(encrypted(plain(2), OWN_KEY)), packet(3))
            await peer.acknowledged(1, 2, 3)
            assert w.consensus.ids(queue) == [3]
            assert w.metric("quorate_signatures_total", result="valid") == 0
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            peer.send(written(signed(plain(4))))
            await peer.acknowledged(1, 2, 3, 4)
            assert w.consensus.ids(queue) == [3, 4]

    run(scenario())


def test_many_senders_in_one_session_are_told_apart() -> None:
    """A batch names at most 256 different facts."""

    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders")
            peer = await w.peer()
            claims = [
                written(
                    replace(
                        plain(number),
                        security=SecurityHeader(
                            SENDER_ID_SID, security_id=sid_from_text(f"S-1-5-21-1-2-3-{number}")
                        ),
                    )
                )
                for number in range(1, 601)
            ]
            peer.send(*claims)
            await peer.acknowledged(*range(1, 601))
            assert w.consensus.ids(queue) == list(range(1, 601))

    run(scenario())


def test_what_is_stored_is_sound() -> None:
    async def scenario() -> None:
        async with world() as (w, _):
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(written(encrypted(signed(plain(1)), OWN_KEY)))
            await peer.acknowledged(1)
            (stored,) = w.consensus.messages(queue)
            assert stored.properties.message_body == plain(1).properties.message_body
            assert stored.security is not None
            assert not stored.security.is_body_encrypted

    run(scenario())


class HandMadeClock:
    """The part of an event loop that timers need, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[..., None], *args: object) -> asyncio.TimerHandle:
        self.due.append((at, lambda: call(*args)))
        return cast("asyncio.TimerHandle", None)

    def fire(self) -> float:
        """Let the next timer fire; return when it was due."""
        self.due.sort(key=lambda one: one[0])
        self.now, call = self.due.pop(0)
        call()
        return self.now


@pytest.mark.spec("QB-3.1.6.10-01", "QB-3.1.6.13-01", "QB-3.1.5.8.3-12", "QB-3.1.5.8.3-07")
def test_each_cache_has_one_timer_that_starts_with_its_first_entry_and_goes_on() -> None:
    """SymmetricKeyShortLifetime is 600 s, UserCertLifetime 1,200 s, and 60 s come on top."""
    clock = HandMadeClock()
    directory, keys = Table(), Keys(ADVANCED=OWN_KEY)
    directory.register(ALICE, certificate())
    loop = cast("asyncio.AbstractEventLoop", clock)
    metrics = EdgeMetrics(Metrics(CollectorRegistry()), loop)
    verifying = verification.Verification(metrics, loop, lambda: 1_700_000_000_000, directory, keys)
    examiner = verifying.examiner
    verifying.keep_clean()
    assert clock.due == [], "nothing is cached"

    def take(message: UserMessage) -> None:
        question = examiner.question(written(message), message, clock.now)
        facts = Facts(1, bytes(16), "10.0.0.7", ())
        examiner.facts(question, examine(question.subject), facts, clock.now, 1_700_000_000)
        verifying.keep_clean()

    take(signed(plain()))
    clock.now = 10.0
    take(encrypted(plain(), OWN_KEY, secret=b"1" * 32))
    clock.now = 400.0
    take(encrypted(plain(), OWN_KEY, secret=b"2" * 32))
    assert sorted(at for at, _ in clock.due) == [610.0, 1_200.0], "one timer each"
    # Older than the lifetime is what is cached longer than it: the first goes a minute later.
    assert clock.fire() == 610.0
    assert len(examiner.symmetric_keys) == 2
    assert clock.fire() == 10.0 + 600 + 60
    assert len(examiner.symmetric_keys) == 1
    assert clock.fire() == 400.0 + 600 + 60
    assert len(examiner.symmetric_keys) == 0
    assert len(examiner.user_certificates) == 1
    assert [at for at, _ in clock.due] == [1_200.0]
    clock.fire()
    assert clock.fire() == 0.0 + 1_200 + 60
    assert len(examiner.user_certificates) == 0
    assert clock.due == [], "nothing is left to clean"
    take(signed(plain()))
    assert [at for at, _ in clock.due] == [1_260.0 + 1_200]
