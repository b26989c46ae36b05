"""EventRecorder: what a node saw enters the state once, in order, and not too much of it."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from qm.api.gate.events import EventLog
from qm.api.propose import event_recorder
from qm.api.propose.event_recorder import BURST, EventRecorder
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.queries import list_events
from qm.model.values.commands import RaiseApplyVersion, RecordEvents
from qm.model.values.effects import Outcome
from qm.model.values.elements import EventKind
from qm.model.values.limits import EVENTS_PER_COMMAND_MAX, VERSION_OF_EVENTS
from qm.observe.metrics import Metrics
from qm.store.codec import encode_command
from tests.unit.model.world import World


class Cluster:
    """Applies what is proposed; some outcomes are lost on the way back."""

    node = "n1"

    def __init__(self) -> None:
        self.world = World()
        self.lost: list[Exception | None] = []
        self.view = self.world.machine.view
        self.is_refusing = False

    async def propose(self, command: RecordEvents) -> list[Outcome]:
        encode_command(command)
        error = self.lost.pop(0) if self.lost else None
        if isinstance(error, Unavailable):
            raise error
        outcome = Outcome(1) if self.is_refusing else self.world.one(command)
        if error is not None:
            raise error
        return [outcome]

    def recorded(self) -> list[str]:
        found, _ = list_events(self.view, kinds=[EventKind.ALARM, EventKind.MEMBER], limit=1_000)
        return [info.event.text for info in found if info.event.name != "apply_version"]


class Case:
    """A node's events on their way."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.cluster = Cluster()
        self.metrics = Metrics(CollectorRegistry())
        face: Any = self.cluster
        self.recorder = EventRecorder(face, self.metrics, lambda: self.now_s)
        self.log = EventLog(lambda: 5)
        self.log.on_add = self.recorder.take

    def step(self) -> None:
        asyncio.run(self.recorder.step())

    def dropped(self, reason: str) -> float:
        name = "quorate_events_dropped_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason}) or 0.0


@pytest.fixture
def case() -> Case:
    made = Case()
    made.cluster.world.one(RaiseApplyVersion(VERSION_OF_EVENTS))
    return made


def test_an_event_whose_outcome_is_lost_is_recorded_once(case: Case) -> None:
    case.log.add("member", "drain", "one")
    case.cluster.lost = [Unavailable("no leader"), OutcomeUnknown("lost")]
    for _ in range(2):
        with pytest.raises((Unavailable, OutcomeUnknown)):
            case.step()
        case.log.add("alarm", "a", "more")
    case.step()
    case.step()
    assert case.cluster.recorded() == ["one", "more", "more"]


def test_what_the_state_has_from_elsewhere_is_not_proposed(case: Case) -> None:
    case.log.add("leadership", "leader", "x", is_in_history=True)
    case.step()
    assert case.cluster.recorded() == []


def test_many_events_take_several_commands(case: Case) -> None:
    for number in range(EVENTS_PER_COMMAND_MAX + 1):
        case.log.add("alarm", "a", str(number))
    case.step()
    assert case.cluster.recorded() == list(map(str, range(EVENTS_PER_COMMAND_MAX + 1)))


def test_a_flood_of_one_kind_is_cut_and_counted(case: Case) -> None:
    for _ in range(BURST + 5):
        case.log.add("alarm", "a", "flood")
    case.log.add("member", "drain", "heard")
    case.now_s += 2.5
    for _ in range(3):
        case.log.add("alarm", "a", "later")
    case.step()
    said = case.cluster.recorded()
    assert (said.count("flood"), said.count("later"), said.count("heard")) == (BURST, 2, 1)
    assert case.dropped("rate") == 6


def test_what_waits_is_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "WAITING_MAX", 3)
    for number in range(5):
        case.log.add("alarm", "a", str(number))
    case.step()
    assert (case.cluster.recorded(), case.dropped("full")) == (["0", "1", "2"], 2)


def test_refused_events_do_not_stop_later_ones(case: Case) -> None:
    case.log.add("alarm", "a", "odd")
    case.cluster.is_refusing = True
    case.step()
    case.cluster.is_refusing = False
    case.log.add("alarm", "a", "sound")
    case.step()
    assert (case.cluster.recorded(), case.dropped("refused")) == (["sound"], 1)


def test_what_is_seen_below_the_apply_version_waits_and_odd_text_gets_an_encoding() -> None:
    case = Case()
    case.log.add("alarm", "a\ud800", "odd \udfff", details={"\ud800": "\ud800"})
    case.step()
    assert case.cluster.recorded() == []
    case.cluster.world.one(RaiseApplyVersion(VERSION_OF_EVENTS))
    case.step()
    assert case.cluster.recorded() == ["odd ?"]
