"""Points in time as arguments of commands, and as they are shown."""

import time
from datetime import UTC, datetime
from typing import Final

import click

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE_MAX_S: Final = 1 << 40


def parse_time_ms(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int:
    """Return the time that an age or an ISO 8601 time means, UTC; 0 for none."""
    if not text:
        return 0
    number, unit = text[:-1], text[-1]
    if unit in _UNITS_S and number.isascii() and number.isdigit():
        return int(
            max(0.0, time.time() - min(int(number[:16]) * _UNITS_S[unit], _AGE_MAX_S)) * 1000
        )
    try:
        at = datetime.fromisoformat(text)
        return max(0, int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither an age such as 90s, 30m, 2h or 7d nor a time such as"
            " 2026-05-01T12:00 (UTC)"
        ) from None


def instant_ms(epoch_ms: int) -> str:
    """Return a time with its milliseconds, UTC."""
    at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
