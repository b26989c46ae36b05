"""Attacks over TCP 1801 and UDP 3527."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable
from functools import partial
from random import Random

from qm.node.config.schema import MSMQ_PORT, PING_PORT
from qm.wire.guid import Guid
from tests.hostile.packets import (
    EDGES_32,
    U32_MAX,
    acknowledgement,
    aimed,
    corpus,
    direct,
    handshake,
    message,
    mutated,
    numbered,
    parameters,
    ping,
)
from tests.hostile.sessions import Flood, Make, Raw, again_and_again
from tests.hostile.victim import Count, Victim

PACKET_MAX_BYTES = 4 << 20
_FUZZERS = 24
_FUZZ_PACKETS_MAX = 24
_PINGS_PER_TICK = 20
_TICK_S = 0.01
_BYTE_WISE = 150
_BYTE_EVERY_S = 0.05
_SLOW = 300
_HELD_S = 30.0
_SLOW_BUFFER_BYTES = 4_096
_QUEUES = 50_000
"""Different names before they repeat."""


async def _all(*attackers: Awaitable[object]) -> None:
    await asyncio.gather(*attackers)


def _flood(
    victim: Victim, count: Count, number: int, make: Make, guid: Guid, *, per_session: int = 0
) -> Flood:
    host, source = victim.host(number), victim.source(number)
    return Flood(guid, host, source, make, count, per_session=per_session)


async def fuzz_1801(victim: Victim, chance: Random, count: Count) -> None:
    """Packets that know what packets are made of: before, within and instead of a handshake."""
    queues = [victim.name(victim.queue), victim.name(victim.transactional_queue), "TCP:1.2.3.4\\q"]
    bases = corpus()

    def packet() -> bytes:
        kind = chance.random()
        if kind < 0.1:
            return acknowledgement(chance)
        sound = aimed(chance, queues) if kind < 0.6 else chance.choice(bases)
        return sound if chance.random() < 0.1 else mutated(chance, sound)

    async def once(number: int) -> None:
        async with Raw.to(victim.host(number), MSMQ_PORT, victim.source(number)) as raw:
            guid = chance.randbytes(16)
            match chance.randrange(10):
                case 0:
                    await raw.send(packet())
                    count(1)
                case 1:
                    await raw.send(mutated(chance, handshake(guid)) + parameters())
                    count(2)
                case 2:
                    await raw.send(handshake(guid) + mutated(chance, parameters()))
                    count(2)
                case _:
                    await raw.open_session(guid)
            for _ in range(chance.randint(1, _FUZZ_PACKETS_MAX)):
                await raw.send(packet())
                count(1)
            await raw.until_closed(chance.choice((0.0, 0.05, 0.5)))

    await _all(*(again_and_again(partial(once, number)) for number in range(_FUZZERS)))


async def fuzz_udp(victim: Victim, chance: Random, count: Count) -> None:
    """Pings, and datagrams near them, from many addresses."""
    sockets = []
    for source in victim.sources:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        one.bind((source, 0))
        sockets.append(one)
    try:
        while True:
            for _ in range(_PINGS_PER_TICK):
                one = chance.choice(sockets)
                try:
                    one.sendto(ping(chance), (chance.choice(victim.hosts), PING_PORT))
                    one.recv(2_048)
                except OSError:
                    pass
                count(1)
            await asyncio.sleep(_TICK_S)
    finally:
        for one in sockets:
            one.close()


async def many_guids(victim: Victim, chance: Random, count: Count) -> None:
    """Every message from another queue manager; and sessions, each of another one."""
    queue = direct(victim.name(victim.queue))
    missing = direct(victim.name("private$\\nowhere"))
    ordered = direct(victim.name(victim.transactional_queue))

    def plain(number: int) -> bytes:
        destination = missing if number % 4 else queue
        return message(chance.randbytes(16), destination, number, sent_time_s=int(time.time()))

    def transactional(number: int) -> bytes:
        header = numbered(int(time.time()), number, 1, 0)
        return message(chance.randbytes(16), ordered, number, transaction=header)

    floods = [
        _flood(victim, count, number, make, chance.randbytes(16), per_session=per_session)
        for number, (make, per_session) in enumerate(
            ((plain, 0), (transactional, 0), (plain, 1), (transactional, 1), (plain, 1))
        )
    ]
    for flood in floods:
        flood.new_guid = partial(chance.randbytes, 16)
    await _all(*(flood.run() for flood in floods))


async def many_names(victim: Victim, chance: Random, count: Count) -> None:
    """Every message to another queue, of this computer or of one that it is not."""

    def make(number: int) -> bytes:
        at = number % _QUEUES
        destination = (
            victim.name(f"private$\\missing-{at}"),
            f"OS:elsewhere-{at}\\private$\\q",
            victim.name(f"{victim.queue}\\{at}"),
            victim.name("x" * (at % 100) + "\N{SNOWMAN}"),
            f"TCP:{victim.silent[at % len(victim.silent)]}\\private$\\{at}",
        )[number % 5]
        admin = direct(victim.name(f"private$\\admin-{at}")) if number % 3 == 0 else None
        return message(guid, direct(destination), number, label=f"{at}", admin=admin)

    guid = chance.randbytes(16)
    floods = [_flood(victim, count, k, make, chance.randbytes(16)) for k in range(4)]
    await _all(*(flood.run() for flood in floods))


async def dead_destinations(victim: Victim, chance: Random, count: Count) -> None:
    """Administration and response queues at thousands of places where nothing answers."""

    def make(number: int) -> bytes:
        host = victim.silent[number % len(victim.silent)]
        admin = direct(f"TCP:{host}\\private$\\{number % _QUEUES}")
        return message(chance.randbytes(16), direct(victim.name(victim.queue)), number, admin=admin)

    floods = [_flood(victim, count, k, make, chance.randbytes(16)) for k in range(4)]
    await _all(*(flood.run() for flood in floods))


async def slow_readers(victim: Victim, chance: Random, count: Count) -> None:
    """Peers that send and never read what they are answered."""
    guid = chance.randbytes(16)
    own = victim.name(victim.queue)

    async def once(number: int) -> None:
        where = (victim.host(number), MSMQ_PORT, victim.source(number))
        async with Raw.to(*where, receive_bytes=_SLOW_BUFFER_BYTES) as raw:
            await raw.open_session(chance.randbytes(16))
            for turn in range(100_000):
                await asyncio.wait_for(raw.send(message(guid, direct(own), turn)), _HELD_S)
                count(1)
                await asyncio.sleep(_BYTE_EVERY_S)

    await _all(*(again_and_again(partial(once, number)) for number in range(_SLOW)))


async def byte_wise(victim: Victim, chance: Random, count: Count) -> None:
    """Honest sessions, one byte at a time."""

    async def once(number: int) -> None:
        queue = direct(victim.name(victim.queue))
        async with Raw.to(victim.host(number), MSMQ_PORT, victim.source(number)) as raw:
            guid = chance.randbytes(16)
            if number % 2:
                await raw.open_session(guid)
                data = b"".join(message(guid, queue, turn) for turn in range(1_000))
            else:
                data = handshake(guid) + parameters() + message(guid, queue, 1)
            for byte in data:
                await raw.send(bytes((byte,)))
                count(1)
                await asyncio.sleep(_BYTE_EVERY_S)

    await _all(*(again_and_again(partial(once, number)) for number in range(_BYTE_WISE)))


async def bulk_4mib(victim: Victim, chance: Random, count: Count) -> None:
    """The largest messages, one after the other, until the queue's quota and after it."""
    guid = chance.randbytes(16)
    queue = direct(victim.name(victim.queue))
    spare = len(message(guid, queue, 0, body=b""))
    body = chance.randbytes(PACKET_MAX_BYTES - spare - 8)

    def make(number: int) -> bytes:
        return message(guid, queue, number, body=body, is_recoverable=number % 2 == 0)

    floods = [_flood(victim, count, k, make, chance.randbytes(16)) for k in range(3)]
    await _all(*(flood.run() for flood in floods))


async def tiny_missing(victim: Victim, chance: Random, count: Count) -> None:
    """As many of the smallest messages as the window lets through, to queues that are not there."""
    source = chance.randbytes(16)
    made = [
        message(source, direct(victim.name(f"private$\\no-{number}")), number, body=b"")
        for number in range(4_096)
    ]

    def make(number: int) -> bytes:
        return made[number % len(made)]

    floods = [_flood(victim, count, k, make, chance.randbytes(16)) for k in range(9)]
    await _all(*(flood.run() for flood in floods))


async def counters_near_end(victim: Victim, chance: Random, count: Count) -> None:
    """Numbers, times and identifiers at the ends of their fields."""
    ordered = direct(victim.name(victim.transactional_queue))
    plain = direct(victim.name(victim.queue))

    def make(number: int) -> bytes:
        edge, other = chance.choice(EDGES_32), chance.choice(EDGES_32)
        guid = guids[number % len(guids)]
        if number % 3 == 0:
            sent_s, live_s = chance.choice(EDGES_32), chance.choice(EDGES_32)
            return message(
                guid, plain, edge, sent_time_s=sent_s, to_live_s=live_s, to_reach_s=other
            )
        header = numbered(
            chance.choice((0, int(time.time()), U32_MAX)),
            chance.choice((0, 1, U32_MAX)),
            max(edge, 1),
            min(other, max(edge, 1) - 1),
        )
        return message(guid, ordered, other, transaction=header, sent_time_s=edge)

    async def once(number: int) -> None:
        async with Raw.to(victim.host(number), MSMQ_PORT, victim.source(number)) as raw:
            await raw.open_session(guids[number % len(guids)])
            for turn in range(64):
                await raw.send(acknowledgement(chance) if turn == 63 else make(turn))
                count(1)
            await raw.until_closed(0.2)

    guids = [chance.randbytes(16) for _ in range(16)]
    floods = [_flood(victim, count, k, make, guids[k]) for k in range(3)]
    raws = (again_and_again(partial(once, number)) for number in range(6))
    await _all(*(flood.run() for flood in floods), *raws)
