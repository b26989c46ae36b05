"""Outgoing frames of a relay stream: waiting frames are written together, without delay."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from qm.node.relay.channels import FRAME_BYTES_SOFT
from raft.transport.eager import EagerCall

_FRAME_OVERHEAD_BYTES: Final = 64
"""Approximate size of a frame without its payload."""

FrameT = TypeVar("FrameT")


class FrameWriter(Generic[FrameT]):
    """Writes frames in order, one message at a time.

    A frame that finds no write in progress begins one within `add`, so that only the network
    delays it. After an error nothing more is written.
    """

    def __init__(
        self,
        write: Callable[[list[FrameT]], Coroutine[Any, Any, object]],
        payload_bytes: Callable[[FrameT], int],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`write` makes one message of a few frames; calls of it do not overlap. `on_error` has to
        end the stream, unless it has ended.
        """
        self._write = write
        self._payload_bytes = payload_bytes
        self._on_error = on_error
        self._waiting: deque[FrameT] = deque()
        self._is_writing = False
        self._is_over = False
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def __len__(self) -> int:
        """Number of frames that wait."""
        return len(self._waiting)

    def add(self, frame: FrameT) -> None:
        """Write a frame after all others."""
        if not self._is_over:
            self._waiting.append(frame)
            self._at_rest.clear()
            self._go_on()

    def stop(self) -> None:
        """Drop waiting frames. A write in progress ends by itself."""
        self._is_over = True
        self._waiting.clear()
        if not self._is_writing:
            self._at_rest.set()

    async def at_rest(self) -> None:
        """Wait until nothing is left to be written, or nothing will be."""
        await self._at_rest.wait()

    def _go_on(self) -> None:
        if self._is_writing:
            return
        if not self._waiting:
            self._at_rest.set()
            return
        together: list[FrameT] = []
        size = 0
        while self._waiting and size < FRAME_BYTES_SOFT:
            frame = self._waiting.popleft()
            size += self._payload_bytes(frame) + _FRAME_OVERHEAD_BYTES
            together.append(frame)
        self._is_writing = True
        EagerCall(self._write(together), self._written)

    def _written(self, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None:
            self.stop()
            self._on_error(error)
        self._go_on()
