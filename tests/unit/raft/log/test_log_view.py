"""The log on disk and the one in memory give the same answers through `LogView`."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from raft.log.log import Log, LogConfig
from raft.log.memory_log import MemoryLog
from raft.log_view import LogView, LogViewError
from raft.types import SnapshotMeta
from tests.unit.raft.log.faults import Disk
from tests.unit.raft.log.test_log import MEMBERS, entries, sync

STEP = st.tuples(
    st.sampled_from(["append", "replace", "compact", "reset"]),
    st.integers(0, 40),
    st.integers(1, 9),
)


def answer(ask: Callable[[], object]) -> object:
    """What a view returns, or which error it raises."""
    try:
        return ask()
    except LogViewError as error:
        return type(error)


def answers(view: LogView, low: int, high: int) -> list[object]:
    """All that can be asked of a view between two indexes."""
    ranges = [(a, b, size) for a in range(low, high) for b in (a + 1, a + 4) for size in (0, 250)]
    return [
        view.first_index(),
        view.last_index(),
        *(answer(lambda index=index: view.term(index)) for index in range(low, high)),  # type: ignore[misc]
        *(answer(lambda limits=limits: view.entries(*limits)) for limits in ranges),  # type: ignore[misc]
    ]


@settings(max_examples=40, derandomize=True)
@given(st.lists(STEP, max_size=8))
def test_both_views_answer_alike(steps: list[tuple[str, int, int]]) -> None:
    log, memory = Log.open(Disk().root, LogConfig(1, 1, segment_bytes=4096)), MemoryLog()
    for term, (act, back, count) in enumerate(steps, start=1):
        last = log.last_index()
        final = log.snapshot_meta.index if log.snapshot_meta else 0
        if act in ("append", "replace"):
            first = max(last + 1 - (back if act == "replace" else 0), final + 1)
            batch = entries(first, first + count * 5, term)
            log.append(None, batch)
            memory.append(batch)
        elif act == "compact" and last > final:
            sync(log)
            index = last - (last - final) * back // 41
            log.compact(SnapshotMeta(index, log.term(index), MEMBERS, 0))
            memory.compact(log.first_index() - 1)
        elif act == "reset":
            log.reset(SnapshotMeta(last + count, term, MEMBERS, 0))
            memory.reset(last + count, term)
    low, high = max(0, log.first_index() - 3), log.last_index() + 4
    assert answers(log, low, high) == answers(memory, low, high)
