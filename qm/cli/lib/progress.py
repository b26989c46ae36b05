"""Progress of long operations, on stderr, if it is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to report (done, total), both in bytes; shown only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    # Slow to load, and only needed here.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn(text),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
