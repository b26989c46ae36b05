"""Who is taken out of the members by a leader in a pod, and who is not."""

import asyncio

import pytest

from qm.node.leader.kubernetes import ApiServerRefused, ordinal_of
from qm.node.leader.removed_pods import SILENT_S, ScaledAway

FIVE = tuple(f"q-{ordinal}" for ordinal in range(5))


class World:
    """Members, the StatefulSet that they are of, and a clock."""

    def __init__(self, *members: str, replicas: int | None) -> None:
        self.members = list(members)
        self.answering = set(members)
        self.replicas = replicas
        """None: the API server refuses."""
        self.asked = 0
        self.removed: list[str] = []
        self.now_s = 100.0
        self.duty = ScaledAway(
            "q", lambda: self.members, self._answering, self._replicas, self._remove,
            lambda: self.now_s,
        )  # fmt: skip

    async def _answering(self) -> set[str]:
        return self.answering

    async def _replicas(self) -> int:
        self.asked += 1
        if self.replicas is None:
            raise ApiServerRefused("away")
        return self.replicas

    async def _remove(self, name: str) -> None:
        self.removed.append(name)
        self.members.remove(name)

    def look(self, after_s: float = 0.0) -> list[str]:
        self.now_s += after_s
        asyncio.run(self.duty.look())
        return self.members


def test_silent_pods_that_shall_not_come_back_leave_the_highest_first() -> None:
    world = World(*FIVE, replicas=3)
    world.answering -= {"q-3", "q-4"}
    world.look()
    assert world.look(SILENT_S) == list(FIVE[:3])
    assert world.removed == ["q-4", "q-3"]


def test_who_answers_takes_itself_out() -> None:
    world = World(*FIVE, replicas=3)
    world.look()
    assert world.look(10 * SILENT_S) == list(FIVE)
    assert world.asked == 0


def test_silence_is_counted_without_a_break() -> None:
    world = World(*FIVE, replicas=3)
    world.answering.remove("q-4")
    world.look()
    assert world.look(SILENT_S / 2) == list(FIVE)
    world.answering.add("q-4")
    world.look(1)
    world.answering.remove("q-4")
    world.look(1)
    assert world.look(SILENT_S - 1) == list(FIVE)
    assert world.look(1) == list(FIVE[:4])


def test_a_new_leader_counts_anew() -> None:
    world = World(*FIVE, replicas=3)
    world.answering.remove("q-4")
    world.look()
    world.duty.begin()
    assert world.look(10 * SILENT_S) == list(FIVE)
    assert world.look(SILENT_S) == list(FIVE[:4])


@pytest.mark.parametrize("replicas", [0, 5, 7])
def test_pods_that_come_back_stay_members(replicas: int) -> None:
    """A cluster that is scaled to none is stopped: all stay members."""
    world = World(*FIVE, replicas=replicas)
    world.answering.remove("q-4")
    world.look()
    assert world.look(SILENT_S) == list(FIVE)
    assert world.asked == 1


def test_members_elsewhere_are_nobodys_pods() -> None:
    world = World("q-0", "q-1", "machine", "other-7", replicas=2)
    world.answering -= {"machine", "other-7"}
    world.look()
    assert world.look(SILENT_S) == ["q-0", "q-1", "machine", "other-7"]
    assert world.asked == 0


def test_nobody_leaves_while_the_api_server_says_nothing() -> None:
    world = World(*FIVE, replicas=None)
    world.answering.remove("q-4")
    world.look()
    with pytest.raises(ApiServerRefused):
        world.look(SILENT_S)
    assert world.members == list(FIVE)
    world.replicas = 4
    assert world.look(1) == list(FIVE[:4])


@pytest.mark.parametrize(
    ("stateful_set", "pod", "ordinal"),
    [
        ("q", "q-0", 0),
        ("a-q", "a-q-12", 12),
        ("q", "a-q-1", None),
        ("q", "q", None),
        ("q", "q-", None),
        ("q", "q-1a", None),
        ("", "-1", None),
        ("", "7", None),
    ],
)
def test_a_pods_number(stateful_set: str, pod: str, ordinal: int | None) -> None:
    assert ordinal_of(stateful_set, pod) == ordinal
