"""The end of the log as the core knows it, against a list that forgets nothing."""

import random

import pytest

from raft.core.log_end import BACKTRACK_MAX_ENTRIES, LogEnd
from raft.log.memory_log import MemoryLog
from raft.log_view import Compacted, Unavailable
from raft.types import Entry
from tests.unit.raft.core.group import entry, log_of


def written(*terms: int, base: tuple[int, int] = (0, 0)) -> tuple[LogEnd, MemoryLog]:
    """A log end over a log with these terms behind a base."""
    log = MemoryLog(*base)
    log.append([entry(base[0] + number, term) for number, term in enumerate(terms, 1)])
    return LogEnd(log, 1 << 20), log


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [
        (5, 1, (2, 1)),
        (5, 2, (4, 2)),
        (5, 3, (5, 3)),
        (5, 9, (5, 3)),
        (3, 3, (3, 2)),
        (9, 9, (5, 3)),
        (5, 0, (0, 0)),
        (0, 0, (0, 0)),
    ],
)
def test_the_common_place(index: int, term: int, expected: tuple[int, int]) -> None:
    """The last place whose term may be in a log of that term."""
    end, _ = written(1, 1, 2, 2, 3)
    assert end.common_place(index, term) == expected


def test_the_search_stops_at_the_beginning_of_the_log() -> None:
    """Everything below is committed; the base itself is still known."""
    end, _ = written(3, 3, base=(10, 2))
    assert end.common_place(12, 2) == (10, 2)
    assert end.common_place(12, 1) == (9, 0)


def test_one_search_walks_so_far() -> None:
    """BACKTRACK_MAX_ENTRIES, then the other side is asked again."""
    end, _ = written(1, *[5] * (BACKTRACK_MAX_ENTRIES + 100))
    index, term = end.common_place(BACKTRACK_MAX_ENTRIES + 101, 1)
    assert (index, term) == (101, 5)
    assert end.common_place(index, 1) == (1, 1)


def test_up_to_date_is_last_term_then_length() -> None:
    """Raft 5.4.1."""
    end, _ = written(1, 2)
    assert end.is_up_to_date(2, 2)
    assert end.is_up_to_date(1, 3)
    assert end.is_up_to_date(3, 2)
    assert not end.is_up_to_date(1, 2)
    assert not end.is_up_to_date(9, 1)


def test_terms_behind_and_before_the_log() -> None:
    """Two errors, as LogView says."""
    end, _ = written(3, 3, base=(10, 2))
    assert end.term(10) == 2
    with pytest.raises(Compacted):
        end.term(9)
    with pytest.raises(Unavailable):
        end.term(13)
    assert not end.matches(9, 1)
    assert not end.matches(13, 3)


def test_recent_entries_stay_in_memory_within_limits() -> None:
    """Older ones come from the log."""
    log = MemoryLog()
    end = LogEnd(log, 1000)
    for index in range(1, 101):
        end.append((entry(index, 1, bytes(100)),))
        log.append(end.take())
    assert end.entries(100, 101, 1 << 20)[0] is log.entries(100, 101, 1)[0]
    assert end.entries(1, 101, 1 << 20)[0].index == 1
    assert end._bytes <= 1000
    assert end._first > 85


def test_what_was_not_written_is_handed_out_again() -> None:
    """It also holds if it was too large for the cache, or a part was replaced meanwhile."""
    log = MemoryLog()
    end = LogEnd(log, 100)
    entries = tuple(entry(index, 1, bytes(90)) for index in range(1, 5))
    end.append(entries)
    taken = end.take()
    end.put_back(None, taken)
    assert end.take() == entries
    end.put_back(None, taken)
    end.append((entry(3, 2),))
    assert [(e.index, e.term) for e in end.take()] == [(1, 1), (2, 1), (3, 2)]


def test_durability_follows_truncation() -> None:
    """A place that was replaced is not durable, whatever a late sync says."""
    end, log = written(1, 1, 1)
    assert end.durable_index == 3
    end.append((entry(2, 2), entry(3, 2)))
    assert end.durable_index == 1
    end.stable(3, 2)
    assert end.durable_index == 1, "not even written"
    log.append(end.take())
    end.stable(3, 1)
    assert end.durable_index == 1
    end.stable(3, 2)
    assert end.durable_index == 3


def test_a_restored_log_begins_behind_the_snapshot() -> None:
    """Before the driver has reset the log, the old one shows through nowhere."""
    end, log = written(1, 1, 1, 1)
    end.restore(9, 3)
    assert (end.last_index, end.last_term) == (9, 3)
    assert end.term(9) == 3
    for index in (1, 8):
        with pytest.raises(Compacted):
            end.term(index)
    with pytest.raises(Compacted):
        end.entries(2, 10, 100)
    end.append((entry(10, 3),))
    assert end.take() == (entry(10, 3),)
    log.reset(9, 3)
    log.append((entry(10, 3),))
    assert end.term(9) == 3


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_reads_back(seed: int) -> None:
    """Appending, replacing, taking, putting back: every read agrees with a plain list."""
    chance = random.Random(seed)
    log = MemoryLog()
    end = LogEnd(log, chance.choice([0, 50, 500]))
    model: list[Entry] = []
    term = 1
    for _ in range(300):
        choice = chance.random()
        if choice < 0.5:
            first = len(model) + 1
            if choice < 0.1 and model:
                first = chance.randint(1, len(model))
                term += 1
            new = [
                entry(first + n, term, bytes(chance.randint(0, 30)))
                for n in range(chance.randint(1, 4))
            ]
            model[first - 1 :] = new
            end.append(new)
        elif choice < 0.7:
            taken = end.take()
            if chance.random() < 0.2:
                end.put_back(None, taken)
            else:
                log.append(taken)
        elif model:
            low = chance.randint(1, len(model))
            high = chance.randint(low + 1, len(model) + 1)
            found = end.entries(low, high, chance.randint(0, 200))
            assert found
            assert list(found) == model[low - 1 : low - 1 + len(found)]
            assert end.term(low) == model[low - 1].term
        assert end.last_index == len(model)


def test_log_of_counts_from_one() -> None:
    """The helper of these tests."""
    assert [(e.index, e.term) for e in log_of(4, 5)] == [(1, 4), (2, 5)]
