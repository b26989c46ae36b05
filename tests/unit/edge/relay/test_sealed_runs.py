"""Bodies of peers' messages are sealed before the log knows them."""

from __future__ import annotations

import os
from zlib import crc32

import pytest

from qm.cluster.cluster import Unavailable
from qm.model.values import commands
from qm.model.values.elements import SealedBodies
from qm.model.values.limits import APPLY_VERSION
from qm.model.values.rows import PositionFlag
from qm.security.body_seals import SEAL_BYTES, BodyOpener, BodySealer, is_sealed
from tests.unit.edge.security.people import Keys, Table, encrypted, plain, private_key, written
from tests.unit.edge.world import World, packet, run, world

OWN_KEY = private_key(1024)
KEY = bytes(range(32))
SECRET = b"the launch code is 0000"
OPENER = BodyOpener(lambda _: KEY)


class Seals:
    """Seals as a test says."""

    def __init__(self, which: SealedBodies) -> None:
        self.which = which
        self.is_able = True
        self._sealer = BodySealer(KEY, 1, os.urandom)

    def sealer(self) -> BodySealer:
        if not self.is_able:
            raise Unavailable("this node cannot seal bodies")
        return self._sealer


def stored(w: World, queue: int) -> list[bytes]:
    """Return what is stored at each position of a queue."""
    found = []
    for _, at in w.consensus.positions(queue):
        entry = w.consensus.entries[at.body_index - 1]
        found.append(entry[at.body_offset : at.body_offset + at.body_length])
        assert crc32(found[-1]) == at.body_crc32
    return found


def charged(w: World, queue: int) -> list[int]:
    return [position.stored_size_bytes for _, position in w.consensus.positions(queue)]


MESSAGES = [
    packet(1, body=SECRET),
    packet(2, body=SECRET * 100),
    written(encrypted(plain(3), OWN_KEY)),
    packet(4, body=b""),
]


@pytest.mark.parametrize(
    ("which", "are_sealed"),
    [
        (SealedBodies.NONE, [False] * 4),
        (SealedBodies.ENCRYPTED, [False, False, True, False]),
        (SealedBodies.ALL, [True] * 4),
    ],
)
def test_bodies_are_sealed_as_the_policy_says(which: SealedBodies, are_sealed: list[bool]) -> None:
    async def scenario() -> None:
        keys = Keys(ADVANCED=OWN_KEY)
        async with world(directory=Table(), keys=keys, sealing=Seals(which)) as w:
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(*MESSAGES)
            await peer.acknowledged(1, 2, 3, 4)
            found = stored(w, queue)
            assert list(map(is_sealed, found)) == are_sealed
            opened = [OPENER.opened(one) if is_sealed(one) else one for one in found]
            assert [opened[k] for k in (0, 1, 3)] == [MESSAGES[k] for k in (0, 1, 3)]
            assert charged(w, queue) == list(map(len, opened))
            decrypted = w.consensus.positions(queue)[2][1]
            assert decrypted.flags & PositionFlag.WAS_ENCRYPTED
            assert any(SECRET in one for one in found) == (which is not SealedBodies.ALL)

    run(scenario())


def test_the_policy_may_change_while_a_session_is_open() -> None:
    async def scenario() -> None:
        seals = Seals(SealedBodies.NONE)
        async with world(sealing=seals) as w:
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            queue = w.consensus.create("orders")
            peer = await w.peer()
            for number, which in enumerate(
                (SealedBodies.NONE, SealedBodies.ALL, SealedBodies.NONE), 1
            ):
                seals.which = which
                peer.send(packet(number, body=SECRET))
                await peer.acknowledged(*range(1, number + 1))
            found = stored(w, queue)
            assert list(map(is_sealed, found)) == [False, True, False]
            assert len(found[1]) - len(found[0]) == SEAL_BYTES
            assert len(set(charged(w, queue))) == 1

    run(scenario())


@pytest.mark.parametrize("message", [MESSAGES[0], MESSAGES[2]], ids=["plain", "examined"])
def test_a_node_that_cannot_seal_leaves_the_message_to_another(message: bytes) -> None:
    """Nothing of the session is stored from there on: nothing may overtake it."""

    async def scenario() -> None:
        seals = Seals(SealedBodies.ALL)
        seals.is_able = False
        keys = Keys(ADVANCED=OWN_KEY)
        async with world(directory=Table(), keys=keys, sealing=seals) as w:
            w.consensus.one(commands.RaiseApplyVersion(APPLY_VERSION))
            queue = w.consensus.create("orders")
            peer = await w.peer()
            peer.send(message, packet(8), packet(9))
            await w.closed("stopped")
            assert not peer.acked
            assert not w.consensus.positions(queue)

    run(scenario())
