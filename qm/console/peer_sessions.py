"""Sessions with other queue managers as they are now, with rates between two readings.

As with the node's counters, the page holds the earlier reading and sends it with each renewal: as
text without characters that an address would escape, since all of it is in one.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from qm.console.page_group import PageGroup, instant_ms
from qm.names.guid import guid_text
from qm.observe.service_counters import APART_MIN_S
from qm.pb import control_pb2 as pb

SESSIONS_SHOWN_MAX: Final = 50
READING_MAX_CHARS: Final = 6_144
"""Of an earlier reading, as a page sends it; a line of a request has at most 8,190."""
COUNTED: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out")

Counts: TypeAlias = tuple[int, int, int, int]
"""As in COUNTED."""
Key: TypeAlias = tuple[str, int, int]
"""Node, number and beginning of a session: numbers begin anew when the node restarts."""


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """A reading as text has it."""

    at_s: float
    nodes: list[str]
    sessions: list[tuple[int, int, int, Counts]]
    """Place in `nodes`, number, beginning, counts."""


class Reading(msgspec.Struct, frozen=True):
    """Counts of sessions at one time."""

    at_s: float
    """Monotonic, as this node has it."""
    counts: Mapping[Key, Counts]

    def text(self) -> str:
        """Return it for a page to hold."""
        nodes = sorted({node for node, _, _ in self.counts})
        sessions = [
            (nodes.index(node), number, since_ms, counts)
            for (node, number, since_ms), counts in self.counts.items()
        ]
        told = _Told(self.at_s, nodes, sessions)
        return urlsafe_b64encode(msgspec.msgpack.encode(told)).decode()


class ShownSession(msgspec.Struct, frozen=True):
    """A row of the page."""

    address: str
    queue_manager: str
    direction: str
    node: str
    since: str
    counted: Sequence[tuple[int, float | None]]
    """Counts as in COUNTED, and each per second."""


async def sessions_shown(pages: PageGroup, request: web.Request) -> dict[str, Any]:
    """Return what the template of sessions has; `before` of the request is an earlier reading."""
    wanted = pb.ListSessionsRequest(limit=SESSIONS_SHOWN_MAX)
    reply = await pages.call(request, lambda s: s.peers.ListSessions, wanted)
    counts = {_key(one): _counts(one) for one in reply.sessions}
    now = Reading(asyncio.get_running_loop().time(), counts)
    before = reading_of(request.query.get("before", ""))
    return {
        "sessions": [_row(one, rates(_key(one), now, before)) for one in reply.sessions],
        "left_out": reply.left_out,
        "silent_nodes": reply.silent_nodes,
        "reading": now.text(),
    }


def reading_of(text: str) -> Reading | None:
    """Return an earlier reading as a page sent it, None if it is none."""
    if len(text) > READING_MAX_CHARS:
        return None
    try:
        told = msgspec.msgpack.decode(urlsafe_b64decode(text), type=_Told)
    except (msgspec.DecodeError, ValueError):
        return None
    return Reading(
        told.at_s,
        {
            (told.nodes[at], number, since_ms): counts
            for at, number, since_ms, counts in told.sessions
            if 0 <= at < len(told.nodes)
        },
    )


def rates(key: Key, now: Reading, before: Reading | None) -> Sequence[float | None]:
    """Return what a session counted per second; None for one without an earlier reading."""
    earlier = None if before is None else before.counts.get(key)
    if before is None or earlier is None or not now.at_s - before.at_s >= APART_MIN_S:
        return [None] * len(COUNTED)
    grown = [count - was for count, was in zip(now.counts[key], earlier, strict=True)]
    return [more / (now.at_s - before.at_s) if more >= 0 else None for more in grown]


def _key(found: Any) -> Key:
    return found.node, found.number, found.since_ms


def _counts(found: Any) -> Counts:
    return found.messages_in, found.messages_out, found.bytes_in, found.bytes_out


def _row(found: Any, per_s: Sequence[float | None]) -> ShownSession:
    direction = "incoming" if found.is_incoming else "outgoing"
    return ShownSession(
        address=found.address,
        queue_manager=guid_text(found.queue_manager) if found.queue_manager else "",
        direction=direction if found.is_open else f"{direction}, not open yet",
        node=found.node,
        since=instant_ms(found.since_ms),
        counted=list(zip(_counts(found), per_s, strict=True)),
    )
