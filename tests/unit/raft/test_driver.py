"""A driver's promises to those who propose, read and operate."""

import asyncio
import threading
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from raft.core.core import Busy, NotLeader
from raft.core.membership import AddLearner, BadChange, PromoteLearner, RemoveMember
from raft.driver import Stopping
from raft.proposals import CommitUnknown, ProposalLost
from raft.step import AlarmKind
from raft.types import Role
from tests.unit.raft.driver_group import Group, Member, in_group, is_leading
from tests.unit.raft.transport.worlds import until

PATIENT = {"stuck_ticks": 100_000}
"""A disk that hangs is no reason to resign."""


NO_TIMEOUTS = {"election_ticks": 8_000}


async def propose_all(member: Member, payloads: list[str]) -> list[Any]:
    """Propose from one task each, all at once; return results or errors."""
    calls = (member.driver.propose(payload.encode()) for payload in payloads)
    return await asyncio.gather(*calls, return_exceptions=True)


FORGETFUL: dict[str, Any] = {
    "replica": {"log_retain_bytes": 20_000},
    "core": {"recent_bytes_max": 20_000},
}
"""Options of a group whose logs are short."""


async def fallen_behind(group: Group) -> Member:
    """Return a member that stopped, and needs a snapshot when it starts."""
    leader = await group.leader()
    lagging = (await group.followers())[0]
    await lagging.driver.abort()
    for number in range(40):
        await propose_all(leader, [f"{number}" + "x" * 10_000])
        for member in group.members.values():
            member.machine.durable = member.machine.applied_index()
    await until(lambda: leader.driver.status().first_index > 20)
    return lagging


class TestProposals:
    def test_each_caller_gets_the_result_of_its_payload(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            payloads = [f"message {number}" for number in range(1000)]
            places = await propose_all(leader, payloads)
            assert [leader.machine.payloads[place] for place in places] == payloads
            assert sorted(places) == list(range(1000))
            assert await group.agree() == leader.machine.payloads
            assert leader.machine.entries < 20, "what arrives together shares an entry"

        in_group(tmp_path, scenario)

    def test_the_leader_puts_a_prologue_before_the_payloads_of_each_entry(
        self, tmp_path: Path
    ) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            for number in range(3):
                assert await propose_all(leader, [f"x{number}", f"y{number}"]) == [
                    2 * number,
                    2 * number + 1,
                ]
            assert await group.agree() == ["x0", "y0", "x1", "y1", "x2", "y2"]
            for member in group.members.values():
                assert member.machine.prologues == ["stamp 0", "stamp 1", "stamp 2"]

        stamps = (f"stamp {number}".encode() for number in count())
        in_group(tmp_path, scenario, prologue=lambda _payloads: next(stamps))

    def test_what_is_submitted_is_applied_in_that_order(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            payloads = [f"message {number}" for number in range(200)]
            places = [leader.driver.submit(payload.encode()) for payload in payloads]
            assert [(await outcome.wait())[ordinal] for outcome, ordinal in places] == list(
                range(200)
            )
            assert leader.machine.payloads == payloads
            for follower in await group.followers():
                with pytest.raises(NotLeader):
                    follower.driver.submit(b"x")

        in_group(tmp_path, scenario)

    def test_who_waits_has_the_result_before_the_machine_does_what_can_wait(
        self, tmp_path: Path
    ) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            for number in range(3):
                await leader.driver.propose(b"x")
                assert leader.machine.settled == leader.machine.entries - 1, number
                await until(lambda: leader.machine.settled == leader.machine.entries)

        in_group(tmp_path, scenario)

    def test_a_single_node_serves_alone(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found("a")
            leader = await group.leader()
            assert await propose_all(leader, ["x", "y"]) == [0, 1]

        in_group(tmp_path, scenario)

    def test_a_follower_names_the_leader(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            for follower in await group.followers():
                with pytest.raises(NotLeader) as caught:
                    await follower.driver.propose(b"x")
                assert caught.value.leader == leader.node

        in_group(tmp_path, scenario)

    def test_cancelling_one_caller_disturbs_no_other(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            tasks = [
                asyncio.create_task(leader.driver.propose(f"{number}".encode()))
                for number in range(100)
            ]
            await asyncio.sleep(0)  # all of them wait now, on the same entry
            for task in tasks[::3]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for number, result in enumerate(results):
                if number % 3 == 0:
                    assert isinstance(result, asyncio.CancelledError)
                else:
                    assert isinstance(result, int)
                    assert leader.machine.payloads[result] == f"{number}"

        in_group(tmp_path, scenario)

    def test_a_timeout_of_one_caller_disturbs_no_other(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found("a")
            leader = await group.leader()
            leader.disk.hang()
            patient = asyncio.create_task(leader.driver.propose(b"patient"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(leader.driver.propose(b"impatient"), 0.01)
            assert not patient.done()
            leader.disk.go_on()
            assert await patient == 0
            assert leader.machine.payloads == ["patient", "impatient"], "it may happen yet"

        in_group(tmp_path, scenario, replica=PATIENT)

    def test_more_than_the_limit_is_refused_at_once(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            results = await propose_all(leader, ["x" * 1000] * 100)
            refused = [result for result in results if isinstance(result, Busy)]
            assert len(refused) == 90
            assert len(await group.agree()) == 10
            assert await propose_all(leader, ["again"]) == [10]

        in_group(tmp_path, scenario, driver={"waiting_bytes_max": 10_000})

    def test_a_backlog_that_nothing_commits_is_bounded(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found("a")
            leader = await group.leader()
            leader.disk.hang()
            tasks = []
            for _ in range(200):  # each turn might put one more entry in flight
                tasks.append(asyncio.create_task(leader.driver.propose(bytes(1000))))
                await asyncio.sleep(0)
            await until(tasks[-1].done)
            assert leader.driver.status().last_index < 10
            leader.disk.go_on()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(result) for result in results} == {int, Busy}
            assert 10 <= len(leader.machine.payloads) < 20

        in_group(tmp_path, scenario, replica=PATIENT, driver={"waiting_bytes_max": 10_000})

    def test_a_payload_that_no_entry_holds_fails_alone(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            big = asyncio.create_task(leader.driver.propose(bytes(3 << 20)))
            await asyncio.sleep(0)
            others = await propose_all(leader, ["x", "y"])
            with pytest.raises(ValueError, match="entry_bytes_max"):
                await big
            assert others == [0, 1]

        in_group(tmp_path, scenario, core={"entry_bytes_max": 2 << 20})

    def test_a_payload_above_the_soft_limit_travels_alone(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            results = await propose_all(leader, ["small", "x" * (5 << 20), "small too"])
            assert results == [0, 1, 2]
            assert leader.machine.entries == 3
            await group.agree()

        in_group(tmp_path, scenario)


class TestLeaderChanges:
    def test_what_a_lost_leader_proposed_is_unknown_or_lost(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            others = [member.node for member in await group.followers()]
            group.isolate(old.node)
            stuck = asyncio.create_task(propose_all(old, ["stuck"]))
            new = await group.leader(among=others)
            assert await propose_all(new, ["new"]) == [0]
            (outcome,) = await stuck
            assert isinstance(outcome, CommitUnknown)
            await until(lambda: not is_leading(old))
            group.rejoin(old.node)
            assert await group.agree() == ["new"]

        in_group(tmp_path, scenario, driver={"outcome_wait_ms": 50})

    def test_who_waits_long_enough_learns_that_it_was_lost(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            others = [member.node for member in await group.followers()]
            group.isolate(old.node)
            stuck = asyncio.create_task(propose_all(old, ["stuck"]))
            new = await group.leader(among=others)
            assert await propose_all(new, ["new"]) == [0]
            group.rejoin(old.node)
            (outcome,) = await stuck
            assert isinstance(outcome, ProposalLost)
            assert await group.agree() == ["new"]

        in_group(tmp_path, scenario)

    def test_a_dead_leader_is_replaced_on_evidence(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            assert old.node == "a.1"
            others = await group.followers()
            await propose_all(old, ["before"])
            await old.driver.abort()
            new = await group.leader(among=[member.node for member in others])
            assert await propose_all(new, ["after"]) == [1]
            campaigns = [member.driver.status().counters.early_campaigns for member in others]
            assert sum(campaigns) > 0
            await old.start()
            assert await group.agree() == ["before", "after"]

        # Without evidence no node would campaign before the test's time is over.
        in_group(tmp_path, scenario, eager="a.1", core=NO_TIMEOUTS)

    def test_transfer(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            new = (await group.followers())[0]
            await old.driver.transfer(new.node)
            assert old.driver.role is not Role.LEADER
            assert await group.leader() is new
            with pytest.raises(BadChange):
                await new.driver.transfer("stranger.1")
            with pytest.raises(NotLeader):
                await old.driver.transfer(new.node)

        in_group(tmp_path, scenario)

    def test_stop_finishes_and_hands_over(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            others = await group.followers()
            proposed = asyncio.create_task(propose_all(old, ["one", "two"]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await old.driver.stop()
            assert await proposed == [0, 1]
            with pytest.raises(Stopping):
                await old.driver.propose(b"late")
            with pytest.raises(Stopping):
                await old.driver.read()
            new = await group.leader(among=[member.node for member in others])
            assert await propose_all(new, ["three"]) == [2]
            assert new.driver.status().counters.early_campaigns == 0, "it was asked to"

        in_group(tmp_path, scenario, eager="a.1", core=NO_TIMEOUTS)

    def test_stop_votes_for_the_heir(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            heir, slow = await group.followers()
            slow.disk.hang()
            assert await propose_all(old, ["one"]) == [0]
            await old.driver.stop()
            assert is_leading(heir), "nobody else could have voted"

        in_group(tmp_path, scenario, eager="a.1", core=NO_TIMEOUTS)


class TestReads:
    def test_a_read_sees_what_was_answered_before_it(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            for number in range(50):
                await leader.driver.propose(f"{number}".encode())
                for member in group.members.values():
                    index = await member.driver.read()
                    assert index == member.driver.applied_index
                    assert len(member.machine.payloads) == number + 1

        in_group(tmp_path, scenario)

    def test_reads_of_one_moment_share_one(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            await leader.driver.propose(b"x")
            reads = [leader.driver.read() for _ in range(5000)]
            assert len(set(await asyncio.gather(*reads))) == 1

        in_group(tmp_path, scenario, core={"reads_pending_max": 1})

    def test_a_read_waits_for_a_leader(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            follower = (await group.followers())[0]
            await old.driver.propose(b"x")
            group.isolate(old.node)
            await follower.driver.read()
            assert follower.machine.payloads == ["x"]
            assert not is_leading(old) or follower.driver.leader != old.node

        in_group(tmp_path, scenario)


class TestMembers:
    def test_a_node_joins_and_leaves(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            await propose_all(leader, ["x"])
            joining = group.add("d.1")
            joining.create([])
            await joining.start()
            await leader.driver.change_members(AddLearner("d.1"))
            await until(lambda: joining.machine.payloads == ["x"])

            def places() -> set[int]:
                status = leader.driver.status()
                return {status.last_index} | {follower.match for follower in status.followers}

            await until(lambda: len(places()) == 1, places)
            await leader.driver.change_members(PromoteLearner("d.1"))
            assert leader.configurations[-1].voters == ("a.1", "b.1", "c.1", "d.1")
            gone = (await group.followers())[0]
            await leader.driver.change_members(RemoveMember(gone.node))
            assert gone.node not in leader.configurations[-1].voters
            await until(lambda: [a.kind for a in gone.alarms] in ([AlarmKind.RETIRED], []))
            with pytest.raises(BadChange):
                await leader.driver.change_members(AddLearner(gone.node))

        in_group(tmp_path, scenario)

    @pytest.mark.parametrize("is_dear", [False, True])
    def test_who_catches_up_leaves_the_loop_to_others(
        self, tmp_path: Path, is_dear: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a number of entries, or one by one where that takes longer than it may."""
        if is_dear:
            monkeypatch.setattr("raft.pace.APPLY_SPAN_S", 0.0)
        batch = 64 if is_dear else 3

        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            behind = (await group.followers())[0]
            await behind.driver.abort()
            for number in range(40):
                await propose_all(leader, [f"{number}"])
            before = behind.machine.entries
            await behind.start()
            applied = [before]
            while applied[-1] < before + 40:
                await asyncio.sleep(0)
                applied.append(behind.machine.entries)
            steps = [later - earlier for earlier, later in pairwise(applied)]
            steps.remove(max(steps))  # the pace is not known before
            most = 2 if is_dear else 6
            assert max(steps) <= most, "a round of the loop has two turns at most, a turn one batch"

        in_group(tmp_path, scenario, replica={"apply_batch_entries": batch})

    def test_an_end_without_finishing_waits_for_an_install(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            lagging = await fallen_behind(group)
            has_begun, may_end = threading.Event(), threading.Event()
            restore = lagging.machine.restore

            def slow(data: bytes) -> None:
                has_begun.set()
                assert may_end.wait(10)
                restore(data)

            lagging.machine.restore = slow  # type: ignore[method-assign]
            await lagging.start()
            await until(has_begun.is_set)
            ending = asyncio.create_task(lagging.driver.abort())
            await asyncio.sleep(0.3)
            assert not ending.done(), "a thread still writes the state"
            may_end.set()
            await ending
            assert lagging.machine.applied_index() > 20

        in_group(tmp_path, scenario, **FORGETFUL)

    def test_a_follower_far_behind_gets_a_snapshot(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            lagging = await fallen_behind(group)
            await lagging.start()
            assert len(await group.agree()) == 40
            assert leader.driver.status().counters.snapshots_offered > 0
            await propose_all(leader, ["more"])
            assert (await group.agree())[-1] == "more"

        in_group(tmp_path, scenario, **FORGETFUL)


class TestDisks:
    def test_a_full_disk_says_so_and_recovers(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found("a")
            leader = await group.leader()
            await leader.driver.propose(b"before")
            leader.full[0] = True
            proposed = asyncio.create_task(leader.driver.propose(b"meanwhile"))
            await until(lambda: leader.alarms)
            assert leader.alarms[0].kind is AlarmKind.DISK_FULL
            assert not proposed.done()
            assert leader.machine.payloads == ["before"]
            leader.full[0] = False
            assert await proposed == 1
            assert AlarmKind.DISK_ROOM in [alarm.kind for alarm in leader.alarms]
            assert not leader.deaths

        in_group(tmp_path, scenario)

    def test_a_full_leader_hands_over(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            old = await group.leader()
            others = [member.node for member in await group.followers()]
            old.full[0] = True
            stuck = asyncio.create_task(propose_all(old, ["x"]))
            new = await group.leader(among=others)
            assert new is not old
            assert await propose_all(new, ["y"]) != []
            old.full[0] = False
            await stuck
            await group.agree()

        in_group(tmp_path, scenario)

    def test_a_failed_sync_ends_the_process(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            await leader.driver.propose(b"before")
            leader.disk.fails = True
            proposed = asyncio.create_task(leader.driver.propose(b"after"))
            await until(lambda: leader.deaths)
            assert "made error" in leader.deaths[0]
            assert not proposed.done()
            assert leader.machine.payloads == ["before"]
            with pytest.raises(Stopping):
                await leader.driver.propose(b"late")
            proposed.cancel()

        in_group(tmp_path, scenario)

    def test_a_broken_machine_ends_the_process(self, tmp_path: Path) -> None:
        async def scenario(group: Group) -> None:
            await group.found()
            leader = await group.leader()
            leader.machine.broken = True
            proposed = asyncio.create_task(leader.driver.propose(b"x"))
            await until(lambda: leader.deaths)
            assert "machine is broken" in leader.deaths[0]
            assert not proposed.done()
            proposed.cancel()

        in_group(tmp_path, scenario)
