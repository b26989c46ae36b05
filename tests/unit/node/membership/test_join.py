"""Joining a cluster whose nodes are busy: calls end without an answer, and are repeated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import msgspec
import pytest

from qm.cluster.membership import ChangeKind
from qm.model.values.commands import RaiseApplyVersion
from qm.model.values.effects import Outcome
from qm.node.config.schema import MemberSection, NodeConfig, TlsSection
from qm.node.membership import automatic_entry, join
from qm.node.membership.automatic_entry import Entry
from qm.node.membership.birth import provision
from qm.node.membership.join import JoinRefused, Steps
from qm.node.relay.channels import Channels, Unreachable
from qm.node.relay.outcome_codec import encode_outcome
from qm.pb import relay_pb2
from qm.store.codec import encode_command, inspect
from qm.wire.codes import MQ_OK

CLUSTER = b"c" * 16
COMMIT = 7


def lost(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details, "")


STREAM_REMOVED = lost(grpc.StatusCode.UNKNOWN, "Stream removed, Deadline Exceeded")


class Cluster:
    """n1 leads; n5 is to join it. Calls fail with what was planned for them, or have an effect."""

    def __init__(self) -> None:
        self.voters = ["n1.1"]
        self.learners: list[str] = []
        self.adopted = ""
        self.failures: dict[str, list[Exception]] = {}
        """By method, the next first."""
        self.lost_answers = 0
        """Of Lead calls that are done all the same."""
        self.refused: list[str] = []
        self.membership_index = COMMIT
        self.lost_promotions = 0
        """Promotions that go with their leader: the next one has no such entry."""
        self.looks_until_next_leader = 0
        self.command_versions = {"n1": 9}
        """What builds know; a node that is not named does not answer."""
        self.proposed: list[bytes] = []
        self.looks_at_own_log = 0
        """At n5, whose log alone has the entry that makes it a voter, until it loses that."""

    def look(self) -> None:
        """Somebody looks at n1."""
        if self.looks_until_next_leader:
            self.looks_until_next_leader -= 1
            if not self.looks_until_next_leader:
                self.learners.append(self.voters.pop())
                self.membership_index = COMMIT

    async def stub(self, name: str) -> "Stub":
        self.fail(f"stub {name}")
        return Stub(self, name)

    def fail(self, what: str) -> None:
        if self.failures.get(what):
            raise self.failures[what].pop(0)


class Stub:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def Inspect(self, _: Any, timeout: float) -> relay_pb2.InspectReply:
        cluster = self._cluster
        cluster.fail(f"Inspect {self._name}")
        is_new = self._name == "n5"
        if not is_new:
            cluster.look()
        elif cluster.looks_at_own_log:
            cluster.looks_at_own_log -= 1
            return relay_pb2.InspectReply(
                node="n5",
                raft_id="n5.1",
                cluster=CLUSTER,
                commit=COMMIT,
                applied=COMMIT,
                membership_index=COMMIT + 1,
                voters=["n1.1", "n5.1"],
                is_provisioned=True,
            )
        return relay_pb2.InspectReply(
            node=self._name,
            raft_id=cluster.adopted if is_new else "n1.1",
            cluster=CLUSTER if cluster.adopted or not is_new else b"",
            leader="n1.1",
            role="learner" if is_new else "leader",
            term=1,
            commit=COMMIT,
            applied=COMMIT,
            membership_index=cluster.membership_index,
            is_provisioned=True,
            command_version=cluster.command_versions.get(self._name, 9),
            apply_version=6,
            voters=cluster.voters,
            learners=cluster.learners,
        )

    async def Propose(
        self, request: relay_pb2.ProposeRequest, timeout: float
    ) -> relay_pb2.ProposeReply:
        self._cluster.proposed += request.payloads
        done = encode_outcome(Outcome(MQ_OK))
        return relay_pb2.ProposeReply(outcomes=[done] * len(request.payloads))

    async def Adopt(self, request: relay_pb2.AdoptRequest, timeout: float) -> None:
        self._cluster.fail("Adopt")
        self._cluster.adopted = request.raft_id

    async def Lead(self, request: relay_pb2.LeadRequest, timeout: float) -> None:
        cluster, change = self._cluster, request.change_members
        cluster.fail("Lead")
        node = f"{change.node}.1"
        try:
            if change.kind == ChangeKind.ADD.value:
                assert node not in cluster.learners
                cluster.learners.append(node)
            else:
                cluster.learners.remove(node)
                cluster.voters.append(node)
                if cluster.lost_promotions:
                    cluster.lost_promotions -= 1
                    cluster.membership_index = COMMIT + 1
                    cluster.looks_until_next_leader = 3
                    raise STREAM_REMOVED
        except (AssertionError, ValueError):
            cluster.refused.append(change.kind)
            raise lost(grpc.StatusCode.INVALID_ARGUMENT, "done already") from None
        if cluster.lost_answers:
            cluster.lost_answers -= 1
            raise STREAM_REMOVED


FOUNDERS = tuple(MemberSection(name=f"n{k}", host=f"127.0.0.{k}") for k in (1, 2, 3))


@pytest.mark.parametrize(
    ("known", "raised"),
    [
        ({"n1": 9, "n2": 8, "n3": 9}, [8]),
        ({"n1": 9, "n2": 6, "n3": 9}, []),
        ({"n1": 9, "n2": 9}, []),
    ],
)
def test_a_queue_manager_is_born_at_the_version_that_all_founders_know(
    known: dict[str, int], raised: list[int]
) -> None:
    cluster = Cluster()
    cluster.command_versions = known
    silent = {member.name for member in FOUNDERS} - known.keys()
    cluster.failures = {f"Inspect {name}": [STREAM_REMOVED] * 9 for name in silent}
    config = msgspec.structs.replace(CONFIG, members=FOUNDERS)
    steps = Steps(config, cast("Channels", cluster), lambda text: None)
    asyncio.run(steps.provision(provision("QUORATE", "quorate.example", (), b"k" * 32)))
    raising = [encode_command(RaiseApplyVersion(version)) for version in raised]
    assert cluster.proposed[:-2] == raising
    assert [inspect(payload).op for payload in cluster.proposed[-2:]] == [
        "provision",
        "set_queue_manager",
    ]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "POLL_S", 0.001)
    monkeypatch.setattr(automatic_entry, "ASK_EVERY_S", 0.001)


CONFIG = NodeConfig(
    name="n5",
    host="127.0.0.5",
    data=Path("unused"),
    tls=TlsSection(authority=Path("a"), certificate=Path("b"), key=Path("c")),
    members=(MemberSection(name="n1", host="127.0.0.1"),),
)


def steps_of(cluster: Cluster) -> Steps:
    return Steps(CONFIG, cast("Channels", cluster), lambda text: None)


def joined(cluster: Cluster) -> str:
    return asyncio.run(steps_of(cluster).join(b""))


@pytest.mark.parametrize("method", ["Adopt", "Inspect n5", "Inspect n1", "Lead"])
@pytest.mark.parametrize(
    "error",
    [
        STREAM_REMOVED,
        lost(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
        lost(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
    ],
    ids=lambda error: str(error.code().name),
)
def test_a_call_that_ends_without_an_answer_is_repeated(method: str, error: Exception) -> None:
    cluster = Cluster()
    cluster.failures[method] = [error]
    assert joined(cluster) == "n5.1"
    assert cluster.voters == ["n1.1", "n5.1"]


def test_a_leader_that_goes_while_it_is_asked_is_looked_for_again() -> None:
    cluster = Cluster()
    stub = cluster.stub

    async def only_once(name: str) -> Stub:
        if name == "n1" and cluster.adopted and not cluster.learners:
            cluster.fail("gone")
        return await stub(name)

    cluster.stub = only_once  # type: ignore[method-assign]
    cluster.failures["gone"] = [Unreachable("n1: no connection")] * 3
    assert joined(cluster) == "n5.1"


def test_a_change_whose_answer_was_lost_counts_as_done() -> None:
    cluster = Cluster()
    cluster.lost_answers = 2
    assert joined(cluster) == "n5.1"
    assert cluster.voters == ["n1.1", "n5.1"]


def test_a_refusal_is_reported() -> None:
    cluster = Cluster()
    cluster.failures["Lead"] = [lost(grpc.StatusCode.INVALID_ARGUMENT, "five are enough")]
    with pytest.raises(JoinRefused, match="n1: five are enough"):
        joined(cluster)


def test_a_promotion_that_goes_with_its_leader_is_asked_for_again() -> None:
    cluster = Cluster()
    cluster.lost_promotions = 1
    assert joined(cluster) == "n5.1"
    assert cluster.voters == ["n1.1", "n5.1"]
    assert cluster.membership_index == COMMIT, "it is a voter for good"


def test_a_node_whose_log_alone_makes_it_a_voter_is_not_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by seed 41552 of the simulator: after a power cut it stayed a learner for ever."""
    cluster = Cluster()
    cluster.adopted, cluster.learners, cluster.looks_at_own_log = "n5.1", ["n5.1"], 3

    @contextlib.asynccontextmanager
    async def open_steps(*_: object) -> AsyncIterator[Steps]:
        yield steps_of(cluster)

    monkeypatch.setattr(automatic_entry, "open_steps", open_steps)
    entry = Entry(CONFIG, lambda: b"")

    async def run() -> None:
        async with asyncio.timeout(20):
            await entry.run()

    asyncio.run(run())
    assert cluster.voters == ["n1.1", "n5.1"]
    assert not cluster.learners
