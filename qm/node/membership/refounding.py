"""Founds a cluster from old data: from a backup, or from the last node of a lost quorum.

Both work on the data folder of a stopped node and make that node the only voter of a new cluster
with the old queue manager in it; other nodes join as usual (`qm node join`). Its first entries tell
the state machine that others may know more than this state contains (StateRestored).
"""

import contextlib
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from qm.model.queries import View, count_numbered, queue_manager
from qm.model.values.commands import AssignTransfer, Command, RenumberStep, Stamp, StateRestored
from qm.model.values.limits import SETTLED_PER_COMMAND_MAX
from qm.node.config.schema import NodeConfig
from qm.node.membership.birth import fresh_cluster, sealing_key, unsealed
from qm.node.replica.replicated_store import GROUP, RAFT_FOLDER, STORE_FOLDER, ReplicatedConfig
from qm.store.backup import Progress, check_files, read_signed, unpack_backup
from qm.store.codec import decode_entry, encode_command, encode_stamp
from qm.store.database import DatabaseError
from qm.store.generation import STATE_FOLDER, current_generation, folder, sync_folder
from qm.store.rocks import RocksState, open_database
from qm.store.sealing import SealingError
from qm.store.signing import Signer
from raft.batch import BatchBuilder
from raft.founding import LOG_DIRECTORY
from raft.identity import Identity, IdentityRefused, load
from raft.inspection import Inspection, LogDamaged
from raft.log.disk import DiskDirectory
from raft.log.log import LogConfig
from raft.refounding import begin_alone, begin_behind
from raft.types import EntryKind

STAGING_FOLDER: Final = "restoring"
"""Folder within the data folder while a backup is unpacked; only a crash leaves it behind."""
_CACHE_BYTES: Final = 64 << 20


class RefoundingRefused(Exception):
    """It cannot be done; the text says why and what to do. Nothing was changed."""


class Refounded(msgspec.Struct, frozen=True):
    """The result: what the node is now."""

    cluster: bytes
    """Id of the new cluster."""
    raft_id: str
    computer_name: str
    index: int
    """Index of the last entry of the old cluster that is in it."""
    warnings: tuple[str, ...]


def own_signer(config: NodeConfig) -> frozenset[str]:
    """Return the public key of the cluster whose sealing key this configuration has: what may have
    signed a backup of it. Raises RefoundingRefused.
    """
    try:
        return frozenset({Signer(sealing_key(config.storage, config.data)).public})
    except SealingError as error:
        raise RefoundingRefused(
            f"nothing says who may have signed the backup: put the sealing key in place ({error}),"
            " or name its signer with --signer"
        ) from error


def restore(
    config: NodeConfig,
    backup_folder: Path,
    *,
    holds_outgoing: bool,
    signers: frozenset[str] | None,
    progress: Progress = lambda _done, _all: None,
) -> Refounded:
    """Make a node without data the first of a new cluster with the state of a backup.

    `signers`: the public keys that may have signed it, None for any or none. May be repeated after
    a crash. Raises RefoundingRefused, BackupError, OSError.
    """
    backup = read_signed(backup_folder, signers).backup
    staging = _empty_staging(config.data)
    check_files(backup_folder, backup, progress)
    node = f"{config.name}.1"
    cluster = fresh_cluster(config.birth)
    unpack_backup(backup_folder, backup, staging / STORE_FOLDER)
    state = _open_state(staging / STORE_FOLDER)
    try:
        name, warnings = _check_manager(config, state)
        payloads = _first_entries(config, state, holds_outgoing=holds_outgoing)
    except RefoundingRefused:
        shutil.rmtree(staging)
        raise
    finally:
        state.close()
    raft = DiskDirectory(staging / RAFT_FOLDER)
    log_config = _log_config(config, node, cluster)
    begin_behind(raft, log_config, node, cluster, (backup.head.index, backup.head.term), payloads)
    _unveil(config.data, staging)
    return Refounded(cluster, node, name, backup.head.index, warnings)


def _empty_staging(data: Path) -> Path:
    """Return a new, empty folder to unpack into. Raises RefoundingRefused."""
    staging, store = data / STAGING_FOLDER, data / STORE_FOLDER
    if (data / RAFT_FOLDER).exists():
        raise RefoundingRefused(
            f"{data} belongs to a node already: a backup is restored into an empty folder"
        )
    if staging.exists():  # an interrupted restore, perhaps between its two renames
        shutil.rmtree(staging)
        shutil.rmtree(store, ignore_errors=True)
    elif store.exists():
        raise RefoundingRefused(f"{store} holds a state without its log: move it away first")
    staging.mkdir(mode=0o700, parents=True)
    return staging


def _unveil(data: Path, staging: Path) -> None:
    """Move the state, then the log into place: a folder with a log belongs to a node."""
    (staging / STORE_FOLDER).rename(data / STORE_FOLDER)
    sync_folder(data)
    (staging / RAFT_FOLDER).rename(data / RAFT_FOLDER)
    sync_folder(data)
    staging.rmdir()


def _check_manager(config: NodeConfig, state: RocksState) -> tuple[str, tuple[str, ...]]:
    """Return the queue manager's name, and warnings for the operator."""
    found = queue_manager(View.of(state))
    if found is None:
        raise RefoundingRefused("there is no queue manager in this state: use `qm cluster init`")
    attributes = found.attributes
    try:
        key = sealing_key(config.storage, config.data)
    except SealingError as error:
        warning = f"the node will not open the queue manager's private keys: {error}"
        return attributes.computer_name, (warning,)
    try:
        unsealed(key, attributes.sealed_private_keys)
    except SealingError as error:
        raise RefoundingRefused(str(error)) from error
    return attributes.computer_name, ()


class Survivor(msgspec.Struct, frozen=True):
    """What a stopped node knows of its cluster."""

    raft_id: str
    cluster: bytes
    voters: tuple[str, ...]
    """According to the newest configuration in its log."""
    learners: tuple[str, ...]
    term: int
    last_index: int
    last_term: int
    known_committed: int
    """Entries of the log above it may or may not have been committed; the others may have
    committed, and acknowledged, entries above `last_index`.
    """
    applied_index: int


def survey(config: NodeConfig) -> Survivor:
    """Return what a stopped node knows, and change nothing. Raises RefoundingRefused."""
    state = _stopped_state(config)
    try:
        with _inspected(config) as (identity, log):
            return _survivor(identity, log, state.applied.index)
    finally:
        state.close()


def recover(config: NodeConfig) -> Refounded:
    """Make a stopped node the only voter of a new cluster with what it has.

    What the lost members acknowledged beyond its log is lost; what only this node had counts as
    committed. May be repeated after a crash. Raises RefoundingRefused, OSError.
    """
    state = _stopped_state(config)
    try:
        name, warnings = _check_manager(config, state)
        with _inspected(config) as (identity, log):
            numbered = _numbered_behind(log, state.applied.index)
            survivor = _survivor(identity, log, state.applied.index)
        payloads = _first_entries(config, state, numbered, holds_outgoing=False)
        cluster = fresh_cluster(config.birth)
        log_config = _log_config(config, survivor.raft_id, cluster)
        begin_alone(DiskDirectory(config.data / RAFT_FOLDER), log_config, cluster, payloads)
    except (IdentityRefused, LogDamaged) as error:
        raise RefoundingRefused(str(error)) from error
    finally:
        state.close()
    return Refounded(cluster, survivor.raft_id, name, survivor.last_index, warnings)


@contextlib.contextmanager
def _inspected(config: NodeConfig) -> Iterator[tuple[Identity, Inspection]]:
    """Yield identity and log of the node. Raises RefoundingRefused."""
    directory = DiskDirectory(config.data / RAFT_FOLDER)
    try:
        identity = load(directory)
        if identity is None or not identity.is_started:
            raise RefoundingRefused(f"{config.data} is not a member's: there is nothing to recover")
        if identity.name != config.name:
            raise RefoundingRefused(
                f"the data folder belongs to node {identity.name}, the configuration says"
                f" {config.name}: correct the configuration"
            )
        with Inspection.open(directory.subdirectory(LOG_DIRECTORY), GROUP) as log:
            yield identity, log
    except (IdentityRefused, LogDamaged, FileNotFoundError) as error:
        raise RefoundingRefused(str(error)) from error


def _survivor(identity: Identity, log: Inspection, applied_index: int) -> Survivor:
    configuration = log.configuration()
    return Survivor(
        raft_id=identity.node_id,
        cluster=identity.cluster_id,
        voters=configuration.voters,
        learners=configuration.learners,
        term=log.hard_state.term,
        last_index=log.last_index,
        last_term=log.last_term,
        known_committed=max(log.hard_state.commit, applied_index),
        applied_index=applied_index,
    )


def _numbered_behind(log: Inspection, applied_index: int) -> int:
    """Return how many positions may be numbered by entries that are not applied yet."""
    count = 0
    for entry in log.entries(applied_index + 1, log.last_index):
        if entry.kind is EntryKind.DATA:
            for command in decode_entry(entry.index, entry.data).commands:
                if isinstance(command, AssignTransfer):
                    count += len(command.lookup_identifiers)
    return count


def _stopped_state(config: NodeConfig) -> RocksState:
    """Open the state, which a running node keeps locked. Raises RefoundingRefused."""
    if not (config.data / RAFT_FOLDER).exists() or not (config.data / STORE_FOLDER).exists():
        raise RefoundingRefused(f"{config.data} holds no node's data: see `data`")
    try:
        return _open_state(config.data / STORE_FOLDER)
    except (DatabaseError, OSError) as error:
        raise RefoundingRefused(
            f"the state cannot be opened: stop the node of this configuration first ({error})"
        ) from error


def _open_state(store: Path) -> RocksState:
    here = folder(store, current_generation(DiskDirectory(store)))
    return RocksState(open_database(here / STATE_FOLDER, cache_bytes=_CACHE_BYTES))


def _log_config(config: NodeConfig, node: str, cluster: bytes) -> LogConfig:
    replicated = ReplicatedConfig(node=node, cluster=cluster, data=config.data)
    salt = random.Random(os.urandom(16)).getrandbits(64)
    return replicated.replica_config().log_config(salt)


def _first_entries(
    config: NodeConfig, state: RocksState, numbered: int = 0, *, holds_outgoing: bool
) -> Sequence[bytes]:
    """Return the data of the first entries of a new cluster.

    `numbered`: how many positions of outgoing queues may have been numbered beyond this state.
    """
    view = View.of(state)
    hosts = (config.host, *(member.host for member in config.members))
    now_s = int(time.time())
    restored = StateRestored(
        tx_time_stamp=now_s,
        aliases=tuple(dict.fromkeys((*config.msmq.aliases, *hosts))),
        is_outgoing_held=holds_outgoing,
    )
    stamp = encode_stamp(Stamp(max(now_s * 1000, view.counters().clock_ms), config.name))
    steps = -(-(count_numbered(view) + numbered) // SETTLED_PER_COMMAND_MAX)
    commands: list[Command] = [restored, *([RenumberStep(SETTLED_PER_COMMAND_MAX)] * steps)]
    return [_entry(stamp, command) for command in commands]


def _entry(stamp: bytes, command: Command) -> bytes:
    builder = BatchBuilder()
    builder.add(encode_command(command))
    return builder.build(stamp)
