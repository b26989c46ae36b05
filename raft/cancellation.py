"""Tells the cancellation of the current task from that of a gRPC call that it awaits."""

import asyncio


def raise_if_cancelled() -> None:
    """Raise CancelledError if this task itself was cancelled.

    A gRPC call that was cancelled, or whose channel was closed, raises the same error in tasks that
    read or write it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
