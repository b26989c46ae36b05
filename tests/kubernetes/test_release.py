"""A release on a real control plane (helm/quorate/README.md says how to run this).

The tests share one release and leave it with three members; the first failure ends the run
(`make test-kubernetes`), because what follows would judge a damaged one.
"""

import time

import pytest

from tests.kubernetes.objects import Pod
from tests.kubernetes.programs import ProgramFailed, until
from tests.kubernetes.release import (
    ADMIN_SECRET,
    CHANGE_S,
    FULL_NAME,
    KEPT_QUEUE,
    MEMBERS,
    NODE_SECRET,
    TOOLBOX,
    TOOLBOX_LABELS,
    Release,
    definitions,
)

pytestmark = pytest.mark.timeout(3600)

ROLE_S = 30.0
TOOLBOX_END_S = 5.0


def test_an_installation_passes_its_own_test(release: Release) -> None:
    release.settled()
    release.test()
    assert release.queues() == {"kept"}


def test_definitions_alone_restart_nobody(release: Release) -> None:
    before, revision = release.settled(), release.stateful_set()["status"]["updateRevision"]
    release.upgrade(definitions=definitions(KEPT_QUEUE, ".\\private$\\later"))
    assert release.queues() == {"kept", "later"}
    assert release.stateful_set()["status"]["updateRevision"] == revision
    after = release.settled()
    assert {pod.uid for pod in after.values()} == {pod.uid for pod in before.values()}


def test_the_toolbox_ends_when_it_is_told_to(release: Release) -> None:
    (pod,) = release.pods(TOOLBOX_LABELS)
    begun = time.monotonic()
    release.programs.kubectl("delete", "pod", pod, "--wait=false")
    until(lambda: pod not in release.pods(TOOLBOX_LABELS), CHANGE_S, f"{pod} is still there")
    assert time.monotonic() - begun < TOOLBOX_END_S
    release.programs.kubectl(
        "rollout", "status", f"deployment/{TOOLBOX}", f"--timeout={CHANGE_S:.0f}s", seconds=CHANGE_S
    )
    assert release.members()


def test_a_second_member_may_not_be_evicted_meanwhile(release: Release) -> None:
    first, second, _ = sorted(release.settled())
    release.until_evictable()
    with release.load():
        release.evict(first)
        with pytest.raises(ProgramFailed, match="disruption budget"):
            release.evict(second)
        release.settled()


def test_the_leaders_worker_can_be_drained(release: Release) -> None:
    before = release.settled()
    release.until_evictable()
    leader = before[release.leader()]
    with release.load():
        with release.drained(leader):
            others = [member for member in release.members().values() if member.name != leader.name]
            assert sum(member.leader for member in others) == 1
        assert release.settled()[leader.name].uid != leader.uid


def test_a_drill_of_the_schedule_passes(release: Release) -> None:
    release.settled()
    assert release.drill() == "Complete"
    release.settled()


def test_a_leader_that_is_cut_off_loses_its_role(release: Release) -> None:
    pods = release.settled()
    leader = pods[release.leader()]
    until(lambda: _leading(release) == {leader.name}, ROLE_S, f"{leader.name} has no role")
    with release.frozen(leader):
        until(
            lambda: _leading(release) and leader.name not in _leading(release),
            ROLE_S,
            f"{leader.name} still has the role of the leader",
        )
    after = release.settled()
    assert after[leader.name].uid == leader.uid
    until(lambda: len(_leading(release)) == 1, ROLE_S, "not one leader has the role")


def _leading(release: Release) -> set[str]:
    return {pod.name for pod in release.pods().values() if pod.role == "leader"}


def test_an_upgrade_loses_nothing(release: Release) -> None:
    before = release.settled()
    with release.load():
        release.upgrade(logLevel="warning")
        after = release.settled()
    assert _are_new(before, after)


def _are_new(before: dict[str, Pod], after: dict[str, Pod]) -> bool:
    return not {pod.uid for pod in before.values()} & {pod.uid for pod in after.values()}


def test_members_that_come_back_vote(release: Release) -> None:
    release.settled()
    last = f"{FULL_NAME}-{MEMBERS}"
    with release.load():
        for count in (4, 5):
            release.scale(count)
            release.settled(count)
        first = release.members()[last].raft_id
        for count in (4, 3, 4):
            release.scale(count)
            release.settled(count)
        assert release.members()[last].raft_id != first


def test_an_upgrade_goes_on_with_a_member_that_came_back(release: Release) -> None:
    """It leaves the scale alone, which belongs to whoever scaled."""
    release.scale(MEMBERS + 1)
    before = release.settled(MEMBERS + 1)
    with release.load():
        release.upgrade(keepScale=True, logLevel="info")
        after = release.settled(MEMBERS + 1)
    assert _are_new(before, after)
    release.scale(MEMBERS)
    release.settled()


def test_what_is_kept_is_found_by_a_new_installation(release: Release) -> None:
    release.settled()
    sent = [f"message {number}" for number in range(5)]
    release.send(sent)
    release.uninstall()
    running = (
        "pods",
        "jobs",
        "cronjobs",
        "services",
        "statefulsets",
        "deployments",
        "poddisruptionbudgets",
    )
    until(lambda: not release.existing(*running), CHANGE_S, "something is left")
    secrets = {NODE_SECRET, ADMIN_SECRET, f"{FULL_NAME}-sealing", f"{FULL_NAME}-identity"}
    assert {f"secret/{name}" for name in secrets} <= release.existing("secrets")
    claims = {f"persistentvolumeclaim/data-{FULL_NAME}-{ordinal}" for ordinal in range(MEMBERS)}
    assert claims <= release.existing("persistentvolumeclaims")
    release.install()
    release.settled()
    assert release.receive(len(sent)) == sent
