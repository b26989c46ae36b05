"""Copies of entries and bodies, given to members and asked of them, for what is damaged here.

What another member gives counts only if its checksum is the one that is known here: see
`raft.log.scrub` for entries; rows of the state have those of bodies.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple

import grpc.aio

from qm.node.relay.channels import Channels, Unreachable, reply_to
from qm.observe.logs import LimitedLog
from qm.pb import relay_pb2
from qm.store.bodies.body_places import BodyPlace, is_body
from raft.types import Entry, EntryKind

logger = logging.getLogger(__name__)

ANSWER_MAX_S: Final = 10.0
BODIES_PER_CALL_MAX: Final = 256
REPLY_MAX_BYTES: Final = 4 << 20
"""Bytes of bodies in one answer, softly: a single body may exceed it."""


class Copies:
    """What this node gives."""

    def __init__(
        self,
        entry: Callable[[int, int], Entry | None],
        body: Callable[[BodyPlace], bytes | None],
    ) -> None:
        """`entry`: by index and term, from the log; `body`: a stored packet. None where there is
        none, or a damaged one.
        """
        self._entry = entry
        self._body = body

    def entry(self, request: relay_pb2.ReadEntryRequest) -> relay_pb2.ReadEntryReply:
        """Return an entry of this node's log."""
        return entry_reply(self._entry(request.index, request.term))

    def bodies(self, request: relay_pb2.ReadBodiesRequest) -> relay_pb2.ReadBodiesReply:
        """Return bodies that this node stores."""
        reply, size = relay_pb2.ReadBodiesReply(), 0
        for wanted in request.places[:BODIES_PER_CALL_MAX]:
            place = BodyPlace(
                wanted.index, wanted.offset, wanted.length, wanted.ordinal, wanted.crc32
            )
            packet = self._body(place) or b""
            reply.packets.append(packet)
            size += len(packet)
            if size >= REPLY_MAX_BYTES:
                break
        return reply


def entry_reply(found: Entry | None) -> relay_pb2.ReadEntryReply:
    """Return the answer that gives an entry, or says that there is none."""
    if found is None:
        return relay_pb2.ReadEntryReply()
    return relay_pb2.ReadEntryReply(is_whole=True, kind=found.kind, data=found.data)


class Answers(NamedTuple):
    """Answers of the other members about an entry."""

    entries: Sequence[Entry]
    """What they gave, most frequent first; they may differ."""
    counts: Sequence[int]
    """How many members gave each."""
    is_complete: bool
    """Whether all other members answered."""


class PeerCopies:
    """What other members give."""

    def __init__(self, channels: Channels, others: Callable[[], Sequence[str]]) -> None:
        """`others`: names of the other members."""
        self._channels = channels
        self._others = others
        self._log = LimitedLog(logger, time.monotonic)

    async def entry(self, index: int, term: int) -> Answers:
        """Ask every member for an entry."""
        found: dict[Entry, int] = {}
        silent = 0
        for name in self._others():
            request = relay_pb2.ReadEntryRequest(index=index, term=term)
            try:
                stub = await self._channels.stub(name)
                reply = await reply_to(stub.ReadEntry, request, timeout_s=ANSWER_MAX_S)
            except (Unreachable, grpc.aio.AioRpcError) as error:
                self._missed(name, error)
                silent += 1
                continue
            if reply.is_whole and reply.kind in _KINDS:
                entry = Entry(index, term, EntryKind(reply.kind), reply.data)
                found[entry] = found.get(entry, 0) + 1
        ranked = sorted(found.items(), key=lambda item: -item[1])
        return Answers([e for e, _ in ranked], [count for _, count in ranked], silent == 0)

    async def entries(self, index: int, term: int) -> Sequence[Entry]:
        """Return what members have of an entry."""
        return (await self.entry(index, term)).entries

    async def bodies(self, places: Sequence[BodyPlace]) -> tuple[dict[BodyPlace, bytes], bool]:
        """Ask member after member for bodies; return those that are whole, and whether all members
        that were needed answered.
        """
        found: dict[BodyPlace, bytes] = {}
        is_complete = True
        for name in self._others():
            missing = [place for place in places if place not in found]
            if not missing:
                break
            try:
                async for place, packet in self._bodies_of(name, missing):
                    found[place] = packet
            except (Unreachable, grpc.aio.AioRpcError) as error:
                self._missed(name, error)
                is_complete = False
        return found, is_complete or len(found) == len(places)

    async def _bodies_of(
        self, name: str, places: Sequence[BodyPlace]
    ) -> AsyncIterator[tuple[BodyPlace, bytes]]:
        stub = await self._channels.stub(name)
        at = 0
        while at < len(places):
            asked = places[at : at + BODIES_PER_CALL_MAX]
            request = relay_pb2.ReadBodiesRequest(places=map(_encoded, asked))
            reply = await reply_to(stub.ReadBodies, request, timeout_s=ANSWER_MAX_S)
            for place, packet in zip(asked, reply.packets, strict=False):
                if is_body(packet, place):
                    yield place, packet
                elif packet:
                    self._log.warning(
                        "other_body",
                        "a member gave other bytes for a body than were stored: scrub it, too",
                        member=name,
                        entry=place.index,
                    )
            if not reply.packets:
                return
            at += len(reply.packets)

    def _missed(self, name: str, error: BaseException) -> None:
        self._log.warning("silent", "a member does not give its copies", member=name, error=error)


def _encoded(place: BodyPlace) -> relay_pb2.BodyPlace:
    return relay_pb2.BodyPlace(
        index=place.index,
        offset=place.offset,
        length=place.length,
        ordinal=place.ordinal,
        crc32=place.crc32,
    )


_KINDS: Final = frozenset(map(int, EntryKind))
