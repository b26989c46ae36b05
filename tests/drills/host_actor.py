"""What `systemctl` is on a machine: starts, ends and stops one node of a folder, by its process id.

python -m tests.drills.host_actor FOLDER VERB NODE
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from qm.node.dev import pids
from qm.node.dev.layout import Layout
from qm.node.membership.first_start import join_cluster

END_WAIT_S = 60.0
_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGTERM,
    "pause": signal.SIGSTOP,
    "resume": signal.SIGCONT,
}


def main(folder: Path, verb: str, node: str) -> None:
    layout = Layout(folder)
    with (folder / "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{verb} {node}\n")
    if verb == "start":
        start(layout, node)
    elif verb == "lose-disk":
        shutil.rmtree(folder / node)
    elif verb == "rejoin":
        asyncio.run(join_cluster(layout.config(node), print))
    else:
        pids.send(layout.pid(node), _SIGNALS[verb])
        end = time.monotonic() + END_WAIT_S
        while verb in ("kill", "stop") and pids.running(layout.pid(node)) is not None:
            assert time.monotonic() < end, f"{node} does not end"
            time.sleep(0.02)


def start(layout: Layout, node: str) -> None:
    if pids.running(layout.pid(node)) is not None:
        return
    lock = pids.lock(layout.pid(node))
    with layout.log(node).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "qm", "node", "run", "--config", str(layout.config(node))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
        )
    pids.write(lock, process.pid)
    os.close(lock)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
