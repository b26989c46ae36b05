"""Whose cancellation is it: this task's, or that of a call that was ended under it?"""

import asyncio


def raise_if_cancelled() -> None:
    """Go on raising CancelledError if this task was cancelled.

    A gRPC call that was cancelled, or whose channel was closed, raises the same in whoever reads
    or writes it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
