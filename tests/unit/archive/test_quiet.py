"""A busy node exports later, but not much later."""

import asyncio
from pathlib import Path

from msgspec import structs

from qm.archive.checkpoints import CheckpointTurns
from qm.archive.limits import BUSY_SHARE, LOOK_EVERY_S, QUIET_S
from qm.archive.load_gate import LoadGate
from tests.unit.archive.world import CONFIG, archiver_of, check_chain
from tests.unit.model.world import packet
from tests.unit.store.test_store import Node, arrivals, setup_commands

HELD_MAX = 1000


class World:
    def __init__(self) -> None:
        self.now_s = self.used_s = 100.0
        self.quiet = LoadGate(lambda: self.now_s, lambda: self.used_s, 60.0, HELD_MAX)

    def go_on(self, seconds: float, share: float) -> None:
        self.now_s += seconds
        self.used_s += share * seconds
        self.quiet.look()

    def is_awaited(self, held_bytes: int = 0) -> bool:
        return self.quiet.is_awaited(held_bytes)


def test_nothing_waits_on_a_quiet_node() -> None:
    world = World()
    world.go_on(1.0, BUSY_SHARE / 2)
    assert not world.is_awaited()


def test_a_range_waits_until_the_node_is_quiet() -> None:
    world = World()
    world.go_on(1.0, 2 * BUSY_SHARE)
    assert world.is_awaited()
    world.go_on(QUIET_S, BUSY_SHARE / 2)
    assert not world.is_awaited()


def test_a_gap_between_two_pieces_of_work_is_not_quiet() -> None:
    world = World()
    for _ in range(3):
        world.go_on(1.0, 2 * BUSY_SHARE)
        world.go_on(LOOK_EVERY_S, 0.0)
        assert world.is_awaited()
        world.go_on(QUIET_S / 2, 0.0)
        assert world.is_awaited()


def test_a_moment_says_nothing() -> None:
    world = World()
    world.go_on(1.0, 2 * BUSY_SHARE)
    world.go_on(LOOK_EVERY_S / 2, 0.0)
    assert world.is_awaited()


def test_what_waited_long_is_exported_until_nothing_is_due() -> None:
    world = World()
    world.go_on(1.0, 1.0)
    assert world.is_awaited()
    world.go_on(59.0, 1.0)
    assert world.is_awaited()
    world.go_on(1.0, 1.0)
    assert not world.is_awaited()
    world.go_on(30.0, 1.0)
    assert not world.is_awaited(), "the next range is as late"
    world.quiet.nothing_due()
    assert world.is_awaited()


def test_no_more_waits_than_may_be_held() -> None:
    world = World()
    world.go_on(1.0, 1.0)
    assert world.is_awaited(HELD_MAX)
    assert not world.is_awaited(HELD_MAX + 1)


def test_a_busy_node_writes_its_state_later() -> None:
    turns = CheckpointTurns(1000, lambda: 0)
    assert [turns.is_due(total, is_busy=True) for total in (1000, 1999, 2000)] == [
        False, False, True,
    ]  # fmt: skip
    assert turns.is_due(1000)


def test_a_busy_archiver_waits(tmp_path: Path) -> None:
    """Here by a clock that says that all time is spent."""
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands(), *([arrivals(packet(n))] for n in range(1, 8)))
    archive = tmp_path / "archive"

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        archiver = archiver_of(
            node, archive, config=structs.replace(CONFIG, busy_wait_s=3600.0), wanted_s=loop.time
        )
        busy_until = loop.time() + 2 * LOOK_EVERY_S
        while loop.time() < busy_until:
            await asyncio.sleep(0)
        await archiver.step()
        await archiver.stop()
        assert not archive.exists()
        quiet = archiver_of(node, archive, config=CONFIG)
        await quiet.step()
        await quiet.stop()

    asyncio.run(scenario())
    assert check_chain(archive) == list(range(1, 9))
    node.close()


def test_an_archiver_that_becomes_busy_writes_no_further_range(tmp_path: Path) -> None:
    """Here with the first range, which takes a second of a clock that says that all is spent."""
    node = Node(tmp_path / "node", keeps_effects=True)
    node.put(setup_commands(), *([arrivals(packet(n))] for n in range(1, 8)))
    archive = tmp_path / "archive"

    def ranges() -> int:
        return len(list(archive.rglob("manifest.json")))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.time = lambda: began + ranges()  # type: ignore[method-assign]
        config = structs.replace(CONFIG, range_entries=2, busy_wait_s=3600.0)
        archiver = archiver_of(node, archive, config=config, wanted_s=loop.time)
        await archiver.step()
        await archiver.stop()

    asyncio.run(scenario())
    assert ranges() == 1
    node.close()
