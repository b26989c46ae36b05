"""Examines messages in the order of each session, and lets other sessions go on meanwhile.

What arrives on a session after a message that is being examined waits for it. Short examinations
are made in the event loop, a slice of time for each session; long ones in a few threads. Failures
and fresh session keys are rationed for each address: who sends only bad signatures waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Final, Protocol

from zlib_ng.zlib_ng import crc32

from qm.cluster.cluster import Unavailable
from qm.cluster.examining import Examined
from qm.edge.batches import Intake, PacketRun
from qm.edge.edge_metrics import EdgeMetrics
from qm.edge.limits import (
    EXAMINATION_SLICE_S,
    EXAMINATION_THREADS_COUNT,
    EXAMINED_HERE_MAX_BYTES,
    RUN_FACTS_MAX_COUNT,
)
from qm.edge.security.aged_cache import AgedCache
from qm.edge.security.allowances import Allowances
from qm.edge.security.examination import Finding, examine
from qm.edge.security.examiner import Examiner, KeysSealed, Question
from qm.model.values.commands import Facts, SignatureFact
from qm.security.directory import EMPTY_DIRECTORY, Directory
from qm.security.own_keys import NO_KEYS, OwnKeys
from qm.session import CloseReason
from qm.wire.packets.user_message import UserMessage, parse_user_message

_FAILURES: Final = frozenset({SignatureFact.INVALID, SignatureFact.UNVERIFIED})
Secured = dict[int, UserMessage]
"""k -> packet k of a chunk, where it has a SecurityHeader."""


class Waiting(Protocol):
    """The intake whose packets are examined."""

    @property
    def is_open(self) -> bool:
        """False once the session is gone."""

    def examined(self, runs: Sequence[PacketRun]) -> None:
        """What was examined goes on; so does what waited behind it."""


class Verification:
    """Examines for all sessions of an edge."""

    def __init__(
        self,
        metrics: EdgeMetrics,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        directory: Directory = EMPTY_DIRECTORY,
        keys: OwnKeys = NO_KEYS,
    ) -> None:
        """`now_ms`: cluster time."""
        self.metrics: Final = metrics
        self.loop: Final = loop
        self.now_ms: Final = now_ms
        self.examiner: Final = Examiner(directory, keys)
        self.allowances: Final = Allowances()
        self._threads: Executor | None = None
        self._timers: dict[int, asyncio.TimerHandle] = {}

    @property
    def threads(self) -> Executor:
        """Where long examinations are made."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(EXAMINATION_THREADS_COUNT, "examination")
        return self._threads

    def begin(self, chunk: "Chunk", waiting: Waiting) -> list[PacketRun] | None:
        """Examine a chunk; return its runs, or None if `Waiting.examined` is called later."""
        work = _Work(self, chunk, waiting)
        work.go_on()
        return work.runs

    async def examine(self, packet: bytes, sender: str) -> Examined:
        """Examine a sound packet that came over no session; see `Examining`."""
        plain = Facts(0, b"", "", ())
        message, _ = parse_user_message(packet, 0, len(packet))
        if message.security is None:
            return Examined(packet, plain)
        wait_s = self.allowances.wait_s(sender, self.loop.time())
        while wait_s:
            self.metrics.rationed(sender)
            await asyncio.sleep(wait_s)
            wait_s = self.allowances.wait_s(sender, self.loop.time())
        now = self.loop.time()
        try:
            question = self.examiner.question(packet, message, now)
        except KeysSealed as error:
            raise Unavailable(str(error)) from None
        if question.subject.needs_private_key:
            self.allowances.spend(sender, now)
        if _is_long(question, message):
            finding = await self.loop.run_in_executor(self.threads, examine, question.subject)
        else:
            finding = examine(question.subject)
        return Examined(finding.raw, self.facts(question, finding, plain, sender))

    def facts(self, question: Question, finding: Finding, plain: Facts, sender: str) -> Facts:
        """Return what was found as facts, and count it; `sender`: address or client."""
        now, now_s = self.loop.time(), self.now_ms() // 1000
        facts = self.examiner.facts(question, finding, plain, now, now_s)
        self.keep_clean()
        if facts.decryption_failed or facts.signature in _FAILURES:
            self.allowances.spend(sender, now)
        self.metrics.verified(facts, sender)
        return facts

    def keep_clean(self) -> None:
        """Start the clean-up timers of caches that are in use (3.1.2.10, 3.1.2.13)."""
        for cache in (self.examiner.user_certificates, self.examiner.symmetric_keys):
            if len(cache) and id(cache) not in self._timers:
                self._expect(cache, cache.first_cleanup_at(self.loop.time()))

    def _expect(self, cache: AgedCache, at: float) -> None:  # type: ignore[type-arg]
        self._timers[id(cache)] = self.loop.call_at(at, self._clean, cache)

    def _clean(self, cache: AgedCache) -> None:  # type: ignore[type-arg]
        del self._timers[id(cache)]
        at = cache.clean(self.loop.time())
        if at is not None:
            self._expect(cache, at)

    def stop(self) -> None:
        """Begin nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


class Chunk:
    """Sound packets of one session that were read together, some of them with a SecurityHeader."""

    __slots__ = ("block", "checksums", "facts", "first_position", "intake", "offsets", "secured")

    def __init__(
        self,
        intake: Intake,
        first_position: int,
        block: bytes,
        offsets: list[int],
        checksums: list[int],
        secured: Secured,
    ) -> None:
        self.intake = intake
        self.first_position = first_position
        self.block = block
        self.offsets = offsets
        self.checksums = checksums
        self.secured = secured

    def runs(self, packets: dict[int, bytes], facts: dict[int, Facts]) -> list[PacketRun]:
        """Return the packets as runs; `packets` and `facts` say what differs from the chunk."""
        pieces: list[bytes] = []
        for k, (start, stop) in enumerate(pairwise(self.offsets)):
            changed = packets.get(k)
            if changed is None:
                pieces.append(self.block[start:stop])
            else:
                pieces.append(changed)
                self.checksums[k] = crc32(changed)
        return [self._run(pieces, facts, begin, end) for begin, end in _parts(len(pieces), facts)]

    def _run(
        self, pieces: Sequence[bytes], facts: dict[int, Facts], begin: int, end: int
    ) -> PacketRun:
        offsets = [0]
        for piece in pieces[begin:end]:
            offsets.append(offsets[-1] + len(piece))
        return PacketRun(
            self.intake,
            self.first_position + end - 1,
            b"".join(pieces[begin:end]),
            offsets,
            self.checksums[begin:end],
            {k - begin: found for k, found in facts.items() if begin <= k < end},
        )


def _parts(count: int, facts: dict[int, Facts]) -> list[tuple[int, int]]:
    """Return where runs begin and end, so that none has too many different facts."""
    bounds, different = [0], set[Facts]()
    for k, found in facts.items():
        different.add(found)
        if len(different) > RUN_FACTS_MAX_COUNT:
            bounds.append(k)
            different = {found}
    return list(pairwise((*bounds, count)))


class _Work:
    """One chunk in hand."""

    __slots__ = ("_chunk", "_facts", "_is_later", "_left", "_packets", "_verification", "_waiting",
                 "runs")  # fmt: skip

    def __init__(self, verification: Verification, chunk: Chunk, waiting: Waiting) -> None:
        self._verification = verification
        self._chunk = chunk
        self._waiting = waiting
        self._left = list(reversed(chunk.secured.items()))
        self._packets: dict[int, bytes] = {}
        self._facts: dict[int, Facts] = {}
        self._is_later = False
        self.runs: list[PacketRun] | None = None

    def go_on(self) -> None:
        """Examine what is left, until something must be waited for."""
        verification, chunk = self._verification, self._chunk
        loop, plain = verification.loop, chunk.intake.facts.plain
        begun = perf_counter()  # the loop's own time stands still within an iteration
        while self._left:
            if not self._waiting.is_open:
                return
            now, started = loop.time(), perf_counter()
            if started - begun > EXAMINATION_SLICE_S:
                self._pause(0.0)
                return
            wait_s = verification.allowances.wait_s(plain.peer_address, now)
            if wait_s:
                verification.metrics.rationed(plain.peer_address)
                self._pause(wait_s)
                return
            k, message = self._left.pop()
            raw = chunk.block[chunk.offsets[k] : chunk.offsets[k + 1]]
            try:
                question = verification.examiner.question(raw, message, now)
            except (KeysSealed, Unavailable) as error:
                self._refuse(error)
                return
            if question.subject.needs_private_key:
                verification.allowances.spend(plain.peer_address, now)
            if _is_long(question, message):
                self._is_later = True
                future = loop.run_in_executor(verification.threads, examine, question.subject)
                future.add_done_callback(partial(self._examined, k, question))
                return
            self._take(k, question, examine(question.subject))
            verification.metrics.examined(perf_counter() - started)
        self._finish()

    def _pause(self, wait_s: float) -> None:
        self._is_later = True
        loop = self._verification.loop
        if wait_s:
            loop.call_later(wait_s, self.go_on)
        else:
            loop.call_soon(self.go_on)

    def _examined(self, k: int, question: Question, future: "asyncio.Future[Finding]") -> None:
        """A thread is done with a message."""
        if future.cancelled() or not self._waiting.is_open:
            return
        error = future.exception()
        if error is not None:
            self._chunk.intake.owner.close(CloseReason.MALFORMED_PACKET, "it cannot be examined")
            raise error
        self._take(k, question, future.result())
        self.go_on()

    def _take(self, k: int, question: Question, finding: Finding) -> None:
        plain = self._chunk.intake.facts.plain
        facts = self._verification.facts(question, finding, plain, plain.peer_address)
        if facts is not plain:
            self._facts[k] = facts
        if finding.raw is not question.subject.raw:
            self._packets[k] = finding.raw

    def _refuse(self, error: Exception) -> None:
        """Leave it to another node, or to later."""
        self._chunk.intake.owner.close(CloseReason.STOPPED, str(error))

    def _finish(self) -> None:
        self.runs = self._chunk.runs(self._packets, self._facts)
        if self._is_later:
            self._waiting.examined(self.runs)


def _is_long(question: Question, message: UserMessage) -> bool:
    is_fresh = question.subject.needs_private_key
    return is_fresh or len(message.properties.message_body) > EXAMINED_HERE_MAX_BYTES
