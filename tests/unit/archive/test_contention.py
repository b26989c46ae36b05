"""How much of a core a thread wants: `qm.archive.contention`."""

import os
import subprocess
import sys
import threading
import time

from qm.archive.contention import core_wanted_s

WAIT_S = 60.0


def test_a_thread_that_works_wants_a_core() -> None:
    began, worked = core_wanted_s(), time.thread_time()
    while time.thread_time() - worked < 0.05:
        pass
    assert core_wanted_s() - began >= 0.05


def test_so_does_one_that_waits_for_it() -> None:
    """It shares a core with a process that never rests."""
    core = min(os.sched_getaffinity(0))
    rival = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    )
    waited: list[float] = []

    def work() -> None:
        os.sched_setaffinity(0, {core})
        began, worked = core_wanted_s(), time.thread_time()
        end = time.monotonic() + WAIT_S
        waited.append(0.0)
        while waited[-1] < 0.05 and time.monotonic() < end:
            waited.append(core_wanted_s() - began - (time.thread_time() - worked))

    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        rival.kill()
        rival.wait()
    assert waited[-1] >= 0.05
