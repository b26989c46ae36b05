"""Checkpoints: whole states that nodes occasionally put into the archive.

A replay is sequential, but the stretches between checkpoints can be replayed independently, and the
one that ends at a checkpoint proves it (spark/design.md). Checkpoints are claims of the node that
wrote them, and nothing is lost without them.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from blake3 import blake3

from qm.archive.destination import Destination
from qm.archive.limits import LOG_PER_BUSY_STATE, LOG_PER_STATE, LOG_PER_STATE_MIN
from qm.archive.ranges import ExportStopped, Identity
from qm.archive.source import PinnedState, StateStream
from qm.store.backup import STATE_FILE
from qm.store.database import DatabaseError
from qm.store.digest import digest_bytes
from qm.store.snapshot import SourceUnreadable

CHECKPOINTS_FOLDER: Final = "checkpoints"
CHECKPOINT_NAME: Final = "checkpoint.json"
CHECKPOINT_SCHEMA: Final = 2
_DIGITS: Final = 20
_READ_BYTES: Final = 1 << 20


class CheckpointError(ValueError):
    """The bytes are not a checkpoint that this build understands."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `checkpoint.json`, which is written last: with it the checkpoint exists."""

    schema: int
    cluster: str
    """Hexadecimal."""
    node: str
    """name.incarnation of the writer."""
    group: int
    index: int
    """Index of the last entry that the state contains."""
    term: int
    digest: str
    """Digest of the state, hexadecimal."""
    stream_bytes: int
    stream_sha256: str = ""
    """Hexadecimal, schema 1 only."""
    stream_blake3: str = ""
    """Hexadecimal, later schemas."""


_DECODER: Final = msgspec.json.Decoder(Checkpoint)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode `checkpoint.json`. Raises CheckpointError."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise CheckpointError(str(error)) from error


def checkpoint_folder(cluster: str, index: int, node: str) -> str:
    """Return a checkpoint's folder within the archive; sorting names sorts indexes."""
    return f"{cluster}/{CHECKPOINTS_FOLDER}/{index:0{_DIGITS}}-{node}"


def is_of_folder(checkpoint: Checkpoint, folder: str) -> bool:
    """Return whether a checkpoint is where it was written, and not a copy elsewhere."""
    return checkpoint_folder(checkpoint.cluster, checkpoint.index, checkpoint.node) == folder


def folder_index(name: str) -> int | None:
    """Return the index in a checkpoint's folder name; None for any other name."""
    digits, separator, _ = name.partition("-")
    return int(digits) if separator and digits.isdecimal() else None


def find_newest(destination: Destination, identity: Identity) -> Checkpoint | None:
    """Return the newest checkpoint of any node; remove what this node left unfinished.

    Raises DestinationError.
    """
    folder = f"{identity.cluster}/{CHECKPOINTS_FOLDER}"
    for name in reversed(destination.folders(folder)):
        data = destination.read(f"{folder}/{name}/{CHECKPOINT_NAME}")
        if data is None:
            if name.endswith(f"-{identity.node}"):
                destination.remove_folder(f"{folder}/{name}")
            continue
        try:
            checkpoint = decode_checkpoint(data)
        except CheckpointError:
            continue  # the replay reports what is wrong with it
        if is_of_folder(checkpoint, f"{folder}/{name}"):
            return checkpoint
    return None


class CheckpointExport:
    """Export of one checkpoint. Call `run` once, in a worker thread."""

    def __init__(
        self,
        pinned: PinnedState,
        identity: Identity,
        destination: Destination,
        log_bytes: int,
        is_stopping: Callable[[], bool],
    ) -> None:
        """`log_bytes`: size of the entries since the last checkpoint; a state that is large
        compared with them is not written.
        """
        self._pinned = pinned
        self._identity = identity
        self._destination = destination
        self._log_bytes = log_bytes
        self._is_stopping = is_stopping
        self._blake3 = blake3()
        self.stream_bytes = 0
        """Size of the state, once it is known."""

    def run(self) -> Checkpoint | None:
        """Write it; None when the state is too large. Releases the pinned state.

        Raises DestinationError, OSError, ExportStopped.
        """
        try:
            source = self._pinned.source()
            self.stream_bytes = source.size_bytes()
            if LOG_PER_STATE_MIN * self.stream_bytes > self._log_bytes:
                return None
            return self._write(source)
        except (DatabaseError, SourceUnreadable) as error:
            raise OSError(f"the state cannot be read: {error}") from error
        finally:
            self._pinned.close()

    def _write(self, source: StateStream) -> Checkpoint:
        identity, applied = self._identity, self._pinned.applied
        folder = checkpoint_folder(identity.cluster, applied.index, identity.node)
        with self._destination.create(f"{folder}/{STATE_FILE}") as output:
            for part in self._parts(source):
                output.write(part)
        checkpoint = Checkpoint(
            schema=CHECKPOINT_SCHEMA,
            cluster=identity.cluster,
            node=identity.node,
            group=identity.group,
            index=applied.index,
            term=applied.term,
            digest=digest_bytes(applied.digest).hex(),
            stream_bytes=self.stream_bytes,
            stream_blake3=self._blake3.hexdigest(),
        )
        encoded = msgspec.json.format(msgspec.json.encode(checkpoint))
        self._destination.write(f"{folder}/{CHECKPOINT_NAME}", encoded)
        return checkpoint

    def _parts(self, source: StateStream) -> Iterator[bytes]:
        offset = 0
        while part := source.read(offset, _READ_BYTES):
            if self._is_stopping():
                raise ExportStopped
            self._blake3.update(part)
            offset += len(part)
            yield part


class CheckpointTurns:
    """When this node writes a checkpoint. Created and used in the archiver's loop."""

    def __init__(self, wanted_bytes: int, turn: Callable[[], int]) -> None:
        """`wanted_bytes`: log between two checkpoints, 0 for no checkpoints; `turn`: how many
        members write one before this node.
        """
        self._wanted_bytes = wanted_bytes
        self._turn = turn
        self._state_bytes = 0
        self._since = 0
        self._newest = 0
        """Index of the newest known checkpoint."""

    def begin(self, total_bytes: int) -> None:
        """Start counting kept bytes at `total_bytes`."""
        self._since = total_bytes

    def log_bytes(self, total_bytes: int) -> int:
        """Return the bytes kept since the last checkpoint."""
        return total_bytes - self._since

    def is_due(self, total_bytes: int, *, is_busy: bool = False) -> bool:
        """Whether it is this node's turn, unless another was faster; a busy node goes later."""
        if not self._wanted_bytes:
            return False
        wanted = max(self._wanted_bytes, LOG_PER_STATE * self._state_bytes)
        wanted *= LOG_PER_BUSY_STATE if is_busy else 1
        return self.log_bytes(total_bytes) >= wanted + wanted * self._turn() // 2

    def heard(self, newest: Checkpoint | None, total_bytes: int) -> bool:
        """Take the newest checkpoint of the archive; return whether another node was faster."""
        if newest is None or newest.index <= self._newest:
            return False
        self.wrote(newest, total_bytes)
        return True

    def wrote(self, checkpoint: Checkpoint, total_bytes: int) -> None:
        """Count from this checkpoint on."""
        self._newest, self._state_bytes = checkpoint.index, checkpoint.stream_bytes
        self._since = total_bytes

    def refused(self, stream_bytes: int) -> None:
        """The state was too large: wait for more log."""
        self._state_bytes = stream_bytes
