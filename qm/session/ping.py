"""UDP pings: would a session be accepted? [MS-MQQB 3.1.7.6 to 3.1.7.9]

Vista and later neither ask nor answer unless configured to, so nothing may depend on an answer.
"""

from collections import deque
from enum import Enum

import msgspec

from qm.session.errors import SessionMisuse
from qm.session.limits import PING_RESPONSE_TIMEOUT_MS, PINGS_OUTSTANDING_MAX_COUNT
from qm.wire.errors import ProtocolError
from qm.wire.guid import Guid
from qm.wire.limits import PING_SIZE_BYTES, U32_MAX
from qm.wire.packets.ping import Ping, parse_ping, write_ping


class PingVerdict(Enum):
    """How a ping ended; only `ACCEPTED` is success."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The response has Flags.RF."""
    TIMEOUT = "timeout"
    """Nothing came within a second [MS-MQQB 3.1.6.8]."""


class PingResult(msgspec.Struct, frozen=True, gc=False):
    """The end of one ping."""

    cookie: int
    """What `send` returned."""
    verdict: PingVerdict
    """How it ended."""


class PingRequester:
    """The requesting side: all pings of one queue manager.

    QB-A44: an answer counts for the request with its cookie, not only for the latest one, and
    PingCookie starts at 0 with the queue manager, not with each session.
    """

    __slots__ = ("_cookie", "_is_client_class", "_local_guid", "_queue", "_waiting")

    def __init__(self, local_guid: Guid, *, is_server_class: bool = True) -> None:
        """`is_server_class`: whether our OperatingSystemType is WinServer or WinEnt."""
        self._local_guid = local_guid
        self._is_client_class = not is_server_class
        self._cookie = 0
        self._waiting: dict[int, float] = {}
        # Deadlines rise with the cookies, so the oldest is always at the front.
        self._queue: deque[int] = deque()

    def send(self, now: float) -> tuple[int, bytes]:
        """Return the cookie and the datagram of a new request; its timer runs from `now`."""
        if len(self._waiting) >= PINGS_OUTSTANDING_MAX_COUNT:
            raise SessionMisuse(
                f"{PINGS_OUTSTANDING_MAX_COUNT} pings wait for an answer: let them time out first"
            )
        self._cookie = (self._cookie + 1) & U32_MAX
        self._waiting[self._cookie] = now + PING_RESPONSE_TIMEOUT_MS / 1000
        self._queue.append(self._cookie)
        ping = Ping(self._cookie, self._local_guid, is_client_class=self._is_client_class)
        return self._cookie, write_ping(ping)

    def receive(self, datagram: bytes) -> PingResult | None:
        """Return the result that a datagram brings; None if it answers nothing that waits."""
        ping = _read(datagram)
        if ping is None or self._waiting.pop(ping.cookie, None) is None:
            return None
        verdict = PingVerdict.REFUSED if ping.is_refused else PingVerdict.ACCEPTED
        return PingResult(ping.cookie, verdict)

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called, in monotonic seconds."""
        while self._queue and self._queue[0] not in self._waiting:
            self._queue.popleft()
        return self._waiting[self._queue[0]] if self._queue else None

    def handle_timer(self, now: float) -> list[PingResult]:
        """Return the pings that have timed out."""
        results = []
        while (due := self.next_timer()) is not None and now >= due:
            cookie = self._queue.popleft()
            del self._waiting[cookie]
            results.append(PingResult(cookie, PingVerdict.TIMEOUT))
        return results


def asking_queue_manager(datagram: bytes) -> Guid | None:
    """Return the queue manager that made a request; None when the datagram is not one."""
    request = _read(datagram)
    return None if request is None else request.qm_guid


def answer_ping(datagram: bytes, local_guid: Guid, *, is_accepting: bool) -> bytes | None:
    """Return the response to a request; None when the datagram is not one [MS-MQQB 3.1.7.7].

    `is_accepting`: whether a session from this initiator would be accepted at this moment. Send the
    response to exactly the address and port that the request came from [MS-MQQB 2.1.2].
    """
    request = _read(datagram)
    if request is None:
        return None
    return write_ping(
        Ping(
            request.cookie,
            local_guid,
            is_client_class=request.is_client_class,
            is_refused=not is_accepting,
        )
    )


def _read(datagram: bytes) -> Ping | None:
    """A datagram of another size or signature is silently ignored [MS-MQQB 2.2.7]."""
    if len(datagram) != PING_SIZE_BYTES:
        return None
    try:
        ping, _ = parse_ping(datagram, 0, len(datagram))
    except ProtocolError:
        return None
    return ping
