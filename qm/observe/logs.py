"""Log lines: one JSON object each, with stable fields, and a limit on how often a line repeats.

Fields: `time` (RFC 3339, UTC), `level`, `logger`, `message`, `node`, then whatever the line adds
through `extra={"fields": {...}}`. Never bytes of a message, never a secret.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Final, TextIO

from typing_extensions import override

REPEAT_AFTER_S: Final = 10.0
"""A rate-limited line appears at most once in this time; the next one says how many were held
back."""
LINES_KEPT_MAX: Final = 2_000
LINE_KEPT_MAX_CHARS: Final = 4_096
_GRPC_LOGGER: Final = "grpc._cython.cygrpc"
KEYS_MAX: Final = 1024
"""Kinds of line that one limiter remembers; the oldest is dropped first."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    @override
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "node": self._node,
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes lines and keeps the last ones for `recent_lines`."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: deque[str] = deque(maxlen=LINES_KEPT_MAX)

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        self.kept.append(line[:LINE_KEPT_MAX_CHARS])
        return line


def recent_lines() -> list[str]:
    """Return the last lines written, oldest first; empty unless `set_up` was called."""
    handlers = logging.getLogger().handlers
    return [line for each in handlers if isinstance(each, _Stderr) for line in each.kept]


def set_up(node: str, level: str) -> None:
    """Write everything from `level` up to stderr as JSON."""
    handler = _Stderr()
    handler.setFormatter(JsonFormatter(node))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    grpc = logging.getLogger(_GRPC_LOGGER)
    grpc.filters[:] = [_UnsentAnswers()]


class _UnsentAnswers(logging.Filter):
    """Holds back the traceback that gRPC writes for each answer whose caller has gone."""

    def __init__(self) -> None:
        super().__init__()
        self._limited = LimitedLog(logging.getLogger(__name__), monotonic)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        # By name: this module is loaded where gRPC is not.
        if type(error).__name__ != "ExecuteBatchError":
            return True
        text = "a caller was gone before its answer"
        self._limited.warning("answer_unsent", text, detail=record.getMessage())
        return False


class LimitedLog:
    """Limits lines that peers can cause at will to one per kind in REPEAT_AFTER_S."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._logger = logger
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def info(self, kind: str, text: str, **fields: object) -> None:
        """As `warning`, for what is in order."""
        self._write(logging.INFO, kind, text, None, fields)

    def warning(self, kind: str, text: str, **fields: object) -> None:
        """Log `text` unless a line of this kind appeared within REPEAT_AFTER_S."""
        self._write(logging.WARNING, kind, text, None, fields)

    def error(self, kind: str, text: str, error: BaseException, **fields: object) -> None:
        """As `warning`, as an error with its traceback."""
        self._write(logging.ERROR, kind, text, error, fields)

    def _write(
        self,
        level: int,
        kind: str,
        text: str,
        error: BaseException | None,
        fields: dict[str, object],
    ) -> None:
        now = self._clock()
        due, held = self._kinds.pop(kind, (now, 0))
        if now < due:
            self._kinds[kind] = due, held + 1
            return
        while len(self._kinds) >= KEYS_MAX:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = now + REPEAT_AFTER_S, 0
        if held:
            fields["held_back"] = held
        extra = {"fields": {"kind": kind, **fields}}
        self._logger.log(level, "%s", text, exc_info=error, extra=extra)
