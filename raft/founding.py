"""How a replica's directory begins: identity file, log, and the founding entry.

The first configuration of a cluster is entry 1 of its log, the same on every founder, as if a
leader of term 1 had committed it. Nothing else distinguishes founders afterwards.
"""

from raft.core.membership import decode_configuration, encode_configuration, name_and_incarnation
from raft.identity import Identity, IdentityRefused, claim, load, start
from raft.log.files import Directory
from raft.log.log import Log, LogConfig, has_log
from raft.types import Configuration, Entry, EntryKind, HardState, NodeId

LOG_DIRECTORY = "log"
FOUNDING_TERM = 1
FOUNDING_INDEX = 1


def create(
    directory: Directory,
    log_config: LogConfig,
    node: NodeId,
    cluster: bytes,
    founders: Configuration,
) -> None:
    """Prepare an empty directory; a crash on the way is repaired by calling it again.

    Raises IdentityRefused when the directory was prepared before, or is not empty.
    """
    name, incarnation = name_and_incarnation(node)
    if founders.voters and node not in founders.voters:
        raise IdentityRefused(f"{node} is not among the founders: let it join as a learner")
    found = load(directory)
    if found is not None and found.is_started:
        raise IdentityRefused(f"this directory belongs to {found.node_id} already: just start it")
    identity = claim(
        directory,
        Identity(cluster, name, incarnation),
        has_log=has_log(directory.subdirectory(LOG_DIRECTORY)),
        known_ids=(),
    )
    log = Log.open(directory.subdirectory(LOG_DIRECTORY), log_config)
    try:
        if founders.voters and log.last_index() == 0:
            _write_founding_entry(log, founders)
    finally:
        log.close()
    start(directory, identity)


def _write_founding_entry(log: Log, founders: Configuration) -> None:
    data = encode_configuration(founders)
    entry = Entry(FOUNDING_INDEX, FOUNDING_TERM, EntryKind.CONFIG, data)
    log.append(HardState(FOUNDING_TERM, None, FOUNDING_INDEX), (entry,))
    sync = log.begin_sync()
    sync.run()
    log.end_sync(sync)


def open_log(directory: Directory, log_config: LogConfig, node: NodeId, cluster: bytes) -> Log:
    """Open the log of a prepared directory. Raises IdentityRefused, and what Log.open raises."""
    name, incarnation = name_and_incarnation(node)
    found = load(directory)
    if found is None or not found.is_started:
        # The id may have voted with a log that is lost: an empty folder does not show otherwise.
        raise IdentityRefused(
            f"this directory is not prepared for {node}: found a cluster or join one with it; "
            "if the node was a member before, join under its next incarnation"
        )
    identity = claim(
        directory,
        Identity(cluster, name, incarnation),
        has_log=has_log(directory.subdirectory(LOG_DIRECTORY)),
        known_ids=(),
    )
    if identity.node_id != node:
        raise IdentityRefused(f"this directory belongs to {identity.node_id}, not to {node}")
    return Log.open(directory.subdirectory(LOG_DIRECTORY), log_config)


def configurations(log: Log) -> tuple[tuple[int, Configuration], ...]:
    """Return the configurations that the log knows, as (index, configuration), oldest first."""
    known: list[tuple[int, Configuration]] = []
    meta = log.snapshot_meta
    if meta is not None:
        known.append((meta.index, meta.configuration))
    for entry in log.config_entries():
        if not known or entry.index > known[-1][0]:
            known.append((entry.index, decode_configuration(entry.data)))
    return tuple(known)
