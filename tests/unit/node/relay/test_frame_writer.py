"""Frames of a relay stream: in order, together, one message at a time, none after an error."""

import asyncio

from qm.node.relay.channels import FRAME_BYTES_SOFT
from qm.node.relay.frame_writer import FrameWriter


class Wire:
    """Writes that end on request."""

    def __init__(self) -> None:
        self.messages: list[list[str]] = []
        self.errors: list[BaseException] = []
        self._under_way: asyncio.Future[None] | None = None
        self.writer: FrameWriter[str] = FrameWriter(self._write, len, self.errors.append)

    async def _write(self, together: list[str]) -> None:
        assert self._under_way is None, "two writes at once"
        self.messages.append(together)
        self._under_way = asyncio.get_running_loop().create_future()
        try:
            await self._under_way
        finally:
            self._under_way = None

    async def end(self, error: Exception | None = None) -> None:
        """End the write that is under way."""
        assert self._under_way is not None
        if error is None:
            self._under_way.set_result(None)
        else:
            self._under_way.set_exception(error)
        for _ in range(5):
            await asyncio.sleep(0)


def test_a_frame_is_written_at_once_and_what_comes_meanwhile_together() -> None:
    async def scenario() -> None:
        wire = Wire()
        wire.writer.add("a")
        assert wire.messages == [["a"]], "within the call"
        wire.writer.add("b")
        wire.writer.add("c")
        assert len(wire.writer) == 2
        await wire.end()
        assert wire.messages == [["a"], ["b", "c"]]
        await wire.end()
        await wire.writer.at_rest()
        assert not wire.errors

    asyncio.run(scenario())


def test_a_message_has_a_soft_limit_of_bytes() -> None:
    async def scenario() -> None:
        wire = Wire()
        large = "x" * (FRAME_BYTES_SOFT // 2)
        for frame in ("a", large, large, large):
            wire.writer.add(frame)
        await wire.end()
        assert wire.messages[1:] == [[large, large]]
        await wire.end()
        assert wire.messages[2:] == [[large]]
        await wire.end()

    asyncio.run(scenario())


def test_after_an_error_nothing_is_written() -> None:
    async def scenario() -> None:
        wire = Wire()
        wire.writer.add("a")
        wire.writer.add("b")
        error = OSError("broken")
        await wire.end(error)
        wire.writer.add("c")
        await wire.writer.at_rest()
        assert wire.messages == [["a"]]
        assert wire.errors == [error]

    asyncio.run(scenario())


def test_who_stops_waits_only_for_the_write_under_way() -> None:
    async def scenario() -> None:
        wire = Wire()
        wire.writer.add("a")
        wire.writer.add("b")
        wire.writer.stop()
        rest = asyncio.ensure_future(wire.writer.at_rest())
        await asyncio.sleep(0)
        assert not rest.done()
        await wire.end()
        await rest
        assert wire.messages == [["a"]]

    asyncio.run(scenario())
