"""Syncs run in the kernel or in their thread, and each is reported in the loop."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raft import sync_runner
from raft.disk import DiskDirectory
from raft.driver import EXIT_STATUS_FATAL
from raft.files import FatalDiskError
from raft.group_commit import Sync
from raft.log_view import SyncToken
from raft.sync_runner import KERNEL_SYNCS_MAX, SyncRunner


class Token:
    """A sync that only a thread can run."""

    descriptor: int | None = None

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.ran_in: int | None = None

    def run(self) -> None:
        self.ran_in = threading.get_ident()
        if self.error is not None:
            raise self.error

    def ran(self, errno: int) -> None:
        raise AssertionError(f"only `run` does it: {errno}")


class KernelToken(Token):
    """A sync of one open file."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.results: list[int] = []

    def ran(self, errno: int) -> None:
        self.results.append(errno)
        if errno:
            raise OSError(errno, "made")


class Reports:
    """What a runner says, and where."""

    def __init__(self) -> None:
        self.all: list[tuple[SyncToken, BaseException | None]] = []
        self.threads: set[int] = set()
        self._news = asyncio.Event()

    def done(self, sync: SyncToken, error: BaseException | None) -> None:
        self.all.append((sync, error))
        self.threads.add(threading.get_ident())
        self._news.set()

    async def number(self, count: int) -> list[tuple[SyncToken, BaseException | None]]:
        """Wait until so many are there."""
        async with asyncio.timeout(30):
            while len(self.all) < count:
                self._news.clear()
                await self._news.wait()
        return self.all


def with_runner(scenario: Callable[[SyncRunner, Reports], Awaitable[None]]) -> None:
    async def run() -> None:
        reports = Reports()
        runner = SyncRunner(reports.done)
        await scenario(runner, reports)
        await runner.stop()

    asyncio.run(run())


def test_a_thread_runs_what_is_more_than_one_fdatasync() -> None:
    async def scenario(runner: SyncRunner, reports: Reports) -> None:
        error = OSError("made")
        tokens = [Token(), Token(error), Token()]
        for token in tokens:
            runner.submit(token)
        found = await reports.number(3)
        assert found == [(tokens[0], None), (tokens[1], error), (tokens[2], None)]
        assert reports.threads == {threading.get_ident()}
        assert {token.ran_in for token in tokens}.isdisjoint(reports.threads)

    with_runner(scenario)


def test_the_kernel_runs_the_fdatasync_of_one_file(tmp_path: Path) -> None:
    async def scenario(runner: SyncRunner, reports: Reports) -> None:
        assert runner.uses_kernel
        file = DiskDirectory(tmp_path).open("file", create=True)
        file.pwrite(b"x" * 100_000, 0)
        sync = Sync(7, 100, [file], None, None)
        runner.submit(sync)
        assert reports.all == [], "never from within submit"
        assert await reports.number(1) == [(sync, None)]
        assert sync.has_run
        assert reports.threads == {threading.get_ident()}
        file.close()

    with_runner(scenario)


def test_more_syncs_than_the_kernel_takes_all_run(tmp_path: Path) -> None:
    async def scenario(runner: SyncRunner, reports: Reports) -> None:
        with (tmp_path / "file").open("wb") as file:
            file.write(bytes(100))
            file.flush()
            tokens = [KernelToken(file.fileno()) for _ in range(4 * KERNEL_SYNCS_MAX)]
            for token in tokens:
                runner.submit(token)
            found = await reports.number(len(tokens))
        assert {id(sync) for sync, _ in found} == {id(token) for token in tokens}
        assert {error for _, error in found} == {None}

    with_runner(scenario)


def test_what_the_kernel_cannot_sync_goes_to_the_thread() -> None:
    """A pipe has no fdatasync: the thread, too, may fail at it, but it says so."""

    async def scenario(runner: SyncRunner, reports: Reports) -> None:
        reading, writing = os.pipe()
        token = KernelToken(writing)
        runner.submit(token)
        assert await reports.number(1) == [(token, None)]
        assert (token.ran_in is not None) is (token.results == [])
        os.close(reading)
        os.close(writing)

    with_runner(scenario)


def test_an_error_of_the_kernels_sync_is_fatal(tmp_path: Path) -> None:
    sync = Sync(7, 100, [DiskDirectory(tmp_path).open("file", create=True)], None, None)
    assert sync.descriptor is not None
    with pytest.raises(FatalDiskError, match=os.strerror(errno.EIO)):
        sync.ran(errno.EIO)
    assert sync.has_failed
    assert not sync.has_run


def test_a_sync_of_names_or_of_two_files_is_no_single_fdatasync(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    one, other = (directory.open(name, create=True) for name in "ab")
    assert Sync(7, 100, [one, other], None, None).descriptor is None
    assert Sync(7, 100, [one], directory, None).descriptor is None
    assert Sync(7, 100, [], None, None).descriptor is None


def test_without_the_kernels_help_the_thread_runs_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runner: SyncRunner, reports: Reports) -> None:
        assert not runner.uses_kernel
        with (tmp_path / "file").open("wb") as file:
            token = KernelToken(file.fileno())
            runner.submit(token)
            assert await reports.number(1) == [(token, None)]
        assert token.ran_in is not None

    monkeypatch.setattr(sync_runner, "_unavailable", "Error on io_setup with code 1")
    with_runner(scenario)
    assert "allow io_setup" in caplog.text


def test_stopping_finishes_what_was_submitted(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports = Reports()
        runner = SyncRunner(reports.done)
        tokens = [Token() for _ in range(20)]
        with (tmp_path / "file").open("wb") as file:
            for token in tokens:
                runner.submit(token)
                runner.submit(KernelToken(file.fileno()))
            await runner.stop()
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
