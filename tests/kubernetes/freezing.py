"""Stops the processes of one pod for a while, as the worker's administrator could.

Seen from outside, the pod is cut off as when its worker is lost: it answers nothing, while its
object and its label stay. A NetworkPolicy would not do: some networks of Kubernetes know none, and
most let connections that are open live on, so that the leader would go on leading.

Runs alone, by `python -c`, in a pod that sees the worker's processes: POD NAMESPACE SECONDS.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def processes(pod: str, namespace: str) -> Iterator[int]:
    """Find the pod's processes by the variables that the chart gives them."""
    wanted = {f"POD_NAME={pod}".encode(), f"POD_NAMESPACE={namespace}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name)


def main(pod: str, namespace: str, seconds: float) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    found = list(processes(pod, namespace))
    if not found:
        sys.exit(f"no process of {namespace}/{pod} here")
    try:
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        print("stopped", flush=True)
        time.sleep(seconds)
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
