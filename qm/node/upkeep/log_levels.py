"""Levels of loggers that are changed for a while and then reset."""

import asyncio
import logging


class LogLevels:
    """Changes levels. Create and use it in the node's event loop."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        """Levels to go back to, and when."""

    def set(self, level: str, logger: str, expires_after_s: int) -> str:
        """Set the level of a logger, "" for all, and return the one in force before.

        After `expires_after_s` the level is reset to what it was before any temporary change.
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
        """Reset all levels."""
        for logger, (_, timer) in list(self._before.items()):
            timer.cancel()
            self._go_back(logger)
