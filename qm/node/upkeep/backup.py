"""A copy of this node's state as a stream to a reader, while the node goes on.

One at a time: a copy pins blob files and the log after it. A reader that stalls loses it, so that a
hung terminal cannot fill a node's disk.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from qm.api.gate.operations import BackupPart, NotOffered
from qm.node.membership.status import VERSION
from qm.node.replica.replicated_store import ReplicatedStore
from qm.observe.metrics import Metrics
from qm.store.backup import MANIFEST_FILE, BackupHead, encode_backup
from qm.store.bodies.body_places import BodyDamaged
from qm.store.digest import digest_bytes
from qm.store.signing import Signer
from qm.store.snapshot import SourceUnreadable
from raft.log.segment import may_pass
from raft.machine import SnapshotSource

logger = logging.getLogger(__name__)

PART_BYTES: Final = 1 << 20
STALL_MAX_S: Final = 60.0
"""Between two parts that a reader takes."""


class Backups:
    """Makes backups. Create and use it in the node's event loop."""

    def __init__(
        self,
        replicated: ReplicatedStore,
        metrics: Metrics,
        signer: Callable[[], Signer | None],
        stall_max_s: float = STALL_MAX_S,
    ) -> None:
        """`signer`: returns what signs; called in a thread."""
        self._replicated = replicated
        self._signer = signer
        self._ended = metrics.counter("quorate_backups_total")
        self._stall_max_s = stall_max_s
        self._is_running = False

    async def parts(self) -> AsyncGenerator[BackupPart, None]:
        """Yield the state as it is now, in order. Raises NotOffered."""
        machine = self._replicated.machine
        if machine.is_installing:
            raise NotOffered("a snapshot is replacing this node's state: ask another node")
        if self._is_running:
            raise NotOffered("this node makes a backup already: wait, or ask another node")
        self._is_running = True
        result = "broken_off"
        try:
            # Flush in a thread, so that the copy need not do it in the event loop.
            await asyncio.to_thread(machine.flush)
            async with aclosing(self._read()) as parts:
                async for part in parts:
                    yield part
            result = "done"
        except OSError as error:
            if not may_pass(error):
                raise
            text = f"this node lacks space or descriptors: ask another node ({error})"
            raise NotOffered(text) from error
        except (BodyDamaged, SourceUnreadable) as error:
            result = "damaged"
            logger.warning("no backup of this node: %s", error)
            raise NotOffered(
                f"this node cannot read what it would back up: ask another node, or make it again"
                f" once `qm cluster scrub` has restored it ({error})"
            ) from None
        finally:
            self._is_running = False
            self._ended.labels(result=result).inc()

    async def _read(self) -> AsyncGenerator[BackupPart, None]:
        head = self._head()
        pinned = self._replicated.machine.pin()
        making = asyncio.ensure_future(asyncio.to_thread(pinned.source, proves_bodies=True))
        try:
            source = await asyncio.shield(making)
        except BaseException:
            await asyncio.wait([making])  # it reads what `close` removes
            await asyncio.to_thread(pinned.close)
            raise
        reading = _Reading(source, self._stall_max_s)
        try:
            total, offset, sha256 = reading.source.size_bytes(), 0, hashlib.sha256()
            while part := await reading.read(offset):
                offset += len(part)
                sha256.update(part)
                yield BackupPart(part, total, head)
            manifest = encode_backup(head, offset, sha256.hexdigest())
            signer = await asyncio.to_thread(self._signer)
            signature = signer.sign(MANIFEST_FILE, manifest) if signer is not None else b""
            yield BackupPart(b"", total, head, manifest, signature)
        finally:
            await reading.close()

    def _head(self) -> BackupHead:
        replicated = self._replicated
        applied = replicated.machine.store.applied
        counters = replicated.view.counters()
        return BackupHead(
            cluster=replicated.config.cluster.hex(),
            index=applied.index,
            term=applied.term,
            digest=digest_bytes(applied.digest).hex(),
            state_version=counters.apply_version,
            created_ms=counters.clock_ms,
            source=replicated.node,
            build=VERSION,
        )


class _Reading:
    """A source that is released when it is not read for too long."""

    def __init__(self, source: SnapshotSource, stall_max_s: float) -> None:
        self.source = source
        self._stall_max_s = stall_max_s
        self._is_closed = False
        self._arm()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stall_max_s, self._stalled)

    def _stalled(self) -> None:
        logger.warning("a backup was not read for %d s: it is aborted", self._stall_max_s)
        self._is_closed = True
        self.source.close()

    async def read(self, offset: int) -> bytes:
        """Return the next bytes, b"" at the end. Raises NotOffered after a stall."""
        if self._is_closed:
            raise NotOffered(
                f"this backup was not read for {self._stall_max_s:.0f} s: make it again, to a"
                " faster disk"
            )
        self._timer.cancel()
        part = await asyncio.to_thread(self.source.read, offset, PART_BYTES)
        self._arm()
        return part

    async def close(self) -> None:
        """Release the source."""
        self._timer.cancel()
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self.source.close)
