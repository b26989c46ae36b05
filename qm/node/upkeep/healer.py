"""Restores what is damaged on this node from what other members give.

A record of the log is written again in its place. A body in a blob file is written to another place
and its row changed, as when bodies move. Where no member has the entry of a damaged record any
more, the bodies that it brought are asked for instead, and the log is dropped up to there.

Nothing counts as healed before its sync has ended, the state that names its place is durable, and
the bytes were read back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec

from qm.names.guid import guid_text
from qm.node.relay.copies import PeerCopies
from qm.node.replica.replicated_store import ReplicatedStore
from qm.node.upkeep.housekeeping import Housekeeping
from qm.observe.metrics import Metrics
from qm.store.bodies.body_places import BodyPlace
from qm.store.bodies.body_scan import START, Cursor, KnownBody, page
from raft.log.files import FatalDiskError
from raft.log.scrub import CannotRepair, DamagedRange
from raft.log_view import LogViewError

logger = logging.getLogger(__name__)

ALARM_DAMAGED: Final = "damaged"
ALARM_DAMAGED_EVERYWHERE: Final = "damaged_everywhere"
KNOWN_MAX: Final = 10_000
"""Damaged records and bodies that are remembered until they are healed; scrubbing finds more."""
HEAL_AGAIN_S: Final = 10.0
"""Between two attempts on what no member gave."""
LOST_AGAIN_S: Final = 600.0
"""Between two readings of all rows for the bodies of an entry that is lost: what it takes to heal
is that the last message of the entry leaves."""
SCAN_ROWS: Final = 1_024
NAMED_MAX: Final = 20
"""Messages that an alarm names."""
WAIT_TO_MOVE_S: Final = 0.05
WAITS_TO_MOVE_MAX: Final = 100


class RecordDamage(msgspec.Struct, frozen=True):
    """A damaged record of an entry in the log."""

    index: int


class BodyDamage(msgspec.Struct, frozen=True):
    """A damaged or missing copy of a body."""

    index: int
    ordinal: int
    place: BodyPlace


class RangeDamage(msgspec.Struct, frozen=True):
    """Damage in the log that is not of an entry."""

    found: DamagedRange


Damage: TypeAlias = RecordDamage | BodyDamage | RangeDamage


class Healer:
    """What is damaged on this node, and its restoration. One thing is restored at a time."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        peers: PeerCopies,
        keeping: Housekeeping,
        metrics: Metrics,
        on_event: Callable[[str, str], None],
        on_alarm: Callable[[str, str], None],
    ) -> None:
        """`on_event` and `on_alarm` take a name and a text."""
        self._replicated = replicated
        self._peers = peers
        self._keeping = keeping
        self._found = metrics.counter("quorate_damage_found_total")
        self._healed = metrics.counter("quorate_damage_healed_total")
        self._gauge = metrics.gauge("quorate_damage_left")
        self._on_event = on_event
        self._on_alarm = on_alarm
        self.found_count = 0
        """Damaged records and bodies found since the node started."""
        self._known: dict[Damage, float] = {}
        """And when it may be tried again (loop time)."""
        self._told: dict[Damage, float] = {}
        """What an alarm said that no member has, and when rows may be read for it again (loop
        time)."""
        self._is_durable = True
        """Whether the state on the disk has the places of all bodies that were restored."""
        self._lock = asyncio.Lock()

    @property
    def known(self) -> list[str]:
        """Return what is damaged, as far as it is known."""
        return [_text(damage) for damage in self._known]

    @property
    def is_whole(self) -> bool:
        """Whether no damage is known."""
        return not self._known

    def found(self, damage: Iterable[Damage]) -> None:
        """Note what was found; the first of it is an alarm."""
        fresh = [one for one in damage if one not in self._known]
        fresh = fresh[: KNOWN_MAX - len(self._known)]
        if not fresh:
            return
        for one in fresh:
            self._known[one] = 0.0
            self.found_count += 1
            self._found.labels(kind=_kind(one)).inc()
            logger.warning("damaged on this node: %s", _text(one))
        self._gauge.set(len(self._known))
        more = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
        self._on_alarm(ALARM_DAMAGED, f"{_text(fresh[0])}{more}: restored from another member")

    def take_suspects(self) -> None:
        """Note what readers of bodies, and moves of them, found."""
        bodies = self._replicated.machine.store.bodies
        suspects, bodies.suspects = bodies.suspects, {}
        found: list[Damage] = []
        for (index, ordinal), place in suspects.items():
            if not self._replicated.driver.scrub.is_whole(index):
                found.append(RecordDamage(index))
            elif place is not None and bodies.is_damaged(place):
                found.append(BodyDamage(index, ordinal, place))
        self.found(found)

    async def heal(self) -> None:
        """Restore what is known to be damaged and due. Raises OSError without space."""
        due = [one for one, again in self._known.items() if again <= _now()]
        if due:
            async with self._lock:
                await self._heal(due)

    async def restore(self, place: BodyPlace) -> bool:
        """Restore one body that is wanted now; return whether it can be read here."""
        machine = self._replicated.machine
        if machine.is_installing:
            return False
        try:
            self.take_suspects()
            async with self._lock:
                wanted = [one for one in self._known if not isinstance(one, RangeDamage)]
                await self._heal([one for one in wanted if one.index == place.index])
        except FatalDiskError:
            raise
        except OSError as error:  # no space, or a read that failed
            logger.warning("nothing is restored here now: %s", error)
        # A snapshot may have come while others were asked.
        return not machine.is_installing and machine.store.bodies.copy(place) is not None

    async def _heal(self, due: Sequence[Damage]) -> None:
        for one in due:
            if self._replicated.machine.is_installing:
                return
            self._known[one] = _now() + HEAL_AGAIN_S
            if isinstance(one, RecordDamage):
                await self._heal_record(one)
            elif isinstance(one, RangeDamage):
                await self._heal_range(one)
        await self._heal_bodies([one for one in due if isinstance(one, BodyDamage)])
        await self._make_durable()
        self._forget_whole(due)

    def _forget_whole(self, due: Iterable[Damage]) -> None:
        whole = [one for one in due if one in self._known and self._is_whole_again(one)]
        for one in whole:
            del self._known[one]
            self._told.pop(one, None)
            self._healed.labels(kind=_kind(one)).inc()
            self._on_event("healed", _text(one))
            logger.warning("restored on this node: %s", _text(one))
        self._gauge.set(len(self._known))

    def _is_whole_again(self, damage: Damage) -> bool:
        replicated = self._replicated
        if replicated.machine.is_installing:
            return False
        if isinstance(damage, RecordDamage):
            return replicated.driver.scrub.is_whole(damage.index)
        if isinstance(damage, RangeDamage):
            return not replicated.driver.scrub.holds(damage.found)
        return not replicated.machine.store.bodies.is_damaged(damage.place)

    # Records of the log

    async def _heal_record(self, damage: RecordDamage) -> None:
        scrub, index = self._replicated.driver.scrub, damage.index
        term = scrub.term(index)
        if term is None or scrub.is_whole(index):
            return
        if await self._correct(scrub.range_of(index)):
            return
        answers = await self._peers.entry(index, term)
        for entry, count in zip(answers.entries, answers.counts, strict=True):
            try:
                sync = scrub.repair(entry, is_confirmed=count > 1)
            except CannotRepair as error:
                logger.warning("entry %d is not repaired: %s", index, error)
                continue
            except LogViewError:
                return  # it has been dropped since
            await asyncio.to_thread(self._replicated.machine.make_durable, sync.run)
            return
        if answers.is_complete and self._told.get(damage, 0.0) <= _now():
            await self._do_without(damage)

    async def _do_without(self, damage: RecordDamage) -> None:
        """Take the bodies of an entry that no member gives from wherever they are, so that the log
        can be dropped up to there.
        """
        machine, scrub = self._replicated.machine, self._replicated.driver.scrub
        known = await self._bodies_of({damage.index})
        if machine.is_installing:
            return
        places = list({body.place.ordinal: body.place for body in known}.values())
        packets = {place: machine.store.bodies.copy(place) for place in places}
        missing = [place for place, packet in packets.items() if packet is None]
        given, is_complete = await self._peers.bodies(missing)
        if self._replicated.machine.is_installing:
            return
        whole = {p.ordinal: w for p, w in {**packets, **given}.items() if w is not None}
        if places and len(whole) == len(places):
            await self._restore(damage.index, whole)
        lost = [body for body in known if body.place.ordinal not in whole]
        if lost and is_complete:
            self._tell_lost(damage, lost)
        elif not lost:
            await self._make_durable()
            with suppress(LogViewError):  # it could be dropped since its bodies were copied
                scrub.give_up(scrub.last_index_with(damage.index))

    async def _heal_range(self, damage: RangeDamage) -> None:
        """Correct damage that is not of an entry, or have the log dropped up to it: no other member
        has it.
        """
        scrub = self._replicated.driver.scrub
        if scrub.holds(damage.found) and not await self._correct(damage.found):
            scrub.give_up(scrub.last_index_of(damage.found))

    async def _correct(self, found: DamagedRange) -> bool:
        """Correct a flipped bit; return whether that was it."""
        sync = self._replicated.driver.scrub.correct(found)
        if sync is None:
            return False
        await asyncio.to_thread(self._replicated.machine.make_durable, sync.run)
        return True

    # Bodies

    async def _heal_bodies(self, damage: Sequence[BodyDamage]) -> None:
        bodies = self._replicated.machine.store.bodies
        due = {one.place: one for one in damage if bodies.is_damaged(one.place)}
        if not due:
            return
        given, is_complete = await self._peers.bodies(list(due))
        by_entry: dict[int, dict[int, bytes]] = {}
        for place, packet in given.items():
            by_entry.setdefault(place.index, {})[place.ordinal] = packet
        for index, packets in by_entry.items():
            await self._restore(index, packets)
        lost = [one for place, one in due.items() if place not in given and one not in self._told]
        if lost and is_complete:
            known = await self._bodies_of({one.index for one in lost})
            for one in lost:
                self._tell_lost(one, [body for body in known if body.place == one.place])

    async def _restore(self, index: int, packets: Mapping[int, bytes]) -> None:
        for _ in range(WAITS_TO_MOVE_MAX):
            self._is_durable = False
            if await self._keeping.restore(index, packets):
                return
            await asyncio.sleep(WAIT_TO_MOVE_S)

    async def _make_durable(self) -> None:
        if not self._is_durable:
            await self._keeping.flush_now()
            self._is_durable = True

    async def _bodies_of(self, indexes: set[int]) -> list[KnownBody]:
        """Return the bodies of entries that the state refers to; it reads all rows, in steps."""
        found: list[KnownBody] = []
        cursor: Cursor | None = START
        while cursor is not None and not self._replicated.machine.is_installing:
            cursor, bodies = page(self._replicated.machine.store.state, cursor, SCAN_ROWS)
            found += [body for body in bodies if body.place.index in indexes]
            await asyncio.sleep(0)
        return found

    def _tell_lost(self, damage: Damage, lost: Sequence[KnownBody]) -> None:
        is_told = damage in self._told
        self._told[damage] = _now() + LOST_AGAIN_S
        if is_told:
            return
        names = sorted({_message(body) for body in lost})
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        text = f"no member has a whole copy of {', '.join(names[:NAMED_MAX])}{more}"
        logger.error("%s", text)
        self._on_alarm(ALARM_DAMAGED_EVERYWHERE, text)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _kind(damage: Damage) -> str:
    return "body" if isinstance(damage, BodyDamage) else "record"


def _text(damage: Damage) -> str:
    if isinstance(damage, RecordDamage):
        return f"the record of entry {damage.index}"
    if isinstance(damage, RangeDamage):
        return f"bytes {damage.found.begin} to {damage.found.end} of {damage.found.segment.name}"
    return f"body {damage.ordinal} of entry {damage.index}"


def _message(body: KnownBody) -> str:
    """Return a message's identifier as MSMQ's tools print it."""
    if not body.source_queue_manager:
        return f"body {body.place.ordinal} of entry {body.place.index}"
    return f"{guid_text(body.source_queue_manager)}\\{body.message_ordinal}"
