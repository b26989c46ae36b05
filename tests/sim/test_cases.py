"""Cases that a reader can follow, in the words of tests.sim.case. The checkers of the simulator
watch all of them.
"""

import pytest

from raft.core.membership import AddLearner, PromoteLearner, RemoveMember
from raft.replica import Replica
from tests.sim.case import Case
from tests.sim.checkers import Violation
from tests.sim.clients import Outcome
from tests.sim.damage import byte_to_flip
from tests.sim.host import Results
from tests.sim.knobs import Knobs
from tests.sim.network import NetworkFaults

ALL = ("n1", "n2", "n3")


def small_log() -> Knobs:
    return Knobs(log_retain_bytes=256, network=NetworkFaults(delay_us_max=2_000))


def change(case: Case, name: str, what: AddLearner | PromoteLearner | RemoveMember) -> None:
    def give(replica: Replica[Results]) -> None:
        replica.change_members(what)

    case.host(name).command(give)


def test_an_entry_that_only_the_dead_leader_had_is_lost_and_was_never_acknowledged() -> None:
    case = Case().open()
    case.elect("n1")
    case.put("n1")
    case.split(["n1"], ["n2", "n3"])
    lonely = case.propose("n1")
    case.run(20)
    case.stop("n1")
    case.heal()
    case.elect("n2")
    case.put("n2")
    case.start("n1")
    case.expect_equal(*ALL)
    assert case.outcome(lonely) is Outcome.UNKNOWN
    assert lonely not in case.world.checker.model.operations


def test_an_entry_that_a_majority_has_survives_the_leader_that_did_not_answer() -> None:
    case = Case().open()
    case.elect("n1")
    case.cut("n2", "n1")
    case.cut("n3", "n1")
    number = case.propose("n1")
    case.run(20)
    assert case.outcome(number) is Outcome.OPEN
    case.stop("n1")
    case.heal()
    case.elect("n3")
    case.put("n3")
    assert number in case.world.checker.model.operations


def test_a_leader_with_a_slow_disk_commits_by_its_followers_and_applies_by_its_own() -> None:
    case = Case().open()
    case.elect("n1")
    case.every_sync_of("n1", 150)
    number = case.propose("n1")
    case.run(50)
    assert case.host("n1").replica_now.commit_index == 3
    assert case.host("n1").replica_now.applied_index < 3
    assert case.outcome(number) is Outcome.OPEN
    case.expect(number, Outcome.DONE)


def test_one_follower_with_a_slow_disk_holds_up_nobody() -> None:
    case = Case().open()
    case.elect("n1")
    case.every_sync_of("n3", 2_000)
    began_us = case.world.now_us
    case.put("n1", 10)
    assert case.world.now_us - began_us < 500_000


def test_all_lose_power_at_once() -> None:
    for seed in range(5):
        case = Case()
        for host in case.world.hosts.values():
            host.disk.chance.seed(seed)
        case.open()
        case.elect("n1")
        number = case.put("n1", 5)
        case.propose("n1")
        case.cut_power(*ALL)
        case.start(*ALL)
        case.expect_leader(*ALL)
        case.expect_equal(*ALL)
        assert case.world.checker.model.operations[number]


def test_a_killed_leader_is_replaced_before_any_timeout() -> None:
    case = Case().open()
    case.elect("n2")
    case.stop("n2")
    assert case.expect_leader("n1", "n3", within_ms=40)
    assert case.world.knobs.election_ticks > 40


def test_a_leader_without_power_is_replaced_by_timeout() -> None:
    case = Case().open()
    case.elect("n2")
    case.cut_power("n2")
    case.run(40)
    assert case.leader() is None
    case.expect_leader("n1", "n3", within_ms=4 * case.world.knobs.election_ticks)


def test_resets_depose_nobody() -> None:
    case = Case().open()
    case.elect("n1")
    term = case.host("n1").replica_now.term
    for _ in range(20):
        for other in ("n2", "n3"):
            case.world.network.reset(other, "n1")
            case.world.network.reset("n1", other)
        case.run(10)
    case.put("n1")
    assert case.host("n1").replica_now.term == term


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_leader_that_is_cut_off_steps_down_and_another_takes_over(direction: str) -> None:
    case = Case().open()
    case.elect("n1")
    for other in ("n2", "n3"):
        if direction != "out":
            case.cut(other, "n1")
        if direction != "in":
            case.cut("n1", other)
    case.run(8 * case.world.knobs.election_ticks)
    assert not case.host("n1").leads
    leader = case.expect_leader("n2", "n3")
    case.put(leader)
    case.heal()
    case.expect_equal(*ALL)


def test_a_leader_that_stood_still_reads_nothing_stale_when_it_wakes() -> None:
    case = Case().open()
    case.elect("n1")
    case.put("n1")
    case.pause("n1")
    leader = case.expect_leader("n2", "n3")
    case.put(leader)
    case.split(["n1"], ["n2", "n3"])
    case.resume("n1")
    served: list[int] = []
    assert case.host("n1").read(lambda: served.append(1)) is not None
    case.run(1_000)
    assert not served
    case.heal()
    case.run(1_000)
    assert served


def test_a_wiped_disk_comes_back_as_a_learner_under_the_next_incarnation() -> None:
    case = Case().open()
    case.world.administrator.start()
    case.elect("n1")
    case.put("n1", 3)
    host = case.host("n2")
    host.kill()
    host.disk.wipe()
    case.world.faults.lose(host)
    case.start("n2")
    assert not host.is_running
    case.run(2_000)
    assert host.node == "n2.2"
    configuration = case.world.checker.model.configuration
    assert configuration is not None
    assert configuration.voters == ("n1.1", "n2.2", "n3.1")
    assert configuration.retired == ("n2.1",)
    case.expect_equal(*ALL)


def test_a_flipped_bit_is_refused_and_the_machine_rejoins() -> None:
    case = Case().open()
    case.world.administrator.start()
    case.elect("n1")
    case.put("n1", 20)
    host = case.host("n3")
    place = byte_to_flip(host.disk, host.chance)
    assert place is not None
    host.kill()
    case.world.faults.impaired.add("n3.1")
    host.disk.flip_bit(place[1], 100)
    case.start("n3")
    assert not host.is_running
    case.run(2_000)
    assert host.node == "n3.2"
    case.expect_equal(*ALL)


def test_damage_that_nobody_did_is_a_finding() -> None:
    case = Case().open()
    case.elect("n1")
    case.put("n1", 20)
    host = case.host("n3")
    place = byte_to_flip(host.disk, host.chance)
    assert place is not None
    host.kill()
    host.disk.flip_bit(place[1], 100)
    with pytest.raises(Violation, match="refuses an unharmed disk"):
        case.start("n3")


def test_who_lags_too_far_gets_a_snapshot() -> None:
    case = Case(knobs=small_log()).open()
    case.elect("n1")
    case.stop("n3")
    for _ in range(20):
        case.put("n1", 10, length=200)
        case.run(100)
    assert case.host("n1").log_now.first_index() > 3
    case.start("n3")
    case.expect_equal(*ALL)
    assert case.world.network.snapshots_done == 1


def test_a_snapshot_that_breaks_off_is_resumed_or_begun_again() -> None:
    knobs = small_log()
    knobs.snapshot_chunk_bytes = 50
    case = Case(knobs=knobs).open()
    case.elect("n1")
    case.stop("n3")
    for _ in range(20):
        case.put("n1", 10, length=200)
        case.run(100)
    case.start("n3")
    for _ in range(3):
        case.run(20)
        case.world.network.reset("n1", "n3")
    case.stop("n3")
    case.start("n3")
    case.expect_equal(*ALL)


def test_a_full_disk_acknowledges_nothing_and_recovers_when_there_is_room() -> None:
    case = Case().open()
    case.elect("n1")
    for name in ("n2", "n3"):
        case.host(name).disk.fill(0)
    numbers = [case.propose("n1", length=400) for _ in range(60)]
    case.run(1_000)
    assert any(case.outcome(number) is not Outcome.DONE for number in numbers)
    for name in ("n2", "n3"):
        case.host(name).disk.make_room()
        case.host(name).space_returned()
    leader = case.expect_leader(*ALL)
    case.put(leader)
    case.expect_equal(*ALL)


def test_a_failed_sync_ends_the_process() -> None:
    case = Case().open()
    case.elect("n1")
    case.host("n2").disk.fails_sync = True
    case.propose("n1")
    case.run(50)
    assert case.world.faults.crashes == 1
    case.put("n1")
    case.run(2_000)
    case.expect_equal(*ALL)


def test_leadership_moves_on_request() -> None:
    case = Case().open()
    case.elect("n1")
    case.put("n1")
    case.host("n1").command(lambda replica: replica.transfer("n3.1"))
    case.expect_leader("n3", within_ms=50)
    case.put("n3")


def test_a_leader_that_is_removed_commits_its_removal_and_leaves() -> None:
    case = Case().open()
    case.elect("n1")
    case.put("n1")
    change(case, "n1", RemoveMember("n1.1"))
    leader = case.expect_leader("n2", "n3")
    case.put(leader)
    configuration = case.world.checker.model.configuration
    assert configuration is not None
    assert configuration.voters == ("n2.1", "n3.1")


def test_a_group_grows_by_a_learner_that_is_promoted() -> None:
    case = Case(spares=1).open()
    case.elect("n1")
    case.put("n1", 5)
    change(case, "n1", AddLearner("n4.1"))
    case.run(500)
    change(case, "n1", PromoteLearner("n4.1"))
    case.put("n1")
    case.expect_equal(*ALL, "n4")
    case.stop("n1")
    leader = case.expect_leader("n2", "n3", "n4")
    case.stop(next(name for name in ("n2", "n3") if name != leader))
    number = case.propose(leader)
    case.run(500)
    assert case.outcome(number) is not Outcome.DONE, "two of four are no majority"


def test_a_machine_that_was_never_told_of_a_group_campaigns_for_nothing() -> None:
    case = Case(spares=1).open()
    case.run(2_000)
    assert case.host("n4").replica_now.term == 0
