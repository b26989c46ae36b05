"""Who is a member, as far as a node knows: by its log, by its seeds, by what members say."""

import asyncio
from collections.abc import Mapping

from qm.node.relay.roster import Roster
from qm.pb import relay_pb2
from raft.types import Configuration

CLUSTER = b"c" * 16
ABC = Configuration(("a.1", "b.1", "c.1"))


def says(*voters: str, commit: int, cluster: bytes = CLUSTER) -> relay_pb2.InspectReply:
    return relay_pb2.InspectReply(cluster=cluster, commit=commit, term=1, voters=voters)


def look(
    roster: Roster, replies: Mapping[str, relay_pb2.InspectReply], commit: int = 5
) -> list[str]:
    """Let it ask; return whom it asked."""
    asked: list[str] = []

    async def inspect(name: str) -> relay_pb2.InspectReply:
        asked.append(name)
        return replies.get(name, relay_pb2.InspectReply())

    asyncio.run(roster.look(inspect, CLUSTER, commit))
    return asked


def test_members_by_the_configuration_are_admitted_and_nobody_else() -> None:
    roster = Roster("a", ["a", "b", "z"])
    roster.took(ABC)
    assert [name for name in "abcz" if roster.admits(name)] == ["a", "b", "c"]
    assert [name for name in "abcz" if roster.is_member(name)] == ["a", "b", "c"]


def test_seeds_may_ask_while_nobody_is_known() -> None:
    """A node whose log is refused knows no members; they may need entries of it."""
    roster = Roster("a", ["a", "b"])
    assert [name for name in "abc" if roster.may_ask(name)] == ["a", "b"]
    roster.took(Configuration(("a.1", "c.1")))
    assert [name for name in "abc" if roster.may_ask(name)] == ["a", "c"]


def test_who_is_being_removed_is_heard_until_the_next_change() -> None:
    """The removal may not be committed; but it asks nothing any more that members ask."""
    roster = Roster("a", [])
    roster.took(ABC)
    roster.took(Configuration(("a.1", "b.1")))
    assert roster.admits("c")
    assert not roster.is_member("c")
    roster.took(Configuration(("a.1",)))
    assert not roster.admits("c")


def test_a_node_that_is_no_member_yet_hears_its_seeds() -> None:
    roster = Roster("d", ["a", "b"])
    assert roster.admits("a")
    assert not roster.is_member("a")
    assert not roster.admits("c")
    assert look(roster, {"a": says("a.1", "b.1", "c.1", commit=1)}, commit=0) == ["a", "b"]
    assert roster.admits("c")


def test_a_node_that_was_away_learns_of_new_members_from_those_it_knows() -> None:
    roster = Roster("c", ["x"])
    roster.took(ABC)
    assert look(roster, {}) == []  # while no unknown one speaks, nobody is asked
    assert not roster.admits("d")
    replies = {
        "a": says("a.1", "b.1", "c.1", "d.1", commit=9),
        "b": says("a.1", "b.1", "c.1", "z.1", commit=7),
    }
    assert look(roster, replies) == ["a", "b"]
    assert roster.admits("d")
    assert roster.is_member("d")
    assert not roster.admits("z")  # another answer is more advanced
    roster.took(Configuration(("a.1", "b.1", "c.1")))
    assert not roster.admits("d")


def test_what_others_say_counts_only_beyond_what_is_known_here() -> None:
    roster = Roster("c", [])
    roster.took(ABC)
    for reply in (says("d.1", commit=5), says("d.1", commit=9, cluster=b"x" * 16)):
        assert not roster.admits("d")
        look(roster, {"a": reply})
    assert not roster.admits("d")
