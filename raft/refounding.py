"""How a group begins again with one voter: from a state, or from the log of the last member.

Both are for when a majority is lost for good, and both make a new group with another id, to which
returning members of the old group are strangers. Callers tell the operator what may be lost. As
with founders, the one voter's log looks as if a leader had committed it.
"""

from collections.abc import Sequence

import msgspec

from raft.core.membership import encode_configuration, is_retired, name_and_incarnation
from raft.founding import LOG_DIRECTORY, configurations
from raft.identity import Identity, IdentityRefused, claim, load, start, store
from raft.log.files import Directory
from raft.log.log import Log, LogConfig, has_log
from raft.types import Configuration, Entry, EntryKind, HardState, NodeId, SnapshotMeta
from raft.watch import debt


def begin_behind(
    directory: Directory,
    log_config: LogConfig,
    node: NodeId,
    cluster: bytes,
    state: tuple[int, int],
    payloads: Sequence[bytes],
) -> None:
    """Prepare an empty directory for the one voter of a group that begins behind a state.

    `state`: (index, term) of the state machine; `payloads`: DATA entries that follow. Durable on
    return; a crash before that leaves a directory that no replica opens. Raises IdentityRefused
    unless the directory is empty, and what opening a log raises.
    """
    name, incarnation = name_and_incarnation(node)
    log_directory = directory.subdirectory(LOG_DIRECTORY)
    if load(directory) is not None or has_log(log_directory):
        raise IdentityRefused("this directory was prepared before: a new group needs an empty one")
    identity = claim(directory, Identity(cluster, name, incarnation), has_log=False, known_ids=())
    index, term = state
    log = Log.open(log_directory, log_config)
    try:
        log.reset(SnapshotMeta(index, term, Configuration((node,)), 0))
        _append(log, [(EntryKind.DATA, payload) for payload in payloads])
    finally:
        log.close()
    start(directory, identity)


def begin_alone(
    directory: Directory, log_config: LogConfig, cluster: bytes, payloads: Sequence[bytes]
) -> None:
    """Make a stopped member the one voter of a new group; `payloads`: DATA entries that follow.

    Every entry of its log counts as committed from now on; what a lost majority committed beyond
    that is gone. All other members leave for good. After a crash on the way, call it again. Raises
    IdentityRefused for a directory that is not a voter's, and what opening a log raises.
    """
    identity = load(directory)
    if identity is None or not identity.is_started:
        raise IdentityRefused("this directory is not a member's: there is nothing to recover from")
    log = Log.open(directory.subdirectory(LOG_DIRECTORY), log_config)
    try:
        known = configurations(log)
        if not known or identity.node_id not in known[-1][1].voters:
            raise IdentityRefused(
                f"{identity.node_id} is not a voter of its group: recover from one that is"
            )
        # With the new cluster id, nothing that the old group sends is accepted from here on.
        store(directory, msgspec.structs.replace(identity, cluster_id=cluster))
        debt.forget(directory)
        data = encode_configuration(_alone(known[-1][1], identity.node_id))
        _append(log, [(EntryKind.CONFIG, data), *((EntryKind.DATA, each) for each in payloads)])
    finally:
        log.close()


def _alone(configuration: Configuration, node: NodeId) -> Configuration:
    """Return the configuration with one voter, in which all other members are retired."""
    gone = {*configuration.voters, *configuration.learners} - {node}
    names = {name_and_incarnation(each)[0] for each in gone}
    kept = [each for each in configuration.retired if name_and_incarnation(each)[0] not in names]
    alone = Configuration((node,), (), tuple(sorted((*kept, *gone))))
    assert not is_retired(alone, node), "a voter that had left"
    return alone


def _append(log: Log, entries: Sequence[tuple[EntryKind, bytes]]) -> None:
    """Append entries durably, as if the leader of a new term had committed them."""
    term = max(log.hard_state.term, log.last_term) + 1
    first = log.last_index() + 1
    records = tuple(Entry(first + k, term, kind, data) for k, (kind, data) in enumerate(entries))
    log.append(HardState(term, None, log.hard_state.commit), records)
    _sync(log)
    log.append(HardState(term, None, log.last_index()), ())
    _sync(log)


def _sync(log: Log) -> None:
    sync = log.begin_sync()
    sync.run()
    log.end_sync(sync)
