"""What a replica owes that was rolled back (raft.core.rollback): kept beside the log, and told.

Whoever told it that it lacks entries may be gone when it starts again; without this file it would
vote then.
"""

from raft.core.core import Core
from raft.core.rollback import RolledBack
from raft.identity import IdentityRefused
from raft.log.checked_file import read_checked, remove_checked, replace_checked
from raft.log.files import Directory
from raft.log.segment import may_pass
from raft.step import AlarmKind
from raft.types import NodeId
from raft.watch.disk import Alarms, DiskWatch, Work

DEBT_FILE = "owed"
_MAGIC = b"RAFTOWE1"
_INDEX_BYTES = 8


class Debt:
    """Keeps on disk what one replica owes, and raises alarms about replicas that were set back, or
    whose log is another one.
    """

    def __init__(
        self, directory: Directory, node: NodeId, core: Core, alarms: Alarms, disk: DiskWatch
    ) -> None:
        """Tell `core` what an earlier process found. Raises IdentityRefused if that cannot be read,
        OSError.
        """
        self._directory = directory
        self._node = node
        self._core = core
        self._alarms = alarms
        self._disk = disk
        self._on_disk = _load(directory)
        core.owe(self._on_disk)

    def look(self, now: int) -> None:
        """Keep what has changed. `now` is the replica's count of ticks. Raises FatalDiskError."""
        owed = self._core.owed
        if owed != self._on_disk and not self._disk.is_put_off(Work.WRITE, now):
            try:
                _store(self._directory, owed)
            except OSError as error:
                if not may_pass(error):
                    raise
                self._disk.note_full(Work.WRITE, error, now)
            else:
                self._on_disk = owed
        for found in self._core.take_rolled_back():
            self._tell(found)
        counters = self._core.counters
        if counters.id_reused:
            text = f"{self._node} voted before this log existed: replace it in the group"
            self._alarms.tell_once(AlarmKind.ID_REUSED, text)
        if counters.contradicted:
            text = (
                f"a leader has other entries than those that are committed on {self._node}, which"
                " takes none of them: two clusters have one identity, or a node leads on an older"
                " copy of its disk"
            )
            self._alarms.tell_once(AlarmKind.CONTRADICTED, text)

    def _tell(self, found: RolledBack) -> None:
        lacked = f"entries {found.last_index + 1} to {found.owed}, which it had acknowledged"
        if found.node == self._node:
            text = (
                f"this node lacks {lacked}: its data is an older copy. It neither votes nor leads"
                " until it has got them back from the leader; if there is none that has them, bring"
                " back the nodes that do, or replace this one"
            )
            self._alarms.tell(AlarmKind.ROLLED_BACK, text)
        else:
            text = f"{found.node} lacks {lacked}: its data is an older copy. It gets them again"
            self._alarms.tell(AlarmKind.PEER_ROLLED_BACK, text)


def _load(directory: Directory) -> int:
    if DEBT_FILE not in directory.names():
        return 0
    body = read_checked(directory, DEBT_FILE, _MAGIC, len(_MAGIC) + 4 + _INDEX_BYTES)
    if body is None or len(body) != _INDEX_BYTES:
        raise IdentityRefused(
            f"the file {DEBT_FILE!r} beside the log is damaged: this node lacked entries that it"
            " had acknowledged, and how many is not known; empty its folder and join under the next"
            " incarnation"
        )
    return int.from_bytes(body, "little")


def _store(directory: Directory, index: int) -> None:
    if index:
        replace_checked(directory, DEBT_FILE, _MAGIC, index.to_bytes(_INDEX_BYTES, "little"))
    else:
        forget(directory)


def forget(directory: Directory) -> None:
    """Remove the file durably, if there is one: nothing is owed to a new group. Raises OSError."""
    remove_checked(directory, DEBT_FILE)
