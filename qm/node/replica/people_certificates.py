"""When the next certificate of a user in the directory expires, for metrics.

There may be very many users: each call reads a page of the directory, and the first expiry of the
last whole round is shown until the next one has found an earlier one.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from qm.model.queries.people import certificates_after
from qm.model.queries.view import View
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.security.certificates import UnusableCertificate, described
from qm.security.sid import sid_text

logger = logging.getLogger(__name__)

PAGE_ROWS: Final = 256
WARN_WITHIN_S: Final = 7 * 24 * 3600
DIRECTORY: Final = "directory"
"""Label `file` of the series: certificates that are in no file."""


class PeopleCertificates:
    """Sets `quorate_certificate_expiry_seconds` for the directory; an expired one counts, too."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        self._gauge = metrics.gauge("quorate_certificate_expiry_seconds")
        self._lines = LimitedLog(logger, clock)
        self._after = b""
        self._first: int | None = None
        """Epoch seconds of the first expiry of the present round."""
        self._shown: int | None = None
        """Of the last one."""

    def refresh(self, view: View, now_s: int) -> None:
        """Read the next page, and set the gauge."""
        found, self._after = certificates_after(view, self._after, PAGE_ROWS)
        for sid, one in found:
            try:
                ends = described(one.certificate).not_after_s
            except UnusableCertificate:
                continue
            self._first = ends if self._first is None else min(self._first, ends)
            if ends - now_s < WARN_WITHIN_S:
                self._lines.warning(
                    f"certificate {one.digest.hex()}",
                    "a certificate of a user expires, or has expired: register another one and"
                    " remove it (`qm certificate`)",
                    sid=sid_text(sid),
                    digest=one.digest.hex(),
                    seconds=ends - now_s,
                )
        if not self._after:
            self._shown, self._first = self._first, None
        ends_first = min((one for one in (self._shown, self._first) if one), default=None)
        if ends_first is None:
            self._gauge.remove_by_labels({"file": DIRECTORY})
        else:
            self._gauge.labels(file=DIRECTORY).set(ends_first - now_s)
