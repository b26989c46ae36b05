"""The history of events: each recorded once, bounded, from the entry alone."""

import pytest

from qm.model.queries import EventInfo, last_event_number, list_events
from qm.model.state import events
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import ControlCall, RecordEvents, Request, SeenEvent
from qm.model.values.elements import EventKind
from qm.model.values.limits import (
    EVENT_DETAIL_MAX_CHARS,
    EVENT_DETAILS_MAX,
    EVENT_REPORTERS_MAX,
    EVENT_TEXT_MAX_CHARS,
    EVENTS_PER_COMMAND_MAX,
    VERSION_OF_EVENTS,
)
from qm.wire.codes import ErrorCode
from tests.unit.model.world import NOW_MS, World


@pytest.fixture(params=[False, True], ids=["caches kept", "caches dropped"])
def world(request: pytest.FixtureRequest) -> World:
    return World(forgets=request.param)


def seen(text: str, kind: int = EventKind.ALARM) -> SeenEvent:
    return SeenEvent(NOW_MS, kind, "name", "", text, {})


def report(
    *said: str, sequence: int = 1, incarnation: int = 7, kind: int = EventKind.ALARM
) -> RecordEvents:
    return RecordEvents("n1", incarnation, sequence, tuple(seen(text, kind) for text in said))


def told(world: World, *kinds: EventKind) -> list[EventInfo]:
    found, has_more = list_events(world.machine.view, kinds=kinds, limit=1_000)
    assert not has_more
    return found


def texts(world: World, *kinds: EventKind) -> list[str]:
    return [info.event.text for info in told(world, *kinds)]


def test_leaders_are_recorded_by_their_first_entry(world: World) -> None:
    world.one(commands.LeaderActivated(2, "n2"))
    world.now_ms += 5
    world.one(commands.LeaderActivated(3, "n3"))
    first, second = told(world, EventKind.LEADERSHIP)
    assert first.event.text == "n2 leads in term 2"
    assert second.event.details == {"epoch": "2", "term": "3"}
    assert (second.event.node, second.event.time_ms) == ("n3", NOW_MS + 5)
    assert (first.event.index, second.event.index) == (world.index - 1, world.index)
    assert first.number < second.number == last_event_number(world.machine.view)


def test_members_are_recorded_when_they_change(world: World) -> None:
    for host in ("a", "a", "b", "", ""):
        world.one(commands.SetMember("n2", host, 1, 2, 3))
    assert [info.event.name for info in told(world)] == ["joined", "moved", "left"]


def test_a_control_call_is_recorded_by_the_entry_that_carries_it_out(world: World) -> None:
    queue_id = world.create("orders")
    call = ControlCall("n1", "alice", "SetQueue", {"name": "orders"})
    asked = Request("", 0, 0, b"i" * 16, call=call)
    label = {"label": encode_attribute("x")}
    for _ in range(2):  # a repeat is no second call
        world.one(commands.SetQueue(asked, queue_id, label, ()))
    stale = Request("", 0, 0, b"j" * 16, call=call)
    world.one(commands.SetQueue(stale, queue_id, label, (), if_version=99))
    done, refused = told(world)
    assert done.event.text == "SetQueue by alice: OK"
    assert (done.event.principal, done.event.details) == (
        "alice",
        {"name": "orders", "code": "OK"},
    )
    assert f"{ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT:#010x}" in refused.event.text


def test_nodes_that_differ_from_most_are_named(world: World) -> None:
    same, other = b"s" * 16, b"o" * 16
    world.one(commands.AuditResult(1, {"n1": same, "n2": same, "n3": same}))
    assert not told(world)
    world.one(commands.AuditResult(2, {"n1": same, "n2": other, "n3": same}))
    assert texts(world) == ["n2: another state than most at audit mark 2"]


def test_a_process_that_is_fenced_is_told_of(world: World) -> None:
    def opens(instance: bytes, address: str) -> None:
        world.one(commands.OpenClient("c", "alice", 60_000, instance, address))

    opens(b"one", "10.0.0.1")
    opens(b"one", "10.0.0.9")
    assert not told(world), "the same process resumes"
    opens(b"two", "10.0.0.2")
    world.one(commands.CloseClient("c"))
    opens(b"three", "10.0.0.3")
    (event,) = told(world, EventKind.SESSION)
    assert (event.event.name, event.event.principal) == ("fenced", "alice")
    assert event.event.details == {
        "client_id": "c",
        "from_address": "10.0.0.1",
        "to_address": "10.0.0.2",
    }


def test_a_state_from_a_backup_says_so(world: World) -> None:
    world.one(commands.StateRestored(0, (), is_outgoing_held=False))
    assert [info.event.name for info in told(world)] == ["state_restored"]


def test_what_a_node_reports_twice_is_recorded_once(world: World) -> None:
    for command in (
        report("a", "b"),
        report("a", "b"),
        report("b", "c", sequence=2),
        report("other process", incarnation=8),
        report("a", "b"),
    ):
        assert world.one(command).status == 0
    assert texts(world) == ["a", "b", "c", "other process"]


def test_processes_that_reported_are_forgotten_in_turn(world: World) -> None:
    for incarnation in range(EVENT_REPORTERS_MAX + 1):
        world.one(report("x", incarnation=incarnation))
    world.one(report("x", incarnation=1))
    assert len(told(world)) == EVENT_REPORTERS_MAX + 1, "the oldest one left was forgotten"
    world.one(report("x", incarnation=0))
    assert len(told(world)) == EVENT_REPORTERS_MAX + 2, "one was remembered beyond the limit"


@pytest.mark.parametrize(
    "wrong",
    [
        report(),
        report(*"x" * (EVENTS_PER_COMMAND_MAX + 1)),
        report("x", sequence=0),
        report("x", sequence=(1 << 64) - 1),
        report("x", kind=0),
        report("x", kind=99),
        RecordEvents("", 1, 1, (seen("x"),)),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(world: World, wrong: RecordEvents) -> None:
    assert world.one(wrong).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert last_event_number(world.machine.view) == 0
    assert world.state.get(Table.META, events.META_REPORTERS) is None


def test_texts_are_cut(world: World) -> None:
    details = {f"{number:03}" * 100: "d" * 5_000 for number in range(100)}
    event = SeenEvent(0, EventKind.MEMBER, "n" * 5_000, "p" * 5_000, "t" * 5_000, details)
    world.one(RecordEvents("n1", 1, 1, (event,)))
    (kept,) = told(world)
    assert len(kept.event.text) == EVENT_TEXT_MAX_CHARS
    assert len(kept.event.details) == EVENT_DETAILS_MAX
    assert {len(value) for value in kept.event.details.values()} == {EVENT_DETAIL_MAX_CHARS}


def test_the_oldest_of_a_kind_go_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENTS_PER_KIND_MAX", 3)
    world.one(commands.LeaderActivated(2, "n2"))
    for number in range(1, 6):
        world.one(report(f"{number}", sequence=number))
        world.one(report(f"m{number}", incarnation=9, sequence=number, kind=EventKind.MEMBER))
    assert texts(world, EventKind.ALARM) == ["3", "4", "5"]
    assert texts(world, EventKind.LEADERSHIP) == ["n2 leads in term 2"]
    assert len(world.state.scan(Table.EVENT, b"", b"\xff" * 9, 100)) == 7


def test_pages_and_filters(world: World) -> None:
    for number in range(1, 8):
        world.now_ms = NOW_MS + number
        kind = EventKind.ALARM if number % 2 else EventKind.MEMBER
        world.one(report(str(number), sequence=number, kind=kind))
    view = world.machine.view

    def listed(**wanted: object) -> tuple[list[str], bool]:
        found, has_more = list_events(view, **wanted)  # type: ignore[arg-type]
        return [info.event.text for info in found], has_more

    assert listed(limit=3) == (["1", "2", "3"], True)
    assert listed(after=3, limit=3) == (["4", "5", "6"], True)
    assert listed(after=6, limit=3) == (["7"], False)
    assert listed(after=(1 << 64) - 1) == ([], False)
    assert listed(limit=2, is_latest=True) == (["6", "7"], True)
    assert listed(limit=2, is_latest=True, kinds=[EventKind.MEMBER]) == (["4", "6"], True)
    assert listed(since_ms=NOW_MS + 6) == (["6", "7"], False)
    assert listed(since_ms=NOW_MS + 6, kinds=[EventKind.ALARM]) == (["7"], False)


def test_nothing_is_recorded_below_its_apply_version() -> None:
    world = World()
    world.version = VERSION_OF_EVENTS - 1
    world.one(commands.LeaderActivated(2, "n2"))
    world.one(commands.SetMember("n2", "a", 1, 2, 3))
    assert world.one(report("x")).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert not world.state.scan(Table.EVENT, b"", b"\xff" * 9, 1)
    assert world.state.get(Table.META, events.META_EVENTS) is None
