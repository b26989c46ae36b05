from __future__ import annotations

import json
from pathlib import Path

import pytest

from qm.load.checker import judge
from qm.load.history import EventKind, HistoryEvent, HistoryWriter, read_history
from qm.load.timeline import latency
from qm.load.verdict import Verdict, explain_p99, write_verdict

MS = 1_000_000


class Story:
    """Histories written by hand; every event is a millisecond after the one before."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        self.now_ms = 0
        self._numbers: dict[tuple[str, str], int] = {}

    def add(self, kind: EventKind, client: str, **fields: object) -> None:
        self.now_ms += 1
        self.events.append(HistoryEvent(self.now_ms * MS, client, kind, **fields))  # type: ignore[arg-type]

    def sent(self, *names: str, client: str = "s", queue: str = "q", tx: str = "") -> None:
        for name in names:
            number = self._numbers[client, queue] = self._numbers.get((client, queue), 0) + 1
            self.add(
                EventKind.SENT,
                client,
                queue=queue,
                message=name,
                delivery="transactional",
                number=number,
                transaction=tx,
            )

    def acked(self, *names: str, client: str = "s") -> None:
        for name in names:
            self.add(EventKind.ACKNOWLEDGED, client, message=name)

    def received(self, *names: str, client: str = "r", tx: str = "", place: int = 0) -> None:
        for at, name in enumerate(names):
            self.add(
                EventKind.RECEIVED,
                client,
                message=name,
                transaction=tx,
                lookup_identifier=place + at if place else 0,
            )

    def ended(self, kind: EventKind, tx: str) -> None:
        self.add(kind, "r", transaction=tx)

    def verdict(self) -> Verdict:
        return judge(self.events)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_run_in_which_everything_arrives_once_holds(story: Story) -> None:
    story.sent("a", "b", "c")
    story.acked("a", "b", "c")
    story.received("a", "b", place=10)
    story.add(EventKind.REMAINING, "r", message="c", lookup_identifier=12)
    verdict = story.verdict()
    assert verdict.holds
    assert (verdict.sent, verdict.acknowledged, verdict.received, verdict.remaining) == (3, 3, 2, 1)


def test_an_acknowledged_message_that_nobody_has_is_lost(story: Story) -> None:
    story.sent("a", "b")
    story.acked("a", "b")
    story.received("b")
    verdict = story.verdict()
    assert not verdict.holds
    assert verdict.lost.examples == ("a",)


def test_a_message_without_acknowledgement_may_vanish(story: Story) -> None:
    story.sent("a", "b")
    story.acked("a")
    story.received("a")
    assert story.verdict().holds


def test_a_message_received_twice_is_duplicated(story: Story) -> None:
    story.sent("a")
    story.received("a")
    story.received("a", client="another")
    verdict = story.verdict()
    assert not verdict.holds
    assert verdict.duplicated.examples == ("a",)


def test_a_message_received_and_still_there_is_duplicated(story: Story) -> None:
    story.sent("a")
    story.received("a")
    story.add(EventKind.REMAINING, "r", message="a")
    assert story.verdict().duplicated.count == 1


def test_a_message_that_nobody_sent_is_invented(story: Story) -> None:
    story.received("a")
    verdict = story.verdict()
    assert not verdict.holds
    assert verdict.invented.examples == ("a",)


def test_a_returned_message_is_received_again_by_anybody(story: Story) -> None:
    story.sent("a")
    story.acked("a")
    story.received("a")
    story.add(EventKind.RETURNED, "r", message="a")
    story.received("a", client="another")
    assert story.verdict().holds


def test_a_returned_message_that_nobody_has_is_lost(story: Story) -> None:
    story.sent("a")
    story.acked("a")
    story.received("a")
    story.add(EventKind.RETURNED, "r", message="a")
    assert story.verdict().lost.count == 1


def test_a_read_counts_when_its_transaction_commits(story: Story) -> None:
    story.sent("a")
    story.acked("a")
    story.received("a", tx="t1")
    story.ended(EventKind.ABORTED, "t1")
    assert story.verdict().lost.count == 1
    story.received("a", tx="t2")
    story.ended(EventKind.COMMITTED, "t2")
    verdict = story.verdict()
    assert verdict.holds
    assert verdict.received == 1


def test_a_read_of_an_unknown_transaction_is_neither_lost_nor_one_too_many(story: Story) -> None:
    story.sent("a", "b")
    story.acked("a", "b")
    story.received("a", "b", tx="t1")
    story.ended(EventKind.UNKNOWN, "t1")
    story.received("a")
    verdict = story.verdict()
    assert verdict.holds
    assert verdict.unknown == 1


def test_a_stream_that_lies_in_another_order_is_out_of_order(story: Story) -> None:
    story.sent("a", "b", "c")
    story.received("a", place=1)
    story.received("b", client="r2", place=3)
    story.received("c", client="r3", place=2)
    verdict = story.verdict()
    assert not verdict.holds
    assert verdict.out_of_order.examples == ("c",)


def test_a_reader_that_gets_a_stream_in_another_order_is_out_of_order(story: Story) -> None:
    story.sent("a", "b", "c")
    story.received("b", "a", "c")
    assert story.verdict().out_of_order.examples == ("a",)


def test_streams_of_two_senders_have_no_order_among_them(story: Story) -> None:
    story.sent("a", "b")
    story.sent("x", "y", client="s2")
    story.received("x", "a", "y", "b")
    assert story.verdict().holds


def test_a_message_that_came_back_may_be_late(story: Story) -> None:
    story.sent("a", "b")
    story.received("a", client="other", tx="t")
    story.ended(EventKind.ABORTED, "t")
    story.received("b", "a")
    assert story.verdict().holds


@pytest.mark.parametrize(
    ("outcome", "received", "is_torn"),
    [
        (EventKind.COMMITTED, ("a", "b"), False),
        (EventKind.COMMITTED, ("a",), True),
        (EventKind.ABORTED, (), False),
        (EventKind.ABORTED, ("b",), True),
        (EventKind.UNKNOWN, ("a", "b"), False),
        (EventKind.UNKNOWN, (), False),
        (EventKind.UNKNOWN, ("a",), True),
    ],
)
def test_a_sending_transaction_is_all_or_nothing(
    story: Story, outcome: EventKind, received: tuple[str, ...], is_torn: bool
) -> None:
    story.sent("a", "b", tx="t")
    story.ended(outcome, "t")
    story.received(*received)
    verdict = story.verdict()
    assert verdict.torn.count == is_torn
    assert verdict.holds is not is_torn


def test_the_longest_gap_counts_only_while_something_is_outstanding(story: Story) -> None:
    story.sent("a")
    story.now_ms = 9
    story.add(EventKind.ADVANCED, "s", number=0)  # 9 ms after "a"
    story.now_ms = 5_000  # nothing is outstanding
    story.sent("b", "c")
    story.now_ms = 5_040
    story.add(EventKind.ADVANCED, "s", number=1)  # 40 ms after "b"
    story.now_ms = 5_140
    story.add(EventKind.ADVANCED, "s", number=0)  # 100 ms after the advance before
    assert story.verdict().longest_gap_ms == 100.0


def test_a_gap_that_never_ends_lasts_to_the_end_of_the_history(story: Story) -> None:
    story.sent("a")
    story.add(EventKind.ADVANCED, "s", number=1)
    story.now_ms = 701
    story.received("a")
    assert story.verdict().longest_gap_ms == 700.0


def test_a_fault_has_the_gap_that_follows_it(story: Story) -> None:
    story.sent("a", "b", "c")
    story.add(EventKind.ADVANCED, "s", number=2)  # at 4
    story.add(EventKind.FAULT, "runner", detail="SIGKILL of the leader")  # at 5
    story.now_ms = 253
    story.add(EventKind.ADVANCED, "s", number=1)
    (fault,) = story.verdict().faults
    assert (fault.detail, fault.gap_ms) == ("SIGKILL of the leader", 250.0)


def test_seconds_and_latencies_are_those_of_the_clients(story: Story) -> None:
    story.sent("a", "b")
    story.acked("a", "b")
    story.now_ms = 1_500
    story.received("a", "b")
    verdict = story.verdict()
    assert [(s.sent, s.acknowledged, s.received) for s in verdict.seconds] == [(2, 2, 0), (0, 0, 2)]
    assert [s.acknowledgement_p99_ms for s in verdict.seconds] == [2.0, None]
    assert verdict.acknowledgement.max_ms == 2.0
    assert verdict.delivery.p50_ms == 1500.0


def test_what_the_runner_healed_and_saw_is_marked(story: Story) -> None:
    story.add(EventKind.FAULT, "runner", detail="SIGKILL of n1")
    story.now_ms = 300
    story.add(EventKind.ELECTED, "runner", detail="n2")
    story.now_ms = 900
    story.add(EventKind.HEALED, "runner", detail="every node serves")
    first, second = story.verdict().marks
    assert (first.kind, first.detail, first.at_ms) == ("elected", "n2", 300)
    assert (second.kind, second.at_ms) == ("healed", 900)


def test_an_empty_history_holds() -> None:
    assert judge([]).holds


def test_a_verdict_survives_its_files(story: Story, tmp_path: Path) -> None:
    story.sent("a")
    story.acked("a")
    writer = HistoryWriter(tmp_path / "history.jsonl")
    for event in story.events:
        writer.write(event)
    writer.close()
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b'{"time_ns": 99, "client"')  # its client was killed while it wrote
    verdict = judge(read_history(tmp_path / "history.jsonl"))
    write_verdict(verdict, tmp_path / "deep" / "verdict.json")
    written = json.loads((tmp_path / "deep" / "verdict.json").read_text(encoding="utf-8"))
    assert written["holds"] is False
    assert written["lost"] == {"count": 1, "examples": ["a"]}


class Watched(Story):
    """A queue from which nothing is received; message n is at place n."""

    def mark(self, *names: str) -> None:
        for name in names:
            self.add(EventKind.SENT, "marker", queue="w", message=name)
            self.add(EventKind.ACKNOWLEDGED, "marker", queue="w", message=name)

    def look(self, began_ms: int, client: str, *, place: int) -> None:
        name = f"m{place}" if place else ""
        self.add(
            EventKind.PEEKED,
            client,
            queue="w",
            message=name,
            lookup_identifier=place,
            began_ns=began_ms * MS,
        )

    def count(self, began_ms: int, client: str, number: int) -> None:
        began_ns = began_ms * MS
        self.add(EventKind.COUNTED, client, queue="w", number=number, began_ns=began_ns)

    def end(self, *names: str) -> Verdict:
        for place, name in enumerate(names, 1):
            self.add(
                EventKind.REMAINING, "auditor", queue="w", message=name, lookup_identifier=place
            )
        return self.verdict()


def test_looks_that_show_what_was_acknowledged_are_not_stale() -> None:
    story = Watched()
    story.look(0, "watcher", place=0)
    story.mark("m1", "m2")
    story.look(story.now_ms, "watcher", place=2)
    story.count(story.now_ms, "watcher", 2)
    verdict = story.end("m1", "m2")
    assert (verdict.holds, verdict.stale.count, verdict.looks) == (True, 0, 3)


def test_a_look_that_begins_after_an_acknowledgement_and_does_not_show_it_is_stale() -> None:
    story = Watched()
    story.mark("m1", "m2")
    began_ms = story.now_ms + 1
    story.add(EventKind.FAULT, "runner", detail="time passes")
    story.look(began_ms, "watcher", place=1)
    story.count(began_ms, "watcher", 0)
    verdict = story.end("m1", "m2")
    assert not verdict.holds
    assert set(verdict.stale.examples) == {
        "watcher saw m1 last after m2 was acknowledged",
        "watcher counted 0 after m2 was acknowledged",
    }


def test_a_look_may_miss_what_was_acknowledged_while_it_was_under_way() -> None:
    story = Watched()
    began_ms = story.now_ms
    story.mark("m1")
    story.look(began_ms, "watcher", place=0)
    story.count(began_ms, "watcher", 0)
    assert story.end("m1").holds


def test_a_look_shows_what_an_earlier_one_showed_acknowledged_or_not() -> None:
    story = Watched()
    story.add(EventKind.SENT, "marker", queue="w", message="m1")
    story.look(story.now_ms, "watcher-1", place=1)
    story.count(story.now_ms, "watcher-1", 1)
    began_ms = story.now_ms + 1
    story.add(EventKind.FAULT, "runner", detail="time passes")
    story.look(began_ms, "watcher-2", place=0)
    story.count(began_ms, "watcher-2", 0)
    verdict = story.end("m1")
    assert set(verdict.stale.examples) == {
        "watcher-2 saw nothing last after watcher-1 saw m1",
        "watcher-2 counted 0 after watcher-1 counted 1",
    }


def test_a_histogram_says_how_many_took_how_long() -> None:
    found = latency([90_000, 100_000, 150_000, 4_000_000, 30_000_000])
    assert found.histogram == (
        (0.1, 2), (0.2, 1), (0.5, 0), (1.0, 0), (2.0, 0), (5.0, 1), (10.0, 0), (20.0, 0), (50.0, 1),
    )  # fmt: skip
    assert latency([700_000]).histogram == ((1.0, 1),)
    assert latency([]).histogram == ()


def paced(story: Story, *waits_ms: int, fault_at: int | None = None) -> Verdict:
    """Send a message each second, acknowledged after so many milliseconds."""
    for second, wait_ms in enumerate(waits_ms):
        story.now_ms = second * 1_000
        if second == fault_at:
            story.add(EventKind.FAULT, "runner", detail="SIGKILL of n1, the leader")
        story.sent(f"m{second}")
        story.now_ms += wait_ms - 1
        story.acked(f"m{second}")
    return story.verdict()


def test_the_p99_is_explained_by_the_fault_in_its_second(story: Story) -> None:
    text = explain_p99(paced(story, 5, 7, 300, 6, 5, 9, fault_at=2))
    assert text.startswith("slowest in second 2, 300.0 ms: SIGKILL of n1, the leader")
    assert text.endswith("6.0 ms in the median second away from faults")


def test_a_p99_without_a_fault_is_the_machine_s(story: Story) -> None:
    text = explain_p99(paced(story, 5, 7, 300, 6, 5))
    assert text.startswith("slowest in second 2, 300.0 ms: no fault")


def test_there_is_no_p99_of_nothing(story: Story) -> None:
    story.sent("a")
    assert explain_p99(story.verdict()) == "nothing was acknowledged"
