"""A backup: a folder with a whole state in one file, and in another what is needed to verify it.

    state.qsnap        the stream of `qm.store.snapshot.StoreSnapshot`: rows, blob files, bodies
    backup.json.sig    the signature of backup.json (`qm.store.signing`)
    backup.json        `Backup`, written last: a folder without it is not a backup

The base that compaction of the archive leaves has the same form, so either can be restored.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec

from qm.model.queries import View, queue_manager
from qm.model.values.limits import APPLY_VERSION
from qm.store.bodies.body_places import BodyDamaged
from qm.store.generation import folder as generation_folder
from qm.store.generation import switch_to, sync_folder
from qm.store.replay import Replay
from qm.store.signing import (
    SIGNATURE_FILE_MAX_BYTES,
    SIGNATURE_SUFFIX,
    SignatureError,
    Signer,
    check,
)
from qm.store.snapshot import SnapshotDamaged, unpack
from raft.log.disk import DiskDirectory
from raft.machine import SnapshotSource

BACKUP_FORMAT: Final = 1
MANIFEST_FILE: Final = "backup.json"
SIGNATURE_FILE: Final = MANIFEST_FILE + SIGNATURE_SUFFIX
STATE_FILE: Final = "state.qsnap"
MANIFEST_MAX_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20

Progress = Callable[[int, int], None]
"""Called from time to time with (bytes done, bytes in total)."""


class BackupError(Exception):
    """The folder cannot be used or written as a backup; the text says why and what to do."""


class BackupHead(msgspec.Struct, frozen=True):
    """The state in a backup."""

    cluster: str
    """Id of the Raft cluster to whose log `index` belongs, hexadecimal."""
    index: int
    term: int
    """Term of the last entry that the state contains."""
    digest: str
    """Digest of the replicated rows, hexadecimal (qm/model/design.md, Digest)."""
    state_version: int
    """Apply version; a build that knows only older ones cannot restore the state."""
    created_ms: int
    """Cluster time of the state, UTC milliseconds."""
    source: str
    """The node, or the program, that made it."""
    build: str


class BackupFile(msgspec.Struct, frozen=True):
    """One file of the folder."""

    name: str
    """Without any folder: nothing outside the backup's own is ever opened."""
    size_bytes: int
    sha256: str


class Backup(msgspec.Struct, frozen=True):
    """The contents of `backup.json`."""

    format: int
    head: BackupHead
    files: tuple[BackupFile, ...]

    def state_file(self) -> BackupFile:
        """Return the entry of the state. Raises BackupError."""
        for file in self.files:
            if file.name == STATE_FILE:
                return file
        raise BackupError(f"{MANIFEST_FILE} names no {STATE_FILE}: it is damaged")


_DECODER: Final = msgspec.json.Decoder(Backup)


def encode_backup(head: BackupHead, size_bytes: int, sha256: str) -> bytes:
    """Return the contents of `backup.json` for a state of this length and hash."""
    state = BackupFile(STATE_FILE, size_bytes, sha256)
    backup = Backup(BACKUP_FORMAT, head, (state,))
    return msgspec.json.format(msgspec.json.encode(backup)) + b"\n"


class BackupWriter:
    """Writes one backup into a folder that is empty or absent; a context manager.

    Left without `finish`, it removes what it wrote.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder. Raises BackupError, OSError."""
        if folder.exists() and any(folder.iterdir()):
            raise BackupError(f"{folder} is not empty: give each backup a folder of its own")
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = (folder / STATE_FILE).open("xb")
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0
        self._is_finished = False

    def write(self, data: bytes) -> None:
        """Append to the state's stream. Raises OSError."""
        self._file.write(data)
        self._sha256.update(data)
        self._size_bytes += len(data)

    def finish(self, head: BackupHead) -> Backup:
        """Write an unsigned `backup.json` and make everything durable. Raises OSError."""
        return self._finish(encode_backup(head, self._size_bytes, self._sha256.hexdigest()), b"")

    def finish_signed(self, manifest: bytes, signature: bytes) -> Backup:
        """The same with a `backup.json` that was made and signed where the state came from; without
        a signature if that is empty.

        Raises BackupError if it is not about what was written, OSError.
        """
        return self._finish(manifest, signature)

    def _finish(self, manifest: bytes, signature: bytes) -> Backup:
        backup = _decode(manifest, str(self._folder / MANIFEST_FILE))
        state = BackupFile(STATE_FILE, self._size_bytes, self._sha256.hexdigest())
        if backup.files != (state,):
            raise BackupError("other bytes arrived than the node has signed: make the backup again")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if signature:
            self._write(SIGNATURE_FILE, signature)
        self._write(MANIFEST_FILE, manifest)
        self._is_finished = True
        return backup

    def _write(self, name: str, data: bytes) -> None:
        """Write a small file durably."""
        fresh = self._folder / f"{name}.new"
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._folder / name)
        sync_folder(self._folder)

    def __enter__(self) -> "BackupWriter":
        """Return this writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the files unless the backup was finished."""
        self._file.close()
        if not self._is_finished:
            for name in (
                STATE_FILE,
                SIGNATURE_FILE,
                f"{SIGNATURE_FILE}.new",
                f"{MANIFEST_FILE}.new",
            ):
                (self._folder / name).unlink(missing_ok=True)


def write_backup(
    folder: Path, source: SnapshotSource, head: BackupHead, signer: Signer | None = None
) -> Backup:
    """Write a whole backup of this node's state. Raises BackupError, OSError."""
    with BackupWriter(folder) as writer:
        sha256, offset = hashlib.sha256(), 0
        while part := source.read(offset, _READ_BYTES):
            writer.write(part)
            sha256.update(part)
            offset += len(part)
        manifest = encode_backup(head, offset, sha256.hexdigest())
        signature = signer.sign(MANIFEST_FILE, manifest) if signer is not None else b""
        return writer.finish_signed(manifest, signature)


class SignedBackup(msgspec.Struct, frozen=True):
    """A backup, and who signed its description."""

    backup: Backup
    signer: str
    """Public key, hexadecimal; "": nobody."""


def read_signed(folder: Path, trusted: Collection[str] | None) -> SignedBackup:
    """Return the description in a folder, without verifying its files. Raises BackupError.

    `trusted`: the public keys that may have signed it; None takes any, and none.
    """
    path = folder / MANIFEST_FILE
    try:
        data = _read_small(path, MANIFEST_MAX_BYTES)
    except OSError as error:
        raise BackupError(
            f"{path}: {error.strerror}: a folder without it is no backup, or an unfinished one"
        ) from error
    try:
        signature = _read_small(folder / SIGNATURE_FILE, SIGNATURE_FILE_MAX_BYTES)
    except FileNotFoundError:
        signature = None
    except OSError as error:
        raise BackupError(f"{folder / SIGNATURE_FILE}: {error.strerror}") from error
    try:
        signer = check(MANIFEST_FILE, data, signature, trusted)
    except SignatureError as error:
        raise BackupError(f"{folder}: {error}") from error
    return SignedBackup(_decode(data, str(path)), signer)


def read_backup(folder: Path) -> Backup:
    """Return the description in a folder, whoever signed it. Raises BackupError."""
    return read_signed(folder, None).backup


def _read_small(path: Path, max_bytes: int) -> bytes:
    with _open_own(path) as file:
        return file.read(max_bytes + 1)


def _decode(data: bytes, path: str) -> Backup:
    try:
        if len(data) > MANIFEST_MAX_BYTES:
            raise msgspec.DecodeError(f"longer than {MANIFEST_MAX_BYTES} bytes")
        backup = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise BackupError(f"{path}: {error}: it is damaged, or not of a backup") from error
    if backup.format != BACKUP_FORMAT:
        raise BackupError(
            f"{path}: format {backup.format}; this build reads format {BACKUP_FORMAT}"
        )
    for name in (one.name for one in backup.files):
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise BackupError(
                f"{path} names {name!r}, which is not a file of its own folder: do not use it"
            )
    return backup


def _open_own(path: Path) -> BinaryIO:
    """Open a file of a backup for reading; a link that may lead elsewhere is refused.

    Raises OSError.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def check_files(folder: Path, backup: Backup, progress: Progress = lambda _done, _all: None) -> int:
    """Read every file and compare it with its size and SHA-256; return the bytes read.

    Raises BackupError, with the file's name.
    """
    done, total = 0, sum(file.size_bytes for file in backup.files)
    for expected in backup.files:
        path = folder / expected.name
        sha256, size_bytes = hashlib.sha256(), 0
        try:
            with _open_own(path) as file:
                while part := file.read(_READ_BYTES):
                    sha256.update(part)
                    size_bytes += len(part)
                    progress(done + size_bytes, total)
        except OSError as error:
            raise BackupError(f"{path}: {error.strerror}") from error
        if size_bytes != expected.size_bytes:
            raise BackupError(f"{path}: {size_bytes} bytes instead of {expected.size_bytes}")
        if sha256.hexdigest() != expected.sha256:
            raise BackupError(f"{path}: its SHA-256 is not the one in {MANIFEST_FILE}")
        done += size_bytes
    return done


def unpack_backup(folder: Path, backup: Backup, store: Path) -> None:
    """Make a backup the first state of a node's store, a folder that does not exist yet.

    Check its files before. Durable on return. Raises BackupError, OSError.
    """
    head = backup.head
    if head.state_version > APPLY_VERSION:
        raise BackupError(
            f"{folder}: its state has version {head.state_version}, this build knows up to"
            f" {APPLY_VERSION}: restore it with a newer release"
        )
    store.mkdir(parents=True, exist_ok=True)
    directory = DiskDirectory(store)
    first = generation_folder(store, 1)
    try:
        with _open_own(folder / backup.state_file().name) as stream:
            unpack(stream, directory, first, head.index, head.term)
    except SnapshotDamaged as error:
        raise BackupError(f"{folder}: {error}") from error
    switch_to(directory, 1)


class Verified(msgspec.Struct, frozen=True):
    """The contents of a verified backup."""

    queue_manager: bytes
    """GUID of the queue manager; empty if the state has none."""
    computer_name: str
    messages: int
    """Messages in all queues; each body was read and matches its checksum."""
    size_bytes: int
    digest: str
    signer: str
    """Public key of the signature, "" for none."""


def verify_backup(
    folder: Path,
    scratch: Path | None = None,
    progress: Progress = lambda _done, _all: None,
    trusted: Collection[str] | None = None,
) -> Verified:
    """Build the state of a backup in a temporary folder below `scratch` and verify files, digest of
    the rows, and every message's body. Takes as much disk as the backup. `trusted`: see
    `read_signed`.

    Raises BackupError, OSError.
    """
    signed = read_signed(folder, trusted)
    backup = signed.backup
    size_bytes = check_files(folder, backup, progress)
    head = backup.head
    with tempfile.TemporaryDirectory(prefix="quorate-verify-", dir=scratch) as place:
        replay = Replay(Path(place) / "state")
        try:
            replay.install(folder / backup.state_file().name, head.index, head.term)
            digest = replay.applied.digest.to_bytes(16, "little").hex()
            if digest != head.digest:
                raise BackupError(f"the state's digest is {digest}, not {head.digest}")
            messages = replay.verify_bodies()
            found = queue_manager(View.of(replay.state))
        except (SnapshotDamaged, BodyDamaged) as error:
            raise BackupError(f"{folder}: {error}") from error
        finally:
            replay.close()
    attributes = found.attributes if found is not None else None
    return Verified(
        attributes.identifier if attributes is not None else b"",
        attributes.computer_name if attributes is not None else "",
        messages,
        size_bytes,
        digest,
        signed.signer,
    )
