"""Levels of loggers that are changed while the node runs, and go back by themselves."""

import asyncio
import logging


class LogLevels:
    """Made and used in the node's loop."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        """Levels to go back to, and when."""

    def set(self, level: str, logger: str, expires_after_s: int) -> str:
        """Set the level of a logger, "" for all, and return the one in force before.

        With `expires_after_s` it goes back to what it was when nothing was about to expire.
        """
        target = logging.getLogger(logger or None)
        in_force = logging.getLevelName(target.getEffectiveLevel()).lower()
        own = target.level
        pending = self._before.pop(logger, None)
        if pending is not None:
            own = pending[0]
            pending[1].cancel()
        target.setLevel(level.upper())
        if expires_after_s:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(expires_after_s, self._go_back, logger)
            self._before[logger] = (own, timer)
        return in_force

    def _go_back(self, logger: str) -> None:
        level, _ = self._before.pop(logger)
        logging.getLogger(logger or None).setLevel(level)

    def close(self) -> None:
        """Let everything be as it was."""
        for logger, (_, timer) in list(self._before.items()):
            timer.cancel()
            self._go_back(logger)
