"""The simulator's own parts: network, model, and how far the faults may go."""

import shutil
from pathlib import Path

import pytest

from raft.batch import BatchBuilder
from raft.types import Entry, EntryKind, Envelope, Heartbeat, PeerState
from tests.sim.case import Case
from tests.sim.chance import Chance
from tests.sim.checkers import Model, Violation
from tests.sim.clients import Outcome
from tests.sim.knobs import Knobs
from tests.sim.machine import encode_operation, value_of
from tests.sim.mutants import copy_tree, plant
from tests.sim.network import NetworkFaults, splits
from tests.sim.planted import MUTANTS, Mutant


def entry(index: int, *operations: tuple[int, int]) -> Entry:
    builder = BatchBuilder()
    for operation, key in operations:
        builder.add(encode_operation(operation, key, 8))
    return Entry(index, 1, EntryKind.DATA, builder.build())


def test_streams_of_chance_depend_on_seed_and_purpose_alone() -> None:
    draws = {
        (seed, purpose): Chance(seed).stream(purpose).random()
        for seed in range(3)
        for purpose in ("network", "disk n1", "disk n2")
    }
    assert len(set(draws.values())) == len(draws)
    assert draws[1, "network"] == Chance(1).stream("network").random()


def test_values_tell_which_operation_wrote_them() -> None:
    assert value_of(7, 6) == b"\7\0\0\0\7\0"
    assert value_of(7, 8) != value_of(8, 8)
    assert value_of(7, 0) == b""


def test_the_model_remembers_every_version() -> None:
    model = Model()
    model.apply(entry(1, (11, 0), (12, 0)), 1)
    model.apply(entry(2, (13, 1)), 1)
    model.apply(entry(3, (14, 0)), 1)
    assert [model.value(0, index) for index in range(4)] == [
        (0, 0, 0),
        (12, 1, 1),
        (12, 1, 1),
        (14, 3, 0),
    ]
    assert model.results[3] == ((14, 3, 0, 12),)
    assert len({model.digests[index] for index in range(4)}) == 4


def test_an_operation_that_is_committed_twice_is_a_finding() -> None:
    model = Model()
    model.apply(entry(1, (11, 0)), 1)
    with pytest.raises(Violation, match="committed twice"):
        model.apply(entry(2, (11, 0)), 1)


def state_of(case: Case, peer: str) -> PeerState:
    """What n1 learned about its connection."""
    return case.world.checker.shadow("n1.1").told[peer][0]


def test_connections_tell_what_a_dialler_would_see() -> None:
    case = Case().open()
    case.run(20)
    assert state_of(case, "n2.1") is PeerState.CONNECTED
    case.stop("n2")
    case.run(20)
    assert state_of(case, "n2.1") is PeerState.REFUSED
    case.cut_power("n3")
    case.run(20)
    assert state_of(case, "n3.1") is PeerState.CONNECTED, "nobody says that the power is gone"
    case.run(1_000)
    assert state_of(case, "n3.1") is PeerState.LOST
    case.start("n2", "n3")
    case.run(20)
    assert {state_of(case, peer) for peer in ("n2.1", "n3.1")} == {PeerState.CONNECTED}


def frames_between(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Collect (target, term) of the frames that the test itself sends, as they arrive."""
    arrived: list[tuple[str, int]] = []

    def deliver(source: str, target: str, frame: tuple[Envelope, ...]) -> None:
        if frame[0].sender == "test":
            arrived.append((target, frame[0].term))

    monkeypatch.setattr(case.world, "deliver", deliver)
    return arrived


def send(case: Case, source: str, target: str, term: int = 0) -> None:
    frame = (Envelope(1, "test", "nobody", term, Heartbeat(0, 0)),)
    case.world.network.send(source, target, frame)


def test_a_cut_is_one_way_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case().open()
    case.run(20)
    arrived = frames_between(case, monkeypatch)
    case.world.network.cut("n1", "n2", case.world.now_us + 100_000)
    send(case, "n1", "n2")
    send(case, "n2", "n1")
    case.run(110)
    assert arrived == [("n1", 0)]
    send(case, "n1", "n2")
    case.run(10)
    assert arrived == [("n1", 0), ("n2", 0)]


@pytest.mark.parametrize("reorder", [0.0, 1.0])
def test_frames_keep_their_order_unless_the_seed_says_otherwise(
    reorder: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(knobs=Knobs(network=NetworkFaults(delay_us_max=9_000, reorder=reorder))).open()
    case.run(50)
    arrived = frames_between(case, monkeypatch)
    for term in range(30):
        send(case, "n1", "n2", term)
    case.run(50)
    assert sorted(arrived) == [("n2", term) for term in range(30)]
    assert (arrived == sorted(arrived)) == (reorder == 0.0)


def test_a_split_never_cuts_a_machine_from_itself_and_always_cuts() -> None:
    chance = Chance(0).stream("splits")
    for _ in range(200):
        pairs = splits(chance, ["a", "b", "c"], None)
        assert pairs
        assert all(source != target for source, target in pairs)


def test_a_minority_of_disks_may_be_lost_and_only_one_after_the_other() -> None:
    case = Case(voters=5).open()
    faults, hosts = case.world.faults, case.world.hosts
    case.elect("n1")
    case.expect_equal(*hosts)
    assert faults.may_lose(hosts["n1"])
    faults.impaired.add("n2.1")
    assert faults.may_lose(hosts["n1"])
    faults.impaired.add("n3.1")
    assert not faults.may_lose(hosts["n1"])
    faults.impaired.clear()
    case.stop("n5")
    assert not faults.may_lose(hosts["n1"]), "a voter that is down may know another configuration"


def test_clients_know_what_they_cannot_know() -> None:
    case = Case().open()
    case.elect("n1")
    assert case.outcome(case.propose("n2")) is Outcome.REFUSED
    number = case.propose("n1")
    case.stop("n1")
    assert case.outcome(number) is Outcome.UNKNOWN


def test_there_are_a_dozen_planted_bugs_and_more() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


@pytest.fixture(scope="module")
def sound_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("sound")
    copy_tree(tree)
    return tree


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_a_planted_bug_still_fits_the_code(
    mutant: Mutant, sound_tree: Path, tmp_path: Path
) -> None:
    for file in {file for file, _, _ in mutant.patches}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sound_tree / file, tmp_path / file)
    plant(mutant, tmp_path)
