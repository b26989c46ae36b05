"""Repairs a log that was refused at the start, with entries of the other members."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from qm.node.replica.replicated_store import GROUP
from raft.founding import LOG_DIRECTORY
from raft.log.files import Directory
from raft.log.recovery import LogDamaged
from raft.log.repair import repair, whole_entry
from raft.types import Entry

logger = logging.getLogger(__name__)

ASK_EVERY_S: Final = 1.0
ASK_MAX_S: Final = 60.0
"""The others may be starting, too. Afterwards the start is refused."""
SEARCHES_MAX: Final = 2
"""Searches in a refused log at a time; further ones wait."""


class EntrySource(Protocol):
    """Gives entries of a log (`qm.node.relay.copies.PeerCopies`)."""

    async def entries(self, index: int, term: int) -> Sequence[Entry]:
        """Return what the other members have of an entry; they may differ."""


class RefusedLog:
    """A log that is refused, read for members that lack an entry of it."""

    def __init__(self, raft_folder: Directory) -> None:
        self._folder = raft_folder.subdirectory(LOG_DIRECTORY)
        self._searches = asyncio.Semaphore(SEARCHES_MAX)

    async def entry(self, index: int, term: int) -> Entry | None:
        """Return an entry if it is whole there."""
        async with self._searches:
            return await asyncio.to_thread(whole_entry, self._folder, GROUP, index, term)


async def repair_log(raft_folder: Directory, damaged: LogDamaged, source: EntrySource) -> None:
    """Repair what made the log refused; then open it again, which may find more. Raises `damaged`
    if it cannot be repaired.
    """
    folder = raft_folder.subdirectory(LOG_DIRECTORY)
    logger.warning("the log is refused and will be repaired: %s", damaged)
    wanted = await asyncio.to_thread(repair, folder, GROUP, damaged)
    if wanted is None:
        return
    loop = asyncio.get_running_loop()
    end = loop.time() + ASK_MAX_S
    while True:
        for entry in await source.entries(wanted.index, wanted.term):
            if wanted.is_given_by(entry.kind, entry.data):
                await asyncio.to_thread(wanted.write, folder, entry.data)
                logger.warning("entry %d of the log was given by another member", wanted.index)
                return
        if loop.time() >= end:
            raise damaged
        await asyncio.sleep(ASK_EVERY_S)
