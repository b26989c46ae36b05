"""Checkpoints of an archive (qm.archive.checkpoints), as starting points of a replay."""

from qm.archive.checkpoints import (
    CHECKPOINT_NAME,
    CHECKPOINT_SCHEMA,
    CHECKPOINTS_FOLDER,
    Checkpoint,
    CheckpointError,
    checkpoint_folder,
    decode_checkpoint,
    folder_index,
)
from qm.store.backup import STATE_FILE
from spark.archive.base import stream_problem
from spark.archive.files import FileProblem
from spark.archive.store import ArchiveStore
from spark.replay.replay import Start


def folder_of(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's folder within the archive."""
    return checkpoint_folder(checkpoint.cluster, checkpoint.index, checkpoint.node)


def start_of(checkpoint: Checkpoint) -> Start:
    """Return the start of a replay from a checkpoint."""
    return Start(
        path=f"{folder_of(checkpoint)}/{STATE_FILE}",
        index=checkpoint.index,
        term=checkpoint.term,
        digest=checkpoint.digest,
        stream_sha256=checkpoint.stream_sha256,
        stream_blake3=checkpoint.stream_blake3,
    )


def problem_of(checkpoint: Checkpoint, detail: str) -> FileProblem:
    """Return why a checkpoint cannot be used."""
    index = checkpoint.index
    return FileProblem(
        folder_of(checkpoint), detail, checkpoint.group, checkpoint.node, index, index
    )


def find_checkpoints(
    store: ArchiveStore, cluster: str, above: int
) -> tuple[list[Checkpoint], list[FileProblem]]:
    """Return the checkpoints above an index, lowest first, and those that cannot be used."""
    found: list[Checkpoint] = []
    problems: list[FileProblem] = []
    folder = f"{cluster}/{CHECKPOINTS_FOLDER}"
    for name in store.folders(folder):
        index = folder_index(name)
        path = f"{folder}/{name}/{CHECKPOINT_NAME}"
        if (index is not None and index <= above) or store.size_bytes(path) is None:
            continue
        try:
            checkpoint = decode_checkpoint(store.read_signed(path))
        except (CheckpointError, OSError) as error:
            at = index or 0
            problems.append(FileProblem(path, f"unreadable: {error}", first=at, last=at))
            continue
        detail = _problem(store, checkpoint, cluster, path)
        if detail:
            problems.append(problem_of(checkpoint, detail))
        else:
            found.append(checkpoint)
    return found, problems


def _problem(store: ArchiveStore, checkpoint: Checkpoint, cluster: str, path: str) -> str:
    folder = path.rpartition("/")[0]
    if (checkpoint.cluster, folder_of(checkpoint)) != (cluster, folder):
        return f"belongs to entry {checkpoint.index} of cluster {checkpoint.cluster}"
    if not 1 <= checkpoint.schema <= CHECKPOINT_SCHEMA:
        return f"has schema {checkpoint.schema}, this job knows up to {CHECKPOINT_SCHEMA}"
    return stream_problem(store, folder, checkpoint.stream_bytes)
