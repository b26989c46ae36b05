"""What counts as healed, and when."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from qm.model.state.tables import Table
from qm.model.values.records import SyntheticPacket, encode
from qm.node.relay.copies import Answers
from qm.node.upkeep.healer import LOST_AGAIN_S, BodyDamage, Healer, RecordDamage
from qm.observe.metrics import Metrics
from qm.store.bodies.body_places import BodyPlace
from qm.store.database import DatabaseFull
from raft.log_view import Compacted

PLACE = BodyPlace(7, 0, 4, 0, 1)


class Body:
    """One body of a node: its store, its housekeeping and the node that gives it, and all that
    happened.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_whole = False
        self.is_full = False
        self.is_installing = False
        self.suspects: dict[tuple[int, int], BodyPlace | None] = {}
        self.machine = self.store = self.bodies = self
        self.state: Any = None
        self.driver = SimpleNamespace(scrub=SimpleNamespace(is_whole=lambda index: True))
        self.is_refusing = False
        """Whether its database takes no writes, so that what was applied cannot be settled."""

    def is_damaged(self, place: BodyPlace) -> bool:
        assert not self.is_installing, "another thread replaces the state"
        if self.is_refusing:
            raise DatabaseFull("no space")
        return not self.is_whole

    def copy(self, place: BodyPlace) -> bytes | None:
        assert not self.is_installing, "another thread replaces the state"
        return b"body" if self.is_whole else None

    async def given(self, places: list[BodyPlace]) -> tuple[dict[BodyPlace, bytes], bool]:
        return dict.fromkeys(places, b"body"), True

    async def restore(self, index: int, packets: dict[int, bytes]) -> bool:
        self.calls.append("restored")
        self.is_whole = True
        return True

    async def flush_now(self) -> None:
        self.calls.append("flushed")
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


def healer_of(body: Body, peers: object = None) -> Healer:
    return Healer(
        cast("Any", body),
        cast("Any", peers or SimpleNamespace(bodies=body.given)),
        cast("Any", body),
        Metrics(CollectorRegistry()),
        lambda name, text: body.calls.append(name),
        lambda name, text: body.calls.append(name),
    )


def test_a_body_is_healed_when_its_new_place_survives_a_power_loss() -> None:
    async def scenario() -> None:
        body = Body()
        healer = healer_of(body)
        healer.found([BodyDamage(7, 0, PLACE)])
        await healer.heal()
        assert body.calls == ["damaged", "restored", "flushed", "healed"]
        assert healer.is_whole

    asyncio.run(scenario())


def test_a_disk_without_space_for_the_place_leaves_it_damaged() -> None:
    async def scenario() -> None:
        body = Body()
        healer = healer_of(body)
        healer.found([BodyDamage(7, 0, PLACE)])
        body.is_full = True
        with pytest.raises(OSError, match="No space"):
            await healer.heal()
        assert not healer.is_whole
        body.is_full = False
        await again(healer)
        assert body.calls[-2:] == ["flushed", "healed"]

    asyncio.run(scenario())


def test_a_reader_is_told_that_a_full_disk_restores_nothing_now() -> None:
    async def scenario() -> None:
        body = Body()
        healer = healer_of(body)
        body.suspects[7, 0] = PLACE
        body.is_refusing = True
        assert not await healer.restore(PLACE)
        body.is_refusing = False
        body.suspects[7, 0] = PLACE  # it was read again
        assert await healer.restore(PLACE)

    asyncio.run(scenario())


def test_an_entry_that_is_dropped_while_others_are_asked_for_it_needs_nothing_more() -> None:
    async def scenario() -> None:
        body, is_dropped = Body(), False

        def dropped(index: int) -> int:
            if is_dropped:
                raise Compacted(f"entry {index} has been dropped")
            return index

        async def entry(index: int, term: int) -> Answers:
            nonlocal is_dropped
            is_dropped = True
            return Answers([], [], is_complete=True)

        body.driver.scrub = SimpleNamespace(
            is_whole=lambda index: is_dropped,
            term=lambda index: None if is_dropped else 1,
            range_of=dropped,
            correct=lambda found: None,
            last_index_with=dropped,
            give_up=lambda upto: None,
        )
        body.state = SimpleNamespace(scan=lambda *_, **__: [])
        healer = healer_of(body, SimpleNamespace(bodies=body.given, entry=entry))
        healer.found([RecordDamage(7)])
        assert not await healer.restore(PLACE)
        assert healer.is_whole

    asyncio.run(scenario())


def test_a_state_that_is_being_replaced_is_not_read() -> None:
    async def scenario() -> None:
        body = Body()

        async def given(places: list[BodyPlace]) -> tuple[dict[BodyPlace, bytes], bool]:
            body.is_installing = True
            return {}, False

        healer = healer_of(body, SimpleNamespace(bodies=given))
        body.suspects[7, 0] = PLACE
        assert not await healer.restore(PLACE)
        body.suspects[7, 0] = PLACE
        assert not await healer.restore(PLACE)

    asyncio.run(scenario())


def test_rows_are_not_read_again_and_again_for_what_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node with millions of messages reads all their rows for the names of the lost ones."""

    async def scenario() -> None:
        body, scans = Body(), 0
        row = encode(SyntheticPacket(b"", body_of=msgspec.structs.astuple(PLACE)))

        def scan(table: Table, *_: object) -> list[tuple[bytes, bytes]]:
            nonlocal scans
            scans += table is Table.SYNTHETIC
            return [(b"", row)] if table is Table.SYNTHETIC else []

        async def nothing(*_: object) -> Any:
            return Answers([], [], is_complete=True)

        async def no_bodies(places: list[BodyPlace]) -> tuple[dict[BodyPlace, bytes], bool]:
            return {}, True

        body.state = SimpleNamespace(scan=scan)
        body.driver.scrub = SimpleNamespace(
            is_whole=lambda index: False,
            term=lambda index: 1,
            range_of=lambda index: None,
            correct=lambda found: None,
        )
        healer = healer_of(body, SimpleNamespace(bodies=no_bodies, entry=nothing))
        healer.found([RecordDamage(7)])
        for _ in range(3):
            assert not await healer.restore(PLACE)
            await again(healer)
        assert body.calls == ["damaged", "damaged_everywhere"]
        assert scans == 1
        loop = asyncio.get_running_loop()
        later_s = loop.time() + LOST_AGAIN_S + 1
        monkeypatch.setattr(loop, "time", lambda: later_s)
        await again(healer)
        assert scans == 2, "it may have left meanwhile"

    asyncio.run(scenario())


def test_a_state_that_is_replaced_while_rows_are_read_is_left_alone() -> None:
    async def scenario() -> None:
        body = Body()

        def scan(*_: object) -> list[tuple[bytes, bytes]]:
            body.is_installing = True
            return []

        async def nothing(*_: object) -> Any:
            return Answers([], [], is_complete=True)

        def give_up(upto: int) -> None:
            raise AssertionError("its rows were not read to the end")

        body.state = SimpleNamespace(scan=scan)
        body.driver.scrub = SimpleNamespace(
            is_whole=lambda index: False,
            term=lambda index: 1,
            range_of=lambda index: None,
            correct=lambda found: None,
            last_index_with=lambda index: index,
            give_up=give_up,
        )
        healer = healer_of(body, SimpleNamespace(bodies=body.given, entry=nothing))
        healer.found([RecordDamage(7)])
        assert not await healer.restore(PLACE)

    asyncio.run(scenario())


async def again(healer: Healer) -> None:
    """As when its time has come."""
    for damage in list(healer._known):
        healer._known[damage] = 0.0
    await healer.heal()
