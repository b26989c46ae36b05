"""Ends a call with an error, whether or not its caller still waits for it."""

import asyncio
from typing import Any, NoReturn

import grpc
import grpc.aio


async def refuse(context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
    """End a call with an error."""
    try:
        await context.abort(code, reason)
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        # gRPC says in several ways, none of them public, that the caller is gone. It would log
        # each with its traceback, as often as a caller likes.
        raise asyncio.CancelledError("the caller is gone") from error
    raise AssertionError("abort raises")
