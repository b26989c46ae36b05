"""Ten situations in which a replicated log must keep its promises.

Each function drives a cluster and returns what was violated, or "" if nothing was. All are
deterministic and use only faults that Raft must survive.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.baseline.face import Cluster, Handle

ELECTION_MS = 1_000
"""Enough for one campaign and its answers."""
REQUEST_MS = 10_000
"""Within which a healthy majority must answer."""


@dataclass(frozen=True)
class Scenario:
    """A situation, the rule it puts to the test, and how many machines it needs."""

    name: str
    rule: str
    machines: int
    run: Callable[[Cluster], str]


SCENARIOS: list[Scenario] = []


def scenario(rule: str, machines: int = 3) -> Callable[[Callable[[Cluster], str]], Scenario]:
    """Register a scenario under its function's name."""

    def register(run: Callable[[Cluster], str]) -> Scenario:
        found = Scenario(run.__name__, rule, machines, run)
        SCENARIOS.append(found)
        return found

    return register


def two_leaders(cluster: Cluster) -> str:
    """Say which term had two leaders."""
    seen: dict[int, str] = {}
    for term, name in cluster.leaderships():
        if seen.setdefault(term, name) != name:
            return f"{seen[term]} and {name} both lead term {term}"
    return ""


def wait(cluster: Cluster, *handles: Handle, ms: int = REQUEST_MS) -> bool:
    """Let time pass until all handles are answered; False when it runs out."""
    for _ in range(ms // 100):
        if all(handle.is_done or handle.is_failed for handle in handles):
            break
        cluster.run(100)
    return all(handle.is_done for handle in handles)


def elect(cluster: Cluster, name: str) -> None:
    """Make a machine the leader, or give up loudly: the scenario's beginning must work."""
    for _ in range(10):
        cluster.campaign(name)
        cluster.run(ELECTION_MS)
        if cluster.leader() == name:
            return
    raise AssertionError(f"{name} cannot be elected; {cluster.leaderships()}")


@scenario("A vote is remembered across restarts (Raft 5.2): one leader per term")
def restart_keeps_the_vote(cluster: Cluster) -> str:
    cluster.start("a", "b")
    elect(cluster, "a")
    cluster.kill("b")
    cluster.split("a", "bc")
    cluster.start("b", "c")
    cluster.campaign("c")
    cluster.run(ELECTION_MS)
    return two_leaders(cluster)


@scenario("A majority of four is three (Raft 5.2)", machines=4)
def an_even_split_elects_nobody(cluster: Cluster) -> str:
    cluster.split("ab", "cd")
    cluster.start("a", "b", "c", "d")
    cluster.campaign("a")
    cluster.campaign("c")
    cluster.run(ELECTION_MS)
    cluster.campaign("a")
    cluster.campaign("c")
    cluster.run(ELECTION_MS)
    both = two_leaders(cluster)
    if both:
        return both
    camps = {name for _, name in cluster.leaderships()}
    return f"two of four machines elected {sorted(camps)}" if camps else ""


@scenario("A vote counts once, however often its message arrives", machines=5)
def a_repeated_vote_counts_once(cluster: Cluster) -> str:
    cluster.repeat("vote_reply", 3)
    cluster.start("a", "b")
    cluster.campaign("a")
    cluster.run(ELECTION_MS)
    leaders = {name for _, name in cluster.leaderships()}
    return f"{sorted(leaders)} lead with two of five machines running" if leaders else ""


@scenario("An append that was seen before erases nothing (Raft 5.3)")
def a_late_append_erases_nothing(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    first = cluster.put("a", "x", 1)
    assert wait(cluster, first), "the first write is not answered"
    old = [
        next(frame for frame in cluster.frames("append", "a", other) if frame.entries)
        for other in "bc"
    ]
    second = cluster.put("a", "x", 2)
    for _ in range(100):
        if second.is_done:
            break
        cluster.run(5)
    assert second.is_done, "the second write is not answered"
    for frame in old:
        cluster.deliver(frame)
    cluster.kill("a")
    cluster.run(50)
    elect(cluster, "b")
    answer = cluster.read("b", "x")
    if not wait(cluster, answer):
        return "x cannot be read any more"
    return "" if answer.value == 2 else f"x = 2 was acknowledged; x reads {answer.value}"


@scenario("Requests that wait at the same time are all answered")
def concurrent_requests_are_answered(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    handles = [cluster.put("a", f"k{n}", n) for n in range(5)]
    wait(cluster, *handles)
    missing = sum(not handle.is_done for handle in handles)
    return f"{missing} of {len(handles)} concurrent writes were never answered" if missing else ""


@scenario("A read sees every write acknowledged before it (Raft 8)")
def a_deposed_leader_serves_no_stale_read(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    assert wait(cluster, cluster.put("a", "x", 1)), "the first write is not answered"
    cluster.run(1_000)  # all learn that it is committed
    cluster.pause("a")
    elect(cluster, "b")
    assert wait(cluster, cluster.put("b", "x", 2)), "the second write is not answered"
    cluster.resume("a")
    answer = cluster.read("a", "x")
    wait(cluster, answer, ms=2_000)
    if answer.is_done and answer.value != 2:
        return f"x = 2 was acknowledged; a read that began later returns {answer.value}"
    return ""


@scenario("A new term brings a new vote (Raft 5.2)")
def a_new_term_brings_a_new_vote(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    cluster.kill("a")
    cluster.run(50)
    cluster.campaign("c")
    cluster.run(ELECTION_MS)
    if cluster.leader() is not None:
        return ""
    return "c asked with an up-to-date log in a new term; b, who had voted before, stayed silent"


@scenario("Entries of older terms are committed along with a new one (Raft 5.4.2)")
def an_entry_of_an_older_term_blocks_nothing(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    cluster.cut("b", "a")
    cluster.cut("a", "c")
    cluster.put("a", "x", 1)
    cluster.run(500)
    cluster.kill("a")
    cluster.heal()
    elect(cluster, "b")
    handle = cluster.put("b", "y", 2)
    if wait(cluster, handle):
        return ""
    return "after an entry of an older term nothing is committed any more"


@scenario("What was acknowledged survives a power cut of all machines (fsync)")
def a_power_cut_takes_nothing(cluster: Cluster) -> str:
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    assert wait(cluster, cluster.put("a", "x", 1)), "the write is not answered"
    cluster.cut_power()
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    answer = cluster.read("a", "x")
    wait(cluster, answer)
    return "" if answer.value == 1 else f"x = 1 was acknowledged; x reads {answer.value}"


@scenario("An entry may hold any bytes, also across restarts")
def any_bytes_can_be_stored(cluster: Cluster) -> str:
    newline = 10
    cluster.start("a", "b", "c")
    elect(cluster, "a")
    assert wait(cluster, cluster.put("a", "x", newline)), "the write is not answered"
    cluster.kill("a", "b", "c")
    try:
        cluster.start("a", "b", "c")
        elect(cluster, "a")
    except Exception as error:
        return f"the log cannot be read back: {type(error).__name__}: {error}"
    answer = cluster.read("a", "x")
    wait(cluster, answer)
    return "" if answer.value == newline else f"x reads {answer.value} after a restart"


assert not [name for name, count in Counter(s.name for s in SCENARIOS).items() if count > 1]
