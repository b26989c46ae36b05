from raft.pace import APPLY_SPAN_S, ApplyPace


def test_cheap_entries_are_applied_by_the_full_batch() -> None:
    pace = ApplyPace(64)
    for _ in range(10):
        pace.applied(64, APPLY_SPAN_S / 4)
        pace.settled(APPLY_SPAN_S / 4)
    assert pace.entries == 64


def test_dear_entries_are_applied_in_runs_that_fit_the_span() -> None:
    pace = ApplyPace(64)
    spans = []
    for _ in range(5):
        entries = pace.entries
        spans.append(entries * 0.03)
        pace.applied(entries, spans[-1])
    assert spans[0] > 1.5
    assert max(spans[1:]) <= APPLY_SPAN_S


def test_what_is_settled_later_counts_too() -> None:
    pace = ApplyPace(64)
    pace.applied(10, APPLY_SPAN_S * 0.9)
    pace.settled(APPLY_SPAN_S * 1.5)
    assert pace.entries == 4


def test_one_entry_is_applied_however_long_it_takes() -> None:
    pace = ApplyPace(64)
    pace.applied(1, 30.0)
    assert pace.entries == 1


def test_the_pace_comes_back_in_a_few_runs() -> None:
    pace = ApplyPace(64)
    pace.applied(64, 100.0)
    assert pace.entries == 1
    runs = 0
    while pace.entries < 64:
        pace.applied(pace.entries, 0.0001)
        runs += 1
    assert runs == 6


def test_a_run_that_others_kept_short_says_nothing_about_longer_ones() -> None:
    pace = ApplyPace(64)
    pace.applied(64, 100.0)
    pace.applied(1, 0.0001)
    assert pace.entries == 2
    pace.applied(1, 0.0001)
    assert pace.entries == 2
