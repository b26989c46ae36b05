"""Syncs run in their thread, in order, and each is reported in the loop."""

import asyncio
import os
import subprocess
import sys
import threading

from raft.driver import EXIT_STATUS_FATAL
from raft.log_view import SyncToken
from raft.sync_thread import SyncThread


class Token:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.ran_in: int | None = None

    def run(self) -> None:
        self.ran_in = threading.get_ident()
        if self.error is not None:
            raise self.error


def test_syncs_run_elsewhere_and_report_here() -> None:
    async def scenario() -> None:
        reports: list[tuple[SyncToken, BaseException | None]] = []
        reporters: set[int] = set()
        all_done = asyncio.Event()

        def done(sync: SyncToken, error: BaseException | None) -> None:
            reports.append((sync, error))
            reporters.add(threading.get_ident())
            if len(reports) == len(tokens):
                all_done.set()

        thread = SyncThread(done)
        error = OSError("made")
        tokens = [Token(), Token(error), Token()]
        for token in tokens:
            thread.submit(token)
        await asyncio.wait_for(all_done.wait(), 30)
        thread.stop()
        assert reports == [(tokens[0], None), (tokens[1], error), (tokens[2], None)]
        assert reporters == {threading.get_ident()}
        assert {token.ran_in for token in tokens}.isdisjoint(reporters)

    asyncio.run(scenario())


def test_stopping_finishes_what_was_submitted() -> None:
    async def scenario() -> None:
        thread = SyncThread(lambda sync, error: None)
        tokens = [Token() for _ in range(20)]
        for token in tokens:
            thread.submit(token)
        thread.stop()
        assert all(token.ran_in is not None for token in tokens)

    asyncio.run(scenario())


def test_the_end_of_a_process_says_why() -> None:
    program = "from raft.driver import end_process; end_process('the disk failed'); print('alive')"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert ended.returncode == EXIT_STATUS_FATAL
    assert "the disk failed" in ended.stderr
    assert ended.stdout == ""
