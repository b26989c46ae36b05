"""Nodes with spans: what `qm dev up` and `qm node run` are to `tests.bench.entry`.

`python -m tests.bench.entry_nodes dev up --folder F --network N` runs three nodes, each of them as
`python -m tests.bench.entry_nodes node run --config C`.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import ClassVar

from qm.node.dev.layout import Layout
from qm.node.dev.manager import Manager
from qm.node.process import run
from tests.bench.spans import Recorder, install, serve, socket_of


class SpannedManager(Manager):
    """Runs nodes with spans."""

    program: ClassVar[tuple[str, ...]] = ("-m", "tests.bench.entry_nodes")


def main() -> int:
    """Do as `qm` would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--network", default="127.0.0")
    parser.add_argument("--config", type=Path)
    options = parser.parse_args()
    if options.what == ["node", "run"]:
        recorder = Recorder()
        install(recorder)
        serve(recorder, socket_of(os.getpid()))
        return run(options.config)
    layout = Layout(options.folder.absolute())
    nodes = layout.make(3, options.network)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    asyncio.run(Manager.run(SpannedManager(layout, nodes, say)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
